"""The views of a report as PNG pictures, in the order and the colours of the page.

This needs matplotlib, the extra ``pictures``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mt.inspection import training, tree_picture
from mt.inspection.arrays import decode
from mt.inspection.drawing import (
    ACCENT,
    OTHER,
    QUIET,
    SECOND,
    TEXT,
    WIDTH,
    Matrix,
    bars,
    candidates,
    colour_bar,
    heat_map,
    number,
    outline,
    percent,
    picture,
    strip,
)

Report = dict[str, Any]

TITLES = {"encoder": "Encoder", "decoder": "Masked decoder", "cross": "Cross-attention"}
DIMENSIONS = 64  # columns of the embeddings that are drawn
NEAR = 4  # neighbours of a piece
TEMPERATURES = (0.5, 1.0, 2.0)


def write_pictures(reports: Sequence[Report], folder: Path) -> None:
    """Write the pictures of one report, or of several models side by side.

    The learning curves come beside them for a model whose run has left logs. Raises OSError.
    """
    folder.mkdir(exist_ok=True)
    if len(reports) == 1:
        for name, draw in VIEWS.items():
            draw(reports[0], folder / f"{name}.png")
    else:
        training.draw_attention(reports, folder / "attention.png")
        training.draw_steps(reports, folder / "next-piece.png")
    training.draw_runs(reports, folder / "training.png")


def draw_pieces(report: Report, path: Path) -> None:
    """Embedding times sqrt(d_model), positions, their sum; the nearest neighbours as text."""
    source, embedding = report["source"], report["embedding"]
    embedded = decode(embedding["source"])
    positions = _positions(report)[: len(embedded)]
    width = min(DIMENSIONS, embedded.shape[1])
    rows = [f"{p}  {i}" for p, i in zip(source["pieces"], source["ids"], strict=True)]
    stages = {
        "embedding × √d_model": embedded,
        "position": positions,
        "sum: enters layer 1": embedded + positions,
    }
    with picture(path, 1.0 + 0.46 * len(rows)) as figure:
        grid = figure.add_gridspec(2, 3, height_ratios=[1, 0.95])
        high = float(np.abs(embedded).max())
        for i, (title, values) in enumerate(stages.items()):
            axes = figure.add_subplot(grid[0, i])
            shown = values[:, :width]
            image = heat_map(axes, shown, rows if i == 0 else [], low=-1.0, high=high)
            axes.set_title(title)
            axes.set_xticks([0, width - 1], ["0", str(width - 1)])
            axes.set_xlabel(f"the first {width} of {embedded.shape[1]} columns")
            outline(axes)
        colour_bar(figure, image, axes, "")
        axes = figure.add_subplot(grid[1, :])
        axes.axis("off")
        axes.set_title("Nearest pieces in the embedding matrix, by cosine")
        for i, piece in enumerate(dict.fromkeys(source["pieces"])):
            y = 1 - (i + 0.5) / len(rows)
            axes.text(0.0, y, piece, va="center", fontweight="bold")
            for j, (other, cosine) in enumerate(embedding["neighbours"][piece][:NEAR]):
                text = f"{other}  {number(cosine)}"
                axes.text(0.16 + 0.21 * j, y, text, va="center", color=TEXT if cosine else QUIET)


def _positions(report: Report) -> Matrix:
    """What the model adds: learned positions where it has them."""
    positions = report["positions"]
    return decode(positions["learned"] or positions["table"])


def draw_positions(report: Report, path: Path) -> None:
    """The sinusoids, learned positions where there are some, and dot products."""
    positions = report["positions"]
    table, products = decode(positions["table"]), decode(positions["dot_products"])
    maps = {"sinusoids (3.5)": (table, 1.0)}
    if positions["learned"] is not None:
        learned = decode(positions["learned"])
        maps["learned by this model"] = (learned, float(np.abs(learned).max()))
    with picture(path, 3.1) as figure:
        all_axes = figure.subplots(1, len(maps) + 1)
        for axes, (title, (values, high)) in zip(all_axes, maps.items(), strict=False):
            image = heat_map(axes, values, low=-1.0, high=high)
            _ticks(axes.set_xticks, values.shape[1], 4)
            _ticks(axes.set_yticks, len(values), 4)
            axes.set(title=title, xlabel="dimension", ylabel="position")
            outline(axes)
            colour_bar(figure, image, axes, "")
        axes = all_axes[-1]
        image = heat_map(axes, products, square=True)
        for set_ticks in (axes.set_xticks, axes.set_yticks):
            _ticks(set_ticks, len(products), 4)
        axes.set(title="dot products of the sinusoids", xlabel="position", ylabel="position")
        outline(axes)
        colour_bar(figure, image, axes, "")


def _ticks(set_ticks: Any, size: int, parts: int) -> None:
    places = range(0, size, max(1, size // parts))
    set_ticks(list(places), [str(place) for place in places])


def labels_of(report: Report, kind: str) -> tuple[list[str], list[str]]:
    """The pieces that look, and those they look at."""
    source, inputs = report["source"]["pieces"], report["target"]["inputs"]
    return source if kind == "encoder" else inputs, inputs if kind == "decoder" else source


def draw_attention(report: Report, path: Path, kind: str) -> None:
    """The attention of one kind: all layers and heads, and one of them large."""
    weights, entropy = (
        decode(report["attention"][kind]),
        decode(report["attention"]["entropy"][kind]),
    )
    layers, heads, num_rows, num_columns = weights.shape
    if kind == "decoder":  # what is masked stays white
        weights = np.where(np.tri(num_rows, num_columns, dtype=bool), weights, np.nan)
    layer, head = report["alignment"]["heads"][0] if kind == "cross" else (layers, 1)
    cell = min(1.2, WIDTH / (heads + 2))
    small = layers * (cell * min(1.0, num_rows / num_columns) + 0.28) + 0.3
    large = 0.9 + 0.27 * num_rows
    with picture(path, small + large, max(WIDTH, 2 + 0.3 * num_columns)) as figure:
        parts: Any = figure.subfigures(2, 1, height_ratios=[small, large])
        top, bottom = parts
        _draw_all_heads(top, weights, entropy, (layer, head))
        axes = _draw_one_head(bottom, weights[layer - 1, head - 1], *labels_of(report, kind))
        axes.set_title(f"{TITLES[kind]}, layer {layer}, head {head}: row looks at column", pad=8)


def _draw_all_heads(figure: Any, weights: Matrix, entropy: Matrix, chosen: tuple[int, int]) -> None:
    """Weights [N, h, rows, columns] and entropies [N, h], the ``chosen`` layer and head marked."""
    layers, heads = weights.shape[:2]
    grid = figure.subplots(layers, heads + 1, squeeze=False)
    means = weights.mean(axis=1)
    for n in range(layers):
        for i in range(heads + 1):
            mean = i == heads
            axes = grid[n][i]
            heat_map(axes, means[n] if mean else weights[n, i], low=0.0, high=1.0)
            outline(axes)
            if (n + 1, i + 1) == chosen:
                axes.spines[:].set(color=SECOND, linewidth=2)
            if n == 0:
                axes.set_title("mean" if mean else f"head {i + 1}")
            axes.set_ylabel(f"layer {n + 1}" if i == 0 else "")
            axes.set(xticks=[], yticks=[])
            if not mean:
                axes.set_xlabel(number(entropy[n, i]), color=QUIET, labelpad=1)


def _draw_one_head(figure: Any, weights: Matrix, rows: list[str], columns: list[str]) -> Any:
    """Weights [rows, columns] with their pieces; returns the axes."""
    axes = figure.subplots()
    numbers = max(weights.shape) <= 12
    image = heat_map(axes, weights, rows, columns, numbers=numbers, low=0.0, high=1.0)
    outline(axes)
    colour_bar(figure, image, axes, "weight")
    return axes


def draw_by_hand(report: Report, path: Path) -> None:
    """One row of one cross-attention head: scores, weights, and the vectors that follow."""
    [record] = [record for record in report["by_hand"] if record["kind"] == "cross"]
    values = {name: decode(q["values"]) for name, q in record.items() if isinstance(q, dict)}
    keys, step = report["source"]["pieces"], record["step"] - 1
    asks, comes = report["target"]["inputs"][step], report["target"]["pieces"][step]
    columns = {
        "scores": ("q · k", 1, ACCENT),
        "scaled": (f"÷ √d_k = {number(report['model']['d_k'] ** 0.5, 2)}", 2, ACCENT),
        "softmax": ("softmax: the weights", 3, ACCENT),
        "unscaled_softmax": ("softmax, not scaled", 3, SECOND),
    }
    inner = record["feed_forward_inner"]["equation"].replace("  (equation 2)", " (2)")
    vectors = (
        ("q", "q = x W_Q"), ("context", "context: the weighted mean of V (1)"),
        ("heads_concatenated", "all heads side by side"),
        ("after_W_O", "times W_O"), ("add_norm", "LayerNorm(x + that) (3.1)"),
        ("feed_forward_inner", inner),
        ("feed_forward", "… W_2 + b_2 (2)"), ("feed_forward_add_norm", "LayerNorm(x + that) (3.1)"),
    )  # fmt: skip
    height = 0.9 + 0.25 * len(keys)
    with picture(path, height + 2.9) as figure:
        parts: Any = figure.subfigures(2, 1, height_ratios=[height, 2.9])
        top, bottom = parts
        top.suptitle(
            f"“{asks}” asks, to predict “{comes}”: cross-attention, layer {record['layer']}, "
            f"head {record['head']}", x=0.01, ha="left", fontsize=10)  # fmt: skip
        for i, (axes, (name, (title, digits, colour))) in enumerate(
            zip(top.subplots(1, len(columns), sharey=True), columns.items(), strict=True)
        ):
            bars(
                axes,
                keys if i == 0 else None,
                values[name],
                colour,
                lambda x, d=digits: number(x, d),
            )
            axes.set_title(title)
        grid = bottom.subplots(len(vectors) // 2, 2)
        for axes, (name, title) in zip(grid.T.flat, vectors, strict=True):
            size = "×".join(map(str, record[name]["shape"]))
            strip(axes, values[name], f"{title}  [{size}]")


def draw_steps(report: Report, path: Path) -> None:
    """The likeliest next pieces at every step."""
    steps, pieces = report["steps"], report["target"]["pieces"]
    columns = 3
    rows = -(-len(steps) // columns)
    with picture(path, 0.2 + 1.65 * rows) as figure:
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for i, (axes, step) in enumerate(zip(grid, steps, strict=False)):
            names, values, colours = candidates(step, report["model"]["vocab_size"])
            bars(axes, names, values, colours, percent)
            axes.set_xlim(0, 1.55)
            axes.set_title(f"{i + 1}. after {_last(pieces[:i])}", x=-0.5)  # over the pieces, too
        for axes in grid[len(steps) :]:
            axes.axis("off")


def _last(pieces: Sequence[str]) -> str:
    text = "".join(pieces).replace("▁", " ").strip()
    return f"“{text if len(text) < 20 else '…' + text[-18:]}”" if text else "<s>"


def draw_temperature(report: Report, path: Path) -> None:
    """What temperature makes of the step in which the model was least sure."""
    steps = report["steps"]
    step = max(steps, key=lambda step: 1 - step["top"][0][2])
    logits = np.array([logit for _, logit, _ in step["top"]])
    with picture(path, 2.2) as figure:
        all_axes = figure.subplots(1, len(TEMPERATURES))
        for i, (axes, at) in enumerate(zip(all_axes, TEMPERATURES, strict=True)):
            place = report["temperatures"].index(at)
            rest = -np.inf if step["rest_logsumexp"] is None else step["rest_logsumexp"][place]
            total = np.logaddexp.reduce([*(logits / at), rest])
            shown = np.exp(logits / at - total)[:8]
            names, _, _ = candidates(step, 0)
            chosen = step["rank"] - 1
            colours = [ACCENT if k == chosen else OTHER for k in range(len(shown))]
            names = [f"{'✓ ' if k == chosen else ''}{row[0]}" for k, row in enumerate(step["top"])]
            bars(
                axes, names[: len(shown)] if i == 0 else [""] * len(shown), shown, colours, percent
            )
            axes.set_xlim(0, 1.55)
            axes.set_title(f"temperature {at:g}")


def draw_alignment(report: Report, path: Path) -> None:
    """Lines between words, and the weights of pieces."""
    alignment = report["alignment"]
    source, target = alignment["words"]["source"], alignment["words"]["target"]
    soft = decode(alignment["soft"])
    height = max(1.2 + 0.3 * max(len(source), len(target), len(soft)), 2.2)
    with picture(path, height, max(WIDTH, 4 + 0.4 * soft.shape[1])) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.4])
        left.set(xlim=(-0.6, 1.6), ylim=(max(len(source), len(target)) - 0.5, -0.5))
        left.axis("off")
        left.set_title("words")
        x = np.linspace(0, 1, 40)
        for s, t, weight in alignment["links"]:
            y = s + (t - s) * (3 * x**2 - 2 * x**3)
            left.plot(x, y, color=ACCENT, linewidth=0.6 + 3.4 * weight, solid_capstyle="butt")
        for words, place, side in ((source, -0.05, "right"), (target, 1.05, "left")):
            for i, word in enumerate(words):
                left.text(place, i, word, ha=side, va="center", fontsize=9.5)
        rows, columns = report["target"]["pieces"], report["source"]["pieces"]
        image = heat_map(
            right, soft, rows, columns, numbers=max(soft.shape) <= 12, low=0.0, high=1.0
        )
        outline(right)
        right.set_title("pieces: row comes from column", pad=8)
        colour_bar(figure, image, right, "weight")


VIEWS: dict[str, Callable[[Report, Path], None]] = {
    "1-pieces": draw_pieces,
    "2-positions": draw_positions,
    "3-attention-encoder": partial(draw_attention, kind="encoder"),
    "3-attention-decoder": partial(draw_attention, kind="decoder"),
    "3-attention-cross": partial(draw_attention, kind="cross"),
    "4-by-hand": draw_by_hand,
    "5-next-piece": draw_steps,
    "5-temperature": draw_temperature,
    "6-beam": tree_picture.draw_tree,
    "7-alignment": draw_alignment,
}
