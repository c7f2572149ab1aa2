"""mt's side of `compare_training.py`: `python -m mt.train` with its arguments, and a clock.

The clock adds two files to the run directory: clock.jsonl with a line for each update, and
validations.jsonl with a line for each validation.
"""

import time
from pathlib import Path
from typing import Any

from benchmarking import JsonLines

import mt.train
import mt.training.setup
from mt.training.progress import Progress
from mt.utils import hydra_app


class Clock(Progress):
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        folder = Path(trainer.logger.save_dir)
        self.updates = JsonLines(folder / "clock.jsonl")
        self.validations = JsonLines(folder / "validations.jsonl")
        self.cpu, self.cpu_mark = 0.0, time.process_time()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        super().on_train_batch_end(trainer, pl_module, *rest)
        now = time.process_time()
        self.cpu, self.cpu_mark = self.cpu + now - self.cpu_mark, now
        batch = rest[1]
        self.updates.write(
            step=trainer.global_step,
            seconds=round(self.time, 4),
            cpu_seconds=round(self.cpu, 4),
            src=batch.src.tokens,
            tgt=batch.tgt.tokens,
        )

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        super().on_validation_end(trainer, pl_module)
        self.cpu_mark = time.process_time()
        if trainer.state.fn != "fit":
            return
        values = trainer.callback_metrics
        scores = {"perplexity": float(values["val_ppl"]), "bleu": float(values["val_bleu"])}
        self.validations.write(step=trainer.global_step, **scores)


if __name__ == "__main__":
    mt.training.setup.Progress = Clock  # type: ignore[misc]
    hydra_app.start("mt.train", mt.train.main)
