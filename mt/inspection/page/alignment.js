// View 7: which source word each word of the translation renders.

const ROW = 36; // px, the height of a word

function drawAlignment({ alignment, source, target }) {
  const { words, links } = alignment;
  return [
    ...method(alignment).map((text) => paragraph(text)),
    make(
      "div",
      { class: "alignment" },
      make(
        "div",
        {},
        heading("Words"),
        lines(words, links),
        onDemand("As a table", () => linkTable(words, links)),
      ),
      make("div", {}, heading("Pieces"), alignmentMap(alignment, source.pieces, target.pieces)),
    ),
  ];
}

/** Where the weights come from. */
function method({ heads, shifted }) {
  if (!shifted)
    return [
      "In this model no head of the cross-attention follows words reliably, so the weights " +
        "are the mean of all heads: take them with care.",
    ];
  const names = heads.map(([layer, head]) => `layer ${layer}, head ${head}`).join("; ");
  const which =
    heads.length === 1
      ? `of ${names}. It was`
      : `of these heads, as their mean: ${names}. They were`;
  return [
    `The weights are those ${which} chosen without gold labels: where the model reads ` +
      "lists of names and numbers, and as their translations the same words in another " +
      "order, the weights go to the same word.",
    "The weights of a piece are read one step later, when the decoder reads it: before, it " +
      "does not know yet which piece comes (Shift-Att, Chen et al. 2020).",
  ];
}

function lines({ source, target }, links) {
  const paths = links.map(([s, t, weight]) => linkLine(s, t, weight));
  const height = Math.max(source.length, target.length) * ROW;
  const svg = makeSvg(
    "svg",
    { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    paths,
  );
  styled(svg, { height: `${height}px` });
  const buttons = { source: source.map(wordButton), target: target.map(wordButton) };
  const mark = (side, i) => markLinks(links, paths, buttons, side, i);
  for (const [side, list] of Object.entries(buttons)) {
    roving(list);
    list.forEach((button, i) => {
      button.setAttribute("aria-label", linkText({ source, target }, links, side, i));
      for (const event of ["pointerenter", "focus"])
        button.addEventListener(event, () => mark(side, i));
      for (const event of ["pointerleave", "blur"])
        button.addEventListener(event, () => mark(null));
    });
  }
  const column = (side, name) =>
    make("div", { class: "words", role: "group", "aria-label": name }, buttons[side]);
  return make(
    "div",
    { class: "lines" },
    column("source", "Source words"),
    svg,
    column("target", "Words of the translation"),
  );
}

function wordButton(word) {
  return make("button", { type: "button", class: "word" }, word);
}

function linkLine(s, t, weight) {
  const [from, to] = [(s + 0.5) * ROW, (t + 0.5) * ROW];
  const line = makeSvg("path", { d: `M0 ${from}C40 ${from} 60 ${to} 100 ${to}` });
  return styled(line, { "--weight": Math.min(Math.max(weight, 0.15), 1).toFixed(3) });
}

function markLinks(links, paths, buttons, side, i) {
  const linked = links.map(([s, t]) => (side === "source" ? s : t) === i && side !== null);
  paths.forEach((path, k) => path.classList.toggle("linked", linked[k]));
  for (const [own, list] of Object.entries(buttons))
    list.forEach((button, word) => {
      const has = links.some(([s, t], k) => linked[k] && (own === "source" ? s : t) === word);
      button.classList.toggle("linked", has);
    });
}

function linkText({ source, target }, links, side, i) {
  const own = side === "source";
  const others = links
    .filter(([s, t]) => (own ? s : t) === i)
    .map(([s, t, weight]) => `${own ? target[t] : source[s]} ${fixed(weight)}`);
  const linked = others.length ? `linked with ${others.join(", ")}` : "no link";
  return `${own ? source[i] : target[i]}: ${linked}`;
}

function linkTable({ source, target }, links) {
  const rows = links.map(([s, t, weight]) => [target[t], source[s], fixed(weight, 4)]);
  return table("Links between words", ["translation", "source", "weight"], rows);
}

function alignmentMap({ soft }, columns, rows) {
  const matrix = matrixOf(decode(soft));
  return [
    make(
      "p",
      { class: "quiet aid" },
      "Row = a piece of the translation, column = a piece of the source.",
    ),
    heatMap({
      name: "Alignment of pieces",
      matrix,
      scale: sequentialScale(largest(matrix.values)),
      unit: "of the row’s attention",
      rows: { labels: rows },
      columns: { labels: columns },
      say: (r, c, weight) =>
        `${quoted(rows[r])} comes from ${quoted(columns[c])}: ${brief(weight)}`,
      cell: { width: [15, 68] },
    }),
  ];
}
