"""A sweep, python -m mt.train -m: its jobs one after the other, and the table of their results.

Hydra lists the jobs. Each is a run of mt.train in a process of its own, so that it is the same run,
bit for bit, as without a sweep, and its end is not the sweep's. The sweep's folder holds a folder
for each job, named by its number, and sweep.json and sweep.md, written anew after each.
"""

import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from mt.model.transformer import Transformer
from mt.training.run_dir import is_finished
from mt.utils.processes import SIGNALS, SWEEP

Job = dict[str, Any]
GOES_ON = ("ckpt", "trainer.max_steps")  # what may be another when a sweep goes on


def is_sweep() -> bool:
    """Whether Hydra calls mt.train as one of several jobs."""
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def run_job(cfg: DictConfig, run_dir: Path) -> None:
    """Run one job of a sweep to its end, unless it is finished; whatever becomes of it is noted.

    A signal is handed on to the job and ends the program, with status 128 plus its number. Raises
    ValueError when the folder holds another sweep, or this one and nobody wants it to go on.
    """
    settings = HydraConfig.get()
    folder = Path(settings.sweep.dir)
    number, overrides = settings.job.num, list(settings.overrides.task)
    jobs = read(folder)
    job = next((job for job in jobs if job["job"] == number), None)
    _check(folder, job, overrides, None if cfg.ckpt is None else str(cfg.ckpt))
    if job is None:
        job = {"job": number, "seconds": 0.0}
        jobs.append(job)
    job |= {"overrides": overrides, "status": None}
    heard = None
    if is_finished(run_dir, cfg.trainer.max_steps):
        print(f"job {number} is finished: {shlex.join(overrides)}", flush=True)
        job["status"] = 0
    else:
        print(f"job {number}: {shlex.join(overrides)}", flush=True)
        write(folder, jobs)
        begin = time.perf_counter()
        job["status"], heard = _run(_command(overrides, run_dir))
        job["seconds"] = round(job["seconds"] + time.perf_counter() - begin, 1)
    job |= results(run_dir)
    write(folder, jobs)
    if heard is not None:
        print(f"the sweep is interrupted; ckpt=auto hydra.sweep.dir={folder} goes on with it")
        sys.exit(128 + heard)


def _check(folder: Path, job: Job | None, overrides: list[str], ckpt: str | None) -> None:
    if ckpt not in (None, "auto"):
        raise ValueError(f"ckpt={ckpt}: a sweep goes on with ckpt=auto and hydra.sweep.dir=FOLDER")
    named = any(o.startswith("hydra.sweep.dir=") for o in HydraConfig.get().overrides.hydra)
    if ckpt == "auto" and not named:
        raise ValueError("ckpt=auto goes on with the sweep that hydra.sweep.dir=FOLDER names")
    if job is None:
        return
    if ckpt is None:
        raise ValueError(f"{folder} holds a sweep: add ckpt=auto to go on, or name another")
    before, now = (
        {name: value for name, value in _named(those).items() if name not in GOES_ON}
        for those in (job["overrides"], overrides)
    )
    if before != now:
        raise ValueError(
            f"{folder} holds another sweep: its job {job['job']} is "
            f"{shlex.join(job['overrides'])}, not {shlex.join(overrides)}; name another folder"
        )


def _command(overrides: list[str], run_dir: Path) -> list[str]:
    """The run by itself. Configurations from elsewhere are named on the command line alone."""
    settings = HydraConfig.get()
    own = [s.path for s in settings.runtime.config_sources if s.provider == "command-line"]
    quoted = str(run_dir).replace("'", "\\'")
    return [
        sys.executable, "-m", "mt.train", *(f"--config-dir={path}" for path in own),
        f"--config-name={settings.job.config_name}", *overrides, f"hydra.run.dir='{quoted}'",
    ]  # fmt: skip


def _run(command: list[str]) -> tuple[int, int | None]:
    """The exit status of a process, and the signal that has asked for the end of all, if any."""
    # A session of its own: Ctrl-C comes here alone, so that it goes on exactly once.
    environment = {**os.environ, SWEEP: str(os.getpid())}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    heard: list[int] = []

    def hand_on(signum: int, frame: Any) -> None:
        heard.append(signum)
        process.send_signal(signum)

    before = {signum: signal.signal(signum, hand_on) for signum in SIGNALS}
    try:
        return process.wait(), heard[0] if heard else None
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


# What has become of the jobs


