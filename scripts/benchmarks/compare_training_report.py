"""The report on the trainings of `compare_training.py`: numbers, table and picture."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarking import versions
from compare_training_setup import JOEYNMT, TOOLKITS, Plan, hypotheses, join, read_lines
from reporting import pyplot_for, save_figure, table

from mt.data.preprocessing import texts
from mt.evaluation import metrics
from mt.evaluation.compare import paired_bootstrap
from mt.model import checkpoint

CLOCK = "clock.jsonl"
BLEU = metrics.metric_specs(tokenized=True)[0]  # scores the tokens as they are
SCORES = ("test BLEU", "validation BLEU")
COLUMNS = {
    "updates": lambda row: f"{row['updates']:,}",
    "target tokens an update": lambda row: f"{row['target tokens an update']:,.0f}",
    "minutes": lambda row: f"{row['seconds'] / 60:.1f}",
    "minutes of CPU": lambda row: f"{row['CPU seconds'] / 60:.1f}",
    "tokens/s": lambda row: f"{row['tokens a second']:,}",
    "validation perplexity": lambda row: f"{row['validations'][-1]['perplexity']:.2f}",
    "averaged": lambda row: str(row["averaged"]),
    "validation BLEU": lambda row: f"{row['validation BLEU']:.2f}",
    "test BLEU": lambda row: f"{row['test BLEU']:.2f}",
}

Results = dict[str, Any]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(path)]


def training(updates: Sequence[Mapping[str, Any]]) -> Results:
    """Totals and means of the updates in a clock's file."""
    src, tgt = ([update[side] for update in updates] for side in ("src", "tgt"))
    tokens = sum(src) + sum(tgt)
    seconds, cpu = (updates[-1][name] for name in ("seconds", "cpu_seconds"))
    return {
        "updates": updates[-1]["step"],
        "target tokens an update": round(statistics.mean(tgt), 1),
        "source tokens an update": round(statistics.mean(src), 1),
        "seconds": round(seconds, 1),
        "CPU seconds": round(cpu, 1),
        "tokens a second": round(tokens / seconds),
    }


def curve(plan: Plan, name: str) -> list[dict[str, Any]]:
    """For each validation: update, seconds of training, perplexity, BLEU of greedy translations."""
    clock = read_json_lines(plan.work / name / CLOCK)
    seconds = {update["step"]: update["seconds"] for update in clock}
    _, references = texts(plan.source, "validation")
    points = []
    for validation in read_json_lines(plan.work / name / "validations.jsonl"):
        if "pieces" in validation:  # not scored yet: score them in the same way as mt.train
            lines = [join(line) for line in validation["pieces"]]
            validation["bleu"] = metrics.bleu(lines, references, force=True).value
        step, perplexity = validation["step"], round(validation["perplexity"], 3)
        point = {"step": step, "seconds": round(seconds[step], 1), "perplexity": perplexity}
        points.append(point | {"bleu": round(validation["bleu"], 2)})
    return points


def by_average(plan: Plan, name: str) -> dict[int, float]:
    """BLEU of the validation set for each mean of checkpoints."""
    _, references = texts(plan.source, "validation")
    return {
        count: BLEU.score(read_lines(hypotheses(plan, name, "validation", count)), references).value
        for count in plan.average
    }


def best_average(plan: Plan, name: str) -> int:
    """The number of checkpoints whose mean is best on the validation set; of equals, the least."""
    scores = by_average(plan, name)
    return max(sorted(scores), key=lambda count: scores[count])


def results(plan: Plan, best: Mapping[str, int]) -> Results:
    """The results of each toolkit, and the comparison of their translations of the test set."""
    joeynmt = json.loads((plan.work / JOEYNMT / "about.json").read_text("utf-8"))
    weights = checkpoint.load(plan.work / "mt" / "model").model.parameters()
    parameters = {"mt": sum(w.numel() for w in weights), JOEYNMT: joeynmt["parameters"]}
    packages = {"mt": versions(["torch", "pytorch-lightning"]), JOEYNMT: joeynmt["versions"]}
    _, references = texts(plan.source, "test")
    by_toolkit: Results = {}
    for name in TOOLKITS:
        scores = {count: round(value, 2) for count, value in by_average(plan, name).items()}
        test = BLEU.score(read_lines(hypotheses(plan, name, "test", best[name])), references)
        by_toolkit[name] = {
            **training(read_json_lines(plan.work / name / CLOCK)),
            "validation BLEU": scores[best[name]],
            "test BLEU": round(test.value, 2),
            "signature": test.signature,
            "validation BLEU by the mean of so many checkpoints": {
                str(count): value for count, value in scores.items()
            },
            "averaged": best[name],
            "validations": curve(plan, name),
            "parameters": parameters[name],
            "versions": packages[name],
        }
    return by_toolkit | {"test BLEU, paired bootstrap": bootstrap(plan, best)}


