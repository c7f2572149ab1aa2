"""Alignment error rates: how well a model's cross-attention shows which words belong together.

python scripts/benchmarks/benchmark_alignment.py everyday --output results/alignment.json

The model reads the pairs of tests/inference/alignments.tsv, which were aligned by hand, and their
attention is read in several ways: the plain mean of all heads, each layer plainly and by Shift-Att
(Chen et al. 2020), and the heads that ``mt.inference.alignment`` chooses without labels.
With --eflomal (Östling and Tiedemann 2016; ``pip install eflomal``, here 2.0.0) that program aligns
the same pairs, learning from the phrasebook too. With --text its alignments of a corpus are gold.
"""

import argparse
import gzip
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmarking import add_output_options, new_parser, say, versions
from reporting import new_report, table, write_report
from torch import Tensor

from mt.data import phrasebook
from mt.data.batch_sampler import pad
from mt.data.special_ids import EOS
from mt.inference.alignment import TOKEN, Aligner, align, soft_alignment, word_weights, words
from mt.inference.translator import Translator
from mt.utils import console

GOLD = Path(__file__).parents[2] / "tests" / "inference" / "alignments.tsv"
BATCH = 25

Links = set[tuple[int, int]]


class Pair(NamedTuple):
    """A pair with its true links, from source to target word; the sure ones are possible too."""

    source: str
    target: str
    sure: Links
    possible: Links


class Attended(NamedTuple):
    attention: Tensor  # [N, h, T, S]
    source: list[str]  # pieces
    target: list[str]


def read_gold(path: Path = GOLD) -> list[Pair]:
    pairs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            source, target, links = line.split("\t")
            points = [
                (int(s), int(t), kind) for s, kind, t in re.findall(r"(\d+)([-p])(\d+)", links)
            ]
            sure = {(s, t) for s, t, kind in points if kind == "-"}
            pairs.append(Pair(source, target, sure, {(s, t) for s, t, _ in points}))
    return pairs


def rates(gold: Sequence[Pair], links: Sequence[Links]) -> dict[str, float]:
    """Alignment error rate, precision and recall (Och and Ney 2003)."""
    predicted = sum(map(len, links))
    sure = sum(len(pair.sure) for pair in gold)
    sure_hits = sum(len(own & pair.sure) for own, pair in zip(links, gold, strict=True))
    hits = sum(len(own & pair.possible) for own, pair in zip(links, gold, strict=True))
    values = {
        "aer": 1 - (sure_hits + hits) / (predicted + sure),
        "precision": hits / max(1, predicted),
        "recall": sure_hits / sure,
    }
    return {name: round(value, 4) for name, value in values.items()}


@torch.inference_mode()
def attend(translator: Translator, gold: Sequence[Pair]) -> list[Attended]:
    """The cross-attention of each pair."""
    model, tokenizer = translator.models[0], translator.tokenizer
    attended = []
    for start in range(0, len(gold), BATCH):
        pairs = gold[start : start + BATCH]
        sources = tokenizer.encode([pair.source for pair in pairs])
        targets = tokenizer.encode_target([pair.target for pair in pairs])
        src = pad([[*ids, EOS] for ids in sources]).to(model.device)
        weights = model.cross_attention_weights(src, targets)
        pieces = ([tokenizer.pieces(ids) for ids in side] for side in (sources, targets))
        attended += map(Attended, weights, *pieces)
    return attended


def linked(pairs: Iterable[Attended], aligner: Aligner) -> list[Links]:
    """The links that ``mt`` makes."""
    alignments = (align(soft_alignment(x.attention, aligner), x.source, x.target) for x in pairs)
    return [{(s, t) for s, t, _ in alignment.links} for alignment in alignments]


def likeliest(pairs: Iterable[Attended], aligner: Aligner) -> list[Links]:
    """One link for each target word, to its likeliest source word."""
    weights = [
        word_weights(soft_alignment(x.attention, aligner), words(x.source), words(x.target))
        for x in pairs
    ]
    return [{(int(row.argmax()), t) for t, row in enumerate(own)} for own in weights]


def readings(translator: Translator) -> dict[str, Aligner]:
    model = translator.models[0]
    layers = [[(n, i) for i in range(model.h)] for n in range(len(model.decoder))]
    every = [head for heads in layers for head in heads]
    named = {"mean of all heads": Aligner(every, shifted=False)}
    for n, heads in enumerate(layers, 1):
        named[f"layer {n}"] = Aligner(heads, shifted=False)
        named[f"layer {n}, Shift-Att"] = Aligner(heads, shifted=True)
    return named | {"chosen heads": translator.aligner}


