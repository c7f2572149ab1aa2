"""Learning curves from a run's logs, and pages that are drawn where matplotlib is installed."""

import logging
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mt.evaluation import plots

HEADER = "epoch,learning_rate,step,train_nll,val_bleu,val_loss,val_ppl,val_of_mean\n"


def write_log(run: Path, version: int, rows: str) -> None:
    path = run / "logs" / f"version_{version}" / "metrics.csv"
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + rows, encoding="utf-8")


def test_the_logs_of_a_resumed_run_are_one(tmp_path: Path) -> None:
    """The second start begins before the first's end; the tenth comes after the second."""
    write_log(tmp_path, 0, "0,0.1,10,5.0,,,\n0,,19,,1.5,3,20\n0,0.1,20,4.0,,,\n0,0.1,30,9.0,,,\n")
    write_log(tmp_path, 2, "0,0.1,30,3.0,,,\n0,0.1,40,2.5,,,\n")
    write_log(tmp_path, 10, "1,0.1,40,2.0,,,\n1,,49,,2.5,2,10\n")
    for model in (tmp_path / "model", tmp_path / "checkpoints" / "last.ckpt"):
        curves = plots.learning_curves(model)
        assert curves["train_nll"] == [(10, 5.0), (20, 4.0), (30, 3.0), (40, 2.0)]
        assert curves["val_bleu"] == [(20, 1.5), (50, 2.5)]  # 19 in the log
        assert curves["val_nll"] == [(20, math.log(20)), (50, math.log(10))]


def test_the_averaged_model_is_a_point_of_its_own(tmp_path: Path) -> None:
    """A run that was complete and then extended: the mean of its first part is no point."""
    write_log(tmp_path, 0, "0,,99,,30,3,20,\n0,,100,,35,3,10,1\n")
    write_log(tmp_path, 1, "1,0.1,149,2.5,,,,\n1,,199,,33,3,9,\n1,,200,,37,3,8,1\n")
    curves = plots.learning_curves(tmp_path / "model")
    assert curves["val_bleu"] == [(100, 30), (200, 33)]
    assert curves["mean_bleu"] == [(200, 37)]
    assert curves["mean_nll"] == [(200, math.log(8))]
    assert curves["val_nll"] == [(100, math.log(20)), (200, math.log(9))]


def test_a_model_without_logs_has_no_curves(tmp_path: Path) -> None:
    assert plots.learning_curves(tmp_path / "model") == {}
    write_log(tmp_path, 0, "")
    assert plots.learning_curves(tmp_path / "model") == {}


def test_a_damaged_log_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        0,
        "0,0.1,10,5.0,,,\nx,y,z\n0,,nan,1,,,\n0,0.1,11,nonsense,,,0\n\0\0\n0,0.1,20,4.0",
    )
    assert plots.learning_curves(tmp_path / "model") == {"train_nll": [(10, 5.0), (20, 4.0)]}


def test_a_log_that_is_none_does_no_harm(tmp_path: Path) -> None:
    rows = "0,0.1,10,5.0,,,\n0,0.1,1e300,1e300,,,\n0,0.1,20,-inf,,,\n0,0.1,30,1e309,,,\n"
    write_log(tmp_path, 0, rows + "x" * 200_000 + "\n0,0.1,40,4.0,,,\n")
    (tmp_path / "logs" / "version_1").mkdir()
    os.mkfifo(tmp_path / "logs" / "version_1" / "metrics.csv")
    assert plots.learning_curves(tmp_path / "model") == {"train_nll": [(10, 5.0)]}


# The pages


def run(name: str, value: float) -> dict[str, Any]:
    lengths = [("0", 1), ("1-5", 1), ("6-10", 1200)]
    return {
        "beam_size": 1 if name == "greedy" else 4,
        "scores": [{"name": "sacreBLEU", "value": value, "signature": "tok:13a"}],
        "by_length": [
            {"words": words, "sentences": count, "scores": {"sacreBLEU": value, "chrF": value}}
            for words, count in lengths
        ],
        "sentence_signatures": {"chrf": "nc:6"},
    }


def comparison() -> dict[str, Any]:
    side = {"score": 30.0, "mean": 30.1, "ci": 1.0}
    better = {"score": 31.0, "mean": 31.1, "ci": 1.1}
    score = {"signature": "nrefs:1|bs:1000|seed:1|tok:13a", "a": side, "b": better, "p_value": 0.01}
    system = {"model": "outputs/a/model", "search": "greedy"}
    buckets = [{"words": "1-5", "sentences": 3, "a": {"sacreBLEU": 30.0}, "b": {"sacreBLEU": 0.0}}]
    wins = {"a_better": 1, "b_better": 1, "equal": 1, "signature": "nc:6"}
    wins |= {"differences": [0.0, -100.0, 12.0]}
    comet = {"name": "COMET", "signature": "comet:2"}
    return {
        "data": "d",
        "a": system,
        "b": system,
        "scores": [score | {"name": "sacreBLEU"}, score | {"name": "TER"}, score | comet],
        "by_length": buckets,
        "sentence_chrf": wins,
    }


def test_logs_are_those_of_the_models_own_run(tmp_path: Path) -> None:
    write_log(tmp_path, 0, "0,0.1,10,5.0,,,\n")
    assert plots.learning_curves(tmp_path / "model")
    assert plots.learning_curves(tmp_path / "checkpoints" / "last.ckpt")
    assert not plots.learning_curves(tmp_path / "models" / "everyday")


def check_png(path: Path) -> None:
    matplotlib_image = pytest.importorskip("matplotlib.image")
    image = matplotlib_image.imread(path)
    assert image.shape[0] > 400
    assert image.shape[1] > 1000
    assert image[..., :3].std() > 0.05  # not blank
    assert not list(path.parent.glob(".*"))


@pytest.mark.parametrize("curves", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_page_of_an_evaluation(tmp_path: Path, curves: bool) -> None:
    pytest.importorskip("matplotlib")
    report = {"model": "m", "data": "d_{$5_$", "runs": [run("greedy", 30.0), run("beam", 0.0)]}
    rows = [[{"chrf": value} for value in values] for values in ([0, 50.0, 100.0], [0, 0, 0])]
    points = [(step, 5 - step / 100) for step in range(0, 101, 10)]
    learned = {"train_nll": points, "val_bleu": [(50, 9.0), (99, 12.0)]} | {
        "mean_bleu": [(100, 13.0)]
    }
    path = tmp_path / "pictures.png"
    plots.draw_evaluation(path, report, rows, learned if curves else {})
    check_png(path)


def test_the_page_of_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "comparison.png"
    drawn: list[str] = []
    draw = plots._draw_intervals

    def intervals(axes: Any, scores: list[dict[str, Any]]) -> None:
        drawn.extend(score["name"] for score in scores)
        draw(axes, scores)

    monkeypatch.setattr(plots, "_draw_intervals", intervals)
    plots.draw_comparison(path, comparison())
    check_png(path)
    assert drawn == ["sacreBLEU", "TER"]  # COMET is not on the scale of 100


def test_without_matplotlib_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (tmp_path / "x.png").write_bytes(b"of an earlier report")
    with caplog.at_level(logging.WARNING, "mt.evaluate"):
        plots.draw_comparison(tmp_path / "x.png", comparison())
        plots.draw_evaluation(tmp_path / "x.png", {"runs": []}, [], {})
    assert len(caplog.messages) == 2
    assert all("x.png is not drawn: the extra 'pictures'" in line for line in caplog.messages)
    assert not list(tmp_path.iterdir())
