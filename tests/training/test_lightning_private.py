"""Each private part of Lightning that we use does, in the installed version, what we use it for."""

import signal
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.loggers.logger import DummyLogger

from mt.training import lightning_private


class Model(BoringModel):
    """Logs a metric at every step. Its training data has 64 batches, its validation data too."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        output = super().training_step(batch, batch_idx)
        self.log("loss", output["loss"])
        return output


def make_trainer(folder: Path, max_steps: int, callback: pl.Callback, **changes: Any) -> pl.Trainer:
    options: dict[str, Any] = {
        "logger": False,
        "limit_train_batches": 10,
        "limit_val_batches": 1,
        "num_sanity_val_steps": 0,
        **changes,
    }
    return pl.Trainer(
        default_root_dir=folder,
        max_steps=max_steps,
        accelerator="cpu",
        callbacks=[callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


@pytest.mark.parametrize("keep", [True, False])
def test_our_signal_handlers_stay(keep: bool, tmp_path: Path) -> None:
    """Without the function Lightning replaces them: it is still needed."""
    during: list[Any] = []

    class Watch(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            during.append(signal.getsignal(signal.SIGTERM))

    def handle(signum: int, frame: Any) -> None:
        pass

    trainer = make_trainer(tmp_path, 1, Watch())
    if keep:
        lightning_private.keep_signal_handlers(trainer)
    before = signal.signal(signal.SIGTERM, handle)
    try:
        trainer.fit(Model())
        assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (during[0] is handle) == keep


def test_metrics_are_logged_at_our_step(tmp_path: Path) -> None:
    logged: list[int] = []

    class Logger(DummyLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            logged.append(int(step or 0))

    class Shift(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
            lightning_private.set_logged_step(trainer, 100 + trainer.global_step)

    trainer = make_trainer(tmp_path, 3, Shift(), logger=Logger(), log_every_n_steps=1)
    trainer.fit(Model())
    assert logged == [100, 101, 102]


def test_validation_comes_after_the_batches_that_we_choose(tmp_path: Path) -> None:
    validated: list[int] = []

    class Choose(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            due = trainer.global_step in (2, 5, 10)
            lightning_private.set_validation_interval(trainer, 1 if due else 2**62)

        def on_validation_start(self, trainer: pl.Trainer, *_: Any) -> None:
            validated.append(trainer.global_step)

    intervals = {"val_check_interval": 2**62, "check_val_every_n_epoch": None}
    make_trainer(tmp_path, 12, Choose(), **intervals).fit(Model())
    assert validated == [2, 5, 10]


@pytest.mark.parametrize(("batches_seen", "first"), [(3, (0, 3)), (10, (1, 0)), (14, (1, 4))])
def test_a_checkpoint_resumes_at_our_position(
    batches_seen: int, first: tuple[int, int], tmp_path: Path
) -> None:
    """It was saved at batch 6 of an epoch of 10 and resumes at another one: its epoch and index."""
    batches: list[tuple[int, int]] = []

    class Move(pl.Callback):
        def on_load_checkpoint(
            self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
        ) -> None:
            lightning_private.set_position(checkpoint, batches_seen, epoch_length=10)

        def on_train_batch_start(
            self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
        ) -> None:
            batches.append((trainer.current_epoch, batch_idx))

    saving = make_trainer(tmp_path, 6, pl.Callback())
    saving.fit(Model())
    saving.save_checkpoint(tmp_path / "saved.ckpt")
    trainer = make_trainer(tmp_path, 8, Move())
    trainer.fit(Model(), ckpt_path=tmp_path / "saved.ckpt")
    assert batches[0] == first
    assert len(batches) == 2  # steps 7 and 8


def test_the_position_is_before_a_batch_that_has_been_fetched() -> None:
    def state(batches_seen: int) -> dict[str, Any]:
        checkpoint: dict[str, Any] = {"global_step": 7}
        lightning_private.set_position(checkpoint, batches_seen, epoch_length=10)
        return checkpoint["loops"]["fit_loop"]

    batches = state(25)["epoch_loop.batch_progress"]
    assert batches["total"] == {"ready": 26, "started": 25, "processed": 25, "completed": 25}
    assert batches["current"] == {"ready": 6, "started": 5, "processed": 5, "completed": 5}
    epochs = {"ready": 3, "started": 3, "processed": 2, "completed": 2}
    assert state(25)["epoch_progress"] == {"total": epochs, "current": epochs}
    optimizer = state(25)["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    assert optimizer["step"]["total"] == {"ready": 7, "completed": 7}
    # The batch after the last one of an epoch is the first one of the next.
    assert state(30)["epoch_progress"]["current"]["completed"] == 3
    assert state(30)["epoch_loop.batch_progress"]["current"]["started"] == 0
