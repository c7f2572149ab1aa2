"""The same training by mt and by Joey NMT, side by side: which learns more, which is sooner done.

python scripts/compare_training.py --train=PREFIX --validation=PREFIX --test=PREFIX \
    --python joeynmt=PATH --output results/training.json --picture results/training.png

Equal: the pairs (those that mt.train's cleaning keeps), their pieces (one BPE model, whose pieces
Joey NMT reads as words), shape and tied embeddings, how the weights are drawn, post-LN, dropout in
the paper's two places, label smoothing, Adam and the warm-up schedule, target tokens an update in
the mean, updates, the checkpoints to average, beam and length penalty, float32, threads, and the
scorer. Each trains by its own program: `mt.train`, and Joey NMT's TrainManager as
`compare_training_joeynmt.py` calls it. Both run at the same time, a process each.

Each program's own is how batches are made: mt.train deals the pairs out by length, so that all hold
the same lengths; Joey NMT takes pairs in random order and fills a batch until its longest side
times its pairs reach a number. That number is chosen so that an epoch has as many batches as
mt.train's: both hold as many target tokens in the mean, Joey NMT's more padding. Its attention has
biases, and its learning rate is that of the update before.

Text is split at blanks and scored as it is (sacreBLEU, tokenize none): give tokenised text. Wall
time is that of the updates with their checkpoints; what comes before, and validation, are not in
it. Whatever is done already in the --work folder is not done again.
"""

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu.metrics
from benchmarking import command_line, interpreters, machine, say, table, versions
from compare_training_setup import (
    MODEL,
    PEER,
    SEARCH,
    SPLITS,
    TRAINING,
    Plan,
    fitting_batch_size,
    join,
    our_command,
    peer_config,
    prepare_both,
    write_lines,
)

from mt import checkpoint, metrics
from mt.batching import TokenBudgetSampler
from mt.corpus import texts
from mt.runs import is_finished
from mt.sources import Files
from mt.translator import Translator

HERE = Path(__file__).resolve().parent
CLOCK = "clock.jsonl"

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
    return (plan.work / name / "average.ckpt").is_file()


def environment(plan: Plan) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(plan.threads), "PYTHONWARNINGS": "ignore"}


# ------------------------------------------------------------------------------- what came out


def translate_both(plan: Plan, python: str) -> None:
    """Both test and validation set, as text: work/NAME.SPLIT."""
    if not is_translated(plan, "mt"):
        say("mt: translating")
        translator = Translator.load(plan.work / "mt" / "model", "cpu")
        for split in SPLITS:
            found = translator.translate(texts(plan.source, split)[0], **SEARCH)
            write_lines(hypotheses(plan, "mt", split), (each.text for each in found))
    if not is_translated(plan, PEER):
        config, log = plan.work / f"{PEER}.json", plan.work / f"{PEER}-decode.log"
        say(f"{PEER}: translating, see {log}")
        command = [python, str(HERE / f"compare_training_{PEER}.py"), "decode", str(config)]
        with log.open("w", encoding="utf-8") as file:
            done = subprocess.run(
                command, stdout=file, stderr=file, env=environment(plan), check=False
            )
        if done.returncode:
            raise OSError(f"{PEER} did not translate to its end: see {log}")
        for split, theirs in SPLITS.items():
            pieces = read_lines(plan.work / PEER / f"hypotheses.{theirs}")
            write_lines(hypotheses(plan, PEER, split), map(join, pieces))


def is_translated(plan: Plan, name: str) -> bool:
    return all(hypotheses(plan, name, split).is_file() for split in SPLITS)


def hypotheses(plan: Plan, name: str, split: str) -> Path:
    return plan.work / f"{name}.{split}"


def read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(path)]


