"""What the benchmarks report: medians, ratios, Markdown tables, pictures, JSON files."""

import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

# ------------------------------------------------------------------------------------- numbers


def typical(samples: Sequence[Row], key: str = "tokens_per_second") -> dict[str, Any]:
    """Median, least and most of the undisturbed samples, or of all if none is undisturbed."""
    calm = [s[key] for s in samples if not s["disturbed"]]
    used = calm or [s[key] for s in samples]
    return {
        "median": round(statistics.median(used), 1),
        "least": min(used),
        "most": max(used),
        "samples": len(used),
        "disturbed": len(samples) - len(calm),
    }


def group_by(rows: Iterable[Row], *keys: str) -> dict[Any, list[Any]]:
    """The rows by their value of ``keys``, a tuple of several, in the order of the first rows."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        values = tuple(row[key] for key in keys)
        groups.setdefault(values if len(keys) > 1 else values[0], []).append(row)
    return groups


def rank(samples: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """``typical`` of each engine, the fastest first."""
    speeds = {engine: typical(group) for engine, group in group_by(samples, "engine").items()}
    return dict(sorted(speeds.items(), key=lambda item: -item[1]["median"]))


def ratio(value: float, reference: float | None) -> float | None:
    return round(value / reference, 3) if reference else None


# -------------------------------------------------------------------------------------- tables


def cell(value: float | None, form: str) -> str:
    """A number as a table shows it, and a dash for None."""
    return "-" if value is None else format(value, form)


def least_to_most(row: Row) -> str:
    return f"{row['least']:.0f}-{row['most']:.0f}"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Markdown, the first column aligned to the left and the others to the right."""
    from tabulate import tabulate

    align = ("left", *["right"] * (len(header) - 1))
    return tabulate(rows, header, "pipe", disable_numparse=True, colalign=align)


def sections(
    results: Iterable[Row],
    title: Callable[[Row], str],
    columns: Mapping[str, Callable[[Row], object]],
) -> str:
    """A Markdown table for each title; ``columns`` are headers and what they show of a result."""
    rows: dict[str, list[list[object]]] = {}
    for result in results:
        rows.setdefault(title(result), []).append([show(result) for show in columns.values()])
    tables = (f"### {name}\n\n{table(list(columns), part)}" for name, part in rows.items())
    return "\n\n".join(tables) or "nothing was measured"


# ------------------------------------------------------------------------------------ pictures


def pyplot_for(path: str | Path | None) -> Any:
    """matplotlib.pyplot to draw into a file; None without a file, or, with a message, without
    matplotlib."""
    if not path:
        return None
    try:
        import matplotlib
    except ImportError:
        print(f"{path} is not drawn: matplotlib is not installed here", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save_figure(figure: Any, path: str | Path | None) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def draw_bars(
    results: Iterable[Row], title: Callable[[Row], str], label: str, path: str | Path | None
) -> None:
    """A panel for each title with a bar for each engine's median, the first result on top.

    ``label`` says what the medians are.
    """
    panels: dict[str, dict[str, float]] = {}
    for result in results:
        panels.setdefault(title(result), {})[result["engine"]] = result["median"]
    pyplot = pyplot_for(path)
    if pyplot is None or not panels:
        return
    columns = min(2, len(panels))
    height = -(-len(panels) // columns)
    size = (6 * columns, (0.8 + 0.25 * max(map(len, panels.values()))) * height)
    figure, axes = pyplot.subplots(height, columns, figsize=size, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for (name, medians), axis in zip(panels.items(), axes.flat, strict=False):
        engines = list(medians)[::-1]
        colours = ["tab:orange" if engine.startswith("mt-") else "tab:gray" for engine in engines]
        bars = axis.barh(engines, [medians[engine] for engine in engines], color=colours)
        axis.bar_label(bars, fmt="%.0f", padding=2)
        axis.margins(x=0.15)
        axis.set(title=name, xlabel=label)
    save_figure(figure, path)


# ------------------------------------------------------------------------------------- reports


def machine() -> dict[str, Any]:
    """CPU, cores and memory, but not the machine's name."""
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


def command_line() -> str:
    """The command that runs; paths lose their folders, which concern nobody."""
    arguments = (re.sub(r"(=|^(?=/)).*/", r"\1", argument) for argument in sys.argv[1:])
    return " ".join([Path(sys.argv[0]).name, *arguments])


def new_report(**content: Any) -> dict[str, Any]:
    """Date, command and machine, with which every report begins, then ``content``."""
    today = date.today().isoformat()
    return {"date": today, "command": command_line(), "machine": machine(), **content}


def write_report(path: str | Path | None, report: Row) -> None:
    """Write a report as JSON, if a path is given."""
    if path:
        from mt.utils.atomic import atomic_write  # here: other toolkits' interpreters lack mt

        atomic_write(path, json.dumps(report, indent=1) + "\n")


def remember(file: Path, value: Any, remedy: str) -> None:
    """Note what the work in the file's folder depends on. ValueError when it has changed."""
    from mt.utils.atomic import atomic_write

    text = json.dumps(value)
    before = file.read_text("utf-8").strip() if file.exists() else text
    # version 0.1 had start_from where init_from is now
    if before.replace("start_from=", "init_from=") != text.replace("start_from=", "init_from="):
        raise ValueError(f"{file.parent} was made with {before}: {remedy}")
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, f"{text}\n")


def setting(name: str, value: object) -> str:
    """A setting for Hydra's command line; ``value`` may have any characters."""
    return f"{name}='{str(value).replace(chr(39), chr(92) + chr(39))}'"
