// Documents: a file is sent whole, and its translation is saved as a file.

import { Failure, translateDocument } from "./client.js";
import { readColumns } from "./tables.js";

const TABLE = /\.(csv|tsv|jsonl)$/i; // formats whose columns are asked for

const $ = (id) => document.getElementById(id);

let mostBytes = Infinity;
let running = null; // AbortController of the document under way
let address = null; // of the translation that was saved last
let hooks = { glossary: () => undefined, onKeyNeeded: () => {} };

/** Show what the server takes. `limits`: those of /v1/models. */
export function useLimits({ document_bytes }) {
  mostBytes = document_bytes ?? Infinity;
  $("document-limit").textContent = document_bytes ? `, up to ${megabytes(document_bytes)}` : "";
}

function megabytes(bytes) {
  return `${(bytes / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 1 })} MB`;
}

/** Begin with a file that the user has chosen or dropped. */
async function take(chosen) {
  if (running) return complain("One document at a time: wait for this one or cancel it.");
  showStep("choice");
  if (chosen.size > mostBytes) {
    return complain(`${chosen.name} has ${megabytes(chosen.size)}. The server takes up to ${megabytes(mostBytes)}.`);
  }
  let buffer;
  try {
    buffer = await chosen.arrayBuffer(); // now: the file may change or go away
  } catch {
    return complain(`${chosen.name} cannot be read.`); // such as a folder
  }
  const file = new File([buffer], chosen.name, { type: chosen.type });
  if (TABLE.test(file.name)) askForColumns(file, readColumns(file.name, buffer));
  else run(file, []);
}

/** Ask which columns of a table are translated. */
function askForColumns(file, names) {
  if (!names.length) return complain(`${file.name} has no columns: their names must be in its first line.`);
  say("");
  $("columns-label").textContent = `Which columns of ${file.name}?`;
  $("columns-list").replaceChildren(...names.map(columnChoice));
  $("columns").onsubmit = (event) => {
    event.preventDefault();
    const columns = new FormData($("columns")).getAll("column");
    if (columns.length) run(file, columns);
    else complain("Choose a column that is translated.");
  };
  showStep("columns");
  $("columns-list").querySelector("input").focus();
}

function columnChoice(name) {
  const box = document.createElement("input");
  Object.assign(box, { type: "checkbox", name: "column", value: name });
  const label = document.createElement("label");
  label.className = "choice";
  label.append(box, name);
  return label;
}

/** Translate the file and save the answer. A busy server is asked again. */
async function run(file, columns) {
  const controller = (running = new AbortController());
  const { signal } = controller;
  const glossary = hooks.glossary();
  const fields = columns.map((column) => ["columns", column]);
  if (glossary) fields.push(["glossary", JSON.stringify(glossary)]);
  showStep("work");
  try {
    for (;;) {
      say(`Translating ${file.name} …`);
      try {
        const { blob, name, remarks } = await translateDocument(file, fields, signal);
        return finish(() => save(blob, name ?? `translated-${file.name}`, remarks));
      } catch (error) {
        if (signal.aborted || error.kind !== "busy") throw error;
        say(`The server is busy. Another try with ${file.name} comes in ${Math.ceil(error.retryAfter)} s.`);
        await pause(error.retryAfter, signal);
      }
    }
  } catch (error) {
    finish(() => report(error, signal, () => run(file, columns)));
  }
}

function finish(andThen) {
  running = null;
  showStep("choice");
  andThen();
}

function report(error, signal, again) {
  if (signal.aborted) return say("Cancelled.");
  if (!(error instanceof Failure)) {
    complain("Something went wrong in this page. Please load it again.");
    throw error; // a mistake of ours: the console shows where
  }
  if (error.kind === "key") {
    hooks.onKeyNeeded(error.message);
    return complain("Give a key above, then try again.", actionButton("Try again", again));
  }
  const canHelp = error.kind === "unreachable" || error.kind === "slow";
  complain(error.message, canHelp ? actionButton("Try again", again) : null);
}

function save(blob, name, remarks) {
  URL.revokeObjectURL(address);
  address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name, textContent: "Save it again" });
  const notes = remarks.map((remark) => ` Note: ${remark}.`).join("");
  say(`${name} is among your downloads. Please check it.${notes}`, link);
  link.click();
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

function actionButton(text, action) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "plain", textContent: text, onclick: action });
  return button;
}

function complain(text, action = null) {
  say(text, action);
  $("document-message").classList.add("wrong");
}

function say(text, action = null) {
  $("document-message").classList.remove("wrong");
  $("document-message").replaceChildren(...(text ? [text] : []), ...(action ? [" ", action] : []));
}

function showStep(step) {
  const hadFocus = $("document").contains(document.activeElement);
  $("document-choice").hidden = step !== "choice";
  $("columns").hidden = step !== "columns";
  $("document-work").hidden = step !== "work";
  if (hadFocus) $(step === "work" ? "document-cancel" : "document-open").focus();
}

/**
 * `glossary()` are the terms to send, `onKeyNeeded(message)` asks for a key, and `takeTerms(file)`
 * takes a file that is dropped on the glossary.
 */
export function connectDocuments({ glossary, onKeyNeeded, takeTerms }) {
  hooks = { glossary, onKeyNeeded };
  $("document-open").addEventListener("click", () => $("document-file").click());
  $("document-file").addEventListener("change", () => {
    take($("document-file").files[0]);
    $("document-file").value = ""; // so that the same file can be chosen again
  });
  $("document-cancel").addEventListener("click", () => running?.abort());
  $("columns").addEventListener("reset", () => {
    say("");
    showStep("choice");
  });
  connectDrops(takeTerms);
}

/** A file may be dropped anywhere: the browser would leave the page to show it. */
function connectDrops(takeTerms) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const highlight = (on) => $("document").classList.toggle("dropping", on);
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    highlight(!event.target.closest?.("#glossary"));
  });
  addEventListener("dragleave", (event) => event.relatedTarget ?? highlight(false));
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    highlight(false);
    const [file] = event.dataTransfer.files;
    if (file) (event.target.closest?.("#glossary") ? takeTerms : take)(file);
  });
}
