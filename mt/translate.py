"""python -m mt.translate: translate sentences from arguments, a pipe, a file or a prompt.

It writes one line for every line it reads, in order; or a document for a document. It must start at
once, so it imports neither Lightning nor Hydra nor `datasets`.
"""

import argparse
import itertools
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from mt.utils import console

with console.exit_at_interrupt():
    from mt.documents.arguments import parse
    from mt.documents.document import Document
    from mt.documents.files import load_document, translate_document
    from mt.inference.alignment import line_links
    from mt.inference.arguments import search_options
    from mt.inference.glossary import Glossary
    from mt.inference.inputs import split_lines
    from mt.inference.options import CONTINUATION_TOKENS, SearchOptions, load_search_defaults
    from mt.inference.records import translation_record
    from mt.inference.terms import TermRules
    from mt.inference.translation import Translation
    from mt.inference.translator import Translator
    from mt.model import checkpoint
    from mt.model.model_path import find_models
    from mt.utils.atomic import check_not_input, is_open
    from mt.utils.checks import check_int
    from mt.utils.hashes import sha256_of
    from mt.utils.line_io import (
        ResumableFile,
        Stream,
        check_folder,
        count_lines,
        is_same_pipe,
        open_input,
        read_blocks,
    )
    from mt.utils.native import compiling

Progress = Callable[..., object]  # moves a bar on by a number, or with ``total`` to it


def render(result: Translation, number: int, args: argparse.Namespace) -> str:
    """The line, or with --n-best the lines, to print for source line ``number``."""
    if args.json:
        names = ("n_best", "align", "tokens", "attention")
        wanted = {name: bool(getattr(args, name)) for name in names}
        record = translation_record(result, log_prob=args.score is not None, **wanted)
        return json.dumps(record, ensure_ascii=False)
    if args.score is not None:
        return f"{result.log_prob:.4f}"
    if args.align:
        return " ".join(f"{source}-{target}" for source, target in line_links(result.parts))
    if args.n_best:
        return "\n".join(f"{number}\t{score:.4f}\t{text}" for text, score in result.n_best)
    return result.text


def load_translator(args: argparse.Namespace) -> Translator:
    if args.engine == "mt":
        return Translator.load(args.model, args.device, args.precision, args.workers)
    try:
        from mt.export.ctranslate2 import Engine

        return Engine(args.model[0], args.device, args.precision, args.workers)
    except ImportError as error:
        hint = console.install_hint(args.engine)
        raise ValueError(f"--engine {args.engine} needs a package ({error}): {hint}") from None


def term_rules(args: argparse.Namespace, languages: tuple[str, str]) -> TermRules:
    """Raises OSError or ValueError for a glossary that cannot be read."""
    glossary = None
    if args.glossary is not None:
        glossary = Glossary.load(args.glossary, languages, inflect=languages[1] == "de")
        if not glossary:
            raise ValueError(f"{args.glossary}: has no terms from {' to '.join(languages)}")
        counted = f"{len(glossary):,} term" + "s" * (len(glossary) != 1)
        print(f"mt.translate: {counted} of {args.glossary}", file=sys.stderr)
    return TermRules(glossary, args.keep, args.decimal, tuple(args.forbid))


def open_output(
    args: argparse.Namespace, options: SearchOptions, stream: BinaryIO | None, stack: ExitStack
) -> Stream | ResumableFile:
    if args.output is None:
        if sys.stdout is None:
            raise ValueError("standard output is closed: give --output")
        return Stream(sys.stdout)
    path = Path(args.output)
    if args.output.endswith(("/", os.sep)) or path.is_dir():
        raise ValueError(f"{args.output}: is a folder: name a file in it")
    if path.is_file() and is_open(path):
        # A new file would replace what has been written there, and lose what will be.
        raise ValueError(f"{args.output}: is open already: leave out --output, or name another")
    if path.exists() and not path.is_file():  # a pipe or a device
        if args.resume or args.restart:
            raise ValueError(f"{path}: not a regular file: nothing of it can be kept")
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
        "score": None if args.score is None else sha256_of(args.score),
        "glossary": None if args.glossary is None else sha256_of(args.glossary),
        "document": sha256_of(args.input) if args.is_document else None,
        "column": args.column or None,
        **asdict(options),
        **{name: getattr(args, name) for name in settings},
    }
    return stack.enter_context(ResumableFile(path, identity, args.resume, args.restart))


def run(args: argparse.Namespace) -> None:
    check_int("batch_size", args.batch_size)
    if args.engine == "mt":  # another engine's has no name
        args.model = list(map(str, find_models("mt.translate", args.model)))
    options = search_options(args, load_search_defaults(args.model[0]))  # before slow work
    if args.output is not None:
        check_folder(Path(args.output))
    if args.text is not None:
        run_continuation(args, options)
        return
    for file in filter(os.path.isfile, args.sentences[:1]):
        name = shlex.quote(file)
        print(f"mt.translate: these are words: --input {name} translates the file", file=sys.stderr)
    with ExitStack() as stack:
        document = load_document(args.input, args.column) if args.is_document else None
        stream = None
        if document is None and not args.sentences:
            stream = open_input(args.input, stack)
        is_typed = document is None and (stream is None or stream.isatty())
        set_defaults(args, is_typed)
        targets = open_targets(args, stream, stack) if args.score is not None else None
        # A person at a prompt waits for the answer, and C++ would not change it in float32.
        with compiling(not is_typed or args.precision != "float32"):
            translator = load_translator(args)
        terms = term_rules(args, translator.languages)
        if args.samples or args.alternatives:  # what a document keeps needs beam search
            terms = TermRules()
        translate = partial(
            translator.translate, options=options, split=args.split, terms=terms,
            batch_size=args.batch_size,
        )  # fmt: skip

        def process(lines: list[str], targets: list[str], update: Progress) -> list[Translation]:
            if args.score is not None:
                return translator.score(lines, targets, options.alpha, args.batch_size, update)
            prefixes = None if args.prefix is None else [args.prefix] * len(lines)
            return translate(lines, prefixes=prefixes, on_progress=update)

        # After all that may fail, because it begins a new file:
        output = open_output(args, options, stream, stack)
        if document is not None:
            run_document(args, document, translate, output, stack)
        else:
            run_lines(args, process, stream, targets, output, stack)


def set_defaults(args: argparse.Namespace, is_typed: bool) -> None:
    """Set --split and --keep where the command line does not, by where the text comes from."""
    if args.split is None:  # people type several sentences in a line, a corpus has one
        args.split = args.score is None and (is_typed or args.is_document)
    if args.keep is None:
        args.keep = args.is_document or (is_typed and args.output is None)
        args.keep &= args.score is None and args.engine == "mt"
        if args.decimal != "either" and not args.keep:
            raise ValueError("--decimal says how --keep writes numbers: add --keep")


def run_continuation(args: argparse.Namespace, options: SearchOptions) -> None:
    """Print texts that begin with --continue."""
    options = replace(options, n_best=options.samples or 1)
    most = CONTINUATION_TOKENS if args.max_length is None else args.max_length
    result = load_translator(args).continue_text(args.text, options, most)
    print(render(result, 1, args) if args.json else "\n".join(text for text, _ in result.n_best))


def run_document(
    args: argparse.Namespace,
    document: Document,
    translate: Callable[..., list[Translation]],
    output: Stream | ResumableFile,
    stack: ExitStack,
) -> None:
    if not isinstance(output, ResumableFile):
        raise ValueError(f"{args.output}: not a regular file: a document is written whole")
    for remark in document.remarks:
        print(f"mt.translate: {args.input}: {remark}", file=sys.stderr)
    update = progress_bar(len(document.segments), "texts", sys.stderr.isatty(), stack)
    has_left = False
    records = translate_document(
        document, partial(translate, on_progress=update), output, partial(update, total=True)
    )
    for record in records:
        if args.json and not has_left:
            try:
                print(json.dumps(record, ensure_ascii=False))
            except BrokenPipeError:  # the reader of the JSON has ended, the document goes on
                console.discard_output()
                has_left = True


