"""How fast a training step is, side by side with other toolkits.

python scripts/benchmarks/benchmark_train.py --output results/train.json --picture train.png \\
    --python transformers=PATH --python fairseq=PATH --python joeynmt=PATH ...
python scripts/benchmarks/benchmark_train.py --device cuda --output results/train-gpu.json

Measures source and target tokens a second of whole training steps; tokens include eos and exclude
padding. mt takes the step of `mt.train`, with Lightning and its loggers but without what saves and
prints. docs/performance.md says what is equal and what is not, and how the toolkits are installed.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import benchmarking
import reporting

# Other toolkits' interpreters run this file too: its top imports the standard library only.
from benchmark_models import PACKAGES
from benchmark_steps import COMPILED, ENGINES, REFERENCE, TOOLKITS
from benchmark_work import (
    SIZES,
    describe_work,
    draw_batches,
    measure_engine,
    measure_matrices,
    work_in,
)
from benchmarking import Rounds, Sample, emit, names
from reporting import cell, group_by, ratio

DEFAULT_SIZES = {"cpu": ["small", "base"], "cuda": ["base", "big"]}
DEFAULT_TOKENS = {"cpu": 2048, "cuda": 25000}
DEFAULT_ENGINES = {
    "cpu": [name for name in ENGINES if name != COMPILED],
    "cuda": ["mt-bfloat16", COMPILED, REFERENCE, "nn.Transformer-bfloat16"],
}
RATES = "matrix rate"  # names the worker that measures torch.mm
COLUMNS = {
    "engine": lambda row: row["engine"],
    "tokens/s": lambda row: f"{row['median']:.0f}",
    "least-most": reporting.least_to_most,
    "to best float32 toolkit": lambda row: cell(row["to_best_float32_peer"], ".2f"),
    "to transformers bfloat16": lambda row: cell(row["to_transformers_bfloat16"], ".2f"),
    "of matrix rate": lambda row: cell(row["share_of_matrix_rate"], ".0%"),
    "MB": lambda row: f"{row['memory_mb']:.0f}",
    "dropout, millions": lambda row: cell(
        row["dropout_elements"] and row["dropout_elements"] / 1e6, ".1f"
    ),
    "samples": lambda row: row["samples"],
    "disturbed": lambda row: row["disturbed"],
}


def work(args: argparse.Namespace) -> None:
    """In the worker: emit the sample of an engine, or that of the matrix rate."""
    packages = () if args.worker == RATES else PACKAGES[ENGINES[args.worker].toolkit]
    if not benchmarking.start_worker(packages, TOOLKITS, args.threads):
        return
    size = SIZES[args.sizes[0]]
    batches = json.loads(Path(args.work).read_text(encoding="utf-8"))
    if args.worker == RATES:
        emit(measure_matrices(size, work_in(batches).tokens // 2 // len(batches), args.device))
    else:
        emit(measure_engine(args.worker, size, batches, args.warm, args.device))


def matrix_rates(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """For each precision and product, the median of the undisturbed samples, or of all."""
    used = [s for s in samples if not s["disturbed"]] or samples
    rates: dict[str, dict[str, float]] = {}
    for precision in used[0]["gflops_per_second"] if used else ():
        measured = [s["gflops_per_second"][precision] for s in used]
        rates[precision] = {
            key: round(statistics.median(rate[key] for rate in measured), 1) for key in measured[0]
        }
    return rates


def summarise(samples: Sequence[Sample], sizes: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each size and engine, the fastest first, with its ratios.

    ``sizes`` holds "flops_per_token" and "matrix_rates" of each size.
    """
    rows = []
    for size, group in group_by(samples, "size").items():
        speeds, by_engine = reporting.rank(group), group_by(group, "engine")
        engines = ((ENGINES[name], speed["median"]) for name, speed in speeds.items())
        float32 = (s for e, s in engines if e.toolkit != "mt" and e.precision == "float32")
        best = next(float32, None)
        reference = speeds[REFERENCE]["median"] if REFERENCE in speeds else None
        for name, speed in speeds.items():
            precision = ENGINES[name].precision
            gflops = speed["median"] * sizes[size]["flops_per_token"] / 1e9
            rate = sizes[size]["matrix_rates"].get(precision, {}).get("all")
            peer = reference if precision == "bfloat16" else None
            row = {
                "size": size,
                "engine": name,
                **speed,
                "to_best_float32_peer": ratio(speed["median"], best),
                "to_transformers_bfloat16": ratio(speed["median"], peer),
                "gflops_per_second": round(gflops, 1),
                "share_of_matrix_rate": ratio(gflops, rate),
                "memory_mb": reporting.typical(by_engine[name], "memory_mb")["median"],
                "dropout_elements": by_engine[name][0]["dropout_elements"],
            }
            rows.append(row)
    return rows


