"""The training steps that `benchmark_train.py` measures, each as its own project takes it.

`benchmark_train.py` says what is equal and what is not, and is what to run. The peers' own
interpreters read this file too: at its top it imports nothing but Python's own.

Each builder gives a function that trains on batches in turn and calls back after every step. Ours
is Lightning's loop, the others' their own step in a plain one; all make tensors from lists of ids
within the step.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmark_models import (
    BOS,
    EOS,
    PAD,
    Pairs,
    Size,
    fairseq_model,
    joeynmt_drops_as_the_paper,
    joeynmt_model,
    marian,
    opennmt_model,
    padded,
    sockeye_model,
)

DROPOUT = 0.1
EPS_LS = 0.1
LEARNING_RATE = 3e-4  # the peers'; ours has its schedule

After = Callable[[Any], None]  # gets a step's loss for each target token, maybe still a tensor
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
    """What the decoder sees and what it should say, both [B, T]."""
    both = padded([[bos, *ids] for ids in targets], eos, pad)
    return both[:, :-1].masked_fill(both[:, 1:] == pad, pad), both[:, 1:].contiguous()


def autocast(device: str, precision: str) -> Any:
    import torch

    return torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")


# ------------------------------------------------------------------------------------------ ours


def our_module(size: Size, **options: Any) -> Any:
    """TranslationModule of a size, untrained, for ids alone; ``options`` are its own."""
    from types import SimpleNamespace

    from mt.training.lightning_module import TranslationModule

    tokenizer: Any = SimpleNamespace(vocab_size=size.vocabulary, encode=lambda _: [])
    shape = {"N": size.layers, "d_model": size.d_model, "d_ff": size.d_ff, "h": size.heads}
    model = {**shape, "P_drop": DROPOUT}
    return TranslationModule(tokenizer, model=model, eps_ls=EPS_LS, **options)


def build_mt(size: Size, device: str, precision: str, compiled: bool = False) -> Train:
    """Lightning's loop as `mt.train` has it: its Trainer, with its loggers and configuration."""
    from mt.training.malloc import tune_malloc_for_setup

    tune_malloc_for_setup()  # as mt.train does
    module = our_module(size)
    if compiled:
        module.compile_layers()

    def train(batches: Sequence[Pairs], after: After) -> None:
        fit(module, batches, after, device, precision)

    return train


def fit(module: Any, batches: Sequence[Pairs], after: After, device: str, precision: str) -> None:
    """Trainer.fit on these batches, collated as they are asked for."""
    import tempfile
    from pathlib import Path

    import numpy as np
    import pytorch_lightning as pl
    from omegaconf import DictConfig, OmegaConf
    from torch.utils.data import DataLoader, Dataset

    from mt.data.batch_sampler import Batch, collate
    from mt.train import _trainer
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
            after(outputs["loss"].detach() / tokens)  # of a sum, and of one micro-batch a step

    cfg = OmegaConf.load(Path(hydra_app.CONF) / "train.yaml")
    assert isinstance(cfg, DictConfig)
    cfg.trainer.max_steps = len(batches)
    cfg.trainer.accelerator = "gpu" if device == "cuda" else "cpu"
    cfg.trainer.devices = 1
    cfg.trainer.precision = {"float32": "32-true", "bfloat16": "bf16-mixed"}[precision]
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        trainer = _trainer(cfg, Path(folder), [Call()])
        trainer.fit(module, Data())


# ------------------------------------------------------------------------------------- the peers


def build_transformers(size: Size, device: str, precision: str) -> Train:
    """As its Trainer does it by default: fused AdamW, gradients clipped to a norm of 1."""
    import torch
    from transformers.trainer_pt_utils import LabelSmoother

    # Its dropout of attention and activation is 0 by default, its other dropout 0.1.
    model = marian(size).train().to(device)
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


