// Translates while one types. Lines are translated and kept one by one: a change of one line of a
// long text asks the server for that line only, and a word chosen in another one stays chosen.

import { describe, Failure, translate, useKey } from "./client.js";
import { copy } from "./copy.js";
import * as documents from "./documents.js";
import * as glossary from "./glossary.js";
import { closeMenu, isMenuOf, openMenu } from "./menu.js";
import * as view from "./view.js";
import { findWords, makeLine, splitLines } from "./words.js";

const PAUSE = 250; // ms without a key before the text is sent
const PAUSE_OF_LONG = 1 / 20; // ms more for each character
const ALTERNATIVES = 6;
const N_BEST = 4;
const MOST_KEPT = 1000; // lines
const LONGEST_WAIT = 60; // seconds between two tries
const SPEAK_AFTER = 800; // ms, so that a screen reader does not read each pause of a typist

const $ = (id) => document.getElementById(id);
const source = $("source");

const kept = new Map(); // line of the source -> its translation, of makeLine
let model = {
  from: "en", target: "de", n_best: N_BEST, alternatives: ALTERNATIVES, limit: 20_000,
  inspect: 0, // characters of the longest sentence that the other page takes
  checkBelow: 0, // confidence; 0: the model folder does not say
}; // prettier-ignore
let shown = []; // what stands in each line of the result
let current = null; // {line, s}: the sentence that "other translations" are of
let running = null; // AbortController of the request under way
let timer = null;
let speaker = null;
let failures = 0; // in a row

// Typing

function onInput() {
  closeMenu();
  stop();
  current = null;
  const text = source.value;
  view.drawSource(splitLines(text));
  $("clear").disabled = text === "";
  const tooLong = checkLength(text);
  if (!text.trim()) {
    show([]);
    say("");
  } else if (tooLong) {
    showOld(splitLines(text), shown.map(textOf));
  } else {
    failures = 0;
    timer = setTimeout(update, PAUSE + PAUSE_OF_LONG * text.length);
  }
}

function stop() {
  clearTimeout(timer);
  running?.abort();
  running = null;
  setWorking(false);
}

/** Whether the text is longer than the server takes, which is then said. */
function checkLength(text) {
  const length = [...text].length; // characters as Python counts them
  const counter = $("counter");
  counter.hidden = length < 0.8 * model.limit;
  counter.textContent = `${number(length)} of ${number(model.limit)} characters`;
  const excess = length - model.limit;
  source.setAttribute("aria-invalid", excess > 0);
  counter.classList.toggle("bad", excess > 0);
  if (excess > 0) {
    say(`The text is ${number(excess)} characters too long. The server takes ${number(model.limit)} at once: please shorten it or translate it in parts.`);
  }
  return excess > 0;
}

function number(value) {
  return value.toLocaleString("en");
}

// Translating

async function update() {
  stop();
  const lines = splitLines(source.value);
  const missing = [...new Set(lines.filter((line) => line.trim() && !kept.has(line)))];
  if (!missing.length) return finish(lines, []);
  const controller = (running = new AbortController());
  const before = shown.map(textOf);
  const onPartial = (text) => {
    if (controller.signal.aborted) return;
    const partials = new Map(splitLines(text).map((partial, i) => [missing[i], partial]));
    show(lines.map((line, i) => kept.get(line) ?? overwrite(partials.get(line), before[i])));
  };
  setWorking(true);
  try {
    const request = { text: missing.join("\n"), n_best: model.n_best, attention: true };
    request.glossary = glossary.requested();
    const answer = await translate(request, controller.signal, onPartial);
    if (controller.signal.aborted) return; // stale: the text has changed
    stop();
    keep(missing, answer.translations[0]);
    finish(lines, missing);
  } catch (error) {
    if (controller.signal.aborted) return;
    stop();
    showOld(lines, before);
    report(error, update);
  }
}

/** Where a line has no translation, what stood in its place before. */
function showOld(lines, before) {
  show(lines.map((line, i) => kept.get(line) ?? overwrite("", before[i])));
}

/** What has come, and behind it what stood there before: so the text does not jump. */
function overwrite(partial = "", before = "") {
  return { partial, stale: before.slice(partial.length) };
}

function keep(sources, translation) {
  const n_best = translation.n_best.map(({ text }) => splitLines(text));
  sources.forEach((text, i) => {
    const line = makeLine(text, translation.lines[i].segments.map(judge));
    // The lists of several sentences are mixed up: theirs are asked for when they are wanted.
    const [{ before }] = line.segments.length ? line.segments : [{ before: "" }];
    const others = n_best.map((texts) => texts[i]?.slice(before.length));
    if (line.segments.length === 1) line.segments[0].others = others;
    kept.set(text, line);
  });
  const present = new Set(splitLines(source.value));
  for (const text of kept.keys()) {
    if (kept.size > MOST_KEPT && !present.has(text)) kept.delete(text);
  }
}

