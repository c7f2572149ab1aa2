"""Helpers that the benchmarks share: clocks, worker processes in other interpreters, options.

The interpreters of other toolkits import this file too. Its top therefore imports nothing but the
standard library.

A sample is disturbed when other processes kept more than MAX_OTHERS cores busy meanwhile: threads
that wait for each other suffer far more than their share. Medians leave disturbed samples out,
unless all are disturbed.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

MAX_OTHERS = 0.15  # cores that other processes may keep busy during a sample
TIMEOUT = 900  # seconds that one worker may take

Sample = dict[str, Any]


# ------------------------------------------------------------------------------- in the worker


class Meter:
    """Measures the wall time of a block in ``seconds``, and in ``others`` the load from outside:
    how many cores other processes kept busy, or None where the system does not tell."""

    def __enter__(self) -> "Meter":
        self._before = _busy(), time.process_time(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        busy, own, start = self._before
        self.seconds = time.perf_counter() - start
        now = _busy()
        self.others = None
        if busy is not None and now is not None:
            elsewhere = now - busy - (time.process_time() - own)
            self.others = round(max(0.0, elsewhere / self.seconds), 3)

    def load(self) -> Sample:
        return {"others": self.others, "disturbed": disturbed(self.others)}


def _busy() -> float | None:
    """Seconds that all cores together have worked since the machine started."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def disturbed(others: float | None) -> bool:
    return others is not None and others > MAX_OTHERS


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of the distributions that this interpreter has."""
    installed = {"python": platform.python_version()}
    for name in distributions:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


class JsonLines:
    """A file that gets a line of JSON at a time."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8", buffering=1)  # each line at once

    def write(self, **values: Any) -> None:
        self.file.write(json.dumps(values, ensure_ascii=False) + "\n")


def emit(record: Mapping[str, Any]) -> None:
    """Send a record to the driver: a worker prints a JSON line for each."""
    print(json.dumps(record), flush=True)


def start_worker(packages: Iterable[str], distributions: Iterable[str], threads: int) -> bool:
    """Set torch's threads and emit the versions; if a package is missing, emit that instead.

    Returns whether the worker can go on.
    """
    if absent := [name for name in packages if importlib.util.find_spec(name) is None]:
        emit({"skipped": f"{' and '.join(absent)} not installed"})
        return False
    import torch

    torch.set_num_threads(threads)
    emit({"versions": versions(["torch", *distributions])})
    return True


# ------------------------------------------------------------------------------- in the driver


class Rounds:
    """Runs workers, each in its toolkit's interpreter, and collects what they emit.

    ``skipped`` and ``errors`` tell which engines were not measured, and why.
    """

    def __init__(
        self,
        script: str,
        args: argparse.Namespace,
        toolkits: Iterable[str],
        describe: Callable[[Sample], str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``args`` holds ``python`` and ``threads``; every worker gets the ``environment`` too."""
        self.script, self.threads, self.environment = script, args.threads, environment
        self.describe = describe
        self.interpreters = interpreters(args.python, toolkits)
        self.versions: dict[str, dict[str, str]] = {}  # by toolkit
        self.skipped: dict[str, str] = {}  # by engine
        self.errors: list[dict[str, Any]] = []
        self.samples: list[Sample] = []

    def run(
        self, number: int, engine: str, toolkit: str, options: Sequence[object], **case: str
    ) -> tuple[list[Sample], bool]:
        """Run one worker in the round ``number``; returns its samples, and whether it failed.

        Samples and errors repeat the round and the ``case``, which is part of the options.
        """
        command = [self.interpreters.get(toolkit, sys.executable), self.script, "--worker", engine]
        command += map(str, ["--threads", self.threads, *options])
        records, error = run_worker(command, self.threads, self.environment)
        label = "  ".join([f"round {number}", *case.values(), engine])
        samples = []
        for record in records:
            if "skipped" in record:
                self.skipped[engine] = record["skipped"]
                say(f"{engine}: skipped, {record['skipped']}")
            elif "versions" in record:
                self.versions[toolkit] = record["versions"]
            else:
                samples.append({"engine": engine, **case, "round": number, **record})
                note = " (disturbed)" if record.get("disturbed") else ""
                say(f"{label}: {self.describe(samples[-1])}{note}")
        self.samples += samples
        if error:
            self.errors.append({"engine": engine, **case, "round": number, "error": error})
            say(f"{label}: {error}")
        return samples, bool(error)

    def facts(self) -> dict[str, Any]:
        """What a report says of the workers beside their samples."""
        return {"versions": self.versions, "skipped": self.skipped, "errors": self.errors}


def run_worker(
    command: Sequence[str], threads: int, variables: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], str]:
    """The JSON lines that a worker printed, and the last line of its error, empty if it succeeded.

    ``variables`` are added to its environment.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        **(variables or {}),
    }
    output: str | bytes | None
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        output, error = done.stdout, ""
        if done.returncode:
            messages = [line for line in done.stderr.splitlines() if line.strip()]
            error = messages[-1] if messages else f"exit status {done.returncode}"
    except OSError as problem:
        return [], f"{problem.strerror}: {Path(command[0]).name}"
    except subprocess.TimeoutExpired as late:
        output, error = late.stdout, f"not done after {TIMEOUT} seconds"
    if isinstance(output, bytes):  # subprocess gives bytes where it stopped the process
        output = output.decode()
    records = [json.loads(line) for line in (output or "").splitlines() if line.startswith("{")]
    return records, error


def interpreters(options: Sequence[str], toolkits: Iterable[str]) -> dict[str, str]:
    """NAME=PATH ... -> {NAME: PATH}. Raises SystemExit for a name that is no toolkit's."""
    paths = dict(option.partition("=")[::2] for option in options)
    if unknown := sorted(set(paths) - set(toolkits)):
        raise SystemExit(f"--python {unknown[0]}: the toolkits are {', '.join(sorted(toolkits))}")
    return paths


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


# -------------------------------------------------------------------------------- command lines


def new_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser that describes itself by the first line of the script's docstring."""
    return argparse.ArgumentParser(description=(doc or "").split("\n", 1)[0])


def add_worker_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="a toolkit's interpreter"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)


def add_output_options(
    parser: argparse.ArgumentParser, picture: bool = True, threads: int = 2, required: bool = False
) -> None:
    help = "of each program (default %(default)s)"
    parser.add_argument("--threads", type=int, default=threads, help=help)
    parser.add_argument("--output", type=Path, required=required, help="a JSON file")
    if picture:
        help = "a PNG file, drawn where matplotlib is installed"
        parser.add_argument("--picture", type=Path, help=help)


def check_names(
    parser: argparse.ArgumentParser, option: str, values: Iterable[str], known: Iterable[str]
) -> None:
    if unknown := sorted(set(values) - set(known)):
        parser.error(f"{option}: {unknown[0]!r} is none of {', '.join(known)}")


def check_at_least_one(
    parser: argparse.ArgumentParser, args: argparse.Namespace, *options: str
) -> None:
    for option in options:
        if getattr(args, option) < 1:
            parser.error(f"--{option.replace('_', '-')}: must be at least 1")


def names(text: str) -> list[str]:
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]