def token_bleu(translations: list[str], references: list[str]) -> tuple[float, str]:
    """BLEU of the tokens as they are, and its signature."""
    if len(translations) != len(references):
        raise ValueError(f"{len(translations)} translations against {len(references)} references")
    metric = sacrebleu.metrics.BLEU(tokenize="none", force=True)
    value = metric.corpus_score(translations, [references]).score
    return round(value, 2), str(metric.get_signature())


def training(updates: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a clock's lines come to."""
    tokens = sum(each["src"] + each["tgt"] for each in updates)
    seconds, cpu = (updates[-1][name] for name in ("seconds", "cpu_seconds"))
    return {
        "updates": updates[-1]["step"],
        "target tokens an update": round(statistics.mean(each["tgt"] for each in updates), 1),
        "source tokens an update": round(statistics.mean(each["src"] for each in updates), 1),
        "seconds": round(seconds, 1),
        "CPU seconds": round(cpu, 1),
        "tokens a second": round(tokens / seconds),
    }


def curve(plan: Plan, name: str) -> list[dict[str, Any]]:
    """For each validation: update, seconds of training, perplexity, BLEU of greedy translations."""
    seconds = {each["step"]: each["seconds"] for each in read_records(plan.work / name / CLOCK)}
    _, references = texts(plan.source, "validation")
    points = []
    for found in read_records(plan.work / name / "validations.jsonl"):
        if "pieces" in found:  # scored as mt.train does
            found["bleu"] = metrics.bleu([join(line) for line in found["pieces"]], references).value
        points.append(
            {
                "step": found["step"],
                "seconds": round(seconds[found["step"]], 1),
                "perplexity": round(found["perplexity"], 3),
                "bleu": round(found["bleu"], 2),
            }
        )
    return points


def results(plan: Plan) -> dict[str, Any]:
    """What each came to, by name."""
    found: dict[str, Any] = {}
    for name in ("mt", PEER):
        found[name] = training(read_records(plan.work / name / CLOCK))
        for split in SPLITS:
            _, references = texts(plan.source, split)
            value, signature = token_bleu(read_lines(hypotheses(plan, name, split)), references)
            found[name][f"{split} BLEU"] = value
            found[name]["signature"] = signature
        found[name]["validations"] = curve(plan, name)
    model = json.loads((plan.work / "mt" / "model" / "config.json").read_text("utf-8"))
    about = json.loads((plan.work / PEER / "about.json").read_text("utf-8"))
    found["mt"]["averaged"] = model["training"]["mean of checkpoints"]
    found[PEER]["averaged"] = ", ".join(f"{step}.ckpt" for step in about["averaged"])
    weights = checkpoint.load(plan.work / "mt" / "model").model.parameters()
    found["mt"]["parameters"] = sum(w.numel() for w in weights)
    found[PEER]["parameters"] = about["parameters"]
    found["mt"]["versions"] = versions(["torch", "pytorch-lightning"])
    found[PEER]["versions"] = about["versions"]
    return found


def conclusions(found: dict[str, Any]) -> dict[str, Any]:
    ours, theirs = found["mt"], found[PEER]
    return {
        "test BLEU, mt - peer": round(ours["test BLEU"] - theirs["test BLEU"], 2),
        "validation BLEU, mt - peer": round(ours["validation BLEU"] - theirs["validation BLEU"], 2),
        "wall time, peer / mt": round(theirs["seconds"] / ours["seconds"], 3),
        "CPU time, peer / mt": round(theirs["CPU seconds"] / ours["CPU seconds"], 3),
        "target tokens an update, peer / mt": round(
            theirs["target tokens an update"] / ours["target tokens an update"], 4
        ),
    }


def report(found: dict[str, Any]) -> str:
    """A row for each program."""
    header = ["", "updates", "target tokens an update", "minutes", "minutes of CPU", "tokens/s",
              "validation BLEU", "test BLEU"]  # fmt: skip
    rows = [
        [
            name,
            f"{each['updates']:,}",
            f"{each['target tokens an update']:,.0f}",
            f"{each['seconds'] / 60:.1f}",
            f"{each['CPU seconds'] / 60:.1f}",
            f"{each['tokens a second']:,}",
            f"{each['validation BLEU']:.2f}",
            f"{each['test BLEU']:.2f}",
        ]
        for name, each in found.items()
    ]
    return table(header, rows)


def draw(found: dict[str, Any], path: str) -> None:
    try:
        import matplotlib
    except ImportError:
        say(f"{path} is not drawn: matplotlib is not installed here")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4))
    for name, colour in (("mt", "tab:orange"), (PEER, "tab:gray")):
        points = found[name]["validations"]
        style = {"color": colour, "label": name, "marker": "."}
        steps = [point["step"] for point in points]
        axes[0].plot(steps, [math.log(point["perplexity"]) for point in points], **style)
        axes[1].plot(steps, [point["bleu"] for point in points], **style)
        minutes = [point["seconds"] / 60 for point in points]
        axes[2].plot(minutes, [point["bleu"] for point in points], **style)
    labels = [
        ("update", "validation NLL, nats a piece"),
        ("update", "validation BLEU, greedy"),
        ("minutes of training", "validation BLEU, greedy"),
    ]
    for axis, (x, y) in zip(axes, labels, strict=True):
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def compare(plan: Plan, python: str) -> dict[str, Any]:
    settings = plan._asdict()
    del settings["work"], settings["source"]
    for split in ("train", *SPLITS):
        plan.source.identity(split)  # what is missing shows before anything is done
    remember(plan, settings)
    kept = prepare_both(plan)
    src, tgt = kept.lengths()
    batches = len(TokenBudgetSampler(src, tgt, plan.max_tokens, plan.seed))
    batch_size = fitting_batch_size(np.maximum(src, tgt), batches)
    say(f"{len(kept):,} pairs, {batches} batches an epoch; {PEER}'s batch_size {batch_size:,}")
    train_both(plan, python, batch_size)
    translate_both(plan, python)
    settings |= {"pairs": len(kept), f"batch_size of {PEER}": batch_size}
    settings |= {**MODEL, **TRAINING, **SEARCH}
    found = results(plan)
    return {"settings": settings, "conclusions": conclusions(found), "results": found}


