"""The training steps that `benchmark_train.py` measures, each as its own project takes it.

Other toolkits' interpreters run this file too, so its top imports the standard library only.

Each builder returns a function that trains on batches in turn and reports the loss after every
step. mt uses Lightning's loop, every other toolkit its own step in a plain loop. All make their
tensors from lists of ids within the step.
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import benchmark_models as models
from benchmark_models import BOS, EOS, PAD, Pairs, Size, padded

DROPOUT, EPS_LS = 0.1, 0.1
LEARNING_RATE = 3e-4  # of the other toolkits; mt has its schedule

After = Callable[[Any], None]  # gets a step's loss for each target token, perhaps as a tensor
Train = Callable[[Sequence[Pairs], After], None]


def loop(step: Callable[[Pairs], Any]) -> Train:
    """Take a step on each batch."""

    def train(batches: Sequence[Pairs], after: After) -> None:
        for pairs in batches:
            after(step(pairs))

    return train


def sides(pairs: Pairs) -> tuple[list[list[int]], list[list[int]]]:
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def shifted(targets: list[list[int]], bos: int, eos: int, pad: int) -> tuple[Any, Any]:
    """The decoder's inputs and its labels, both [B, T]."""
    ids = padded([[bos, *target] for target in targets], eos, pad)
    return ids[:, :-1].masked_fill(ids[:, 1:] == pad, pad), ids[:, 1:].contiguous()


def autocast(device: str, precision: str) -> Any:
    import torch

    return torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")


def mt_module(size: Size, **options: Any) -> Any:
    """An untrained TranslationModule of a size that takes ids, with further ``options``."""
    from mt.training.lightning_module import TranslationModule

    tokenizer: Any = SimpleNamespace(vocab_size=size.vocabulary, encode=lambda _: [])
    model = {**size.of_mt(), "P_drop": DROPOUT}
    return TranslationModule(tokenizer, model=model, eps_ls=EPS_LS, **options)


def build_mt(size: Size, device: str, precision: str, compiled: bool = False) -> Train:
    """mt.train's loop: Lightning's Trainer with the loggers and the configuration of mt.train."""
    from mt.training.malloc import tune_malloc_for_setup

    tune_malloc_for_setup()  # as mt.train does
    module = mt_module(size)
    if compiled:
        module.compile_layers()
    return partial(fit, module, device=device, precision=precision)


def fit(module: Any, batches: Sequence[Pairs], after: After, device: str, precision: str) -> None:
    """Trainer.fit on these batches, which are collated when the loop asks for them."""
    import numpy as np
    import pytorch_lightning as pl
    from omegaconf import OmegaConf
    from torch.utils.data import DataLoader, Dataset

    from mt.data.batch_sampler import Batch, collate
    from mt.training.setup import make_trainer
    from mt.utils import hydra_app

    arrays = [[[np.array(ids) for ids in side] for side in sides(pairs)] for pairs in batches]

    class Batches(Dataset[Batch]):
        def __len__(self) -> int:
            return len(arrays)

        def __getitem__(self, i: int) -> Batch:
            return collate(*arrays[i])

    class Data(pl.LightningDataModule):
        batches_seen = 0

        def train_dataloader(self) -> DataLoader[Batch]:
            return DataLoader(Batches(), batch_size=None, pin_memory=device == "cuda")

    class Call(pl.Callback):
        def on_train_batch_end(self, *arguments: Any) -> None:
            _trainer, _module, outputs, _batch, number = arguments
            tokens = sum(len(tgt) + 1 for _, tgt in batches[number])
            after(outputs["loss"].detach() / tokens)  # a sum over the only micro-batch

    cfg: Any = OmegaConf.load(Path(hydra_app.CONF) / "train.yaml")
    settings = {
        **cfg.trainer,
        "max_steps": len(batches),
        "accelerator": "gpu" if device == "cuda" else "cpu",
        "devices": 1,
        "precision": {"float32": "32-true", "bfloat16": "bf16-mixed"}[precision],
    }
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        make_trainer(settings, Path(folder), [Call()]).fit(module, Data())


