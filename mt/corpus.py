"""python -m mt.corpus: translate, score or filter corpora of any size, on one machine or many.

A run that was interrupted goes on when the same command is given again.
"""

import argparse
import logging
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mt.utils import console

with console.exit_at_interrupt():
    from mt.inference.arguments import SEARCH_HELP, named_options
    from mt.inference.options import PRECISIONS, SearchOptions
    from mt.utils.line_io import BLOCK

if TYPE_CHECKING:
    from mt.corpora.job import Summary
    from mt.corpora.operations import Operation

SEARCH = ("beam_size", "alpha", "min_length", "max_length", "no_repeat_ngram", "repetition_penalty",
    "samples", "temperature", "top_k", "top_p", "seed")  # fmt: skip
DEVICES = ("auto", "cpu", "cuda")
LANGUAGE_HELP = "drop rows whose %s is not in this language, a code of py3langid"


def make_parser() -> argparse.ArgumentParser:
    parser = console.ArgumentParser(
        prog="mt.corpus",
        description="Translate, score or filter corpora of any size with the actors of Ray Data.",
    )
    commands = parser.add_subparsers(
        dest="command", metavar="{translate,score,filter}", required=True
    )
    translate = commands.add_parser("translate", help="add or replace a column by its translation")
    add_files(translate)
    translate.add_argument("--column", metavar="NAME", default="text", help="column that is "
        "translated in place; en=de writes the translation of en to the column de, also where "
        "there is one (default text)")  # fmt: skip
    translate.add_argument("--split", action="store_true", help="split a row into sentences")
    add_model(translate)
    add = translate.add_argument_group("search").add_argument
    for name in SEARCH:
        number = float if isinstance(getattr(SearchOptions, name), float) else int
        add("--" + name.replace("_", "-"), type=number, help=SEARCH_HELP[name])
    score = commands.add_parser("score", help="add log P of each given translation")
    add_files(score)
    add_pair(score)
    add_model(score)
    score.add_argument("--alpha", type=float, help=SEARCH_HELP["alpha"])
    select = commands.add_parser("filter", help="keep the rows that pass the rules")
    add_files(select)
    add_pair(select, target=None)
    add = select.add_argument_group("rules").add_argument
    add("--min-score", type=float, help="least value of the column score, which `score` adds")
    add("--min-length", type=int, help="least words of a text")
    add("--max-length", type=int, help="most words of a text")
    add("--max-ratio", type=float, help="drop pairs of which one side has more than this times "
        "the words of the other")  # fmt: skip
    add("--source-language", metavar="CODE", help=LANGUAGE_HELP % "source")
    add("--target-language", metavar="CODE", help=LANGUAGE_HELP % "target")
    add_cluster(select)
    return parser


