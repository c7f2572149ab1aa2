"""How a run ends early: by a signal, its time, divergence, or the loss of another process."""

import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from mt.training.lightning_module import Diverged, TranslationModule
from mt.training.lightning_private import keep_signal_handlers
from mt.training.run_dir import resume_hint
from mt.utils.processes import SIGNALS

log = logging.getLogger("mt")

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows the latter kills too


class Interruption(pl.Callback):
    """The first signal ends training after the current step, the second one ends the run at once.

    Before and after training one signal ends the run of ``folder`` at once: its files are intact,
    and ``ckpt=last`` does the rest. That is also so while a run waits for its other machines.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.signum: int = signal.SIGTERM  # unless this rank receives a different one
        self.training = False
        self.handler: Any = None

    @contextmanager
    def install_handlers(self, trainer: pl.Trainer, module: TranslationModule) -> Iterator[None]:
        """Handle the signals inside the block."""

        def handle(signum: int, frame: Any) -> None:
            self.signum = signum
            if not self.training or module.stop_requested:
                exit_now(trainer, self.folder, signum)
            module.stop_requested = True
            if trainer.is_global_zero:
                log.warning("stopping after this step; a second signal stops at once")

        keep_signal_handlers(trainer)
        self.handler = handle
        # torch waits for the other machines in C++, where Python calls no handler of its own.
        first = handle if trainer.num_nodes == 1 else signal.SIG_DFL
        before = {signum: signal.signal(signum, first) for signum in SIGNALS}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """All machines have connected."""
        if self.handler is not None:
            for signum in SIGNALS:
                signal.signal(signum, self.handler)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.training = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.training = False


class TimeLimit(Timer):
    """``trainer.max_time`` ends training after a whole optimizer step.

    It is the time of this run: a resumed one has it anew. Lightning's own timer counts all runs,
    and also ends training inside an accumulation, whose gradients are then lost.
    """

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.last_step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step != self.last_step:
            self.last_step = trainer.global_step
            super().on_train_batch_end(trainer, *args, **kwargs)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        time_left = self.time_remaining()
        step, total = trainer.global_step, trainer.max_steps
        if time_left is not None and time_left <= 0 and step < total:
            log.warning(
                f"trainer.max_time is over at step {step:,} of {total:,}: ckpt=last continues"
            )


def exit_now(trainer: pl.Trainer, folder: Path, signum: int) -> NoReturn:
    """End this process and all that it has started, without waiting for the other ranks."""
    message = f"ended at once by {signal.Signals(signum).name}; {resume_hint(folder)}"
    os.write(2, f"mt.train: {message}\n".encode())
    kill_ranks(trainer)
    kill_workers()
    os._exit(128 + signum)


def kill_ranks(trainer: pl.Trainer) -> None:
    """Kill the ranks that this process has started, if any: they must not wait for it."""
    if trainer.strategy.launcher is not None:
        trainer.strategy.launcher.kill(KILL)


def kill_workers() -> None:
    """Kill the data loader's workers: they ignore SIGTERM, with which Python would end them."""
    if hasattr(signal, "SIGCHLD"):  # not on Windows
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # otherwise torch raises an error for each
    for worker in multiprocessing.active_children():
        worker.kill()


def explain_divergence(error: Diverged, folder: Path, rank: int) -> str:
    """The message about a divergence; this rank's sentences go to a file in ``folder``."""
    lines = [str(error)]
    if error.pairs:
        path = folder / f"diverged-step-{error.step:08d}-rank-{rank}.tsv"
        path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in error.pairs), encoding="utf-8")
        lines.append(f"  the {len(error.pairs):,} pairs of its batch are in {path}; the first:")
        lines += [f"    {src[:60]} | {tgt[:60]}" for src, tgt in error.pairs[:3]]
    lines += [
        "  what to try: a smaller training.lr_factor or larger training.warmup_steps, "
        "trainer.gradient_clip_val=1, trainer.precision=32-true, data without these pairs",
        f"  {resume_hint(folder)}",
    ]
    return "\n".join(lines)
