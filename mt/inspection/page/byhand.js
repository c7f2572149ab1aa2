// View 4: one row of one head, from what enters the layer to the logits.

function drawByHand(report) {
  const content = make("div");
  const show = (kind) => content.replaceChildren(...calculation(report, recordOf(report, kind)));
  const kinds = report.by_hand.map(({ kind }) => kind);
  const first = kinds.includes("cross") ? "cross" : kinds[0];
  show(first);
  const options = kinds.map((kind) => ({ value: kind, label: KINDS[kind] }));
  return [choice("Which attention", "by-hand-kind", options, first, show), content];
}

function recordOf({ by_hand }, kind) {
  return by_hand.find((record) => record.kind === kind);
}

function calculation(report, record) {
  const values = (name) => decode(record[name].values).values;
  const { source, target } = report;
  const keys = record.kind === "decoder" ? target.inputs : source.pieces;
  const asks = (record.kind === "encoder" ? source.pieces : target.inputs)[record.step - 1];
  const purpose =
    record.kind === "encoder" ? "" : `, to predict ${quoted(target.pieces[record.step - 1])}`;
  const scene = { report, record, values, keys, asks };
  const steps = [
    enter,
    queryAndKeys,
    weights,
    withoutScaling,
    context,
    addAndNorm,
    feedForward,
    logits,
  ];
  return [
    paragraph(
      `${KINDS[record.kind]}, layer ${record.layer}, head ${record.head}, step ${record.step}: `,
      make("strong", {}, `${quoted(asks)} asks${purpose}.`),
    ),
    make(
      "ol",
      { class: "calculation" },
      steps.map((step) => make("li", {}, step(scene))),
    ),
    make(
      "p",
      { class: "quiet" },
      "Another one: ",
      make("code", {}, "python -m mt.inspect … --layer 1 --head 2 --step 3"),
    ),
  ];
}

// The steps, in the order of the calculation

function enter({ record }) {
  return [heading("What enters the layer"), quantity(record, "x", "x")];
}

function queryAndKeys({ record, keys, report }) {
  return [
    heading("A query, and a key for each piece"),
    paragraph(
      "The query says what the piece looks for, a key what a piece offers. Both have d_k = " +
        `${report.model.d_k} numbers.`,
    ),
    quantity(record, "q", "q"),
    quantity(record, "K", "K", keys),
  ];
}

function weights(scene) {
  const { record, values, keys, report } = scene;
  const names = ["scores", "scaled", "mask", "softmax"];
  const columns = names.map(values);
  const most = largest(columns[3]);
  const rows = keys.map((key, i) => [
    pieceSpan(key),
    fixed(columns[0][i]),
    columns[2][i] ? fixed(columns[1][i], 3) : make("s", {}, fixed(columns[1][i], 3)),
    columns[2][i] ? "1" : "0 → −∞",
    make("span", { class: "with-bar" }, bar(columns[3][i] / most), fixed(columns[3][i], 3)),
  ]);
  return [
    heading("Scores, scaling, mask, softmax"),
    paragraph(
      "A score is the dot product of the query and a key. It is divided by √d_k = " +
        `${brief(Math.sqrt(report.model.d_k))}; where the mask is 0 it becomes −∞; the ` +
        "softmax makes weights of them that sum to 1.",
    ),
    make("p", { class: "formula" }, "Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V  (equation 1)"),
    product(scene, columns[0]),
    table(
      "Scores and weights",
      [
        "key of",
        ...["q · k", "÷ √d_k", "mask", "softmax"].map((title, i) =>
          columnHead(title, record[names[i]]),
        ),
      ],
      rows,
    ),
  ];
}

/** The heading of a column: its title, place in the paper and shape. */
function columnHead(title, { equation, shape }) {
  const [, place] = equation.match(/\(([^()]*)\)$/) ?? [];
  return [title, make("small", {}, `${place ? `${place} ` : ""}[${shapeText(shape)}]`)];
}

/** The first three products of the largest score. */
function product({ record, keys, values }, scores) {
  const best = scores.indexOf(largest(scores));
  const q = values("q");
  const k = rowOf(matrixOf(decode(record.K.values)), best);
  const signed = (x) => (x < 0 ? `(${fixed(x)})` : fixed(x));
  const terms = [0, 1, 2].map((i) => `${signed(q[i])} · ${signed(k[i])}`).join(" + ");
  return make(
    "p",
    { class: "formula" },
    `q · k of ${quoted(keys[best])} = ${terms} + … (${q.length} products) = ${brief(scores[best])}`,
  );
}

