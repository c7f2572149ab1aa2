"""How fast the server is, side by side with simpler ones around the same model.

python scripts/benchmarks/serve.py --output results/serve.json --picture results/serve.png

Clients on this machine translate single sentences over HTTP with the bundled model; each sends the
next one as soon as it has an answer. The engines behind the same application are mt.serve's
continuous batching, the same Translator for one request at a time or for what arrives within 10 ms,
and CTranslate2 for what arrives within 10 ms. docs/performance.md says what is equal.
"""

import argparse
import asyncio
import hashlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarking
import reporting
from benchmarking import Sample, names, numbers, say
from reporting import Row, cell, group_by, ratio
from serve_clients import Server, bar, closed_loop, long_texts, percentile, sentences, translate

from mt.model.checkpoint import digest
from mt.model.model_path import resolve_model_path

HERE = Path(__file__).parent
OURS = "continuous batching"
ENGINES = {  # the program of each, which gets --port
    OURS: ["-m", "mt.serve"],
    "one at a time": [HERE / "serve_engines.py", "one-at-a-time"],
    "10 ms window": [HERE / "serve_engines.py", "window"],
    "CTranslate2": [HERE / "serve_engines.py", "ctranslate2"],
}
PLAIN, STREAM, BESIDE = "single sentences", "streamed", "beside long texts"
VERSIONS = ("torch", "ctranslate2", "fastapi", "uvicorn", "starlette", "pydantic")
LONG_WORDS = 2000
FEW, MANY = 8, 64  # the clients for which bars are set
MIN_SHARE, MAX_P95, MAX_P95_BESIDE = 0.8, 0.5, 1.5
FIGURES = {
    "requests_per_second": ".1f",
    "p50_ms": ".0f",
    "p95_ms": ".0f",
    "p99_ms": ".0f",
    "first_token_p50_ms": ".0f",
    "first_token_p95_ms": ".0f",
}
COLUMNS = {
    "engine": lambda row: row["engine"],
    **{
        name.replace("_per_second", "/s").replace("_ms", ", ms").replace("_", " "): (
            lambda row, name=name, form=form: cell(row[name] and row[name]["median"], form)
        )
        for name, form in FIGURES.items()
    },
    "disturbed": lambda row: row["requests_per_second"]["disturbed"],
}


def title(row: Row) -> str:
    return f"{row['clients']} client{'s' * (row['clients'] > 1)}, {row['kind']}"


def measure(server: Server, kind: str, clients: int, args: argparse.Namespace) -> Sample:
    """One closed loop."""
    requests = itertools.cycle([translate(s, kind == STREAM) for s in sentences(args.sentences)])
    texts = long_texts(5, LONG_WORDS) if kind == BESIDE else []
    beside = itertools.cycle([translate(text) for text in texts]) if texts else None
    server_before, own_before = server.cpu_seconds(), time.process_time()
    with benchmarking.Meter() as meter:  # it also covers the time before and after the measurement
        load = asyncio.run(closed_loop(server.port, requests, clients, args.seconds, beside))
    server_cores = (server.cpu_seconds() - server_before) / meter.seconds
    others = None if meter.others is None else round(max(0.0, meter.others - server_cores), 3)
    good = [answer for answer in load.answers if answer.status == 200]
    sample = {
        "kind": kind,
        "clients": clients,
        "requests": len(good),
        "failed": len(load.answers) - len(good),
        "requests_per_second": round(len(good) / load.seconds, 2),
        "server_cores": round(server_cores, 2),
        "client_cores": round((time.process_time() - own_before) / meter.seconds, 2),
        "others": others,
        "disturbed": benchmarking.disturbed(others),
    }
    if kind == BESIDE:
        sample["long_texts"] = sum(answer.status == 200 for answer in load.beside)
    for share in (50, 95, 99) if good else ():
        times = [answer.seconds for answer in good]
        sample[f"p{share}_ms"] = round(1000 * percentile(times, share / 100), 1)
    for share in (50, 95) if good and kind == STREAM else ():
        times = [answer.first for answer in good]
        sample[f"first_token_p{share}_ms"] = round(1000 * percentile(times, share / 100), 1)
    return sample


