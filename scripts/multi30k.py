"""Multi30k, from the text to the table: train, average, tune the search and test.

    python scripts/multi30k.py                 # the hub's set, both forms, three seeds each
    python scripts/multi30k.py --data FOLDER --form lc.norm.tok --seed 1
    python scripts/multi30k.py --jobs 6 -- trainer.accelerator=gpu    # six at a time on a GPU
    python scripts/multi30k.py --settings wide "model.d_model=256 model.d_ff=512"
    python scripts/multi30k.py --form raw --diverse

Every training is experiment=multi30k in its own directory. After an interruption, the same command
continues and does not repeat what is done. Arguments after ``--`` are settings of mt.train; with
--diverse (data diversification) they apply to the further trainings too, except those that a model
brings along. docs/multi30k.md explains the two forms, their scores and the trainings of --diverse.

FOLDER holds train, val and test_2016_flickr (.en, .de; .gz too). It may hold the other form as
NAME.lc.norm.tok.en and .de; this script makes what is missing.
"""

import argparse
import hashlib
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from mt.utils import console

sys.path.append(str(Path(__file__).resolve().parent / "benchmarks"))  # for reporting.py

with console.exit_at_interrupt():
    from multi30k_data import LC, NAMES, RAW, Job, prefix, prepare_data
    from multi30k_scores import evaluate, render, tune
    from reporting import new_report, remember, setting

    from mt.evaluation import report
    from mt.model import checkpoint
    from mt.utils.atomic import atomic_write
    from mt.utils.line_io import read_lines

DIVERSE = {  # the trainings of --diverse, and their settings
    # a quarter of the first training's steps; the average covers more than the last half
    "diverse": "trainer.max_steps=3175 training.warmup_steps=500 training.lr_factor=1 "
    "checkpoint_every=127 average=20",
    "reverse": "trainer.max_steps=2413 training.warmup_steps=500 training.lr_factor=1.5 "
    "checkpoint_every=127 average=8",
    "both": "trainer.max_steps=1270 training.warmup_steps=300 training.lr_factor=0.6 "
    "checkpoint_every=63 average=12",
}
REVERSE_BEAM, REVERSE_ALPHA = 5, 1.0  # English is as long as the German, or longer
# Settings that a model brings along when it is trained further.
OF_MODEL = (
    r"[+~]*((init|start)_from=|model(=|\.(?!(P_drop|P_attention|P_inner|compile)=))|variation=|"
    r"tokenizer\.(path|vocab_size|byte_fallback|split_digits)=)"
)
# Settings that this script makes.
OF_RECIPE = r"[+~]*data\.(kind|reader[.\w]*|train|validation|src|tgt|limit)="


def train(job: Job, overrides: Sequence[str], threads: int) -> None:
    settings = [*job.settings, *overrides]
    identity = [*settings, job.parent] if job.parent else settings
    file = job.run / "settings.json"
    if not any((job.run / name).exists() for name in ("checkpoints", "model")):  # nothing is done
        file.unlink(missing_ok=True)
    remember(file, identity, "name another --folder or --settings NAME")
    arguments = [
        "mt.train",
        "experiment=multi30k",
        "data=files",
        setting("data.train", job.prefix("train")),
        setting("data.validation", job.prefix("validation")),
        f"seed={job.seed}",
        setting("hydra.run.dir", job.run),
        "ckpt=auto",
        *settings,
    ]
    print(f"{job.run}: training, see its output.log", flush=True)
    start = time.perf_counter()
    job.call(arguments, threads)
    print(f"{job.run}: trained, {time.perf_counter() - start:,.0f} s", flush=True)


def train_all(jobs: Sequence[Job], overrides: Sequence[str], at_once: int, threads: int) -> None:
    """Run the trainings; after one fails, no other begins."""
    pool = ThreadPoolExecutor(at_once)
    try:
        for future in [pool.submit(train, job, overrides, threads) for job in jobs]:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def further(jobs: Sequence[Job], name: str, settings: Sequence[str]) -> list[Job]:
    """Jobs that train the models of ``jobs`` further with these settings."""
    return [
        replace(
            job,
            name=name,
            settings=(*settings, setting("init_from", job.run / "model")),
            parent=checkpoint.digest(job.run / "model"),
        )
        for job in jobs
    ]


def diversify(
    jobs: Sequence[Job], settings: dict[str, Sequence[str]], train: Callable[[Sequence[Job]], None]
) -> list[Job]:
    """Train the seeds of one form further, with settings by the names of DIVERSE.

    Returns the jobs that translate in the original direction: all but "reverse".
    """
    search = [tune(jobs[0])[0][name] for name in ("beam_size", "alpha")]
    files = [translate(job, *search, "en", "de") for job in jobs]
    english, german = (jobs[0].lines("train", side) for side in ("en", "de"))
    sources = english * (len(jobs) + 1)
    targets = german + [line for file in files for line in read_lines(file)]
    data = write_pairs(jobs[0], files, sources, targets)
    diverse = further(jobs, "diverse", [*settings["diverse"], data])
    direction = ["data.src=de", "data.tgt=en"]
    reverse = further(jobs, "reverse", [*settings["reverse"], *direction])
    train([*diverse, *reverse])

    reverse_files = [translate(job, REVERSE_BEAM, REVERSE_ALPHA, "de", "en") for job in reverse]
    sources += [line for file in reverse_files for line in read_lines(file)]
    targets += german * len(jobs)
    data = write_pairs(jobs[0], files + reverse_files, sources, targets)
    both = further(diverse, "both", [*settings["both"], data])
    train(both)
    return [*diverse, *both]