def build_transformers(size: Size, device: str, precision: str) -> Train:
    """Does what its Trainer does by default: fused AdamW, gradients clipped to a norm of 1."""
    import torch
    from transformers.trainer_pt_utils import LabelSmoother

    # By default, its dropout is 0 on attention and activations, and 0.1 elsewhere.
    model = models.marian(size).train().to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, (0.9, 0.98), 1e-9, weight_decay=0, fused=True
    )
    smoother = LabelSmoother(epsilon=EPS_LS)

    def step(pairs: Pairs) -> Any:
        sources, targets = sides(pairs)
        src = padded(sources, EOS, PAD).to(device)
        labels = padded(targets, EOS, smoother.ignore_index).to(device)
        with autocast(device, precision):
            outputs = model(
                input_ids=src,
                attention_mask=(src != PAD).long(),
                decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
                use_cache=False,
            )
            loss = smoother(outputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()
        return loss.detach()

    return loop(step)


def build_torch(size: Size, device: str, precision: str) -> Train:
    """torch.nn.Transformer as tutorials use it, with the paper's embeddings and dropout."""
    import torch
    from torch import nn

    model = nn.Transformer(
        size.d_model, size.heads, size.layers, size.layers, size.d_ff, DROPOUT, batch_first=True
    )
    model.encoder.norm = model.decoder.norm = None  # the paper has no final norms
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        layer.dropout.p = 0.0  # inside the feed-forward network
        layer.self_attn.dropout = 0.0
    for layer in model.decoder.layers:
        layer.multihead_attn.dropout = 0.0
    embedding = nn.Embedding(size.vocabulary, size.d_model, padding_idx=PAD)
    nn.init.normal_(embedding.weight, std=size.d_model**-0.5)
    dropout = nn.Dropout(DROPOUT)
    angles = torch.arange(512)[:, None] * torch.exp(
        torch.arange(0, size.d_model, 2) * (-math.log(10000.0) / size.d_model)
    )
    encoding = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(device)
    modules = nn.ModuleList((model, embedding)).train().to(device)
    optimizer = torch.optim.Adam(modules.parameters(), LEARNING_RATE, (0.9, 0.98), 1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=EPS_LS)

    def embed(ids: Any) -> Any:
        return dropout(embedding(ids) * math.sqrt(size.d_model) + encoding[: ids.shape[1]])

    def step(pairs: Pairs) -> Any:
        sources, targets = sides(pairs)
        src = padded(sources, EOS, PAD).to(device)
        tgt, labels = (side.to(device) for side in shifted(targets, BOS, EOS, PAD))
        T = tgt.shape[1]
        future = torch.ones(T, T, dtype=torch.bool, device=device).triu(1)
        with autocast(device, precision):
            states = model(
                embed(src),
                embed(tgt),
                tgt_mask=future,
                src_key_padding_mask=src == PAD,
                memory_key_padding_mask=src == PAD,
                tgt_is_causal=True,
            )
            logits = nn.functional.linear(states, embedding.weight)
            loss = criterion(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return loop(step)


def build_fairseq(size: Size, device: str, precision: str) -> Train:
    """Keeps the order of its Trainer: gradients over tokens, norm (no clipping), its Adam."""
    model, words = models.fairseq_model(
        size, dropout=DROPOUT, attention_dropout=0.0, activation_dropout=0.0
    )
    # after fairseq_model, which makes fairseq importable
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
    from fairseq.optim.adam import FairseqAdam

    model.train()
    task = SimpleNamespace(target_dictionary=words)
    criterion = LabelSmoothedCrossEntropyCriterion(task, False, label_smoothing=EPS_LS)
    options = SimpleNamespace(lr=[LEARNING_RATE], adam_betas="(0.9, 0.98)", adam_eps=1e-8)
    vars(options).update(weight_decay=0.0, use_old_adam=False, fp16_adam_stats=False, tpu=False)
    optimizer = FairseqAdam(options, list(model.parameters()))

    def step(pairs: Pairs) -> Any:
        sources, targets = sides(pairs)
        src = padded(sources, words.eos(), words.pad())
        tgt, labels = shifted(targets, words.eos(), words.eos(), words.pad())
        lengths = (src != words.pad()).sum(dim=1)
        sample = {
            "net_input": {"src_tokens": src, "src_lengths": lengths, "prev_output_tokens": tgt},
            "target": labels,
            "ntokens": sum(len(ids) + 1 for ids in targets),
        }
        optimizer.zero_grad()
        with autocast(device, precision):
            loss, size_of_sample, _ = criterion(model, sample)
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / size_of_sample)
        optimizer.clip_grad_norm(0.0)
        optimizer.step()
        return loss.item() / size_of_sample

    return loop(step)


def build_joeynmt(size: Size, device: str, precision: str) -> Train:
    """Keeps the order of its TrainManager, which counts correct tokens too; no clipping."""
    from joeynmt.builders import build_optimizer

    model = models.joeynmt_model(size, DROPOUT)
    model.loss_function = ("crossentropy", EPS_LS)
    model.train()
    models.joeynmt_drops_as_the_paper(model)
    adam = {"optimizer": "adam", "learning_rate": LEARNING_RATE, "adam_betas": [0.9, 0.98]}
    optimizer = build_optimizer(adam, model.parameters())

    def step(pairs: Pairs) -> Any:
        batch = models.joeynmt_batch(model, *sides(pairs))
        batch.sort_by_src_length()
        loss, _, _, correct = model(return_type="loss", **vars(batch))
        loss = batch.normalize(loss, normalization="tokens", n_gpu=0, n_accumulation=1)
        correct = batch.normalize(correct, "sum", 0)
        loss.backward()
        value = loss.item()
        correct.item()
        optimizer.step()
        model.zero_grad()
        return value

    return loop(step)


def build_opennmt(size: Size, device: str, precision: str) -> Train:
    """Keeps the order of its Trainer; its Optimizer clips to a norm of 5, the default."""
    from onmt.modules.position_ffn import PositionwiseFeedForward
    from onmt.utils.loss import LossCompute
    from onmt.utils.optimizers import Optimizer

    model, options, vocabularies = models.opennmt_model(
        size,
        f"--dropout {DROPOUT} --attention_dropout 0 --label_smoothing {EPS_LS} --optim adam "
        f"--adam_beta2 0.998 --learning_rate {LEARNING_RATE}",
    )
    model.train()
    for module in model.modules():
        if isinstance(module, PositionwiseFeedForward):
            module.dropout_1.p = 0.0  # dropout_2 is the one on the sublayer's output
    optimizer = Optimizer.from_opt(model, options)
    criterion = LossCompute.from_opts(options, model, vocabularies["tgt"])
    criterion.train()
    _, pad, bos, eos = range(4)

    def step(pairs: Pairs) -> Any:
        sources, targets = sides(pairs)
        src = padded(sources, eos, pad)[:, :, None]
        tgt = padded([[bos, *ids] for ids in targets], eos, pad)[:, :, None]
        batch = {"src": src, "srclen": (src != pad).sum(dim=(1, 2)), "tgt": tgt}
        tokens = (tgt[:, 1:, 0] != pad).sum()
        optimizer.zero_grad(set_to_none=True)
        outputs, attention = model(src, tgt, batch["srclen"], bptt=False, with_align=False)
        loss, _ = criterion(batch, outputs, attention, trunc_start=0, trunc_size=tgt.shape[1])
        loss = loss / tokens
        optimizer.backward(loss)
        optimizer.step()
        return loss.detach()

    return loop(step)


def build_sockeye(size: Size, device: str, precision: str) -> Train:
    """Keeps the order of its EarlyStoppingTrainer, which traces the model too; no clipping."""
    import torch
    from sockeye import constants
    from sockeye.loss import CrossEntropyLoss
    from sockeye.optimizers import OptimizerConfig, get_optimizer
    from sockeye.training import ModelWithLoss

    model = models.sockeye_model(size, DROPOUT).train()
    config = OptimizerConfig("adam", running_on_gpu=False, lr=LEARNING_RATE, betas=(0.9, 0.98))
    make, settings, zeroing = get_optimizer(config)
    optimizer = make(model.parameters(), **settings)
    losses = [CrossEntropyLoss(label_smoothing=EPS_LS)]
    traced: list[Any] = []

    def lengths(ids: Any) -> Any:
        return (ids != constants.PAD_ID).sum(dim=1)

    def step(pairs: Pairs) -> Any:
        sources, targets = sides(pairs)
        src = padded(sources, constants.EOS_ID, constants.PAD_ID).int()
        tgt, labels = shifted(targets, constants.BOS_ID, constants.EOS_ID, constants.PAD_ID)
        lengths_of_src = torch.stack((lengths(src), torch.zeros(len(src))), dim=1).int()
        inputs = (src[:, :, None], lengths_of_src, tgt.int()[:, :, None], lengths(tgt).int())
        if not traced:
            trace = torch.jit.trace(model, inputs, strict=False, check_trace=False)
            traced.append(ModelWithLoss(trace, losses))
        total, values, counts = traced[0](*inputs, {constants.TARGET_LABEL_NAME: labels.int()})
        total.backward()
        for loss, value, count in zip(losses, values, counts, strict=True):
            loss.metric.update(value.item(), count.item())
        optimizer.step()
        optimizer.zero_grad(**zeroing)
        return values[0].detach()

    return loop(step)


class Engine(NamedTuple):
    toolkit: str  # its interpreter runs the engine: NAME in --python
    builder: Callable[..., Train]
    precision: str = "float32"
    on_gpu: bool = False  # whether the benchmark supports it on a GPU
    compiled: bool = False

    def build(self, size: Size, device: str) -> Train:
        return self.builder(size, device, self.precision)


REFERENCE = "transformers-bfloat16"
COMPILED = "mt-compiled-bfloat16"
ENGINES = {
    "mt-float32": Engine("mt", build_mt, on_gpu=True),
    "mt-bfloat16": Engine("mt", build_mt, "bfloat16", on_gpu=True),
    COMPILED: Engine("mt", partial(build_mt, compiled=True), "bfloat16", True, compiled=True),
    "transformers-float32": Engine("transformers", build_transformers, on_gpu=True),
    REFERENCE: Engine("transformers", build_transformers, "bfloat16", on_gpu=True),
    "nn.Transformer-float32": Engine("nn.Transformer", build_torch, on_gpu=True),
    "nn.Transformer-bfloat16": Engine("nn.Transformer", build_torch, "bfloat16", on_gpu=True),
    "fairseq-float32": Engine("fairseq", build_fairseq),
    "fairseq-bfloat16": Engine("fairseq", build_fairseq, "bfloat16"),
    "joeynmt-float32": Engine("joeynmt", build_joeynmt),
    "opennmt-py-float32": Engine("opennmt-py", build_opennmt),
    "sockeye-float32": Engine("sockeye", build_sockeye),
}
TOOLKITS = sorted({engine.toolkit for engine in ENGINES.values()})
