"""The lines that a training run prints."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mt.training.progress import Progress


class Recorder:
    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.logged.append((values, step))


def watch(monkeypatch: pytest.MonkeyPatch, zero: bool = True) -> tuple[Any, Any, list[float]]:
    """A trainer of 10 steps, a callback and a clock that the test sets."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    trainer = SimpleNamespace(
        estimated_stepping_batches=10,
        global_step=0,
        world_size=2,
        is_global_zero=zero,
        sanity_checking=False,
        state=SimpleNamespace(fn="fit"),
        loggers=[Recorder()],
        logged_metrics={"train_loss": torch.tensor(2.5)},
        callback_metrics={"val_loss": 2.0, "val_ppl": 7.389, "val_bleu": 12.345},
    )
    progress = Progress(seconds_between_lines=4.0)
    progress.on_train_start(trainer, torch.nn.Linear(2, 3))  # type: ignore[arg-type]
    return trainer, progress, clock


def step(trainer: Any, progress: Any, clock: list[float], seconds: float) -> None:
    clock[0] += seconds
    trainer.global_step += 1
    batch = SimpleNamespace(src=SimpleNamespace(tokens=30), tgt=SimpleNamespace(tokens=20))
    progress.on_train_batch_end(trainer, None, None, batch, 0)


def test_a_line_tells_how_far_how_fast_and_how_long(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    trainer, progress, clock = watch(monkeypatch)
    assert "training 9 parameters for 10 steps in all" in capsys.readouterr().out
    step(trainer, progress, clock, 2.0)
    assert capsys.readouterr().out == ""  # too early for a line
    step(trainer, progress, clock, 2.0)
    line = capsys.readouterr().out
    # two steps of 50 tokens on each of 2 devices in 4 seconds; 8 steps of 2 seconds to go
    assert line == "step 2/10: loss 2.500, tok/s 50, 00:16 of training left\n"
    assert trainer.loggers[0].logged == [({"tokens_per_second": 50.0}, 2)]


def test_validation_is_told_and_left_out_of_the_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    trainer, progress, clock = watch(monkeypatch)
    step(trainer, progress, clock, 2.0)
    clock[0] += 100.0
    capsys.readouterr()
    progress.on_validation_end(trainer, None)
    assert (
        capsys.readouterr().out
        == "validation at step 1: loss 2.000, perplexity 7.39, sacreBLEU 12.35\n"
    )
    step(trainer, progress, clock, 2.0)
    assert "tok/s 50," in capsys.readouterr().out


def test_other_ranks_are_silent(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    trainer, progress, clock = watch(monkeypatch, zero=False)
    for _ in range(10):
        step(trainer, progress, clock, 2.0)
    progress.on_validation_end(trainer, None)
    progress.on_train_end(trainer, None)
    assert capsys.readouterr().out == ""
