"""The parts of Lightning that have no public interface, one function for each.

``tests/training/test_lightning_private.py`` checks every function with the installed version.
"""

from typing import Any

import pytorch_lightning as pl


def keep_signal_handlers(trainer: pl.Trainer) -> None:
    """Stop the trainer from installing its own signal handlers.

    No argument of the Trainer does this. Lightning's SIGTERM handler waits for the other ranks,
    which may be waiting for this one elsewhere.
    """
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]


def set_logged_step(trainer: pl.Trainer, step: int) -> None:
    """Make ``step`` the step of the metrics that are logged next.

    Lightning counts it itself, and a resumed run begins with a different count. The public way, a
    metric called "step", would be a float32 on the device, exact to 16.7 million only.
    """
    trainer.fit_loop.epoch_loop._batches_that_stepped = step


def set_validation_interval(trainer: pl.Trainer, batches: int) -> None:
    """Validate after each batch whose number over all epochs is a multiple of ``batches``.

    The Trainer's argument ``val_check_interval`` fixes the number once, before training.
    """
    trainer.val_check_batch = batches


def set_position(checkpoint: dict[str, Any], batches_seen: int, epoch_length: int) -> None:
    """Make a checkpoint resume at batch ``batches_seen`` + 1, counted over all epochs.

    The position that Lightning saves is wrong where an epoch has just ended or the number of ranks
    changes, and no public interface sets it. This one says that the batch has been fetched but not
    started: every version resumes exactly from there, at an epoch's end and with accumulation too.
    """
    epochs, batches = divmod(batches_seen, epoch_length)

    def progress(done: int, **ahead: int) -> dict[str, int]:
        return {**dict.fromkeys(("ready", "started", "processed", "completed"), done), **ahead}

    def batch_progress(total: dict[str, int], current: dict[str, int]) -> dict[str, Any]:
        return {"total": total, "current": current, "is_last_batch": False}

    def steps(*names: str) -> dict[str, dict[str, int]]:
        """``checkpoint["global_step"]`` steps have been done."""
        return {
            key: dict.fromkeys(names, checkpoint["global_step"]) for key in ("total", "current")
        }

    epoch = progress(epochs, ready=epochs + 1, started=epochs + 1)
    optimizer = {
        "step": steps("ready", "completed"),
        "zero_grad": steps("ready", "started", "completed"),
    }
    checkpoint["loops"] = {
        "fit_loop": {
            "epoch_progress": {"total": epoch, "current": dict(epoch)},
            "epoch_loop.batch_progress": batch_progress(
                progress(batches_seen, ready=batches_seen + 1), progress(batches, ready=batches + 1)
            ),
            "epoch_loop.scheduler_progress": steps("ready", "completed"),
            "epoch_loop.automatic_optimization.optim_progress": {"optimizer": optimizer},
            "epoch_loop.val_loop.batch_progress": batch_progress(progress(0), progress(0)),
        }
    }
