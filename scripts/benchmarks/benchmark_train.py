"""How fast a training step is, side by side with what one could use instead.

python scripts/benchmark_train.py --output results/train.json --picture train.png \\
    --python transformers=PATH --python fairseq=PATH --python joeynmt=PATH ...
python scripts/benchmark_train.py --device cuda --output results/train-gpu.json

Measures source and target tokens a second of whole training steps, eos counted and padding not:
ours as `mt.train` takes it, with Lightning and its loggers but without what saves and prints, and
those of fairseq, Joey NMT, OpenNMT-py, Sockeye, transformers (MarianMTModel) and plain
nn.Transformer; `benchmark_steps.py` drives each. A
peer runs in the interpreter that `--python NAME=PATH` names, else in the one that runs this; where
its package is not installed, it is skipped and a line says so. Each engine, size and round is a
process of its own, and the rounds are interleaved (A B C A B C ...).

Equal for all: sizes (post-LN, one embedding in three places, sinusoids), label smoothing, threads,
and the sentences of every batch, which our sampler has put together: random ids, log-normal
lengths of 27 tokens in the mean. Dropout is 0.1 in the paper's two places alone, on each sublayer's
output and on embedding + position. transformers, fairseq and Sockeye are set so by their options;
OpenNMT-py by its options but for the dropout inside its feed-forward network, Joey NMT and
nn.Transformer for that and the one on attention, by setting p of these modules to 0. So all can
be set. The JSON says how many elements each drops from in one and the same step: peers include
their padding, ours its rows that fill up a matrix.

Not equal:
* OpenNMT-py is pre-LN, with a LayerNorm behind each stack; the others are post-LN. (So is eole, its
  successor, which is not measured.)
* A step is each project's own: its Adam (fused or not), its clipping, its statistics.
* Sockeye, Joey NMT and OpenNMT-py have matrices of W_Q, W_K and W_V apart; biases in attention are
  the peers', the paper has none.
* bfloat16 is autocast with float32 weights, for all. fairseq's own --bf16 is another way.
* Only mt, transformers and nn.Transformer are driven on a GPU.

The share of the matrix rate: the floating-point operations that the model needs (`step_flops`,
real positions only) in a second, over what torch.mm reaches on matrices of these sizes in the same
precision, threads and run. Peak memory is the process's (on a GPU, of PyTorch's tensors there).

Medians leave disturbed samples (`benchmarking.py`) out where there are others; the JSON keeps all.
An untrained model's loss must lie near the logarithm of the vocabulary's size, or its engine fails.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

# The peers' interpreters run this file too: at its top it imports nothing but Python's own.
import benchmarking
from benchmark_steps import COMPILED, ENGINES, REFERENCE
from benchmark_work import (
    SIZES,
    draw_batches,
    dropout_elements,
    measure_engine,
    measure_matrices,
    padding,
    step_flops,
    work_in,
)
from benchmarking import (
    Sample,
    cell,
    command_line,
    interpreters,
    machine,
    missing,
    names,
    ratio,
    run_worker,
    say,
    table,
    typical,
    versions,
)

PEERS = sorted({engine.peer for engine in ENGINES.values()})
DEFAULT_SIZES = {"cpu": ["small", "base"], "cuda": ["base", "big"]}
DEFAULT_TOKENS = {"cpu": 2048, "cuda": 25000}
DEFAULT_ENGINES = {
    "cpu": [name for name in ENGINES if name != COMPILED],
    "cuda": ["mt-bfloat16", COMPILED, REFERENCE, "nn.Transformer-bfloat16"],
}
RATES = "matrix rate"  # the worker that measures no engine


# ------------------------------------------------------- the worker: in a peer's interpreter


def work(args: argparse.Namespace) -> None:
    """Print what an engine, or the matrix rate, comes to, as JSON lines."""
    if args.worker != RATES and (lacks := missing(ENGINES[args.worker].packages)):
        print(json.dumps({"skipped": f"{' and '.join(lacks)} not installed"}))
        return
    import torch

    torch.set_num_threads(args.threads)
    print(json.dumps({"versions": versions(["torch", *PEERS])}), flush=True)
    size = SIZES[args.sizes[0]]
    batches = json.loads(Path(args.work).read_text(encoding="utf-8"))
    if args.worker == RATES:
        sample = measure_matrices(size, work_in(batches).tokens // 2 // len(batches), args.device)
    else:
        sample = measure_engine(args.worker, size, batches, args.warm, args.device)
    print(json.dumps(sample), flush=True)


# ------------------------------------------------------------------------ arithmetic and report


def matrix_rates(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Of each precision and product, the median of the undisturbed samples, or of all."""
    used = [s for s in samples if not s["disturbed"]] or samples
    rates: dict[str, dict[str, float]] = {}
    for precision in used[0]["gflops_per_second"] if used else ():
        found = [s["gflops_per_second"][precision] for s in used]
        rates[precision] = {
            key: round(statistics.median(r[key] for r in found), 1) for key in found[0]
        }
    return rates


