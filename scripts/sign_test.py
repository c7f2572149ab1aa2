"""How often does a model copy the signs of a text, such as © § ™ ½ | and marks of footnotes?

python scripts/sign_test.py MODEL... [--count 1000] [--output FILE.json]

The lines are hand-written pairs of the phrasebook's test split, to which
``mt.data.phrasebook.signs`` adds signs. Each is translated as at the prompt. A sign is right if the
translation has it; two equal ones need it twice.
"""

import argparse
import sys
from collections import Counter
from typing import Any

from tabulate import tabulate

from mt.utils import console

with console.exit_at_interrupt():
    from entity_test import test_models

    from mt.data import phrasebook
    from mt.data.phrasebook.signs import sign
    from mt.inference.terms import TermRules
    from mt.utils.checks import check_int

PARTS = ("themes", "vocabulary", "situations")
NOT_SIGNS = frozenset(" .,:;!?'\"()-–—„“”‚‘’…")  # text has them anyway, and German elsewhere
NUM_FAILURES = 20  # lines that are printed


def signs_of(text: str) -> Counter[str]:
    """How often each sign stands in a text."""
    plain = (c for c in text if not c.isalpha() and not c.isdecimal() and c not in NOT_SIGNS)
    return Counter(plain)


def check(source: str, translation: str) -> dict[str, Any]:
    """A line, its translation, and the signs that it must have and lacks."""
    wanted = signs_of(source)
    lacking = wanted - signs_of(translation)
    return {"source": source, "translation": translation,
            "signs": dict(wanted), "lacking": dict(lacking)}  # fmt: skip


def table(results: list[dict[str, Any]]) -> str:
    """How many of each sign are right, the worst ones first, and of all."""
    wanted: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    for result in results:
        wanted.update(result["signs"])
        lacking.update(result["lacking"])
    names = sorted(wanted, key=lambda c: (wanted[c] / (lacking[c] or 0.5), c))
    rows = [(name, wanted[name], wanted[name] - lacking[name]) for name in names]
    rows.append(("all", wanted.total(), wanted.total() - lacking.total()))
    shown = [(name, all_, right, f"{100 * right / all_:.1f}") for name, all_, right in rows]
    return tabulate(shown, ("sign", "signs", "right", "%"), "pipe", disable_numparse=True)


def failures(results: list[dict[str, Any]]) -> str:
    """The first lines with a sign that is lacking."""
    failed = [result for result in results if result["lacking"]][:NUM_FAILURES]
    return "\n".join(f"{result['source']}\n  {result['translation']}" for result in failed)


def test(args: argparse.Namespace) -> None:
    """Test each model. ValueError or OSError if there is no such model or the count is not > 0."""
    check_int("count", args.count)
    lines = [english for english, _ in sign(phrasebook.load("test", parts=PARTS), args.count, 0)]

    def judge(texts: list[str]) -> list[dict[str, Any]]:
        return [check(*pair) for pair in zip(lines, texts, strict=True)]

    test_models(args, lines, TermRules(keep=True), judge, table, failures)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="what mt.translate takes as --model")
    parser.add_argument("--count", type=int, default=1000, help="number of lines")
    parser.add_argument("--output", help="JSON file for lines, translations and signs")
    args = parser.parse_args(argv)
    return console.exit_status("sign_test", lambda: test(args))


if __name__ == "__main__":
    sys.exit(main())
