"""The training step and the plain step of compare_learning.py: without dropout, equal losses."""

import math
from types import ModuleType
from typing import Any

import pytest
from script_helpers import load_script

from mt.data.tokenizer import Tokenizer


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    script = load_script(monkeypatch, "compare_learning")
    monkeypatch.setattr(script, "SHAPE", {"N": 2, "d_model": 32, "d_ff": 64, "h": 4})
    monkeypatch.setattr(script, "WARMUP", 10)
    return script


@pytest.mark.slow
def test_without_dropout_every_loss_equals_that_of_the_plain_step(
    comparison: ModuleType, bpe: Tokenizer
) -> None:
    options: Any = (0.0, 1, 25, bpe, 256)
    plain, fast, half = (
        comparison.learn(kind, *options)["losses"] for kind in ("plain", "float32", "bfloat16")
    )
    assert len(plain) == len(fast) == 25
    assert plain[0] == pytest.approx(math.log(300), rel=0.15)
    assert plain[-1] < plain[0] - 0.8
    assert fast == pytest.approx(plain, abs=1e-4)
    assert half == pytest.approx(plain, abs=0.1)
    assert half != fast


@pytest.mark.slow
def test_both_steps_have_dropout_and_seeds_change_it(
    comparison: ModuleType, bpe: Tokenizer
) -> None:
    def losses(kind: str, P_drop: float, seed: int) -> list[float]:
        return comparison.learn(kind, P_drop, seed, 3, bpe, 256)["losses"]

    for kind in ("plain", "float32"):
        once = losses(kind, 0.3, 1)
        assert once == losses(kind, 0.3, 1)
        assert once != losses(kind, 0.3, 2)
        assert once[0] > losses(kind, 0.0, 1)[0] - 1


def test_conclusions_by_hand(comparison: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LAST", 2)

    def run(kind: str, P_drop: float, losses: list[float]) -> dict[str, Any]:
        return {"kind": kind, "P_drop": P_drop, "losses": losses, "last": sum(losses[-2:]) / 2}

    results = comparison.conclusions(
        [
            run("plain", 0, [3.0, 2.0, 1.0]),
            run("float32", 0, [3.0, 2.5, 1.0]),
            run("plain", 0.1, [4.0, 3.0, 2.0]),
            run("plain", 0.1, [4.0, 3.0, 1.0]),
            run("float32", 0.1, [4.0, 3.0, 3.0]),
        ]
    )
    exact = results["without dropout, float32 - plain"]
    assert exact == {"greatest difference in a step": 0.5, "of the last steps' mean": 0.25}
    plain = {"mean of the seeds": 2.25, "greatest difference between seeds": 0.5, "to plain": 0}
    assert results["with dropout, plain"] == plain
    assert results["with dropout, float32"]["to plain"] == 0.75
