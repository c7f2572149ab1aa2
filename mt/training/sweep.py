"""A sweep, python -m mt.train -m: its jobs one after another, and the table of their results.

Hydra lists the jobs. Each job is a run of mt.train in its own process: it gives the same model, bit
for bit, as the run alone, and its failure does not end the sweep. The sweep's folder holds a folder
for each job, named by its number, and sweep.json and sweep.md, which are rewritten after each job.
"""

import json
import math
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from mt.data.preprocessing import first_pairs
from mt.model.decoder_only import make_model
from mt.training.run_dir import is_finished, is_named, only_run
from mt.utils import console, hydra_app
from mt.utils.atomic import atomic_write
from mt.utils.json_io import read_json
from mt.utils.processes import SIGNALS, SWEEP

Job = dict[str, Any]
MAY_CHANGE = ("ckpt", "trainer.max_steps")  # when a sweep is resumed
RENAMED = {"start_from": "init_from"}  # former names of settings, in sweeps of version 0.1
SCORES = ("sacreBLEU", "perplexity")


def is_sweep() -> bool:
    """Whether Hydra runs mt.train as one of several jobs."""
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


class Sweep:
    """The sweep of this process: what its jobs share."""

    def __init__(self, overrides: list[str]) -> None:
        parsed = OverridesParser.create().parse_overrides(overrides)
        self.varied = {o.get_key_element().lstrip("+") for o in parsed if o.is_sweep_override()}
        self.readable: list[Any] = []  # settings of data that could be read
        self.locks = ExitStack()
        self.locked = False

    def lock(self, folder: Path) -> None:
        """Let no other sweep use the folder until ``end``; BlockingIOError when one does."""
        if not self.locked:
            self.locks.enter_context(only_run(folder))
            self.locked = True

    def end(self) -> None:
        self.locks.close()
        self.locked = False

    def check_data(self, cfg: DictConfig) -> None:
        """Raise the reader's error when no job can get its data, before every job does."""
        if any(name == "experiment" or re.match("data\\b", name) for name in self.varied):
            return  # jobs may differ in their data
        data = OmegaConf.to_container(cfg.data, resolve=True)
        if data not in self.readable:
            reader = hydra_app.instantiate(cfg, "data.reader")
            for split in ("train", "validation"):
                list(first_pairs(reader.pairs(split), 1, f"data.{split}"))
            self.readable.append(data)


_sweep = Sweep([])


def run_job(run_dir: Path, cfg: DictConfig) -> None:
    """Run one job of a sweep to its end, unless it is finished, and record its outcome.

    A signal is passed to the job and ends the program with status 128 plus its number. Raises
    ValueError when the folder holds another sweep, or this one without ``ckpt=auto``,
    BlockingIOError when another process uses it, and the error of data that all jobs share.
    """
    try:
        _run_job(run_dir, cfg)
    except BaseException:
        folder = Path(HydraConfig.get().sweep.dir)
        if _sweep.locked and not (folder / "sweep.json").exists():  # no job has begun
            (folder / "multirun.yaml").unlink(missing_ok=True)  # which Hydra has written
        _sweep.end()
        raise


def _run_job(run_dir: Path, cfg: DictConfig) -> None:
    settings = HydraConfig.get()
    folder = Path(settings.sweep.dir)
    number, overrides = settings.job.num, list(settings.overrides.task)
    _sweep.lock(folder)
    jobs = read(folder)
    job = next((job for job in jobs if job["job"] == number), None)
    _check(folder, job, overrides, None if cfg.ckpt is None else str(cfg.ckpt))
    if job is None:
        job = {"job": number, "seconds": 0.0}
        jobs.append(job)
    job |= {"overrides": overrides, "status": None}
    signum = None
    if is_finished(run_dir, cfg.trainer.max_steps):
        print(f"job {number} is finished: {shlex.join(overrides)}", flush=True)
        job["status"] = 0
    else:
        _sweep.check_data(cfg)
        print(f"job {number}: {shlex.join(overrides)}", flush=True)
        write(folder, jobs)
        start = time.perf_counter()
        job["status"], signum = _run(_command(overrides, run_dir))
        job["seconds"] = round(job["seconds"] + time.perf_counter() - start, 1)
    job |= results(run_dir)
    write(folder, jobs)
    if signum is not None:
        print(f"the sweep is interrupted; ckpt=auto hydra.sweep.dir={folder} continues it")
        sys.exit(128 + signum)