def run_round(number: int, engine: str, args: argparse.Namespace, export: Path) -> list[Sample]:
    """All measurements of one engine, in a server process of its own."""
    command = ENGINES[engine]
    if engine == "CTranslate2":
        command = [*command, "--export", export]
    with Server(command) as server:
        samples: list[Sample] = []
        say(f"round {number}  {engine}: ready after {server.seconds_to_ready:.1f} s")
        asyncio.run(closed_loop(server.port, itertools.cycle([translate("Hello.")]), 2, 1.0))
        cases = [(kind, n) for kind in (PLAIN, STREAM) for n in args.clients]
        cases += [(BESIDE, FEW)] if FEW in args.clients else []
        for kind, clients in cases:
            sample = {"engine": engine, "round": number, **measure(server, kind, clients, args)}
            samples.append(sample)
            note = " (disturbed)" if sample["disturbed"] else ""
            note += f", {sample['failed']} failed" if sample["failed"] else ""
            say(
                f"round {number}  {engine}, {title(sample)}: {sample['requests_per_second']:.1f} "
                f"requests/s, p95 {sample.get('p95_ms', float('nan')):.0f} ms{note}"
            )
    return samples


def offline(number: int, args: argparse.Namespace) -> list[Sample]:
    """The Translator without a server, in a process of its own."""
    command = [sys.executable, str(HERE / "serve_engines.py"), "offline"]
    command += ["--sentences", str(args.sentences)]
    records, error = benchmarking.run_worker(command, args.threads)
    if error:
        raise SystemExit(f"offline: {error}")
    for record in records:
        say(f"round {number}  offline: {record['requests_per_second']:.1f} sentences/s")
    return [{"engine": "offline", "round": number, **record} for record in records]


def export_ctranslate2(folder: Path) -> None:
    command = [sys.executable, "-m", "mt.export", "everyday", str(folder), "--to", "ctranslate2"]
    _, error = benchmarking.run_worker([*command, "--precision", "float32"], 2)
    if error:
        raise SystemExit(f"the export to CTranslate2 failed: {error}")


# ----------------------------------------------------------------------------------- the report


def typical(samples: Sequence[Row], key: str) -> dict[str, Any] | None:
    """The median over the rounds, if the samples have this figure."""
    having = [sample for sample in samples if key in sample]
    return reporting.typical(having, key) if having else None


