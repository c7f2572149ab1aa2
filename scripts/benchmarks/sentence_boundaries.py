"""Sentence boundaries: our rules against sentencex and pysbd, on paragraphs marked by hand.

python scripts/benchmarks/sentence_boundaries.py --output results/sentence-boundaries.json

The paragraphs are in tests/fixtures/sentence_boundaries.tsv, whose first line explains their signs.
The end of a paragraph is no boundary to find. A splitter that is not installed is left out
(``pip install sentencex pysbd``). Speed counts characters for each second of CPU time, without the
start; the start is the CPU time of a new Python that imports the splitter and splits once. How much
the F1 of our rules is higher has a 95% interval from a bootstrap over the paragraphs.
"""

import argparse
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarking import check_at_least_one, check_names, new_parser, say, versions
from reporting import group_by, new_report, table, write_report

from mt.inference.sentence_splitter import sentences

GOLD = Path(__file__).parents[2] / "tests" / "fixtures" / "sentence_boundaries.tsv"
BOUNDARY, EITHER = "¦‖"
MARK = re.compile(r"[.!?…]+[\"'”’)\]]*")  # what often ends a sentence
FIRST = re.compile(r"\s+[\"'“‘(]*[A-Z0-9]")  # how most sentences begin
SAMPLES = 1000
CONTEXT = 30  # characters that are printed on each side of an error
BARE_START = "import time; print(time.process_time())"

Split = Callable[[str], Sequence[str]]


class Paragraph(NamedTuple):
    """Places are counted in characters that are not blank, so that blanks belong to no sentence."""

    domain: str
    text: str
    boundaries: frozenset[int]
    either: frozenset[int]  # where an end and none are both right


def read_gold(path: Path = GOLD) -> list[Paragraph]:
    paragraphs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            domain, marked = line.split("\t")
            text = re.sub(f"[{BOUNDARY}{EITHER}]", "", marked)
            signs = (places(marked, sign) for sign in (BOUNDARY, EITHER))
            paragraphs.append(Paragraph(domain, text, *signs))
    return paragraphs


def places(marked: str, sign: str) -> frozenset[int]:
    other = BOUNDARY if sign == EITHER else EITHER
    return ends(marked.replace(other, "").split(sign))


def ends(parts: Sequence[str]) -> frozenset[int]:
    """Where each part but the last ends."""
    lengths = [len("".join(part.split())) for part in parts]
    return frozenset(sum(lengths[:n]) for n in range(1, len(lengths)))


def lookalikes(paragraphs: Iterable[Paragraph]) -> dict[str, int]:
    """Places that look like the end of a sentence and are none: all, and those before a capital
    letter or digit."""
    counts = {"all": 0, "before a capital or digit": 0}
    for paragraph in paragraphs:
        for mark in MARK.finditer(paragraph.text):
            after = paragraph.text[mark.end() :]
            place = len("".join(paragraph.text[: mark.end()].split()))
            if after and place not in paragraph.boundaries | paragraph.either:
                counts["all"] += 1
                counts["before a capital or digit"] += bool(FIRST.match(after))
    return counts


def compare(split: Split, paragraphs: Iterable[Paragraph]) -> dict[str, float]:
    """Precision, recall and F1 in percent, with the numbers that they come from."""
    hits = wrong = missed = 0
    for paragraph in paragraphs:
        predicted = ends(split(paragraph.text))
        hits += len(predicted & paragraph.boundaries)
        wrong += len(predicted - paragraph.boundaries - paragraph.either)
        missed += len(paragraph.boundaries - predicted)
    return {
        "precision": _percent(hits, hits + wrong),
        "recall": _percent(hits, hits + missed),
        "f1": _percent(2 * hits, 2 * hits + wrong + missed),
        "hits": hits,
        "wrong": wrong,
        "missed": missed,
    }


def advantage(ours: Split, other: Split, paragraphs: Sequence[Paragraph]) -> list[float]:
    """The ends of the 95% interval of our F1 less that of another splitter."""

    def counts(split: Split) -> list[tuple[int, int]]:
        rows = (compare(split, [paragraph]) for paragraph in paragraphs)
        return [(2 * row["hits"], row["wrong"] + row["missed"]) for row in rows]

    def f1(rows: Sequence[tuple[int, int]]) -> float:
        hits, wrong = map(sum, zip(*rows, strict=True))
        return _percent(hits, hits + wrong)

    pairs, rng = list(zip(counts(ours), counts(other), strict=True)), random.Random(0)
    samples = []
    for _ in range(SAMPLES):
        own, others = zip(*rng.choices(pairs, k=len(pairs)), strict=True)
        samples.append(f1(own) - f1(others))
    samples.sort()
    return [round(samples[int(SAMPLES * part)], 2) for part in (0.025, 0.975)]


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def errors(split: Split, paragraphs: Iterable[Paragraph]) -> list[str]:
    """A line for each error: ``+`` a boundary that is none, ``-`` one that was missed, at a ¦."""
    lines = []
    for paragraph in paragraphs:
        offsets = [i for i, c in enumerate(paragraph.text) if not c.isspace()]
        predicted = ends(split(paragraph.text))
        wrong = predicted - paragraph.boundaries - paragraph.either
        for place in sorted(wrong | (paragraph.boundaries - predicted)):
            here = offsets[place - 1] + 1
            before = paragraph.text[max(0, here - CONTEXT) : here]
            after = paragraph.text[here : here + CONTEXT]
            lines.append(f"{'+' if place in wrong else '-'} {before}{BOUNDARY}{after}")
    return lines


