"""How many names, numbers, prices, dates and codes does a model copy or convert correctly?

python scripts/entity_test.py MODEL... [--count 1000] [--output FILE.json]

The sentences are the test split of ``mt.data.phrasebook.entities``, whose values are not in its
training split. Each is translated as at the prompt, with the model's own search, and `--keep` there
unless `--no-keep` is given. An entity is right
if the translation has one of its German forms, which ``mt.data.phrasebook.entity_values`` lists;
two equal entities need it twice.
"""

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from mt.utils import console

with console.exit_at_interrupt():
    from mt.data.phrasebook import entities
    from mt.data.phrasebook.entities import Entity, Example
    from mt.evaluation import report
    from mt.inference.terms import TermRules
    from mt.inference.translator import Translator
    from mt.utils.checks import check_int
    from mt.utils.line_io import check_folder

NUM_FAILURES = 20  # sentences that are printed
SIGNS = "+#@/~$<(.\\-"  # with which copied values begin; a picture may stand right after a word
DAY = "morgens|früh|vormittags|mittags|nachmittags|abends|nachts"

Result = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="what mt.translate takes as --model")
    parser.add_argument("--count", type=int, default=1000, help="number of sentences")
    parser.add_argument(
        "--split", choices=("validation", "test"), default="test",
        help="of the patterns and values; choose among models on validation",
    )  # fmt: skip
    parser.add_argument("--no-keep", action="store_true", help="the model alone")
    parser.add_argument("--output", help="JSON file for sentences, entities and translations")
    args = parser.parse_args(argv)
    return console.exit_status("entity_test", lambda: test(args))


def test(args: argparse.Namespace) -> None:
    """Test each model. ValueError or OSError if there is no such model or the count is not > 0."""
    check_int("count", args.count)
    examples = list(entities.examples(args.split, args.count))

    def judge(texts: list[str]) -> list[Result]:
        return [check(*pair) for pair in zip(examples, texts, strict=True)]

    terms = TermRules(keep=not args.no_keep)
    test_models(args, [example.english for example in examples], terms, judge, table, failures)


def test_models(
    args: argparse.Namespace,
    lines: Sequence[str],
    terms: TermRules,
    judge: Callable[[list[str]], list[Result]],
    *show: Callable[[list[Result]], str],
) -> None:
    """Translate the lines with each of ``args.models``, judge the translations, print what the
    functions ``show`` of the results, and write these into ``args.output``, if it is given."""
    if args.output:
        check_folder(Path(args.output))
    results = {}
    for model in args.models:
        translations = Translator.load(model).translate(lines, split=True, terms=terms)
        results[model] = judge([translation.text for translation in translations])
        shown = [function(results[model]) for function in show]
        print("\n\n".join([model, *shown]) + "\n", flush=True)
        if args.output:
            report.write_json(args.output, {"results": results})


def check(example: Example, translation: str) -> Result:
    """Return the sentence, its translation, and its entities with "right"."""
    wrong = missing(example.entities, translation)
    return {
        "source": example.english,
        "reference": example.german,
        "translation": translation,
        "seen": example.seen,
        "entities": [
            {
                "kind": entity.kind,
                "english": entity.english,
                "german": entity.german,
                "own": entity.own,
                "right": i not in wrong,
            }
            for i, entity in enumerate(example.entities)
        ],
    }


def missing(wanted: Sequence[Entity], translation: str) -> set[int]:
    """Return the indices of the entities that the translation lacks. It has each only once."""
    rest = normalise(translation)
    wrong = set()
    # The longest first: otherwise 12 would take its place in 12 %.
    for i in sorted(range(len(wanted)), key=lambda i: -len(wanted[i].german[0])):
        forms = sorted(map(normalise, wanted[i].german), key=len, reverse=True)
        match = next(filter(None, (re.search(pattern(form), rest) for form in forms)), None)
        if match is None:
            wrong.add(i)
        else:
            rest = f"{rest[: match.start()]}\0{rest[match.end() :]}"
    return wrong


def normalise(text: str) -> str:
    """Make all blanks and hyphens the plain ones."""
    return " ".join(text.replace("\u2011", "-").split())


def pattern(form: str) -> str:
    """Return a regular expression for a form that is not part of another value."""
    first, last = form[0], form[-1]
    if first.isalnum() or first in SIGNS:
        before = r"(?<!\w)(?<!\w[.,:/@=?&#])(?<!\d-)"
    else:
        before = rf"(?<!{re.escape(first)})"
    if first.isdigit():
        before += r"(?<![-−])(?<!minus )"
    after = r"(?!\w)(?![.,:/@=?&#\\]\w)(?!-\d)" if last.isalnum() else rf"(?!{re.escape(last)})"
    if last.isdigit() or form.endswith("Uhr"):
        after += rf"(?! (?:{DAY})\b)"
    return before + re.escape(form) + after


def table(results: Iterable[Result]) -> str:
    """Return a table of the kinds, with the totals."""
    rows = [
        (entity["kind"], entity["right"], entity["own"], result["seen"])
        for result in results
        for entity in result["entities"]
    ]
    groups = {kind: [r for k, r, *_ in rows if k == kind] for kind in sorted({r[0] for r in rows})}
    groups |= {
        "all": [right for _, right, _, _ in rows],
        "all, values that training lacks": [right for _, right, own, _ in rows if own],
        "all, sentences that training has with other values": [r for _, r, _, seen in rows if seen],
        "all, sentences that training lacks": [right for _, right, _, seen in rows if not seen],
    }
    lines = [
        (name, len(right), sum(right), f"{100 * sum(right) / len(right):.1f}")
        for name, right in groups.items()
        if right
    ]
    return tabulate(lines, ("kind", "entities", "right", "%"), "pipe", disable_numparse=True,
                    colalign=("left", "right", "right", "right"))  # fmt: skip


def failures(results: Iterable[Result]) -> str:
    """Return the first sentences with an error."""
    failed = (
        (result, wrong)
        for result in results
        if (wrong := [e["german"][0] for e in result["entities"] if not e["right"]])
    )
    return "\n".join(
        f"{result['source']}\n  {result['translation']}\n  lacks {', '.join(wrong)}"
        for result, wrong in itertools.islice(failed, NUM_FAILURES)
    )


if __name__ == "__main__":
    sys.exit(main())
