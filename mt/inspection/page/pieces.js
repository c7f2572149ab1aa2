// View 1: pieces, ids and embeddings, and what lies near a piece in the embedding matrix.

function drawPieces(report) {
  const { source, target, embedding, model } = report;
  const near = make("div", { "aria-live": "polite" });
  const sides = [
    ["Source, which the encoder reads", source.pieces, source.ids],
    ["Target, which the decoder reads one place later and predicts", target.pieces, target.ids],
  ];
  const lists = sides.map(([title, pieces, ids]) =>
    make("div", {}, heading(title), pieceList(title, pieces, ids, choose)),
  );
  const chips = lists.flatMap((list) => [...list.querySelectorAll("button")]);

  function choose(button, piece) {
    for (const chip of chips) chip.setAttribute("aria-pressed", chip === button);
    near.replaceChildren(neighbours(piece, embedding.neighbours[piece] ?? []));
  }

  choose(chips[0], source.pieces[0]);
  return [
    ...lists,
    make(
      "p",
      { class: "quiet" },
      "“▁” stands for a blank: the piece begins a word. ",
      "</s> is the end of the sentence; <s> tells the decoder to begin. ",
      "Choose a piece to see which pieces have similar embeddings.",
    ),
    near,
    heading("What enters the first layers"),
    paragraph(
      `Each row is a piece, each column one of d_model = ${model.d_model} numbers. `,
      `The embedding is multiplied by √d_model = ${fixed(embedding.scale)} (3.4), and the ` +
        "numbers of ",
      "the position are added (3.5). The sum enters the first layer.",
    ),
    ...inputs(report),
  ];
}

function pieceList(title, pieces, ids, choose) {
  const buttons = pieces.map((piece, i) =>
    make(
      "button",
      { type: "button", class: "chip", "aria-pressed": "false" },
      pieceSpan(piece),
      make("small", {}, ids[i]),
    ),
  );
  buttons.forEach((button, i) => button.addEventListener("click", () => choose(button, pieces[i])));
  roving(buttons);
  return make(
    "div",
    { class: "chips", role: "group", "aria-label": `${title}: pieces and ids` },
    buttons,
  );
}

function neighbours(piece, list) {
  return make(
    "div",
    { class: "panel" },
    heading(`Nearest to ${quoted(piece)} in the embedding matrix`),
    make(
      "p",
      { class: "quiet" },
      "Cosine of the two embeddings: 1 is the same direction, 0 is none in common.",
    ),
    make(
      "ol",
      { class: "bars" },
      list.map(([other, cosine]) =>
        make(
          "li",
          {},
          pieceSpan(other),
          bar(cosine),
          make("span", { class: "number" }, fixed(cosine, 3)),
        ),
      ),
    ),
  );
}

function inputs(report) {
  const content = make("div");
  const sides = {
    source: ["source", report.source.pieces],
    target: ["target", report.target.inputs],
  };
  const show = (side) => content.replaceChildren(...inputMaps(report, ...sides[side]));
  show("source");
  const options = [
    { value: "source", label: "Encoder" },
    { value: "target", label: "Decoder" },
  ];
  return [choice("Which input", "input-side", options, "source", show), content];
}

function inputMaps(report, side, pieces) {
  const embedded = matrixOf(decode(report.embedding[side]));
  const table = matrixOf(decode(report.positions.learned ?? report.positions.table));
  const { rows, columns } = embedded;
  // Of learned positions there may be fewer: the last one then repeats.
  const place = matrixFrom(rows, columns, (r, c) => table.at(Math.min(r, table.rows - 1), c));
  const sum = matrixFrom(rows, columns, (r, c) => embedded.at(r, c) + place.at(r, c));
  const scale = divergingScale(largestSize(sum.values));
  const map = (title, name, matrix) => [
    make("h4", {}, title),
    heatMap({
      name,
      matrix,
      scale,
      rows: { labels: pieces },
      columns: { labels: counted(matrix.columns), ticks: true },
      hint: "",
      say: (r, c, x) => `${quoted(pieces[r])}, dimension ${c}: ${brief(x)}`,
      cell: { width: [1, 24], height: [14, 18] },
    }),
  ];
  return [
    ...map("embedding × √d_model", "Embeddings times the square root of d_model", embedded),
    ...map("+ position", "Encodings of the positions", place),
    ...map("= input of the first layer", "Sum of embeddings and positions", sum),
  ];
}
