"""Measures mt.corpus: overhead, memory, a cluster that loses actors and a node, a killed run.

    python scripts/benchmarks/corpus_cluster.py --input lines.en --folder WORK --output out.json

Each step leaves its record in WORK/records; a step whose record is there is not run again, so the
script goes on where it was stopped. Remove a record to repeat its step.

one      mt.translate, one process with --threads workers: what all others must equal
tenth    mt.corpus over the first tenth of the lines, --threads actors of one thread: their memory
core     the same with one actor: the rate of one core
whole    the same over all lines: time against `one`, memory against `tenth`
cluster  two nodes of Ray, each with half of the threads; actors are killed at random (SIGKILL), and
         one node is lost
killed   the program itself is killed after about a third, and given again
hostile  lines that no corpus should have, among good ones
"""

import json
import os
import platform
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking import (
    add_output_options,
    check_at_least_one,
    check_names,
    names,
    new_parser,
    say,
    versions,
)
from reporting import remember

Record = dict[str, Any]
WAIT = 0.5  # seconds between two samples of memory
# Where the step `cluster` is a process of its own: its name as an argument.
CLUSTER = "--cluster"


def parse() -> Any:
    parser = new_parser(__doc__)
    parser.add_argument("--input", type=Path, required=True, help="a text, one sentence a line")
    parser.add_argument("--lines", type=int, default=200_000, help="of it (default %(default)s)")
    parser.add_argument("--folder", type=Path, required=True, help="for the files of the run")
    parser.add_argument("--model", default="everyday", help="(default %(default)s)")
    parser.add_argument("--beam-size", type=int, default=4, help="(default %(default)s)")
    parser.add_argument("--block-rows", type=int, default=2048, help="(default %(default)s)")
    parser.add_argument("--kills", type=int, default=20, help="of actors (default %(default)s)")
    parser.add_argument("--steps", type=names, default=list(STEPS), metavar="NAME,NAME")
    parser.add_argument(CLUSTER, action="store_true", help="(used by the script itself)")
    add_output_options(parser, picture=False, required=True)
    args = parser.parse_args()
    check_names(parser, "--steps", args.steps, STEPS)
    check_at_least_one(parser, args, "lines", "beam_size", "block_rows", "threads")
    if args.kills < 0:
        parser.error("--kills: must not be negative")
    return args


# Processes


def descendants(pid: int) -> list[int]:
    """The processes that this one has started, and those that they have."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
    pids = [pid]
    for parent in pids:
        pids += [child for child, its_parent in parents.items() if its_parent == parent]
    return pids[1:]


def memory(pids: list[int]) -> int:
    """Bytes that processes take, a shared page divided among those that share it."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(1024 * int(size) for size in re.findall(r"^Pss: +(\d+)", text, re.M))
    return total


def actors(pid: int) -> list[int]:
    """The actors among the processes that this one has started."""
    pids = []
    for child in descendants(pid):
        with suppress(OSError):
            if b"MapWorker" in Path(f"/proc/{child}/cmdline").read_bytes():
                pids.append(child)
    return pids


def measured(command: list[Any], environment: dict[str, str]) -> Record:
    """Run a program to its end: seconds and most memory. SystemExit if it fails."""
    start = time.perf_counter()
    with subprocess.Popen(
        list(map(str, command)), env=environment, stderr=subprocess.PIPE, text=True
    ) as program:
        errors: list[str] = []
        reading = threading.Thread(target=lambda: errors.extend(program.stderr or []))
        reading.start()
        most = most_of_actors = 0
        while program.poll() is None:
            most = max(most, memory([program.pid, *descendants(program.pid)]))
            most_of_actors = max(most_of_actors, memory(actors(program.pid)))
            time.sleep(WAIT)
        reading.join()
    if program.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{''.join(errors)[-2000:]}")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "peak_mib": most // 2**20,
        "peak_mib_of_actors": most_of_actors // 2**20,
        "said": errors[-1].strip() if errors else "",
    }


def translate(args: Any, source: Path, output: Path, *options: Any) -> list[Any]:
    return [
        *(sys.executable, "-m", "mt.corpus", "translate", "--input", source, "--output", output),
        *("--model", args.model, "--beam-size", args.beam_size, "--device", "cpu"),
        *("--block-rows", args.block_rows, *options),
    ]


def environment() -> dict[str, str]:
    """A token of its own for each cluster, which otherwise keeps one in the home folder."""
    return {**os.environ, "RAY_AUTH_TOKEN": secrets.token_hex(32)}


# Steps


def one(args: Any) -> Record:
    output = args.folder / "one.txt"
    command = [
        *(sys.executable, "-m", "mt.translate", "--input", args.lines_file, "--output", output),
        *("--model", args.model, "--beam-size", args.beam_size, "--device", "cpu", "--no-split"),
        *("--workers", args.threads, "--restart"),
    ]
    variables = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    return measured(command, variables)


