"""Which checkpoints a run keeps, without a run: a trainer that only counts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from mt.saving import NEVER, Saving


class Trainer(SimpleNamespace):
    """Saves the callback's state under the name asked for."""

    def save_checkpoint(self, path: Path) -> None:
        torch.save(self.saving.state_dict(), path)


def start(folder: Path, keep: int = 2, **state: Any) -> Any:
    saving = Saving(folder, validate_every=4, checkpoint_every=2, keep=keep)
    if state:
        saving.load_state_dict(state)
    trainer = Trainer(
        saving=saving,
        global_step=0,
        is_global_zero=True,
        state=SimpleNamespace(fn="fit"),
        callback_metrics={},
    )
    saving.on_train_start(trainer, None)  # type: ignore[arg-type]
    return trainer


def batch(trainer: Any, whole: bool = True) -> None:
    """One batch, the last of its step or not."""
    trainer.saving.on_train_batch_start(trainer, None, None, 0)
    trainer.global_step += whole
    trainer.saving.on_train_batch_end(trainer, None, None, None, 0)


def validate(trainer: Any, bleu: float) -> None:
    trainer.callback_metrics["val_bleu"] = torch.tensor(bleu)
    trainer.saving.on_validation_end(trainer, None)


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.iterdir())


def test_the_last_step_checkpoints_stay(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    for _ in range(9):
        batch(trainer)
    assert names(tmp_path) == ["step-00000006", "step-00000008"]
    assert [path.stem for path in trainer.saving.to_average()] == names(tmp_path)


def test_nothing_happens_within_a_step(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    batch(trainer, whole=False)
    batch(trainer)
    for _ in range(3):
        batch(trainer, whole=False)
        assert trainer.val_check_batch == NEVER
    assert names(tmp_path) == []
    batch(trainer)
    assert trainer.val_check_batch == NEVER
    batch(trainer)
    assert names(tmp_path) == ["step-00000002"]


def test_validation_is_due_after_whole_steps(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    due = []
    for _ in range(8):
        batch(trainer)
        due.append(trainer.val_check_batch == 1)
    assert due == [False, False, False, True] * 2


def test_best_is_the_best_of_the_whole_run(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    for step, bleu in ((4, 20.0), (8, 30.0), (12, 25.0)):
        trainer.global_step = step
        validate(trainer, bleu)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert state["best"] == 30.0
    before = (tmp_path / "best.ckpt").read_bytes()
    resumed = start(tmp_path, **state)
    validate(resumed, 29.0)
    assert (tmp_path / "best.ckpt").read_bytes() == before
    validate(resumed, 31.0)
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["best"] == 31.0


def test_a_checkpoint_that_is_due_survives_an_interruption(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    for _ in range(4):
        batch(trainer)
    trainer.saving.save_last(trainer)  # stopped before the next batch
    resumed = start(tmp_path, **torch.load(tmp_path / "last.ckpt", weights_only=True))
    resumed.global_step = resumed.saving.step = 4
    batch(resumed)
    assert [path.stem for path in resumed.saving.to_average()] == [
        "step-00000002",
        "step-00000004",
    ]


def test_what_later_checkpoints_have_pushed_out_is_not_averaged(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    for _ in range(9):
        batch(trainer)
    old = {"kept": ["step-00000002", "step-00000006.ckpt"], "best": 0.0, "due": False}
    assert [path.stem for path in start(tmp_path, **old).saving.to_average()] == ["step-00000006"]
