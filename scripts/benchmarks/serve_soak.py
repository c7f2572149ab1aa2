"""What the server does under many requests, too many, malformed ones, and clients that vanish.

python scripts/benchmarks/serve_soak.py --output results/serve-soak.json

Each part has a server of its own, `python -m mt.serve` with its default limits, and can be run
alone: then the file keeps the other parts that it has. The exit status is 1 when a server did what
it must not do.
"""

import argparse
import asyncio
import collections
import itertools
import json
import multiprocessing
import random
import re
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any

import benchmarking
import reporting
import serve_malformed
from benchmarking import names, say
from serve_clients import (
    HOST,
    Answer,
    Connection,
    Server,
    bar,
    closed_loop,
    long_texts,
    message,
    open_loop,
    percentile,
    sentences,
    translate,
)

SERVER = ["-m", "mt.serve"]
CLIENTS = 32
SHORT = 5  # words of the sentences of the long run
MAX_GROWTH = 0.05  # of the memory, from a tenth of the requests to the end
OVERLOAD = 10  # times the capacity
MAX_LIVE = 0.050  # seconds for /health/live, p99
PATIENCE = 0.5  # seconds that a client waits at most before it vanishes
MAX_STOP = 5.0  # seconds until the work of clients that vanished has stopped
GOOD = 20  # sentences of the well-behaved client
TOGETHER = 32  # malformed requests at a time

Report = dict[str, Any]


# --------------------------------------------------------------------------- (a) many requests


async def many(server: Server, args: argparse.Namespace) -> Report:
    """Short sentences, every twentieth as a stream; the server's memory at each hundredth."""
    texts = sentences(1000, SHORT)
    requests = itertools.cycle([translate(text, i % 20 == 0) for i, text in enumerate(texts)])
    statuses: collections.Counter[int] = collections.Counter()
    memory: list[int] = []
    step = max(1, args.requests // 100)
    start = time.perf_counter()

    async def client() -> None:
        connection = Connection(server.port)
        while (sent := statuses.total()) < args.requests:
            statuses[(await connection.request(next(requests))).status] += 1
            if statuses.total() // step > len(memory):
                memory.append(server.rss())
                if len(memory) % 10 == 0:
                    say(f"requests: {sent + 1:,}, {memory[-1] / 1e6:.0f} MB")
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    early = memory[max(0, len(memory) // 10 - 1)]
    good = statuses.pop(200, 0)
    return {
        "requests": good,
        "seconds": round(time.perf_counter() - start, 1),
        "memory_mb": [round(value / 1e6, 1) for value in memory],
        "bars": {
            "growth of memory": bar(round(memory[-1] / early - 1, 4), most=MAX_GROWTH),
            "requests without an answer": bar(statuses.total(), most=0),
        },
    }


# -------------------------------------------------------------------------------- (b) too many


def watch(port: int, path: str, seconds: float) -> list[float]:
    """Seconds of each answer to GET; runs in a process of its own."""

    async def run() -> list[float]:
        connection = Connection(port)
        times = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            answer = await connection.request(message("GET", path))
            times.append(answer.seconds if answer.status == 200 else float("inf"))
            await asyncio.sleep(0.02)
        return times

    return asyncio.run(run())


async def overload(server: Server, args: argparse.Namespace) -> Report:
    requests = itertools.cycle([translate(text) for text in sentences(1000)])
    load = await closed_loop(server.port, requests, 64, args.seconds)
    capacity = len(load.answers) / load.seconds
    say(f"overload: capacity {capacity:.0f} requests/s")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, watch, server.port, "/health/live", 0.1)  # warms up
        calm = await loop.run_in_executor(pool, watch, server.port, "/health/live", 2.0)
        watching = loop.run_in_executor(pool, watch, server.port, "/health/live", args.seconds)
        answers = await open_loop(server.port, requests, OVERLOAD * capacity, args.seconds)
        busy = await watching
    statuses = collections.Counter(answer.status for answer in answers)
    times = [answer.seconds for answer in answers if answer.status == 200] or [float("nan")]
    refusals = [answer.seconds for answer in answers if answer.status == 429] or [float("nan")]
    return {
        "capacity": round(capacity, 1),
        "sent": len(answers),
        "seconds": args.seconds,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "p95_of_accepted_ms": round(1000 * percentile(times, 0.95)),
        "p95_of_refused_ms": round(1000 * percentile(refusals, 0.95)),
        "live_p99_before_ms": round(1000 * percentile(calm, 0.99), 1),
        "live_most_ms": round(1000 * max(busy), 1),
        "bars": {
            "/health/live, p99 in ms": bar(
                round(1000 * percentile(busy, 0.99), 1), most=1000 * MAX_LIVE
            ),
            "answers that are neither 200 nor 429": bar(
                len(answers) - statuses[200] - statuses[429], most=0
            ),
            "refused": bar(statuses[429], least=1),
        },
    }


# -------------------------------------------------------------------------------- (c) malformed


async def texts_of(port: int, requests: Sequence[bytes]) -> list[str]:
    connection = Connection(port)
    texts = [_text(await connection.request(request)) for request in requests]
    connection.close()
    return texts


def _text(answer: Answer) -> str:
    if answer.status != 200:
        return f"status {answer.status}"
    return str(json.loads(answer.body)["translations"][0]["text"])


async def malformed(server: Server, args: argparse.Namespace) -> Report:
    rng = random.Random(args.seed)
    good = [translate(text) for text in sentences(GOOD)]
    expected = await texts_of(server.port, good)
    outcomes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    failures: list[str] = []
    over = asyncio.Event()
    work = iter([serve_malformed.make(rng) for _ in range(args.malformed)])

    async def sender() -> None:
        for one in work:
            outcome = await serve_malformed.send(server.port, one)
            outcomes[one.kind][str(outcome)] += 1
            if outcome == "refused" or (isinstance(outcome, int) and outcome in (500, 502)):
                failures.append(f"{one.kind}: {outcome}: {one.data[:300]!r}")

    async def neighbour() -> tuple[int, int]:
        """Of the answers in the meantime: how many, and how many differed."""
        count = differing = 0
        while not over.is_set():
            answers = await texts_of(server.port, good)
            count += len(answers)
            differing += sum(a != b for a, b in zip(answers, expected, strict=True))
        return count, differing

    watching = asyncio.create_task(neighbour())
    await asyncio.gather(*(sender() for _ in range(TOGETHER)))
    over.set()
    count, differing = await watching
    after = await texts_of(server.port, good)
    return {
        "requests": args.malformed,
        "seed": args.seed,
        "outcomes": {kind: dict(sorted(tally.items())) for kind, tally in sorted(outcomes.items())},
        "failures": failures[:20],
        "answers_of_the_neighbour": count,
        "bars": {
            "status 500 or no connection": bar(len(failures), most=0),
            "different answers of the neighbour": bar(
                differing + sum(a != b for a, b in zip(after, expected, strict=True)), most=0
            ),
        },
    }


# -------------------------------------------------------------------------------- (d) vanishing


async def vanish(server: Server, args: argparse.Namespace) -> Report:
    """Clients that send long texts, plain or as a stream, and leave within `PATIENCE`."""
    rng = random.Random(args.seed)
    texts = long_texts(10, 2000)

    async def client() -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        with suppress(OSError):
            writer.write(translate(rng.choice(texts), stream=rng.random() < 0.5))
            await writer.drain()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(100), rng.uniform(0, PATIENCE))
            if rng.random() < 0.3:  # a reset instead of an end
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, linger
                )
        writer.close()

    before, begun = await gauges(server.port), await sentences_begun(server.port)
    slowest = 0.0
    for start in range(0, args.vanishing, 10):
        await asyncio.gather(*(client() for _ in range(min(10, args.vanishing - start))))
        left = time.perf_counter()
        while any((await gauges(server.port)).values()):
            if time.perf_counter() - left > 2 * MAX_STOP:
                break
            await asyncio.sleep(0.01)
        slowest = max(slowest, time.perf_counter() - left)
    begun = await sentences_begun(server.port) - begun
    used = server.cpu_seconds()
    await asyncio.sleep(1)
    idle = server.cpu_seconds() - used
    connection = Connection(server.port)
    answer = await connection.request(translate("Where do you live?"))
    connection.close()
    return {
        "clients": args.vanishing,
        "before": before,
        "sentences_begun": begun,
        "bars": {
            "seconds until the work stopped": bar(round(slowest, 3), most=MAX_STOP),
            "share of a core that it uses afterwards": bar(round(idle, 2), most=0.2),
            "a good request afterwards": bar(answer.status, least=200, most=200),
        },
    }


