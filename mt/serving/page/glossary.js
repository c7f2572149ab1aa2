// The glossary: a field with a term in each line, which is sent with every text and document.

import { readTable } from "./tables.js";

const PAUSE = 500; // ms without a key before the terms count
const MOST_TERMS = 200; // that the server takes
const STORED = "glossary"; // in localStorage, if the user wants it
const ENDING = "\\p{L}{0,3}"; // of a word of the target language

const $ = (id) => document.getElementById(id);
const field = $("terms");

let terms = new Map(); // term -> {targets, source, target}: its translations, and how to find both

/** {term: [translation, ...]} as the server wants it; undefined without terms. */
export function requested() {
  const pairs = [...terms].map(([term, { targets }]) => [term, targets]);
  return pairs.length ? Object.fromEntries(pairs) : undefined;
}

/** The numbers of the words of a translation that come from the glossary, as a rule. */
export function wordsOfTerms({ source, text }, words) {
  const used = [...terms.values()].filter((term) => term.source.test(source));
  const places = used.flatMap((term) => [...text.matchAll(term.target)]);
  const within = ({ start, end }) =>
    places.some(({ 0: found, index }) => start < index + found.length && end > index);
  return new Set([...words.keys()].filter((number) => within(words[number])));
}

/**
 * Read the lines "term = translation". A line with a tab in the place of the sign is one of the
 * files of mt.translate --glossary, in which a slash divides nothing. "#" begins a comment.
 */
function parse(text) {
  const found = new Map();
  const wrong = [];
  text.split("\n").forEach((line, i) => {
    if (!line.trim() || line.startsWith("#")) return;
    const divider = line.includes("\t") ? "\t" : "=";
    const [term, ...rest] = line.split(divider).map((part) => part.trim().replace(/\s+/g, " "));
    const slashes = divider === "=" && !term.includes("/"); // "km/h = km/h" has no alternatives
    const targets = (rest[0] ?? "").split(slashes ? /[|/]/ : "|").map((part) => part.trim());
    if (!term || rest.length !== 1 || targets.includes("")) wrong.push(i + 1);
    else found.set(term, [...new Set([...(found.get(term) ?? []), ...targets])]);
  });
  return { found, wrong };
}

function describe(term, targets) {
  const flags = term === term.toLowerCase() ? "iu" : "u"; // with a capital: as it is written
  const forms = targets.map((target) => target.split(" ").map(escape).join(`${ENDING}\\s+`));
  return {
    targets,
    source: new RegExp(asWord(escape(term).replaceAll(" ", "\\s+"), "(?:e?s)?"), flags),
    target: new RegExp(asWord(`(?:${forms.join("|")})`, ENDING), "giu"),
  };
}

function asWord(pattern, ending) {
  return `(?<![\\p{L}\\p{N}])${pattern}${ending}(?![\\p{L}\\p{N}])`;
}

function escape(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

/** Take what the field holds, and store it; `true` if these are other terms than before. */
function update(isOurs = true) {
  const before = JSON.stringify(requested());
  const { found, wrong } = parse(field.value);
  const sent = [...found].slice(0, MOST_TERMS);
  terms = new Map(sent.map(([term, targets]) => [term, describe(term, targets)]));
  $("terms-count").textContent = sent.length ? `, ${count(sent.length, "term")}` : "";
  const complaints = [];
  if (wrong.length) complaints.push(`${named(wrong)} not sent: write “term\u00a0=\u00a0translation”.`);
  if (found.size > MOST_TERMS) complaints.push(`Only the first ${MOST_TERMS} terms are sent.`);
  complain(complaints.join(" "));
  field.setAttribute("aria-invalid", wrong.length > 0);
  if (isOurs) store();
  return JSON.stringify(requested()) !== before;
}

function complain(text) {
  if ($("terms-wrong").textContent !== text) $("terms-wrong").textContent = text;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** "Line 3 is", "Lines 3, 4 and 2 more are" */
function named(lines) {
  if (lines.length === 1) return `Line ${lines[0]} is`;
  const shown = lines.slice(0, lines.length > 6 ? 5 : lines.length - 1).join(", ");
  return `Lines ${shown} and ${lines.length > 6 ? `${lines.length - 5} more` : lines.at(-1)} are`;
}

function store() {
  try {
    if ($("terms-stored").checked) localStorage.setItem(STORED, field.value);
  } catch {} // the browser forbids it: the terms last as long as the page
}

/** Keep the terms or forget them. Another tab may have kept others: only a click forgets them. */
function onStored() {
  try {
    if (!$("terms-stored").checked) localStorage.removeItem(STORED);
  } catch {}
  store();
}

function load() {
  try {
    const stored = localStorage.getItem(STORED);
    $("terms-stored").checked = stored !== null;
    if (stored !== null) field.value = stored;
  } catch {}
}

/** Add the terms of a file to the field. Four columns are those of DeepL's files. */
async function add(file, languages) {
  const rows = readTable(await file.arrayBuffer(), /\.csv$/i.test(file.name) ? ",;" : "\t");
  const own = (row) =>
    row.length !== 4 || row.slice(2).every((code, i) => isLanguage(code, languages[i]));
  if (rows.length && isHeader(rows[0].slice(0, 2))) rows.shift();
  const lines = rows.filter(own).map(([term, ...rest]) => asLine(term, rest[0]));
  field.value = [field.value.trimEnd(), ...lines].filter(Boolean).join("\n");
  $("glossary").open = true;
}

/** Whether the first row names the columns. */
function isHeader(cells) {
  const names = cells.map((name) => name.trim().toLowerCase()).join("\t");
  return /^(source\ttarget|src\ttgt|term\ttranslation|(en|english|englisch)\t(de|german|deutsch)|(de|german|deutsch)\t(en|english|englisch))$/.test(names);
}

function isLanguage(code, wanted) {
  return code.trim().toLowerCase().split("-")[0] === wanted;
}

function asLine(term, translation) {
  const divider = /[=/]/.test(term + translation) ? "\t" : " = ";
  return translation ? `${term}${divider}${translation}` : term;
}

/**
 * `languages()` are the codes of source and target; `onChange` is called when the terms are other
 * ones. Returns what takes a file.
 */
export function connectGlossary(languages, onChange) {
  let timer = null;
  const take = () => {
    clearTimeout(timer);
    if (update()) onChange();
  };
  const takeFile = async (file) => {
    try {
      await add(file, languages());
    } catch {
      return complain(`${file.name} cannot be read: it must be a table in UTF-8.`);
    }
    take();
  };
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(take, PAUSE);
  });
  field.addEventListener("change", take); // whoever leaves the field may send a document next
  $("terms-stored").addEventListener("change", onStored);
  window.addEventListener("storage", ({ key, newValue }) => {
    const isTyping = document.activeElement === field;
    if (key !== STORED || newValue === null || !$("terms-stored").checked || isTyping) return;
    field.value = newValue; // of another tab
    if (update(false)) onChange();
  });
  $("terms-open").addEventListener("click", () => $("terms-file").click());
  $("terms-file").addEventListener("change", () => {
    takeFile($("terms-file").files[0]);
    $("terms-file").value = ""; // so that the same file can be opened again
  });
  load();
  update();
  return takeFile;
}
