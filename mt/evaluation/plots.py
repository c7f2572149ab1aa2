"""A page of plots for an evaluation and one for a comparison, when matplotlib is installed."""

import logging
import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from mt.evaluation.learning_curves import Curves
from mt.evaluation.metrics import is_percentage
from mt.evaluation.report import search_name, split_signature
from mt.utils.atomic import atomic_path
from mt.utils.console import install_hint

log = logging.getLogger("mt.evaluate")

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")  # Okabe and Ito's
GREY = "#bbbbbb"


def draw_evaluation(
    path: Path, report: dict[str, Any], sentences: Sequence[list[dict[str, Any]]], curves: Curves
) -> None:
    """Draw learning curves, BLEU by length and the distribution of chrF.

    ``sentences`` holds the rows of each run of the report.
    """
    num_rows = 2 if curves else 1
    if (figure := _figure(path, num_rows)) is None:
        return
    grid = figure.subplots(num_rows, 2, squeeze=False)
    runs = report["runs"]
    names = [search_name(run) for run in runs]
    if curves:
        _draw_loss(grid[0][0], curves)
        _draw_validation(grid[0][1], curves)
    score = runs[0]["scores"][0]
    values = [[b["scores"][score["name"]] for b in run["by_length"]] for run in runs]
    _draw_lengths(grid[-1][0], runs[0]["by_length"], names, values, score)
    chrf = [[row["chrf"] for row in rows] for rows in sentences]
    _draw_distribution(grid[-1][1], names, chrf, runs[0]["sentence_signatures"]["chrf"])
    _save(figure, path, f"{report['model']} on {report['data']}")


def draw_comparison(path: Path, comparison: dict[str, Any]) -> None:
    """Draw scores with their intervals, differences of sentences, and BLEU by length."""
    if (figure := _figure(path, num_rows=2)) is None:
        return
    grid = figure.subplot_mosaic([["scores", "scores"], ["sentences", "lengths"]])
    percentages = [score for score in comparison["scores"] if is_percentage(score["name"])]
    _draw_intervals(grid["scores"], percentages)
    _draw_differences(grid["sentences"], comparison["sentence_chrf"])
    buckets = comparison["by_length"]
    score = comparison["scores"][0]
    values = [[bucket[side][score["name"]] for bucket in buckets] for side in "ab"]
    signature, _ = split_signature(score["signature"])
    _draw_lengths(grid["lengths"], buckets, ["A", "B"], values, score | {"signature": signature})
    systems = {side.upper(): comparison[side] for side in "ab"}
    sides = [f"{side}: {run['model']}, {run['search']}" for side, run in systems.items()]
    _save(figure, path, "\n".join([*sides, f"on {comparison['data']}"]))


def _figure(path: Path, num_rows: int) -> Any:
    """A figure; without matplotlib None, a warning that says why, and no older picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = install_hint("pictures")
        log.warning(f"{path} is not drawn: the extra 'pictures' is missing: {hint}")
        path.unlink(missing_ok=True)
        return None
    return Figure(figsize=(12, 4.2 * num_rows + 0.6), dpi=110, layout="constrained")


def _save(figure: Any, path: Path, title: str) -> None:
    # A dollar sign would begin a formula; parse_math=False has no effect on wrapped text.
    figure.suptitle(title.replace("$", r"\$"), wrap=True)
    with atomic_path(path) as partial:
        figure.savefig(partial, format="png")


def _moving_mean(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The mean of each value and those before it, over at most a twentieth of all points."""
    size = max(1, len(points) // 20)
    windows = [points[max(0, i + 1 - size) : i + 1] for i in range(len(points))]
    return [(window[-1][0], sum(value for _, value in window) / len(window)) for window in windows]


def _draw_validation_points(axes: Any, curves: Curves, score: str, label: str) -> None:
    if points := curves.get(f"val_{score}"):
        axes.plot(*zip(*points, strict=True), "o-", markersize=4, color=COLOURS[1], label=label)
    if mean := curves.get(f"mean_{score}"):
        style = {"linestyle": "", "marker": "*", "markersize": 11, "color": COLOURS[2]}
        axes.plot(*mean[-1], label="mean of checkpoints", **style)


def _draw_loss(axes: Any, curves: Curves) -> None:
    if "train_nll" in curves:
        raw, mean = curves["train_nll"], _moving_mean(curves["train_nll"])
        axes.plot(*zip(*raw, strict=True), color=COLOURS[0], alpha=0.3, linewidth=0.8)
        axes.plot(*zip(*mean, strict=True), color=COLOURS[0],
                  label="training, with dropout (pale: single steps)")  # fmt: skip
    _draw_validation_points(axes, curves, "nll", "validation")
    axes.set(title="Learning: loss", xlabel="step", ylabel="negative log-likelihood, nats a token")
    axes.legend()
    axes.grid(alpha=0.3)


def _draw_validation(axes: Any, curves: Curves) -> None:
    if {"val_bleu", "mean_bleu"} & curves.keys():
        _draw_validation_points(axes, curves, "bleu", "during training")
        axes.legend(loc="best")
    else:
        axes.text(0.5, 0.5, "no validation in the logs", ha="center", transform=axes.transAxes)
    axes.set(title="Learning: validation", xlabel="step", ylabel="sacreBLEU (13a), validation set")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)


