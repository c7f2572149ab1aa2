"""Where the time of one of mt's training steps goes, and how fast its matrix products are.

python scripts/benchmarks/profile_train.py [--size base] [--precision float32] \\
    [--output FILE.json]

Runs Lightning's loop over the batches of `benchmark_train.py`: some steps to warm up, then some
under torch.profiler. docs/performance.md says how operations are grouped.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from benchmark_models import Pairs, Size
from benchmark_steps import fit, mt_module
from benchmark_train import DEFAULT_TOKENS
from benchmark_work import SIZES, Work, draw_batches, measure_matrices, step_flops, work_in
from benchmarking import add_output_options, check_at_least_one, new_parser, versions
from reporting import new_report, table, write_report

import mt.training.lightning_module
from mt.training.malloc import tune_malloc_for_steps
from mt.training.setup import set_up_logging

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
GROUPS = [*dict.fromkeys([PRODUCTS, ATTENTION, LOSS, *PARTS.values()]), COPIES, OPTIMIZER, REST]
LAYER_PRODUCTS = {"aten::mm", "aten::addmm", "aten::addmm_", "mkldnn::_linear_pointwise"}
BATCHED_PRODUCTS = {"aten::bmm", "aten::baddbmm"}
COPY_OPERATIONS = {"copy_", "_to_copy", "clone", "contiguous", "cat", "fill_", "zero_"}
PREFIX = "part: "
NODE = "autograd::engine::evaluate_function"  # contains everything that one gradient needs


def named(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which the profiler shows under the part's name."""

    def call(*arguments: Any, **options: Any) -> Any:
        with torch.profiler.record_function(PREFIX + part):
            return function(*arguments, **options)

    return call


def name_parts(module: Any) -> None:
    """Make the parts of a TranslationModule visible; a part within another counts for itself."""
    for layer in module.model.modules():
        if part := PARTS.get(type(layer).__name__):
            layer.forward = named(part, layer.forward)
    module.model.embed = named("embedding", module.model.embed)


def profile(size: Size, batches: Sequence[Pairs], warm: int, precision: str) -> tuple[Any, float]:
    """The events of the steps after the first ``warm``, and the seconds that they took."""
    module = mt_module(size)
    name_parts(module)
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
    mt.training.lightning_module.smoothed_cross_entropy = named(LOSS, original)
    try:
        fit(module, batches, after, "cpu", precision)
    finally:
        mt.training.lightning_module.smoothed_cross_entropy = original
    return profiler.events(), clock[1] - clock[0]


def microseconds(events: Any, total: float) -> dict[str, float]:
    """The time of each group, and of the loss's products; all groups take ``total`` seconds."""
    forward: dict[int, str] = {}  # the part that made the node of the graph with this number
    for event in events:
        part, node = _place(event)
        if node is None and event.sequence_nr >= 0:
            forward[event.sequence_nr] = part
    spent = dict.fromkeys([*GROUPS, f"{LOSS}: products"], 0.0)
    for event in events:
        part, node = _place(event)
        if node is not None and not part:
            part = forward.get(node, "")
        group = _group(event.name, part)
        spent[group] += event.self_cpu_time_total
        if group == LOSS and event.name in LAYER_PRODUCTS:
            spent[f"{LOSS}: products"] += event.self_cpu_time_total
    spent[REST] = total * 1e6 - sum(spent[group] for group in GROUPS if group != REST)
    return spent


def _place(event: Any) -> tuple[str, int | None]:
    """The part that contains an event, or "", and the node whose gradient it computes, if any."""
    while event is not None:
        if event.name.startswith(PREFIX):
            return event.name.removeprefix(PREFIX), None
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
    return COPIES if name.removeprefix("aten::") in COPY_OPERATIONS else REST


def product_flops(size: Size, work: Work) -> tuple[int, int]:
    """Operations of the layers' matrix products without attention's, and of the loss's."""
    total = step_flops(size, work._replace(src_pairs=0, tgt_pairs=0, cross_pairs=0))
    loss = 3 * 2 * work.tgt_tokens * size.d_model * size.vocabulary
    return total - loss, loss


def main(arguments: Sequence[str] | None = None) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--max-tokens", type=int, default=DEFAULT_TOKENS["cpu"])
    parser.add_argument("--warm", type=int, default=3, help="steps before those that count")
    parser.add_argument("--steps", type=int, default=5)
    add_output_options(parser, picture=False)
    args = parser.parse_args(arguments)
    check_at_least_one(parser, args, "max_tokens", "threads", "warm", "steps")
    set_up_logging()
    tune_malloc_for_steps()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    size = SIZES[args.size]
    batches = draw_batches(size.vocabulary, args.max_tokens, args.warm + args.steps)
    work = work_in(batches[args.warm :])
    spent = microseconds(*profile(size, batches, args.warm, args.precision))
    measured = measure_matrices(size, work.tokens // 2 // args.steps, "cpu")
    rate = measured["gflops_per_second"][args.precision]["all"]
    total = sum(spent[group] for group in GROUPS)
    groups = {
        group: {
            "ms": round(spent[group] / args.steps / 1e3, 2),
            "percent": round(100 * spent[group] / total, 1),
        }
        for group in GROUPS
    }
    report = new_report(
        threads=args.threads,
        versions=versions(["torch", "pytorch-lightning"]),
        size=args.size,
        precision=args.precision,
        max_tokens=args.max_tokens,
        tokens_per_step=round(work.tokens / args.steps),
        ms_per_step=round(total / args.steps / 1e3, 2),
        groups=groups,
        matrix_rate=rate,
    )
    rows = [[group, *values.values()] for group, values in groups.items()]
    header = [f"{args.size}, {args.precision}", "ms a step", "%"]
    print(table(header, [*rows, ["all", report["ms_per_step"], 100]]))
    print(f"\ntorch.mm on matrices of these sizes reaches {rate:.0f} GFLOP/s")
    products = (PRODUCTS, f"{LOSS}: products")
    for name, flops in zip(products, product_flops(size, work), strict=True):
        reached = flops / spent[name] / 1e3 if spent[name] else 0.0
        report[f"{name}, GFLOP/s"] = round(reached, 1)
        print(f"{name}: {reached:.0f} GFLOP/s, {reached / rate:.0%} of that")
    write_report(args.output, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
