"""python -m mt.translate: sentences from arguments, a pipe, a file or a prompt, translated.

One line out for every line in, in order. Imports neither Lightning nor Hydra nor `datasets`: it
must start at once.
"""

import argparse
import io
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

from mt.inference.linear import PRECISIONS
from mt.inference.options import SearchOptions, load_search_defaults
from mt.inference.translation import Translation
from mt.inference.translator import Translator, check_batch_size
from mt.model import checkpoint
from mt.utils import console
from mt.utils.line_io import ResumableFile, Stream, count_lines, read_blocks

OPTIONS = {  # of SearchOptions, and what --help says
    "beam_size": "hypotheses kept; 1 is greedy (default: the model's own, else 4)",
    "alpha": "length penalty (default: the model's own, else 0.6)",
    "n_best": "print N translations: line number, score, text, by tabs",
    "min_length": "least tokens of a translation",
    "max_length": "most tokens of a translation (default: 50 more than its source)",
    "no_repeat_ngram": "no N tokens come twice in a translation",
    "repetition_penalty": "above 1: tokens that were there are less likely to come again",
    "samples": "draw N translations instead of searching; the best score comes first",
    "temperature": "of the draws (default 1)",
    "top_k": "draw among the K likeliest tokens",
    "top_p": "draw among the likeliest tokens that together have this chance",
    "seed": "of the draws (default 0)",
}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mt.translate",
        description="Translate sentences given as arguments, or lines of standard input or a file.",
    )
    add = parser.add_argument
    add("sentences", nargs="*", metavar="SENTENCE")
    add(
        "--model",
        action="append",
        help="model folder or checkpoint, or `everyday`, which comes with this package (default), "
        "or `latest`, the newest under outputs/; several times for an ensemble, which searches as "
        "the first one says",
    )
    files = parser.add_argument_group("lines and files")
    add = files.add_argument
    add("--input", metavar="FILE", help="read lines from FILE")
    add("--output", metavar="FILE", help="write to FILE, which appears when all is translated")
    add("--resume", action="store_true", help="go on with an --output that was interrupted")
    add(
        "--split",
        action=argparse.BooleanOptionalAction,
        help="a line may hold several sentences (default: so it may as an argument or at a prompt)",
    )
    add("--prefix", metavar="TEXT", help="every translation begins with TEXT")
    add("--score", metavar="FILE", help="score the translations in FILE instead of translating")
    add("--json", action="store_true", help="print a JSON object a line, with scores")
    add("--tokens", action="store_true", help="with --json: pieces and log P of each")
    add("--attention", action="store_true", help="with --json: pieces and where each one looked")
    speed = parser.add_argument_group("speed")
    add = speed.add_argument
    add("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    add(
        "--precision",
        choices=PRECISIONS,
        help="default float32, or what an export is stored in",
    )
    add(
        "--engine",
        default="mt",
        choices=("mt", "ctranslate2"),
        help="what computes: mt (default), or ctranslate2 with a folder written by mt.export, "
        "whose scores are other ones; it neither samples nor scores",
    )
    add("--batch-size", type=int, default=64, help="sentences at a time (default 64)")
    add("--workers", type=int, help="batches at a time (default: one for each thread of the CPU)")
    search = parser.add_argument_group("search")
    for field in fields(SearchOptions):
        if field.name in OPTIONS:
            kind = float if isinstance(field.default, float) else int
            flag = "--" + field.name.replace("_", "-")
            search.add_argument(flag, type=kind, help=OPTIONS[field.name])
    search.add_argument("--mbr", action="store_true", help="rank by chrF against each other")
    args = parser.parse_args(argv)
    if args.sentences and args.input is not None:
        parser.error("give sentences or --input, not both")
    if args.resume and args.output is None:
        parser.error("--resume is for an --output")
    if (args.tokens or args.attention) and not args.json:
        parser.error("--tokens and --attention are printed with --json")
    if args.score is not None:
        searching = OPTIONS.keys() - {"alpha", "beam_size"}  # these two do no harm
        given = [name for name in sorted(searching) if getattr(args, name) is not None]
        given += [n for n in ("split", "prefix", "attention", "mbr") if getattr(args, n)]
        if given:
            parser.error(f"--score does not search: leave out --{given[0].replace('_', '-')}")
    args.precision = args.precision or ("float32" if args.engine == "mt" else "default")
    if args.engine != "mt":
        if args.model is None or len(args.model) > 1:
            parser.error(f"--engine {args.engine} wants one --model, a folder written by mt.export")
        for name in ("score", "tokens", "attention", "samples", "mbr"):
            if getattr(args, name):
                parser.error(f"--{name} is not for --engine {args.engine}")
    return args


