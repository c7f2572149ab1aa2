"""Does the fast training step learn what a plain one learns? The phrasebook's first 500 steps.

python scripts/benchmarks/compare_learning.py --output results/learning.json \\
    --picture results/learning.png

The plain step uses `mt.model.reference` and no trick; the fast step is that of mt.train. Without
dropout, the losses of every step are compared. With dropout, the differences of the mean loss over
the last 100 steps stand beside those between the seeds of the plain step. docs/performance.md says
what is equal and what is not.
"""

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from benchmarking import add_output_options, new_parser
from reporting import group_by, new_report, pyplot_for, save_figure, write_report

from mt.data.batch_sampler import Batch
from mt.data.datamodule import TranslationData
from mt.data.preprocessing import PairFilter
from mt.data.readers import PhrasebookReader
from mt.data.special_ids import PAD
from mt.data.tokenizer import Tokenizer, train
from mt.model.reference import from_fast
from mt.model.transformer import Transformer as FastTransformer
from mt.training.lightning_module import TranslationModule
from mt.training.lr_scheduler import learning_rate
from mt.training.setup import make_trainer

SHAPE = {"N": 3, "d_model": 128, "d_ff": 512, "h": 4}  # conf/model/tiny.yaml
WARMUP, EPS_LS = 400, 0.1
LAST = 100  # steps whose mean loss is compared
PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed"}


def learn_plainly(fast: FastTransformer, batches: Sequence[Batch], seed: int) -> list[float]:
    """Train a copy of the weights on the batches; returns the loss per target token of each."""
    torch.manual_seed(seed)
    model = from_fast(fast).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, foreach=False
    )
    losses = []
    for step, batch in enumerate(batches, 1):
        optimizer.param_groups[0]["lr"] = learning_rate(step, SHAPE["d_model"], WARMUP)
        tgt = batch.tgt.padded()
        logits = model(batch.src.padded(), tgt)[tgt != PAD]
        loss = F.cross_entropy(logits, batch.labels, label_smoothing=EPS_LS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


class Losses(pl.Callback):
    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.values.append(float(trainer.callback_metrics["train_loss"]))


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
    """One run; its kind is "plain", or the precision of the fast step."""
    torch.manual_seed(1)  # the same weights for every seed, which is dropout's
    shape = {**SHAPE, "P_drop": P_drop}
    module = TranslationModule(tokenizer, shape, eps_ls=EPS_LS, warmup_steps=WARMUP, seed=seed)
    callback = Losses()
    settings = {"max_steps": steps, "accelerator": "cpu", "devices": 1}
    with tempfile.TemporaryDirectory() as folder:
        data = TranslationData(
            PhrasebookReader(), tokenizer, PairFilter(), max_tokens, folder, seed=1, limit=32000
        )
        precision = PRECISIONS.get(kind, "32-true")
        trainer = make_trainer({**settings, "precision": precision}, Path(folder), [callback])
        data.trainer = trainer
        data.setup("fit")
        if kind == "plain":
            losses = learn_plainly(module.model, first_batches(data, steps), seed)
        else:
            trainer.fit(module, data)
            losses = callback.values
    last = statistics.mean(losses[-LAST:])
    print(f"{kind}, P_drop {P_drop}, seed {seed}: loss of the last {LAST} steps {last:.4f}")
    return {"kind": kind, "P_drop": P_drop, "seed": seed, "last": last, "losses": losses}


def conclusions(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Differences without dropout; with dropout, means over the seeds and differences of seeds."""
    exact = {run["kind"]: run["losses"] for run in runs if run["P_drop"] == 0}
    results: dict[str, Any] = {}
    if {"plain", "float32"} <= exact.keys():
        pairs = list(zip(exact["plain"], exact["float32"], strict=True))
        results["without dropout, float32 - plain"] = {
            "greatest difference in a step": max(abs(a - b) for a, b in pairs),
            "of the last steps' mean": statistics.mean(b - a for a, b in pairs[-LAST:]),
        }
    with_dropout = group_by((run for run in runs if run["P_drop"] > 0), "kind")
    last = {kind: [run["last"] for run in group] for kind, group in with_dropout.items()}
    for kind, values in last.items():
        results[f"with dropout, {kind}"] = {
            "mean of the seeds": statistics.mean(values),
            "greatest difference between seeds": max(values) - min(values),
            "to plain": statistics.mean(values) - statistics.mean(last["plain"]),
        }
    return results


def draw(runs: Sequence[dict[str, Any]], path: Path | None) -> None:
    pyplot = pyplot_for(path)
    if pyplot is None:
        return
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    colours = {"plain": "black", "float32": "tab:orange", "bfloat16": "tab:blue"}
    for axis, dropout in zip(axes, (False, True), strict=True):
        for run in (run for run in runs if (run["P_drop"] > 0) == dropout):
            size = 10  # steps in each point
            blocks = [run["losses"][i : i + size] for i in range(0, len(run["losses"]), size)]
            steps = [size * (i + 1) for i in range(len(blocks))]
            style = "--" if run["kind"] == "plain" else "-"
            label = f"{run['kind']}, seed {run['seed']}"
            means = [statistics.mean(block) for block in blocks]
            axis.plot(steps, means, style, color=colours[run["kind"]], label=label, linewidth=1)
        axis.set(title="P_drop 0.1" if dropout else "no dropout", xlabel="step")
        axis.legend()
    axes[0].set_ylabel("smoothed loss, nats a target token")
    save_figure(figure, path)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=2, help="of dropout")
    parser.add_argument("--max-tokens", type=int, default=1024, help="on each side of a batch")
    parser.add_argument("--vocabulary", type=int, default=4000, help="pieces")
    add_output_options(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pairs = list(PhrasebookReader().pairs("train"))[:32000]
    tokenizer = train((side for pair in pairs for side in pair), args.vocabulary)
    options = args.steps, tokenizer, args.max_tokens
    runs = [learn(kind, 0.0, 1, *options) for kind in ("plain", "float32")]
    for seed in range(1, args.seeds + 1):
        runs += [learn(kind, 0.1, seed, *options) for kind in ("plain", "float32", "bfloat16")]
    results = conclusions(runs)
    print(json.dumps(results, indent=2))
    rounded = [run | {"losses": [round(loss, 5) for loss in run["losses"]]} for run in runs]
    write_report(args.output, new_report(conclusions=results, runs=rounded))
    draw(runs, args.picture)


if __name__ == "__main__":
    main()
