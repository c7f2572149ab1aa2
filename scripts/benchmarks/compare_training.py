"""The same training by mt and by Joey NMT, side by side: which learns more, which is sooner done.

python scripts/compare_training.py --train=PREFIX --validation=PREFIX --test=PREFIX \
    --python joeynmt=PATH --seed 1 2 3 --output results/training.json --picture results/training.png

Equal: the pairs (those that mt.train's cleaning keeps), their pieces (one BPE model, whose pieces
Joey NMT reads as words), shape and tied embeddings, how the weights are drawn, post-LN, dropout in
the paper's two places, label smoothing, Adam and the warm-up schedule, target tokens an update in
the mean, updates, when checkpoints are saved, beam and length penalty, float32, threads, and the
scorer. Each trains by its own program: `mt.train`, and Joey NMT's TrainManager as
`compare_training_joeynmt.py` calls it. Both run at the same time, a process each.

Each program's own is how batches are made: mt.train deals the pairs out by length, so that all hold
the same lengths; Joey NMT takes pairs in random order and fills a batch until its longest side
times its pairs reach a number. That number is chosen so that an epoch has as many batches as
mt.train's: both hold as many target tokens in the mean, Joey NMT's more padding. Its attention has
biases, and its learning rate is that of the update before.

Text is split at blanks and scored as it is (sacreBLEU, tokenize none): give tokenised text. Wall
time is that of the updates with their checkpoints; what comes before, and validation, are not in
it. Whatever is done already in the --work folder, where each seed has its own, is not done again.
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
from datetime import date
from pathlib import Path
from typing import Any

import average_checkpoints
import numpy as np
from benchmarking import command_line, interpreters, machine, say
from compare_training_report import (
    best_average,
    conclusions,
    draw,
    over_seeds,
    report,
    results,
)
from compare_training_setup import (
    MODEL,
    NAMES,
    PEER,
    SEARCH,
    SPLITS,
    TRAINING,
    Plan,
    fitting_batch_size,
    hypotheses,
    join,
    our_command,
    peer_config,
    prepare_both,
    read_lines,
    write_lines,
)

from mt.data.batch_sampler import TokenBudgetSampler
from mt.data.preprocessing import texts
from mt.data.readers import FileReader
from mt.inference.translator import Translator
from mt.training.run_dir import is_finished

HERE = Path(__file__).resolve().parent

# ------------------------------------------------------------------------------- two trainings


def train_both(plan: Plan, python: str, batch_size: int) -> None:
    """At the same time. What a killed run has left is begun again."""
    config = plan.work / f"{PEER}.json"
    write_lines(config, [json.dumps(peer_config(plan, batch_size), indent=1)])
    commands = {
        "mt": [sys.executable, str(HERE / "compare_training_mt.py"), *our_command(plan)],
        PEER: [python, str(HERE / f"compare_training_{PEER}.py"), "train", str(config)],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed = []
    try:
        for name, command in commands.items():
            if is_trained(plan, name):
                say(f"{name}: trained already")
                continue
            shutil.rmtree(plan.work / name, ignore_errors=True)
            for left in plan.work.glob(f"{name}.*.*"):  # another training's translations
                left.unlink()
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
                else:  # the other goes on: it need not be trained again
                    say(f"{name}: did not train to its end")
                    failed.append(name)
    finally:
        for process in running.values():
            process.kill()
    if failed:
        raise OSError(f"{failed[0]} did not train to its end: see {plan.work / failed[0]}.log")


def is_trained(plan: Plan, name: str) -> bool:
    if name == "mt":  # one that was interrupted has a model folder, too
        return is_finished(plan.work / name, plan.updates)
    return (plan.work / name / "about.json").is_file()


def environment(plan: Plan) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(plan.threads), "PYTHONWARNINGS": "ignore"}


# ----------------------------------------------------------------------------- two translations


def translate_both(plan: Plan, python: str) -> dict[str, int]:
    """The validation set by each mean of checkpoints, the test set by the best, which is told."""
    best = {}
    for name in NAMES:
        for count in plan.average:
            translate(plan, name, "validation", count, python)
        best[name] = best_average(plan, name)
        translate(plan, name, "test", best[name], python)
    return best


def translate(plan: Plan, name: str, split: str, count: int, python: str) -> None:
    """One set by the mean of the last ``count`` checkpoints of a program, unless it is there."""
    path = hypotheses(plan, name, split, count)
    if path.is_file():
        return
    say(f"{name}: {split} set by the mean of {count}")
    if name == "mt":
        mean = plan.work / "mt" / f"mean-{count}"
        if not mean.exists():
            kept = sorted((plan.work / "mt" / "checkpoints").glob("step-*.ckpt"))[-count:]
            if len(kept) < count:
                raise FileNotFoundError(f"{plan.work / 'mt'}: {count} checkpoints are not there")
            if average_checkpoints.main([*map(str, kept), "--output", str(mean)]):
                raise OSError(f"{mean} could not be made")
        translator = Translator.load(mean, "cpu")
        found = translator.translate(texts(plan.source, split)[0], **SEARCH)
        write_lines(path, (each.text for each in found))
        return
    config, log = plan.work / f"{PEER}.json", plan.work / f"{PEER}-decode.log"
    script = str(HERE / f"compare_training_{PEER}.py")
    command = [python, script, "decode", str(config), SPLITS[split], str(count)]
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(command, stdout=file, stderr=file, env=environment(plan), check=False)
    if done.returncode:
        raise OSError(f"{PEER} did not translate to its end: see {log}")
    pieces = read_lines(plan.work / PEER / f"hypotheses-{count}.{SPLITS[split]}")
    write_lines(path, map(join, pieces))


# ------------------------------------------------------------------------------ all of a seed


def compare(plan: Plan, python: str) -> dict[str, Any]:
    """What is not done yet of one seed, and all that came of it."""
    kept = prepare_both(plan)
    src, tgt = kept.lengths()
    batches = len(TokenBudgetSampler(src, tgt, plan.max_tokens, plan.seed))
    batch_size = fitting_batch_size(np.maximum(src, tgt), batches)
    say(f"{len(kept):,} pairs, {batches} batches an epoch; {PEER}'s batch_size {batch_size:,}")
    train_both(plan, python, batch_size)
    best = translate_both(plan, python)
    settings = {"pairs": len(kept), f"batch_size of {PEER}": batch_size}
    settings = {**plan.numbers(), **settings, **MODEL, **TRAINING, **SEARCH}
    found = results(plan, best)
    return {"settings": settings, "conclusions": conclusions(found), "results": found}


def remember(plan: Plan) -> None:
    """ValueError when the folder holds a comparison with other settings."""
    path = plan.work / "plan.json"
    now = json.dumps({**plan.numbers(), "data": plan.source.__dict__})
    if path.exists() and path.read_text("utf-8").strip() != now:
        raise ValueError(f"{plan.work} holds another comparison: name another --work, or remove it")
    plan.work.mkdir(parents=True, exist_ok=True)
    write_lines(path, [now])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for split in ("train", "validation", "test"):
        parser.add_argument(
            f"--{split}", required=True, metavar="PREFIX", help=f"as data.{split} of mt.train"
        )
    parser.add_argument("--src", default="en", help="suffix of the sources")
    parser.add_argument("--tgt", default="de", help="suffix of the targets")
    parser.add_argument("--python", action="append", required=True, metavar=f"{PEER}=PATH")
    parser.add_argument("--vocabulary", type=int, default=4000, help="pieces (default %(default)s)")
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=4096,
        help="a side in a batch of mt's (default %(default)s)",
    )
    parser.add_argument("--updates", type=int, default=2540, help="default %(default)s")
    parser.add_argument("--warmup", type=int, default=1000, help="updates (default %(default)s)")
    parser.add_argument(
        "--checkpoint-every", type=int, default=127, help="updates (default %(default)s)"
    )
    parser.add_argument(
        "--validate-every", type=int, default=254, help="updates (default %(default)s)"
    )
    parser.add_argument(
        "--average",
        type=int,
        nargs="+",
        default=[1, 2, 3, 5],
        metavar="N",
        help="last checkpoints; each program takes what is best on the validation set "
        "(default 1 2 3 5)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        nargs="+",
        default=[1],
        metavar="N",
        help="one comparison each, one after the other (default 1)",
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="of each program (default %(default)s)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("outputs/compare_training"),
        help="where all that is made lies (default %(default)s)",
    )
    parser.add_argument("--output", type=Path, required=True, help="JSON")
    parser.add_argument("--picture", type=Path, help="PNG, drawn where matplotlib is installed")
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
    source = FileReader(args.train, args.validation, args.test, args.src, args.tgt)
    options = {name: getattr(args, name) for name in Plan._fields if hasattr(args, name)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the trainings end with this process
    about = {"date": date.today().isoformat(), "command": command_line(), "machine": machine()}
    options |= {"source": source, "average": tuple(args.average)}
    plans = [
        Plan(**{**options, "seed": seed, "work": args.work.absolute() / f"seed-{seed}"})
        for seed in args.seed
    ]
    seeds: dict[str, Any] = {}
    try:
        python = interpreters(args.python, [PEER])[PEER]
        if shutil.which(python) is None:
            raise FileNotFoundError(f"--python {PEER}={python}: no such interpreter")
        for split in ("train", *SPLITS):
            source.identity(split)  # what is missing shows before anything is done
        for plan in plans:
            remember(plan)
        for path in (args.output, args.picture or args.output):
            path.parent.mkdir(parents=True, exist_ok=True)
        for plan in plans:
            seeds[str(plan.seed)] = compare(plan, python)
            found = {**about, "over seeds": over_seeds(seeds), "seeds": seeds}
            write_lines(args.output, [json.dumps(found, indent=1, ensure_ascii=False)])
    except (ValueError, OSError) as error:
        print(f"compare_training: error: {error}", file=sys.stderr)
        return 2
    print(report(seeds))
    print(json.dumps(found["over seeds"], indent=1))
    if args.picture:
        draw(seeds, args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
