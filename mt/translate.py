"""python -m mt.translate: sentences from arguments, a pipe, a file or a prompt, translated.

One line out for every line in, in order. Imports neither Lightning nor Hydra nor `datasets`: it
must start at once.
"""

import argparse
import io
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from mt import checkpoint
from mt.search import SearchOptions
from mt.translator import Translation, Translator

BLOCK = 2048  # lines translated together at most, so that a file of any size fits in memory


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mt.translate",
        description="Translate sentences given as arguments, or lines of standard input or a file.",
    )
    add = parser.add_argument
    add("sentences", nargs="*", metavar="SENTENCE")
    add("--model", help="model folder or checkpoint (default: the newest under outputs/)")
    add("--input", metavar="FILE", help="read lines from FILE")
    add("--output", metavar="FILE", help="write to FILE, which appears when all is translated")
    add("--beam-size", type=int, default=4, help="hypotheses kept; 1 is greedy (default 4)")
    add("--alpha", type=float, default=0.6, help="length penalty (default 0.6)")
    add("--batch-size", type=int, default=64, help="sentences at a time (default 64)")
    add("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    add("--n-best", type=int, help="print N translations: line number, score, text, by tabs")
    add("--json", action="store_true", help="print a JSON object a line, with scores")
    args = parser.parse_args(argv)
    if args.sentences and args.input is not None:
        parser.error("give sentences or --input, not both")
    return args


def read_blocks(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    r"""Lines as they come: all that wait to be read, up to BLOCK, but never waiting for more.

    So a prompt is answered line by line and a file in large blocks. Lines end at \n alone, and
    a \r before it goes with it. Raises ValueError naming a line that is not UTF-8.
    """
    lines: queue.Queue[bytes] = queue.Queue(maxsize=BLOCK)
    failure: list[Exception] = []

    def read() -> None:
        try:
            for line in stream:
                lines.put(line)
        except Exception as error:
            failure.append(error)
        lines.put(b"")  # the end: no line is that empty

    threading.Thread(target=read, daemon=True).start()
    done = 0
    for line in iter(lines.get, b""):
        block = [line]
        while len(block) < BLOCK and block[-1] and not lines.empty():
            block.append(lines.get())
        texts = [_decode(raw, name, done + i) for i, raw in enumerate(block, start=1) if raw]
        done += len(texts)
        yield texts
        if not block[-1]:
            break
    if failure:
        raise failure[0]


def _decode(line: bytes, name: str, number: int) -> str:
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}, line {number}: not UTF-8 ({error.reason})") from None


@contextmanager
def opened_input(path: str | None) -> Iterator[BinaryIO]:
    if path is None:
        if sys.stdin is None:
            raise ValueError("standard input is closed: give sentences or --input")
        yield sys.stdin.buffer
    else:
        with open(path, "rb") as stream:
            yield stream


@contextmanager
def opened_output(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that takes its name only when everything has been written."""
    if path is None:
        yield sys.stdout
        return
    target = Path(path).resolve()  # a link stays a link
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, not a file")
    if target.exists() and not target.is_file():  # a pipe or a device
        with target.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}")
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        stream = partial.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise OSError(f"{target} cannot be written: {error.strerror}") from None
    try:
        with stream:
            yield stream
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def render(result: Translation, number: int, args: argparse.Namespace) -> str:
    if args.json:
        record = {"source": result.source, "translation": result.text, "score": result.score}
        if args.n_best:
            record["n_best"] = [{"translation": t, "score": s} for t, s in result.n_best]
        return json.dumps(record, ensure_ascii=False)
    if args.n_best:
        return "\n".join(f"{number}\t{score:.4f}\t{text}" for text, score in result.n_best)
    return result.text


def run(args: argparse.Namespace) -> None:
    n_best = 1 if args.n_best is None else args.n_best
    SearchOptions(args.beam_size, args.alpha, n_best)  # wrong options show at once
    path = args.model
    if path is None:
        path = checkpoint.latest()
        print(f"mt.translate: model {path}", file=sys.stderr)
    with opened_input(args.input) as source, opened_output(args.output) as output:
        translator = Translator.load(path, args.device)
        if args.sentences:
            blocks = iter([args.sentences])
        else:
            if source.isatty():
                print("mt.translate: one sentence a line, Ctrl-D to end", file=sys.stderr)
            blocks = read_blocks(source, args.input or "standard input")
        number = 0
        for block in blocks:
            for result in translator.translate(
                block, args.beam_size, args.alpha, n_best, args.batch_size
            ):
                number += 1
                print(render(result, number, args), file=output)
            output.flush()


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    logging.basicConfig(format="mt.translate: %(message)s", stream=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input is, whatever the locale
    try:
        run(args)
    except BrokenPipeError:  # the reader, say `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        print(f"mt.translate: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
