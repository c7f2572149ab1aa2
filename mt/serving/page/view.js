// The two texts on the page: drawing them, and marking words that belong together.

import { wordsOfTerms } from "./glossary.js";
import { findWords } from "./words.js";

const LEAST_WEIGHT = 0.12; // of a link that is worth showing

const mirror = document.getElementById("mirror");
const result = document.getElementById("result");
const textarea = document.getElementById("source");
const drawn = new WeakMap(); // element of a line -> what it shows

/** Put the source behind the textarea, word by word. A line that is there already stays. */
export function drawSource(lines) {
  drawLines(mirror, lines, (line) =>
    spread(line, findWords(line), (word, number) => {
      word.dataset.word = number;
    }),
  );
}

/**
 * Draw the translation. A line is one of makeLine, or {partial, stale}: what has come up to now,
 * and the rest of what stood there before, which stays until it is overwritten.
 */
export function drawResult(lines) {
  unmark();
  const focused = locate(document.activeElement);
  const row = focused && lineNumber(focused);
  drawLines(result, lines, (line) => (line.segments ? segmentsOf(line) : partsOf(line)));
  if (lines.every((line) => line.segments)) drawLegend(lines.flatMap((line) => line.segments));
  const words = [...result.querySelectorAll(".word")];
  if (!words.some((word) => word.tabIndex === 0)) makeStop(words[0] ?? null);
  if (focused && !focused.element.isConnected) wordElement(row, focused.s, focused.word)?.focus();
}

function drawLines(parent, lines, draw) {
  while (parent.children.length > lines.length) parent.lastChild.remove();
  lines.forEach((line, i) => {
    const element = parent.children[i] ?? parent.appendChild(make("div", "line"));
    if (drawn.get(element) === line) return;
    element.replaceChildren(...draw(line));
    if (!element.textContent) element.append(make("br")); // who copies the text gets the line, too
    drawn.set(element, line);
  });
}

function segmentsOf(line) {
  return line.segments.flatMap((segment, s) => {
    const element = make("span", segment.isDoubtful ? "segment doubtful" : "segment");
    const terms = wordsOfTerms(segment, segment.words);
    if (segment.isDoubtful) element.append(unseen("Check this sentence: "));
    element.append(
      ...spread(segment.text, segment.words, (word, number) => {
        Object.assign(word.dataset, { segment: s, word: number });
        word.tabIndex = -1;
        word.classList.toggle("term", terms.has(number));
      }),
    );
    return [segment.before, element];
  });
}

/** Say what the marks mean that can be seen. */
function drawLegend(segments) {
  const doubts = segments.filter((segment) => segment.isDoubtful).length;
  const legend = document.getElementById("doubt-legend");
  const sample = make("span", "doubtful");
  sample.textContent = doubts === 1 ? "Check this sentence" : "Check these sentences";
  const reason = `: the model is not sure of ${doubts === 1 ? "it" : "them"}.`;
  const text = doubts ? sample.textContent + reason : "";
  // The same text once more would be read out once more.
  if (legend.textContent !== text) legend.replaceChildren(...(doubts ? [sample, reason] : []));
  document.getElementById("terms-legend").hidden = !result.querySelector(".term");
}

function partsOf({ partial, stale }) {
  const old = make("span", "stale");
  old.textContent = stale;
  return [partial, old];
}

/** A text as nodes: its words as elements, and between them text. */
function spread(text, words, decorate) {
  const nodes = [];
  let end = 0;
  words.forEach((word, number) => {
    const element = make("span", "word");
    element.textContent = text.slice(word.start, word.end);
    decorate(element, number);
    nodes.push(text.slice(end, word.start), element);
    end = word.end;
  });
  return [...nodes, text.slice(end)];
}

/** What a screen reader reads before a sentence. */
function unseen(text) {
  const element = make("span", "unseen");
  element.lang = "en";
  element.textContent = text;
  return element;
}

function make(tag, className = "") {
  const element = document.createElement(tag);
  element.className = className;
  return element;
}

/** The line, segment and word of an element of the translation; null if it is no word. */
export function locate(element) {
  const word = element?.closest?.("#result .word");
  const line = word && drawn.get(word.parentElement.parentElement);
  if (!line) return null;
  const s = Number(word.dataset.segment);
  return { line, segment: line.segments[s], s, word: Number(word.dataset.word), element: word };
}

function wordElement(row, segment, word) {
  const words = result.children[row]?.querySelectorAll(`[data-segment="${segment}"].word`);
  return words?.[Math.min(word, words.length - 1)];
}

function lineNumber(place) {
  return [...result.children].indexOf(place.element.parentElement.parentElement);
}

// Keyboard: the translation is one stop of the Tab key; the arrow keys go from word to word. Only
// the word at the stop has the role of a button, so that a screen reader reads the rest as text.

function makeStop(word) {
  for (const old of result.querySelectorAll('.word[tabindex="0"]')) {
    old.tabIndex = -1;
    old.removeAttribute("role");
    old.removeAttribute("aria-haspopup");
  }
  if (!word) return;
  word.tabIndex = 0;
  word.setAttribute("role", "button");
  word.setAttribute("aria-haspopup", "menu");
}

function moveFocus(event) {
  const words = [...result.querySelectorAll(".word")];
  const here = words.indexOf(document.activeElement);
  const target = {
    ArrowRight: () => words[here + 1],
    ArrowLeft: () => words[here - 1],
    ArrowDown: () => neighbour(words.slice(here + 1), words[here], 1),
    ArrowUp: () => neighbour(words.slice(0, Math.max(here, 0)).reverse(), words[here], -1),
    Home: () => words[0],
    End: () => words.at(-1),
  }[event.key]?.();
  if (here < 0 || !target) return;
  event.preventDefault();
  target.focus();
}

