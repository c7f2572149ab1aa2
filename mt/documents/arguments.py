"""The command line of mt.translate: which of its arguments go together."""

import argparse
from pathlib import Path

from mt.documents.files import is_document, is_table, may_hold_lines, refusal
from mt.inference.arguments import SEARCH_HELP, make_parser

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
TERMS = ("glossary", "keep", "decimal", "forbid")
# Options that need beam search; those without a meaning for --score; those of our own engine alone;
# and those without a meaning for --continue.
SEARCHED = ("beam_size", *TERMS)
NOT_SCORED = ("split", "prefix", "attention", "align", "mbr", *TERMS)
OWN_ENGINE = ("score", "tokens", "attention", "align", "samples", "alternatives", "mbr", *TERMS)
NOT_CONTINUED = (
    "input", "output", "resume", "score", "prefix", "align", "attention", "mbr", "alternatives",
    "tokens", "n_best", "split", *TERMS,
)  # fmt: skip


def spelled(name: str) -> str:
    """An option as people type it."""
    return f"--{name.replace('_', '-')}"


def first_given_option(args: argparse.Namespace, *names: str) -> str | None:
    """The first of these options that the command line has, as people type it."""
    return next((spelled(name) for name in names if getattr(args, name)), None)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments; argparse ends the program with status 2 when they do not go together."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.decimal == "either":  # as if it were not named
        args.decimal = None
    if args.sentences and args.input is not None:
        parser.error("give sentences or --input, not both")
    for name in ("input", "output", "score", "glossary"):
        if getattr(args, name) == "":
            parser.error(f"--{name} is empty: name a file")
    for name in ("input", "output"):
        if getattr(args, name) == "-":  # standard input or output, as without it
            setattr(args, name, None)
    if args.input is not None and Path(args.input).suffix.lower() in COMPRESSED:
        parser.error(f"{args.input} is compressed: unpack it first")
    if args.output is None and (option := first_given_option(args, "resume", "restart")):
        parser.error(f"{option} is for an --output")
    if args.resume and args.restart:
        parser.error("give --resume or --restart, not both")
    if args.text is not None:
        check_continuation(parser, args)
    args.is_document = args.input is not None and is_document(args.input)
    if args.is_document:
        check_document_options(parser, args)
    elif args.column:
        parser.error("--column is for an --input that ends in .csv, .tsv or .jsonl")
    elif args.output is not None and not may_hold_lines(args.output):
        parser.error(f"lines of text make no {Path(args.output).suffix}: name another --output")
    if (args.tokens or args.attention) and not args.json:
        parser.error("--tokens and --attention are printed with --json")
    if args.align and args.n_best and not args.json:
        parser.error("--align and --n-best are printed together with --json only")
    if args.score is not None:
        # --alpha counts in a score, and --beam-size does no harm.
        names = sorted(SEARCH_HELP.keys() - {"alpha", "beam_size"})
        names = [name for name in names if getattr(args, name) is not None]
        option = spelled(names[0]) if names else first_given_option(args, *NOT_SCORED)
        if option:
            parser.error(f"--score does not search: leave out {option}")
    if args.keep is False and args.decimal:
        parser.error("--decimal says how --keep writes numbers: leave out --no-keep")
    if (args.samples or args.alternatives) and (option := first_given_option(args, *SEARCHED)):
        parser.error(f"{option} needs beam search: leave out --samples and --alternatives")
    if args.seed is not None and not args.samples:
        parser.error("--seed is the seed of --samples: add them")
    args.precision = args.precision or ("float32" if args.engine == "mt" else "default")
    if args.engine != "mt":
        if args.model is None or len(args.model) > 1:
            parser.error(f"--engine {args.engine} wants one --model, a folder written by mt.export")
        if option := first_given_option(args, *OWN_ENGINE):
            parser.error(f"{option} is not for --engine {args.engine}")
    args.decimal = args.decimal or "either"
    return args


def check_continuation(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.sentences:
        parser.error("--continue goes without sentences")
    if option := first_given_option(args, *NOT_CONTINUED):
        parser.error(f"--continue goes without {option}")
    if args.beam_size is None and args.samples is None:
        args.samples = 1
    if args.engine != "mt":
        parser.error(f"--continue is not for --engine {args.engine}")


def check_document_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if advice := refusal(args.input):
        parser.error(f"{args.input} {advice}")
    if is_table(args.input) and not args.column:
        parser.error(f"{args.input} is a table: name a column that is translated with --column")
    if args.output is None:
        parser.error(f"{args.input} is a document: name its translation with --output")
    if Path(args.output).suffix.lower() != Path(args.input).suffix.lower():
        end = Path(args.input).suffix
        parser.error(f"the translation of a {end} is a {end}: name another --output")
    if option := first_given_option(
        args, "score", "prefix", "n_best", "align", "tokens", "attention"
    ):
        parser.error(f"{option} is for lines, and {args.input} is a document")
    if args.engine != "mt":
        parser.error(f"--engine {args.engine} translates lines, and {args.input} is a document")
