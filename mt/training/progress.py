"""What a person watching a training run wants to know: how far, how fast, how good."""

import time
from typing import Any

import pytorch_lightning as pl
from tqdm import tqdm

from mt.data.batch_sampler import Batch


class Progress(pl.Callback):
    """A bar over optimizer steps on a terminal, a line now and then elsewhere, by rank 0 alone.

    Speed counts source and target tokens, padding left out, as many for every device as for
    rank 0's, and leaves validation out of the time.
    """

    def __init__(self, seconds_between_lines: float = 10.0) -> None:
        self.seconds = seconds_between_lines
        self.tokens = self.tokens_at_mark = 0
        self.time = 0.0  # spent training

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.total = int(trainer.estimated_stepping_batches)
        self.first_step = self.mark_step = trainer.global_step
        self.clock = self.mark = time.perf_counter()
        self.time_at_mark = 0.0
        self.bar = tqdm(
            total=self.total,
            initial=trainer.global_step,
            unit=" steps",
            disable=None if trainer.is_global_zero else True,
            dynamic_ncols=True,
        )
        count = sum(p.numel() for p in pl_module.parameters())
        self._say(trainer, f"training {count:,} parameters for {self.total:,} steps in all")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch,
        batch_idx: int,
    ) -> None:  # fmt: skip
        now = time.perf_counter()
        self.time += now - self.clock
        self.clock = now
        self.tokens += (batch.src.tokens + batch.tgt.tokens) * trainer.world_size
        self.bar.update(trainer.global_step - self.bar.n)
        every = 1.0 if not self.bar.disable else self.seconds
        if now - self.mark >= every or trainer.global_step == self.total:
            self._report(trainer)
            self.mark = now

    def _report(self, trainer: pl.Trainer) -> None:
        if not trainer.is_global_zero:
            return
        interval = max(self.time - self.time_at_mark, 1e-9)
        speed = (self.tokens - self.tokens_at_mark) / interval
        self.tokens_at_mark, self.time_at_mark = self.tokens, self.time
        values = trainer.logged_metrics
        status = {
            "loss": f"{float(values.get('train_loss', float('nan'))):.3f}",
            "tok/s": f"{speed:,.0f}",
        }
        for logger in trainer.loggers:
            logger.log_metrics({"tokens_per_second": speed}, step=trainer.global_step)
        if not self.bar.disable:
            self.bar.set_postfix(status)
            return
        done = trainer.global_step - self.first_step
        left = (self.total - trainer.global_step) * self.time / max(done, 1)
        text = ", ".join(f"{name} {value}" for name, value in status.items())
        print(
            f"step {trainer.global_step:,}/{self.total:,}: {text}, "
            f"{tqdm.format_interval(left)} of training left",
            flush=True,
        )

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking:
            return
        values = trainer.callback_metrics
        what = f"step {trainer.global_step:,}" if trainer.state.fn == "fit" else "the end"
        self._say(
            trainer,
            f"validation at {what}: loss {values['val_loss']:.3f}, "
            f"perplexity {values['val_ppl']:.2f}, sacreBLEU {values['val_bleu']:.2f}",
        )
        self.clock = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.bar.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if hasattr(self, "bar"):
            self.bar.close()

    @staticmethod
    def _say(trainer: pl.Trainer, line: str) -> None:
        if trainer.is_global_zero:
            tqdm.write(line)