def add_files(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("files").add_argument
    add("--input", action="append", nargs="+", required=True, metavar="FILE", help="files, folders "
        "or patterns such as 'part-*.parquet', here or where fsspec reaches: .parquet, .jsonl, "
        "or text with a row a line; the latter two also .gz or .zst")  # fmt: skip
    add("--output", required=True, metavar="FILE", help="file of such a format, or a folder, which "
        "has a file for each one of the input")  # fmt: skip
    add("--overwrite", action="store_true", help="replace an output that is there, and begin anew "
        "where an interrupted run was another one")  # fmt: skip
    add("--max-errors", type=int, metavar="N", help="end at more than N bad rows (default 100); "
        "OUTPUT.errors.jsonl has them")  # fmt: skip


def add_pair(parser: argparse.ArgumentParser, target: str | None = "target") -> None:
    add = parser.add_argument
    default = "" if target is None else f" (default {target})"
    add("--source", default="source" if target else "text", metavar="NAME", help="column of the "
        "source (default %(default)s)")  # fmt: skip
    add("--target", default=target, metavar="NAME", help=f"column of its translation{default}")


def add_model(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("model and speed").add_argument
    add("--model", action="append", help="model folder or checkpoint, as for mt.translate; several "
        "make an ensemble")  # fmt: skip
    add("--device", default="auto", choices=DEVICES, help="default auto")
    add("--precision", default="float32", choices=PRECISIONS, help="default float32")
    add("--batch-size", type=int, default=64, help="sentences in a batch (default 64)")
    add_cluster(parser)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("cluster").add_argument
    add("--address", help="of a Ray cluster to join, such as auto or HOST:6379 (default: a "
        "cluster of its own, with all cores of this machine)")  # fmt: skip
    add("--actors", type=int, help="processes (default: as many as have room)")
    add("--threads", type=int, default=1, help="CPU threads of an actor (default %(default)s)")
    add("--block-rows", type=int, default=BLOCK, help="rows that an actor computes at once, and "
        "that are lost when it dies (default %(default)s)")  # fmt: skip


def make_operation(args: argparse.Namespace) -> "Operation":
    """Raises OSError or ValueError for a model or a value that makes no sense."""
    if args.command == "filter":
        from mt.corpora.operations import Filter

        return Filter(
            args.source, args.target, args.min_score, args.min_length, args.max_length,
            args.max_ratio, args.source_language, args.target_language,
        )  # fmt: skip
    from mt.corpora.models import Models, ScorePairs, Translate

    models = Models.find(args.model, args.device, args.precision)
    if args.command == "score":
        alpha = models.search_defaults.alpha if args.alpha is None else args.alpha
        return ScorePairs(models, args.source, args.target, alpha, args.batch_size)
    options = named_options(args, SEARCH, models.search_defaults)
    source, _, target = args.column.partition("=")
    if not source or args.column.endswith("="):
        raise ValueError(f"--column {args.column}: must be NAME or NAME=NAME")
    return Translate(models, source, target or source, options, args.split, args.batch_size)


def run_command(args: argparse.Namespace) -> None:
    try:
        with console.exit_at_interrupt():
            from mt.corpora.actors import Actors
            from mt.corpora.job import MOST_ERRORS, run_job
    except ImportError as error:
        hint = console.install_hint("ray")
        raise ValueError(f"Ray Data is not installed ({error}): {hint}") from None
    gpu = {"auto": None, "cpu": False, "cuda": True}[getattr(args, "device", "cpu")]
    engine = Actors(args.address, args.actors, args.threads, gpu)
    operation = make_operation(args)
    max_errors = MOST_ERRORS if args.max_errors is None else args.max_errors
    with ExitStack() as stack:
        bar = None

        def begin(total: int) -> None:
            nonlocal bar
            bar = stack.enter_context(console.progress_bar(total, "rows"))

        summary = run_job(
            operation,
            [name for names in args.input for name in names],
            args.output,
            engine,
            block_rows=args.block_rows,
            max_errors=max_errors,
            overwrite=args.overwrite,
            on_begin=begin,
            on_progress=lambda rows: bar.update(rows) if bar is not None else None,
        )
    print(f"mt.corpus: {describe(summary)}", file=sys.stderr)


def describe(summary: "Summary") -> str:
    """What a run did, in one line."""
    parts = [f"{summary.written:,} of {summary.rows:,} rows written"]
    if summary.kept:
        parts.append(f"{summary.kept:,} were done before")
    parts += [f"{count:,} left out by {rule}" for rule, count in summary.dropped.most_common()]
    if summary.errors_file:
        parts.append(f"{summary.errors:,} bad: {summary.errors_file}")
    if summary.warnings:
        parts.append(f"{summary.warnings:,} warnings, the first: {summary.first_warning}")
    return "; ".join(parts)


def main(argv: list[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    logging.basicConfig(format="mt.corpus: %(message)s", stream=sys.stderr)
    return console.exit_status("mt.corpus", lambda: run_command(args))


if __name__ == "__main__":
    sys.exit(main())