# ------------------------------------------------------------------------------------ splitters


def splitters() -> dict[str, Split]:
    """Those that are installed, by name."""
    tools: dict[str, Split] = {"mt": sentences}
    with suppress(ImportError):
        import sentencex

        tools["sentencex"] = lambda text: sentencex.segment("en", text)
    with suppress(ImportError):
        import pysbd

        tools["pysbd"] = pysbd.Segmenter(language="en", clean=False).segment
    return tools


START = {
    "mt": "from mt.inference.sentence_splitter import sentences; sentences('A. B.')",
    "sentencex": "import sentencex; sentencex.segment('en', 'A. B.')",
    "pysbd": "import pysbd; pysbd.Segmenter(language='en', clean=False).segment('A. B.')",
}


def speed(split: Split, texts: Sequence[str], rounds: int) -> int:
    """Characters for each second of CPU time, the median of the rounds."""
    for text in texts:  # the first time compiles and caches
        split(text)
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        for text in texts:
            split(text)
        seconds.append(time.process_time() - start)
    return round(sum(map(len, texts)) / statistics.median(seconds))


def start_up(name: str, rounds: int) -> float:
    """CPU seconds that a new Python needs to import a splitter and use it once: the median."""

    def cpu_seconds(code: str) -> float:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout)

    return round(
        statistics.median(cpu_seconds(f"{START[name]}; {BARE_START}") for _ in range(rounds))
        - statistics.median(cpu_seconds(BARE_START) for _ in range(rounds)),
        4,
    )


def measure(
    split: Split, name: str, paragraphs: Sequence[Paragraph], rounds: int
) -> dict[str, Any]:
    by_domain = group_by([paragraph._asdict() for paragraph in paragraphs], "domain")
    return {
        **compare(split, paragraphs),
        "characters_per_cpu_second": speed(split, [p.text for p in paragraphs], rounds),
        "start_up_cpu_seconds": start_up(name, rounds),
        "f1_by_domain": {
            domain: compare(split, [Paragraph(**row) for row in rows])["f1"]
            for domain, rows in by_domain.items()
        },
    }


# ------------------------------------------------------------------------------------- the script


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each timing (default 5)")
    parser.add_argument("--errors", metavar="NAME", help="only print the errors of a splitter")
    parser.add_argument("--output", type=Path, help="a JSON file")
    args = parser.parse_args(argv)
    check_at_least_one(parser, args, "rounds")
    if args.errors:
        check_names(parser, "--errors", [args.errors], splitters())
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    paragraphs, tools = read_gold(), splitters()
    if args.errors:
        print(*errors(tools[args.errors], paragraphs), sep="\n")
        return 0
    results = {name: measure(split, name, paragraphs, args.rounds) for name, split in tools.items()}
    for name in tools.keys() - {"mt"}:
        results[name]["advantage_of_mt"] = advantage(sentences, tools[name], paragraphs)
    for name in START.keys() - tools.keys():
        say(f"{name} is not installed: left out")
    counts = {
        "paragraphs": len(paragraphs),
        "boundaries": sum(len(paragraph.boundaries) for paragraph in paragraphs),
        "either_is_right": sum(len(paragraph.either) for paragraph in paragraphs),
        "lookalikes": lookalikes(paragraphs),
        "characters": sum(len(paragraph.text) for paragraph in paragraphs),
    }
    report = new_report(versions=versions(["sentencex", "pysbd"]), **counts, results=results)
    write_report(args.output, report)
    print(summary(results))
    return 0


def summary(results: Mapping[str, Mapping[str, Any]]) -> str:
    header = (
        "",
        "precision",
        "recall",
        "F1",
        "mt higher by",
        "characters a CPU second",
        "start, ms",
    )
    rows = [
        (
            name,
            *(f"{row[key]:.2f}" for key in ("precision", "recall", "f1")),
            " to ".join(f"{end:.2f}" for end in row.get("advantage_of_mt", [])),
            f"{row['characters_per_cpu_second']:,}",
            f"{1000 * row['start_up_cpu_seconds']:.1f}",
        )
        for name, row in results.items()
    ]
    return table(header, rows)


if __name__ == "__main__":
    sys.exit(main())
