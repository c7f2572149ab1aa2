"""How fast the search is, side by side with other toolkits.

python scripts/benchmarks/benchmark_translate.py --output results/translate.json \\
    --picture translate.png --python transformers=PATH --python ctranslate2=PATH ...
python scripts/benchmarks/benchmark_translate.py --device cuda --sizes base,big --batches 1,64,300

Measures output tokens a second of the best hypothesis: greedy and beam 4, one sentence and 64 at
a time, on random weights of two sizes and random sentences, without loading, tokenization or text.
docs/performance.md says what is equal and what is not, and how the toolkits are installed.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmarking
import reporting

# Other toolkits' interpreters run this file too: its top imports the standard library only.
from benchmark_engines import BOTH, ENGINES, REFERENCE, TOOLKITS, Setup
from benchmark_models import FIRST_WORD, PACKAGES
from benchmark_work import SIZES
from benchmarking import Meter, Rounds, Sample, emit, names, numbers
from reporting import Row, cell, group_by, ratio

EXTRA = 10  # tokens that a hypothesis is longer than the longest source of its batch
COLUMNS = {
    "engine": lambda row: row["engine"],
    "tokens/s": lambda row: f"{row['median']:.0f}",
    "least-most": reporting.least_to_most,
    "to fastest PyTorch toolkit": lambda row: cell(row["to_fastest_pytorch_peer"], ".2f"),
    "to CTranslate2 float32": lambda row: cell(row["to_ctranslate2_float32"], ".2f"),
    "samples": lambda row: row["samples"],
    "disturbed": lambda row: row["disturbed"],
}


class Case(NamedTuple):
    """What one sample measures."""

    size: str
    beam: int
    batch: int


def title(row: Row) -> str:
    search = "greedy" if row["beam"] == 1 else f"beam {row['beam']}"
    return f"{row['size']}, {search}, batch {row['batch']}"


def batches(vocabulary: int, batch: int) -> Iterator[list[list[int]]]:
    """The same random sentences for every engine, of 18 to 36 tokens as in news."""
    rng = random.Random(0)
    sentences = [
        [rng.randrange(FIRST_WORD, vocabulary) for _ in range(rng.randint(18, 36))]
        for _ in range(max(8, batch))
    ]
    for start in range(0, len(sentences), batch):
        yield sentences[start : start + batch]


def work(name: str, cases: Sequence[Case], setup: Setup, seconds: float) -> Iterator[Sample]:
    """A sample of each case: whole passes over the sentences until ``seconds`` have gone by."""
    import torch

    torch.manual_seed(0)
    size, translate = None, None
    for case in cases:
        if translate is None or case.size != size:
            size = case.size
            translate = ENGINES[name].build(SIZES[size], setup)
        passes = list(batches(SIZES[case.size].vocabulary, case.batch))
        # A short call first, because the first call is slower. Sockeye even compiles for each beam
        # size, and once more for one sentence.
        translate(passes[0][:4], 6, case.beam)
        count = tokens = 0
        start = time.perf_counter()
        with Meter() as meter:
            while count == 0 or time.perf_counter() - start < seconds:
                for sources in passes:
                    length = max(map(len, sources)) + EXTRA
                    lengths = translate(sources, length, case.beam)
                    if lengths != [length] * len(sources):
                        raise AssertionError(f"{name} {case}: {lengths}, not {length} each")
                    tokens += sum(lengths)
                count += 1
        yield {
            **case._asdict(),
            "tokens_per_second": round(tokens / meter.seconds, 1),
            "seconds": round(meter.seconds, 3),
            "tokens": tokens,
            "passes": count,
            **meter.load(),
        }


def summarise(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """One row for each case and engine, the fastest first, with its ratios."""
    rows = []
    for case, group in group_by(samples, *Case._fields).items():
        speeds = reporting.rank(group)
        others = (n for n in speeds if ENGINES[n].toolkit not in ("mt", "ctranslate2"))
        fastest = next((speeds[name]["median"] for name in others), None)
        reference = speeds[REFERENCE]["median"] if REFERENCE in speeds else None
        for name, speed in speeds.items():
            ratios = {
                "to_fastest_pytorch_peer": ratio(speed["median"], fastest),
                "to_ctranslate2_float32": ratio(speed["median"], reference),
            }
            rows.append({**Case(*case)._asdict(), "engine": name, **speed, **ratios})
    return rows


def measure(args: argparse.Namespace, engines: Sequence[str], scratch: str) -> Rounds:
    rounds = Rounds(
        __file__, args, TOOLKITS, lambda s: f"{title(s)}: {s['tokens_per_second']} tokens/s"
    )
    cases = [Case(s, b, n) for s in args.sizes for b in args.beams for n in args.batches]
    todo = {
        name: [case for case in cases if case.batch >= ENGINES[name].min_batch] for name in engines
    }
    for number in range(1, args.rounds + 1):
        for name in [name for name in engines if todo[name]]:
            options = ["--cases", json.dumps(todo[name]), "--seconds", args.seconds]
            options += ["--scratch", scratch, "--device", args.device]
            samples, failed = rounds.run(number, name, ENGINES[name].toolkit, options)
            if name in rounds.skipped or (failed and not samples):
                todo[name] = []
            elif failed:  # in the case after the last sample, which is not tried again
                del todo[name][len(samples) : len(samples) + 1]
    return rounds


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmarking.new_parser(__doc__)
    parser.add_argument("--device", choices=BOTH, default="cpu")
    parser.add_argument("--sizes", type=names, default=["small", "base"])
    parser.add_argument("--beams", type=numbers, default=[1, 4])
    parser.add_argument("--batches", type=numbers, default=[1, 64])
    parser.add_argument("--peers", type=names, help="toolkits or engines; all by default")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each sample, at least")
    benchmarking.add_worker_options(parser, rounds=5)
    benchmarking.add_output_options(parser)
    parser.add_argument("--cases", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    benchmarking.check_names(parser, "--sizes", args.sizes, SIZES)
    benchmarking.check_names(parser, "--peers", args.peers or (), sorted({*ENGINES, *TOOLKITS}))
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if args.worker:
        packages = PACKAGES[ENGINES[args.worker].toolkit]
        if benchmarking.start_worker(packages, TOOLKITS, args.threads):
            cases = [Case(*case) for case in args.cases]
            setup = Setup(args.threads, args.scratch, args.device)
            for sample in work(args.worker, cases, setup, args.seconds):
                emit(sample)
        return 0
    wanted = args.peers or list(ENGINES)
    chosen = (name for name, e in ENGINES.items() if name in wanted or e.toolkit in wanted)
    engines = [name for name in chosen if args.device in ENGINES[name].devices]
    with tempfile.TemporaryDirectory(prefix="benchmark") as scratch:
        rounds = measure(args, engines, scratch)
    results = summarise(rounds.samples)
    settings = {key: getattr(args, key) for key in ("device", "threads", "rounds", "seconds")}
    outcome = {**rounds.facts(), "results": results, "samples": rounds.samples}
    reporting.write_report(args.output, reporting.new_report(**settings, **outcome))
    reporting.draw_bars(results, title, "output tokens per second", args.picture)
    print(reporting.sections(results, title, COLUMNS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
