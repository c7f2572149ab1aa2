"""Lines in, from a pipe, a prompt or a file, and lines out to a file that can be resumed."""

import gzip
import hashlib
import json
import logging
import os
import queue
import threading
import zlib
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

log = logging.getLogger(__name__)

BLOCK = 2048  # lines translated together at most, so that a file of any size fits in memory


def read_blocks(stream: BinaryIO, name: str, whole: bool = False) -> Iterator[list[str]]:
    r"""Lines as they come: all that wait to be read, up to BLOCK, but never waiting for more.

    So a prompt is answered line by line and a pipe in large blocks; ``whole`` blocks, as a file
    has them, are always full but for the last. Lines end at \n alone, and a \r before it goes with
    it. Raises ValueError naming a line that is not UTF-8, in the place of its block.
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
        while len(block) < BLOCK and block[-1] and (whole or not lines.empty()):
            block.append(lines.get())
        texts = [_decode(raw, name, done + i) for i, raw in enumerate(block, start=1) if raw]
        done += len(texts)
        yield texts
        if not block[-1]:
            break
    if failure:
        raise failure[0]


def count_lines(path: Path) -> int:
    """Lines of a regular file, a last one without its line break counted."""
    count, last = 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _decode(line: bytes, name: str, number: int) -> str:
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}, line {number}: not UTF-8 ({error.reason})") from None


class Stream:
    """Output that cannot be resumed: a terminal, a pipe, a device."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def skip(self, sources: list[str]) -> list[str]:
        return sources

    def write(self, sources: list[str], text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class ResumableFile:
    """A file that takes its name when all is written. A run that is cut short keeps its lines.

    They lie beside it in ``.NAME.partial``, with a record of how many source lines they are, what
    these were, and how they were translated (``identity``). With ``resume`` the next run goes on
    behind them, or begins when there are none; what was written beyond the record is written again.

    Raises OSError when the file cannot be written, ValueError when it cannot be resumed.
    """

    def __init__(self, path: Path, identity: dict[str, Any], resume: bool = False) -> None:
        self.path = path.resolve()  # a link stays a link
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder, not a file")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"{self.path}: there is no folder {self.path.parent}")
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.record = self.path.with_name(f".{self.path.name}.partial.json")
        self.new_record = self.record.with_suffix(".new")
        self.identity = identity
        self.kept = 0  # source lines whose translations are in the partial file
        self.skipped = 0  # of these, source lines that were read again
        self.size = 0  # bytes that they are
        self.digest: str | None = None  # of these source lines
        self.seen = hashlib.sha256()  # source lines up to now
        resume = resume and self._resume()
        try:
            if not resume:  # the record goes first: it must not outlive what it is about
                self.record.unlink(missing_ok=True)
            self.stream: BinaryIO = self.partial.open("r+b" if resume else "wb")
        except OSError as error:
            raise OSError(f"{self.path} cannot be written: {error.strerror}") from None
        self.stream.truncate(self.size)
        self.stream.seek(self.size)

    def _resume(self) -> bool:
        """Whether there is something to go on from."""
        if not self.record.is_file() or not self.partial.is_file():
            if self.path.exists():
                raise ValueError(f"{self.path}: is there, and nothing was cut short: no --resume")
            return False
        try:
            record = json.loads(self.record.read_text("utf-8"))
            begun, self.digest = record["identity"], record["sha256"]
            self.kept, self.size = record["lines"], record["bytes"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.record}: damaged: begin anew without --resume") from None
        if self.partial.stat().st_size < self.size:
            raise ValueError(f"{self.partial}: cut short: begin anew without --resume")
        for name, new in self.identity.items():
            if (old := begun.get(name)) != new:
                raise ValueError(
                    f"{self.path}: begun with {name}={old!r}, not {new!r}: give the same again, "
                    "or begin anew without --resume"
                )
        return True

    def skip(self, sources: list[str]) -> list[str]:
        """Those of the next source lines that are still to be translated.

        Raises ValueError when the others are not those that were translated.
        """
        known = sources[: self.kept - self.skipped]
        self._see(known)
        self.skipped += len(known)
        if known and self.skipped == self.kept and self.seen.hexdigest() != self.digest:
            raise ValueError(f"{self.path}: begun with another input: begin anew without --resume")
        return sources[len(known) :]

    def write(self, sources: list[str], text: str) -> None:
        """Translations of the next source lines, and the record of them."""
        self._see(sources)
        self.stream.write(text.encode("utf-8"))
        self.stream.flush()
        os.fsync(self.stream.fileno())
        record = {
            "identity": self.identity,
            "lines": self.kept + len(sources),
            "bytes": self.stream.tell(),
            "sha256": self.seen.hexdigest(),
        }
        self.new_record.write_text(json.dumps(record), "utf-8")
        self.new_record.replace(self.record)
        self.kept = self.skipped = self.kept + len(sources)

    def __enter__(self) -> "ResumableFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with nullcontext() if kind is None else suppress(OSError):  # a full disk was told already
            self.stream.close()
        self.new_record.unlink(missing_ok=True)
        if kind is None and self.skipped < self.kept:
            raise ValueError(f"{self.path}: begun with a longer input: begin anew without --resume")
        if kind is None:
            self.partial.replace(self.path)
        elif self.kept:
            log.warning(f"{self.kept:,} lines are translated and kept: go on with --resume")
            return
        self.partial.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)

    def _see(self, sources: list[str]) -> None:
        for line in sources:
            self.seen.update(line.encode("utf-8") + b"\n")


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    r"""The lines of a UTF-8 file, gzip when its name ends in .gz, as ``wc -l`` counts them.

    Lines end at \n, a \r before it goes with it; a lone \r, U+2028 and the like are text.
    Raises ValueError naming the first line that is not UTF-8.
    """
    path = Path(path)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as stream:
        number = 0
        try:
            for number, raw in enumerate(stream, start=1):
                line = raw.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # the mark some editors put first
                yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: damaged gzip: {error}") from None
