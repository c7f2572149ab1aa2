"""The fit of the confidence and the figures it is measured by, on made-up sentences; and a run."""

import json
import math
import random
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import PAIRS, write_lines
from script_helpers import load_script

from mt.inference.confidence import Calibration, confidence, load_calibration

TRUE = Calibration(-3.0, 5.0, -1.0, check_below=0)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "calibrate_confidence")


def made_up(count: int, noise: float = 0.0) -> list[tuple[list[float], int, float]]:
    """Sentences whose chrF is TRUE's confidence, and some noise."""
    rng = random.Random(0)
    sentences = []
    for _ in range(count):
        log_probs = [math.log(rng.uniform(0.05, 1)) for _ in range(rng.randint(2, 12))]
        length = max(1, len(log_probs) + rng.randint(-3, 3))
        expected = confidence(TRUE, log_probs, length) + rng.uniform(-noise, noise)
        sentences.append((log_probs, length, 100 * min(1.0, max(0.0, expected))))
    return sentences


def test_the_fit_finds_the_weights(script: ModuleType) -> None:
    fitted = script.fit(made_up(3000))
    assert fitted.intercept == pytest.approx(TRUE.intercept, abs=0.02)
    assert fitted.probability == pytest.approx(TRUE.probability, abs=0.02)
    assert fitted.length_ratio == pytest.approx(TRUE.length_ratio, abs=0.02)
    values = [confidence(fitted, log_probs, length) for log_probs, length, _ in made_up(3000)]
    assert np.mean([value < fitted.check_below for value in values]) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("chrf", [0.0, 100.0])
def test_the_fit_stays_finite(script: ModuleType, chrf: float) -> None:
    alike = [([-0.1, -0.1], 1, chrf)] * 40
    fitted = script.fit(alike)
    assert abs(100 * confidence(fitted, [-0.1, -0.1], 1) - chrf) < 1


def test_ranking(script: ModuleType) -> None:
    chrf = np.array([10.0, 20, 30, 40])
    worst = np.array([True, False, False, False])
    assert script.ranking(chrf, chrf, worst) == (1, 1, 1, 0)
    assert script.ranking(-chrf, chrf, worst)[:3] == (-1, -1, 0)
    assert script.ranking(np.ones(4), chrf, worst)[:3] == (0, 0, 0.5)  # ties are half right
    # of the pairs of the worst and another, 2 of 3 are in order; sorted values by hand
    ranking = script.ranking(np.array([2.0, 1, 3, 8]), chrf, worst)
    assert ranking.auc == pytest.approx(2 / 3, abs=1e-3)
    assert ranking.spearman == 0.8
    # Hanley and McNeil's table: an area of 0.8 with 50 and 50
    rng = np.random.default_rng(0)
    halves = np.arange(100) < 50
    values = np.where(halves, 0, 1.19) + rng.standard_normal(100)
    assert script.ranking(values, values, halves).standard_error == pytest.approx(0.044, abs=0.01)


def test_equal_values_share_a_rank(script: ModuleType) -> None:
    assert script.ranks(np.array([5, 3, 5, 1])).tolist() == [3.5, 2, 3.5, 1]


def test_measuring(script: ModuleType) -> None:
    report = script.measure(script.fit(made_up(500, 0.2)), made_up(1000, 0.2))
    assert report["sentences"] == sum(g["sentences"] for g in report["groups"]) == 1000
    expected = [group["confidence"] for group in report["groups"]]
    assert expected == sorted(expected)
    for group in report["groups"]:
        assert group["confidence"] == pytest.approx(group["chrf"], abs=0.08)
    assert report["auc"] > max(one["auc"] for one in report["alone"].values())
    assert report["auc"] > 0.85
    below = report["check_below"]
    assert 60 < below["sentences"] < 160
    hits = below["sentences"] * below["in_the_worst_tenth"]
    assert hits == pytest.approx(100 * below["of_the_worst_tenth"], abs=0.2)
    assert below["in_the_worst_tenth"] > 0.3


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pairs = PAIRS * 2  # two copies: enough for both halves
    for i, side in enumerate(("en", "de")):
        write_lines(tmp_path / f"data.{side}", [pair[i] for pair in pairs])
    return tmp_path / "data"


def test_a_run(
    script: ModuleType, model_folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = data.parent / "model"
    shutil.copytree(model_folder, folder)
    before = json.loads((folder / "config.json").read_text("utf-8"))
    output = data.parent / "figures.json"
    files = [f"{data}.en", f"{data}.de"]
    call = [str(folder), "--data", str(data), "--output", str(output), "--test", *files]
    assert script.main(call) == 0
    assert load_calibration(folder) is None
    figures: dict[str, Any] = json.loads(output.read_text("utf-8"))
    half = f"{data.parent.name}/data, held-out half"
    assert list(figures["tests"]) == [half, f"{data.parent.name}/data.en"]
    assert [test["sentences"] for test in figures["tests"].values()] == [36, 72]
    assert half in capsys.readouterr().out

    assert script.main([str(folder), "--data", str(data), "--save"]) == 0
    assert load_calibration(folder) == Calibration(**figures["confidence"])
    after = json.loads((folder / "config.json").read_text("utf-8"))
    assert after == before | {"confidence": figures["confidence"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lines", "3"], "lines=3: must be a whole number of at least 40"),
        (["--threads", "0"], "threads=0"),
        (["--test", "nowhere"], "nowhere.en"),
    ],
)
def test_mistakes_of_the_user_are_one_line(
    script: ModuleType,
    model_folder: Path,
    data: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script.main([str(model_folder), "--data", str(data), *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("calibrate_confidence: error: ")
    assert message in line


def test_too_few_pairs(
    script: ModuleType, model_folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("en", "de"):
        write_lines(data.parent / f"few.{side}", ["A bird.", "", "A bear."])
    assert script.main([str(model_folder), "--data", str(data.parent / "few")]) == 2
    assert "2 pairs, needs at least 40" in capsys.readouterr().err
