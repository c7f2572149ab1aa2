// What a translation would be with another piece: a link to the server, or how to see it.

/** Whether a server has sent this page, so that a link can ask it for another one. */
function serverAddress({ server }) {
  if (!server || !/^https?:$/.test(location.protocol)) return null;
  const address = new URL(server, location.href);
  return address.origin === location.origin ? address : null;
}

/**
 * The address of the page whose translation begins with these pieces; null without a server, and
 * where it ends with them: no beginning says that.
 */
function continuation(report, pieces) {
  const address = serverAddress(report);
  if (!address || pieces.at(-1) === "</s>") return null;
  address.searchParams.set("text", report.source.text);
  address.searchParams.set("prefix", textOf(pieces));
  return address.href;
}

/** How to go on from these pieces: a link, or the command that does it. */
function howToContinue(report, pieces) {
  const text = textOf(pieces);
  if (!text)
    return make("p", { class: "quiet" }, "A translation without any piece cannot be shown.");
  const address = continuation(report, pieces);
  if (address) return make("p", {}, make("a", { href: address }, `Continue from “${text}”`));
  return make(
    "div",
    {},
    make(
      "p",
      { class: "quiet" },
      pieces.at(-1) === "</s>"
        ? "To look inside this translation, run:"
        : "To see what the model expects after this beginning, in the last step, run:",
    ),
    make("pre", { class: "command", tabindex: 0 }, command(report, text)),
  );
}

function command(report, text) {
  const model = /(^|[/\\])everyday$/.test(report.model.name)
    ? ""
    : ` --model ${shellQuoted(report.model.name)}`;
  return `python -m mt.inspect ${shellQuoted(report.source.text)} --target ${shellQuoted(text)}${model} --output page.html`;
}

function shellQuoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The text that pieces spell; bytes of unknown characters are pieces such as <0xC3>. */
function textOf(pieces) {
  const shown = pieces.filter((piece) => piece !== "<s>" && piece !== "</s>").join("");
  const spelled = shown.replace(/(?:<0x[0-9A-F]{2}>)+/g, (bytes) => {
    const numbers = bytes.match(/[0-9A-F]{2}(?=>)/g).map((byte) => Number.parseInt(byte, 16));
    return new TextDecoder().decode(Uint8Array.from(numbers));
  });
  return spelled.replaceAll("▁", " ").trim();
}