def search_options(args: argparse.Namespace, own: SearchOptions) -> SearchOptions:
    """What is given, the rest as the model's own. ValueError names a value that makes no sense."""
    given = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
    return replace(own, **given, mbr=args.mbr, attention=args.attention)


def render(result: Translation, number: int, args: argparse.Namespace) -> str:
    if args.json:
        return json.dumps(_record(result, args), ensure_ascii=False)
    if args.score is not None:
        return f"{result.log_prob:.4f}"
    if args.n_best:
        return "\n".join(f"{number}\t{score:.4f}\t{text}" for text, score in result.n_best)
    return result.text


def _record(result: Translation, args: argparse.Namespace) -> dict[str, Any]:
    record: dict[str, Any] = {
        "source": result.source,
        "translation": result.text,
        "score": result.score,
    }
    if args.score is not None:
        record["log_prob"] = result.log_prob
    if args.n_best:
        record["n_best"] = [{"translation": t, "score": s} for t, s in result.n_best]
    if args.tokens or args.attention:
        record["parts"] = []
        for part in result.parts:
            pieces: dict[str, Any] = {
                "source": [*part.source, "</s>"],
                "translation": [*part.output, "</s>"],
                "log_probs": [round(log_p, 6) for log_p in part.log_probs],
            }
            if part.attention is not None:  # the mean over layers and heads, a row a piece
                rows = part.attention.mean(dim=(0, 1)).tolist()
                pieces["attention"] = [[round(weight, 4) for weight in row] for row in rows]
            record["parts"].append(pieces)
    return record


def open_input(path: str | None, stack: ExitStack) -> BinaryIO:
    """A stream of its own even for standard input, and one that is closed only if a regular file.

    Else the end of the program would wait for the thread that waits for the next line.
    """
    if path is None:
        if sys.stdin is None:
            raise ValueError("standard input is closed: give sentences or --input")
        return open(sys.stdin.fileno(), "rb", closefd=False)
    stream = open(path, "rb")  # noqa: SIM115
    if Path(path).is_file():
        stack.enter_context(stream)
    return stream


def load(args: argparse.Namespace) -> Translator:
    if args.engine == "mt":
        return Translator.load(args.model, args.device, args.precision, args.workers)
    from mt.export import install

    try:
        from mt.export.ctranslate2 import Engine

        return Engine(args.model[0], args.device, args.precision, args.workers)
    except ImportError as error:
        raise ValueError(f"--engine {args.engine} ({error}): {install(args.engine)}") from None


def digest(model: str, engine: str) -> str:
    file = Path(model) / "model.bin" if engine == "ctranslate2" else model
    return checkpoint.digest(file)


def open_output(
    args: argparse.Namespace, options: SearchOptions, stack: ExitStack
) -> Stream | ResumableFile:
    if args.output is None:
        if sys.stdout is None:
            raise ValueError("standard output is closed: give --output")
        return Stream(sys.stdout)
    path = Path(args.output)
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe or a device
        if args.resume:
            raise ValueError(f"{path}: not a regular file: nothing can be resumed")
        return Stream(stack.enter_context(path.open("w", encoding="utf-8", newline="\n")))
    if args.score is not None and not Path(args.score).is_file():
        raise ValueError(f"{args.score}: --score with --output needs a regular file")
    settings = ("engine", "precision", "split", "prefix", "json", "tokens", "n_best", "batch_size")
    identity = {
        "model": [digest(model, args.engine) for model in args.model],
        "score": None if args.score is None else checkpoint.digest(args.score),
        **asdict(options),
        **{name: getattr(args, name) for name in settings},
    }
    return stack.enter_context(ResumableFile(path, identity, args.resume))


