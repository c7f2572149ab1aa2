// What the page asks of the server, and what it says when there is no answer.

/** A request that failed. `retryAfter`: seconds after which another try makes sense, or null. */
export class Failure extends Error {
  constructor(kind, message, retryAfter = null) {
    super(message);
    this.kind = kind; // "key", "busy", "slow", "unreachable", "refused"
    this.retryAfter = retryAfter;
  }
}

const BUSY_WAIT = 3; // seconds, where a busy server names none
let key = readKey();

export function useKey(value) {
  key = value;
  try {
    sessionStorage.setItem("key", value); // forgotten when the tab is closed
  } catch {}
}

function readKey() {
  try {
    return sessionStorage.getItem("key");
  } catch {
    return null;
  }
}

/** The model, its languages and the server's limits. */
export async function describe() {
  const response = await send("v1/models", {});
  return response.json();
}

/**
 * The answer of /v1/translate. `onPartial` gets the translation up to now, again and again.
 * An aborted `signal` ends the request with an AbortError, and the server's work with it.
 */
export async function translate(request, signal, onPartial = null) {
  const response = await send("v1/translate", {
    method: "POST",
    body: JSON.stringify({ ...request, stream: onPartial !== null }),
    headers: { "Content-Type": "application/json" },
    signal,
  });
  if (onPartial === null) return response.json();
  for await (const { event, data } of readEvents(response.body, signal)) {
    if (event === "partial") onPartial(data.text);
    if (event === "done") return data;
    if (event === "error") throw failureOf(data.error);
  }
  throw unreachable(); // the stream ended before its answer
}

/**
 * The translation of a document, {blob, name, remarks}. `fields`: [name, value] of the form beside
 * the file.
 */
export async function translateDocument(file, fields, signal) {
  const body = new FormData();
  body.set("file", file);
  for (const [name, value] of fields) body.append(name, value);
  const response = await send("v1/documents", { method: "POST", body, signal });
  try {
    const remarks = JSON.parse(response.headers.get("Mt-Remarks") ?? "[]");
    return { blob: await response.blob(), name: nameIn(response.headers), remarks };
  } catch (error) {
    throw signal.aborted ? error : unreachable();
  }
}

/** The file name of an attachment; null without one. */
function nameIn(headers) {
  const header = headers.get("Content-Disposition") ?? "";
  const encoded = header.match(/filename\*=utf-8''([^;]+)/i)?.[1];
  if (encoded) return decodeURIComponent(encoded.trim());
  return header.match(/filename="?([^";]+)/i)?.[1] ?? null;
}

async function send(path, options) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    throw options.signal?.aborted ? error : unreachable();
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({})); // a proxy may answer with HTML
  const wait = Number(response.headers.get("Retry-After")) || null;
  throw failureOf(body.error ?? {}, response.status, wait);
}

/** The events of a stream. fetch reads it, since EventSource cannot POST. */
async function* readEvents(stream, signal) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value.replaceAll("\r", "");
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop();
      yield* blocks.map(parseEvent).filter(Boolean);
    }
  } catch (error) {
    throw signal?.aborted ? error : unreachable();
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseEvent(block) {
  const fields = block.split("\n").map((line) => line.match(/^(\w+): ?(.*)$/) ?? []);
  const find = (name) => fields.filter((field) => field[1] === name).map((field) => field[2]);
  const data = find("data").join("\n");
  return data ? { event: find("event")[0], data: JSON.parse(data) } : null; // null: a comment
}

function failureOf({ code = "", message = "" }, status = 0, wait = null) {
  if (status === 401 || status === 403) {
    return new Failure("key", key ? "The server does not accept this key." : "");
  }
  if (status === 429 || status === 503 || code === "overloaded") {
    return new Failure("busy", "The server is busy.", wait ?? BUSY_WAIT);
  }
  if (status === 504 || code.includes("deadline")) {
    return new Failure("slow", "The translation took longer than the server allows. A shorter text may help.");
  }
  return new Failure("refused", sentence(message || `the server failed (status ${status})`));
}

function sentence(text) {
  if (/^[^:]+\.\w+:/.test(text)) return `${text}.`; // it begins with a file name
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function unreachable() {
  return navigator.onLine
    ? new Failure("unreachable", "The server does not answer.", BUSY_WAIT)
    : new Failure("unreachable", "You are offline.", BUSY_WAIT);
}