def describe(sample: Sample) -> str:
    if sample["engine"] == RATES:
        return f"{sample['gflops_per_second']['float32']['all']:.0f} GFLOP/s in float32"
    return f"{sample['tokens_per_second']:.0f} tokens/s"


def measure(args: argparse.Namespace, files: dict[str, str]) -> Rounds:
    """Run all rounds; ``files`` hold the batches of each size."""
    environment = dict(pair.split("=", 1) for pair in args.environment)
    rounds = Rounds(__file__, args, TOOLKITS, describe, environment)
    todo = [(size, name) for size in args.sizes for name in [RATES, *args.engines]]
    for number in range(1, args.rounds + 1):
        for size, name in list(todo):
            if name in rounds.skipped:
                continue
            toolkit = "mt" if name == RATES else ENGINES[name].toolkit
            options = ["--sizes", size, "--work", files[size], "--warm", args.warm]
            options += ["--device", args.device]
            if rounds.run(number, name, toolkit, options, size=size)[1]:
                todo.remove((size, name))  # what failed is not tried again
    return rounds


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmarking.new_parser(__doc__)
    parser.add_argument("--sizes", type=names, help="small, base, big; two of them by default")
    parser.add_argument("--engines", type=names, help="engines or toolkits; all by default")
    parser.add_argument("--steps", type=int, default=20, help="measured in each process")
    parser.add_argument("--warm", type=int, default=3, help="steps before them")
    parser.add_argument("--max-tokens", type=int, help="in a batch a side, padding included")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    benchmarking.add_worker_options(parser, rounds=3)
    parser.add_argument(
        "--environment", action="append", default=[], metavar="NAME=VALUE", help="for every worker"
    )
    benchmarking.add_output_options(parser)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    args.sizes = args.sizes or DEFAULT_SIZES[args.device]
    if args.max_tokens is None:
        args.max_tokens = DEFAULT_TOKENS[args.device]
    benchmarking.check_names(parser, "--sizes", args.sizes, SIZES)
    benchmarking.check_names(parser, "--engines", args.engines or (), sorted({*ENGINES, *TOOLKITS}))
    wanted, args.engines = args.engines, DEFAULT_ENGINES[args.device]
    if wanted:  # a toolkit's name means those of its engines that are the device's defaults
        chosen = {n for n in args.engines if ENGINES[n].toolkit in wanted}.union(wanted)
        args.engines = [name for name in ENGINES if name in chosen]
    if args.device == "cuda" and (bound := [n for n in args.engines if not ENGINES[n].on_gpu]):
        parser.error(f"--engines: {bound[0]} does not run on a GPU here")
    benchmarking.check_at_least_one(
        parser, args, "rounds", "steps", "warm", "threads", "max_tokens"
    )
    for option in ("environment", "python"):
        if wrong := [pair for pair in getattr(args, option) if not pair.partition("=")[2]]:
            parser.error(f"--{option}: {wrong[0]!r} is not of the form NAME=...")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if args.worker:
        work(args)
        return 0
    sizes: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark") as scratch:
        files = {}
        for name in args.sizes:
            count = args.warm + args.steps + 1  # the last counts dropout
            batches = draw_batches(SIZES[name].vocabulary, args.max_tokens, count)
            files[name] = str(Path(scratch) / f"{name}.json")
            Path(files[name]).write_text(json.dumps(batches), encoding="utf-8")
            sizes[name] = describe_work(SIZES[name], batches, args.warm)
        rounds = measure(args, files)
    rates = [s for s in rounds.samples if s["engine"] == RATES]
    samples = [s for s in rounds.samples if s["engine"] != RATES]
    for name in args.sizes:
        sizes[name]["matrix_rates"] = matrix_rates([s for s in rates if s["size"] == name])
    results = summarise(samples, sizes)
    settings = ("device", "threads", "rounds", "steps", "warm", "max_tokens", "environment")
    report = reporting.new_report(
        **{key: getattr(args, key) for key in settings},
        **rounds.facts(),
        work=sizes,
        results=results,
        samples=samples,
        matrix_samples=rates,
    )
    reporting.write_report(args.output, report)
    title, label = itemgetter("size"), "source + target tokens per second"
    reporting.draw_bars(results, title, label, args.picture)
    print(reporting.sections(results, title, COLUMNS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
