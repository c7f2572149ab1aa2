"""Training seen: the learning rate, the curves of a run, models side by side."""

import csv
from pathlib import Path
from typing import Any

import pytest

from mt.inference.translator import Translator
from mt.inspection.report import inspect
from mt.training.lr_scheduler import learning_rate

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from mt.inspection import pictures, training

SENTENCE = "The bear opens the door."
D_MODEL, WARMUP, FACTOR = 512, 40, 0.5


@pytest.fixture(scope="module")
def report(model_folder: Path) -> dict[str, Any]:
    return inspect(Translator.load(model_folder), SENTENCE, "Der Bär hört.", beam_size=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run of 100 steps with a log of each tenth."""
    (tmp_path / "config.yaml").write_text(
        f"training:\n  warmup_steps: {WARMUP}\n  lr_factor: {FACTOR}\n", "utf-8"
    )
    log = tmp_path / "logs" / "version_0" / "metrics.csv"
    log.parent.mkdir(parents=True)
    with log.open("w", encoding="utf-8", newline="") as stream:
        columns = ["step", "train_loss", "train_nll", "learning_rate", "val_ppl", "val_bleu"]
        rows = csv.writer(stream)
        rows.writerow(columns)
        for step in range(9, 100, 10):
            ahead = learning_rate(step + training.LOGGED_AHEAD, D_MODEL, WARMUP, FACTOR)
            rows.writerow([step, 5 / step, 4 / step, ahead, "", ""])
        rows.writerow([99, "", "", "", 2.5, 30.0])
    return tmp_path


def named(report: dict[str, Any], name: Path, d_model: int = D_MODEL) -> dict[str, Any]:
    return {**report, "model": {**report["model"], "name": str(name), "d_model": d_model}}


def test_the_learning_rate_is_that_of_training() -> None:
    steps = [1, 2, 39, 40, 41, 4000, 100_000]
    expected = [learning_rate(step, D_MODEL, WARMUP, FACTOR) for step in steps]
    assert training.learning_rates(steps, D_MODEL, WARMUP, FACTOR) == pytest.approx(expected)
    [peak] = training.learning_rates([4000], 512, 4000)
    assert peak == pytest.approx(6.99e-4, rel=1e-3)  # base


def test_a_run_is_found_from_its_model_and_from_its_checkpoints(
    run: Path, report: dict[str, Any]
) -> None:
    for name in (run / "model", run / "checkpoints" / "last.ckpt"):
        result = training.find_run(named(report, name))
        assert result is not None
        assert (result.folder, result.schedule, result.d_model) == (run, (WARMUP, FACTOR), D_MODEL)
        assert result.curves["train_loss"][0] == (9, pytest.approx(5 / 9))
        assert result.curves["val_bleu"] == [(100, 30.0)]
    assert training.find_run(named(report, run / "elsewhere" / "model")) is None


@pytest.mark.parametrize(
    "config", ["", "training: 1", "training: {warmup_steps: 0, lr_factor: 1}", "[" * 9000, "a: {"]
)
def test_a_config_that_says_nothing_leaves_the_log(
    run: Path, report: dict[str, Any], config: str
) -> None:
    (run / "config.yaml").write_text(config, "utf-8")
    result = training.find_run(named(report, run / "model"))
    assert result is not None
    assert result.schedule is None
    axes = Figure().subplots()
    training._draw_rate(axes, result)
    assert [line.get_label() for line in axes.lines] == ["the run's log"]


def test_the_points_of_the_log_lie_on_the_curve(run: Path, report: dict[str, Any]) -> None:
    result = training.find_run(named(report, run / "model"))
    assert result is not None
    axes = Figure().subplots()
    training._draw_rate(axes, result)
    curve, log = axes.lines
    rates = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
    points = list(zip(log.get_xdata(), log.get_ydata(), strict=True))
    assert len(points) == 10
    for step, rate in points[:-1]:  # the last is the rate of a step that never came
        assert rates[step] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("factor", "label"), [(FACTOR, "equation 3"), (1.0, "equation 3, last schedule")]
)
def test_a_schedule_that_was_changed_on_resuming_says_so(
    run: Path, report: dict[str, Any], factor: float, label: str
) -> None:
    earlier = f"training:\n  warmup_steps: {WARMUP}\n  lr_factor: {factor}\n"
    (run / "config-00000050.yaml").write_text(earlier, "utf-8")
    result = training.find_run(named(report, run / "model"))
    assert result is not None
    axes = Figure().subplots()
    training._draw_rate(axes, result)
    assert axes.lines[0].get_label() == label


def test_two_models_are_drawn_side_by_side_with_their_run(
    run: Path, report: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = named(report, run / "checkpoints" / "step-1.ckpt")
    pictures.write_pictures([report, other], tmp_path / "pictures")
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {"attention.png", "next-piece.png", "training.png"}
    elsewhere = named(report, run / "elsewhere" / "model")
    pictures.write_pictures([elsewhere, elsewhere], tmp_path / "pictures")
    assert "training.png is an earlier picture: these models have no logs" in caplog.text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/run/checkpoints/step-00000500.ckpt", "step-00000500"),
        ("/a/run/model", "run/model"),
        ("/a/" + "b" * 40, "…" + "b" * 25),
    ],
)
def test_a_model_is_named_by_the_end_of_its_path(
    report: dict[str, Any], path: str, name: str
) -> None:
    assert training.name_of(named(report, Path(path))) == name
