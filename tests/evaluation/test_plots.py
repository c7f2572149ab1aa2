"""Pages of plots, which are drawn where matplotlib is installed."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from mt.evaluation import plots


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
