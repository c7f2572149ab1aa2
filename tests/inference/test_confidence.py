"""The confidence of a translation: its features, its formula, and where its weights are kept."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from mt.inference.confidence import (
    Calibration,
    calibration_of,
    confidence,
    features,
    load_calibration,
)

VALUES = {"intercept": -4.0, "probability": 6.0, "length_ratio": -0.5, "check_below": 0.45}
CALIBRATION = Calibration(**VALUES)
HALF, QUARTER = math.log(0.5), math.log(0.25)


@pytest.mark.parametrize(
    ("log_probs", "source_length", "probability", "length_ratio"),
    [
        ((HALF, QUARTER, 0.0), 2, 0.375, 0.0),  # eos does not count
        ((HALF, QUARTER, -9.0), 5, 0.375, math.log(2)),
        ((0.0, 0.0, 0.0, 0.0), 1, 1.0, math.log(2)),  # too long is as bad as too short
        ((-math.inf, 0.0, 0.0), 2, 0.5, 0.0),
        ((-0.1,), 3, 0.0, math.log(4)),  # nothing but eos
    ],
)
def test_features(
    log_probs: tuple[float, ...], source_length: int, probability: float, length_ratio: float
) -> None:
    predictors = features(log_probs, source_length)
    assert predictors == pytest.approx((probability, length_ratio))


def test_the_formula() -> None:
    # -4 + 6 · 0.375 - 0.5 · log 2
    logit = -4 + 2.25 - 0.5 * math.log(2)
    expected = 1 / (1 + math.exp(-logit))
    assert confidence(CALIBRATION, (HALF, QUARTER, -9.0), 5) == pytest.approx(expected)
    assert confidence(None, (HALF, QUARTER, -9.0), 5) == pytest.approx(0.375)


def test_confidence_grows_with_probability_and_falls_with_the_length_ratio() -> None:
    by_probability = [confidence(CALIBRATION, [p, p, 0.0], 2) for p in (-5.0, -1.0, -0.1, 0.0)]
    by_length = [confidence(CALIBRATION, [-0.1] * 4, length) for length in (3, 8, 20, 90)]
    assert by_probability == sorted(by_probability)
    assert by_length == sorted(by_length, reverse=True)
    assert len(set(by_probability)) == len(set(by_length)) == 4


@pytest.mark.parametrize("intercept", [-1000, 0, 1000])
@pytest.mark.parametrize("log_probs", [[0.0] * 5000, [-1e300] * 2, [-math.inf, 0.0]])
def test_it_lies_between_0_and_1(intercept: float, log_probs: list[float]) -> None:
    for weight in (-1000, 1000):
        extreme = Calibration(intercept, weight, weight, 0.5)
        assert 0 <= confidence(extreme, log_probs, 0) <= 1
    assert 0 <= confidence(None, log_probs, 0) <= 1


@pytest.mark.parametrize("calibration", [None, CALIBRATION])
@pytest.mark.parametrize("log_probs", [(), (math.nan, -0.1)])
def test_without_log_probs_it_is_not_a_number(
    calibration: Calibration | None, log_probs: tuple[float, ...]
) -> None:
    assert math.isnan(confidence(calibration, log_probs, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"intercept": 1001}, "intercept=1001: must be a number from -1000 to 1000"),
        ({"probability": "6"}, "probability='6': must be a number"),
        ({"length_ratio": math.nan}, "length_ratio=nan: must be a number"),
        ({"check_below": 1.5}, "check_below=1.5: must be a number from 0 to 1"),
        ({"more": 1}, "must hold intercept, probability, length_ratio and check_below, nothing"),
    ],
)
def test_values_that_make_no_sense(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must"):
        calibration_of(VALUES | change)
    config = json.dumps({"confidence": VALUES | change})
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=r"config\.json: confidence=") as caught:
        load_calibration(tmp_path)
    assert "\n" not in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("values", [[], "high", 3, {}, {"intercept": 0.0}])
def test_what_is_no_calibration(values: Any) -> None:
    with pytest.raises(ValueError, match="must hold intercept"):
        calibration_of(values)


@pytest.mark.parametrize("name", ["config.json", "mt.json"])
def test_a_folder_keeps_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"format": "?", "confidence": VALUES}))
    assert load_calibration(tmp_path) == CALIBRATION


@pytest.mark.parametrize("content", [None, "{}", "[]", "no JSON", '{"confidence": null}'])
def test_folders_without_it(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert load_calibration(tmp_path) is None
    assert load_calibration(tmp_path / "config.json") is None  # as for a checkpoint


def test_it_takes_no_time() -> None:
    start = time.process_time()
    for _ in range(1000):
        confidence(CALIBRATION, [-0.1] * 40, 40)
    assert time.process_time() - start < 0.5
