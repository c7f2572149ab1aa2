// Tables that the browser reads: the files of a glossary, and the columns of a document.

const BYTE_ORDERS = { "255,254": "utf-16le", "254,255": "utf-16be" };
const MOST_CHARACTERS = 200_000; // of a table whose columns are looked for
const MOST_RECORDS = 50;

/** The rows of a table, each a list of cells. Throws a TypeError for what is no text. */
export function readTable(buffer, delimiters) {
  const text = decode(buffer);
  const tables = [...delimiters].map((delimiter) => parse(text, delimiter));
  return tables.reduce((best, table) => (width(table) > width(best) ? table : best));
}

/** The names of the columns of a .csv or .tsv file, or the keys of texts in a .jsonl file. */
export function readColumns(name, buffer) {
  const text = decode(buffer, false).slice(0, MOST_CHARACTERS);
  if (!/\.jsonl$/i.test(name)) {
    const headers = [",", ";", "\t"].map((delimiter) => parse(text, delimiter)[0] ?? []);
    const header = headers.reduce((best, own) => (own.length > best.length ? own : best));
    return distinct(header.map((cell) => cell.trim()));
  }
  return distinct(text.split("\n").slice(0, MOST_RECORDS).flatMap(keysOfTexts));
}

function decode(buffer, fatal = true) {
  const start = new Uint8Array(buffer.slice(0, 2)).join();
  return new TextDecoder(BYTE_ORDERS[start] ?? "utf-8", { fatal }).decode(buffer);
}

function distinct(names) {
  return [...new Set(names.filter(Boolean))];
}

function keysOfTexts(line) {
  try {
    const isText = (value) => typeof value === "string";
    return Object.entries(JSON.parse(line))
      .filter(([, value]) => isText(value) || (Array.isArray(value) && value.every(isText)))
      .map(([key]) => key);
  } catch {
    return []; // the server says what is wrong
  }
}

function width(table) {
  return table[0]?.length ?? 0;
}

function parse(text, delimiter) {
  const cell = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^${delimiter}\r\n]*))(${delimiter}|\r?\n|\r|$)`, "y");
  const rows = [];
  let row = [];
  while (cell.lastIndex < text.length) {
    const [, quoted, plain, end] = cell.exec(text); // a mark that stands alone is a character
    row.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === delimiter) continue;
    rows.push(row);
    row = [];
  }
  if (row.length) rows.push([...row, ""]); // the text ends with a delimiter
  return rows;
}