def tenth(args: Any, actors: int | None = None) -> Record:
    source, output = args.folder / "tenth.en", args.folder / "tenth.txt"
    lines = max(1, args.lines // 10)
    first_lines(args.lines_file, source, lines)
    output.unlink(missing_ok=True)
    options = ("--actors", actors or args.threads, "--overwrite")
    record = measured(translate(args, source, output, *options), environment())
    return {**record, "lines": lines}


def core(args: Any) -> Record:
    return tenth(args, actors=1)


def whole(args: Any) -> Record:
    output = args.folder / "whole.txt"
    output.unlink(missing_ok=True)
    options = ("--actors", args.threads, "--overwrite")
    record = measured(translate(args, args.lines_file, output, *options), environment())
    return {**record, "equal": equal(args, output)}


def cluster(args: Any) -> Record:
    done = subprocess.run(
        [sys.executable, *sys.argv, CLUSTER], env=environment(), stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit("the step `cluster` failed")
    output = args.folder / "cluster.txt"
    return {**json.loads(done.stdout.splitlines()[-1]), "equal": equal(args, output)}


def killed(args: Any) -> Record:
    output = args.folder / "killed.txt"
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    output.unlink(missing_ok=True)
    command = translate(args, args.lines_file, output, "--actors", args.threads)
    variables = environment()
    program = subprocess.Popen(list(map(str, command)), env=variables, stderr=subprocess.DEVNULL)
    wanted = max(1, args.lines // args.block_rows // 3)
    while len(done_blocks(partial)) < wanted:
        if program.poll() is not None:
            raise SystemExit("the program ended before it was killed: give more --lines")
        time.sleep(0.1)
    program.kill()
    program.wait()
    time.sleep(5)  # its actors end too
    kept = done_blocks(partial)
    record = measured(command, variables)
    return {**record, "blocks_kept": len(kept), "equal": equal(args, output)}


def hostile(args: Any) -> Record:
    source, output = args.folder / "hostile.en", args.folder / "hostile.jsonl"
    rng = random.Random(0)
    good = args.lines_file.read_bytes().split(b"\n")[: min(200, args.lines)]
    bad = [
        b"\xff\xfe\x00", b"\xc3", b"\xed\xa0\x80 half of a pair", b"x" * (2**24 + 5),
    ]  # fmt: skip
    odd = [
        b"\x00\x01\x02", b"a\rb", "a\u2028b\u2029c\u0085d".encode(), b"", b" " * 10_000,
        ("\u202e" * 50).encode(), "😀".encode() * 300, b"word " * 4_000, b"x" * 20_000,
    ]  # fmt: skip
    lines = [*good, *bad, *odd]
    order = rng.sample(range(len(lines)), len(lines))  # of the lines in the file
    lines = [lines[i] for i in order]
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    for path in (output, Path(f"{output}.errors.jsonl")):
        path.unlink(missing_ok=True)
    command = translate(
        args, source, output, "--column", "en=de", "--actors", args.threads, "--overwrite",
    )  # fmt: skip
    record = measured(command, environment())
    errors = Path(f"{output}.errors.jsonl").read_text("utf-8").splitlines()
    numbers = sorted(json.loads(error)["number"] for error in errors)
    rows = [json.loads(row)["de"] for row in output.read_text("utf-8").split("\n")[:-1]]
    translations = {i: row for i, row in zip(order, rows, strict=False) if i < len(good)}
    one_process = (args.folder / "one.txt").read_text("utf-8").split("\n")[: len(good)]
    told = numbers == [i for i, line in enumerate(lines, 1) if line in bad]
    return {
        **record,
        "rows": len(rows),
        "expected_rows": len(lines),
        "errors": len(errors),
        "equal": told and [translations.get(i) for i in range(len(good))] == one_process,
    }


STEPS: dict[str, Callable[[Any], Record]] = {
    "one": one, "tenth": tenth, "core": core, "whole": whole, "cluster": cluster, "killed": killed,
    "hostile": hostile,
}  # fmt: skip


def equal(args: Any, output: Path) -> bool:
    return output.read_bytes() == (args.folder / "one.txt").read_bytes()


def done_blocks(partial: Path) -> list[Path]:
    return list(partial.glob("*/*[0-9].json"))


def first_lines(source: Path, output: Path, lines: int) -> None:
    with source.open("rb") as stream, output.open("wb") as copy:
        for number, line in enumerate(stream, start=1):
            copy.write(line)
            if number == lines:
                return
    raise SystemExit(f"{source}: has fewer than {lines:,} lines")


# The process of the step `cluster`


@contextmanager
def two_nodes(threads: int) -> Iterator[tuple[Any, Any]]:
    """A cluster of Ray with two nodes of ``threads`` CPUs, and the second of them."""
    from ray.cluster_utils import Cluster

    from mt.corpora.actors import ray

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": threads})
    try:
        other = nodes.add_node(num_cpus=threads)
        ray.init(address=nodes.address, log_to_driver=False)
        yield nodes, other
    finally:
        ray.shutdown()
        nodes.shutdown()


class Losses:
    """What a cluster loses while its rows are done: ``kills`` actors, and a node at half."""

    def __init__(self, lines: int, kills: int, remove_node: Callable[[], None]) -> None:
        self.lines, self.remove_node = lines, remove_node
        self.random = random.Random(0)
        self.moments = sorted(self.random.uniform(0, 0.9) * lines for _ in range(kills))
        self.done = 0
        self.node_lost = False
        self.killed: set[int] = set()

    def progress(self, rows: int) -> None:
        """So many more rows are done."""
        self.done += rows
        if not self.node_lost and self.done >= self.lines / 2:
            self.remove_node()
            self.node_lost = True
        while len(self.killed) < len(self.moments) and self.moments[len(self.killed)] <= self.done:
            if not (victims := [pid for pid in actors(os.getpid()) if pid not in self.killed]):
                return  # one is starting: the next block is as good
            victim = self.random.choice(victims)
            os.kill(victim, signal.SIGKILL)
            self.killed.add(victim)


def run_cluster(args: Any) -> None:
    """Translate on two nodes, kill actors and one node, and print a record."""
    from mt.corpora.actors import Actors
    from mt.corpora.job import run_job
    from mt.corpora.models import Models, Translate

    threads = max(1, args.threads // 2)
    models = Models.find([args.model], "cpu")
    options = replace(models.search_defaults, beam_size=args.beam_size)
    with two_nodes(threads) as (nodes, other):
        remove = partial(nodes.remove_node, other, allow_graceful=False)
        losses = Losses(args.lines, args.kills, remove)
        start = time.perf_counter()
        summary = run_job(
            Translate(models, "text", "text", options),
            str(args.lines_file),
            str(args.folder / "cluster.txt"),
            Actors(threads=threads),
            block_rows=args.block_rows,
            overwrite=True,
            on_progress=losses.progress,
        )
        seconds = time.perf_counter() - start
    record = {
        "seconds": round(seconds, 1),
        "kills": len(losses.killed),
        "nodes_lost": int(losses.node_lost),
        "blocks": -(-args.lines // args.block_rows),
        "rows": summary.rows,
    }
    print(json.dumps(record))


def report(args: Any, records: dict[str, Record]) -> Record:
    figures: Record = {}
    if {"one", "whole"} <= records.keys():
        seconds = records["one"]["seconds"], records["whole"]["seconds"]
        figures["overhead"] = round(seconds[1] / seconds[0] - 1, 4)
    if "core" in records:
        core_seconds = records["core"]["seconds"] / records["core"]["lines"]
        figures["core_seconds_per_line"] = round(core_seconds, 6)
        figures["core_hours_of_100_million_lines"] = round(core_seconds * 1e8 / 3600)
    if {"tenth", "whole"} <= records.keys():
        peaks = [records[step]["peak_mib_of_actors"] for step in ("tenth", "whole")]
        figures["growth_of_memory"] = round(peaks[1] / peaks[0] - 1, 4) if peaks[0] else None
    # The step `cluster` shows nothing unless its actors were killed and its node was lost.
    survived = records.get("cluster", {"kills": args.kills, "nodes_lost": 1})
    equals = all(record.get("equal", True) for record in records.values())
    figures["all_equal"] = equals and (survived["kills"], survived["nodes_lost"]) == (args.kills, 1)
    return figures


def main() -> None:
    args = parse()
    records_folder = args.folder / "records"
    records_folder.mkdir(parents=True, exist_ok=True)
    args.folder = args.folder.resolve()
    args.lines_file = args.folder / "lines.en"
    if args.cluster:
        run_cluster(args)
        return
    settings = {
        name: str(getattr(args, name))
        for name in ("input", "lines", "model", "beam_size", "block_rows", "kills", "threads")
    }
    try:
        remember(records_folder / "settings.json", settings, "name another --folder")
    except ValueError as error:
        raise SystemExit(str(error)) from None
    first_lines(args.input, args.lines_file, args.lines)
    records: dict[str, Record] = {}
    for step, measure in STEPS.items():
        file = records_folder / f"{step}.json"
        if step in args.steps and not file.exists():
            say(f"{step} ...")
            file.write_text(json.dumps(measure(args)))
        if file.exists():
            records[step] = json.loads(file.read_text())
            say(f"{step}: {records[step]}")
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"cores": os.cpu_count(), "system": platform.machine()},
        "versions": versions(["torch", "ray", "pyarrow"]),
        "settings": settings,
        "steps": records,
        **report(args, records),
    }
    args.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
