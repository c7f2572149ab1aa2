"""The training of a Transformer as a LightningModule: steps, validation, optimizer."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor

from mt.data.batch_sampler import Batch
from mt.data.tokenizer import Tokenizer
from mt.evaluation import metrics
from mt.inference.translator import Translator
from mt.model.transformer import Transformer
from mt.training.loss import smoothed_cross_entropy
from mt.training.lr_scheduler import learning_rate
from mt.training.malloc import tune_malloc_for_steps


class Diverged(Exception):
    """Training has left the finite numbers; ``pairs`` are the sentences of this rank's batches
    that did so, source and target as the model saw them."""

    def __init__(self, what: str, step: int, pairs: list[tuple[str, str]]) -> None:
        super().__init__(f"{what} at step {step:,}")
        self.step, self.pairs = step, pairs


class _Step(NamedTuple):
    """What an optimizer step leaves to be read when it has long been computed."""

    number: int
    totals: Tensor  # [3] over all ranks: target tokens, ranks that want to stop, summed loss
    copied: torch.cuda.Event | None  # when a GPU's totals will have come here
    batches: list[Batch]  # this rank's micro-batches
    losses: list[Tensor]  # their summed losses

    def read(self) -> list[float]:
        """The totals. To read them on the GPU itself would wait for all that it has to do."""
        if self.copied is not None:
            self.copied.synchronize()
        return cast("list[float]", self.totals.tolist())


class TranslationModule(pl.LightningModule):
    """Trains as section 5 of the paper says and validates by translating.

    ``model`` are the numbers of ``mt.model.Transformer`` but for the vocabulary's size, which is
    the tokenizer's. ``search`` are ``Translator.translate``'s options for validation,
    ``started_from`` the name of a model with whose weights training begins, for the record. Raises
    ValueError, naming the number, when one cannot be trained with.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model: dict[str, Any],
        eps_ls: float = 0.1,
        warmup_steps: int = 4000,
        beta1: float = 0.9,
        beta2: float = 0.98,
        eps: float = 1e-9,
        lr_factor: float = 1.0,
        seed: int = 1,
        max_length: int = 256,
        languages: Sequence[str] = ("en", "de"),
        search: dict[str, Any] | None = None,
        started_from: str | None = None,
    ) -> None:
        super().__init__()
        if type(warmup_steps) is not int or warmup_steps < 1:
            raise ValueError(f"warmup_steps={warmup_steps!r}: must be a whole number of at least 1")
        if type(lr_factor) not in (int, float) or not 0 < lr_factor < math.inf:
            raise ValueError(f"lr_factor={lr_factor!r}: must be a number above 0")
        for name, value in (("eps_ls", eps_ls), ("beta1", beta1), ("beta2", beta2), ("eps", eps)):
            if not isinstance(value, int | float) or not 0 <= value < 1:
                raise ValueError(
                    f"{name}={value!r}: must be a number from 0 up to, not including, 1"
                )
        self.model = Transformer(vocab_size=tokenizer.vocab_size, **model)
        self.tokenizer = tokenizer
        self.save_hyperparameters(ignore=["tokenizer", "model"])
        self.save_hyperparameters({"model": dict(self.model.config)})
        self.eps_ls, self.warmup_steps = eps_ls, warmup_steps
        self.betas, self.eps, self.lr_factor = (beta1, beta2), eps, lr_factor
        self.seed, self.max_length, self.search = seed, max_length, search or {}
        self.languages, self.started_from = languages, started_from
        self._translator().translate([], **self.search)  # wrong search options show at once
        self.stop_requested: bool = False  # set on any rank that wants training to end soon
        self.stopped: bool = False  # set on every rank when training ends for that
        self._batches: list[Batch] = []  # of the step under way
        self._sums: list[Tensor] = []
        self._last: _Step | None = None
        self._settled = False  # a step has been taken
        self._validation = torch.zeros(3, dtype=torch.float64)

    def compile_layers(self) -> None:
        """Have torch.compile make code for the layers, for matrices of any size at once."""
        for layer in (*self.model.encoder, *self.model.decoder):
            layer.compile(dynamic=True)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # What dropout draws follows from (seed, batch, rank), so that a resumed run repeats it.
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        entropy = np.random.SeedSequence((self.seed, data.batches_seen, self.global_rank))
        torch.manual_seed(int(entropy.generate_state(1)[0]))
        data.batches_seen += 1

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums over the batch's target tokens: smoothed loss and plain NLL, in nats."""
        states = self.model.states(batch.src, batch.tgt)
        weight = self.model.embedding.weight
        return smoothed_cross_entropy(states, weight, batch.labels, self.eps_ls)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, nll = self._losses(batch)
        self._batches.append(batch)
        self._sums.append(loss.detach())
        self.log("train_loss", loss.detach() / batch.tgt.tokens)
        self.log("train_nll", nll / batch.tgt.tokens)
        # A sum over tokens, which Lightning would divide by the micro-batches of a step:
        # the step's gradients are divided once, by all its tokens, when they are complete.
        return loss * self.trainer.accumulate_grad_batches

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the summed gradients the mean over the target tokens of the whole step.

        The step is all micro-batches on all ranks; DDP has averaged the sums over the ranks.
        Raises Diverged.
        """
        tokens = self._number(sum(batch.tgt.tokens for batch in self._batches))
        loss = torch.stack(self._sums).sum()
        totals = torch.stack((tokens, self._number(self.stop_requested), loss))
        if self.trainer.world_size > 1:
            dist.all_reduce(totals)
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, self.trainer.world_size / totals[0])
        # Every rank reads the same sums, one step late so that nobody waits for them.
        self._check_loss()
        if self._last is not None and self._last.read()[1] > 0:
            self.stopped = self.trainer.should_stop = True
            self.trainer.limit_val_batches = 0  # whoever asked may not wait for a validation
        number = self.trainer.global_step + 1
        copied = torch.cuda.Event() if totals.is_cuda else None
        totals = totals.to("cpu", non_blocking=True)
        if copied is not None:
            copied.record()
        self._last = _Step(number, totals, copied, self._batches, self._sums)
        self._batches, self._sums = [], []

    def _number(self, value: float) -> Tensor:
        """On the device, without the wait for it that a copy from here would be."""
        return torch.full((), value, dtype=torch.float32, device=self.device)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:  # type: ignore[override]
        super().optimizer_step(epoch, batch_idx, optimizer, closure)
        # Now, not behind the next forward pass as Lightning does: it needs the memory.
        optimizer.zero_grad()
        if not self._settled and self.device.type == "cpu":
            tune_malloc_for_steps()  # all that will stay is there now
        self._settled = True

    def _check_loss(self) -> None:
        if self._last is None or math.isfinite(self._last.read()[2]):
            return
        wrong = [
            batch
            for batch, loss in zip(self._last.batches, self._last.losses, strict=True)
            if not math.isfinite(loss.item())
        ]
        pairs = [pair for batch in wrong for pair in self._texts(batch)]
        raise Diverged("the loss is not a finite number", self._last.number, pairs)

    def _texts(self, batch: Batch) -> list[tuple[str, str]]:
        src, tgt = (
            self.tokenizer.decode(side.padded().tolist()) for side in (batch.src, batch.tgt)
        )
        return list(zip(src, tgt, strict=True))

    def check_finite(self) -> None:
        """Raise Diverged, on all ranks, when the last step or the weights are not worth saving."""
        self._check_loss()
        finite = [p.isfinite().all() for p in self.parameters()]
        if not torch.stack(finite).all():
            raise Diverged("a weight is not a finite number", self.trainer.global_step, [])

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        (scheduler,) = (config.scheduler for config in self.trainer.lr_scheduler_configs)
        self.log("learning_rate", self._number(float(scheduler.get_last_lr()[0])))

    def on_validation_epoch_start(self) -> None:
        self._validation = torch.zeros(3, dtype=torch.float64)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss, nll = self._losses(batch)
        self._validation += torch.tensor([float(loss), float(nll), batch.tgt.tokens])

    def on_validation_epoch_end(self) -> None:
        """Loss and perplexity over all ranks' tokens, and BLEU of real translations.

        ``val_ppl`` is exp of the unsmoothed negative log-likelihood per target token (eos
        counted). ``val_bleu`` is cased sacreBLEU against the untouched references.
        """
        totals = self._validation.to(self.device, torch.float32)
        if self.trainer.world_size > 1:
            dist.all_reduce(totals)
        loss, nll = (totals[:2] / totals[2]).tolist()
        self.log("val_loss", loss)
        self.log("val_ppl", math.exp(min(nll, 100.0)))
        if self.trainer.state.fn == TrainerFn.VALIDATING:  # training is over
            self.log("val_of_mean", 1.0)  # these are the scores of the averaged model
        if not self.trainer.sanity_checking:
            self.log("val_bleu", self._validation_bleu())

    def _translator(self) -> Translator:
        return Translator(self.model, self.tokenizer, self.max_length)

    def _validation_bleu(self) -> float:
        """Each rank translates its share; all of them score the whole."""
        sources, references = self.trainer.datamodule.validation_texts  # type: ignore[attr-defined]
        rank, ranks = self.global_rank, self.trainer.world_size
        share = self._translator().translate(sources[rank::ranks], **self.search)
        shares: list[Any] = [None] * ranks
        mine = [translation.text for translation in share]
        if ranks > 1:
            dist.all_gather_object(shares, mine)
        else:
            shares = [mine]
        hypotheses = [""] * len(sources)
        for r in range(ranks):
            hypotheses[r::ranks] = shares[r]
        # Of a corpus that is tokenised, sacreBLEU would warn at every validation.
        return metrics.bleu(hypotheses, references, force=True).value

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Adam and the learning rate of 5.3; no weight decay."""
        optimizer = torch.optim.Adam(
            self.parameters(),
            lr=1.0,
            betas=self.betas,
            eps=self.eps,
            fused=not self.trainer.gradient_clip_val,  # Lightning cannot clip a fused one under AMP
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda done: learning_rate(
                done + 1, self.model.d_model, self.warmup_steps, self.lr_factor
            ),
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }
