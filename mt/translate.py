"""python -m mt.translate: translate sentences from arguments, a pipe, a file or a prompt.

It writes one line for every line it reads, in order. It must start at once, so it imports neither
Lightning nor Hydra nor `datasets`.
"""

import argparse
import io
import itertools
import json
import logging
import math
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

from mt.utils import console

with console.exit_at_interrupt():
    from mt.inference.alignment import line_links
    from mt.inference.glossary import Glossary
    from mt.inference.linear import PRECISIONS
    from mt.inference.options import SearchOptions, load_search_defaults
    from mt.inference.terms import DECIMALS, TermRules
    from mt.inference.translation import Translation
    from mt.inference.translator import Translator
    from mt.model import checkpoint
    from mt.model.model_path import resolve_model_path
    from mt.utils.atomic import check_not_input
    from mt.utils.checks import check_int
    from mt.utils.line_io import ResumableFile, Stream, count_lines, read_blocks

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


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments; argparse ends the program with status 2 when they do not go together."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.sentences and args.input is not None:
        parser.error("give sentences or --input, not both")
    if args.resume and args.output is None:
        parser.error("--resume is for an --output")
    if (args.tokens or args.attention) and not args.json:
        parser.error("--tokens and --attention are printed with --json")
    if args.align and args.n_best and not args.json:
        parser.error("--align and --n-best are printed together with --json only")
    if args.score is not None:
        # --alpha counts in a score, and --beam-size does no harm.
        names = sorted(SEARCH_HELP.keys() - {"alpha", "beam_size"})
        useless = [name for name in names if getattr(args, name) is not None]
        others = ("split", "prefix", "attention", "align", "mbr", "glossary", "keep", "forbid")
        useless += [n for n in others if getattr(args, n)]
        if useless:
            parser.error(f"--score does not search: leave out --{useless[0].replace('_', '-')}")
    args.precision = args.precision or ("float32" if args.engine == "mt" else "default")
    if args.engine != "mt":
        if args.model is None or len(args.model) > 1:
            parser.error(f"--engine {args.engine} wants one --model, a folder written by mt.export")
        for name in (
            "score", "tokens", "attention", "align", "samples", "alternatives", "mbr", "glossary",
            "keep", "forbid",
        ):  # fmt: skip
            if getattr(args, name):
                parser.error(f"--{name} is not for --engine {args.engine}")
    return args


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mt.translate",
        description="Translate sentences given as arguments, or lines of standard input or a file.",
    )
    add = parser.add_argument
    add("sentences", nargs="*", metavar="SENTENCE")
    add("--model", action="append", help="model folder or checkpoint; `everyday`, the bundled "
        "model (default); `latest`, the newest model under outputs/; or ORG/NAME, a MarianMT model "
        "of the Hugging Face hub, such as Helsinki-NLP/opus-mt-en-de, or its folder. Several "
        "--model make an ensemble, which takes its search defaults from the first")  # fmt: skip
    add = parser.add_argument_group("lines and files").add_argument
    add("--input", metavar="FILE", help="read lines from FILE")
    add("--output", metavar="FILE", help="write to FILE, which appears when all is translated")
    add("--resume", action="store_true", help="continue an --output that was interrupted")
    add("--split", action=argparse.BooleanOptionalAction, help="split a line into sentences "
        "(default: only an argument or a line typed at a prompt)")  # fmt: skip
    add("--prefix", metavar="TEXT", help="every translation begins with TEXT")
    add("--score", metavar="FILE", help="score the translations in FILE instead of translating")
    add("--align", action="store_true", help="print which words belong together instead of the "
        "translation: 0-1 is the first word of the source and the second one of the translation; "
        "words stand between blanks")  # fmt: skip
    add("--json", action="store_true", help="print a JSON object a line, with scores")
    add("--tokens", action="store_true", help="with --json: print pieces and their log P")
    add("--attention", action="store_true", help="with --json: print attention over the source")
    add = parser.add_argument_group("terms").add_argument
    add("--glossary", metavar="FILE", help="words that must become others: a tab-separated file, a "
        ".csv of DeepL, or .tbx")  # fmt: skip
    add("--keep", action=argparse.BooleanOptionalAction, help="keep addresses, file names, "
        "placeholders, codes and numbers as they are (default: only in an argument or a line typed "
        "at a prompt)")  # fmt: skip
    add("--decimal", choices=DECIMALS, default="either", help="how --keep writes 1,250.50: as "
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
    add("--mbr", action="store_true", help="rank translations by chrF against each other")
    return parser


def search_options(args: argparse.Namespace, defaults: SearchOptions) -> SearchOptions:
    """The options of the command line; the model's ``defaults`` for the rest.

    Raises ValueError that names a value that makes no sense.
    """
    values = {name: getattr(args, name) for name in SEARCH_HELP if getattr(args, name) is not None}
    return replace(defaults, **values, mbr=args.mbr, attention=args.attention or args.align)


def render(result: Translation, number: int, args: argparse.Namespace) -> str:
    """The line, or with --n-best the lines, to print for source line ``number``."""
    if args.json:
        return json.dumps(_record(result, args), ensure_ascii=False)
    if args.score is not None:
        return f"{result.log_prob:.4f}"
    if args.align:
        return " ".join(f"{source}-{target}" for source, target in line_links(result.parts))
    if args.n_best:
        return "\n".join(f"{number}\t{score:.4f}\t{text}" for text, score in result.n_best)
    return result.text


def _record(result: Translation, args: argparse.Namespace) -> dict[str, Any]:
    record: dict[str, Any] = {"source": result.source, "translation": result.text}
    record["score"] = result.score
    if not math.isnan(result.confidence):  # another engine gives no log P
        record["confidence"] = round(result.confidence, 4)
    if args.score is not None:
        record["log_prob"] = result.log_prob
    if args.n_best:
        record["n_best"] = [{"translation": t, "score": s} for t, s in result.n_best]
    if args.align:
        record["alignment"] = line_links(result.parts)
    if args.tokens or args.attention:
        record["parts"] = []
        for part in result.parts:
            pieces: dict[str, Any] = {
                "source": [*part.source, "</s>"],
                "translation": [*part.output, "</s>"],
                "log_probs": [round(log_prob, 6) for log_prob in part.log_probs],
            }
            if (
                args.attention and part.attention is not None
            ):  # the mean over layers and heads: [T, S]
                rows = part.attention.mean(dim=(0, 1)).tolist()
                pieces["attention"] = [[round(weight, 4) for weight in row] for row in rows]
            record["parts"].append(pieces)
    return record


def open_input(path: str | None, stack: ExitStack) -> BinaryIO:
    """Open FILE or standard input. Only a regular file is closed when the program ends.

    Closing the others would wait for the thread that waits for their next line.
    """
    if path is None:
        if sys.stdin is None:
            raise ValueError("standard input is closed: give sentences or --input")
        return open(sys.stdin.fileno(), "rb", closefd=False)
    stream = open(path, "rb")  # noqa: SIM115
    if Path(path).is_file():
        stack.enter_context(stream)
    return stream


def load_translator(args: argparse.Namespace) -> Translator:
    if args.engine == "mt":
        return Translator.load(args.model, args.device, args.precision, args.workers)
    try:
        from mt.export.ctranslate2 import Engine

        return Engine(args.model[0], args.device, args.precision, args.workers)
    except ImportError as error:
        hint = console.install_hint(args.engine)
        raise ValueError(f"--engine {args.engine} ({error}): {hint}") from None


def term_rules(args: argparse.Namespace, languages: tuple[str, str]) -> TermRules:
    """Raises OSError or ValueError for a glossary that cannot be read."""
    glossary = None
    if args.glossary is not None:
        glossary = Glossary.load(args.glossary, languages, inflect=languages[1] == "de")
        if not glossary:
            raise ValueError(f"{args.glossary}: has no terms from {' to '.join(languages)}")
        print(f"mt.translate: {len(glossary):,} terms of {args.glossary}", file=sys.stderr)
    return TermRules(glossary, args.keep, args.decimal, tuple(args.forbid))


def open_output(
    args: argparse.Namespace, options: SearchOptions, stream: BinaryIO | None, stack: ExitStack
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
    checkpoints = (Path(model) for model in args.model if Path(model).is_file())
    inputs = [*args.model, *(file.parent.parent / "tokenizer.model" for file in checkpoints)]
    files = (args.input, args.score, args.glossary)
    inputs += [file for file in files if file is not None]
    inputs += [] if stream is None else [stream.fileno()]
    for file in (path, *ResumableFile.temporary_files(path.resolve())):
        check_not_input(file, *inputs)
    settings = (
        "engine", "precision", "split", "prefix", "json", "tokens", "align", "n_best", "batch_size",
        "keep", "decimal", "forbid",
    )  # fmt: skip
    weights = "model.bin" if args.engine == "ctranslate2" else ""
    identity = {
        "model": [checkpoint.digest(Path(model) / weights) for model in args.model],
        "score": None if args.score is None else checkpoint.digest(args.score),
        "glossary": None if args.glossary is None else checkpoint.digest(args.glossary),
        **asdict(options),
        **{name: getattr(args, name) for name in settings},
    }
    return stack.enter_context(ResumableFile(path, identity, args.resume))


def run(args: argparse.Namespace) -> None:
    check_int("batch_size", args.batch_size)
    names = args.model or [None]
    resolve = resolve_model_path if args.engine == "mt" else Path  # another engine's has no name
    args.model = [str(resolve(name)) for name in names]
    options = search_options(args, load_search_defaults(args.model[0]))  # before slow work
    for name, path in zip(names, args.model, strict=True):
        if name == "latest":
            print(f"mt.translate: model {path}", file=sys.stderr)
    for file in filter(os.path.isfile, args.sentences[:1]):
        name = shlex.quote(file)
        print(f"mt.translate: these are words: --input {name} translates the file", file=sys.stderr)
    with ExitStack() as stack:
        stream = None if args.sentences else open_input(args.input, stack)
        if args.split is None:  # people type several sentences in a line, a corpus has one
            args.split = args.score is None and (stream is None or stream.isatty())
        if args.keep is None:
            typed = (stream is None or stream.isatty()) and args.output is None
            args.keep = typed and args.score is None and args.engine == "mt"
        targets = None
        if args.score is not None:
            score_stream = open_input(args.score, stack)
            if stream is not None and is_same_pipe(stream, score_stream):
                raise ValueError(f"{args.score}: the sources come from there too")
            blocks = read_blocks(score_stream, args.score, whole=True)
            targets = itertools.chain.from_iterable(blocks)
        translator = load_translator(args)
        terms = term_rules(args, translator.languages)
        if terms and (args.samples or args.alternatives):
            if args.glossary or args.forbid:
                raise ValueError("terms need beam search: leave out --samples and --alternatives")
            terms = TermRules()
        # After all that may fail, because it begins a new file:
        output = open_output(args, options, stream, stack)
        file = Path(args.input) if args.input and Path(args.input).is_file() else None
        whole = file is not None or isinstance(output, ResumableFile)  # nobody waits for lines
        update = progress(args, stream, file, stack)
        number = 0  # lines done
        for block in source_blocks(args, stream, whole):
            lines = output.skip(block)
            number += len(block) - len(lines)
            block_targets = list(itertools.islice(targets or (), len(block)))
            if targets is not None and len(block_targets) < len(block):
                raise ValueError(f"{args.score}: fewer lines than the input")
            if lines:
                if targets is None:
                    prefixes = None if args.prefix is None else [args.prefix] * len(lines)
                    results = translator.translate(
                        lines, options, prefixes=prefixes, split=args.split, terms=terms,
                        batch_size=args.batch_size, on_progress=update,
                    )  # fmt: skip
                else:
                    line_targets = block_targets[-len(lines) :]
                    results = translator.score(
                        lines, line_targets, options.alpha, args.batch_size, update
                    )
                rendered = [render(result, number + i, args) for i, result in enumerate(results, 1)]
                output.write(lines, "".join(f"{line}\n" for line in rendered))
                number += len(lines)
            update(number, total=True)
        if targets is not None and next(targets, None) is not None:
            raise ValueError(f"{args.score}: more lines than the {number:,} of the input")


def source_blocks(
    args: argparse.Namespace, stream: BinaryIO | None, whole: bool
) -> Iterator[list[str]]:
    if stream is None:  # what the shell gave that is not UTF-8 becomes a question mark
        return iter([[s.encode("utf-8", "replace").decode("utf-8") for s in args.sentences]])
    if stream.isatty():
        print("mt.translate: type a line and Enter, Ctrl-D to end", file=sys.stderr)
    return read_blocks(stream, args.input or "standard input", whole)


def is_same_pipe(one: BinaryIO, other: BinaryIO) -> bool:
    """Whether two streams would take lines from each other, as those of a file do not."""
    status = os.fstat(one.fileno())
    return not stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(other.fileno()))


def progress(
    args: argparse.Namespace, stream: BinaryIO | None, file: Path | None, stack: ExitStack
) -> Callable[..., object]:
    """A function that moves a bar on by some lines, or with ``total`` to that many in all.

    The bar appears if standard error is a terminal and nobody types there. A pipe's lines must
    also go elsewhere.
    """
    shown = stream is not None and not stream.isatty() and sys.stderr.isatty()
    if not shown or (file is None and args.output is None and sys.stdout.isatty()):
        return lambda lines, total=False: None
    num_lines = None if file is None else count_lines(file)
    bar = stack.enter_context(console.progress_bar(num_lines, "lines"))

    def update(lines: float, total: bool = False) -> None:
        bar.update(lines - bar.n if total else lines)

    return update


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if sys.stderr is None:  # closed by `2>&-`; print would write to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    logging.basicConfig(format="mt.translate: %(message)s", stream=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input, whatever the locale

    def run_within_memory() -> None:
        with console.within_memory("give a smaller --batch-size or --beam-size"):
            run(args)

    return console.exit_status("mt.translate", run_within_memory)


if __name__ == "__main__":
    sys.exit(main())