def _check(folder: Path, job: Job | None, overrides: list[str], ckpt: str | None) -> None:
    if ckpt not in (None, "auto"):
        raise ValueError(
            f"ckpt={ckpt}: a sweep continues with ckpt=auto and hydra.sweep.dir=FOLDER"
        )
    if ckpt == "auto" and not is_named("hydra.sweep.dir"):
        raise ValueError("ckpt=auto continues the sweep that hydra.sweep.dir=FOLDER names")
    if job is None:
        return
    if ckpt is None:
        raise ValueError(f"{folder} holds a sweep: add ckpt=auto to continue it, or name another")
    before, now = (
        {name: value for name, value in _settings(line).items() if name not in MAY_CHANGE}
        for line in (job["overrides"], overrides)
    )
    if before != now:
        raise ValueError(
            f"{folder} holds another sweep: its job {job['job']} is "
            f"{shlex.join(job['overrides'])}, not {shlex.join(overrides)}; name another folder"
        )


def _command(overrides: list[str], run_dir: Path) -> list[str]:
    """The command of a job. Only the command line can name configurations from elsewhere."""
    settings = HydraConfig.get()
    sources = settings.runtime.config_sources
    config_dirs = [source.path for source in sources if source.provider == "command-line"]
    quoted = str(run_dir).replace("'", "\\'")
    return [
        sys.executable, "-m", "mt.train", *(f"--config-dir={path}" for path in config_dirs),
        f"--config-name={settings.job.config_name}", *overrides, f"hydra.run.dir='{quoted}'",
    ]  # fmt: skip


def _run(command: list[str]) -> tuple[int, int | None]:
    """Run a process. Returns its exit status, and the first signal that came meanwhile, if any."""
    process: subprocess.Popen[bytes] | None = None
    received: list[int] = []
    pending: list[int] = []  # signals that came before the process had started

    def forward(signum: int, frame: Any) -> None:
        received.append(signum)
        if process is None:
            pending.append(signum)
        else:
            process.send_signal(signum)

    before = {signum: signal.signal(signum, forward) for signum in SIGNALS}
    try:
        # In a session of its own the process gets Ctrl-C from here alone, and so exactly once.
        environment = {**os.environ, SWEEP: str(os.getpid())}
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        for signum in pending:
            process.send_signal(signum)
        return process.wait(), received[0] if received else None
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


# Outcomes


