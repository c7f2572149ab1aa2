// The page: a section for each view, in the order of the paper, drawn when it comes into sight.

const VIEWS = [
  {
    id: "pieces",
    title: "Pieces and embeddings",
    where: "Sections 3.4 and 5.1",
    about:
      "The text is split into pieces of a vocabulary. Each piece has a number, its id, and " +
      "a row of the embedding matrix; to that the position is added.",
    draw: drawPieces,
  },
  {
    id: "positions",
    title: "Positions",
    where: "Section 3.5",
    about:
      "Attention does not see the order of the pieces, so each position has numbers of its " +
      "own, which are added to the embedding. In the paper they are sines and cosines of " +
      "different wavelengths.",
    draw: drawPositions,
  },
  {
    id: "attention",
    title: "Attention",
    where: "Section 3.2, equation 1",
    about:
      "Each piece gathers what it needs from others. Every layer has several heads, and " +
      "each head may look elsewhere.",
    draw: drawAttention,
    comparing: true,
  },
  {
    id: "by-hand",
    title: "One step by hand",
    where: "Sections 3.1 to 3.4, equations 1 and 2",
    about:
      "The calculation of one row in one head, with the shape of every quantity. All " +
      "numbers are those of this translation.",
    draw: drawByHand,
  },
  {
    id: "steps",
    title: "The next piece",
    where: "Section 3.4",
    about:
      "At every step the model gives each piece of the vocabulary a probability. You see " +
      "the 20 likeliest, which of them was taken, and what all others have together.",
    draw: drawSteps,
    comparing: true,
  },
  {
    id: "tree",
    title: "The beam",
    where: "Section 6.1",
    about:
      "Beam search keeps several unfinished translations side by side. You see what it " +
      "considered, what it pruned and why, and what won.",
    draw: drawTree,
  },
  {
    id: "alignment",
    title: "Word alignment",
    where: "Section 3.2.3; Chen et al. 2020",
    about:
      "Cross-attention shows from which source words a word of the translation comes. A " +
      "thicker line is a larger weight.",
    draw: drawAlignment,
  },
];

const reports = [JSON.parse(document.getElementById("report").textContent)].flat();

function sourceText({ source, model }) {
  return make("p", { class: "source-text", lang: model.languages?.[0] }, source.text);
}

function summary({ target, translation, model }) {
  const { languages } = model;
  const texts = [
    make(
      "p",
      { class: "target-text", lang: languages?.[1] },
      make("span", { class: "arrow", "aria-hidden": "true" }, "→ "),
      target.text,
    ),
  ];
  const found = target.given
    ? make(
        "p",
        { class: "quiet" },
        "This translation was given, and is shown in all views but the beam. The search finds ",
        make("span", { lang: languages?.[1] }, `“${translation.text}”`),
        ` (log P ${fixed(translation.log_prob)}; of the given one: ${fixed(target.log_prob)}).`,
      )
    : null;
  const scores = ` log P = ${fixed(target.log_prob, 3)}, score = ${fixed(target.score, 3)}.`;
  return [...texts, found, make("p", { class: "quiet" }, sizes(model), scores)];
}

function sizes(model) {
  const { N, d_model, d_ff, h, d_k, vocab_size, parameters } = model;
  return (
    `${nameOf(model)}: N = ${N} layers, d_model = ${d_model}, d_ff = ${d_ff}, h = ${h} heads, ` +
    `d_k = ${d_k}, ${grouped(vocab_size)} pieces, ${grouped(parameters)} parameters.`
  );
}

function section({ id, title, where, about }, number) {
  return make(
    "section",
    { id, "aria-labelledby": `${id}-title`, tabindex: -1 },
    make(
      "h2",
      { id: `${id}-title` },
      make("span", { class: "count" }, String(number)),
      title,
      make("small", {}, where),
    ),
    paragraph(about),
    make("div", { class: "view" }),
  );
}

function drawSection(view) {
  const element = document.getElementById(view.id);
  if (element.dataset.drawn) return;
  const start = performance.now();
  element.querySelector(".view").replaceChildren(...drawView(view));
  element.dataset.drawn = (performance.now() - start).toFixed(1); // ms
}

/** Attention and the next piece show several models at once, the other views one of them. */
function drawView({ id, draw, comparing }) {
  if (comparing || reports.length === 1) return draw(...reports).flat();
  const content = make("div");
  const show = (number) => content.replaceChildren(...draw(reports[number]).flat());
  show(0);
  const options = reports.map(({ model }, i) => ({ value: i, label: nameOf(model, 2) }));
  return [choice("Model", `${id}-model`, options, 0, show), content];
}

/** Draw a view when it comes near, and mark the view in sight in the list of views. */
function watch() {
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries)
        if (isIntersecting) drawSection(VIEWS.find(({ id }) => id === target.id));
    },
    { rootMargin: "50% 0px" },
  );
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries)
        document
          .querySelector(`nav a[href="#${target.id}"]`)
          .toggleAttribute("aria-current", isIntersecting);
    },
    { rootMargin: "-30% 0px -69% 0px" },
  );
  for (const { id } of VIEWS) {
    near.observe(document.getElementById(id));
    seen.observe(document.getElementById(id));
  }
}

function start() {
  document.title = `Inside a translation: ${reports[0].source.text}`;
  const summaries = reports.map((report) => summary(report).filter(Boolean));
  document.getElementById("summary").append(sourceText(reports[0]), ...summaries.flat());
  const links = VIEWS.map(({ id, title }, i) => {
    // Those before it too: what is drawn above a place moves it.
    const draw = () => VIEWS.slice(0, i + 1).forEach(drawSection);
    return make("a", { href: `#${id}`, onclick: draw }, title);
  });
  document.getElementById("views").append(...links.map((link) => make("li", {}, link)));
  document.getElementById("main").replaceChildren(...VIEWS.map((view, i) => section(view, i + 1)));
  watch();
  addEventListener("beforeprint", () => VIEWS.forEach(drawSection));
  document.documentElement.dataset.ready = performance.now().toFixed(1); // ms
}

start();
