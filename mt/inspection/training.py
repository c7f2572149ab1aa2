"""Training seen: models side by side, the learning rate and the losses of their runs."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mt.evaluation.learning_curves import CURVES, Curves, learning_curves, run_of
from mt.inspection.arrays import decode
from mt.inspection.drawing import (
    ACCENT,
    EDGE,
    SECOND,
    WIDTH,
    bars,
    candidates,
    heat_map,
    number,
    outline,
    percent,
    picture,
)
from mt.utils.json_io import read_regular

log = logging.getLogger(__name__)

Report = dict[str, Any]

MOST_CONFIG_BYTES = 2**20
NAME_WIDTH = 26  # characters of a model's name in a picture
LOGGED_AHEAD = 1  # the log of step s, counted from 0, holds the rate of update s + 1


class Run(NamedTuple):
    """The folder of a training run, and its curves."""

    folder: Path
    curves: Curves
    schedule: tuple[int, float] | None  # warmup_steps and lr_factor, where its config tells
    d_model: int
    is_changed: bool  # whether it had another schedule before


def learning_rates(
    steps: Sequence[int], d_model: int, warmup_steps: int, lr_factor: float = 1.0
) -> list[float]:
    """The learning rate at each step, counted from 1 (5.3, equation 3).

    ``mt.training`` has the same for one step, which this package may not import; a test compares
    them.
    """
    return [lr_factor * d_model**-0.5 * min(s**-0.5, s * warmup_steps**-1.5) for s in steps]


def find_run(report: Report) -> Run | None:
    """The run that wrote the model of a report; None where its folder has no logs."""
    model = Path(report["model"]["name"])
    curves = learning_curves(model, (*CURVES, "train_loss", "learning_rate"))
    if not curves:
        return None
    folder = run_of(model)
    schedule = _schedule(folder / "config.yaml")
    is_changed = any(_schedule(earlier) != schedule for earlier in folder.glob("config-*.yaml"))
    return Run(folder, curves, schedule, report["model"]["d_model"], is_changed)


def _schedule(config: Path) -> tuple[int, float] | None:
    import yaml

    try:
        training = yaml.safe_load(read_regular(config, MOST_CONFIG_BYTES))["training"]
        warmup_steps, lr_factor = int(training["warmup_steps"]), float(training["lr_factor"])
    except (  # no run of ours: the log alone is drawn
        OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError, yaml.YAMLError,
    ):  # fmt: skip
        return None
    return (warmup_steps, lr_factor) if warmup_steps > 0 and 0 < lr_factor < 1e6 else None


def draw_runs(reports: Sequence[Report], path: Path) -> None:
    """Draw the runs of the models; nothing where no model has logs."""
    runs = {run.folder: run for report in reports if (run := find_run(report)) is not None}
    if not runs:
        if path.exists():
            log.warning(f"{path} is an earlier picture: these models have no logs")
        return
    with picture(path, 0.3 + 2.6 * len(runs)) as figure:
        grid = figure.subplots(len(runs), 3, squeeze=False)
        for row, run in zip(grid, runs.values(), strict=True):
            _draw_rate(row[0], run)
            row[0].set_ylabel(_shortened(run.folder.name))
            _draw_curves(row[1], run.curves, ("train_loss", "train_nll", "val_nll"))
            row[1].set_title("loss, nats a token")
            _draw_curves(row[2], run.curves, ("val_bleu",))
            row[2].set_title("validation, sacreBLEU")
            for axes in row:
                axes.set_xlabel("step")
                axes.grid(alpha=0.3)


def _draw_rate(axes: Any, run: Run) -> None:
    last = max(step for points in run.curves.values() for step, _ in points) + 1
    if run.schedule is not None:
        steps = np.unique(np.linspace(1, last, 400).astype(int)).tolist()
        rates = learning_rates(steps, run.d_model, *run.schedule)
        label = "equation 3, last schedule" if run.is_changed else "equation 3"
        axes.plot(steps, rates, color=ACCENT, label=label)
    if logged := run.curves.get("learning_rate"):
        thinned = logged[:: max(1, len(logged) // 25)]
        places = [step + LOGGED_AHEAD for step, _ in thinned]
        axes.plot(places, [rate for _, rate in thinned], "o", markersize=3, color=SECOND,
                  label="the run's log")  # fmt: skip
    axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    axes.legend()
    axes.set_title("learning rate")


def _draw_curves(axes: Any, curves: Curves, names: Sequence[str]) -> None:
    labels = {
        "train_loss": ("training, smoothed labels", EDGE),
        "train_nll": ("training", ACCENT),
        "val_nll": ("validation", SECOND),
        "val_bleu": ("", SECOND),
    }
    for name in names:
        if points := curves.get(name):
            label, colour = labels[name]
            style = "o-" if name.startswith("val") else "-"
            axes.plot(*zip(*points, strict=True), style, color=colour, label=label or None,
                      markersize=3, linewidth=1)  # fmt: skip
    if len(names) > 1 and axes.lines:
        axes.set_ylim(top=1.3 * max(max(line.get_ydata()) for line in axes.lines))
        axes.legend(loc="upper right", handlelength=1.2)


def name_of(report: Report) -> str:
    """The end of a model's path."""
    path = Path(report["model"]["name"])
    return _shortened(path.stem if path.suffix == ".ckpt" else "/".join(path.parts[-2:]))


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else f"…{name[1 - NAME_WIDTH :]}"


