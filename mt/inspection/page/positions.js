// View 2: positional encodings and their dot products.

const SINUSOIDS = {
  table: "On the left the numbers change with every position, on the right slowly.",
  dots: "The number depends on their distance alone, so the bands are diagonal.",
};
const LEARNED = {
  table: "Nobody prescribed these numbers: they were trained as the embeddings were.",
  dots: "Where the diagonal is surrounded by large numbers, near positions are alike.",
};

function drawPositions({ positions, model }) {
  const table = matrixOf(decode(positions.table));
  const content = [
    make(
      "p",
      { class: "formula" },
      "PE(pos, 2i) = sin(pos / 10000",
      make("sup", {}, "2i / d_model"),
      ")",
      make("br"),
      "PE(pos, 2i + 1) = cos(pos / 10000",
      make("sup", {}, "2i / d_model"),
      ")",
    ),
    ...positionPair("Sinusoids", SINUSOIDS, table, matrixOf(decode(positions.dot_products))),
  ];
  if (!positions.learned)
    return [
      ...content,
      make(
        "p",
        { class: "quiet" },
        "This model adds these sinusoids. It has learned no positions of its own.",
      ),
    ];
  const learned = matrixOf(decode(positions.learned));
  const dots = matrixFrom(learned.rows, learned.rows, (a, b) =>
    dot(rowOf(learned, a), rowOf(learned, b)),
  );
  return [
    ...content,
    paragraph(
      "This model has learned its positions instead (Table 3, row E, of the paper): " +
        `${model.d_model} numbers for each.`,
    ),
    ...positionPair("Learned positions", LEARNED, learned, dots),
  ];
}

function positionPair(title, about, table, dots) {
  const places = { labels: counted(table.rows), ticks: true };
  return [
    heading(title),
    make("p", { class: "quiet" }, "A row is a position, a column a dimension. ", about.table),
    heatMap({
      name: `${title}: positions by dimensions`,
      matrix: table,
      scale: divergingScale(largestSize(table.values)),
      rows: places,
      columns: { labels: counted(table.columns), ticks: true },
      say: (r, c, x) => `Position ${r}, dimension ${c}: ${brief(x)}`,
      cell: { width: [1, 24], height: [4, 8] },
    }),
    heading(`${title}: dot products`),
    make("p", { class: "quiet" }, "Each position with each other. ", about.dots),
    heatMap({
      name: `${title}: dot products of positions`,
      matrix: dots,
      scale: signedScale(dots.values),
      rows: places,
      columns: places,
      say: (r, c, x) => `Positions ${r} and ${c}, ${Math.abs(r - c)} apart: ${brief(x)}`,
      cell: { width: [4, Math.min(Math.max(512 / dots.rows, 8), 24)] },
    }),
  ];
}
