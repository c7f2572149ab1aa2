// View 6: what beam search considered, step by step, and what became of it.

const NODE = { width: 108, height: 34, gapX: 34, gapY: 10 };

function drawTree(report) {
  const tree = makeTree(report.tree);
  const panel = make("div", { class: "panel", "aria-live": "polite" });
  const svg = treePicture(tree, (node) => panel.replaceChildren(...nodeText(report, tree, node)));
  const { options } = report.tree;
  return [
    paragraph(
      `At each step the ${options.beam_size} best unfinished translations go on with every ` +
        "piece of the vocabulary; the best candidates, by log P, are shown from top to " +
        "bottom. ",
      "A finished one gets a score: its log P divided by a penalty for its length, as " +
        "longer ones else lose.",
    ),
    make(
      "p",
      { class: "formula" },
      "score = log P / lp,  lp = ((5 + length) / 6)",
      make("sup", {}, "α"),
      `,  α = ${options.alpha}  (6.1; Wu et al. 2016)`,
    ),
    treeKey(),
    make("div", { class: "sideways tree-frame" }, svg),
    panel,
    onDemand("As a table", () => treeTable(tree)),
    ...hypotheses(report, tree),
  ];
}

/** The nodes with their places, children and the paths of the winners. */
function makeTree({ nodes, n_best }) {
  const all = nodes.map((node) => ({ ...node, children: [] }));
  const byId = new Map(all.map((node) => [node.id, node]));
  const columns = [];
  for (const node of all) {
    byId.get(node.parent)?.children.push(node);
    (columns[node.step] ??= []).push(node);
  }
  for (const column of columns) {
    column.sort((a, b) => b.total - a.total);
    column.forEach((node, place) => (node.place = place));
  }
  const tree = { nodes: all, byId, columns, winners: n_best.map((id) => byId.get(id)) };
  const won = new Set(pathTo(tree, tree.winners[0]));
  for (const node of all) node.won = won.has(node);
  return tree;
}

function pathTo(tree, node) {
  const path = [];
  for (let here = node; here; here = tree.byId.get(here.parent)) path.unshift(here);
  return path;
}

function piecesTo(tree, node) {
  return pathTo(tree, node)
    .slice(1)
    .map(({ piece }) => piece);
}

// The picture

function treePicture(tree, onchoose) {
  const width = tree.columns.length * (NODE.width + NODE.gapX) - NODE.gapX + 4;
  const height =
    Math.max(...tree.columns.map((column) => column.length)) * (NODE.height + NODE.gapY) + 4;
  const shapes = new Map(tree.nodes.map((node) => [node, nodeShape(node)]));
  const choose = (node) => {
    for (const [other, shape] of shapes) {
      shape.setAttribute("aria-pressed", other === node);
      shape.setAttribute("tabindex", other === node ? 0 : -1);
    }
    onchoose(node);
  };
  for (const [node, shape] of shapes) {
    shape.addEventListener("click", () => choose(node));
    shape.addEventListener("focus", () => choose(node));
    shape.addEventListener("keydown", (event) => walk(event, tree, node, shapes));
  }
  choose(tree.winners[0] ?? tree.nodes[0]);
  const edges = tree.nodes
    .filter(({ parent }) => parent !== null)
    .map((node) => edge(tree.byId.get(node.parent), node));
  edges.sort((a, b) => a.classList.contains("won") - b.classList.contains("won")); // on top
  return makeSvg(
    "svg",
    {
      class: "tree",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "aria-label":
        "Search tree. Arrow keys: right to the best continuation, left to what came " +
        "before, up and down among the candidates of a step.",
    },
    edges,
    [...shapes.values()],
  );
}

function corner({ step, place }) {
  return [step * (NODE.width + NODE.gapX) + 2, place * (NODE.height + NODE.gapY) + 4];
}

function edge(from, to) {
  const [x1, y1] = corner(from);
  const [x2, y2] = corner(to);
  const [start, end, half] = [x1 + NODE.width, x2, NODE.gapX / 2];
  const [above, below] = [y1 + NODE.height / 2, y2 + NODE.height / 2];
  return makeSvg("path", {
    class: `edge ${className(to)}`,
    d: `M${start} ${above}C${start + half} ${above} ${end - half} ${below} ${end} ${below}`,
  });
}

