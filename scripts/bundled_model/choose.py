"""Score models on the validation sets of the bundled one, to choose among them.

python scripts/bundled_model/choose.py MODEL [MODEL ...] --data DATA --mixture data --output F.json

DATA has tatoeba/val.en.gz and tatoeba/val.de.gz, the other sets are those that mix.py has written
to the folder of the mixture. No test set is read. Of the situations, which are many, it takes a
random part, the same for each model.
"""

import argparse
import random
import sys
from pathlib import Path

from tabulate import tabulate

from mt.utils import console

with console.exit_at_interrupt():
    from mt.data.readers import FileReader
    from mt.evaluation import metrics, report
    from mt.inference.options import SearchOptions
    from mt.inference.translator import Translator

PARTS = ("themes", "vocabulary", "situations", "expressions", "grammar", "software")
MOST_PAIRS = 1500  # of a set of the mixture
SHORT = "short texts"  # of the situations, without a final mark: letters' formulas, signs, words

Pairs = list[tuple[str, str]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="as --model of mt.translate")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--mixture", type=Path, required=True, help="folder that mix.py has written"
    )
    parser.add_argument("--alpha", type=float, default=1.2, help="length penalty (default 1.2)")
    parser.add_argument("--output", type=Path, help="JSON file")
    args = parser.parse_args(argv)

    def run() -> None:
        sets = read_sets(args.data, args.mixture)
        rows: dict[str, dict[str, float]] = {}
        for model in args.models:
            rows[model] = score(model, sets, SearchOptions(beam_size=4, alpha=args.alpha))
            table = [[name, *(row[name] for row in rows.values())] for name in rows[model]]
            print(tabulate(table, headers=["", *rows], floatfmt=".2f"), flush=True)
        if args.output:
            report.write_json(args.output, rows)

    return console.exit_status("choose", run)


def read_sets(data: Path, mixture: Path) -> dict[str, Pairs]:
    """The pairs of each set by its name."""
    sets = {"tatoeba/val": list(FileReader(test=str(data / "tatoeba/val")).pairs("test"))}
    for part in PARTS:
        pairs = list(FileReader(test=str(mixture / f"validation.{part}.tsv")).pairs("test"))
        sets[part] = random.Random(1).sample(pairs, min(MOST_PAIRS, len(pairs)))
        if part == "situations":
            sets[SHORT] = [(en, de) for en, de in pairs if en[-1].isalnum() or en[-1] in ",:"]
    return sets


def score(model: str, sets: dict[str, Pairs], options: SearchOptions) -> dict[str, float]:
    """sacreBLEU on each set; of short texts the percentage that come exactly as written."""
    translator = Translator.load(model)
    scores = {}
    for name, pairs in sets.items():
        sources, references = (list(side) for side in zip(*pairs, strict=True))
        texts = [result.text for result in translator.translate(sources, options)]
        if name == SHORT:
            equal = sum(map(str.__eq__, texts, references))
            scores[f"{SHORT} exactly as written, percent"] = round(100 * equal / len(texts), 1)
        else:
            scores[name] = round(metrics.bleu(texts, references).value, 2)
    return scores


if __name__ == "__main__":
    sys.exit(main())