def results(run_dir: Path) -> Job:
    """Steps, scores and size of a run's model, as far as it has come."""
    try:
        config = json.loads((run_dir / "model" / "config.json").read_text("utf-8"))
        training = config["training"]
        with torch.device("meta"):
            model = Transformer(**config["model"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {
        "steps": training["steps"],
        "perplexity": training.get("validation perplexity"),
        "sacreBLEU": training.get("validation sacreBLEU"),
        "signature": training.get("signature"),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def read(folder: Path) -> list[Job]:
    """The jobs of a sweep by their numbers; none where there is no sweep.

    Raises ValueError when sweep.json is not one.
    """
    file = folder / "sweep.json"
    if not file.exists():
        return []
    try:
        return list(json.loads(file.read_text("utf-8"))["jobs"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: not the jobs of a sweep: {error!r}") from None


def write(folder: Path, jobs: list[Job]) -> None:
    """sweep.json and sweep.md, each whole or not at all."""
    command = shlex.join(["python", "-m", "mt.train", *sys.argv[1:]])
    about = {"date": time.strftime("%Y-%m-%d"), "command": command}
    content = {**about, "jobs": jobs, "over seeds": over_seeds(jobs)}
    texts = {
        "sweep.json": json.dumps(content, indent=1, ensure_ascii=False) + "\n",
        "sweep.md": f"# {folder.name}\n\n`{command}`\n\n{table(jobs)}\n",
    }
    for name, text in texts.items():
        partial = folder / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(folder / name)


def outcome(job: Job) -> str:
    """How a job has ended, for people; an empty text when all is well."""
    status = job["status"]
    if status == 0 and job.get("sacreBLEU") is None:  # interrupted, and now told to end there
        return "no score: its last step was not validated"
    if status is None:
        return "not at its end"
    signum = -status if status < 0 else status - 128
    if signum in {each.value for each in signal.Signals}:
        return f"ended by {signal.Signals(signum).name}"
    return {0: "", 2: "refused or diverged (status 2)"}.get(status, f"failed (status {status})")


# The table


def _named(overrides: Sequence[str]) -> dict[str, str]:
    pairs = [override.lstrip("+").partition("=") for override in overrides]
    return {name: value for name, _, value in pairs}


def varying(jobs: list[Job]) -> list[str]:
    """The names of the overrides in which jobs differ."""
    each = [_named(job["overrides"]) for job in jobs]
    names = dict.fromkeys(name for those in each for name in those if name != "ckpt")
    return [name for name in names if len({those.get(name) for those in each}) > 1]


def _quality(bleu: float | None, perplexity: float | None) -> tuple[float, float]:
    """To sort by, best first; what has no score is last."""
    return (math.inf, math.inf) if bleu is None else (-bleu, perplexity or math.inf)


def over_seeds(jobs: list[Job]) -> list[dict[str, Any]]:
    """Mean, standard deviation, least and largest of what differs in its seed alone, best first."""
    names = varying(jobs)
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs if "seed" in names else []:
        if job.get("sacreBLEU") is not None:
            given = _named(job["overrides"])
            key = tuple(given.get(name, "") for name in names if name != "seed")
            groups.setdefault(key, []).append(job)
    others = [name for name in names if name != "seed"]
    rows = []
    for key, group in groups.items():
        row: dict[str, Any] = {"of": dict(zip(others, key, strict=True)), "seeds": len(group)}
        for score in ("sacreBLEU", "perplexity"):
            values = [job[score] for job in group]
            row[score] = {
                "mean": statistics.fmean(values),
                "deviation": statistics.stdev(values) if len(values) > 1 else None,
                "least": min(values),
                "largest": max(values),
            }
        rows.append(row)
    return sorted(
        rows, key=lambda row: _quality(*(row[s]["mean"] for s in ("sacreBLEU", "perplexity")))
    )


def table(jobs: list[Job]) -> str:
    """The jobs, best first, and what they are over seeds where these vary; in Markdown."""
    names = varying(jobs)
    rows = [[*names, "steps", "perplexity", "sacreBLEU", "parameters", "time", "job"]]
    order = sorted(jobs, key=lambda job: _quality(job.get("sacreBLEU"), job.get("perplexity")))
    for job in order:
        given = _named(job["overrides"])
        minutes, seconds = divmod(round(job["seconds"]), 60)
        rows.append(
            [
                *(given.get(name, "") for name in names),
                *(_number(job.get(name), form) for name, form in (
                    ("steps", ",d"), ("perplexity", ".2f"), ("sacreBLEU", ".2f"),
                    ("parameters", ",d"),
                )),
                f"{minutes}:{seconds:02}",
                f"{job['job']} {outcome(job)}".rstrip(),
            ]
        )  # fmt: skip
    text = _markdown(rows)
    if means := over_seeds(jobs):
        rows = [
            [
                *means[0]["of"],
                "seeds",
                "sacreBLEU",
                "least to largest",
                "perplexity",
                "least to largest",
            ]
        ]
        for row in means:
            cells = []
            for score in ("sacreBLEU", "perplexity"):
                spread = row[score]
                deviation = _number(spread["deviation"], ".2f")
                cells.append(f"{spread['mean']:.2f}" + (f" ± {deviation}" if deviation else ""))
                cells.append(f"{spread['least']:.2f} to {spread['largest']:.2f}")
            rows.append([*row["of"].values(), str(row["seeds"]), *cells])
        text += f"\n\nOver seeds, mean ± standard deviation:\n\n{_markdown(rows)}"
    signatures = sorted({job["signature"] for job in jobs if job.get("signature")})
    notes = "Validation scores; time is in minutes and seconds, start and validations included."
    return "\n\n".join([text, notes, *(f"sacreBLEU {signature}" for signature in signatures)])


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _markdown(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(lines)


class Table(Callback):
    """Ends a sweep, as Hydra's callback, by its table; with status 2 when a job has failed."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        try:
            jobs = read(folder)
        except ValueError as error:  # which Hydra would only mention
            print(f"mt.train: error: {error}", file=sys.stderr)
            sys.exit(2)
        print(f"\n{table(jobs)}\n\nsweep: {folder}", flush=True)
        if any(job["status"] != 0 for job in jobs):
            sys.exit(2)
