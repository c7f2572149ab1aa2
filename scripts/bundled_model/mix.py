"""Weigh cleaned text and the phrasebook into one training file.

python scripts/bundled_model/mix.py cleaned --output data --held-out tatoeba/val news/newstest2013

CLEANED is what clean.py wrote, a folder or several. OUTPUT gets train.tsv, where a pair that weighs
3 stands three times; the phrasebook's validation and test splits, validation.PART.tsv and
test.PART.tsv; the same of software's texts, validation.software.tsv and test.software.tsv; and
report.json with the pairs, lines and words of each part. No line of train.tsv shares a side with
what is held out, compared in small letters and without punctuation: these splits and the files of
--held-out, which are prefixes of .en and .de, .tsv, or .txt with English lines.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mt.utils import console

with console.exit_at_interrupt():
    from clean import DOMAINS
    from rules import key

    from mt.data import phrasebook
    from mt.data.phrasebook import signs, variants
    from mt.data.readers import FileReader, Pair
    from mt.utils.atomic import atomic_folder
    from mt.utils.line_io import read_lines

# How often a pair stands in the training file.
WEIGHTS = {
    # Sentences as people type them: most of what the model is for, and a third of its words.
    "tatoeba": 3.0,
    "ding-sentences": 4.0,
    # Words that no sentence has.
    "ding-phrases": 1.0,
    # Written by hand for this project: the only text about news, offices and trade, and little.
    "themes": 4.0,
    "vocabulary": 3.0,
    "situations": 4.0,
    # Many sentences of few patterns; more of them teach nothing new.
    "grammar": 0.6,
    # Each has other names, numbers or codes, which must not be learnt by heart.
    "entities": 1.0,
    # Many phrases, each in sixteen clauses of few kinds.
    "expressions": 1.5,
    "renamed": 1.0,
    "joined": 1.0,
    "signs": 1.0,
}
# The same for whole sentences of software's texts: prose counts, what is about commands less.
SENTENCE_WEIGHTS = {
    "wesnoth": 1.0,
    "miscdocs": 1.5,
    "libreoffice": 1.0,
    "ddtp": 0.9,
    "debian-mo": 0.9,
    "langpacks": 0.7,
    "manpages": 0.6,
}
LONG_SENTENCE = 8  # words; a shorter one weighs half
TITLE_WEIGHT, MENU_WEIGHT = 0.15, 0.1  # of text without a final mark, from MENU words and below
MENU = 5  # words
RENAMED = JOINED = SIGNS = 30_000  # pairs made of Tatoeba's, Ding's and the hand-written ones
SOFTWARE = 1000  # pairs of software's texts in validation, and in test
SHORTEST = 3  # words of such a pair: held-out menu entries would be missed by everybody


class HeldOut:
    """Sentences that no training pair may have on either side."""

    def __init__(self) -> None:
        self.english: set[str] = set()
        self.german: set[str] = set()

    def add(self, pairs: Iterable[Pair]) -> None:
        for english, german in pairs:
            self.english.add(key(english))
            self.german.add(key(german))
        self.english.discard("")
        self.german.discard("")

    def __contains__(self, pair: object) -> bool:
        english, german = pair  # type: ignore[misc]
        return key(english) in self.english or key(german) in self.german


def read_held_out(path: str) -> list[Pair]:
    if path.endswith(".txt"):
        return [(line, "") for line in read_lines(path)]
    return list(FileReader(test=path).pairs("test"))


def weight(part: str, pair: Pair) -> float:
    """How often a pair of a part is to stand in the training file, in the mean."""
    if part in WEIGHTS:
        return WEIGHTS[part]
    words = len(pair[0].split())
    if pair[0].rstrip("\"')")[-1:] in (".", "!", "?"):
        return SENTENCE_WEIGHTS[part] / (1 if words >= LONG_SENTENCE else 2)
    return TITLE_WEIGHT if words >= MENU else MENU_WEIGHT


def hold_out_software(tables: Mapping[str, list[Pair]], split: str, seed: int) -> list[Pair]:
    """Pairs of software's texts for a split, each text as often as it weighs.

    A hash of the English side chooses the split, so that other cleaning leaves it as it is.
    """
    rng = random.Random(seed)
    drawn = [
        pair
        for name, pairs in tables.items()
        if DOMAINS[name].software
        for pair in pairs
        if len(pair[0].split()) >= SHORTEST and phrasebook.choose([pair]) == split
        if rng.random() < weight(name, pair)
    ]
    return rng.sample(drawn, min(SOFTWARE, len(drawn)))


def mix(
    tables: Mapping[str, list[Pair]], held_out: HeldOut, seed: int, factors: Mapping[str, float]
) -> tuple[list[Pair], dict[str, Any]]:
    """The lines of the training file, in random order, and the report on each part.

    ``factors`` multiply the weights of the parts that they name.
    """
    rng = random.Random(seed)
    lines: list[Pair] = []
    report: dict[str, Any] = {}

    def add(part: str, pairs: list[Pair]) -> list[Pair]:
        kept = [pair for pair in pairs if pair not in held_out]
        start = len(lines)
        for pair in kept:
            times = weight(part, pair) * factors.get(part, 1)
            lines.extend([pair] * (int(times) + (rng.random() < times % 1)))
        report[part] = {
            "pairs": len(kept),
            "held out": len(pairs) - len(kept),
            "lines": len(lines) - start,
            "words, both sides": count_words(lines[start:]),
        }
        return kept

    everyday: list[Pair] = []
    for name, pairs in tables.items():
        kept = add(name, pairs)
        everyday += kept if DOMAINS[name].everyday else []
    for part in phrasebook.PARTS:
        pairs = add(part, phrasebook.load("train", parts=(part,)))
        everyday += pairs if part in ("themes", "vocabulary", "situations") else []
    add("renamed", variants.rename(everyday, RENAMED, seed))
    add("joined", variants.join(everyday, JOINED, seed))
    add("signs", signs.sign(everyday, SIGNS, seed))
    if unknown := factors.keys() - report.keys():
        raise ValueError(f"--factor: no part {min(unknown)}; there are {', '.join(report)}")
    rng.shuffle(lines)
    report["total"] = {"lines": len(lines), "words, both sides": count_words(lines)}
    return lines, report


def read_tables(folders: Iterable[Path]) -> dict[str, list[Pair]]:
    """The pairs of each domain in the folders of clean.py. ValueError for one that is in two."""
    files: dict[str, Path] = {}
    for folder in folders:
        names = [name for name in DOMAINS if (folder / f"{name}.tsv").is_file()]
        if not names:
            raise FileNotFoundError(f"{folder}: no .tsv files of clean.py")
        for name in names:
            if name in files:
                raise ValueError(f"{name}.tsv is in {files[name].parent} and in {folder}")
            files[name] = folder / f"{name}.tsv"
    return {name: list(FileReader(train=str(path)).pairs("train")) for name, path in files.items()}


def factor(text: str) -> tuple[str, float]:
    """``grammar=3`` as ("grammar", 3.0). Raises ValueError for another form."""
    part, number = text.split("=")
    if not 0 <= float(number) < 1000:
        raise ValueError(number)
    return part, float(number)


def count_words(pairs: Iterable[Pair]) -> int:
    return sum(len(english.split()) + len(german.split()) for english, german in pairs)


def write_tsv(path: Path, pairs: Iterable[Pair]) -> None:
    path.write_text("\n".join(["en\tde", *map("\t".join, pairs)]) + "\n", "utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("cleaned", type=Path, nargs="+", help="the folders that clean.py wrote")
    add("--output", type=Path, required=True, help="the folder to write")
    add("--held-out", nargs="+", default=[], metavar="FILE", help="prefixes, .tsv or .txt files")
    add("--seed", type=int, default=1, help="of the order and of what is drawn")
    add(
        *("--factor", "-f"), type=factor, action="append", default=[], metavar="PART=NUMBER",
        help="multiplies the weights of a part; may be repeated",
    )  # fmt: skip
    args = parser.parse_args(argv)

    def run() -> None:
        if args.output.exists():
            raise FileExistsError(f"{args.output} exists: name another --output")
        tables = read_tables(args.cleaned)
        held_out = HeldOut()
        for path in args.held_out:
            held_out.add(read_held_out(path))
        with atomic_folder(args.output) as folder:
            for split in ("validation", "test"):
                splits = {part: phrasebook.load(split, parts=(part,)) for part in phrasebook.PARTS}
                splits["software"] = hold_out_software(tables, split, args.seed)
                for part, pairs in splits.items():
                    held_out.add(pairs)
                    write_tsv(folder / f"{split}.{part}.tsv", pairs)
            lines, report = mix(tables, held_out, args.seed, dict(args.factor))
            write_tsv(folder / "train.tsv", lines)
            (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
        for part, counts in report.items():
            print(f"{part}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))

    return console.exit_status("mix", run)


if __name__ == "__main__":
    sys.exit(main())
