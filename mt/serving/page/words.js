// Words of a text, and which words of the source a word of the translation looked at.

const WORD = /[\p{L}\p{N}\p{M}]+(?:[-.,:’'][\p{L}\p{N}\p{M}]+)*/gu; // "don't", "E-Mail", "3.50"

/** The words of a text: [{start, end}]. What lies between them is white space and punctuation. */
export function findWords(text) {
  return [...text.matchAll(WORD)].map(({ 0: word, index }) => ({
    start: index,
    end: index + word.length,
  }));
}

/** The line breaks of a textarea are all "\n". */
export function splitLines(text) {
  return text.split("\n");
}

/**
 * A line as the page shows it. `segments`: of the server's answer, the sentences of the line.
 * Adds the words of both sides, and to each segment `links`: for each of its words the words of
 * the source with their weights, [[number, weight], ...].
 */
export function makeLine(source, segments) {
  const sourceWords = findWords(source);
  const place = placer(source, sourceWords);
  return {
    source,
    segments: segments.map((segment) => {
      const words = findWords(segment.text);
      const sourceOf = (segment.source_pieces ?? []).map(place);
      const targetOf = (segment.pieces ?? []).map(placer(segment.text, words));
      const links = link(segment.alignment ?? [], targetOf, sourceOf, words.length);
      return { ...segment, words, links };
    }),
  };
}

/**
 * A function that gives for each piece, one after the other, the number of its word, or null.
 * The pieces spell the text after the tokenizer's normalisation, perhaps with another case:
 * so both are compared without white space, case and compatibility forms.
 */
function placer(text, words) {
  const owners = new Array(text.length).fill(null);
  words.forEach(({ start, end }, number) => owners.fill(number, start, end));
  let letters = "";
  const owner = []; // of each of the letters
  let offset = 0;
  for (const character of text) {
    const folded = fold(character);
    letters += folded;
    for (let i = 0; i < folded.length; i++) owner.push(owners[offset]);
    offset += character.length;
  }
  let cursor = 0;
  return (piece) => {
    const folded = fold(piece);
    const found = folded ? letters.indexOf(folded, cursor) : -1;
    // A piece that the text does not spell, as the unknown one, must not match far ahead by chance.
    if (found < 0 || (folded.length < 3 && found > cursor + 20)) return null;
    cursor = found + folded.length;
    const own = owner.slice(found, cursor).find((word) => word !== null);
    return own ?? null;
  };
}

function fold(text) {
  return text.normalize("NFKC").toLowerCase().replaceAll("ß", "ss").replace(/[\s▁]/gu, "");
}

/** The weights of pieces -> weights of words: the sum over a source word, the mean over a word. */
function link(alignment, targetOf, sourceOf, count) {
  const sums = Array.from({ length: count }, () => new Map());
  const pieces = new Array(count).fill(0);
  targetOf.forEach((word, t) => {
    if (word === null || !alignment[t]) return;
    pieces[word] += 1;
    sourceOf.forEach((source, s) => {
      if (source !== null) sums[word].set(source, (sums[word].get(source) ?? 0) + alignment[t][s]);
    });
  });
  return sums.map((weights, word) =>
    [...weights].map(([source, weight]) => [source, weight / pieces[word]]),
  );
}
