"""What a person who watches a training run wants to know: how far, how fast, how good."""

import logging
import time
from typing import Any, cast

import pytorch_lightning as pl
from tqdm import tqdm

from mt.data.batch_sampler import Batch
from mt.training.lightning_module import TranslationModule
from mt.utils.console import ignore_broken_pipe

log = logging.getLogger("mt")

SHORT = 60  # characters of a sentence that is short enough for an example
WIDTH = 80  # characters of an example's sentence that are printed


class Progress(pl.Callback):
    """A bar over optimizer steps on a terminal, a line now and then elsewhere, on rank 0 alone.

    Speed counts source and target tokens without padding, as many for every device as for rank
    0's, and excludes the time of validation. Each validation prints ``show_examples`` sentences of
    the validation split, always the same ones, with their reference and translation.
    """

    def __init__(self, show_examples: int = 0, seconds_between_lines: float = 10.0) -> None:
        self.show_examples, self.seconds_between_lines = show_examples, seconds_between_lines
        self.tokens = self.reported_tokens = 0
        self.time = self.reported_time = 0.0  # seconds spent training

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.total = int(trainer.estimated_stepping_batches)
        self.first_step = self.last_step = trainer.global_step
        self.clock = self.report_clock = time.perf_counter()
        self.bar = tqdm(
            total=self.total, initial=trainer.global_step, unit=" steps", dynamic_ncols=True,
            disable=None if trainer.is_global_zero else True,
        )  # fmt: skip
        count = sum(p.numel() for p in pl_module.parameters())
        self._log(trainer, f"training {count:,} parameters for {self.total:,} steps in all")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch,
        batch_idx: int,
    ) -> None:  # fmt: skip
        now = time.perf_counter()
        self.time += now - self.clock
        self.clock = now
        self.tokens += (batch.src.tokens + batch.tgt.tokens) * trainer.world_size
        if trainer.global_step == self.last_step:
            return  # one of several batches of a step
        self.bar.update(trainer.global_step - self.last_step)
        self.last_step = trainer.global_step
        seconds = 1.0 if not self.bar.disable else self.seconds_between_lines
        if now - self.report_clock >= seconds or trainer.global_step == self.total:
            self._report(trainer)
            self.report_clock = now

    def _report(self, trainer: pl.Trainer) -> None:
        if not trainer.is_global_zero:
            return
        seconds = max(self.time - self.reported_time, 1e-9)
        speed = (self.tokens - self.reported_tokens) / seconds
        self.reported_tokens, self.reported_time = self.tokens, self.time
        loss = float(trainer.logged_metrics.get("train_loss", float("nan")))
        status = {"loss": f"{loss:.3f}", "tok/s": f"{speed:,.0f}"}
        for logger in trainer.loggers:
            logger.log_metrics({"tokens_per_second": speed}, step=trainer.global_step)
        if not self.bar.disable:
            self.bar.set_postfix(status)
            return
        steps_done = trainer.global_step - self.first_step
        seconds_left = (self.total - trainer.global_step) * self.time / max(steps_done, 1)
        text = f"loss {status['loss']}, tok/s {status['tok/s']}"
        time_left = f"{tqdm.format_interval(seconds_left)} of training left"
        with ignore_broken_pipe():  # training goes on without its reader
            print(f"step {trainer.global_step:,}/{self.total:,}: {text}, {time_left}", flush=True)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking:
            return
        scores = trainer.callback_metrics
        time_of = f"step {trainer.global_step:,}" if trainer.state.fn == "fit" else "the end"
        text = (
            f"validation at {time_of}: loss {scores['val_loss']:.3f}, "
            f"perplexity {scores['val_ppl']:.2f}"
        )
        module = cast("TranslationModule", pl_module)
        if "val_bleu" in scores:
            text += f", sacreBLEU {scores['val_bleu']:.2f}"
            sources, references = module.data.validation_texts
            text += format_examples(
                sources, references, module.val_translations, self.show_examples
            )
        self._log(trainer, text)
        self.clock = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.bar.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if hasattr(self, "bar"):
            self.bar.close()

    @staticmethod
    def _log(trainer: pl.Trainer, text: str) -> None:
        """To the terminal, above the bar, and to train.log."""
        if trainer.is_global_zero:
            with tqdm.external_write_mode():
                log.info(text)


def format_examples(
    sources: list[str], references: list[str], translations: list[str], count: int
) -> str:
    """``count`` short sentences from all parts of the split, with reference and translation.

    Where too few are short, they are the shortest. The choice depends on sources and references
    alone: it stays the same over a run.
    """

    def length(i: int) -> int:
        return max(SHORT, len(sources[i]), len(references[i]))

    def cut(sentence: str) -> str:
        return sentence if len(sentence) <= WIDTH else sentence[: WIDTH - 1] + "…"

    ranked = sorted(range(len(sources)), key=length)
    num_short = sum(length(i) == SHORT for i in ranked)
    pool = sorted(ranked[: max(count, num_short)])
    count = min(count, len(pool))
    text = ""
    for k in range(count):
        i = pool[(2 * k + 1) * len(pool) // (2 * count)]  # the middle of part k
        text += f"\n  source       {cut(sources[i])}"
        text += f"\n  reference    {cut(references[i])}"
        text += f"\n  translation  {cut(translations[i])}\n"
    return text
