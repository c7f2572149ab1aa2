"""What has to be shown on a GPU, in steps of less than ten minutes, most worth first.

python scripts/gpu_report.py --folder WORK --output results/gpu.json
python scripts/gpu_report.py --folder WORK --output results/gpu.json --steps tests,train-base
python scripts/gpu_report.py --folder WORK --dry-run     # tiny numbers, on the CPU
python scripts/gpu_report.py --folder WORK --steps everyday --text FOLDER --minutes 6
python scripts/gpu_report.py --folder WORK --steps multi30k --multi30k FOLDER

Each step leaves WORK/STEP.json and WORK/STEP.log, and is not run again while its record is there. A
step that fails leaves its last line in the record, and the others go on; --again repeats these.

The step everyday trains the bundled model's recipe (docs/bundled-model.md). Its FOLDER has
train.tsv and validation.*.tsv of scripts/bundled_model/mix.py, and validation.tatoeba.en and .de.
The step multi30k is scripts/multi30k.py with three seeds; its FOLDER is what --data names there.
What they trained stays in WORK/trainings, also when they fail: --again goes on with it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mt.utils import console

with console.exit_at_interrupt():
    from mt.evaluation.learning_curves import learning_curves
    from mt.evaluation.report import write_json
    from mt.utils.json_io import read_json

SCRIPTS = Path(__file__).resolve().parent
BENCHMARKS = SCRIPTS / "benchmarks"
# Gloo, because NCCL refuses two ranks on one GPU.
TWO_RANKS = """
import runpy
import pytorch_lightning.strategies.ddp as ddp
ddp._get_default_process_group_backend_for_device = lambda device: "gloo"
runpy.run_module("mt.train", run_name="__main__")
"""
PYTHON = (sys.executable,)
Record = dict[str, Any]


class StepFailed(Exception):
    """A program of a step has failed; the message is its last line."""


class Report(NamedTuple):
    """Where the steps run, and on what."""

    folder: Path
    dry_run: bool
    text: Path | None = None  # of the step everyday
    multi30k: Path | None = None
    minutes: float = 6  # of training, in the step everyday

    @property
    def device(self) -> str:
        return "cpu" if self.dry_run else "cuda"

    @property
    def accelerator(self) -> str:
        return "cpu" if self.dry_run else "gpu"

    def start(self, step: str, command: list[Any], **variables: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{step}.log").open("ab") as log:
            return subprocess.Popen(
                list(map(str, command)),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables},
                cwd=SCRIPTS.parent,
            )

    def run(self, step: str, command: list[Any], **variables: str) -> None:
        self.wait(step, [self.start(step, command, **variables)])

    def wait(self, step: str, programs: list["subprocess.Popen[bytes]"]) -> None:
        statuses = [program.poll() for program in programs]
        while None in statuses and not any(statuses):
            time.sleep(0.1)
            statuses = [program.poll() for program in programs]
        if any(statuses):
            lines = (self.folder / f"{step}.log").read_text("utf-8", "replace").split("\n")
            for program in programs:  # the others would wait for the one that has failed
                program.kill()
                program.wait()
            raise StepFailed(next((line for line in reversed(lines) if line.strip()), "no output"))

    def train(self, step: str, name: str, steps: int, *settings: str, **variables: str) -> Path:
        """Train the quick start's model for some updates; returns the run's directory."""
        run_dir = self.folder / step / name
        self.run(step, [*PYTHON, "-m", "mt.train", *self.training(run_dir, steps, *settings)],
            **variables)  # fmt: skip
        return run_dir

    def score(self, step: str, model: Path, pairs: Path) -> float:
        """sacreBLEU of a model with beam 4 on a test set."""
        run_dir = self.folder / step / "scores" / pairs.name
        self.run(step, [
            *PYTHON, "-m", "mt.evaluate", "data=files", f"data.test={pairs}", f"model_path={model}",
            "search.beam_size=[4]", f"hydra.run.dir={run_dir}",
            *(("limit=8", "device=cpu") if self.dry_run else ("device=cuda",)),
        ])  # fmt: skip
        scores = read_json(run_dir / "report.json")["runs"][0]["scores"]
        return next(score["value"] for score in scores if score["name"] == "sacreBLEU")

    def training(self, run_dir: Path, steps: int, *settings: str) -> list[str]:
        """Settings without dropout, whose random numbers are not those of another device."""
        return [
            "experiment=quickstart", "model.P_drop=0", "trainer.log_every_n_steps=1",
            "trainer.devices=1", f"trainer.accelerator={self.accelerator}",
            "trainer.precision=32-true", f"trainer.max_steps={steps}", "data.noise=0",
            f"data.cache_dir={self.folder / 'cache'}", f"hydra.run.dir={run_dir}", *settings,
        ]  # fmt: skip


def losses(run_dir: Path) -> list[float]:
    """The training loss of each update."""
    curves = learning_curves(run_dir / "model", ["train_loss"])
    return [loss for _, loss in curves.get("train_loss", [])]


def difference(one: list[float], other: list[float]) -> float:
    """The largest relative difference of two sequences of losses."""
    if len(one) != len(other) or not one:
        raise StepFailed(f"{len(one)} losses and {len(other)}")
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


# Steps


def tests(report: Report) -> Record:
    """The tests marked gpu; where there is none, they are skipped."""
    results = report.folder / "tests.xml"
    results.unlink(missing_ok=True)
    command = [*PYTHON, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "tests"]
    program = report.start("tests", [*command, f"--junitxml={results}"])
    program.wait()
    if not results.exists():
        report.wait("tests", [program])
    suite = next(ET.parse(results).getroot().iter("testsuite"))
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = [
        case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None
    ]
    return {**counts, "failed": failed}


def learning(report: Report) -> Record:
    """Losses of a training here, of the same one on the CPU, and in bf16."""
    steps = 20 if report.dry_run else 500
    cpu = losses(report.train("learning", "cpu", steps, "trainer.accelerator=cpu"))
    here = losses(report.train("learning", "here", steps))
    bf16 = losses(report.train("learning", "bf16", steps, "trainer.precision=bf16-mixed"))
    few = len(cpu) // 10
    return {
        "steps": steps,
        "largest relative difference, first tenth": difference(cpu[:few], here[:few]),
        "largest relative difference": difference(cpu, here),
        "mean of the last tenth": {
            name: sum(values[-few:]) / few
            for name, values in (("cpu", cpu), ("here", here), ("here, bf16", bf16))
        },
    }


def resume(report: Report) -> Record:
    """Whether a run that was stopped ends with the weights of one that was not, bit for bit."""
    steps = 6 if report.dry_run else 60
    settings = "trainer.deterministic=true", "checkpoint_every=2", "model.P_drop=0.1"
    variables = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    whole = report.train("resume", "whole", steps, *settings, **variables)
    report.train("resume", "parts", steps // 2, *settings, **variables)
    parts = report.train("resume", "parts", steps, *settings, "ckpt=last", **variables)
    both = ((run / "model" / "model.safetensors").read_bytes() for run in (whole, parts))
    return {"equal bit for bit": len(set(both)) == 1, "losses": losses(whole) == losses(parts)}


def ranks(report: Report) -> Record:
    """Losses of DDP and FSDP with one rank beside a plain run's, and those of two ranks by gloo.

    Two ranks draw other batches than one, so that their losses are only to fall alike.
    """
    steps = 5 if report.dry_run else 50
    plain = losses(report.train("ranks", "plain", steps))
    record: Record = {}
    for strategy in ("ddp",) if report.dry_run else ("ddp", "fsdp"):
        try:
            own = losses(report.train("ranks", strategy, steps, f"trainer.strategy={strategy}"))
            record[strategy] = {"largest relative difference": difference(plain, own)}
        except StepFailed as error:
            record[strategy] = {"failed": str(error)}
    settings = report.training(report.folder / "ranks" / "two", steps, "trainer.strategy=ddp")
    settings.append("trainer.num_nodes=2")
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "LOCAL_RANK": "0"}
    shared |= {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "ranks"}  # as torchrun starts them
    command = [*PYTHON, "-c", TWO_RANKS, *settings]
    report.wait(
        "ranks",
        [report.start("ranks", command, RANK=n, GROUP_RANK=n, **shared) for n in ("0", "1")],
    )
    own = losses(report.folder / "ranks" / "two")
    record["first and last loss"] = {"one rank": plain[:1] + plain[-1:]}
    record["first and last loss"]["two ranks, gloo"] = own[:1] + own[-1:]
    return record


def train(size: str, report: Report) -> Record:
    """Tokens a second of training steps, their share of the matrix rate, memory."""
    output = report.folder / f"train-{size}.out.json"
    options = ["--device", report.device, "--sizes", size, "--rounds", 2, "--output", output]
    if report.dry_run:
        options = ["--sizes", "tiny", "--rounds", 1, "--steps", 2, "--max-tokens", 200,
            "--engines", "mt-float32", "--output", output]  # fmt: skip
    report.run(f"train-{size}", [*PYTHON, BENCHMARKS / "benchmark_train.py", *options])
    full = read_json(output)
    return {name: full[name] for name in ("versions", "skipped", "errors", "work", "results")}


def translate(size: str, report: Report) -> Record:
    """Output tokens a second of the search."""
    output = report.folder / f"translate-{size}.out.json"
    options = ["--device", report.device, "--sizes", size, "--batches", "1,64,300",
        "--rounds", 2, "--output", output]  # fmt: skip
    if report.dry_run:
        options = ["--sizes", "tiny", "--beams", "1", "--batches", "2", "--rounds", 1,
            "--seconds", 0.1, "--peers", "mt-float32", "--output", output]  # fmt: skip
    report.run(f"translate-{size}", [*PYTHON, BENCHMARKS / "benchmark_translate.py", *options])
    full = read_json(output)
    return {name: full[name] for name in ("versions", "skipped", "errors", "results")}


# Factors of the learning rate and their shares of the time: the last updates, at low rates, gain
# 1.5 BLEU (results/everyday.json).
PARTS = ((0.8, 0.7), (0.24, 0.2), (0.06, 0.1))


def everyday(report: Report) -> Record:
    """The bundled model's recipe from nothing, its scores on validation, and the model in int8."""
    if report.text is None:
        raise StepFailed("give --text FOLDER")
    run_dir = report.folder / "trainings" / "everyday"
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    validation = report.text / "validation.tatoeba"
    size = ["data.tokens_per_step=24576", "data.max_tokens=24576", "data.workers=8"]
    if report.dry_run:
        size = ["model.N=1", "model.d_model=32", "data.limit=1000", "data.max_tokens=512"]
    settings = [
        "experiment=everyday", f"tokenizer.path={SCRIPTS.parent / 'mt/everyday/tokenizer.model'}",
        f"data.train={report.text / 'train.tsv'}", f"data.validation={validation}",
        f"data.cache_dir={report.folder / 'cache'}", f"hydra.run.dir={run_dir}", "ckpt=auto",
        f"trainer.accelerator={report.accelerator}", "trainer.devices=1", *size,
        "validate_every=1000000", "checkpoint_every='0.1 min'", "average=5",
        "trainer.max_steps=1000000000",  # the time ends each part
    ]  # fmt: skip
    for factor, share in PARTS:
        done = run_dir.with_name(f"everyday-{factor}.done")  # by an earlier try
        if not done.exists():
            seconds = round(report.minutes * 60 * share)
            limit = f"00:{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            own = [f"training.lr_factor={factor}", f"+trainer.max_time={limit}"]
            report.run("everyday", [*PYTHON, "-m", "mt.train", *settings, *own])
            done.touch()
    model, small = run_dir / "model", report.folder / "trainings" / "everyday-int8"
    ship = [*PYTHON, SCRIPTS / "ship_model.py", model, small, "--storage", "int8", "--alpha", 1.2]
    report.run("everyday", ship)
    curve = learning_curves(model, ["train_loss"]).get("train_loss", [(0, 0.0)])
    updates = read_json(model / "config.json")["training"]["steps"]
    sets = [validation, *sorted(report.text.glob("validation.*.tsv"))]
    return {
        "updates": updates,
        "loss": curve[-1][1],
        "sacreBLEU": {pairs.name: report.score("everyday", small, pairs) for pairs in sets},
    }


