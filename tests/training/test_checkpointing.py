"""Which checkpoints a run keeps, tested with a trainer that only counts steps."""

import errno
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mt.training import checkpointing, run_dir
from mt.training.checkpointing import (
    NEVER_VALIDATE,
    AtomicCheckpointIO,
    CheckpointCallback,
    parse_interval,
)


class Trainer(SimpleNamespace):
    """Saves the state of the callback alone."""

    def save_checkpoint(self, path: Path) -> None:
        torch.save(self.callback.state_dict(), path)


def start(folder: Path, keep: int = 2, every: int | str = 2, **state: Any) -> Any:
    callback = CheckpointCallback(folder, validate_every=4, checkpoint_every=every, keep=keep)
    if state:
        callback.load_state_dict(state)
    trainer = Trainer(
        callback=callback,
        global_step=0,
        is_global_zero=True,
        state=SimpleNamespace(fn="fit"),
        callback_metrics={},
        lightning_module=SimpleNamespace(check_finite=lambda: None),
        strategy=SimpleNamespace(broadcast=lambda value: value),
        world_size=1,
    )
    callback.on_train_start(trainer, None)  # type: ignore[arg-type]
    return trainer


def batch(trainer: Any, step_done: bool = True) -> None:
    """One batch, the last of its step or not."""
    trainer.global_step += step_done
    trainer.callback.on_train_batch_end(trainer, None, None, None, 0)


def validate(trainer: Any, bleu: float) -> None:
    trainer.callback_metrics["val_bleu"] = torch.tensor(bleu)
    trainer.callback.on_validation_end(trainer, None)


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.iterdir())