/** Add whether a segment should be checked: the model is not sure of it. */
function judge(segment) {
  const { confidence } = segment;
  return { ...segment, isDoubtful: confidence !== null && confidence < model.checkBelow };
}

/** Other terms make other translations. */
function onGlossary() {
  kept.clear();
  onInput();
}

function finish(lines, changed) {
  failures = 0;
  say("");
  show(lines.map((line) => kept.get(line) ?? { segments: [] }));
  speak(changed.map((line) => textOf(kept.get(line))).join("\n"));
}

function show(lines) {
  shown = lines;
  view.drawResult(lines);
  const done = lines.some((line) => line.segments?.length);
  $("copy").disabled = !done || lines.some((line) => line.stale); // which belongs to another text
  $("hint").classList.toggle("absent", !done);
  showOthers();
}

function textOf(line) {
  if (line.segments) return line.segments.map(({ before, text }) => before + text).join("");
  return line.partial + line.stale;
}

function setWorking(working) {
  $("work").hidden = !working;
  $("result").setAttribute("aria-busy", working);
}

/** Let a screen reader read a final result. */
function speak(text) {
  clearTimeout(speaker);
  $("spoken").textContent = "";
  if (text) speaker = setTimeout(() => ($("spoken").textContent = text), SPEAK_AFTER);
}

// Alternatives

async function openAlternatives(element) {
  const place = view.locate(element);
  if (!place) return;
  const { line, segment, s, word } = place;
  if (isMenuOf(element)) return closeMenu({ focus: true });
  element.focus({ preventScroll: true });
  current = { line, s };
  showOthers();
  const prefix = segment.text.slice(0, segment.words[word].start).trimEnd();
  const label = `Others for “${element.textContent}”`;
  await openMenu(element, label, model.target, async (signal) => {
    const texts = await findAlternatives(segment.source, prefix, signal);
    const others = texts.filter((text) => text.startsWith(prefix));
    const distinct = [...new Set([segment.text, ...others])];
    const rests = distinct.map((text) => ({ text, rest: splitAfterWord(text.slice(prefix.length)) }));
    return rests.filter(({ rest }) => rest.strong).map(({ text, rest }) => ({
      ...rest,
      checked: text === segment.text,
      choose: () => choose(line, s, text),
    }));
  });
}

async function findAlternatives(text, prefix, signal) {
  const request = { text, prefix, alternatives: model.alternatives, n_best: model.alternatives };
  const answer = await translate(request, signal);
  return answer.translations[0].n_best.map((translation) => translation.text);
}

/** " wohnst du?" -> its first word, and the rest. The word is empty if there is none. */
function splitAfterWord(text) {
  const end = findWords(text)[0]?.end ?? 0;
  return { strong: text.slice(0, end).trim(), rest: text.slice(end) };
}

/** Put `text` in the place of a sentence's translation. */
async function choose(chosen, s, text) {
  const line = kept.get(chosen.source) ?? chosen; // another word may have changed since
  const old = line.segments[s];
  if (text === old.text) return;
  const others = (old.others || old.asked) && [...new Set([...(old.others ?? []), old.text])];
  const { before } = old;
  replace(line, s, { before, source: old.source, text, others });
  speak(text);
  try {
    // The server spells out the same text once more, to say which words it looked at. It must not
    // add what it would keep.
    const request = { text: old.source, prefix: text, attention: true, keep: false };
    const answer = await translate(request, new AbortController().signal);
    const segments = answer.translations[0].lines.flatMap((found) => found.segments);
    const now = kept.get(line.source);
    if (segments.length === 1 && now?.segments[s]?.text === text) {
      replace(now, s, { ...judge(segments[0]), before, text, others: now.segments[s].others ?? others });
    }
  } catch (error) {
    ignoreFailure(error); // without an answer the choice stands, but hovering shows nothing
  }
}

function replace(line, s, segment) {
  const made = makeLine(line.source, line.segments.map((old, i) => (i === s ? segment : old)));
  kept.set(line.source, made);
  if (current?.line.source === line.source) current = { line: made, s: current.s };
  show(shown.map((old) => (old.source === line.source ? made : old)));
}

/** The sentence whose other translations are listed: the one clicked last, or the only one. */
function listedSentence() {
  if (current) return current;
  const [line, ...others] = shown.filter((line) => !line.segments || line.segments.length);
  return !others.length && line?.segments?.length === 1 ? { line, s: 0 } : null;
}

