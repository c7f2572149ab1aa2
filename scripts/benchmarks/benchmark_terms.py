"""Terms that must come: whether they do, what they cost in time, and what they do to BLEU.

python scripts/benchmarks/benchmark_terms.py tatoeba/test --output results/terms.json

From each reference a word of at least four letters is drawn, which its translation must have: as it
is, with the endings that a glossary allows, and two words at once. The search without terms runs
beside them, in turn, and so does the same search with a beam twice as wide.
"""

import argparse
import random
import re
from collections.abc import Sequence
from typing import Any

import torch
from benchmarking import Meter, add_output_options, new_parser, say, versions
from reporting import group_by, new_report, ratio, table, typical, write_report

from mt.data.readers import FileReader
from mt.evaluation.metrics import bleu
from mt.inference.glossary import Glossary
from mt.inference.terms import Terms
from mt.inference.translator import Translator
from mt.utils import console

WORD = re.compile(r"(?<!\w)[^\W\d_]{4,}(?!\w)")
PLAIN, WIDE = "without terms", "without terms, beam twice as wide"


def draw(reference: str, count: int, rng: random.Random) -> list[str]:
    """Different words of a reference; fewer if it has not so many."""
    words = sorted(set(WORD.findall(reference)))
    return rng.sample(words, min(count, len(words)))


def cases(references: Sequence[str], seed: int) -> dict[str, list[Terms]]:
    """For each configuration the terms of each line."""
    glossary = Glossary([])
    rng = random.Random(seed)
    one = [draw(reference, 1, rng) for reference in references]
    two = [draw(reference, 2, rng) for reference in references]
    return {
        PLAIN: [Terms()] * len(references),
        WIDE: [Terms()] * len(references),
        "one word": [Terms(tuple((w,) for w in words)) for words in one],
        "one word, with endings": [
            Terms(tuple(glossary.forms((w,)) for w in words)) for words in one
        ],
        "two words": [Terms(tuple((w,) for w in words)) for words in two],
    }


def used(texts: Sequence[str], terms: Sequence[Terms]) -> tuple[int, int]:
    """How many terms there are in the texts, and how many there should be."""
    hits = total = 0
    for text, own in zip(texts, terms, strict=True):
        for forms in own.required:
            total += 1
            hits += any(re.search(rf"(?<!\w){re.escape(f)}(?!\w)", text) for f in forms)
    return hits, total


def measure(
    translator: Translator, sources: Sequence[str], name: str, terms: Sequence[Terms]
) -> tuple[dict[str, Any], list[str]]:
    beam_size = translator.options.beam_size * (2 if name == WIDE else 1)
    with Meter() as meter:
        results = translator.translate(sources, terms=terms, beam_size=beam_size)
    sample = {"name": name, "sentences_per_second": round(len(sources) / meter.seconds, 2)}
    return sample | meter.load(), [result.text for result in results]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("data", metavar="NAME", help="NAME.en and NAME.de, or with .gz")
    add("--model", default="everyday")
    add("--lines", type=int, default=1000, help="the first ones (default 1000)")
    add("--rounds", type=int, default=3)
    add("--seed", type=int, default=0, help="of the words that are drawn (default 0)")
    add_output_options(parser, picture=False)
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    pairs = list(FileReader(train=args.data).pairs("train"))[: args.lines]
    sources, references = map(list, zip(*pairs, strict=True))
    translator = Translator.load(args.model, "cpu")
    terms = cases(references, args.seed)
    samples: list[dict[str, Any]] = []
    scores: dict[str, dict[str, Any]] = {}
    for number in range(1, args.rounds + 1):
        for name, own in terms.items():
            sample, texts = measure(translator, sources, name, own)
            samples.append({"round": number, **sample})
            say(f"round {number}  {name}: {sample['sentences_per_second']} sentences/s")
            score = bleu(texts, references)
            hits, total = used(texts, own)
            scores[name] = {
                "bleu": round(score.value, 2),
                "signature": score.signature,
                "terms": total,
                "used": ratio(hits, total),
            }
    results = {
        name: scores[name] | {"sentences_per_second": typical(group, "sentences_per_second")}
        for name, group in group_by(samples, "name").items()
    }
    plain = results[PLAIN]
    for result in results.values():
        speeds = (r["sentences_per_second"]["median"] for r in (plain, result))
        result["time"] = ratio(*speeds)
    report = new_report(
        threads=args.threads,
        versions=versions(["torch", "sentencepiece", "sacrebleu"]),
        data=args.data,
        lines=len(sources),
        results=results,
    )
    write_report(args.output, report)
    header = ["", "terms", "used", "BLEU", "time"]
    rows = [[n, r["terms"], r["used"], r["bleu"], r["time"]] for n, r in results.items()]
    print(table(header, rows))


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    return console.exit_status("benchmark_terms", lambda: run(args))


if __name__ == "__main__":
    raise SystemExit(main())