def results(run_dir: Path) -> Job:
    """Steps, scores and size of a run's model; empty where there is none."""
    try:
        config = read_json(run_dir / "model" / "config.json")
        training = config["training"]
        with torch.device("meta"):
            model = make_model(**config["model"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {
        "steps": training["steps"],
        **{name: training.get(f"validation {name}") for name in ("perplexity", "sacreBLEU")},
        "signature": training.get("signature"),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def read(folder: Path) -> list[Job]:
    """The jobs of a sweep, in order; none where there is no sweep.

    Raises ValueError when sweep.json does not hold jobs.
    """
    path = folder / "sweep.json"
    if not path.exists():
        return []
    try:
        return list(read_json(path)["jobs"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the jobs of a sweep: {error!r}") from None


def write(folder: Path, jobs: list[Job]) -> None:
    """Write sweep.json and sweep.md."""
    command = shlex.join(["python", "-m", "mt.train", *sys.argv[1:]])
    record = {"date": time.strftime("%Y-%m-%d"), "command": command, "jobs": jobs}
    record["over seeds"] = over_seeds(jobs)
    atomic_write(folder / "sweep.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    atomic_write(folder / "sweep.md", f"# {folder.name}\n\n`{command}`\n\n{table(jobs)}\n")


def _has_score(job: Job) -> bool:
    """A language model has perplexity and no BLEU, nor its signature."""
    is_text = job.get("perplexity") is not None and "signature" in job and not job["signature"]
    return job.get("sacreBLEU") is not None or is_text


def outcome(job: Job) -> str:
    """How a job has ended, in words; an empty text when it has succeeded."""
    status = job["status"]
    if status == 0 and not _has_score(job):  # max_steps was lowered to where it stopped
        return "no score: its last step was not validated"
    if status is None:
        return "unfinished"
    signum = -status if status < 0 else status - 128
    if signum in set(signal.Signals):
        return f"ended by {signal.Signals(signum).name}"
    return {0: "", 2: "refused or diverged (status 2)"}.get(status, f"failed (status {status})")


# The table


def _settings(overrides: list[str]) -> dict[str, str]:
    """The values of a command line by their names."""
    pairs = [override.lstrip("+").partition("=") for override in overrides]
    return {RENAMED.get(name, name): value for name, _, value in pairs}


def varying(jobs: list[Job]) -> list[str]:
    """The names of the overrides in which jobs differ."""
    settings = [_settings(job["overrides"]) for job in jobs]
    names = dict.fromkeys(name for job in settings for name in job if name != "ckpt")
    return [name for name in names if len({job.get(name) for job in settings}) > 1]


def _quality(bleu: float | None, perplexity: float | None) -> tuple[float, float]:
    """A sort key: the best model comes first, a job without a score last."""
    return (math.inf if bleu is None else -bleu, perplexity or math.inf)


def _rank(job: Job) -> tuple[bool, float, float]:
    """A sort key: jobs that did not succeed come last, whatever they had before."""
    return job["status"] != 0, *_quality(job.get("sacreBLEU"), job.get("perplexity"))


def over_seeds(jobs: list[Job]) -> list[dict[str, Any]]:
    """Statistics of the jobs that differ in their seed alone, best mean first."""
    names = varying(jobs)
    others = [name for name in names if name != "seed"]
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs if "seed" in names else []:
        if job["status"] == 0 and _has_score(job):
            settings = _settings(job["overrides"])
            groups.setdefault(tuple(settings.get(name, "") for name in others), []).append(job)
    rows = []
    for values, group in groups.items():
        row: dict[str, Any] = {"of": dict(zip(others, values, strict=True)), "seeds": len(group)}
        rows.append(
            row | {score: _statistics([job.get(score) for job in group]) for score in SCORES}
        )
    return sorted(rows, key=lambda row: _quality(*(row[score]["mean"] for score in SCORES)))


def _statistics(scores: list[float | None]) -> dict[str, float | None]:
    """All None for a score that language models do not have."""
    values = [score for score in scores if score is not None]
    if not values:
        return dict.fromkeys(("mean", "deviation", "least", "largest"))
    deviation = statistics.stdev(values) if len(values) > 1 else None
    extremes = {"least": min(values), "largest": max(values)}
    return {"mean": statistics.fmean(values), "deviation": deviation, **extremes}


def table(jobs: list[Job]) -> str:
    """The jobs as a Markdown table, best first, then their means over seeds where these vary."""
    names = varying(jobs)
    formats = {"steps": ",d", "perplexity": ".2f", "sacreBLEU": ".2f", "parameters": ",d"}
    rows = []
    for job in sorted(jobs, key=_rank):
        settings = _settings(job["overrides"])
        minutes, seconds = divmod(round(job["seconds"]), 60)
        cells = [settings.get(name, "") for name in names]
        cells += [_format(job.get(name), spec) for name, spec in formats.items()]
        rows.append([*cells, f"{minutes}:{seconds:02}", f"{job['job']} {outcome(job)}".rstrip()])
    parts = [_markdown([*names, *formats, "time", "job"], rows)]
    if means := over_seeds(jobs):
        parts += ["Over seeds, mean ± standard deviation:", _seeds_table(means)]
    parts += ["Validation scores; time is in minutes and seconds, start and validations included."]
    signatures = sorted({job["signature"] for job in jobs if job.get("signature")})
    return "\n\n".join([*parts, *(f"sacreBLEU {signature}" for signature in signatures)])


def _seeds_table(means: list[dict[str, Any]]) -> str:
    rows = []
    for row in means:
        cells = [*row["of"].values(), str(row["seeds"])]
        for score in SCORES:
            spread = row[score]
            deviation = _format(spread["deviation"], ".2f")
            mean, least, largest = (
                _format(spread[name], ".2f") for name in ("mean", "least", "largest")
            )
            cells.append(mean + (f" ± {deviation}" if deviation else ""))
            cells.append(f"{least} to {largest}" if mean else "")
        rows.append(cells)
    columns = [column for score in SCORES for column in (score, "least to largest")]
    return _markdown([*means[0]["of"], "seeds", *columns], rows)


def _format(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    right = ["right"] * len(header)
    return tabulate(rows, header, tablefmt="pipe", colalign=right, disable_numparse=True)


class SweepTable(Callback):
    """A callback of Hydra: print the table after the last job; status 2 when a job has failed."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        global _sweep
        console.write_utf8()
        _sweep = Sweep(list(config.hydra.overrides.task))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        _sweep.end()
        folder = Path(config.hydra.sweep.dir)
        try:
            jobs = read(folder)
        except ValueError as error:  # Hydra would turn it into a warning
            print(f"mt.train: error: {error}", file=sys.stderr)
            sys.exit(2)
        print(f"\n{table(jobs)}\n\nsweep: {folder}", flush=True)
        if any(job["status"] != 0 for job in jobs):
            sys.exit(2)