function withoutScaling({ record, keys, values }) {
  const [scaled, unscaled] = [values("softmax"), values("unscaled_softmax")];
  const line = (weights) =>
    `entropy ${fixed(entropyOf(weights))}, largest weight ${fixed(largest(weights), 3)}`;
  const rows = keys.map((key, i) => [
    pieceSpan(key),
    make("span", { class: "with-bar" }, bar(scaled[i]), fixed(scaled[i], 3)),
    make("span", { class: "with-bar" }, bar(unscaled[i], "other"), fixed(unscaled[i], 3)),
  ]);
  return [
    heading("If the scaling were left out"),
    paragraph(
      "Dot products of many numbers are large, and the softmax of large numbers gives " +
        "nearly all weight to one: there its gradient is very small. That is why the paper " +
        "divides by √d_k (3.2.1).",
    ),
    table(
      "Weights with and without the scaling",
      [
        "key of",
        columnHead("with scaling", record.softmax),
        columnHead("without", record.unscaled_softmax),
      ],
      rows,
    ),
    make("p", { class: "quiet" }, `With: ${line([...scaled])}. Without: ${line([...unscaled])}.`),
  ];
}

function context({ record, keys, report }) {
  return [
    heading("The context, and all heads together"),
    paragraph(
      "The context is the mean of the values V by these weights. The contexts of all h = " +
        `${report.model.h} heads are put one after the other and multiplied by W_O.`,
    ),
    quantity(record, "V", "V", keys),
    quantity(record, "context", "context"),
    quantity(record, "heads_concatenated", "all heads"),
    quantity(record, "after_W_O", "after W_O"),
  ];
}

function addAndNorm({ record }) {
  return [
    heading("Add & Norm"),
    paragraph(
      "What entered the sub-layer is added to what came out, and layer normalisation " +
        "brings the sum to one size.",
    ),
    quantity(record, "add_norm", "Add & Norm"),
  ];
}

function feedForward({ record, report, values }) {
  const inner = values("feed_forward_inner");
  const zeros = inner.reduce((count, x) => count + (x === 0), 0);
  const between =
    record.kind === "decoder" ? "Cross-attention comes in between and changes the row. " : "";
  return [
    heading("Feed-forward network"),
    paragraph(
      `${between}The same two matrices for every row, with d_ff = ` +
        `${grouped(report.model.d_ff)} numbers between them` +
        (report.model.activation === "relu"
          ? `; what is below 0 becomes 0: here ${grouped(zeros)} of them.`
          : `, to each of which ${report.model.activation} is applied.`),
    ),
    quantity(record, "feed_forward_input", "input"),
    quantity(record, "feed_forward_inner", "inner"),
    quantity(record, "feed_forward", "output"),
    quantity(record, "feed_forward_add_norm", "Add & Norm"),
  ];
}

function logits({ record, report }) {
  const { kind, layer, step } = record;
  const { model, steps } = report;
  if (kind === "encoder")
    return [
      heading("And then?"),
      paragraph(
        "The next layer does the same with this row. What the last layer of the encoder " +
          "gives is the memory, from which cross-attention makes its keys and values.",
      ),
    ];
  const isLast = layer === model.N;
  const rows = steps[step - 1].top
    .slice(0, 5)
    .map(([piece, logit, p]) => [pieceSpan(piece), brief(logit), percent(p)]);
  return [
    heading("Logits"),
    paragraph(
      isLast ? "This row" : `After the other layers, up to the ${ordinal(model.N)}, the row`,
      " is multiplied by the embedding matrix, transposed: a logit for each of the " +
        `${grouped(model.vocab_size)} pieces, and their softmax is the distribution of the ` +
        "next piece (3.4).",
    ),
    table("The largest logits", ["next piece", "logit", "probability"], rows),
    make(
      "p",
      { class: "quiet" },
      make("a", { href: "#steps" }, "More of them in “The next piece”."),
    ),
  ];
}

function ordinal(n) {
  return `${n}${["th", "st", "nd", "rd"][n > 3 ? 0 : n]}`;
}

// A quantity: its equation, shape and picture

function equation(record, name) {
  return make(
    "p",
    { class: "equation" },
    make("code", {}, mathematical(record[name].equation)),
    ` [${shapeText(record[name].shape)}]`,
  );
}

function mathematical(text) {
  return text
    .replaceAll("K^T", "Kᵀ")
    .replace(/sqrt\((\w+)\)/g, "√$1")
    .replaceAll("-infinity", "−∞");
}

/** `labels`: of the rows of a matrix. A vector is one row. */
function quantity(record, name, label, labels = [label]) {
  const matrix = matrixOf(decode(record[name].values));
  const isMatrix = record[name].shape.length > 1;
  return make(
    "div",
    { class: "quantity" },
    equation(record, name),
    heatMap({
      name: `${label}: ${record[name].equation}`,
      matrix,
      scale: signedScale(matrix.values),
      rows: { labels },
      columns: { labels: counted(matrix.columns), ticks: true },
      say: (r, c, x) => `${isMatrix ? `${quoted(labels[r])}, d` : "D"}imension ${c}: ${brief(x)}`,
      hint: "",
      cell: { width: [0.5, 24], height: isMatrix ? [14, 18] : [20, 20] },
    }),
  );
}