def bootstrap(plan: Plan, best: Mapping[str, int]) -> Results:
    """Resamples the test sentences: p, and half the width of each toolkit's 95% interval."""
    mt, joeynmt = (read_lines(hypotheses(plan, name, "test", best[name])) for name in TOOLKITS)
    test = paired_bootstrap(BLEU, joeynmt, mt, texts(plan.source, "test")[1])
    halves = {name: round(test[side]["ci"], 2) for name, side in zip(TOOLKITS, "ba", strict=True)}
    p = test["p_value"]
    return {"p": p and round(p, 4), "95%, half": halves, "signature": test["signature"]}


def conclusions(by_toolkit: Results) -> Results:
    """Differences and ratios of one seed."""
    mt, joeynmt = by_toolkit["mt"], by_toolkit[JOEYNMT]
    differences = {f"{key}, mt - peer": round(mt[key] - joeynmt[key], 2) for key in SCORES}
    ratios = {
        f"{name}, peer / mt": round(joeynmt[key] / mt[key], digits)
        for name, key, digits in (
            ("wall time", "seconds", 3),
            ("CPU time", "CPU seconds", 3),
            ("target tokens an update", "target tokens an update", 4),
        )
    }
    return differences | ratios


def over_seeds(seeds: Mapping[str, Results]) -> Results:
    """Mean BLEU, the standard error of the difference, and how often mt's perplexity is lower."""
    runs = [seed["results"] for seed in seeds.values()]
    summary: Results = {"seeds": len(runs)}
    for score in SCORES:
        values = {name: [run[name][score] for run in runs] for name in TOOLKITS}
        means = {name: statistics.mean(scores) for name, scores in values.items()}
        summary[score] = {name: round(mean, 2) for name, mean in means.items()}
        summary[score]["mt - peer"] = round(means["mt"] - means[JOEYNMT], 2)
        if len(runs) > 1:
            variances = {name: statistics.variance(scores) for name, scores in values.items()}
            error = math.sqrt(sum(variances.values()) / len(runs))
            summary[score]["deviation"] = {n: round(v**0.5, 2) for n, v in variances.items()}
            summary[score]["standard error of mt - peer"] = round(error, 2)
    lower = [
        mt["perplexity"] < joeynmt["perplexity"]
        for run in runs
        for mt, joeynmt in zip(*(run[name]["validations"] for name in TOOLKITS), strict=True)
    ]
    key = "validations where mt has the lower perplexity"
    return summary | {key: f"{sum(lower)} of {len(lower)}"}


def markdown(seeds: Mapping[str, Results]) -> str:
    """A table with a row for each toolkit and seed."""
    rows = [
        [name, seed, *(show(run["results"][name]) for show in COLUMNS.values())]
        for seed, run in seeds.items()
        for name in TOOLKITS
    ]
    return table(["", "seed", *COLUMNS], rows)


def draw(seeds: Mapping[str, Results], path: Path | None) -> None:
    """Draw a line for each toolkit and seed."""
    pyplot = pyplot_for(path)
    if pyplot is None:
        return
    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4))
    for number, seed in enumerate(seeds.values()):
        for name, colour in zip(TOOLKITS, ("tab:orange", "tab:gray"), strict=True):
            points = seed["results"][name]["validations"]
            steps = [point["step"] for point in points]
            minutes = [point["seconds"] / 60 for point in points]
            losses = [math.log(point["perplexity"]) for point in points]
            scores = [point["bleu"] for point in points]
            style = {"color": colour, "marker": ".", "linewidth": 1}
            style["label"] = None if number else name
            axes[0].plot(steps, losses, **style)
            axes[1].plot(steps, scores, **style)
            axes[2].plot(minutes, scores, **style)
    nll, bleu = "validation NLL, nats a piece", "validation sacreBLEU (13a), greedy"
    labels = [("update", nll), ("update", bleu), ("minutes of training", bleu)]
    for axis, (x, y) in zip(axes, labels, strict=True):
        axis.set(xlabel=x, ylabel=y)
        axis.legend()
    figure.suptitle(f"The same training by mt and {JOEYNMT}; seeds {', '.join(seeds)}")
    save_figure(figure, path)