function className({ state, won }) {
  return won ? "won" : state;
}

function nodeShape(node) {
  const [x, y] = corner(node);
  const sign = { pruned: "✕ ", finished: "✓ " }[node.state] ?? "";
  return makeSvg(
    "g",
    {
      class: `node ${className(node)} ${node.state}`,
      transform: `translate(${x} ${y})`,
      role: "button",
      "data-node": node.id,
      "aria-label": nodeLabel(node),
    },
    makeSvg("rect", {
      width: NODE.width,
      height: NODE.height,
      rx: node.state === "finished" ? 17 : 6,
    }),
    makeSvg("text", { x: NODE.width / 2, y: 14, class: "name" }, sign + short(plain(node.piece))),
    makeSvg(
      "text",
      { x: NODE.width / 2, y: 28, class: "total" },
      node.score === null ? fixed(node.total) : `${fixed(node.total)} → ${fixed(node.score)}`,
    ),
  );
}

function short(piece) {
  return piece.length > 12 ? `${piece.slice(0, 11)}…` : piece;
}

function nodeLabel({ piece, step, total, state, score, won }) {
  const end = score === null ? "" : `, score ${fixed(score)}`;
  const way = won ? ", on the way to the best" : "";
  return `${piece.replaceAll("▁", "")}, step ${step}, log P ${fixed(total)}, ${state}${end}${way}`;
}

function walk(event, tree, node, shapes) {
  const column = tree.columns[node.step];
  const next = {
    ArrowLeft: tree.byId.get(node.parent),
    ArrowRight: node.children.find(({ won }) => won) ?? node.children[0],
    ArrowUp: column[node.place - 1],
    ArrowDown: column[node.place + 1],
    Home: tree.nodes[0],
    End: tree.winners[0],
  }[event.key];
  if (event.key.startsWith("Arrow")) event.preventDefault(); // else the page scrolls at an end
  if (next) shapes.get(next).focus();
}

function treeKey() {
  const entries = [
    ["won", "on the way to the best"],
    ["alive", "the search went on"],
    ["finished", "✓ finished: log P → score"],
    ["pruned", "✕ pruned"],
  ];
  return make(
    "ul",
    { class: "key" },
    entries.map(([name, text]) => make("li", { class: name }, text)),
  );
}

// A node in words

function nodeText(report, tree, node) {
  const { options } = report.tree;
  const pieces = piecesTo(tree, node);
  const facts = [
    ["log P of this piece", brief(node.log_prob)],
    ["log P of all so far", brief(node.total)],
    ...(node.score === null
      ? []
      : [
          [
            "length penalty",
            [
              "((5 + ",
              String(node.step),
              ") / 6)",
              make("sup", {}, String(options.alpha)),
              ` = ${brief(node.penalty)}`,
            ],
          ],
          ["score", `${brief(node.total)} / ${brief(node.penalty)} = ${brief(node.score)}`],
        ]),
    ["what became of it", fate(tree, node)],
  ];
  return [
    heading(
      node.step
        ? `Step ${node.step}: ` +
            `${textOf(pieces) || "nothing"}${node.piece === "</s>" ? " (end)" : ""}`
        : "The beginning",
    ),
    make(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
    ),
    node.step ? howToContinue(report, pieces) : "",
  ];
}

function fate(tree, { state, why, children, id }) {
  const place = tree.winners.findIndex((winner) => winner.id === id);
  if (place === 0) return "finished, and no other has a better score: it won";
  if (place > 0) return `finished: number ${place + 1} of the results`;
  if (state === "finished")
    return `finished, with a lower score than the best, ${brief(tree.winners[0].score)}`;
  if (state === "pruned") return `pruned: ${why}`;
  return children.length ? "the search went on from it" : "alive when the search ended";
}

function treeTable(tree) {
  const head = ["step", "so far", "log P of the piece", "log P", "score", "what became of it"];
  const rows = tree.nodes
    .slice(1)
    .map((node) => [
      String(node.step),
      piecesTo(tree, node).join(" "),
      brief(node.log_prob),
      brief(node.total),
      node.score === null ? "" : brief(node.score),
      fate(tree, node),
    ]);
  return table("All candidates of the search", head, rows);
}