def build_nn_transformer(size: Size, device: str, precision: str) -> Train:
    """torch.nn.Transformer as tutorials use it, with the paper's embeddings and its dropout."""
    import torch
    from torch import nn

    model = nn.Transformer(
        size.d_model, size.heads, size.layers, size.layers, size.d_ff, DROPOUT, batch_first=True
    )
    model.encoder.norm = model.decoder.norm = None  # the paper has none behind the layers
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
    both = nn.ModuleList((model, embedding)).train().to(device)
    optimizer = torch.optim.Adam(both.parameters(), LEARNING_RATE, (0.9, 0.98), 1e-9)
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
    """In the order of its Trainer: gradients over tokens, their norm (no clipping), its Adam."""
    from types import SimpleNamespace

    model, words = fairseq_model(
        size, dropout=DROPOUT, attention_dropout=0.0, activation_dropout=0.0
    )
    # where fairseq_model has imported it
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
    from fairseq.optim.adam import FairseqAdam

    model.train()
    task = SimpleNamespace(target_dictionary=words)
    criterion = LabelSmoothedCrossEntropyCriterion(task, False, label_smoothing=EPS_LS)
    options = SimpleNamespace(
        lr=[LEARNING_RATE],
        adam_betas="(0.9, 0.98)",
        adam_eps=1e-8,
        weight_decay=0.0,
        use_old_adam=False,
        fp16_adam_stats=False,
        tpu=False,
    )
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
    """In the order of its TrainManager, which counts correct tokens too; no clipping."""
    import torch
    from joeynmt.batch import Batch
    from joeynmt.builders import build_optimizer

    model = joeynmt_model(size, DROPOUT)
    model.loss_function = ("crossentropy", EPS_LS)
    model.train()
    joeynmt_drops_as_the_paper(model)
    adam = {"optimizer": "adam", "learning_rate": LEARNING_RATE, "adam_betas": [0.9, 0.98]}
    optimizer = build_optimizer(adam, model.parameters())
    bos, eos, pad = model.bos_index, model.eos_index, model.pad_index

    def step(pairs: Pairs) -> Any:
        sources, targets = sides(pairs)
        src = padded(sources, eos, pad)
        batch = Batch(
            src=src,
            src_length=(src != pad).sum(dim=1),
            src_prompt_mask=None,
            trg=padded([[bos, *ids] for ids in targets], eos, pad),
            trg_prompt_mask=None,
            indices=torch.arange(len(src)),
            device=src.device,
            pad_index=pad,
            eos_index=eos,
            is_train=True,
        )
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
    """In the order of its Trainer; its Optimizer clips to a norm of 5, its default."""
    from onmt.modules.position_ffn import PositionwiseFeedForward
    from onmt.utils.loss import LossCompute
    from onmt.utils.optimizers import Optimizer

    model, options, vocabularies = opennmt_model(
        size,
        f"--dropout {DROPOUT} --attention_dropout 0 --label_smoothing {EPS_LS} --optim adam "
        f"--adam_beta2 0.998 --learning_rate {LEARNING_RATE}",
    )
    model.train()
    for module in model.modules():
        if isinstance(module, PositionwiseFeedForward):
            module.dropout_1.p = 0.0  # inside; dropout_2 is the sublayer's
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
    """In the order of its EarlyStoppingTrainer, traced as there; no clipping."""
    import torch
    from sockeye import constants
    from sockeye.loss import CrossEntropyLoss
    from sockeye.optimizers import OptimizerConfig, get_optimizer
    from sockeye.training import ModelWithLoss

    model = sockeye_model(size, DROPOUT).train()
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


# ----------------------------------------------------------------------------------- the engines


class Engine(NamedTuple):
    peer: str  # whose interpreter runs it: NAME of --python
    packages: tuple[str, ...]  # what that interpreter must have
    builder: Callable[..., Train]
    precision: str = "float32"
    on_gpu: bool = False  # whether it is driven there, too
    compiled: bool = False

    def build(self, size: Size, device: str) -> Train:
        return self.builder(size, device, self.precision)


_OURS = Engine("mt", ("mt.train",), build_mt, on_gpu=True)
_HF = Engine("transformers", ("transformers",), build_transformers, on_gpu=True)
_NN = Engine("nn.Transformer", ("torch",), build_nn_transformer, on_gpu=True)
_FAIRSEQ = Engine("fairseq", ("fairseq",), build_fairseq)

REFERENCE = "transformers-bfloat16"
COMPILED = "mt-compiled-bfloat16"
ENGINES = {
    "mt-float32": _OURS,
    "mt-bfloat16": _OURS._replace(precision="bfloat16"),
    COMPILED: _OURS._replace(
        precision="bfloat16", compiled=True, builder=partial(build_mt, compiled=True)
    ),
    "transformers-float32": _HF,
    REFERENCE: _HF._replace(precision="bfloat16"),
    "nn.Transformer-float32": _NN,
    "nn.Transformer-bfloat16": _NN._replace(precision="bfloat16"),
    "fairseq-float32": _FAIRSEQ,
    "fairseq-bfloat16": _FAIRSEQ._replace(precision="bfloat16"),
    "joeynmt-float32": Engine("joeynmt", ("joeynmt",), build_joeynmt),
    "opennmt-py-float32": Engine("opennmt-py", ("onmt",), build_opennmt),
    "sockeye-float32": Engine("sockeye", ("sockeye",), build_sockeye),
}
