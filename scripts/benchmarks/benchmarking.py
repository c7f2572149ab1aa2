"""What the benchmarks share: a sample's clock, other interpreters, medians, tables, pictures.

The peers' interpreters read this file too: at its top it imports nothing but Python's own.

A sample is disturbed when other processes kept more than 0.15 cores busy meanwhile: threads that
wait for each other suffer far more than their share. Medians leave such samples out where there
are others.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

MAX_OTHERS = 0.15  # cores that other processes may keep busy during a sample
TIMEOUT = 900  # seconds for one process

Sample = dict[str, Any]


# ------------------------------------------------------- the worker: in a peer's interpreter


class Meter:
    """Wall time of a block in ``seconds``, and in ``others`` how many cores were busy elsewhere.

    ``others`` is None where the system does not tell.
    """

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


def _busy() -> float | None:
    """Seconds that all cores together have worked since the machine started."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def missing(packages: Sequence[str]) -> list[str]:
    """Those that this interpreter does not have."""

    def found(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:  # its parent is not there
            return False

    return [name for name in packages if not found(name)]


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Of Python, and of those that this interpreter has."""
    installed = {}
    for name in distributions:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), **installed}


# ------------------------------------------------------------------------ arithmetic and report


def disturbed(others: float | None) -> bool:
    return others is not None and others > MAX_OTHERS


def typical(samples: Sequence[Sample], key: str = "tokens_per_second") -> dict[str, Any]:
    """Median, least and most of the undisturbed samples, or of all where none is."""
    calm = [s[key] for s in samples if not s["disturbed"]]
    used = calm or [s[key] for s in samples]
    return {
        "median": round(statistics.median(used), 1),
        "least": min(used),
        "most": max(used),
        "samples": len(used),
        "disturbed": len(samples) - len(calm),
    }


def cell(value: float | None, form: str) -> str:
    """A number as a table shows it, and a dash where there is none."""
    return "-" if value is None else format(value, form)


def ratio(value: float, reference: float | None) -> float | None:
    return round(value / reference, 3) if reference else None


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Markdown, the first column to the left and the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def draw(panels: Mapping[str, Mapping[str, float]], label: str, path: str) -> None:
    """A panel for each title, in it a bar for each engine; without matplotlib, a word instead.

    The engines stand from above in the order given, their numbers being ``label``.
    """
    try:
        import matplotlib
    except ImportError:
        print(f"{path} is not drawn: matplotlib is not installed here", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(2, len(panels))
    height = -(-len(panels) // columns)
    bars_at_most = max(map(len, panels.values()))
    figure, axes = pyplot.subplots(
        height, columns, figsize=(6 * columns, (0.8 + 0.25 * bars_at_most) * height), squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for (title, panel), axis in zip(panels.items(), axes.flat, strict=False):
        engines = list(panel)[::-1]
        colours = ["tab:orange" if name.startswith("mt-") else "tab:gray" for name in engines]
        bars = axis.barh(engines, [panel[name] for name in engines], color=colours)
        axis.bar_label(bars, fmt="%.0f", padding=2)
        axis.margins(x=0.15)
        axis.set_title(title)
        axis.set_xlabel(label)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


# --------------------------------------------------------------------------------- the driver


def machine() -> dict[str, Any]:
    """What was measured on, without a name that tells whose it is."""
    model = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": memory}


def setting(name: str, value: object) -> str:
    """A path or text on a command line of Hydra's, whatever characters it has."""
    return f"{name}='{str(value).replace(chr(39), chr(92) + chr(39))}'"


def command_line() -> str:
    """As given, but interpreters by their name alone: where they lie concerns nobody."""
    return " ".join([Path(sys.argv[0]).name, *(re.sub(r"=.*/", "=", a) for a in sys.argv[1:])])


def interpreters(options: Sequence[str], known: Iterable[str]) -> dict[str, str]:
    """NAME=PATH ... -> {NAME: PATH}. Raises SystemExit for a name that is no peer's."""
    pairs = dict(option.partition("=")[::2] for option in options)
    if unknown := sorted(set(pairs) - set(known)):
        raise SystemExit(f"--python {unknown[0]}: the peers are {', '.join(sorted(known))}")
    return pairs


def run_worker(
    command: Sequence[str], threads: int, settings: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], str]:
    """The JSON lines that a worker printed, and the last line of its error, empty if it ended.

    ``settings`` are variables of its environment.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        **(settings or {}),
    }
    output: str | bytes | None
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        output, error = done.stdout, ""
        if done.returncode:
            error = next(
                (line for line in reversed(done.stderr.splitlines()) if line.strip()),
                f"exit status {done.returncode}",
            )
    except OSError as problem:
        return [], f"{problem.strerror}: {Path(command[0]).name}"
    except subprocess.TimeoutExpired as late:
        output, error = late.stdout, f"not done after {TIMEOUT} seconds"
    if isinstance(output, bytes):  # what subprocess gives for one that was stopped
        output = output.decode()
    records = [json.loads(line) for line in (output or "").splitlines() if line.startswith("{")]
    return records, error


def names(text: str) -> list[str]:
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)