def measure(translator: Translator, gold: Sequence[Pair]) -> dict[str, dict[str, float]]:
    attended = attend(translator, gold)
    rows = {}
    for name, aligner in readings(translator).items():
        one_each = rates(gold, likeliest(attended, aligner))["aer"]
        rows[name] = rates(gold, linked(attended, aligner)) | {"aer_of_likeliest": one_each}
    return rows


def eflomal(program: str, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
    """The links that eflomal finds from source to target, and from target to source."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}" for name in ("source", "target", "forward", "reverse")]
        for path, side in zip(paths, zip(*pairs, strict=True), strict=False):
            lines = [" ".join(TOKEN.findall(text.lower())) for text in side]
            Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = [
            option for pair in zip(("-s", "-t", "-f", "-r"), paths, strict=True) for option in pair
        ]
        subprocess.run([program, *options], check=True, stdout=sys.stderr)
        return tuple(_read_links(path) for path in paths[2:])


def _read_links(path: str) -> list[Links]:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [{tuple(map(int, link.split("-"))) for link in line.split()} for line in lines]


def with_eflomal(program: str, gold: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """Its rates where it learns from the phrasebook's training split and the pairs themselves."""
    others = phrasebook.load("train", phrasebook.PARTS)
    pairs = [(pair.source, pair.target) for pair in gold] + others
    forward, reverse = (links[: len(gold)] for links in eflomal(program, pairs))
    both = list(zip(forward, reverse, strict=True))
    return {
        "eflomal, source to target": rates(gold, forward),
        "eflomal, target to source": rates(gold, reverse),
        "eflomal, both agree": rates(gold, [one & other for one, other in both]),
        "eflomal, either": rates(gold, [one | other for one, other in both]),
    }


def silver(program: str, text: str, lines: int) -> list[Pair]:
    """The first pairs of a corpus; sure is what eflomal links in both directions."""
    sides = []
    for language in ("en", "de"):
        with gzip.open(f"{text}.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append([line.strip() for line in file])
    pairs = list(zip(*sides, strict=True))
    alignments = list(zip(*eflomal(program, pairs), strict=True))
    return [
        Pair(*pair, one & other, one | other)
        for pair, (one, other) in zip(pairs, alignments, strict=True)
    ][:lines]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="[NAME=]MODEL", help="as for mt.translate, and how to name it")
    add("--eflomal", metavar="PROGRAM", help="path of eflomal-align")
    add("--text", metavar="NAME", help="NAME.en.gz and NAME.de.gz, which eflomal aligns")
    add("--lines", type=int, default=1000, help="of --text (default 1000)")
    add_output_options(parser, picture=False)
    args = parser.parse_args(argv)
    if args.text and not args.eflomal:
        parser.error("--text needs --eflomal")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    return console.exit_status("benchmark_alignment", lambda: run(args))


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    corpora = {"by hand": read_gold()}
    results: dict[str, Any] = {}
    if args.eflomal:
        say("eflomal learns from the phrasebook")
        results["eflomal"] = {"by hand": with_eflomal(args.eflomal, corpora["by hand"])}
    if args.text:
        say(f"eflomal aligns {args.text}")
        corpora[Path(args.text).name] = silver(args.eflomal, args.text, args.lines)
    for model in args.models:
        name, _, path = model.rpartition("=")
        translator = Translator.load(path, "cpu")
        say(f"{model}: {translator.aligner}")
        results[name or path] = {
            "aligner": {
                "heads": [[layer + 1, head + 1] for layer, head in translator.aligner.heads],
                "shifted": translator.aligner.shifted,
            },
            **{corpus: measure(translator, gold) for corpus, gold in corpora.items()},
        }
    report = new_report(
        threads=args.threads,
        versions=versions(["torch", "sentencepiece"]),
        pairs={name: len(gold) for name, gold in corpora.items()},
        results=results,
    )
    write_report(args.output, report)
    print(table(["", *corpora], rows(results, corpora)))


def rows(results: dict[str, Any], corpora: Iterable[str]) -> list[list[str]]:
    """The error rates in percent: a row for each way to align, a column for each corpus."""
    lines = []
    for model, values in results.items():
        for way in values["by hand"]:
            cells = [values.get(corpus, {}).get(way) for corpus in corpora]
            lines.append(
                [f"{model}: {way}", *(f"{100 * x['aer']:.1f}" if x else "" for x in cells)]
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
