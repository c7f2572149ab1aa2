"""How a run ends before its time: by a signal, by diverging, by the loss of another process."""

import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl

from mt.datamodule import SIGNALS
from mt.module import Diverged, TranslationModule

log = logging.getLogger("mt")


class Interruption(pl.Callback):
    """A signal ends training after the current step; a second one ends it at once."""

    def __init__(self) -> None:
        self.signum: int = signal.SIGTERM  # unless this rank hears of another one

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        def handle(signum: int, frame: Any) -> None:
            self.signum = signum
            cast("TranslationModule", pl_module).stop_requested = True
            signal.signal(signum, signal.default_int_handler)
            if trainer.is_global_zero:
                log.warning("stopping after this step, and a validation under way; again: at once")

        for signum in SIGNALS:
            signal.signal(signum, handle)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for signum in SIGNALS:
            signal.signal(signum, signal.default_int_handler)


def end_with_parent() -> None:
    """From now on end this process when the one that started it is gone.

    A rank whose rank 0 was killed would else wait for it, on a GPU for many minutes.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def kill_children(trainer: pl.Trainer) -> None:
    """End the ranks that this process has started, if it has: they must not wait for it."""
    for process in getattr(trainer.strategy.launcher, "procs", []):
        process.kill()


def explain(error: Diverged, folder: Path, rank: int) -> str:
    """What to tell about a divergence; the sentences of this rank go to a file in ``folder``."""
    lines = [str(error)]
    if error.pairs:
        file = folder / f"diverged-step-{error.step:08d}-rank-{rank}.tsv"
        file.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in error.pairs), encoding="utf-8")
        lines.append(f"  the {len(error.pairs):,} pairs of its batch are in {file}; the first:")
        lines += [f"    {src[:60]} | {tgt[:60]}" for src, tgt in error.pairs[:3]]
    lines += [
        "  what to try: a larger training.warmup_steps (a lower learning rate), "
        "trainer.gradient_clip_val=1, trainer.precision=32-true, data without these pairs",
        "  the checkpoints from before are whole: ckpt=last goes on from the newest",
    ]
    return "\n".join(lines)
