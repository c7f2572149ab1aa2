"""When a run validates, which checkpoints it keeps, and how it writes them safely."""

import os
import re
import time
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from mt.model.weights import read_checkpoint
from mt.training.config import MOST_STEPS
from mt.training.lightning_module import TranslationModule
from mt.training.lightning_private import set_logged_step, set_position, set_validation_interval
from mt.training.run_dir import resume_hint, step_files, step_name, step_of
from mt.utils.atomic import atomic_path

NEVER_VALIDATE = 2**62  # batches between validations


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to a partial file, then renames it: a kill or a full disk harms no file.
    Reads one as everything here does, without running code of it.

    Lightning writes to the system's temporary folder and copies the file, if that is another file
    system. Raises OSError when the checkpoint cannot be written.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with atomic_path(path) as partial, partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:
            # torch replaces the error of a failed write by its own RuntimeError.
            cause = error.__context__ if isinstance(error, RuntimeError) else error
            if not isinstance(cause, OSError):
                raise
            hint = resume_hint(Path(path).parent.parent)
            raise OSError(cause.errno, f"{cause.strerror} ({hint})", str(path)) from None

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return read_checkpoint(Path(path))


def parse_interval(every: Any) -> tuple[int | None, float | None]:
    """``checkpoint_every`` as (steps, None) for 1500 or (None, minutes) for '10 min'.

    Raises ValueError for anything else.
    """
    if type(every) is int and 1 <= every <= MOST_STEPS:
        return every, None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?) ?min", str(every))
    if match and float(match[1]) > 0:
        return None, float(match[1])
    raise ValueError(f"checkpoint_every={every!r}: must be a number of steps, or as in '10 min'")


class CheckpointCallback(pl.Callback):
    """Validates and saves after whole optimizer steps only, never inside an accumulation.

    It saves ``step-NNNNNNNN.ckpt`` every ``checkpoint_every`` steps, or minutes of wall time for
    '10 min', and at the end, and keeps the last ``keep``. Every ``validate_every`` steps it saves
    ``last.ckpt``, validates, then saves ``best.ckpt`` if ``val_bleu`` is the highest so far
    or, without it, ``val_loss`` the lowest.
    ``step_files`` names the files of this run to average, oldest first, also after a resume.
    """

    # Lightning saves a callback's state under this key: checkpoints of version 0.1 have this one.
    state_key = "Saving"

    def __init__(
        self, folder: Path, validate_every: int, checkpoint_every: int | str, keep: int
    ) -> None:
        self.folder, self.keep, self.validate_every = folder, keep, validate_every
        self.every_steps, self.every_minutes = parse_interval(checkpoint_every)
        self.step_files: list[str] = []
        self.extra: str | None = None  # the one that only the end of a run added
        self.best_score = float("-inf")
        self.last_step = 0
        self.last_due = time.monotonic()  # when a checkpoint by the clock was last due

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # Ranks that a cluster starts may each have chosen a folder: all use that of rank 0.
        self.folder = Path(trainer.strategy.broadcast(str(self.folder)))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.last_step, self.last_due = trainer.global_step, time.monotonic()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        set_logged_step(trainer, trainer.global_step)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        data = cast("TranslationModule", pl_module).data
        set_position(checkpoint, data.batches_seen, data.epoch_length)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any,
        batch_idx: int,
    ) -> None:  # fmt: skip
        step = trainer.global_step
        step_done, self.last_step = step != self.last_step, step
        if step_done and self._is_due(trainer):
            self.save_step(trainer)
        # Lightning counts batches, and the last step of an epoch may accumulate fewer of them than
        # other steps. So the interval is set to what makes its next check right.
        validate = step_done and step % self.validate_every == 0
        set_validation_interval(trainer, 1 if validate else NEVER_VALIDATE)

    def _is_due(self, trainer: pl.Trainer) -> bool:
        if self.every_steps:
            return self.last_step % self.every_steps == 0
        if trainer.world_size > 1 and self.last_step % 10:
            return False  # agreeing on the time makes the ranks wait for each other
        now = time.monotonic()
        late = now - self.last_due >= 60 * cast("float", self.every_minutes)
        due = bool(trainer.strategy.broadcast(late))
        self.last_due = now if due else self.last_due
        return due

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit":  # a run that is killed while it validates loses no step
            self.save_last(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        scores = trainer.callback_metrics
        score = float(scores["val_bleu"] if "val_bleu" in scores else -scores["val_loss"])
        if score > self.best_score:
            self.best_score = score
            self._save(trainer, "best.ckpt")
        self.save_last(trainer)

    def save_last(self, trainer: pl.Trainer) -> None:
        self._save(trainer, "last.ckpt")

    def save_step(self, trainer: pl.Trainer, at_end: bool = False) -> None:
        """Write step-NNNNNNNN.ckpt, then remove those too old to be averaged.

        What ``at_end`` adds between two intervals leaves the mean when the run goes on: the model
        is that of a run that never ended there.
        """
        name = step_name(trainer.global_step)
        is_extra = at_end and (name not in self.step_files or name == self.extra)
        kept = (file for file in self.step_files if file not in (name, self.extra))
        self.step_files = [*kept, name][-self.keep :]
        self.extra = name if is_extra else None
        self._save(trainer, name)
        if trainer.is_global_zero:
            oldest = step_of(self.folder / self.step_files[0])
            outdated = [file for file in step_files(self.folder) if step_of(file) < oldest]
            left_over = [*self.folder.glob(".*.partial"), *self.folder.glob(".*.lock")]
            for file in [*outdated, *left_over]:  # killed runs leave them
                file.unlink(missing_ok=True)

    def _save(self, trainer: pl.Trainer, name: str) -> None:
        cast("TranslationModule", trainer.lightning_module).check_finite()
        trainer.save_checkpoint(self.folder / name)

    def to_average(self) -> list[Path]:
        return [self.folder / name for name in self.step_files]

    def state_dict(self) -> dict[str, Any]:
        return {"kept": list(self.step_files), "best": self.best_score, "extra": self.extra}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # After a resume from an old checkpoint, later ones have replaced some of its files.
        self.step_files = [name for name in state_dict["kept"] if (self.folder / name).is_file()]
        best = self.folder / "best.ckpt"
        if best.is_file():  # else the score is that of another branch
            # A checkpoint that was saved before the validation of its step has an older score.
            self.best_score = max(_best_score(best, self.state_key), state_dict["best"])
        self.extra = state_dict.get("extra")  # checkpoints of version 0.1 lack it


def _best_score(file: Path, key: str) -> float:
    """The validation score with which ``best.ckpt`` was saved; -inf where it cannot be read."""
    try:
        content = torch.load(file, "cpu", mmap=True, weights_only=True)
        return float(content["callbacks"][key]["best"])
    except Exception:  # torch has many kinds
        return float("-inf")