def _draw_lengths(
    axes: Any,
    buckets: list[dict[str, Any]],
    names: list[str],
    values: list[list[float]],
    score: dict[str, Any],
) -> None:
    """Draw a line for each search over the source lengths; grey bars count the sentences."""
    places = range(len(buckets))
    counts = [bucket["sentences"] for bucket in buckets]
    bars = axes.twinx()
    bars.bar(places, counts, color=GREY, alpha=0.5, width=0.8)
    bars.set_ylim(0, 2.5 * max(counts))  # mostly below the lines
    bars.set_yticks([])
    for name, line, colour in zip(names, values, cycle(COLOURS), strict=False):
        axes.plot(places, line, "o-", label=name, color=colour)
    axes.set_zorder(bars.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.set_xticks(places, [f"{b['words']}\n{b['sentences']:,}" for b in buckets])
    axes.set_ylim(0, 1.3 * max(1.0, *(max(line) for line in values)))
    axes.set(xlabel="source length, words; below it and in grey: sentences", ylabel=score["name"])
    axes.set_title(f"By source length\n{score['signature']}", fontsize=9)
    axes.legend(loc="upper right")


def _draw_distribution(
    axes: Any, names: list[str], values: list[list[float]], signature: str
) -> None:
    for name, scores, colour in zip(names, values, cycle(COLOURS), strict=False):
        mean = sum(scores) / len(scores)
        axes.hist(scores, bins=range(0, 101, 5), histtype="step", linewidth=1.6, color=colour,
                  label=f"{name}: mean {mean:.1f}")  # fmt: skip
        axes.axvline(mean, color=colour, linestyle=":", linewidth=1)
    axes.set(xlabel="chrF of a sentence (dotted: mean)", ylabel="sentences", xlim=(0, 100))
    axes.set_title(f"Distribution of sentence chrF\n{signature}", fontsize=9)
    axes.legend(loc="best")


def _draw_intervals(axes: Any, scores: list[dict[str, Any]]) -> None:
    """Draw a row for each score: its signature, A and B with their 95% intervals, and p."""
    rows = range(len(scores))
    for row, score in zip(reversed(rows), scores, strict=True):
        for side, offset, colour in (("a", 0.1, COLOURS[0]), ("b", -0.15, COLOURS[1])):
            mean, half_width = score[side]["mean"], score[side]["ci"]
            axes.errorbar(mean, row + offset, xerr=half_width, fmt="o", color=colour, capsize=4,
                          label=side.upper() if row == 0 else None)  # fmt: skip
        end = max(score[side]["mean"] + score[side]["ci"] for side in "ab")
        label = "no p" if score["p_value"] is None else f"p = {score['p_value']:.4f}"
        axes.annotate(label, (end, row), (8, 0), va="center", fontsize=9,
                      textcoords="offset points")  # fmt: skip
        axes.text(0.01, row + 0.33, split_signature(score["signature"])[0], fontsize=7,
                  color="#666666", transform=axes.get_yaxis_transform(), va="center")  # fmt: skip
    axes.set_yticks(list(rows), [score["name"] for score in reversed(scores)])
    axes.set_ylim(-0.5, len(scores) - 0.4)
    axes.margins(x=0.2)
    _, samples = split_signature(scores[0]["signature"])
    axes.set(xlabel=f"mean and 95% of paired bootstrap samples, {samples} (TER: less is better)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def _draw_differences(axes: Any, wins: dict[str, Any]) -> None:
    """Draw the differences that are not 0: the bar of the many equal ones would hide them."""
    differences = wins["differences"]
    limit = max(5.0, 5 * math.ceil(max(map(abs, differences)) / 5))
    edges = [limit * i / 20 for i in range(-20, 21)]
    axes.hist([d for d in differences if d < 0], bins=edges[:21], color=COLOURS[0])
    axes.hist([d for d in differences if d > 0], bins=edges[20:], color=COLOURS[1])
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(xlabel="chrF of B minus chrF of A, a sentence", ylabel="sentences")
    axes.set_title(
        f"A better: {wins['a_better']:,}, B better: {wins['b_better']:,}, "
        f"equal (not drawn): {wins['equal']:,}\n{wins['signature']}",
        fontsize=9,
    )