async function showOthers() {
  const place = listedSentence();
  const segment = place?.line.segments[place.s];
  linkInside(segment?.source ?? "");
  $("others").inert = running !== null && !segment; // it stays where it is until the new one comes
  if ($("others").inert) return;
  const texts = (segment?.others ?? []).filter((text) => text !== segment.text);
  const several = shown.some((line) => line.segments?.length && line !== place?.line);
  const isPart = segment && (several || place.line.segments.length > 1);
  $("others").hidden = !texts.length;
  $("others-of").textContent = isPart ? ` of “${segment.text}”` : "";
  $("others-list").replaceChildren(...texts.map((text) => otherItem(text, place)));
  if (segment && !segment.others && !segment.asked) await findOthers(segment);
}

/** Link the page that shows what the model does with a sentence, where the server has it. */
function linkInside(sentence) {
  $("inside").hidden = !sentence || sentence.length > model.inspect;
  $("inside").href = `inspect?text=${encodeURIComponent(sentence)}`;
}

async function findOthers(segment) {
  segment.asked = true; // once
  try {
    const request = { text: segment.source, n_best: model.n_best, glossary: glossary.requested() };
    const answer = await translate(request, new AbortController().signal);
    segment.others = answer.translations[0].n_best.map((other) => other.text);
    showOthers();
  } catch (error) {
    ignoreFailure(error); // the list is an extra: the translation stands without it
  }
}

function otherItem(text, { line, s }) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.addEventListener("click", () => {
    choose(line, s, text);
    $("others-list").querySelector("button")?.focus(); // the old button is gone
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
}

// Failures

function say(text, action = null) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Try again";
  button.addEventListener("click", () => {
    source.focus();
    action();
  });
  $("message").replaceChildren(...(text ? [text] : []), ...(action ? [" ", button] : []));
}

function ignoreFailure(error) {
  if (!(error instanceof Failure)) throw error; // a mistake of ours
}

/** Say what failed, and try again by itself where that makes sense. */
function report(error, again) {
  if (!(error instanceof Failure)) {
    say("Something went wrong in this page. Please load it again.");
    throw error; // a mistake of ours: the console shows where
  }
  if (error.kind === "key") return askForKey(error.message);
  if (error.retryAfter === null) return say(error.message, error.kind === "slow" ? again : null);
  const wait = Math.min(error.retryAfter * 2 ** failures, LONGEST_WAIT);
  failures += 1;
  say(`${error.message} `, again);
  const countdown = document.createElement("span");
  countdown.setAttribute("aria-hidden", "true"); // else each second would be read out
  $("message").firstChild.after(countdown);
  countDown(countdown, Math.ceil(wait), again);
}

function countDown(element, seconds, again) {
  element.textContent = `Next try in ${seconds} s.`;
  timer = setTimeout(() => (seconds > 1 ? countDown(element, seconds - 1, again) : again()), 1000);
}

function askForKey(message) {
  say(message);
  $("key-form").hidden = false;
}

function onKey(event) {
  event.preventDefault();
  useKey($("key").value);
  $("key-form").hidden = true;
  say("");
  source.focus();
  start();
}

// Controls

function clear() {
  source.focus();
  source.select();
  // Unlike a new value, this can be undone with the keyboard.
  if (!document.execCommand("delete")) source.value = "";
  onInput();
}

function useModel({ name, source: from, target, search, limits, inspect, confidence }) {
  const n_best = Math.min(N_BEST, search.beam_size, limits.alternatives);
  const alternatives = Math.min(ALTERNATIVES, limits.alternatives);
  const checkBelow = confidence?.check_below ?? 0;
  model = { from, target, n_best, alternatives, checkBelow, limit: limits.characters, inspect };
  documents.useLimits(limits);
  view.nameLanguages(from, target);
  $("everyday").hidden = name !== "everyday"; // the bundled model: other ones are not ours to judge
}

/** Ask what the server has; then translate what the browser kept in the textarea. */
async function start() {
  try {
    useModel(await describe());
    onInput();
  } catch (error) {
    report(error, start);
  }
}

source.addEventListener("input", onInput);
$("clear").addEventListener("click", clear);
$("copy").addEventListener("click", () => copy(shown.map(textOf).join("\n"), $("copy")));
$("key-form").addEventListener("submit", onKey);
$("result").addEventListener("click", (event) => openAlternatives(event.target));
$("result").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  openAlternatives(event.target);
});
addEventListener("online", () => failures && update());
const takeTerms = glossary.connectGlossary(() => [model.from, model.target], onGlossary);
documents.connectDocuments({ glossary: glossary.requested, onKeyNeeded: askForKey, takeTerms });
view.connectMarks();
view.connectScrolling($("source-scroll"), $("result-scroll"));
start();
