"""Does the fast training step learn what a plain one learns? The phrasebook's first 500 steps.

python scripts/compare_learning.py --output results/learning.json --picture results/learning.png

The plain step is written down here with PyTorch's own functions and no trick: padded sentences,
masks, F.dropout, all logits at once, F.cross_entropy, Adam in a loop. The fast one is mt.train's:
TranslationModule in Lightning's Trainer. Both begin with the same weights and see the same batches
in the same order; what dropout draws differs, as between two seeds. Runs:

* without dropout, where nothing is left to chance: the loss of every step side by side;
* with dropout, each with several seeds: plain, fast in float32, fast in bfloat16. Differences of
  the mean loss over the last 100 steps, beside what they are between seeds of the plain step.
"""

import argparse
import contextlib
import io
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from benchmarking import command_line, machine
from torch import Tensor

from mt.data.batch_sampler import Batch
from mt.data.datamodule import TranslationData
from mt.data.preprocessing import PairFilter
from mt.data.readers import PhrasebookReader
from mt.data.tokenizer import Tokenizer, train
from mt.model.transformer import Transformer, positional_encoding
from mt.training.lightning_module import TranslationModule
from mt.training.lr_scheduler import learning_rate

SHAPE = {"N": 3, "d_model": 128, "d_ff": 512, "h": 4}  # conf/model/tiny.yaml
WARMUP, EPS_LS = 400, 0.1
LAST = 100  # steps whose mean loss is compared


# ------------------------------------------------------------------------------ the plain step


