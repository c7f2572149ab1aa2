// Below the tree: the results of the search, and greedy search beside the best of them.

function hypotheses(report, tree) {
  const { greedy, texts, options } = report.tree;
  const rows = tree.winners.map((node, i) => [
    String(i + 1),
    texts[i],
    brief(node.total),
    brief(node.penalty),
    brief(node.score),
  ]);
  const penalty = greedy.log_prob / greedy.score;
  rows.push([
    "greedy",
    greedy.text,
    brief(greedy.log_prob),
    Number.isFinite(penalty) ? brief(penalty) : "",
    brief(greedy.score),
  ]);
  return [
    heading("What the search returns, and greedy search beside it"),
    paragraph(verdict(tree.winners[0], greedy, options)),
    table("Results", ["", "translation", "log P", "lp", "score"], rows),
    heading("Piece by piece"),
    make(
      "div",
      { class: "beside" },
      pieceRow(
        "Beam search",
        pathTo(tree, tree.winners[0])
          .slice(1)
          .map(({ piece, log_prob }) => [piece, log_prob]),
        greedy.pieces,
      ),
      pieceRow(
        "Greedy search",
        greedy.pieces.map((piece, i) => [piece, greedy.log_probs[i]]),
        piecesTo(tree, tree.winners[0]),
      ),
    ),
  ];
}

function verdict(winner, greedy, { beam_size }) {
  const gain = winner.score - greedy.score;
  if (Math.abs(gain) < 1e-4)
    return "Greedy search takes the likeliest piece at each step. Here it finds the same score as the beam.";
  const better =
    gain > 0
      ? "The beam’s has the better score: a piece that was not the likeliest led to it."
      : "Here greedy search has the better score: the beam had pruned that way.";
  return `Greedy search takes the likeliest piece at each step, as a beam of 1 instead of ${beam_size} does. ${better}`;
}

/** Pieces with their log P; those that differ from the other search's are marked. */
function pieceRow(title, pairs, other) {
  return make(
    "div",
    {},
    make("h4", {}, title),
    make(
      "ol",
      { class: "chips still" },
      pairs.map(([piece, log_prob], i) =>
        make(
          "li",
          { class: `chip${piece === other[i] ? "" : " differs"}` },
          pieceSpan(piece),
          make("small", {}, fixed(log_prob)),
        ),
      ),
    ),
  );
}