def run(args: argparse.Namespace) -> None:
    check_batch_size(args.batch_size)
    asked = args.model or [None]
    args.model = [str(checkpoint.resolve_model_path(name)) for name in asked]
    own = load_search_defaults(args.model[0])
    options = search_options(args, own)  # wrong ones show at once
    for name, path in zip(asked, args.model, strict=True):
        if name == "latest":
            print(f"mt.translate: model {path}", file=sys.stderr)
    with ExitStack() as stack:
        source = None if args.sentences else open_input(args.input, stack)
        if args.split is None:  # what people type, not a corpus
            args.split = args.score is None and (source is None or source.isatty())
        targets = None if args.score is None else opened_targets(args.score, stack)
        translator = load(args)
        output = open_output(args, options, stack)  # behind what may fail: it begins a new file
        file = Path(args.input) if args.input and Path(args.input).is_file() else None
        if source is None:  # what the shell gave that is not UTF-8 becomes a question mark
            texts = [text.encode("utf-8", "replace").decode("utf-8") for text in args.sentences]
            blocks = iter([texts])
        else:
            if source.isatty():
                print("mt.translate: type a line and Enter, Ctrl-D to end", file=sys.stderr)
            whole = file is not None or isinstance(output, ResumableFile)  # nobody waits for lines
            blocks = read_blocks(source, args.input or "standard input", whole)
        update = progress(file, stack)
        number = 0
        for block in blocks:
            lines = output.skip(block)
            others = None
            if targets is not None:
                others = list(itertools.islice(targets, len(block)))
                if len(others) < len(block):
                    raise ValueError(f"{args.score}: fewer lines than the input")
                others = others[len(block) - len(lines) :]
            number += len(block) - len(lines)
            if lines:
                results = _translate(translator, lines, others, args, options, update)
                rendered = [render(each, number + i, args) for i, each in enumerate(results, 1)]
                output.write(lines, "".join(f"{line}\n" for line in rendered))
                number += len(lines)
            update(number, exact=True)
        if targets is not None and next(targets, None) is not None:
            raise ValueError(f"{args.score}: more lines than the {number:,} of the input")


def _translate(
    translator: Translator,
    lines: list[str],
    targets: list[str] | None,
    args: argparse.Namespace,
    options: SearchOptions,
    update: Callable[[int], object],
) -> list[Translation]:
    if targets is not None:
        return translator.score(lines, targets, options.alpha, args.batch_size, update)
    return translator.translate(
        lines,
        options,
        prefixes=None if args.prefix is None else [args.prefix] * len(lines),
        split=args.split,
        batch_size=args.batch_size,
        on_progress=update,
    )


def opened_targets(path: str, stack: ExitStack) -> Iterator[str]:
    blocks = read_blocks(open_input(path, stack), path, whole=True)
    return itertools.chain.from_iterable(blocks)


def progress(file: Path | None, stack: ExitStack) -> Callable[..., object]:
    """A bar on standard error for a file of lines, when that is a terminal."""
    if file is None or not sys.stderr.isatty():
        return lambda lines, exact=False: None
    from tqdm import tqdm

    bar = stack.enter_context(tqdm(total=count_lines(file), unit=" lines"))

    def update(lines: int, exact: bool = False) -> None:
        bar.update(lines - bar.n if exact else lines)

    return update


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if sys.stderr is None:  # closed by `2>&-`; print would turn to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    logging.basicConfig(format="mt.translate: %(message)s", stream=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input is, whatever the locale

    def run_or_say_why() -> None:
        try:
            run(args)
        except (MemoryError, RuntimeError) as error:  # torch raises the latter, on a GPU too
            if "memory" not in f"{type(error).__name__} {error}".lower():
                raise
            remedy = "give a smaller --batch-size or --beam-size"
            raise ValueError(f"out of memory: {remedy}") from error

    return console.status("mt.translate", run_or_say_why)


if __name__ == "__main__":
    sys.exit(main())
