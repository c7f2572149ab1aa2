// View 3: who looks at whom, in every layer and head.

const KINDS = {
  encoder: "Encoder",
  decoder: "Masked decoder",
  cross: "Cross-attention",
};
const ABOUT_KIND = {
  encoder: "In the encoder each source piece looks at all source pieces (3.2.3).",
  decoder:
    "In the decoder each piece looks at itself and at the pieces before it. What comes " +
    "later is masked, here grey: it is not there yet when the model translates (3.2.3).",
  cross:
    "From the decoder each target piece looks at the source: these weights show which " +
    "source pieces the next piece is made from (3.2.3).",
};

/** Of several models the same layer and head are shown. */
function drawAttention(...reports) {
  const content = make("div");
  const show = (kind) => {
    const views = reports.map((report) => attentionView(report, kind));
    const chosen = firstShown(reports[0], kind);
    const choose = (...place) => views.forEach((view) => view.choose(...place));
    const parts = views.map((view) => attentionOf(view, choose));
    choose(...chosen);
    content.replaceChildren(paragraph(ABOUT_KIND[kind]), sideBySide(reports, parts));
  };
  show("cross");
  const options = Object.entries(KINDS).map(([value, label]) => ({ value, label }));
  return [choice("Which attention", "attention-kind", options, "cross", show), content];
}

function attentionView(report, kind) {
  const { source, target, model } = report;
  const stored = decode(report.attention[kind]);
  return {
    kind,
    rows: kind === "encoder" ? source.pieces : target.inputs,
    columns: kind === "decoder" ? target.inputs : source.pieces,
    next: kind === "encoder" ? null : target.pieces,
    scale: sequentialScale(largest(stored.values)),
    isBlank: kind === "decoder" ? (r, c) => c > r : null,
    entropies: matrixOf(decode(report.attention.entropy[kind])),
    layers: layersOf(stored, model),
  };
}

/** The maps of a model; `chooseAll` is told what the reader chooses, and calls `view.choose`. */
function attentionOf(view, chooseAll) {
  const large = make("div", { class: "large" });
  const buttons = [];
  view.choose = (layer, head) => {
    if (!view.layers[layer]?.[head]) return;
    buttons.forEach((button) =>
      button.setAttribute("aria-pressed", button.dataset.place === `${layer} ${head}`),
    );
    large.replaceChildren(...largeMap(view, layer, head));
  };
  const grid = multiples(view, buttons, chooseAll);
  return make(
    "div",
    { class: "attention" },
    make("div", { class: "multiples-side" }, grid, entropyTable(view)),
    large,
  );
}

/** For each layer its heads and, last, their mean. */
function layersOf(stored, { N, h }) {
  return Array.from({ length: N }, (_, layer) => {
    const heads = Array.from({ length: h }, (_, head) => matrixOf(stored, layer, head));
    return [...heads, meanOf(heads)];
  });
}

/** Cross-attention begins with the head that aligns words best, the others with a mean. */
function firstShown({ alignment, model }, kind) {
  const [[layer, head]] = alignment.heads;
  return kind === "cross" ? [layer - 1, head - 1] : [model.N - 1, model.h];
}

function isMean(view, head) {
  return head === view.layers[0].length - 1;
}

function headName(view, head) {
  return isMean(view, head) ? "mean of all heads" : `head ${head + 1}`;
}

function entropyAt(view, layer, head) {
  if (!isMean(view, head)) return view.entropies.at(layer, head);
  const matrix = view.layers[layer][head];
  return mean(Array.from({ length: matrix.rows }, (_, r) => entropyOf(rowOf(matrix, r))));
}

// Small multiples: a row for each layer, a column for each head

function multiples(view, buttons, choose) {
  const [{ length: columns }] = view.layers;
  const head = Array.from({ length: columns }, (_, i) =>
    make("span", { class: "head" }, isMean(view, i) ? "mean" : `head ${i + 1}`),
  );
  const rows = view.layers.map((layer, n) => [
    make("span", { class: "head" }, `layer ${n + 1}`),
    ...layer.map((_, i) => {
      const button = miniature(view, n, i);
      button.addEventListener("click", () => choose(n, i));
      buttons.push(button);
      return button;
    }),
  ]);
  roving(buttons, columns);
  const grid = make(
    "div",
    {
      class: "multiples",
      role: "group",
      "aria-label": "All layers and heads: choose one to see it large",
    },
    make("span"),
    head,
    rows,
  );
  return make("div", { class: "sideways" }, styled(grid, { "--columns": columns }));
}

function miniature(view, layer, head) {
  const entropy = fixed(entropyAt(view, layer, head));
  const label = `Layer ${layer + 1}, ${headName(view, head)}, entropy ${entropy}`;
  const button = make("button", {
    type: "button",
    class: "mini",
    "data-place": `${layer} ${head}`,
    "aria-pressed": "false",
    "aria-label": label,
    title: label,
  });
  const draw = () =>
    button.replaceChildren(
      pixels(view.layers[layer][head], view.scale, view.isBlank),
      make("small", {}, entropy),
    );
  draw();
  redraws.set(button, draw);
  return button;
}

function entropyTable(view) {
  const heads = view.layers[0].map((_, head) => (isMean(view, head) ? "mean" : `head ${head + 1}`));
  return [
    make(
      "p",
      { class: "quiet" },
      `All have one scale of colours, up to ${brief(view.scale.high)}. `,
      "The number below each picture is its entropy in nats, the mean of its rows: 0 when " +
        "each row looks at one piece only, ",
      `${fixed(Math.log(view.columns.length))} when it looks at all ${view.columns.length} alike.`,
    ),
    onDemand("Entropies as a table", () =>
      table(
        "Entropy of each layer and head",
        ["", ...heads],
        view.layers.map((layer, n) => [
          `layer ${n + 1}`,
          ...layer.map((_, head) => fixed(entropyAt(view, n, head), 4)),
        ]),
      ),
    ),
  ];
}

// The large one

function largeMap(view, layer, head) {
  const matrix = view.layers[layer][head];
  const { rows, columns, next } = view;
  const name = `${KINDS[view.kind]}, layer ${layer + 1}, ${headName(view, head)}`;
  const say = (r, c, weight) => {
    const purpose = next ? `, to predict ${quoted(next[r])},` : "";
    if (view.isBlank?.(r, c))
      return `${quoted(rows[r])} may not look at ${quoted(columns[c])}: masked`;
    return `${quoted(rows[r])}${purpose} looks at ${quoted(columns[c])}: ${brief(weight)}`;
  };
  return [
    heading(name),
    make(
      "p",
      { class: "quiet aid" },
      "Row = the piece that looks, column = the piece it looks at; each row sums to 1.",
    ),
    heatMap({
      name,
      matrix,
      scale: sequentialScale(largest(matrix.values)),
      unit: "of the row’s attention",
      rows: { labels: rows },
      columns: { labels: columns },
      say,
      isBlank: view.isBlank,
      cell: { width: [15, 68] },
    }),
  ];
}
