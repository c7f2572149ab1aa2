"""Learning curves: what the logs of a training run say of its losses and scores."""

import contextlib
import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

Curves = dict[str, list[tuple[int, float]]]  # name -> (step, value)
CURVES = ("train_nll", "val_nll", "val_bleu", "mean_nll", "mean_bleu")


def run_of(model: Path) -> Path:
    """The folder of the training run that wrote a checkpoint or a model folder."""
    return model.parent.parent if model.parent.name == "checkpoints" else model.parent


def learning_curves(model: Path, names: Sequence[str] = CURVES) -> Curves:
    """train_nll, val_nll (nats a token) and val_bleu of the training run that wrote the model.

    A step is the number of updates before. A resumed run has a log for each start; the steps that
    a later start repeats replace the earlier ones. mean_nll and mean_bleu hold one point, the
    validation of the averaged model, from the last log. Empty when the run has no logs.
    """
    run = run_of(model)
    curves: Curves = {name: [] for name in names}
    for path in _logs(run / "logs"):
        rows = _read(path)
        begin = min((step for step, _ in rows), default=math.inf)
        for name in names:
            kept = [p for p in curves[name] if p[0] < begin and not name.startswith("mean")]
            curves[name] = kept + [(step, row[name]) for step, row in rows if name in row]
    for name in ("val_nll", "val_bleu"):  # Lightning logs them before it counts their update
        curves[name] = [(step + 1, value) for step, value in curves.get(name, [])]
    return {name: points for name, points in curves.items() if points}


def _logs(folder: Path) -> list[Path]:
    """The logs of a run in the order of its starts."""
    numbers = {
        int(match[1]): path
        for path in folder.glob("version_*/metrics.csv")
        if path.is_file() and (match := re.fullmatch(r"version_(\d+)", path.parent.name))
    }
    return [numbers[number] for number in sorted(numbers)]


def _read(path: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, values) of the rows of a log, without values that are not finite numbers.

    A log is read as far as it is one: anybody may have written it.
    """
    rows: list[tuple[int, dict[str, float]]] = []
    with (
        path.open(encoding="utf-8", errors="replace", newline="") as stream,
        contextlib.suppress(csv.Error),
    ):
        for row in csv.DictReader(line.replace("\0", "") for line in stream):
            numbers = {name: _number(text) for name, text in row.items()}
            values = {name: value for name, value in numbers.items() if math.isfinite(value)}
            if values.get("val_ppl", 0) > 0:
                values["val_nll"] = math.log(values["val_ppl"])
            if values.get("val_of_mean"):
                for name in values.keys() & {"val_nll", "val_bleu"}:
                    values[name.replace("val", "mean")] = values.pop(name)
            if "step" in values:
                rows.append((int(values["step"]), values))
    return rows


def _number(text: object) -> float:
    try:
        number = float(str(text))
    except ValueError:
        return math.nan
    return number if abs(number) < 1e12 else math.nan  # a plot cannot show more