def draw_attention(reports: Sequence[Report], path: Path) -> None:
    """The cross-attention of each model: a row for each layer, the mean of its heads.

    Models may have different pieces and layers; so each has its own labels.
    """
    layers = max(report["model"]["N"] for report in reports)
    rows = max(len(report["target"]["pieces"]) for report in reports)
    columns = max(len(report["source"]["pieces"]) for report in reports)
    width = max(WIDTH, len(reports) * (0.9 + 0.26 * columns))
    with picture(path, 0.8 + layers * (0.4 + 0.2 * rows), width) as figure:
        grid = figure.subplots(layers, len(reports), squeeze=False)
        for all_axes, report in zip(grid.T, reports, strict=True):
            weights, entropy = (
                decode(values).mean(axis=1)
                for values in (
                    report["attention"]["cross"], report["attention"]["entropy"]["cross"]
                )
            )  # fmt: skip
            labels = report["target"]["inputs"], report["source"]["pieces"]
            for n, axes in enumerate(all_axes):
                if n >= len(weights):
                    axes.axis("off")
                    continue
                heat_map(
                    axes, weights[n], labels[0], labels[1] if n == 0 else [], low=0.0, high=1.0
                )
                axes.tick_params(axis="x", rotation=90)
                if n:
                    axes.set_xticks([])
                axes.set_xlabel(f"layer {n + 1}, entropy {number(entropy[n])}")
                outline(axes)
            all_axes[0].set_title(f"{name_of(report)}\n→ {report['target']['text']}", wrap=True)


def draw_steps(reports: Sequence[Report], path: Path) -> None:
    """The likeliest next pieces of each model, side by side."""
    rows = max(len(report["steps"]) for report in reports)
    with picture(path, 0.5 + 1.5 * rows, max(WIDTH, 2.4 * len(reports))) as figure:
        grid = figure.subplots(rows, len(reports), squeeze=False)
        for all_axes, report in zip(grid.T, reports, strict=True):
            for i, axes in enumerate(all_axes):
                if i >= len(report["steps"]):
                    axes.axis("off")
                    continue
                names, values, colours = candidates(
                    report["steps"][i], report["model"]["vocab_size"]
                )
                bars(axes, names, values, colours, percent)
                axes.set_xlim(0, 1.55)
                axes.set_title(f"{name_of(report)}\nstep 1" if i == 0 else f"step {i + 1}")