def summarise(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """A row for each setting and engine."""
    return [
        {
            "kind": kind,
            "clients": clients,
            "engine": engine,
            **{name: typical(group, name) for name in FIGURES},
            "failed": sum(sample["failed"] for sample in group),
            "long_texts": sum(sample.get("long_texts", 0) for sample in group),
        }
        for (kind, clients, engine), group in group_by(samples, "kind", "clients", "engine").items()
    ]


def bars(rows: Sequence[Row], offline_rate: float | None) -> dict[str, Any]:
    """What was promised, and whether it holds; None where it was not measured."""

    def figure(kind: str, clients: int, engine: str, name: str) -> float | None:
        case = {"kind": kind, "clients": clients, "engine": engine}
        values = [row[name] for row in rows if case.items() <= row.items() and row[name]]
        return values[0]["median"] if values else None

    def quotient(value: float | None, reference: float | None) -> float | None:
        return None if value is None else ratio(value, reference)

    rate = figure(PLAIN, MANY, OURS, "requests_per_second")
    p95 = figure(PLAIN, FEW, OURS, "p95_ms")
    one_at_a_time = figure(PLAIN, FEW, "one at a time", "p95_ms")
    beside = figure(BESIDE, FEW, OURS, "p95_ms")
    return {
        f"rate of {MANY} clients relative to offline, batches of 64": bar(
            quotient(rate, offline_rate), least=MIN_SHARE
        ),
        f"p95 of {FEW} clients relative to one at a time": bar(
            quotient(p95, one_at_a_time), most=MAX_P95
        ),
        f"p95 of {FEW} clients beside texts of {LONG_WORDS:,} words, relative to without": bar(
            quotient(beside, p95), most=MAX_P95_BESIDE
        ),
    }


def draw(rows: Sequence[Row], offline_rate: float | None, path: Path | None) -> None:
    """Requests a second, p95 and the time to the first token over the number of clients."""
    pyplot = reporting.pyplot_for(path)
    if pyplot is None:
        return
    panels = (
        (PLAIN, "requests_per_second", "requests/s"),
        (PLAIN, "p95_ms", "p95, ms"),
        (STREAM, "first_token_p50_ms", "time to first token, median, ms"),
    )
    figure, axes = pyplot.subplots(1, len(panels), figsize=(15, 4.5))
    for axis, (kind, name, label) in zip(axes, panels, strict=True):
        for engine, group in group_by(rows, "engine").items():
            points = [
                (r["clients"], r[name]["median"]) for r in group if r["kind"] == kind and r[name]
            ]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=engine)
        axis.set(xlabel="clients", ylabel=label, xscale="log")
        clients = sorted({row["clients"] for row in rows})
        axis.set_xticks(clients, [str(n) for n in clients])
        axis.minorticks_off()
    if offline_rate:
        axes[0].axhline(offline_rate, linestyle="--", color="tab:gray", label="offline, batch 64")
    axes[0].set_ylim(bottom=0)
    for axis in axes[1:]:
        axis.set_yscale("log")
    axes[0].legend()
    reporting.save_figure(figure, path)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = benchmarking.new_parser(__doc__)
    add = parser.add_argument
    add("--clients", type=numbers, default=[1, 8, 64, 256], help="default 1,8,64,256")
    add("--engines", type=names, default=list(ENGINES), help=f"default all: {', '.join(ENGINES)}")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=6.0, help="of each measurement (default 6)")
    add("--sentences", type=int, default=1000, help="different ones (default 1000)")
    benchmarking.add_output_options(parser)
    args = parser.parse_args(argv)
    benchmarking.check_names(parser, "--engines", args.engines, ENGINES)
    benchmarking.check_at_least_one(parser, args, "rounds", "sentences", "threads")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # of the servers
    samples: list[Sample] = []
    offline_samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as scratch:
        export = Path(scratch) / "ctranslate2"
        if "CTranslate2" in args.engines:
            export_ctranslate2(export)
        for number in range(1, args.rounds + 1):
            offline_samples += offline(number, args)
            for engine in args.engines:
                samples += run_round(number, engine, args, export)
    rows = summarise(samples)
    without_server = {
        name: typical(offline_samples, name)
        for name in ("requests_per_second", "in_order_of_arrival")
    }
    rate = without_server["requests_per_second"]["median"]
    texts = sentences(args.sentences)
    report = reporting.new_report(
        versions=benchmarking.versions(VERSIONS),
        threads=args.threads,
        model_sha256=digest(resolve_model_path("everyday")),
        settings={
            "clients": args.clients,
            "rounds": args.rounds,
            "seconds": args.seconds,
            "sentences": len(texts),
            "words": round(statistics.mean(len(text.split()) for text in texts), 2),
            "sentences_sha256": hashlib.sha256("\n".join(texts).encode()).hexdigest(),
        },
        bars=bars(rows, rate),
        offline=without_server,
        results=rows,
        samples=offline_samples + samples,
    )
    reporting.write_report(args.output, report)
    draw(rows, rate, args.picture)
    print(reporting.sections(rows, title, COLUMNS))
    for name, outcome in report["bars"].items():
        print(f"{name}: {json.dumps(outcome)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
