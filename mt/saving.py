"""When a run validates, and which checkpoints it keeps: best, last, and those to average."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl

NEVER = 2**62  # batches


class Saving(pl.Callback):
    """Validates and saves at whole optimizer steps only, never inside an accumulation.

    ``step-NNNNNNNN.ckpt`` every ``checkpoint_every`` steps and at the end of training, the last
    ``keep`` of them; at every validation, each ``validate_every`` steps, ``last.ckpt``, and
    ``best.ckpt`` when ``val_bleu`` is the highest so far. ``kept`` are the files of this run to
    average, oldest first; it goes on in a resumed run.
    """

    def __init__(self, folder: Path, validate_every: int, checkpoint_every: int, keep: int) -> None:
        self.folder, self.keep = folder, keep
        self.validate_every, self.checkpoint_every = validate_every, checkpoint_every
        self.kept: list[str] = []
        self.best = float("-inf")
        self.step = 0
        self.due = False  # a step checkpoint

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # Ranks that were started apart may each have thought of a folder of their own.
        self.folder = Path(trainer.strategy.broadcast(str(self.folder)))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.step = trainer.global_step
        # A run resumed from an old checkpoint finds that later ones have pushed some out.
        self.kept = [name for name in self.kept if (self.folder / name).is_file()]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # At a batch's end Lightning has not counted it yet: 2.4 would accumulate one batch too many
        # after a restart from there.
        if self.due:
            self.save_step(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any,
        batch_idx: int,
    ) -> None:  # fmt: skip
        step = trainer.global_step
        whole, self.step = step != self.step, step
        self.due = whole and step % self.checkpoint_every == 0
        # Lightning counts batches, which say nothing of steps where an epoch ends with fewer
        # batches than a step accumulates: the interval is set to what the next check must find.
        trainer.val_check_batch = 1 if whole and step % self.validate_every == 0 else NEVER

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        value = float(trainer.callback_metrics["val_bleu"])
        if value > self.best:
            self.best = value
            trainer.save_checkpoint(self.folder / "best.ckpt")
        self.save_last(trainer)

    def save_last(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(self.folder / "last.ckpt")

    def save_step(self, trainer: pl.Trainer) -> None:
        """Write step-NNNNNNNN.ckpt, then remove the oldest if there is one too many."""
        self.due = False
        name = f"step-{trainer.global_step:08d}.ckpt"
        self.kept = [old for old in self.kept if old != name] + [name]
        outdated, self.kept = self.kept[: -self.keep], self.kept[-self.keep :]
        trainer.save_checkpoint(self.folder / name)
        if trainer.is_global_zero:
            for old in outdated:
                (self.folder / old).unlink(missing_ok=True)

    def to_average(self) -> list[Path]:
        return [self.folder / name for name in self.kept]

    def state_dict(self) -> dict[str, Any]:
        return {"kept": list(self.kept), "best": self.best, "due": self.due}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.kept, self.best = state_dict["kept"], state_dict["best"]
        self.due = state_dict["due"]
