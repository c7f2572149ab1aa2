"""Where the time of one of our training steps goes, and how fast its matrix products are.

python scripts/profile_train.py [--size base] [--precision float32] [--output FILE.json]

Lightning's loop over the batches of `benchmark_train.py`, some steps to warm up, then some under
torch.profiler. Every operation's own time goes to one group: matrix products of layers and
attention's by their names, the optimizer's likewise, others by the part of the model that they
belong to, a gradient's to the part whose gradient it is. What is no part's is a copy, a cast, or
rest, as is the time between operations: Python, Lightning, the profiler itself.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from benchmark_models import Pairs, Size
from benchmark_steps import fit, our_module
from benchmark_train import DEFAULT_TOKENS
from benchmark_work import SIZES, Work, draw_batches, measure_matrices, step_flops, work_in
from benchmarking import command_line, machine, table, versions

import mt.training.lightning_module
from mt.train import set_up_logging
from mt.training.malloc import tune_malloc_for_steps

PRODUCTS, ATTENTION, LOSS = "matrix products", "attention", "loss over the vocabulary"
COPIES, OPTIMIZER, REST = "copies and casts", "optimizer", "rest"
PARTS = {
    "Linear": PRODUCTS,
    "SelfAttention": ATTENTION,
    "CrossAttention": ATTENTION,
    "Dropout": "dropout",
    "LayerNorm": "LayerNorm",
    "FeedForward": "activation",
    "Embedding": "embedding",
}
GROUPS = [PRODUCTS, ATTENTION, LOSS, "dropout", "LayerNorm", "activation", "embedding"]
GROUPS += [COPIES, OPTIMIZER, REST]
LAYER_PRODUCTS = {"aten::mm", "aten::addmm", "aten::addmm_", "mkldnn::_linear_pointwise"}
BATCHED_PRODUCTS = {"aten::bmm", "aten::baddbmm"}
COPYING = {"aten::copy_", "aten::_to_copy", "aten::clone", "aten::contiguous", "aten::cat"}
COPYING |= {"aten::fill_", "aten::zero_"}
MARK = "part: "
NODE = "autograd::engine::evaluate_function"  # all that happens for one gradient is within it


def marked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, visible to the profiler under the part's name."""

    def call(*arguments: Any, **options: Any) -> Any:
        with torch.profiler.record_function(MARK + part):
            return function(*arguments, **options)

    return call


def mark(module: Any) -> None:
    """Make the parts of our module visible; a part within another counts for itself."""
    for each in module.model.modules():
        if part := PARTS.get(type(each).__name__):
            each.forward = marked(part, each.forward)
    module.model.embed = marked("embedding", module.model.embed)


def profile(size: Size, batches: Sequence[Pairs], warm: int, precision: str) -> tuple[Any, float]:
    """The events of the steps behind the first ``warm``, and the seconds that they took."""
    module = our_module(size)
    mark(module)
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    clock: list[float] = []
    done = 0

    def after(loss: torch.Tensor) -> None:
        nonlocal done
        done += 1
        if done == warm:
            profiler.start()
            clock.append(time.perf_counter())
        elif done == len(batches):
            clock.append(time.perf_counter())
            profiler.stop()

    original = mt.training.lightning_module.smoothed_cross_entropy
    mt.training.lightning_module.smoothed_cross_entropy = marked(LOSS, original)
    try:
        fit(module, batches, after, "cpu", precision)
    finally:
        mt.training.lightning_module.smoothed_cross_entropy = original
    return profiler.events(), clock[1] - clock[0]