/** Among the words of the next row in a direction the one nearest to `from`. */
function neighbour(words, from, direction) {
  const { left, bottom, top } = from.getBoundingClientRect();
  const rows = words.map((word) => ({ word, box: word.getBoundingClientRect() }));
  const beyond = rows.filter(({ box }) => (direction > 0 ? box.top >= bottom : box.bottom <= top));
  const row = beyond.filter(({ box }) => Math.abs(box.top - beyond[0].box.top) < box.height / 2);
  row.sort((a, b) => Math.abs(a.box.left - left) - Math.abs(b.box.left - left));
  return row[0]?.word;
}

// Marks: by the weights of the attention, from the translation to the source and back.

export function unmark() {
  for (const word of document.querySelectorAll(".word.linked, .word.here")) {
    word.classList.remove("linked", "here");
    word.style.removeProperty("--weight");
  }
}

function mark(element, weight) {
  if (!element || weight < LEAST_WEIGHT) return;
  element.classList.add("linked");
  element.style.setProperty("--weight", Math.min(weight, 1).toFixed(2));
}

function markSources(place) {
  unmark();
  if (!place) return;
  place.element.classList.add("here");
  const words = mirror.children[lineNumber(place)]?.querySelectorAll(".word") ?? [];
  for (const [source, weight] of place.segment.links[place.word]) mark(words[source], weight);
}

function markTargets(sourceWord) {
  unmark();
  const row = sourceWord?.parentElement;
  const line = result.children[[...mirror.children].indexOf(row)];
  const segments = (line && drawn.get(line)?.segments) || [];
  if (segments.length) sourceWord.classList.add("here");
  const number = Number(sourceWord?.dataset.word);
  segments.forEach((segment, s) =>
    segment.links.forEach((links, word) => {
      const [, weight] = links.find(([source]) => source === number) ?? [0, 0];
      if (weight) mark(line.querySelector(`[data-segment="${s}"][data-word="${word}"]`), weight);
    }),
  );
}

/** The word of the mirror under the mouse. The textarea lies on it, so look through that. */
function sourceWordAt(x, y) {
  const word = document.elementsFromPoint(x, y).find((element) => element.matches("#mirror .word"));
  return word ?? null;
}

/** The word of the mirror at the textarea's cursor. */
function sourceWordAtCursor() {
  const before = textarea.value.slice(0, textarea.selectionStart).split("\n");
  const row = mirror.children[before.length - 1];
  const column = before.at(-1).length;
  const words = findWords(row ? drawn.get(row) : "");
  const number = words.findIndex(({ start, end }) => start <= column && column <= end);
  return number < 0 ? null : row.querySelectorAll(".word")[number];
}

export function connectMarks() {
  result.addEventListener("pointerover", (event) => markSources(locate(event.target)));
  // The word whose menu is open, or that has the focus, stays marked.
  result.addEventListener("pointerleave", () => {
    markSources(locate(result.querySelector("[aria-expanded]") ?? document.activeElement));
  });
  result.addEventListener("focusin", (event) => {
    const place = locate(event.target);
    if (place) makeStop(place.element);
    markSources(place);
  });
  result.addEventListener("focusout", (event) => {
    if (!event.relatedTarget?.closest(".menu")) unmark();
  });
  result.addEventListener("keydown", moveFocus);
  textarea.addEventListener("pointermove", (event) => {
    markTargets(sourceWordAt(event.clientX, event.clientY));
  });
  textarea.addEventListener("pointerleave", unmark);
  textarea.addEventListener("blur", unmark);
  textarea.addEventListener("keyup", (event) => {
    const moves = /^(Arrow|Home|End|Page)/.test(event.key);
    if (moves) markTargets(sourceWordAtCursor());
  });
}

/** Name the languages of the model, by their codes. */
export function nameLanguages(from, target) {
  const name = (code) => {
    try {
      return new Intl.DisplayNames("en", { type: "language" }).of(code);
    } catch {
      return code; // a model may call its languages as it likes
    }
  };
  const $ = (id) => document.getElementById(id);
  textarea.lang = mirror.lang = from;
  for (const id of ["result", "others-list", "spoken"]) $(id).lang = target;
  for (const id of ["source-name", "from-name"]) $(id).textContent = name(from);
  for (const id of ["target-name", "to-name"]) $(id).textContent = name(target);
  document.title = `Translate ${name(from)} to ${name(target)}`;
}

/** Keep the same line at the top of both panes while one of them is scrolled. */
export function connectScrolling(a, b) {
  let follower = null; // scrolls because of the other, and must not answer
  const follow = (from, to) => () => {
    if (follower === from) {
      follower = null;
      return;
    }
    const top = positionOf(from, from.scrollTop);
    const wanted = Math.round(Math.min(offsetOf(to, top), to.scrollHeight - to.clientHeight));
    if (Math.abs(wanted - to.scrollTop) < 1) return;
    follower = to;
    to.scrollTop = wanted;
  };
  a.addEventListener("scroll", follow(a, b));
  b.addEventListener("scroll", follow(b, a));
}

/** A height in a pane -> number of the line there, with its fraction. */
function positionOf(pane, height) {
  const lines = [...pane.querySelectorAll(".line")];
  const n = lines.findIndex((line) => line.offsetTop + line.offsetHeight > height);
  return n < 0 ? lines.length : n + (height - lines[n].offsetTop) / lines[n].offsetHeight;
}

function offsetOf(pane, position) {
  const lines = pane.querySelectorAll(".line");
  const line = lines[Math.floor(position)];
  if (!line) return pane.scrollHeight;
  return line.offsetTop + (position % 1) * line.offsetHeight;
}
