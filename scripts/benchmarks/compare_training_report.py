"""What the trainings of `compare_training.py` have left: numbers, table and picture."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarking import say, table, versions
from compare_training_setup import NAMES, PEER, Plan, hypotheses, join, read_lines

from mt.data.preprocessing import texts
from mt.evaluation import metrics
from mt.evaluation.compare import paired_bootstrap
from mt.model import checkpoint

CLOCK = "clock.jsonl"
BLEU = metrics.metric_specs(tokenized=True)[0]  # of the tokens as they are
SCORES = ("test BLEU", "validation BLEU")

Found = dict[str, Any]


def read_records(path: Path) -> list[Found]:
    return [json.loads(line) for line in read_lines(path)]


def training(updates: Sequence[Found]) -> Found:
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


def curve(plan: Plan, name: str) -> list[Found]:
    """For each validation: update, seconds of training, perplexity, BLEU of greedy translations."""
    seconds = {each["step"]: each["seconds"] for each in read_records(plan.work / name / CLOCK)}
    _, references = texts(plan.source, "validation")
    points = []
    for found in read_records(plan.work / name / "validations.jsonl"):
        if "pieces" in found:  # scored as mt.train does
            lines = [join(line) for line in found["pieces"]]
            found["bleu"] = metrics.bleu(lines, references, force=True).value
        points.append(
            {
                "step": found["step"],
                "seconds": round(seconds[found["step"]], 1),
                "perplexity": round(found["perplexity"], 3),
                "bleu": round(found["bleu"], 2),
            }
        )
    return points


def by_average(plan: Plan, name: str) -> dict[int, float]:
    """BLEU of the validation set for each mean of checkpoints."""
    _, references = texts(plan.source, "validation")
    return {
        count: BLEU.score(read_lines(hypotheses(plan, name, "validation", count)), references).value
        for count in plan.average
    }


def best_average(plan: Plan, name: str) -> int:
    """How many checkpoints have the best mean, on the validation set; the fewer if equal."""
    scores = by_average(plan, name)
    return max(sorted(scores), key=lambda count: scores[count])


def results(plan: Plan, best: Mapping[str, int]) -> Found:
    """What both came to, by name, and their translations of the test set compared."""
    found: Found = {}
    for name in NAMES:
        found[name] = training(read_records(plan.work / name / CLOCK))
        scores = {count: round(value, 2) for count, value in by_average(plan, name).items()}
        found[name]["validation BLEU"] = scores[best[name]]
        _, references = texts(plan.source, "test")
        test = BLEU.score(read_lines(hypotheses(plan, name, "test", best[name])), references)
        found[name]["test BLEU"] = round(test.value, 2)
        found[name]["signature"] = test.signature
        found[name]["validation BLEU by the mean of so many checkpoints"] = {
            str(count): value for count, value in scores.items()
        }
        found[name]["averaged"] = best[name]
        found[name]["validations"] = curve(plan, name)
    about = json.loads((plan.work / PEER / "about.json").read_text("utf-8"))
    weights = checkpoint.load(plan.work / "mt" / "model").model.parameters()
    found["mt"]["parameters"] = sum(w.numel() for w in weights)
    found[PEER]["parameters"] = about["parameters"]
    found["mt"]["versions"] = versions(["torch", "pytorch-lightning"])
    found[PEER]["versions"] = about["versions"]
    return found | {"test BLEU, paired bootstrap": bootstrap(plan, best)}


def bootstrap(plan: Plan, best: Mapping[str, int]) -> Found:
    """By the test sentences: p, and each program's half of a 95% interval."""
    ours, theirs = (read_lines(hypotheses(plan, name, "test", best[name])) for name in NAMES)
    test = paired_bootstrap(BLEU, theirs, ours, texts(plan.source, "test")[1])
    halves = {name: round(test[side]["ci"], 2) for name, side in zip(NAMES, "ba", strict=True)}
    p = test["p_value"]
    return {"p": p and round(p, 4), "95%, half": halves, "signature": test["signature"]}


def conclusions(found: Found) -> Found:
    """Of one seed."""
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


def over_seeds(seeds: Mapping[str, Found]) -> Found:
    """Means of BLEU, how sure their difference is, and how often our perplexity is the lower."""
    every = [each["results"] for each in seeds.values()]
    found: Found = {"seeds": len(every)}
    for score in SCORES:
        values = {name: [each[name][score] for each in every] for name in NAMES}
        means = {name: statistics.mean(of_one) for name, of_one in values.items()}
        found[score] = {name: round(mean, 2) for name, mean in means.items()}
        found[score]["mt - peer"] = round(means["mt"] - means[PEER], 2)
        if len(every) > 1:
            variances = {name: statistics.variance(of_one) for name, of_one in values.items()}
            error = math.sqrt(sum(variances.values()) / len(every))
            found[score]["deviation"] = {n: round(v**0.5, 2) for n, v in variances.items()}
            found[score]["standard error of mt - peer"] = round(error, 2)
    pairs = [
        (ours["perplexity"], theirs["perplexity"])
        for each in every
        for ours, theirs in zip(*(each[name]["validations"] for name in NAMES), strict=True)
    ]
    lower = sum(ours < theirs for ours, theirs in pairs)
    found["validations where mt has the lower perplexity"] = f"{lower} of {len(pairs)}"
    return found


def report(seeds: Mapping[str, Found]) -> str:
    """A row for each program and seed."""
    header = [
        "",
        "seed",
        "updates",
        "target tokens an update",
        "minutes",
        "minutes of CPU",
        "tokens/s",
        "validation perplexity",
        "averaged",
        "validation BLEU",
        "test BLEU",
    ]
    rows = []
    for seed, both in seeds.items():
        for name in NAMES:
            each = both["results"][name]
            row = [
                name,
                seed,
                f"{each['updates']:,}",
                f"{each['target tokens an update']:,.0f}",
                f"{each['seconds'] / 60:.1f}",
                f"{each['CPU seconds'] / 60:.1f}",
                f"{each['tokens a second']:,}",
                f"{each['validations'][-1]['perplexity']:.2f}",
                str(each["averaged"]),
                f"{each['validation BLEU']:.2f}",
                f"{each['test BLEU']:.2f}",
            ]
            rows.append(row)
    return table(header, rows)


def draw(seeds: Mapping[str, Found], path: Path) -> None:
    """A line for each program and seed."""
    try:
        import matplotlib
    except ImportError:
        say(f"{path} is not drawn: matplotlib is not installed here")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4))
    for number, both in enumerate(seeds.values()):
        for name, colour in zip(NAMES, ("tab:orange", "tab:gray"), strict=True):
            points = both["results"][name]["validations"]
            style = {"color": colour, "marker": ".", "linewidth": 1}
            style["label"] = None if number else name
            steps = [point["step"] for point in points]
            axes[0].plot(steps, [math.log(point["perplexity"]) for point in points], **style)
            axes[1].plot(steps, [point["bleu"] for point in points], **style)
            minutes = [point["seconds"] / 60 for point in points]
            axes[2].plot(minutes, [point["bleu"] for point in points], **style)
    labels = [
        ("update", "validation NLL, nats a piece"),
        ("update", "validation sacreBLEU (13a), greedy"),
        ("minutes of training", "validation sacreBLEU (13a), greedy"),
    ]
    for axis, (x, y) in zip(axes, labels, strict=True):
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        axis.legend()
    figure.suptitle(f"mt and {PEER}, the same training; seeds {', '.join(seeds)}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