def microseconds(events: Any, total: float) -> dict[str, float]:
    """Of each group, ``total`` seconds in all; the loss's own products apart, too."""
    forward: dict[int, str] = {}  # which part made the node of the graph with this number
    for event in events:
        part, node = _place(event)
        if node is None and event.sequence_nr >= 0:
            forward[event.sequence_nr] = part
    found = dict.fromkeys([*GROUPS, f"{LOSS}: products"], 0.0)
    for event in events:
        part, node = _place(event)
        if node is not None and not part:
            part = forward.get(node, "")
        group = _group(event.name, part)
        found[group] += event.self_cpu_time_total
        if group == LOSS and event.name in LAYER_PRODUCTS:
            found[f"{LOSS}: products"] += event.self_cpu_time_total
    known = sum(found[group] for group in GROUPS if group != REST)
    found[REST] = total * 1e6 - known
    return found


def _place(event: Any) -> tuple[str, int | None]:
    """The part that an event is within, or "", and the number of the gradient that it is for."""
    while event is not None:
        if event.name.startswith(MARK):
            return event.name.removeprefix(MARK), None
        if event.name.startswith(NODE):
            return "", event.sequence_nr
        event = event.cpu_parent
    return "", None


def _group(name: str, part: str) -> str:
    if name.startswith(("aten::_fused_adam", "aten::_foreach")):
        return OPTIMIZER
    if part == LOSS:
        return LOSS
    if name in LAYER_PRODUCTS:
        return PRODUCTS
    if name in BATCHED_PRODUCTS:
        return ATTENTION
    if part and part != PRODUCTS:
        return part
    return COPIES if name in COPYING else REST


def product_flops(size: Size, work: Work) -> tuple[int, int]:
    """Of the layers' matrix products, attention's left out, and of the loss's."""
    everything = step_flops(size, work._replace(src_pairs=0, tgt_pairs=0, cross_pairs=0))
    loss = 3 * 2 * work.tgt_tokens * size.d_model * size.vocabulary
    return everything - loss, loss


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--max-tokens", type=int, default=DEFAULT_TOKENS["cpu"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warm", type=int, default=3, help="steps before those that count")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--output", help="a JSON file")
    args = parser.parse_args(arguments)
    for name in ("max_tokens", "threads", "warm", "steps"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: must be at least 1")
    set_up_logging()
    tune_malloc_for_steps()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    size = SIZES[args.size]
    batches = draw_batches(size.vocabulary, args.max_tokens, args.warm + args.steps)
    work = work_in(batches[args.warm :])
    spent = microseconds(*profile(size, batches, args.warm, args.precision))
    rates = measure_matrices(size, work.tokens // 2 // args.steps, "cpu")
    rate = rates["gflops_per_second"][args.precision]["all"]
    total = sum(spent[group] for group in GROUPS)
    report: dict[str, Any] = {
        "date": date.today().isoformat(),
        "command": command_line(),
        "machine": machine(),
        "threads": args.threads,
        "versions": versions(["torch", "pytorch-lightning"]),
        "size": args.size,
        "precision": args.precision,
        "max_tokens": args.max_tokens,
        "tokens_per_step": round(work.tokens / args.steps),
        "ms_per_step": round(total / args.steps / 1e3, 2),
        "groups": {
            group: {
                "ms": round(spent[group] / args.steps / 1e3, 2),
                "percent": round(100 * spent[group] / total, 1),
            }
            for group in GROUPS
        },
        "matrix_rate": rate,
    }
    rows = [[g, *(report["groups"][g][key] for key in ("ms", "percent"))] for g in GROUPS]
    header = [f"{args.size}, {args.precision}", "ms a step", "%"]
    print(table(header, [*rows, ["all", report["ms_per_step"], 100]]))
    print(f"\ntorch.mm on matrices of these sizes reaches {rate:.0f} GFLOP/s")
    groups = (PRODUCTS, f"{LOSS}: products")
    for group, flops in zip(groups, product_flops(size, work), strict=True):
        reached = flops / spent[group] / 1e3 if spent[group] else 0.0
        report[f"{group}, GFLOP/s"] = round(reached, 1)
        print(f"{group}: {reached:.0f} GFLOP/s, {reached / rate:.0%} of that")
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