def translate(job: Job, beam_size: int, alpha: float, src: str, tgt: str) -> Path:
    """The file of the job's translations of one side of the training pairs."""
    model = job.run / "model"
    name = f"{checkpoint.digest(model)[:12]}-beam{beam_size}-alpha{alpha}"
    output = job.run / f"train.{name}.{tgt}"
    if not output.exists():
        print(f"{job.run}: translating train.{src}, see its output.log", flush=True)
        files = ["--input", f"{job.prefix('train')}.{src}", "--output", str(output), "--resume"]
        search = [f"--beam-size={beam_size}", f"--alpha={alpha}", "--no-split"]
        job.call(["mt.translate", "--model", str(model), *files, *search])
    return output


def write_pairs(job: Job, origins: Sequence[Path], sources: list[str], targets: list[str]) -> str:
    """Write these pairs, and return the setting to train on them.

    The names of the translations' files, ``origins``, give the pairs their own name.
    """
    name = hashlib.sha256(" ".join(path.name for path in origins).encode()).hexdigest()[:12]
    pairs = prefix(job.folder / "data", f"train-{name}", job.form)
    report.write_json(Path(f"{pairs}.json"), [str(path) for path in origins])
    for side, lines in (("en", sources), ("de", targets)):
        if not Path(f"{pairs}.{side}").exists():  # mt.train prepares a newer file again
            atomic_write(f"{pairs}.{side}", report.join_lines(lines))
    return setting("data.train", pairs)


# The command line


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="FOLDER", help="the set, instead of the hub's")
    add("--form", nargs="+", choices=(RAW, LC), default=[RAW, LC], help="default: both")
    add("--seed", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    add("--settings", nargs=2, action="append", metavar=("NAME", "OVERRIDES"), default=[],
        help="a further configuration beside the experiment's own; may be repeated")  # fmt: skip
    add("--diverse", nargs="*", metavar="OVERRIDES",
        help="also train the seeds of the experiment's own configuration further, on translations "
        "by all of them, and on translations in the opposite direction "
        f"(default: {' '.join(map(repr, DIVERSE.values()))})")  # fmt: skip
    add("--jobs", type=int, default=1, help="trainings at a time (default 1)")
    add("--threads", type=int, help="of each training; default: the cores, shared by the jobs")
    add("--folder", type=Path, default=Path("outputs/multi30k"),
        help="for all that is made (default outputs/multi30k)")  # fmt: skip
    add("--output", type=Path, help="default: report.json in the folder")
    add("overrides", nargs="*", help="settings of mt.train, after --")
    args = parser.parse_args()
    if args.jobs < 1 or (args.threads is not None and args.threads < 1):
        parser.error("--jobs and --threads must be at least 1")
    names = [name for name, _ in args.settings]
    if reserved := DIVERSE.keys() & set(names):
        parser.error(f"--settings {reserved.pop()}: --diverse uses this name")
    for values in (args.form, args.seed, names):
        if len(set(values)) < len(values):
            parser.error(f"{' '.join(map(str, values))}: do not name one twice")
    if args.diverse == []:
        args.diverse = list(DIVERSE.values())
    if args.diverse:
        if len(args.diverse) != len(DIVERSE):
            parser.error(f"--diverse: give settings of {', '.join(DIVERSE)}, or none")
        fixed = [o for o in args.overrides if re.match(OF_RECIPE, o)]
        own = " ".join(args.diverse).split()
        fixed += [o for o in own if re.match(f"{OF_RECIPE}|{OF_MODEL}", o)]
        if fixed:
            parser.error(f"--diverse: {fixed[0]} cannot be changed")
    return args


def train_diverse(jobs: list[Job], args: argparse.Namespace, threads: int) -> list[Job]:
    """Train the seeds of each form further; returns the jobs to test."""
    common = [o for o in args.overrides if not re.match(OF_MODEL, o)]
    own = zip(DIVERSE, args.diverse, strict=True)
    settings = {name: [*common, *overrides.split()] for name, overrides in own}
    more = []
    for form in args.form:
        seeds = [job for job in jobs if (job.form, job.name) == (form, "")]
        more += diversify(seeds, settings, lambda jobs: train_all(jobs, [], args.jobs, threads))
    return more


def main() -> None:
    args = parse()
    prepare_data(args.data, args.folder / "data")
    variants = [("", ()), *((name, tuple(overrides.split())) for name, overrides in args.settings)]
    jobs = [
        Job(form, name, settings, seed, args.folder)
        for form, (name, settings), seed in itertools.product(args.form, variants, args.seed)
    ]
    if args.diverse:  # the data of these trainings depend on all seeds
        file = args.folder / "diverse" / "seeds.json"
        if not any(args.folder.glob("*-diverse-seed*")):
            file.unlink(missing_ok=True)
        remember(file, args.seed, "give the same --seed, or name another --folder")
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.jobs)
    train_all(jobs, args.overrides, args.jobs, threads)
    if args.diverse:
        jobs += train_diverse(jobs, args, threads)
    configurations = {
        name: evaluate(list(seeds))
        for name, seeds in itertools.groupby(jobs, lambda job: job.configuration)
    }
    output = args.output or args.folder / "report.json"
    content = {"test set": NAMES["test"], "configurations": configurations}
    report.write_json(output, new_report(**content))
    print(f"{render(configurations)}\n\nreport  {output}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        print(f"multi30k: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("multi30k: interrupted; the same command continues", file=sys.stderr)
        sys.exit(130)