def plain_logits(model: Transformer, src: Tensor, tgt: Tensor) -> Tensor:
    """Padded ids [B, S] and [B, T] -> logits [B, T, V], with the weights of ``model``."""
    P_drop, h = model.dropout.P_drop, model.h
    E = model.embedding.weight

    def drop(x: Tensor) -> Tensor:
        return F.dropout(x, P_drop, training=True)

    def embed(ids: Tensor) -> Tensor:
        positions = positional_encoding(torch.arange(ids.shape[1]), model.d_model)
        return drop(F.embedding(ids, E, padding_idx=0) * math.sqrt(model.d_model) + positions)

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (h, -1)).transpose(1, 2)  # [B, h, T, d_k]

    def attend(Q: Tensor, K: Tensor, V: Tensor, hidden: Tensor) -> Tensor:
        scores = heads(Q) @ heads(K).transpose(2, 3) / math.sqrt(model.d_model // h)
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        return (weights @ heads(V)).transpose(1, 2).flatten(2)

    def add_norm(layer: Any, x: Tensor, sublayer: Tensor) -> Tensor:
        return F.layer_norm(x + drop(sublayer), x.shape[-1:], layer.norm.weight, layer.norm.bias)

    def feed_forward(layer: Any, x: Tensor) -> Tensor:
        return layer.W_2(torch.relu(layer.W_1(x)))

    padding = (src == 0)[:, None, None]  # [B, 1, 1, S]
    future = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
    x = embed(src)
    for layer in model.encoder:
        attention = layer.self_attention
        mixed = attend(*attention.W_QKV(x).chunk(3, dim=-1), padding)
        x = add_norm(layer.add_norm[0], x, attention.W_O(mixed))
        x = add_norm(layer.add_norm[1], x, feed_forward(layer.feed_forward, x))
    y = embed(tgt)
    for layer in model.decoder:
        attention, cross = layer.self_attention, layer.cross_attention
        mixed = attend(*attention.W_QKV(y).chunk(3, dim=-1), future)
        y = add_norm(layer.add_norm[0], y, attention.W_O(mixed))
        mixed = attend(cross.W_Q(y), *cross.W_KV(x).chunk(2, dim=-1), padding)
        y = add_norm(layer.add_norm[1], y, cross.W_O(mixed))
        y = add_norm(layer.add_norm[2], y, feed_forward(layer.feed_forward, y))
    return y @ E.T


def learn_plainly(model: Transformer, batches: Sequence[Batch], seed: int) -> list[float]:
    """Train on the batches; the loss per target token of each."""
    torch.manual_seed(seed)
    model.train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, foreach=False
    )
    losses = []
    for step, batch in enumerate(batches, 1):
        optimizer.param_groups[0]["lr"] = learning_rate(step, model.d_model, WARMUP)
        tgt = batch.tgt.padded()
        logits = plain_logits(model, batch.src.padded(), tgt)[tgt != 0]
        loss = F.cross_entropy(logits, batch.labels, label_smoothing=EPS_LS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


# ------------------------------------------------------------------------------- the fast step


class Losses(pl.Callback):
    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.values.append(float(trainer.callback_metrics["train_loss"]))


def make_trainer(steps: int, precision: str, callbacks: list[pl.Callback]) -> pl.Trainer:
    with contextlib.redirect_stderr(io.StringIO()):  # its greeting
        return pl.Trainer(
            max_steps=steps,
            accelerator="cpu",
            devices=1,
            precision=precision,  # type: ignore[arg-type]
            logger=False,
            callbacks=callbacks,
            limit_val_batches=0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )


def learn_fast(
    module: TranslationModule, data: TranslationData, steps: int, precision: str
) -> list[float]:
    losses = Losses()
    make_trainer(steps, precision, [losses]).fit(module, data)
    return losses.values


# --------------------------------------------------------------------------------- all the runs


def make_data(tokenizer: Tokenizer, folder: str, max_tokens: int) -> TranslationData:
    data = TranslationData(
        PhrasebookReader(), tokenizer, PairFilter(), max_tokens, folder, seed=1, limit=32000
    )
    data.trainer = make_trainer(1, "32-true", [])
    data.setup("fit")
    return data


def make_module(tokenizer: Tokenizer, P_drop: float, seed: int) -> TranslationModule:
    """The same weights for every seed, which is dropout's."""
    torch.manual_seed(1)
    shape = {**SHAPE, "P_drop": P_drop}
    return TranslationModule(tokenizer, shape, eps_ls=EPS_LS, warmup_steps=WARMUP, seed=seed)


def first_batches(data: TranslationData, steps: int) -> list[Batch]:
    batches: list[Batch] = []
    data.batches_seen = 0
    while len(batches) < steps:
        batches.extend(data.train_dataloader())
        data.batches_seen = len(batches)
    data.batches_seen = 0
    return batches[:steps]


def learn(
    kind: str, P_drop: float, seed: int, steps: int, tokenizer: Tokenizer, max_tokens: int
) -> dict[str, Any]:
    """One run: plain, or fast in a precision."""
    module = make_module(tokenizer, P_drop, seed)
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(tokenizer, folder, max_tokens)
        if kind == "plain":
            losses = learn_plainly(module.model, first_batches(data, steps), seed)
        else:
            precision = {"float32": "32-true", "bfloat16": "bf16-mixed"}[kind]
            losses = learn_fast(module, data, steps, precision)
    last = statistics.mean(losses[-LAST:])
    print(f"{kind}, P_drop {P_drop}, seed {seed}: loss of the last {LAST} steps {last:.4f}")
    return {"kind": kind, "P_drop": P_drop, "seed": seed, "last": last, "losses": losses}


def conclusions(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Distances without dropout; with it, means over the seeds and the spread of the plain step."""
    exact = {run["kind"]: run["losses"] for run in runs if run["P_drop"] == 0}
    found: dict[str, Any] = {}
    if {"plain", "float32"} <= exact.keys():
        pairs = list(zip(exact["plain"], exact["float32"], strict=True))
        found["without dropout, float32 - plain"] = {
            "greatest difference in a step": max(abs(a - b) for a, b in pairs),
            "of the last steps' mean": statistics.mean(b - a for a, b in pairs[-LAST:]),
        }
    last: dict[str, list[float]] = {}
    for run in runs:
        if run["P_drop"] > 0:
            last.setdefault(run["kind"], []).append(run["last"])
    for kind, values in last.items():
        found[f"with dropout, {kind}"] = {
            "mean of the seeds": statistics.mean(values),
            "greatest difference between seeds": max(values) - min(values),
            "to plain": statistics.mean(values) - statistics.mean(last["plain"]),
        }
    return found


def draw(runs: Sequence[dict[str, Any]], path: str) -> None:
    try:
        import matplotlib
    except ImportError:
        print(f"{path} is not drawn: matplotlib is not installed here", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    colours = {"plain": "black", "float32": "tab:orange", "bfloat16": "tab:blue"}
    for axis, dropout in zip(axes, (False, True), strict=True):
        for run in (run for run in runs if (run["P_drop"] > 0) == dropout):
            size = 10  # steps a point
            blocks = [run["losses"][i : i + size] for i in range(0, len(run["losses"]), size)]
            steps = [size * (i + 1) for i in range(len(blocks))]
            style = "--" if run["kind"] == "plain" else "-"
            label = f"{run['kind']}, seed {run['seed']}"
            means = [statistics.mean(block) for block in blocks]
            axis.plot(steps, means, style, color=colours[run["kind"]], label=label, linewidth=1)
        axis.set_title("P_drop 0.1" if dropout else "no dropout")
        axis.set_xlabel("step")
        axis.legend()
    axes[0].set_ylabel("smoothed loss, nats a target token")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="The fast training step against a plain one.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=2, help="of dropout")
    parser.add_argument("--max-tokens", type=int, default=1024, help="a side in a batch")
    parser.add_argument("--vocabulary", type=int, default=4000, help="pieces")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", help="JSON")
    parser.add_argument("--picture", help="PNG")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pairs = list(PhrasebookReader().pairs("train"))[:32000]
    tokenizer = train((side for pair in pairs for side in pair), args.vocabulary)
    options = args.steps, tokenizer, args.max_tokens
    runs = [learn(kind, 0.0, 1, *options) for kind in ("plain", "float32")]
    for seed in range(1, args.seeds + 1):
        runs += [learn(kind, 0.1, seed, *options) for kind in ("plain", "float32", "bfloat16")]
    found = conclusions(runs)
    print(json.dumps(found, indent=2))
    if args.output:
        for run in runs:
            run["losses"] = [round(loss, 5) for loss in run["losses"]]
        about = {"date": date.today().isoformat(), "command": command_line(), "machine": machine()}
        report = {**about, "conclusions": found, "runs": runs}
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.picture:
        draw(runs, args.picture)


if __name__ == "__main__":
    main()
