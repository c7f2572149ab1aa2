// View 5: which pieces could come next, at each step, and what temperature makes of it.

function drawSteps(...reports) {
  return [sideBySide(reports, reports.map(stepsOf))];
}

function stepsOf(report, number) {
  const { steps, temperatures } = report;
  const state = { step: 0, temperature: temperatures.indexOf(1) };
  const content = make("div");
  const show = () => content.replaceChildren(...distribution(report, state));
  const buttons = steps.map(({ piece, log_prob }, i) =>
    make(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": i === 0,
        onclick: () => {
          state.step = i;
          buttons.forEach((button, k) => button.setAttribute("aria-pressed", k === i));
          show();
        },
      },
      pieceSpan(piece),
      make("small", {}, percent(Math.exp(log_prob))),
    ),
  );
  roving(buttons);
  show();
  return [
    make(
      "div",
      {
        class: "chips",
        role: "group",
        "aria-label": "Steps: the piece that was taken and its probability",
      },
      buttons,
    ),
    temperatureSlider(`temperature-${number}`, temperatures, state, show),
    content,
  ];
}

function temperatureSlider(id, temperatures, state, show) {
  const output = make("output", { for: id });
  const slider = make("input", {
    type: "range",
    id,
    min: 0,
    max: temperatures.length - 1,
    step: 1,
    value: state.temperature,
    oninput: () => {
      state.temperature = Number(slider.value);
      label();
      show();
    },
  });
  const label = () => {
    const text = String(temperatures[slider.value]);
    slider.setAttribute("aria-valuetext", text);
    output.textContent = text;
  };
  label();
  return make(
    "div",
    { class: "slider" },
    make("label", { for: id }, "Temperature"),
    slider,
    output,
    make(
      "span",
      { class: "quiet" },
      "p = softmax(logits / temperature): below 1 the likeliest piece gains, above 1 the others.",
    ),
  );
}

/**
 * The distribution of a step at a temperature: for each shown piece {piece, logit, p, rank, chosen},
 * and `rest`, the probability of all others. The piece that was taken is shown even when it is not
 * among the best: its logit follows from its log P.
 */
function distributionAt({ temperatures, steps }, { step, temperature }) {
  const { piece: chosen, log_prob, rank, top, rest_logsumexp } = steps[step];
  const at = temperatures[temperature];
  const normaliser = (t, i) => logSumExp([...top.map(([, logit]) => logit / t), rest_logsumexp[i]]);
  const log_sum = normaliser(at, temperature);
  const share = (logit) => Math.exp(logit / at - log_sum);
  const rows = top.map(([piece, logit], i) => ({
    piece,
    logit,
    p: share(logit),
    rank: i + 1,
    chosen: i + 1 === rank,
  }));
  let rest = Math.exp(rest_logsumexp[temperature] - log_sum);
  if (rank > rows.length) {
    const logit = log_prob + normaliser(1, temperatures.indexOf(1));
    rows.push({ piece: chosen, logit, p: share(logit), rank, chosen: true });
    rest = Math.max(rest - share(logit), 0);
  }
  return { rows, rest };
}

function distribution(report, state) {
  const { rows, rest } = distributionAt(report, state);
  const before = report.target.pieces.slice(0, state.step);
  const panel = make("div", { class: "panel", role: "status", hidden: true });
  const others = report.model.vocab_size - rows.length;
  const items = rows.map((row) => candidate(report, row, before, panel));
  roving(items.map((item) => item.querySelector("a, button")));
  return [
    heading(before.length ? `After “${textOf(before)}”` : "At the beginning"),
    make(
      "div",
      { class: "candidate top", "aria-hidden": "true" },
      ["piece", "", "probability", "logit", ""].map((name) => make("span", {}, name)),
    ),
    make("ol", { class: "bars candidates" }, items, restItem(others, rest)),
    make(
      "p",
      { class: "quiet" },
      serverAddress(report)
        ? "Choose a piece to continue the translation from it."
        : "Choose a piece to see how to continue from it.",
    ),
    panel,
    onDemand("As a table", () =>
      table(
        "Next pieces",
        ["piece", "rank", "logit", "probability", ""],
        rows.map(({ piece, rank, logit, p, chosen }) => [
          piece,
          String(rank),
          brief(logit),
          p.toPrecision(4),
          chosen ? "taken" : "rejected",
        ]),
      ),
    ),
  ];
}

function candidate(report, row, before, panel) {
  const pieces = [...before, row.piece];
  const address = continuation(report, pieces);
  const inside = [
    make("span", { class: "label" }, pieceSpan(row.piece)),
    bar(row.p, row.chosen ? "" : "other"),
    make("span", { class: "number" }, percent(row.p)),
    make("span", { class: "number logit" }, fixed(row.logit)),
    make(
      "span",
      { class: "verdict" },
      row.chosen ? `✓ taken${row.rank > 1 ? `, rank ${row.rank}` : ""}` : "",
    ),
  ];
  const attributes = { class: "candidate", "data-p": row.p, "aria-label": spoken(row) };
  if (address) return make("li", {}, make("a", { ...attributes, href: address }, inside));
  const open = () => {
    panel.hidden = false;
    panel.replaceChildren(howToContinue(report, pieces));
  };
  return make("li", {}, make("button", { ...attributes, type: "button", onclick: open }, inside));
}

function spoken({ piece, p, logit, rank, chosen }) {
  const name = piece.replaceAll("▁", "");
  const end = chosen ? "taken" : "rejected";
  return `${name}, rank ${rank}, ${percent(p)}, logit ${brief(logit)}, ${end}`;
}

function restItem(count, rest) {
  return make(
    "li",
    { class: "candidate rest", "data-p": rest },
    make("span", { class: "label" }, `${grouped(count)} others`),
    bar(rest, "other"),
    make("span", { class: "number" }, percent(rest)),
  );
}
