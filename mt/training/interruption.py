"""How a run ends before its time: by a signal, by diverging, by the loss of another process."""

import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from mt.training.lightning_module import Diverged, TranslationModule
from mt.utils.processes import SIGNALS, resume_hint

log = logging.getLogger("mt")


class Interruption(pl.Callback):
    """A signal ends training after the current step; a second one ends the run at once.

    At once is also how it ends when it does not train, or no longer: whatever it has written is
    whole, and ``ckpt=last`` does what is left.
    """

    def __init__(self) -> None:
        self.signum: int = signal.SIGTERM  # unless this rank hears of another one
        self.training = False

    @contextmanager
    def install_handlers(self, trainer: pl.Trainer, module: TranslationModule) -> Iterator[None]:
        """Handle the signals meanwhile."""
        process = os.getpid()

        def handle(signum: int, frame: Any) -> None:
            if os.getpid() != process:  # a worker just forked, which has not begun yet
                return
            self.signum = signum
            if not self.training or module.stop_requested:
                exit_now(trainer, signum)
            module.stop_requested = True
            if trainer.is_global_zero:
                log.warning("stopping after this step, and a validation under way; again: at once")

        # Lightning's handler waits for the other ranks, who may be waiting for this one elsewhere.
        trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
        before = {signum: signal.signal(signum, handle) for signum in SIGNALS}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.training = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.training = False


def exit_now(trainer: pl.Trainer, signum: int) -> None:
    """End this process and all that it has started, without another word to the other ranks."""
    what = f"ended at once by {signal.Signals(signum).name}; {resume_hint()}"
    os.write(2, f"mt.train: {what}\n".encode())
    kill_ranks(trainer)
    kill_workers()
    os._exit(128 + signum)


def kill_ranks(trainer: pl.Trainer) -> None:
    """End the ranks that this process has started, if it has: they must not wait for it."""
    for process in getattr(trainer.strategy.launcher, "procs", []):
        process.kill()


def kill_workers() -> None:
    """End the loader's workers: they do not listen to SIGTERM, by which Python would end them."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else torch raises an error for each
    for worker in multiprocessing.active_children():
        worker.kill()


def explain(error: Diverged, folder: Path, rank: int) -> str:
    """What to tell about a divergence; the sentences of this rank go to a file in ``folder``."""
    lines = [str(error)]
    if error.pairs:
        file = folder / f"diverged-step-{error.step:08d}-rank-{rank}.tsv"
        file.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in error.pairs), encoding="utf-8")
        lines.append(f"  the {len(error.pairs):,} pairs of its batch are in {file}; the first:")
        lines += [f"    {src[:60]} | {tgt[:60]}" for src, tgt in error.pairs[:3]]
    lines += [
        "  what to try: a smaller training.lr_factor or larger training.warmup_steps, "
        "trainer.gradient_clip_val=1, trainer.precision=32-true, data without these pairs",
        f"  what was saved before is whole: {resume_hint()}",
    ]
    return "\n".join(lines)