def summarise(samples: Sequence[Sample], about: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each size and engine, the fastest first, with its ratios.

    ``about`` a size are "flops_per_token" and "matrix_rates", where they were measured.
    """
    rows = []
    for size in dict.fromkeys(s["size"] for s in samples):
        by_engine: dict[str, list[Sample]] = {}
        for sample in samples:
            if sample["size"] == size:
                by_engine.setdefault(sample["engine"], []).append(sample)
        found = {name: typical(group) for name, group in by_engine.items()}
        float32 = [
            row["median"]
            for name, row in found.items()
            if ENGINES[name].peer != "mt" and ENGINES[name].precision == "float32"
        ]
        reference = found[REFERENCE]["median"] if REFERENCE in found else None
        for name, row in sorted(found.items(), key=lambda item: -item[1]["median"]):
            precision = ENGINES[name].precision
            gflops = row["median"] * about[size]["flops_per_token"] / 1e9
            rate = about[size]["matrix_rates"].get(precision, {}).get("all")
            lower = reference if precision == "bfloat16" else None
            rows.append(
                {
                    "size": size,
                    "engine": name,
                    **row,
                    "to_best_float32_peer": ratio(row["median"], max(float32, default=None)),
                    "to_transformers_bfloat16": ratio(row["median"], lower),
                    "gflops_per_second": round(gflops, 1),
                    "share_of_matrix_rate": ratio(gflops, rate),
                    "memory_mb": typical(by_engine[name], "memory_mb")["median"],
                    "dropout_elements": by_engine[name][0]["dropout_elements"],
                }
            )
    return rows


def markdown(results: Sequence[dict[str, Any]]) -> str:
    header = ["engine", "tokens/s", "least-most", "to best float32 peer"]
    header += ["to transformers bfloat16", "of matrix rate", "MB", "dropout, millions"]
    header += ["samples", "disturbed"]

    parts = []
    for size in dict.fromkeys(r["size"] for r in results):
        rows = [
            [
                r["engine"],
                f"{r['median']:.0f}",
                f"{r['least']:.0f}-{r['most']:.0f}",
                cell(r["to_best_float32_peer"], ".2f"),
                cell(r["to_transformers_bfloat16"], ".2f"),
                cell(r["share_of_matrix_rate"], ".0%"),
                f"{r['memory_mb']:.0f}",
                cell(r["dropout_elements"] and r["dropout_elements"] / 1e6, ".1f"),
                r["samples"],
                r["disturbed"],
            ]
            for r in results
            if r["size"] == size
        ]
        parts.append(f"### {size}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def draw(results: Sequence[dict[str, Any]], path: str) -> None:
    """A bar for each engine, a panel for each size."""
    panels: dict[str, dict[str, float]] = {}
    for r in results:
        panels.setdefault(r["size"], {})[r["engine"]] = r["median"]
    benchmarking.draw(panels, "source + target tokens per second", path)


# --------------------------------------------------------------------------------- the driver


def measure(args: argparse.Namespace, files: dict[str, str]) -> dict[str, Any]:
    """All rounds: samples, versions, and what was skipped or failed and why."""
    python = interpreters(args.python, PEERS)
    settings = dict(pair.split("=", 1) for pair in args.environment)
    found: dict[str, Any] = {
        "versions": {},
        "skipped": {},
        "errors": [],
        "samples": [],
        "rates": [],
    }
    todo = [(size, name) for size in args.sizes for name in [RATES, *args.engines]]
    for number in range(1, args.rounds + 1):
        for size, name in list(todo):
            peer = "mt" if name == RATES else ENGINES[name].peer
            if (size, name) not in todo:  # skipped at another size
                continue
            options = ["--worker", name, "--sizes", size, "--work", files[size]]
            options += ["--threads", args.threads, "--warm", args.warm, "--device", args.device]
            command = [python.get(peer, sys.executable), __file__, *map(str, options)]
            records, error = run_worker(command, args.threads, settings)
            for record in records:
                if "skipped" in record:
                    found["skipped"][name] = record["skipped"]
                    say(f"{name}: skipped, {record['skipped']}")
                    todo = [(s, n) for s, n in todo if n != name]
                elif "versions" in record:
                    found["versions"][peer] = record["versions"]
                else:
                    sample = {"engine": name, "size": size, "round": number, **record}
                    found["rates" if name == RATES else "samples"].append(sample)
                    note = " (disturbed)" if record["disturbed"] else ""
                    what = (
                        f"{record['gflops_per_second']['float32']['all']:.0f} GFLOP/s in float32"
                        if name == RATES
                        else f"{record['tokens_per_second']:.0f} tokens/s"
                    )
                    say(f"round {number}  {size}  {name}: {what}{note}")
            if error:
                found["errors"].append(
                    {"engine": name, "size": size, "round": number, "error": error}
                )
                say(f"round {number}  {size}  {name}: {error}")
                todo.remove((size, name))  # it is not tried again
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", type=names, help="small, base, big; two of them by default")
    parser.add_argument("--engines", type=names, help="engines or peers; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="measured in each process")
    parser.add_argument("--warm", type=int, default=3, help="steps before them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, help="in a batch a side, padding included")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument(
        "--environment", action="append", default=[], metavar="NAME=VALUE", help="for every worker"
    )
    parser.add_argument("--output", help="a JSON file")
    parser.add_argument("--picture", help="a PNG file, drawn by matplotlib where it is installed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    args.sizes = args.sizes or DEFAULT_SIZES[args.device]
    if args.max_tokens is None:
        args.max_tokens = DEFAULT_TOKENS[args.device]
    if unknown := sorted(set(args.sizes) - set(SIZES)):
        parser.error(f"--sizes: {unknown[0]!r} is none of {', '.join(SIZES)}")
    if args.engines and (unknown := sorted(set(args.engines) - {*ENGINES, *PEERS})):
        every = ", ".join(sorted({*ENGINES, *PEERS}))
        parser.error(f"--engines: {unknown[0]!r} is none of {every}")
    args.engines = choose(args.engines, args.device)
    if args.device == "cuda" and (bound := [n for n in args.engines if not ENGINES[n].on_gpu]):
        parser.error(f"--engines: {bound[0]} is not driven on a GPU")
    for name in ("rounds", "steps", "warm", "threads", "max_tokens"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: must be at least 1")
    for option in ("environment", "python"):
        if wrong := [pair for pair in getattr(args, option) if not pair.partition("=")[2]]:
            parser.error(f"--{option}: {wrong[0]!r} is not of the form NAME=...")
    return args


def choose(wanted: Sequence[str] | None, device: str) -> list[str]:
    """The engines meant by names of engines and of peers; a peer's are those of the device."""
    defaults = DEFAULT_ENGINES[device]
    if not wanted:
        return defaults
    return [n for n, e in ENGINES.items() if n in wanted or (e.peer in wanted and n in defaults)]


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if args.worker:
        work(args)
        return 0
    about: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark") as scratch:
        files = {}
        for name in args.sizes:
            size, count = SIZES[name], args.warm + args.steps + 1
            batches = draw_batches(size.vocabulary, args.max_tokens, count)
            files[name] = str(Path(scratch) / f"{name}.json")
            Path(files[name]).write_text(json.dumps(batches), encoding="utf-8")
            timed = work_in(batches[args.warm : -1])
            flops = step_flops(size, timed)
            about[name] = {
                "size": size._asdict(),
                "timed": timed._asdict(),
                "flops_per_step": round(flops / args.steps),
                "flops_per_token": flops / timed.tokens,
                "padding": round(padding(batches[args.warm : -1]), 3),
                "dropout_elements": dropout_elements(size, work_in(batches[-1:])),
            }
        found = measure(args, files)
    for name in args.sizes:
        about[name]["matrix_rates"] = matrix_rates([r for r in found["rates"] if r["size"] == name])
    results = summarise(found["samples"], about)
    settings = ("device", "threads", "rounds", "steps", "warm", "max_tokens", "environment")
    report = {
        "date": date.today().isoformat(),
        "command": command_line(),
        "machine": machine(),
        **{key: getattr(args, key) for key in settings},
        **{key: found[key] for key in ("versions", "skipped", "errors")},
        "work": about,
        "results": results,
        "samples": found["samples"],
        "matrix_samples": found["rates"],
    }
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.picture and results:
        draw(results, args.picture)
    print(markdown(results) if results else "nothing was measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
