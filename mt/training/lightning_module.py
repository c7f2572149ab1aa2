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
from torch.optim.lr_scheduler import LambdaLR

from mt.data.batch_sampler import Batch
from mt.data.datamodule import TranslationData
from mt.data.tokenizer import Tokenizer
from mt.evaluation import metrics
from mt.inference.translator import Translator
from mt.model.decoder_only import DecoderOnly, make_model
from mt.training.loss import smoothed_cross_entropy
from mt.training.lr_scheduler import learning_rate
from mt.training.malloc import tune_malloc_for_steps
from mt.utils.checks import check_bool, check_int, check_number, check_positive
from mt.utils.torch_private import multiply_all


class Diverged(Exception):
    """The loss or a weight is no longer finite.

    ``pairs`` are the source and target sentences of this rank's batches whose loss is not.
    """

    def __init__(self, message: str, step: int, pairs: list[tuple[str, str]]) -> None:
        super().__init__(f"{message} at step {step:,}")
        self.step, self.pairs = step, pairs


class _PendingStep(NamedTuple):
    """An optimizer step whose totals are read one step later, when the device has them ready."""

    number: int
    totals: Tensor  # [4] over all ranks: tokens, ranks that want to stop, summed loss and NLL
    copied: torch.cuda.Event | None  # happens when a GPU's totals have arrived in CPU memory
    batches: list[Batch]  # this rank's micro-batches
    losses: list[Tensor]  # and the summed loss of each

    def read(self) -> list[float]:
        """The totals. Reading them on the GPU would wait for all of its queued work."""
        if self.copied is not None:
            self.copied.synchronize()
        return cast("list[float]", self.totals.tolist())


