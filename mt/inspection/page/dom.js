// Elements of the page.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes, `on…` listeners, and children that are nodes, texts or null. */
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) element.setAttribute(name, value ?? "");
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

/** Give an element a property of its style. The policy forbids style attributes, but not this. */
function styled(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
  return element;
}

/** A choice of one among a few, as radio buttons: one stop of Tab, arrow keys change it. */
function choice(legend, name, options, chosen, onchange) {
  const inputs = options.map(({ value, label }) =>
    make(
      "label",
      {},
      make("input", {
        type: "radio",
        name,
        value,
        checked: value === chosen,
        onchange: () => onchange(value),
      }),
      make("span", {}, label),
    ),
  );
  return make("fieldset", { class: "choice" }, make("legend", {}, legend), ...inputs);
}

/**
 * Make a list of elements one stop of the Tab key. Arrow keys, Home and End go on; `columns` is
 * the width of a grid, or 0 for a plain row, in which all arrows go to the neighbour.
 */
function roving(elements, columns = 0) {
  const step = columns || 1;
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -step, ArrowDown: step };
  elements.forEach((element, i) => {
    element.tabIndex = i ? -1 : 0;
    element.addEventListener("focus", () => stopAt(elements, element));
    element.addEventListener("keydown", (event) => {
      const next = { Home: 0, End: elements.length - 1 }[event.key] ?? i + moves[event.key];
      if (!elements[next]) return;
      event.preventDefault();
      elements[next].focus();
    });
  });
}

function stopAt(elements, element) {
  for (const other of elements) other.tabIndex = other === element ? 0 : -1;
}

/** Text that is made when somebody opens it: the alternative of a picture. */
function onDemand(summary, content) {
  const details = make("details", {}, make("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(content());
  });
  return details;
}

/** A table of texts. The first cell of each row is its heading. */
function table(caption, head, rows) {
  return make(
    "div",
    { class: "sideways", tabindex: 0, role: "group", "aria-label": caption },
    make(
      "table",
      {},
      make("caption", { class: "unseen" }, caption),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          head.map((text) => make("th", { scope: "col" }, text)),
        ),
      ),
      make("tbody", {}, rows.map(tableRow)),
    ),
  );
}

function tableRow([first, ...rest]) {
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, first),
    rest.map((cell) => make("td", {}, cell)),
  );
}

/** A horizontal bar for a share of 0 to 1. */
function bar(share, className = "") {
  return styled(make("span", { class: `bar ${className}`, "aria-hidden": "true" }), {
    "--share": `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(3)}%`,
  });
}

/** A piece of text with the sign of a blank in a quiet colour. */
function pieceSpan(piece) {
  const blank = piece.startsWith("▁");
  return make(
    "span",
    { class: "piece" },
    blank ? make("span", { class: "blank" }, "▁") : null,
    blank ? piece.slice(1) : piece,
  );
}

/** A piece as it is named in a sentence. */
function quoted(piece) {
  return `“${piece.replaceAll("▁", "") || "▁"}”`;
}

/** What each of several models shows, under its name; of one model without a name. */
function sideBySide(reports, parts) {
  if (parts.length === 1) return make("div", {}, parts[0]);
  const columns = parts.map((part, i) => make("div", {}, heading(nameOf(reports[i].model, 2)), part));
  return styled(make("div", { class: "side-by-side" }, columns), { "--models": parts.length });
}

/** The end of a model's path: the folders of several runs may have one name. */
function nameOf({ name }, parts = 1) {
  return String(name).split(/[/\\]/).filter(Boolean).slice(-parts).join("/") || "model";
}

function paragraph(...content) {
  return make("p", { class: "say" }, ...content);
}

function heading(text) {
  return make("h3", {}, text);
}
