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

from mt.utils.atomic import atomic_write, partial_path

log = logging.getLogger(__name__)

BLOCK = 2048  # most lines translated together, so that a file of any size fits in memory


def read_blocks(stream: BinaryIO, name: str, whole: bool = False) -> Iterator[list[str]]:
    r"""Yield blocks of the lines that wait to be read, up to BLOCK, without waiting for more.

    So a prompt is answered line by line and a pipe in large blocks. With ``whole``, as for a
    file, every block but the last is full. Lines end at \n alone; a \r before it is dropped.
    Raises ValueError with the number of a line that is not UTF-8, when its block is due.
    """
    lines: queue.Queue[bytes] = queue.Queue(maxsize=BLOCK)
    failure: list[Exception] = []

    def read() -> None:
        try:
            for line in stream:
                lines.put(line)
        except Exception as error:
            failure.append(error)
        lines.put(b"")  # marks the end: a line has at least its line break

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
    """The number of lines of a regular file; a last line without a line break counts."""
    count, last = 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _decode(line: bytes, name: str | Path, number: int) -> str:
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
    """A file that takes its name when all is written. An interrupted run keeps its lines.

    The lines lie beside the file in ``.NAME.partial``. A record, ``.NAME.partial.json``, holds the
    number and the hash of the source lines done and how they were translated (``identity``). With
    ``resume`` the next run continues after these lines, or begins when there are none. It writes
    again what the record does not count.

    Raises OSError when the file cannot be written, ValueError when it cannot be resumed.
    """

    def __init__(self, path: Path, identity: dict[str, Any], resume: bool = False) -> None:
        self.path = path.resolve()  # a link stays a link
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder, not a file")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"{self.path}: there is no folder {self.path.parent}")
        self.partial = partial_path(self.path)
        self.record = self.partial.with_name(f"{self.partial.name}.json")
        self.identity = identity
        self.num_kept = 0  # source lines whose translations are in the partial file
        self.num_skipped = 0  # the part of these that this run has read again
        self.num_bytes = 0  # size of these translations
        self.kept_sha256: str | None = None  # hash of these source lines
        self.sha256 = hashlib.sha256()  # running hash of the source lines read
        resume = resume and self._read_record()
        try:
            if not resume:  # remove the record first: it must not outlive the lines it counts
                self.record.unlink(missing_ok=True)
            self.stream: BinaryIO = self.partial.open("r+b" if resume else "wb")
        except OSError as error:
            raise OSError(f"{self.path} cannot be written: {error.strerror}") from None
        self.stream.truncate(self.num_bytes)
        self.stream.seek(self.num_bytes)

    def _read_record(self) -> bool:
        """Whether an interrupted run left lines. ValueError when they cannot be continued."""
        if not self.record.is_file() or not self.partial.is_file():
            if self.path.exists():
                raise ValueError(
                    f"{self.path} is complete, nothing was cut short: leave out --resume"
                )
            return False
        try:
            record = json.loads(self.record.read_text("utf-8"))
            kept_identity, self.kept_sha256 = record["identity"], record["sha256"]
            self.num_kept, self.num_bytes = record["lines"], record["bytes"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.record} is damaged: begin anew without --resume") from None
        if self.partial.stat().st_size < self.num_bytes:
            raise ValueError(f"{self.partial} is cut short: begin anew without --resume")
        for name, new in self.identity.items():
            if (old := kept_identity.get(name)) != new:
                raise ValueError(
                    f"{self.path}: begun with {name}={old!r}, not {new!r}: give the same again, "
                    "or begin anew without --resume"
                )
        return True

    def skip(self, sources: list[str]) -> list[str]:
        """The part of the next source lines that the file does not have yet.

        Raises ValueError when the lines that it has were translated from different ones.
        """
        known = sources[: self.num_kept - self.num_skipped]
        self._hash(known)
        self.num_skipped += len(known)
        complete = self.num_skipped == self.num_kept
        if known and complete and self.sha256.hexdigest() != self.kept_sha256:
            raise ValueError(f"{self.path}: begun with another input: begin anew without --resume")
        return sources[len(known) :]

    def write(self, sources: list[str], text: str) -> None:
        """Write the translations of the next source lines, then the record that counts them."""
        self._hash(sources)
        self.stream.write(text.encode("utf-8"))
        self.stream.flush()
        os.fsync(self.stream.fileno())
        record = {
            "identity": self.identity,
            "lines": self.num_kept + len(sources),
            "bytes": self.stream.tell(),
            "sha256": self.sha256.hexdigest(),
        }
        atomic_write(self.record, json.dumps(record))
        self.num_kept = self.num_skipped = self.num_kept + len(sources)

    def __enter__(self) -> "ResumableFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with nullcontext() if kind is None else suppress(OSError):  # write() told of a full disk
            self.stream.close()
        partial_path(self.record).unlink(missing_ok=True)  # left by a killed run
        if kind is None and self.num_skipped < self.num_kept:
            raise ValueError(f"{self.path}: begun with a longer input: begin anew without --resume")
        if kind is None:
            self.partial.replace(self.path)
        elif self.num_kept:
            log.warning(f"{self.num_kept:,} lines are translated and kept: continue with --resume")
            return
        self.partial.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)

    def _hash(self, sources: list[str]) -> None:
        for line in sources:
            self.sha256.update(line.encode("utf-8") + b"\n")


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    r"""The lines of a UTF-8 file, gzip when its name ends in .gz, as ``wc -l`` counts them.

    Lines end at \n and a \r before it is dropped; a lone \r, U+2028 and the like are text.
    Raises ValueError with the number of the first line that is not UTF-8.
    """
    path = Path(path)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
        number = 0
        try:
            for number, raw in enumerate(stream, start=1):
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")  # the mark some editors put first
                yield _decode(raw, path, number)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: damaged gzip: {error}") from None