class TranslationModule(pl.LightningModule):
    """Trains as section 5 of the paper describes and validates by translating.

    ``model`` holds the arguments of ``mt.model.decoder_only.make_model`` except ``vocab_size``,
    which the tokenizer has. ``search`` holds the options of ``Translator.translate`` for
    validation. ``started_from`` names the model that provides the initial weights, for the record.

    Raises ValueError, with the setting's name, when a value is out of range.
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
        loss_on_source: bool = False,
    ) -> None:
        super().__init__()
        check_int("warmup_steps", warmup_steps, most=10**9)
        check_positive("lr_factor", lr_factor)
        for name, value in (("eps_ls", eps_ls), ("beta1", beta1), ("beta2", beta2)):
            check_number(name, value, 0, below=1)
        check_number("eps", eps, 1e-30, below=1)  # a float32 above 0: Adam divides by it
        check_bool("loss_on_source", loss_on_source)
        self.model = make_model(tokenizer.vocab_size, **model)
        if loss_on_source and not isinstance(self.model, DecoderOnly):
            raise ValueError("loss_on_source=true is for model.architecture=decoder_only")
        self.loss_on_source = loss_on_source
        self.tokenizer = tokenizer
        self.save_hyperparameters(ignore=["tokenizer", "model"])
        self.save_hyperparameters({"model": dict(self.model.config)})
        self.eps_ls, self.warmup_steps = eps_ls, warmup_steps
        self.betas, self.eps, self.lr_factor = (beta1, beta2), eps, lr_factor
        self.seed, self.max_length, self.search = seed, max_length, search or {}
        self.languages, self.started_from = languages, started_from
        self._translator().translate([], **self.search)  # raises for wrong search options
        self.stop_requested: bool = False  # set on any rank that wants training to end soon
        self.stopped: bool = False  # set on every rank when training ends by such a request
        self.val_translations: list[str] = []  # of the validation sources, by the last validation
        self._batches: list[Batch] = []  # micro-batches of the current step
        self._batch_losses: list[Tensor] = []  # and the summed loss of each
        self._batch_nlls: list[Tensor] = []
        self._pending: _PendingStep | None = None
        self._malloc_tuned = False
        self._val_totals = torch.zeros(3, dtype=torch.float64)  # loss, NLL, target tokens

    def compile_layers(self) -> None:
        """Let torch.compile generate code for the layers, once for matrices of any size."""
        self.model.compiled = True
        for layer in self.model.layers:
            layer.compile(dynamic=True)

    @property
    def data(self) -> TranslationData:
        """The data module of the run."""
        return cast("TranslationData", self.trainer.datamodule)  # type: ignore[attr-defined]

    # Training

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # (seed, batch, rank) determine the dropout masks, so that a resumed run repeats them.
        entropy = np.random.SeedSequence((self.seed, self.data.batches_seen, self.global_rank))
        torch.manual_seed(int(entropy.generate_state(1)[0]))
        self.data.batches_seen += 1

    def _loss_and_nll(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums over the batch's target tokens, in nats: smoothed loss and unsmoothed NLL."""
        states, labels = self.model.states(batch.src, batch.tgt), batch.labels
        return smoothed_cross_entropy(states, self.model.output_weight, labels, self.eps_ls)

    def _training_loss_and_nll(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same over all tokens that training predicts."""
        if not (self.loss_on_source and isinstance(self.model, DecoderOnly)):
            return self._loss_and_nll(batch)
        states, labels = self.model.states_of_both(*batch)
        return smoothed_cross_entropy(states, self.model.output_weight, labels, self.eps_ls)

    def _num_predicted(self, batch: Batch) -> int:
        """Tokens that training predicts: the targets', and of a source all but its first."""
        of_source = batch.src.tokens - len(batch.src.rows) if self.loss_on_source else 0
        return batch.tgt.tokens + of_source

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, nll = self._training_loss_and_nll(batch)
        self._batches.append(batch)
        self._batch_losses.append(loss.detach())
        self._batch_nlls.append(nll.detach())
        # Lightning divides the loss by the micro-batches of a step. This undoes it: the complete
        # gradients of the step are divided once, by the number of its target tokens.
        return loss * self.trainer.accumulate_grad_batches

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the summed gradients into the mean over the target tokens of the whole step.

        The step is all micro-batches on all ranks; DDP has averaged the sums over the ranks. The
        logged loss and NLL are means over the same tokens. Raises Diverged.
        """
        self.log("learning_rate", self._scalar(optimizer.param_groups[0]["lr"]))
        tokens = self._scalar(sum(map(self._num_predicted, self._batches)))
        loss, nll = (torch.stack(one).sum() for one in (self._batch_losses, self._batch_nlls))
        totals = torch.stack((tokens, self._scalar(self.stop_requested), loss, nll))
        if self.trainer.world_size > 1:
            dist.all_reduce(totals)
        self.log("train_loss", totals[2] / totals[0])
        self.log("train_nll", totals[3] / totals[0])
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        multiply_all(gradients, self.trainer.world_size / totals[0])
        # Every rank reads the same totals, one step late so that none waits for its device.
        self._check_pending_loss()
        is_single = self.trainer.world_size == 1
        if (is_single and self.stop_requested) or (self._pending and self._pending.read()[1] > 0):
            self.stopped = self.trainer.should_stop = True
            self.trainer.limit_val_batches = 0  # the request cannot wait for a validation
        copied = torch.cuda.Event() if totals.is_cuda else None
        totals = totals.to("cpu", non_blocking=True)
        if copied is not None:
            copied.record()
        step = self.trainer.global_step + 1
        self._pending = _PendingStep(step, totals, copied, self._batches, self._batch_losses)
        self._batches, self._batch_losses, self._batch_nlls = [], [], []

    def _scalar(self, value: float) -> Tensor:
        """A scalar made on the device: copying one there would wait for the device."""
        return torch.full((), value, dtype=torch.float32, device=self.device)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:  # type: ignore[override]
        super().optimizer_step(epoch, batch_idx, optimizer, closure)
        # Lightning frees the gradients after the next forward pass, which needs their memory.
        optimizer.zero_grad()
        if not self._malloc_tuned and self.device.type == "cpu":
            tune_malloc_for_steps()  # all long-lived tensors exist now
        self._malloc_tuned = True

    def _check_pending_loss(self) -> None:
        if self._pending is None or math.isfinite(self._pending.read()[2]):
            return
        batches = zip(self._pending.batches, self._pending.losses, strict=True)
        diverged = [batch for batch, loss in batches if not math.isfinite(loss.item())]
        pairs = [pair for batch in diverged for pair in self._sentences(batch)]
        raise Diverged("the loss is not a finite number", self._pending.number, pairs)

    def _sentences(self, batch: Batch) -> list[tuple[str, str]]:
        sides = (self.tokenizer.decode(side.padded().tolist()) for side in (batch.src, batch.tgt))
        return list(zip(*sides, strict=True))

    def check_finite(self) -> None:
        """Raise Diverged, on all ranks, when the last loss or a weight is not finite."""
        self._check_pending_loss()
        finite = torch.stack([p.isfinite().all() for p in self.parameters()]).all()
        # A rank of FSDP has a part of the weights.
        if not self.trainer.strategy.reduce_boolean_decision(bool(finite), all=True):
            raise Diverged("a weight is not a finite number", self.trainer.global_step, [])

    # Validation

    def on_validation_epoch_start(self) -> None:
        self._val_totals.zero_()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss, nll = self._loss_and_nll(batch)
        totals = [float(loss), float(nll), batch.tgt.tokens]
        self._val_totals += torch.tensor(totals, dtype=self._val_totals.dtype)

    def on_validation_epoch_end(self) -> None:
        """Log loss and perplexity over all ranks' tokens, and BLEU of real translations.

        ``val_ppl`` is exp of the unsmoothed negative log-likelihood per target token, eos
        included. ``val_bleu`` is cased sacreBLEU against the untouched references; a corpus without
        sources has none.
        """
        totals = self._val_totals.to(self.device, torch.float32)
        if self.trainer.world_size > 1:
            dist.all_reduce(totals)
        loss, nll = (totals[:2] / totals[2]).tolist()
        self.log("val_loss", loss)
        self.log("val_ppl", math.exp(min(nll, 100.0)))
        if self.trainer.state.fn == TrainerFn.VALIDATING:  # training is over
            self.log("val_of_mean", 1.0)  # marks the scores of the averaged model
        if not self.trainer.sanity_checking:
            sources, references = self.data.validation_texts
            if not any(map(str.strip, sources)):
                return
            self.val_translations = self._translate(sources)
            # Without force, sacreBLEU would warn about a tokenised corpus at every validation.
            score = metrics.bleu(self.val_translations, references, True, self.languages[1])
            self.log("val_bleu", score.value)

    def _translator(self) -> Translator:
        return Translator(self.model, self.tokenizer, self.max_length)

    def _translate(self, sources: list[str]) -> list[str]:
        """Translations of all sources, on every rank; each rank translates its share."""
        rank, ranks = self.global_rank, self.trainer.world_size
        results = self._translator().translate(sources[rank::ranks], **self.search)
        share = [result.text for result in results]
        if ranks == 1:
            return share
        shares: list[Any] = [None] * ranks
        dist.all_gather_object(shares, share)
        translations = [""] * len(sources)
        for rank, share in enumerate(shares):
            translations[rank::ranks] = share
        return translations

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Adam and the learning rate of 5.3; no weight decay."""
        optimizer, scheduler = self._optimizer()
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def _optimizer(self, steps_done: int = 0) -> tuple[torch.optim.Adam, LambdaLR]:
        """Adam with the learning rate of step ``steps_done`` + 1, and the rates of all steps."""
        # LambdaLR multiplies lr, so that this is 1. Lightning cannot clip gradients for a fused
        # optimizer under AMP.
        fused = not self.trainer.gradient_clip_val
        group = {"params": list(self.parameters()), "initial_lr": 1.0}
        optimizer = torch.optim.Adam([group], lr=1.0, betas=self.betas, eps=self.eps, fused=fused)

        def rate(steps_done: int) -> float:
            step = steps_done + 1
            return learning_rate(step, self.model.d_model, self.warmup_steps, self.lr_factor)

        return optimizer, LambdaLR(optimizer, rate, last_epoch=steps_done - 1)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Of a checkpoint take what was learned, and of the settings what they say.

        Otherwise Adam would keep the numbers of the checkpoint whatever the settings are.
        """
        optimizer, scheduler = self._optimizer(checkpoint["global_step"])
        (state,) = checkpoint["optimizer_states"]
        state["param_groups"] = optimizer.state_dict()["param_groups"]
        checkpoint["lr_schedulers"] = [scheduler.state_dict()]
