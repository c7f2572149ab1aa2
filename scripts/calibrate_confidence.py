"""Fit the confidence of a model's translations on validation data, and measure it.

python scripts/calibrate_confidence.py everyday --data tatoeba/val --save

The model translates the data with its own search. ``mt.inference.confidence`` is fitted to the
chrF of the sentences of one half, and measured on the other half and on each --test: its
correlations with sentence chrF; the area under the ROC curve with which it finds the worst tenth
(0.5 is chance); how well single values do that; and the sentences in ten groups by their
confidence. A line that the model must translate in parts is left out. With --save the model
folder's config.json gets the fit.
"""

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mt.utils import console

sys.path.append(str(Path(__file__).resolve().parent / "benchmarks"))  # for reporting.py

with console.exit_at_interrupt():
    import numpy as np
    import torch
    from reporting import new_report, table, write_report

    from mt.data import phrasebook
    from mt.data.readers import CorpusReader, FileReader, PhrasebookReader
    from mt.evaluation import metrics, report
    from mt.inference.confidence import Calibration, confidence, features
    from mt.inference.translator import Translator
    from mt.model.model_path import resolve_model_path
    from mt.utils.checks import check_int
    from mt.utils.json_io import read_json
    from mt.utils.line_io import check_folder

LEAST_PAIRS = 40  # sentences, of which half are for the fit
WORST = 0.1  # the share of the sentences that a user should check
GROUPS = 10
RIDGE = 1e-3  # keeps the weights finite whatever the data
STEPS = 50  # of Newton's method, which needs about ten

Report = dict[str, Any]
Row = TypeVar("Row")
Sentence = tuple[Sequence[float], int, float]  # log P of each token, source pieces, chrF


class Ranking(NamedTuple):
    pearson: float
    spearman: float
    auc: float
    standard_error: float  # of the area (Hanley and McNeil 1982)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", help="what mt.translate takes as --model")
    help = "phrasebook, a prefix, a .tsv or .jsonl file, or a source and a target file"
    add("--data", nargs="+", required=True, metavar="NAME", help=help)
    help = "more data to measure on, named as --data; may come several times"
    add("--test", nargs="+", action="append", default=[], metavar="NAME", help=help)
    add("--lines", type=int, default=4000, help="most pairs of each, drawn at random")
    add("--threads", type=int, default=1)
    add("--output", type=Path, help="JSON file for the figures")
    add("--save", action="store_true", help="store the fit in the model folder")
    args = parser.parse_args(argv)
    return console.exit_status("calibrate_confidence", lambda: calibrate(args))


def calibrate(args: argparse.Namespace) -> None:
    """Fit, measure, and save if told to. ValueError or OSError for a user's mistakes."""
    check_int("lines", args.lines, LEAST_PAIRS)
    check_int("threads", args.threads)
    if args.output:
        check_folder(args.output)
    folder = resolve_model_path(args.model)
    if args.save and not folder.is_dir():
        raise ValueError(f"{folder}: --save needs a model folder")
    torch.set_num_threads(args.threads)
    translator = Translator.load(folder, "cpu")
    sets = [(args.data, ", held-out half"), *((names, "") for names in args.test)]
    pairs = [read_pairs(names, translator, args.lines) for names, _ in sets]  # all, before the work
    first, *others = (
        enough(names, score_sentences(translator, own))
        for (names, _), own in zip(sets, pairs, strict=True)
    )
    half = len(first) // 2
    calibration = fit(first[:half])
    tests = {
        "/".join(Path(names[0]).parts[-2:]) + part: measure(calibration, sentences)
        for (names, part), sentences in zip(sets, [first[half:], *others], strict=True)
    }
    values = asdict(calibration)
    print(f"fitted on {half:,} sentences: {values}\n\n{tables(tests)}")
    facts = {"model": Path(args.model).name, "fitted_on": half, "confidence": values}
    write_report(args.output, new_report(**facts, tests=tests))
    if args.save:
        file = folder / "config.json"
        report.write_json(file, read_json(file) | {"confidence": values})


def read_pairs(names: Sequence[str], translator: Translator, most: int) -> list[tuple[str, str]]:
    """Up to ``most`` pairs, in the same random order each time."""
    src, tgt = translator.configs[0].get("languages") or ["en", "de"]
    reader: CorpusReader
    if list(names) == ["phrasebook"]:
        reader = PhrasebookReader(src, tgt, phrasebook.PARTS)
    else:
        split = names[0] if len(names) == 1 else list(names)
        reader = FileReader(validation=split, src=src, tgt=tgt)
    pairs = [pair for pair in reader.pairs("validation") if all(map(str.strip, pair))]
    random.Random(0).shuffle(pairs)
    return enough(names, pairs)[:most]


def enough(names: Sequence[str], rows: list[Row]) -> list[Row]:
    """The rows. ValueError where they are too few, also of those that the model takes whole."""
    if len(rows) < LEAST_PAIRS:
        raise ValueError(f"{' '.join(names)}: {len(rows)} pairs, needs at least {LEAST_PAIRS}")
    return rows