def remember(plan: Plan, settings: dict[str, Any]) -> None:
    """ValueError when the folder holds a comparison with other settings."""
    path = plan.work / "plan.json"
    now = json.dumps({**settings, "data": plan.source.__dict__})
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
    parser.add_argument("--average", type=int, default=5, help="checkpoints (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
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
    parser.add_argument("--picture", help="PNG, drawn where matplotlib is installed")
    args = parser.parse_args(argv)
    if min(value for value in vars(args).values() if isinstance(value, int)) < 1:
        parser.error("every number must be at least 1")
    if args.validate_every % args.checkpoint_every or args.updates % args.checkpoint_every:
        parser.error("--validate-every and --updates must be multiples of --checkpoint-every")
    source = Files(args.train, args.validation, args.test, args.src, args.tgt)
    numbers = {name: getattr(args, name) for name in Plan._fields if hasattr(args, name)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the trainings end with this process
    plan = Plan(**{**numbers, "work": args.work.absolute(), "source": source})
    try:
        python = interpreters(args.python, [PEER])[PEER]
        if shutil.which(python) is None:
            raise FileNotFoundError(f"--python {PEER}={python}: no such interpreter")
        found = compare(plan, python)
    except (ValueError, OSError) as error:
        print(f"compare_training: error: {error}", file=sys.stderr)
        return 2
    about = {"date": date.today().isoformat(), "command": command_line(), "machine": machine()}
    text = json.dumps({**about, **found}, indent=1, ensure_ascii=False)
    write_lines(args.output, [text])
    print(report(found["results"]))
    print(json.dumps(found["conclusions"], indent=1))
    if args.picture:
        draw(found["results"], args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