def multi30k(report: Report) -> Record:
    """Three seeds of the recipe for Multi30k at a time."""
    if report.multi30k is None:
        raise StepFailed("give --multi30k FOLDER")
    output = report.folder / "multi30k.out.json"
    options = ["--data", report.multi30k, "--form", "raw", "--seed", 1, 2, 3, "--jobs", 3,
        "--folder", report.folder / "trainings" / "multi30k", "--output", output]  # fmt: skip
    if report.dry_run:
        options += ["--seed", 1, "--jobs", 1]
    settings = [f"trainer.accelerator={report.accelerator}", "trainer.devices=1"]
    settings += ["trainer.max_steps=4", "data.limit=200"] if report.dry_run else []
    report.run("multi30k", [*PYTHON, SCRIPTS / "multi30k.py", *options, "--", *settings])
    return read_json(output)


STEPS: dict[str, Callable[[Report], Record]] = {
    "tests": tests,
    "learning": learning,
    "resume": resume,
    "train-base": partial(train, "base"),
    "translate-base": partial(translate, "base"),
    "train-big": partial(train, "big"),
    "translate-big": partial(translate, "big"),
    "everyday": everyday,
    "multi30k": multi30k,
    "ranks": ranks,
}


def machine() -> Record:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda}


def run(args: argparse.Namespace) -> None:
    """Raises ValueError for an unknown step, where there is no GPU, and when steps have failed."""
    if unknown := sorted(set(args.steps) - set(STEPS)):
        raise ValueError(f"--steps: {unknown[0]!r} is none of {', '.join(STEPS)}")
    here = machine()
    if here["gpu"] == "none" and not args.dry_run:
        raise ValueError("there is no GPU that torch can use: --dry-run tries the steps on the CPU")
    marker = args.folder / "gpu_report"
    if args.folder.exists() and os.listdir(args.folder) and not marker.exists():
        raise ValueError(f"--folder {args.folder}: holds other files, name a new folder")
    args.folder.mkdir(parents=True, exist_ok=True)
    marker.touch()
    texts = [folder and folder.resolve() for folder in (args.text, args.multi30k)]
    report = Report(args.folder.resolve(), args.dry_run, *texts, args.minutes)
    records: dict[str, Record] = {}
    for step, measure in STEPS.items():
        file = args.folder / f"{step}.json"
        known = read_json(file) if file.exists() else None
        repeat = known is None or (args.again and bool(known.get("failed")))
        if step in args.steps and repeat:
            print(f"{step} ...", flush=True)
            shutil.rmtree(args.folder / step, ignore_errors=True)  # of a try that failed
            start = time.perf_counter()
            try:
                known = measure(report)
            except Exception as error:  # the other steps go on
                known = {"failed": re.sub(r"\x1b\[[0-9;]*m", "", str(error))[:500]}
            known["seconds"] = round(time.perf_counter() - start, 1)
            write_json(file, known)
        if known is not None:
            records[step] = known
            print(f"{step}: {json.dumps(known)[:300]}", flush=True)
    if args.output:
        date = time.strftime("%Y-%m-%d")
        write_json(args.output, {"date": date, "machine": here, "steps": records})
    if failed := [step for step in args.steps if records[step].get("failed")]:
        raise ValueError(f"failed: {', '.join(failed)}: see {args.folder}/STEP.log, or use --again")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="for the files of the steps")
    add("--output", type=Path, help="JSON file for all records")
    add("--steps", type=lambda text: text.split(","), default=list(STEPS), metavar="NAME,NAME",
        help=f"of {', '.join(STEPS)} (default: all)")  # fmt: skip
    add("--text", type=Path, metavar="FOLDER", help="of the step everyday")
    add("--multi30k", type=Path, metavar="FOLDER", help="of the step multi30k")
    add("--minutes", type=float, default=6, help="of training in the step everyday (default 6)")
    add("--again", action="store_true", help="repeat steps that have failed")
    add("--dry-run", action="store_true", help="tiny numbers, on the CPU")
    args = parser.parse_args(argv)
    return console.exit_status("gpu_report", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
