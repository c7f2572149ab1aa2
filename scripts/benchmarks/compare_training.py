"""The same training by mt and by Joey NMT, side by side: which learns more, and which is faster.

python scripts/benchmarks/compare_training.py --train=PREFIX --validation=PREFIX --test=PREFIX \\
    --python joeynmt=PATH --seed 1 2 3 --output results/training.json --picture results/training.png

Each toolkit trains by its own program, both at the same time. Give tokenised text: it is split at
blanks and scored as it is. The --work folder has a folder for each seed, and the script does not
repeat what it finds there. docs/performance.md says what is equal and what is not.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import compare_training_report as reports
import compare_training_setup as setup
import numpy as np
from benchmarking import add_output_options, interpreters, new_parser, say
from compare_training_setup import JOEYNMT, SPLITS, TOOLKITS, Plan
from reporting import new_report, remember

from mt.data.batch_sampler import TokenBudgetSampler
from mt.data.preprocessing import texts
from mt.data.readers import FileReader
from mt.inference.translator import Translator
from mt.training.run_dir import is_finished
from mt.utils.atomic import atomic_write

HERE = Path(__file__).resolve().parent


def train_both(plan: Plan, python: str, batch_size: int) -> None:
    """Run both trainings at the same time; one that did not finish before starts again."""
    config = plan.work / f"{JOEYNMT}.json"
    atomic_write(config, json.dumps(setup.joeynmt_config(plan, batch_size), indent=1) + "\n")
    commands = {
        "mt": [sys.executable, str(HERE / "compare_training_mt.py"), *setup.mt_arguments(plan)],
        JOEYNMT: [python, str(HERE / f"compare_training_{JOEYNMT}.py"), "train", str(config)],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed = []
    try:
        for name, command in commands.items():
            if is_trained(plan, name):
                say(f"{name}: trained already")
                continue
            shutil.rmtree(plan.work / name, ignore_errors=True)
            for old in plan.work.glob(f"{name}.*.*"):  # translations by the earlier training
                old.unlink()
            say(f"{name}: training, see {plan.work / name}.log")
            with (plan.work / f"{name}.log").open("w", encoding="utf-8") as log:
                running[name] = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, env=environment(plan)
                )
        while running:
            time.sleep(1)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                del running[name]
                if is_trained(plan, name):
                    say(f"{name}: trained")
                else:  # the other one continues, so that it need not be repeated
                    say(f"{name}: training did not finish")
                    failed.append(name)
    finally:
        for process in running.values():
            process.kill()
    if failed:
        raise OSError(f"{failed[0]}: training did not finish, see {plan.work / failed[0]}.log")


def is_trained(plan: Plan, name: str) -> bool:
    if name == "mt":  # an interrupted training has a model folder too
        return is_finished(plan.work / name, plan.updates)
    return (plan.work / name / "about.json").is_file()


def environment(plan: Plan) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(plan.threads), "PYTHONWARNINGS": "ignore"}


def translate_both(plan: Plan, python: str) -> dict[str, int]:
    """Translate the validation set with each mean of checkpoints, and the test set with the best.

    Returns how many checkpoints the best mean of each toolkit has.
    """
    best = {}
    for name in TOOLKITS:
        for count in plan.average:
            translate(plan, name, "validation", count, python)
        best[name] = reports.best_average(plan, name)
        translate(plan, name, "test", best[name], python)
    return best


def translate(plan: Plan, name: str, split: str, count: int, python: str) -> None:
    """Translate a split with the mean of the last ``count`` checkpoints, if that is not done."""
    path = setup.hypotheses(plan, name, split, count)
    if path.is_file():
        return
    say(f"{name}: translating the {split} set with the mean of {count}")
    if name == "mt":
        mean = plan.work / "mt" / f"mean-{count}"
        if not mean.exists():
            kept = sorted((plan.work / "mt" / "checkpoints").glob("step-*.ckpt"))[-count:]
            if len(kept) < count:
                raise FileNotFoundError(f"{plan.work / 'mt'}: {count} checkpoints are not there")
            script = HERE.parent / "average_checkpoints.py"
            run([sys.executable, script, *kept, "--output", mean], plan, "mt-average")
        translations = Translator.load(mean, "cpu").translate(
            texts(plan.source, split)[0], **setup.SEARCH
        )
        setup.write_lines(path, (translation.text for translation in translations))
        return
    config, script = plan.work / f"{JOEYNMT}.json", HERE / f"compare_training_{JOEYNMT}.py"
    run([python, script, "decode", config, SPLITS[split], count], plan, f"{JOEYNMT}-decode")
    pieces = setup.read_lines(plan.work / JOEYNMT / f"hypotheses-{count}.{SPLITS[split]}")
    setup.write_lines(path, map(setup.join, pieces))


def run(command: Sequence[object], plan: Plan, name: str) -> None:
    """Run a program with its output in NAME.log. Raises OSError when it fails."""
    log = plan.work / f"{name}.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [*map(str, command)], stdout=file, stderr=file, env=environment(plan), check=False
        )
    if done.returncode:
        raise OSError(f"{name} failed: see {log}")


def compare(plan: Plan, python: str) -> dict[str, Any]:
    """Do what is left to do for one seed; returns its settings and results."""
    kept = setup.prepare_both(plan)
    src, tgt = kept.lengths()
    batches = len(TokenBudgetSampler(src, tgt, plan.max_tokens, plan.seed))
    batch_size = setup.fitting_batch_size(np.maximum(src, tgt), batches)
    say(f"{len(kept):,} pairs, {batches} batches an epoch; {JOEYNMT}'s batch_size {batch_size:,}")
    train_both(plan, python, batch_size)
    best = translate_both(plan, python)
    settings = plan.numbers() | {"pairs": len(kept), f"batch_size of {JOEYNMT}": batch_size}
    settings |= setup.MODEL | setup.TRAINING | setup.SEARCH
    results = reports.results(plan, best)
    conclusions = reports.conclusions(results)
    return {"settings": settings, "conclusions": conclusions, "results": results}


def remember_plan(plan: Plan) -> None:
    """Note the settings in the folder. ValueError when they are not those of an earlier time."""
    identity = {**plan.numbers(), "data": plan.source.__dict__}
    remember(plan.work / "plan.json", identity, "name another --work, or remove it")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    add = parser.add_argument
    for split in ("train", "validation", "test"):
        help = f"the same as data.{split} of mt.train"
        add(f"--{split}", required=True, metavar="PREFIX", help=help)
    add("--src", default="en", help="suffix of the sources")
    add("--tgt", default="de", help="suffix of the targets")
    add("--python", action="append", required=True, metavar=f"{JOEYNMT}=PATH")
    for option, default, help in (
        ("vocabulary", 4000, "pieces"),
        ("max-tokens", 4096, "on each side of mt's batches"),
        ("updates", 2540, ""),
        ("warmup", 1000, "updates"),
        ("checkpoint-every", 127, "updates"),
        ("validate-every", 254, "updates"),
    ):
        add(f"--{option}", type=int, default=default, help=f"{help} (default %(default)s)".strip())
    add("--average", type=int, nargs="+", default=[1, 2, 3, 5], metavar="N",
        help="last checkpoints; each toolkit takes the number that is best on the validation set "
        "(default 1 2 3 5)")  # fmt: skip
    add("--seed", type=int, nargs="+", default=[1], metavar="N",
        help="one comparison for each, one after the other (default 1)")  # fmt: skip
    add("--work", type=Path, default=Path("outputs/compare_training"),
        help="the folder for all files (default %(default)s)")  # fmt: skip
    add_output_options(parser, threads=1, required=True)
    args = parser.parse_args(argv)
    numbers = [n for n in vars(args).values() if isinstance(n, int)]
    if min(numbers + args.seed + args.average) < 1:
        parser.error("every number must be at least 1")
    for name in ("seed", "average"):
        if len(set(getattr(args, name))) < len(getattr(args, name)):
            parser.error(f"--{name} names one twice")
    if args.validate_every % args.checkpoint_every or args.updates % args.checkpoint_every:
        parser.error("--validate-every and --updates must be multiples of --checkpoint-every")
    if max(args.average) * args.checkpoint_every > args.updates:
        parser.error("--average: there are not so many checkpoints")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    source = FileReader(args.train, args.validation, args.test, args.src, args.tgt)
    options = {name: getattr(args, name) for name in Plan._fields if hasattr(args, name)}
    options |= {"source": source, "average": tuple(args.average)}
    plans = [
        Plan(**{**options, "seed": seed, "work": args.work.absolute() / f"seed-{seed}"})
        for seed in args.seed
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the trainings end with this process
    report = new_report()
    seeds: dict[str, Any] = {}
    try:
        python = interpreters(args.python, [JOEYNMT])[JOEYNMT]
        if shutil.which(python) is None:
            raise FileNotFoundError(f"--python {JOEYNMT}={python}: no such interpreter")
        for split in ("train", *SPLITS):
            source.identity(split)  # raises an error now if files are missing
        for plan in plans:
            remember_plan(plan)
        for path in (args.output, args.picture or args.output):
            path.parent.mkdir(parents=True, exist_ok=True)
        for plan in plans:
            seeds[str(plan.seed)] = compare(plan, python)
            report |= {"over seeds": reports.over_seeds(seeds), "seeds": seeds}
            atomic_write(args.output, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    except (ValueError, OSError) as error:
        print(f"compare_training: error: {error}", file=sys.stderr)
        return 2
    print(reports.markdown(seeds))
    print(json.dumps(report["over seeds"], indent=1))
    reports.draw(seeds, args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