async def gauges(port: int) -> dict[str, int]:
    """Sentences that wait, and that are translated now."""
    samples = re.findall(r"^mt_(queue|batch)_sentences (\S+)$", await metrics(port), re.MULTILINE)
    return {name: int(float(value)) for name, value in samples}


async def sentences_begun(port: int) -> int:
    """Sentences that have had a first token since the server started."""
    pattern = r"^mt_time_to_first_token_seconds_count (\S+)$"
    (count,) = re.findall(pattern, await metrics(port), re.MULTILINE)
    return int(float(count))


async def metrics(port: int) -> str:
    connection = Connection(port)
    answer = await connection.request(message("GET", "/metrics"))
    connection.close()
    return answer.body.decode()


# ----------------------------------------------------------------------------------------- main

PARTS: dict[str, Callable[[Server, argparse.Namespace], Any]] = {
    "many": many,
    "overload": overload,
    "malformed": malformed,
    "vanish": vanish,
}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = benchmarking.new_parser(__doc__)
    add = parser.add_argument
    add("--parts", type=names, default=list(PARTS), help=f"default all: {','.join(PARTS)}")
    add("--requests", type=int, default=100_000, help="of many (default 100000)")
    add("--seconds", type=float, default=15.0, help="of overload (default 15)")
    add("--malformed", type=int, default=1000, help="requests (default 1000)")
    add("--vanishing", type=int, default=100, help="clients (default 100)")
    add("--seed", type=int, default=0, help="of what is random (default 0)")
    benchmarking.add_output_options(parser, picture=False)
    args = parser.parse_args(argv)
    benchmarking.check_names(parser, "--parts", args.parts, PARTS)
    benchmarking.check_at_least_one(parser, args, "requests", "malformed", "vanishing")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    report = reporting.new_report(versions=benchmarking.versions(("torch", "fastapi", "uvicorn")))
    met = True
    for name in args.parts:
        with Server(SERVER) as server:
            part = asyncio.run(PARTS[name](server, args))
            tracebacks = server.messages().count("Traceback (most recent call last)")
            part["bars"]["tracebacks in the log"] = bar(tracebacks, most=0)
            part["bars"]["alive at the end"] = bar(int(server.is_alive()), least=1)
        report[name] = part
        for what, outcome in part["bars"].items():
            met = met and outcome["met"]
            print(f"{name}: {what}: {json.dumps(outcome)}", flush=True)
    if args.output is not None and args.output.is_file():
        before = json.loads(args.output.read_text())
        report = {**{name: before[name] for name in PARTS if name in before}, **report}
    reporting.write_report(args.output, report)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