def score_sentences(translator: Translator, pairs: Iterable[tuple[str, str]]) -> list[Sentence]:
    """Translate the sources."""
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    translations = translator.translate(sources)
    scores, _ = metrics.sentence_scores([result.text for result in translations], references)
    return [
        (result.parts[0].log_probs, len(result.parts[0].source), chrf)
        for result, chrf in zip(translations, scores["chrf"], strict=True)
        if len(result.parts) == 1
    ]


def fit(sentences: Sequence[Sentence]) -> Calibration:
    """Logistic regression of chrF / 100 on the features, by Newton's method."""
    x = np.array([(1, *features(log_probs, length)) for log_probs, length, _ in sentences])
    y = np.array([chrf for *_, chrf in sentences]) / 100
    weights = np.zeros(x.shape[1])
    for _ in range(STEPS):
        expected = 0.5 + 0.5 * np.tanh(x @ weights / 2)
        curvature = (x.T * (expected * (1 - expected))) @ x + RIDGE * np.eye(len(weights))
        weights += np.linalg.solve(curvature, x.T @ (y - expected) - RIDGE * weights)
    calibration = Calibration(*weights.round(4).tolist(), check_below=0)
    values = [confidence(calibration, log_probs, length) for log_probs, length, _ in sentences]
    check_below = round(float(np.quantile(values, WORST)), 4)
    return Calibration(*weights.round(4).tolist(), check_below=check_below)


# ------------------------------------------------------------------------------------ measuring

# Other ways to rank the sentences, each by the log P of the tokens and the source's length.
RANKINGS: dict[str, Callable[[Sequence[float], int], float]] = {
    "mean probability of the pieces": lambda log_probs, n: features(log_probs, n).probability,
    "mean probability with eos": lambda log_probs, n: float(np.mean(np.exp(log_probs))),
    "exp of mean log P": lambda log_probs, n: math.exp(sum(log_probs) / len(log_probs)),
    "least log P": lambda log_probs, n: min(log_probs),
    "tokens with P below 0.5": lambda log_probs, n: -float(np.mean(np.exp(log_probs) < 0.5)),
    "length ratio": lambda log_probs, n: -features(log_probs, n).length_ratio,
    "length of the source": lambda log_probs, n: -n,
}


def measure(calibration: Calibration, sentences: Sequence[Sentence]) -> Report:
    chrf = np.array([chrf for *_, chrf in sentences])
    worst = np.zeros(len(chrf), dtype=bool)
    worst[np.argsort(chrf, kind="stable")[: max(1, round(WORST * len(chrf)))]] = True

    def values(of: Callable[[Sequence[float], int], float]) -> Any:
        return np.array([of(log_probs, length) for log_probs, length, _ in sentences])

    expected = values(lambda log_probs, length: confidence(calibration, log_probs, length))
    below = expected < calibration.check_below
    hits = int((below & worst).sum())
    order = np.array_split(np.argsort(expected, kind="stable"), GROUPS)
    return {
        "sentences": len(sentences),
        "mean_chrf": round(float(chrf.mean()), 2),
        "worst_tenth_below_chrf": round(float(chrf[worst].max()), 2),
        **ranking(expected, chrf, worst)._asdict(),
        "check_below": {
            "sentences": int(below.sum()),
            "of_the_worst_tenth": round(hits / int(worst.sum()), 3),
            "in_the_worst_tenth": round(hits / max(1, int(below.sum())), 3),
        },
        "alone": {
            name: ranking(values(of), chrf, worst)._asdict() for name, of in RANKINGS.items()
        },
        "groups": [
            {
                "sentences": len(group),
                "confidence": round(float(expected[group].mean()), 3),
                "chrf": round(float(chrf[group].mean()) / 100, 3),
                "in_the_worst_tenth": round(float(worst[group].mean()), 3),
            }
            for group in order
        ],
    }


def ranking(values: Any, chrf: Any, worst: Any) -> Ranking:
    """Correlations with chrF, and the area under the ROC curve for the worst, whose values should
    be low."""
    own = ranks(values)
    bad, good = int(worst.sum()), int((~worst).sum())
    area = float(own[~worst].sum() - good * (good + 1) / 2) / (good * bad)
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    products = area * (1 - area), (bad - 1) * (q1 - area**2), (good - 1) * (q2 - area**2)
    error = math.sqrt(max(0.0, sum(products)) / (good * bad))
    both = correlation(values, chrf), correlation(own, ranks(chrf)), area, error
    return Ranking(*(round(value, 3) for value in both))


def correlation(x: Any, y: Any) -> float:
    """Pearson's; 0 where one side is constant."""
    return float(np.corrcoef(x, y)[0, 1]) if x.std() and y.std() else 0.0


def ranks(values: Any) -> Any:
    """From 1 on; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[inverse]


def tables(tests: dict[str, Report]) -> str:
    """Correlations and area for each data set, the areas of other rankings, the groups."""
    facts = ("sentences", "mean_chrf", *Ranking._fields)
    rows = [[name, *(test[key] for key in facts)] for name, test in tests.items()]
    areas = [[name, *(test["alone"][name]["auc"] for test in tests.values())] for name in RANKINGS]
    parts = [table(["", *facts], rows), table(["AUC of one value alone", *tests], areas)]
    for name, test in tests.items():
        groups = [[i, *group.values()] for i, group in enumerate(test["groups"], 1)]
        parts.append(table([name, *test["groups"][0]], groups))
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
