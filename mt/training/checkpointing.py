"""When a run validates, which checkpoints it keeps, and how they reach the disk whole."""

import os
import re
import time
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from mt.data.datamodule import TranslationData
from mt.training.lightning_module import TranslationModule
from mt.utils.processes import resume_hint

NO_VALIDATION = 2**62  # batches


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, then renames it: a kill or a full disk harms no file.

    Lightning's own way goes through the system's temporary folder, often another file system,
    from which a file is copied, not renamed. Raises OSError when it cannot be written.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        try:
            with partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException as error:
            partial.unlink(missing_ok=True)
            # torch covers what went wrong by a RuntimeError of its own.
            cause = error.__context__ if isinstance(error, RuntimeError) else error
            if isinstance(cause, OSError):
                hint = f"what was saved before is whole, {resume_hint()}"
                raise OSError(cause.errno, f"{cause.strerror} ({hint})", str(path)) from None
            raise


def interval(every: Any) -> tuple[int | None, float | None]:
    """``checkpoint_every`` as steps or as minutes: 1500, or '10 min'. ValueError for others."""
    if type(every) is int and every >= 1:
        return every, None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?min", str(every))
    if found and float(found[1]) > 0:
        return None, float(found[1])
    raise ValueError(f"checkpoint_every={every!r}: must be a number of steps, or as in '10 min'")


def fit_loop_state(batches_seen: int, epoch_length: int) -> dict[str, Any]:
    """The state of Lightning's fit loop before batch ``batches_seen`` + 1, counted over all epochs.

    The batch has been fetched and not been started: from there every version resumes exactly, at
    an epoch's end and with accumulation too.
    """
    epochs, batches = divmod(batches_seen, epoch_length)

    def progress(done: int, **ahead: int) -> dict[str, int]:
        return {**dict.fromkeys(("ready", "started", "processed", "completed"), done), **ahead}

    def batch_progress(total: dict[str, int], current: dict[str, int]) -> dict[str, Any]:
        return {"total": total, "current": current, "is_last_batch": False}

    epoch = progress(epochs, ready=epochs + 1, started=epochs + 1)
    return {
        "epoch_progress": {"total": epoch, "current": dict(epoch)},
        "epoch_loop.batch_progress": batch_progress(
            progress(batches_seen, ready=batches_seen + 1), progress(batches, ready=batches + 1)
        ),
        "epoch_loop.val_loop.batch_progress": batch_progress(progress(0), progress(0)),
    }


class CheckpointCallback(pl.Callback):
    """Validates and saves at whole optimizer steps only, never inside an accumulation.

    ``step-NNNNNNNN.ckpt`` every ``checkpoint_every`` steps, or minutes on the clock if it says
    '10 min', and at the end, the last ``keep`` of them; every ``validate_every`` steps
    ``last.ckpt``, then a validation, then ``best.ckpt`` if ``val_bleu`` is the highest so far.
    ``kept`` are the files of this run to average, oldest first; it goes on in a resumed run.
    """

    # Lightning files a callback's state under this name; that of version 0.1 must still be found.
    state_key = "Saving"

    def __init__(
        self, folder: Path, validate_every: int, checkpoint_every: int | str, keep: int
    ) -> None:
        self.folder, self.keep, self.validate_every = folder, keep, validate_every
        self.steps, self.minutes = interval(checkpoint_every)
        self.kept: list[str] = []
        self.best = float("-inf")
        self.step = 0
        self.clock = time.monotonic()  # when the last one by the minutes became due

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # Ranks that were started apart may each have thought of a folder of their own.
        self.folder = Path(trainer.strategy.broadcast(str(self.folder)))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.step, self.clock = trainer.global_step, time.monotonic()
        # A run resumed from an old checkpoint finds that later ones have pushed some out.
        self.kept = [name for name in self.kept if (self.folder / name).is_file()]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # By it Lightning numbers the rows of its logs, and resumes with more or less.
        trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # What Lightning saves of its loop goes astray where an epoch ended or the ranks changed.
        data = cast("TranslationData", trainer.datamodule)  # type: ignore[attr-defined]
        place = fit_loop_state(data.batches_seen, data.epoch_length)
        checkpoint["loops"]["fit_loop"].update(place)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any,
        batch_idx: int,
    ) -> None:  # fmt: skip
        step = trainer.global_step
        whole, self.step = step != self.step, step
        if whole and self._is_due(trainer):
            self.save_step(trainer)
        # Lightning counts batches, which say nothing of steps where an epoch ends with fewer
        # batches than a step accumulates: the interval is set to what the next check must find.
        trainer.val_check_batch = 1 if whole and step % self.validate_every == 0 else NO_VALIDATION

    def _is_due(self, trainer: pl.Trainer) -> bool:
        if self.steps:
            return self.step % self.steps == 0
        if trainer.world_size > 1 and self.step % 10:
            return False  # to agree on the time, the ranks must wait for each other
        now = time.monotonic()
        late = now - self.clock >= 60 * cast("float", self.minutes)
        due = bool(trainer.strategy.broadcast(late))
        self.clock = now if due else self.clock
        return due

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit":  # whoever loses patience with a validation loses no step
            self.save_last(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        value = float(trainer.callback_metrics["val_bleu"])
        if value > self.best:
            self.best = value
            self._save(trainer, "best.ckpt")
        self.save_last(trainer)

    def save_last(self, trainer: pl.Trainer) -> None:
        self._save(trainer, "last.ckpt")

    def save_step(self, trainer: pl.Trainer) -> None:
        """Write step-NNNNNNNN.ckpt, then remove those that are older than the ones to average."""
        name = f"step-{trainer.global_step:08d}.ckpt"
        self.kept = [*(old for old in self.kept if old != name), name][-self.keep :]
        self._save(trainer, name)
        if trainer.is_global_zero:
            outdated = [old for old in self.folder.glob("step-*.ckpt") if old.name < self.kept[0]]
            for old in [*outdated, *self.folder.glob(".*.partial")]:  # what a kill has left too
                old.unlink(missing_ok=True)

    def _save(self, trainer: pl.Trainer, name: str) -> None:
        cast("TranslationModule", trainer.lightning_module).check_finite()
        trainer.save_checkpoint(self.folder / name)

    def to_average(self) -> list[Path]:
        return [self.folder / name for name in self.kept]

    def state_dict(self) -> dict[str, Any]:
        return {"kept": list(self.kept), "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.kept, self.best = state_dict["kept"], state_dict["best"]
