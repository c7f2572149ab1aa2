"""The arguments of mt.translate."""

import argparse
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from mt.inference.number_forms import DECIMALS
from mt.inference.options import PRECISIONS, SearchOptions
from mt.utils import console
from mt.utils.checks import check_int

SEARCH_HELP = {  # for each field of SearchOptions that is a number
    "beam_size": "number of hypotheses kept; 1 is greedy (default: the model's own, else 4)",
    "alpha": "strength of the length penalty (default: the model's own, else 0.6)",
    "n_best": "print N translations of each line: line number, score and text, separated by tabs",
    "min_length": "a translation has at least this many tokens",
    "max_length": "a translation has at most this many tokens (default: 50 more than its source)",
    "no_repeat_ngram": "no N tokens come twice in a translation",
    "repetition_penalty": "a value above 1 makes tokens less likely to come again",
    "samples": "draw N translations instead of searching; the best score comes first",
    "alternatives": "continue each of the N likeliest first tokens greedily instead of searching",
    "temperature": "temperature of the samples (default 1)",
    "top_k": "sample among the K likeliest tokens",
    "top_p": "sample among the likeliest tokens whose probabilities sum to P",
    "seed": "seed of the samples (default 0)",
}


class _Once(argparse.Action):
    """An option that may not be repeated: argparse would take the last value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} may come once only")
        setattr(namespace, self.dest, values)


def make_parser() -> argparse.ArgumentParser:
    parser = console.ArgumentParser(
        prog="mt.translate",
        description="Translate sentences given as arguments, or lines of standard input or a file.",
    )
    add = parser.add_argument
    add("sentences", nargs="*", metavar="SENTENCE")
    add("--model", action="append", help="model folder or checkpoint; `everyday`, the bundled "
        "model (default); `latest`, the newest RUN/model of outputs/; or ORG/NAME, a MarianMT "
        "model of the Hugging Face hub, such as Helsinki-NLP/opus-mt-en-de, or its folder. Several "
        "--model make an ensemble, which takes its search defaults from the first")  # fmt: skip
    add = parser.add_argument_group("lines and files").add_argument
    add("--input", metavar="FILE", action=_Once,
        help="read lines from FILE, or a document: .docx, .pptx, "
        ".odt, .ods, .odp, .html, .md, .srt, .vtt, .po, .csv, .tsv or .jsonl")  # fmt: skip
    add("--column", metavar="NAME", action="append", default=[], help="a column of a table that is "
        "translated; en=de writes the translation of en to the column de; several are "
        "allowed")  # fmt: skip
    add("--output", metavar="FILE", action=_Once,
        help="write to FILE, which appears or is replaced when all is "
        "translated")  # fmt: skip
    add("--resume", action="store_true", help="continue an --output that was interrupted")
    add("--restart", action="store_true", help="start an interrupted --output from the "
        "beginning, without the lines that are kept")  # fmt: skip
    add("--split", action=argparse.BooleanOptionalAction, help="split a line into sentences "
        "(default: only an argument, a line typed at a prompt, or a document)")  # fmt: skip
    add("--prefix", metavar="TEXT", help="every translation begins with TEXT")
    add("--score", metavar="FILE", help="score the translations in FILE instead of translating")
    add("--continue", metavar="TEXT", dest="text", help="continue TEXT with a language model "
        "(data=text model=decoder_only), by --samples or by beam search")  # fmt: skip
    add("--align", action="store_true", help="print which words belong together instead of the "
        "translation: 0-1 is the first word of the source and the second one of the translation; "
        "words stand between spaces")  # fmt: skip
    add("--json", action="store_true", help="print a JSON object a line, with scores")
    add("--tokens", action="store_true", help="with --json: print pieces and their log P")
    add("--attention", action="store_true", help="with --json: print attention over the source")
    add = parser.add_argument_group("terms").add_argument
    add("--glossary", metavar="FILE", help="words that must become others: a tab-separated file, a "
        ".csv of DeepL or of a spreadsheet, or .tbx")  # fmt: skip
    add("--keep", action=argparse.BooleanOptionalAction, help="keep addresses, file names, "
        "placeholders, codes and numbers as they are (default: in documents, and in arguments and "
        "typed lines without --output; never with --engine ctranslate2)")  # fmt: skip
    add("--decimal", choices=DECIMALS, help="how --keep writes 1,250.50: as "
        "German does, as it is, or either (default)")  # fmt: skip
    add("--forbid", metavar="PHRASE", action="append", default=[], help="a phrase that must not "
        "come; several are allowed")  # fmt: skip
    add = parser.add_argument_group("speed").add_argument
    add("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    add("--precision", choices=PRECISIONS, help="default: float32, or the one an export stores")
    add("--engine", default="mt", choices=("mt", "ctranslate2"), help="program that computes: mt "
        "(default), or ctranslate2, which reads a folder written by mt.export, gives different "
        "scores, and can neither sample nor score")  # fmt: skip
    add("--batch-size", type=int, default=64, help="sentences in a batch (default 64)")
    add("--workers", type=int, help="batches at a time (default: one for each CPU thread)")
    add = parser.add_argument_group("search").add_argument
    for field in fields(SearchOptions):
        if field.name in SEARCH_HELP:
            number = float if isinstance(field.default, float) else int
            flag = "--" + field.name.replace("_", "-")
            add(flag, type=number, help=SEARCH_HELP[field.name])
    add("--mbr", action="store_true", help="minimum Bayes risk: put first the translation "
        "with the best chrF against the others")  # fmt: skip
    return parser


def search_options(args: argparse.Namespace, defaults: SearchOptions) -> SearchOptions:
    """The options of the command line; the model's ``defaults`` for the rest.

    Raises ValueError that names a value that makes no sense.
    """
    options = named_options(args, SEARCH_HELP, defaults)
    return replace(options, mbr=args.mbr, attention=args.attention or args.align)


def named_options(
    args: argparse.Namespace, names: Iterable[str], defaults: SearchOptions
) -> SearchOptions:
    """As ``search_options``, of the arguments with these ``names``, where they are given."""
    if args.max_length is not None:  # 0 would translate all to nothing
        check_int("max_length", args.max_length)
    values = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return replace(defaults, **values)