def run_lines(
    args: argparse.Namespace,
    process: Callable[[list[str], list[str], Progress], list[Translation]],
    stream: BinaryIO | None,
    targets: Iterator[str] | None,
    output: Stream | ResumableFile,
    stack: ExitStack,
) -> None:
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
            results = process(lines, block_targets[-len(lines) :], update)
            rendered = [render(result, number + i, args) for i, result in enumerate(results, 1)]
            output.write(lines, "".join(f"{line}\n" for line in rendered))
            number += len(lines)
        update(number, total=True)
    if targets is not None and next(targets, None) is not None:
        raise ValueError(f"{args.score}: more lines than the {number:,} of the input")


def open_targets(
    args: argparse.Namespace, stream: BinaryIO | None, stack: ExitStack
) -> Iterator[str]:
    """The translations to score, a line at a time."""
    score_stream = open_input(args.score, stack)
    if stream is not None and is_same_pipe(stream, score_stream):
        raise ValueError(f"{args.score}: the sources come from there too")
    if args.input is not None and all(Path(file).is_file() for file in (args.input, args.score)):
        targets, sources = (count_lines(Path(file)) for file in (args.score, args.input))
        if targets != sources:  # known before hours of work
            advice = f"{args.input} has {sources:,}: give one translation for each line"
            raise ValueError(f"{args.score}: has {targets:,} lines, {advice}")
    return itertools.chain.from_iterable(read_blocks(score_stream, args.score, whole=True))


def source_blocks(
    args: argparse.Namespace, stream: BinaryIO | None, whole: bool
) -> Iterator[list[str]]:
    if stream is None:  # what the shell gave that is not UTF-8 becomes a question mark
        texts = [s.encode("utf-8", "replace").decode("utf-8") for s in args.sentences]
        if args.score is None:
            texts = [line for text in texts for line in split_lines(text.removesuffix("\n"))[0]]
        return iter([texts])
    if stream.isatty():
        print("mt.translate: type a line and Enter, Ctrl-D to end", file=sys.stderr)
    return read_blocks(stream, args.input or "standard input", whole)


def progress(
    args: argparse.Namespace, stream: BinaryIO | None, file: Path | None, stack: ExitStack
) -> Progress:
    """A function that moves a bar on by some lines, or with ``total`` to that many in all.

    The bar appears if standard error is a terminal and nobody types there. A pipe's lines must
    also go elsewhere.
    """
    shown = stream is not None and not stream.isatty() and sys.stderr.isatty()
    if not shown or (file is None and args.output is None and sys.stdout.isatty()):
        return progress_bar(None, "lines", False, stack)
    return progress_bar(None if file is None else count_lines(file), "lines", True, stack)


def progress_bar(total: int | None, unit: str, is_shown: bool, stack: ExitStack) -> Progress:
    if not is_shown:
        return lambda number, total=False: None
    bar = stack.enter_context(console.progress_bar(total, unit))

    def update(number: float, total: bool = False) -> None:
        bar.update(number - bar.n if total else number)

    return update


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if sys.stderr is None:  # closed by `2>&-`; print would write to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    logging.basicConfig(format="mt.translate: %(message)s", stream=sys.stderr)
    console.write_utf8()

    def run_within_memory() -> None:
        advice = "give a smaller --batch-size or --beam-size"
        with console.within_memory(advice), console.interrupt_at_termination():
            run(args)

    return console.exit_status("mt.translate", run_within_memory)


if __name__ == "__main__":
    sys.exit(main())