def test_the_last_step_checkpoints_are_kept(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    for _ in range(9):
        batch(trainer)
    assert names(tmp_path) == ["step-00000006", "step-00000008"]
    assert [path.stem for path in trainer.callback.to_average()] == names(tmp_path)


def test_what_the_end_of_a_run_adds_leaves_the_mean_when_it_goes_on(tmp_path: Path) -> None:
    trainer = start(tmp_path, keep=3)
    for _ in range(5):
        batch(trainer)
    trainer.callback.save_step(trainer, at_end=True)
    averaged = [path.stem for path in trainer.callback.to_average()]
    assert averaged == ["step-00000002", "step-00000004", "step-00000005"]

    resumed = start(tmp_path, keep=3, **torch.load(tmp_path / "step-00000005.ckpt"))
    resumed.global_step = 5
    resumed.callback.save_step(resumed, at_end=True)  # it ended once more
    batch(resumed)
    averaged = [path.stem for path in resumed.callback.to_average()]
    assert averaged == ["step-00000002", "step-00000004", "step-00000006"]
    resumed.callback.save_step(resumed, at_end=True)  # it was saved already
    batch(resumed)
    batch(resumed)
    averaged = [path.stem for path in resumed.callback.to_average()]
    assert averaged == ["step-00000004", "step-00000006", "step-00000008"]


def test_nothing_happens_within_a_step(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    batch(trainer, step_done=False)
    batch(trainer)
    for _ in range(3):
        batch(trainer, step_done=False)
        assert trainer.val_check_batch == NEVER_VALIDATE
    assert names(tmp_path) == []
    batch(trainer)
    assert trainer.val_check_batch == NEVER_VALIDATE
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


def test_without_bleu_the_best_has_the_lowest_loss(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    for loss in (3.0, 2.0, 2.5):
        trainer.callback_metrics = {"val_loss": torch.tensor(loss)}
        trainer.callback.on_validation_end(trainer, None)
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["best"] == -2.0


def test_a_score_that_was_saved_after_the_checkpoint_counts(tmp_path: Path) -> None:
    """A checkpoint of the step that was validated best was written before its validation."""
    callback = CheckpointCallback(tmp_path, validate_every=4, checkpoint_every=4, keep=2)
    best = {"callbacks": {callback.state_key: {"best": 30.0}}}
    torch.save(best, tmp_path / "best.ckpt")
    callback.load_state_dict({"kept": [], "best": 10.0})
    assert callback.best_score == 30.0


def test_a_branch_has_a_best_of_its_own(tmp_path: Path) -> None:
    """The best checkpoint was set aside with what came after the branch began."""
    validate(start(tmp_path), 30.0)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    (tmp_path / "best.ckpt").unlink()
    validate(start(tmp_path, **state), 20.0)
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["best"] == 20.0


def test_checkpoints_that_later_ones_replaced_are_not_averaged(tmp_path: Path) -> None:
    trainer = start(tmp_path)
    for _ in range(9):
        batch(trainer)
    old = {"kept": ["step-00000002.ckpt", "step-00000006.ckpt"], "best": 0.0}
    callback = CheckpointCallback(tmp_path, validate_every=4, checkpoint_every=2, keep=2)
    callback.load_state_dict(old)  # nothing need be trained after it
    assert [path.stem for path in callback.to_average()] == ["step-00000006"]


def test_the_next_checkpoint_removes_what_a_kill_has_left(tmp_path: Path) -> None:
    left_over = ".step-00000005.ckpt.partial", ".step-00000005.ckpt.lock"
    for name in ("step-00000001.ckpt", *left_over):
        (tmp_path / name).write_bytes(b"")
    trainer = start(tmp_path)
    for _ in range(5):
        batch(trainer)
    assert names(tmp_path) == ["step-00000002", "step-00000004"]
    assert not [name for name in left_over if (tmp_path / name).exists()]


def test_a_copy_of_the_users_stays_and_is_not_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    trainer = start(folder, keep=1, every=1)
    batch(trainer)
    copy = folder / "step-00000001-good.ckpt"
    copy.write_text("mine")
    batch(trainer)
    assert names(folder) == ["step-00000001-good", "step-00000002"]
    assert [path.name for path in run_dir._checkpoints(tmp_path)] == ["step-00000002.ckpt"]


def test_a_run_can_save_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(checkpointing.time, "monotonic", lambda: now)
    trainer = start(tmp_path, keep=9, every="10 min")
    for _ in range(30):
        now += 70  # seconds a step
        batch(trainer)
    assert names(tmp_path) == ["step-00000009", "step-00000018", "step-00000027"]


def test_ranks_agree_on_the_clock_of_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank asks at the same steps and follows rank 0, whatever its own clock says."""
    monkeypatch.setattr(checkpointing.time, "monotonic", lambda: 0.0)
    trainer = start(tmp_path, every="1 min")
    trainer.world_size = 2
    asked = []
    trainer.strategy.broadcast = lambda value: asked.append(value) or len(asked) == 2
    for _ in range(31):
        batch(trainer)
    assert asked == [False, False, False]
    assert names(tmp_path) == ["step-00000020"]


@pytest.mark.parametrize(
    ("every", "expected"),
    [(1500, (1500, None)), ("10 min", (None, 10)), ("2.5min", (None, 2.5))],
)
def test_an_interval_is_steps_or_minutes(every: Any, expected: Any) -> None:
    assert parse_interval(every) == expected


@pytest.mark.parametrize("every", [0, -1, 1.5, True, None, "ten", "10", "0 min", "10 s", "min"])
def test_any_other_interval_is_refused(every: Any) -> None:
    with pytest.raises(ValueError, match="must be a number of steps, or as in '10 min'"):
        parse_interval(every)


def test_a_full_disk_harms_no_checkpoint(tmp_path: Path) -> None:
    """A limit on file sizes stops the write halfway, as a full disk does."""
    path = tmp_path / "run" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"w": torch.zeros(10)}, path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(OSError, match=r"last\.ckpt") as failed:
            AtomicCheckpointIO().save_checkpoint({"w": torch.zeros(100_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failed.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert names(path.parent) == ["last"]
