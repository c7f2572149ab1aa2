"""How fast the search is, side by side with what one could use instead.

python scripts/benchmark_translate.py --output results/translate.json --picture translate.png \\
    --python transformers=PATH --python ctranslate2=PATH --python fairseq=PATH ...

Measures output tokens a second of the best hypothesis: greedy and beam 4, one sentence and 64 at
a time, on random weights of two sizes and random sentences. Peers: transformers (MarianMTModel),
CTranslate2, Joey NMT, OpenNMT-py, fairseq and Sockeye; `benchmark_engines.py` drives each. A peer
runs in the interpreter that `--python NAME=PATH` names, else in the one that runs this; where its
package is not installed, it is skipped and a line says so. Each engine and round is a process of
its own, and the rounds are interleaved (A B C A B C ...). `benchmark_mixed.py` measures a real
file with a trained model.

Equal for all: sizes (shared embeddings, sinusoids), sentences, threads, and the length of every
hypothesis, the longest source of its batch + 10 tokens: eos is banned before. Loading a model,
tokenization and text are outside the measured time.

Not equal:
* OpenNMT-py is pre-LN, the others post-LN; its greedy search is its beam search with one beam.
* Joey NMT has no cache: it decodes all of the target again at every step.
* Sockeye has no minimum length; a bias bans eos all along. Its search is driven below its command
  line, and following the best hypothesis back, which is cheap, is not measured.
* bfloat16 and int8 are other precisions, and may change a translation.
* -1x1, -1xN and -Nx1 are CTranslate2's workers x threads inside an operation, N being --threads:
  -1x1 has one thread in all, everything else N.
* mt-workers and -Nx1 cut a batch in N parts, so neither is measured at one sentence.

fairseq 0.12.2 does not build from its archive, which lacks a source file of a part that decoding
does not use. `READTHEDOCS=1 pip install --no-deps --no-build-isolation fairseq==0.12.2`, with its
dependencies installed before, leaves the compiled parts out.

Medians leave disturbed samples (`benchmarking.py`) out where there are others; the JSON keeps all.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

# The peers' interpreters run this file too: at its top it imports nothing but Python's own.
import benchmarking
from benchmark_engines import ENGINES, REFERENCE, Setup
from benchmark_models import FIRST_WORD, SIZES
from benchmarking import (
    Meter,
    Sample,
    command_line,
    disturbed,
    interpreters,
    machine,
    missing,
    names,
    numbers,
    ratio,
    run_worker,
    say,
    table,
    typical,
    versions,
)

EXTRA = 10  # tokens that a hypothesis is longer than the longest source of its batch
PEERS = sorted({engine.peer for engine in ENGINES.values()})


class Case(NamedTuple):
    """What one sample measures; as text small/4/64."""

    size: str
    beam: int
    batch: int

    @classmethod
    def parse(cls, text: str) -> "Case":
        size, beam, batch = text.split("/")
        return cls(size, int(beam), int(batch))

    def __str__(self) -> str:
        return f"{self.size}/{self.beam}/{self.batch}"


# ------------------------------------------------------- the worker: in a peer's interpreter


def batches(vocabulary: int, batch: int) -> Iterator[list[list[int]]]:
    """The same random sentences for every engine, of 18 to 36 tokens as news has them."""
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

    torch.set_num_threads(setup.threads)
    torch.manual_seed(0)
    size, translate = None, None
    for case in cases:
        if translate is None or case.size != size:
            size = case.size
            translate = ENGINES[name].build(SIZES[size], setup)
        passes = list(batches(SIZES[case.size].vocabulary, case.batch))
        # What happens at the first call only is not measured. Sockeye compiles for each beam size
        # and for one sentence or several; other than that a short call is enough.
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
            "engine": name,
            **case._asdict(),
            "tokens_per_second": round(tokens / meter.seconds, 1),
            "seconds": round(meter.seconds, 3),
            "tokens": tokens,
            "passes": count,
            "others": meter.others,
            "disturbed": disturbed(meter.others),
        }


# ------------------------------------------------------------------------ arithmetic and report


def summarise(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """One row for each case and engine, the fastest first, with its ratios."""
    rows = []
    for case in dict.fromkeys(Case(s["size"], s["beam"], s["batch"]) for s in samples):
        by_engine: dict[str, list[Sample]] = {}
        for sample in samples:
            if (sample["size"], sample["beam"], sample["batch"]) == case:
                by_engine.setdefault(sample["engine"], []).append(sample)
        found = {name: typical(group) for name, group in by_engine.items()}
        pytorch = [
            row["median"]
            for name, row in found.items()
            if ENGINES[name].peer not in ("mt", "ctranslate2")
        ]
        fastest = max(pytorch, default=None)
        ctranslate2 = found[REFERENCE]["median"] if REFERENCE in found else None
        for name, row in sorted(found.items(), key=lambda item: -item[1]["median"]):
            ratios = {
                "to_fastest_pytorch_peer": ratio(row["median"], fastest),
                "to_ctranslate2_float32": ratio(row["median"], ctranslate2),
            }
            rows.append({**case._asdict(), "engine": name, **row, **ratios})
    return rows


def markdown(results: Sequence[dict[str, Any]]) -> str:
    header = ["engine", "tokens/s", "least-most", "to fastest PyTorch peer"]
    header += ["to CTranslate2 float32", "samples", "disturbed"]
    parts = []
    for case in dict.fromkeys((r["size"], r["beam"], r["batch"]) for r in results):
        rows = [
            [
                r["engine"],
                f"{r['median']:.0f}",
                f"{r['least']:.0f}-{r['most']:.0f}",
                *(
                    "-" if r[key] is None else f"{r[key]:.2f}"
                    for key in ("to_fastest_pytorch_peer", "to_ctranslate2_float32")
                ),
                r["samples"],
                r["disturbed"],
            ]
            for r in results
            if (r["size"], r["beam"], r["batch"]) == case
        ]
        parts.append(f"### {title(*case)}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def title(size: str, beam: int, batch: int) -> str:
    search = "greedy" if beam == 1 else f"beam {beam}"
    return f"{size}, {search}, batch {batch}"


def draw(results: Sequence[dict[str, Any]], path: str) -> None:
    """A bar for each engine, a panel for each case."""
    panels: dict[str, dict[str, float]] = {}
    for r in results:
        case = title(r["size"], r["beam"], r["batch"])
        panels.setdefault(case, {})[r["engine"]] = r["median"]
    benchmarking.draw(panels, "output tokens per second", path)


# --------------------------------------------------------------------------------- the driver


def measure(args: argparse.Namespace, chosen: Sequence[str], scratch: str) -> dict[str, Any]:
    """All rounds: samples, versions, and what was skipped or failed and why."""
    python = interpreters(args.python, PEERS)
    found: dict[str, Any] = {"versions": {}, "skipped": {}, "errors": [], "samples": []}
    todo = {}
    for name in chosen:
        cases = [Case(s, b, n) for s in args.sizes for b in args.beams for n in args.batches]
        todo[name] = [case for case in cases if case.batch >= ENGINES[name].min_batch]
    for number in range(1, args.rounds + 1):
        for name in [name for name in chosen if todo[name]]:
            peer = ENGINES[name].peer
            options = ["--worker", name, "--cases", ",".join(map(str, todo[name]))]
            options += ["--threads", args.threads, "--seconds", args.seconds, "--scratch", scratch]
            command = [python.get(peer, sys.executable), __file__, *map(str, options)]
            records, error = run_worker(command, args.threads)
            samples = [{**r, "round": number} for r in records if "tokens" in r]
            found["samples"] += samples
            for record in records:
                if "skipped" in record:
                    found["skipped"][name] = record["skipped"]
                    say(f"{name}: skipped, {record['skipped']}")
                    todo[name] = []
                if "versions" in record:
                    found["versions"][peer] = record["versions"]
            for s in samples:
                note = " (disturbed)" if s["disturbed"] else ""
                where = title(s["size"], s["beam"], s["batch"])
                say(f"round {number}  {name}  {where}: {s['tokens_per_second']}/s{note}")
            if error:
                found["errors"].append({"engine": name, "round": number, "error": error})
                say(f"round {number}  {name}: {error}")
                # The case that it failed in is not tried again; if it never started, none is.
                failed = todo[name][len(samples) : len(samples) + 1]
                todo[name] = [case for case in todo[name] if samples and case not in failed]
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])  # type: ignore[union-attr]
    parser.add_argument("--sizes", type=names, default=["small", "base"])
    parser.add_argument("--beams", type=numbers, default=[1, 4])
    parser.add_argument("--batches", type=numbers, default=[1, 64])
    parser.add_argument("--peers", type=names, help="peers or single engines; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each sample, at least")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--output", help="a JSON file")
    parser.add_argument("--picture", help="a PNG file, drawn by matplotlib where it is installed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--cases", type=names, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if unknown := sorted(set(args.sizes) - set(SIZES)):
        parser.error(f"--sizes: {unknown[0]!r} is none of {', '.join(SIZES)}")
    every = {*ENGINES, *PEERS}
    if args.peers and (unknown := sorted(set(args.peers) - every)):
        parser.error(f"--peers: {unknown[0]!r} is none of {', '.join(sorted(every))}")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if args.worker:
        if lacks := missing(ENGINES[args.worker].packages):
            print(json.dumps({"skipped": f"{' and '.join(lacks)} not installed"}))
            return 0
        print(json.dumps({"versions": versions(["torch", *PEERS])}), flush=True)
        cases = [Case.parse(text) for text in args.cases]
        setup = Setup(args.threads, args.scratch)
        for sample in work(args.worker, cases, setup, args.seconds):
            print(json.dumps(sample), flush=True)
        return 0
    wanted = args.peers or list(ENGINES)
    chosen = [name for name, e in ENGINES.items() if name in wanted or e.peer in wanted]
    with tempfile.TemporaryDirectory(prefix="benchmark") as scratch:
        found = measure(args, chosen, scratch)
    results = summarise(found["samples"])
    report = {
        "date": date.today().isoformat(),
        "command": command_line(),
        "machine": machine(),
        "threads": args.threads,
        "rounds": args.rounds,
        "seconds": args.seconds,
        **{key: found[key] for key in ("versions", "skipped", "errors")},
        "results": results,
        "samples": found["samples"],
    }
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.picture and results:
        draw(results, args.picture)
    print(markdown(results) if results else "nothing was measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
