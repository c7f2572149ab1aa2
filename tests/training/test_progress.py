"""The lines that a training run prints."""

import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from train_helpers import PAIRS, arguments, run

from mt.training.progress import Progress, format_examples


class Recorder:
    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.logged.append((values, step))


def watch(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, zero: bool = True, examples: int = 0,
    first_step: int = 0,
) -> Any:  # fmt: skip
    """A trainer of 10 steps, its module, a callback and a clock that the test sets."""
    monkeypatch.setattr(logging.getLogger("mt"), "propagate", True)
    caplog.set_level(logging.INFO, "mt")
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    trainer = SimpleNamespace(
        estimated_stepping_batches=10,
        global_step=first_step,
        world_size=2,
        is_global_zero=zero,
        sanity_checking=False,
        state=SimpleNamespace(fn="fit"),
        loggers=[Recorder()],
        logged_metrics={"train_loss": torch.tensor(2.5)},
        callback_metrics={"val_loss": 2.0, "val_ppl": 7.389, "val_bleu": 12.345},
    )
    texts = ["Hello.", "Where is it?", "Yes."], ["Hallo.", "Wo ist es?", "Ja."]
    module = SimpleNamespace(
        parameters=lambda: [torch.zeros(9)],
        data=SimpleNamespace(validation_texts=texts),
        val_translations=["Hallo!", "Wo es?", ""],
    )
    progress: Any = Progress(examples, seconds_between_lines=4.0)
    progress.on_train_start(trainer, module)
    return trainer, module, progress, clock


def step(trainer: Any, progress: Any, clock: list[float], seconds: float) -> None:
    clock[0] += seconds
    trainer.global_step += 1
    batch = SimpleNamespace(src=SimpleNamespace(tokens=30), tgt=SimpleNamespace(tokens=20))
    progress.on_train_batch_end(trainer, None, None, batch, 0)


def test_a_line_tells_how_far_how_fast_and_how_long(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    trainer, _, progress, clock = watch(monkeypatch, caplog)
    assert caplog.messages == ["training 9 parameters for 10 steps in all"]
    step(trainer, progress, clock, 2.0)
    assert capsys.readouterr().out == ""  # too early for a line
    step(trainer, progress, clock, 2.0)
    line = capsys.readouterr().out
    # two steps of 50 tokens on each of 2 devices in 4 seconds; 8 steps of 2 seconds to go
    assert line == "step 2/10: loss 2.500, tok/s 50, 00:16 of training left\n"
    assert trainer.loggers[0].logged == [({"tokens_per_second": 50.0}, 2)]


def test_the_time_left_is_that_of_the_steps_since_a_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    trainer, _, progress, clock = watch(monkeypatch, caplog, first_step=6)
    step(trainer, progress, clock, 2.0)
    step(trainer, progress, clock, 2.0)
    expected = "step 8/10: loss 2.500, tok/s 50, 00:04 of training left\n"
    assert capsys.readouterr().out == expected


def test_a_slow_step_of_several_batches_has_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    trainer, _, progress, clock = watch(monkeypatch, caplog)
    batch = SimpleNamespace(src=SimpleNamespace(tokens=30), tgt=SimpleNamespace(tokens=20))
    for _ in range(2):
        for step_done in (0, 0, 1):
            clock[0] += 20.0
            trainer.global_step += step_done
            progress.on_train_batch_end(trainer, None, None, batch, 0)
    # three batches of 50 tokens on each of 2 devices in 60 seconds
    assert capsys.readouterr().out.splitlines() == [
        "step 1/10: loss 2.500, tok/s 5, 09:00 of training left",
        "step 2/10: loss 2.500, tok/s 5, 08:00 of training left",
    ]


def test_validation_is_reported_and_left_out_of_the_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    trainer, module, progress, clock = watch(monkeypatch, caplog)
    step(trainer, progress, clock, 2.0)
    clock[0] += 100.0
    progress.on_validation_end(trainer, module)
    expected = "validation at step 1: loss 2.000, perplexity 7.39, sacreBLEU 12.35"
    assert caplog.messages[1:] == [expected]
    step(trainer, progress, clock, 2.0)
    assert "tok/s 50," in capsys.readouterr().out


def test_a_validation_shows_examples(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    trainer, module, progress, _ = watch(monkeypatch, caplog, examples=2)
    progress.on_validation_end(trainer, module)
    assert caplog.messages[-1].splitlines()[1:] == [
        "  source       Hello.",
        "  reference    Hallo.",
        "  translation  Hallo!",
        "",
        "  source       Yes.",
        "  reference    Ja.",
        "  translation  ",
    ]


def test_examples_are_short_sentences_from_all_parts_then_the_shortest() -> None:
    short, long, longer = "s" * 60, "l" * 61, "r" * 90
    sources = [longer, short, long, short]
    references = [short, long, short, short]

    def shown(count: int, translation: str = "t") -> list[str]:
        text = format_examples(sources, references, [translation] * 4, count)
        return [line.split()[1] for line in text.splitlines() if "source" in line]

    assert shown(0) == []
    assert shown(1) == [short]  # the last one: its reference is short too
    assert shown(3) == [short, long, short]  # in the order of the split
    assert shown(9) == ["r" * 79 + "…", short, long, short]
    assert shown(3, "x" * 500) == shown(3)  # whatever the translations are
    many = [f"sentence {i}" for i in range(12)]
    text = format_examples(many, many, many, 3)
    assert [line.split()[-1] for line in text.splitlines() if "source" in line] == ["2", "6", "10"]


def test_other_ranks_are_silent(monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any) -> None:
    trainer, module, progress, clock = watch(monkeypatch, caplog, zero=False, examples=3)
    for _ in range(10):
        step(trainer, progress, clock, 2.0)
    progress.on_validation_end(trainer, module)
    progress.on_train_end(trainer, module)
    assert capsys.readouterr().out == ""
    assert caplog.messages == []


def test_examples_and_scores_reach_the_log_of_a_run(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    changes = {"validate_every": 6, "data.validation_limit": 4, "show_examples": 2}
    assert run(arguments(corpus, tmp_path / "run", **changes), monkeypatch) == 0
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    output = capsys.readouterr().out
    validations = ["validation at step 6:", "validation at step 12:", "validation at the end:"]
    for text in (log, output):
        assert all(line in text for line in validations)
        assert text.count(f"\n  source       {PAIRS[1][0]}\n  reference    {PAIRS[1][1]}\n") == 3
        assert text.count("\n  translation  ") == 6


@pytest.mark.parametrize("number", [-1, 1.5, "all", "null"])
def test_show_examples_is_a_number_of_sentences(
    number: Any, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(arguments(corpus, tmp_path / "run", show_examples=number), monkeypatch) == 2
    assert "show_examples=" in capsys.readouterr().err
