"""Lines in, from a pipe, a prompt or a file, and lines out to a file that can be resumed."""

import codecs
import gzip
import hashlib
import json
import logging
import os
import queue
import re
import reprlib
import stat
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from mt.utils.atomic import atomic_write, only_writer, partial_path
from mt.utils.checks import check_int
from mt.utils.json_io import read_json

log = logging.getLogger(__name__)

# A file of any size fits in memory:
BLOCK = 2048  # most lines translated together
BLOCK_BYTES = 2**20  # a block ends with the line that reaches this
LONG_LINE = 2**14  # bytes of a line that waits to be read alone, not in a queue of them
MAX_LINE = 2**24  # most bytes of a line; a device gives one without an end
HASH = re.compile("[0-9a-f]{64}")  # of a file: SHA-256


def without_mark(line: bytes) -> bytes:
    """A first line without the mark of the byte order, which some editors put there."""
    return line.removeprefix(codecs.BOM_UTF8)


def open_input(path: str | None, stack: ExitStack) -> BinaryIO:
    """Open a file or standard input. Only a regular file is closed when the program ends.

    Closing the others would wait for the thread that waits for their next line.
    """
    if path is None:
        if sys.stdin is None:
            raise ValueError("standard input is closed: name a file")
        return open(sys.stdin.fileno(), "rb", closefd=False)
    stream = open(path, "rb")  # noqa: SIM115
    if Path(path).is_file():
        stack.enter_context(stream)
    return stream


def is_same_pipe(one: BinaryIO, other: BinaryIO) -> bool:
    """Whether two streams would take lines from each other, as those of a file do not."""
    status = os.fstat(one.fileno())
    return not stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(other.fileno()))


def read_blocks(stream: BinaryIO, name: str, whole: bool = False) -> Iterator[list[str]]:
    r"""Yield blocks of the lines that wait to be read, up to BLOCK, without waiting for more.

    So a prompt is answered line by line and a pipe in large blocks. With ``whole``, as for a
    file, every block but the last is full. Lines end at \n alone; a \r before it is dropped.
    Raises ValueError with the number of a line that is not UTF-8 or too long, when its block is
    due; in what is typed, U+FFFD stands for bytes that are not UTF-8.
    """
    errors = "replace" if stream.isatty() else "strict"
    lines: queue.Queue[bytes] = queue.Queue(maxsize=BLOCK)
    failure: list[Exception] = []

    def read() -> None:
        try:
            for line in _raw_lines(stream, name):
                lines.put(line)
                if len(line) > LONG_LINE:
                    lines.join()
        except Exception as error:
            failure.append(error)
        lines.put(b"")  # marks the end: a line has at least its line break

    def get() -> bytes:
        line = lines.get()
        lines.task_done()
        return line

    threading.Thread(target=read, daemon=True).start()
    done = 0
    for line in iter(get, b""):
        block, size = [line], len(line)
        while block[-1] and len(block) < BLOCK and size < BLOCK_BYTES:
            if not whole and lines.empty():
                break
            block.append(get())
            size += len(block[-1])
        numbered = enumerate(filter(None, block), start=done + 1)
        texts = [_decode(raw, name, number, errors) for number, raw in numbered]
        done += len(texts)
        yield texts
        if not block[-1]:
            break
    if failure:
        raise failure[0]


def _raw_lines(stream: BinaryIO | gzip.GzipFile, name: str | Path) -> Iterator[bytes]:
    """The lines with their ends. ValueError with the number of one that is too long.

    The mark of the byte order is no text of the first one, and no line is empty.
    """
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise ValueError(f"{name}, line {number}: longer than {MAX_LINE:,} bytes")
        yield line if number > 1 else without_mark(line) or b"\n"


def count_lines(path: Path) -> int:
    """The number of lines of a regular file; a last line without a line break counts."""
    count, last = 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _decode(line: bytes, name: str | Path, number: int, errors: str = "strict") -> str:
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors)
    except UnicodeDecodeError as error:
        message = f"{name}, line {number}: not UTF-8 ({error.reason}): save it as UTF-8"
        raise ValueError(message) from None


class Stream:
    """Output that cannot be resumed: a terminal, a pipe, a device."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def skip(self, sources: list[str]) -> list[str]:
        return sources

    def write(self, sources: list[str], text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def check_folder(path: Path) -> None:
    """Raise FileNotFoundError where there is no folder for the file, or for that of a link."""
    path = path.resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")


def _other(name: str, old: Any, new: Any) -> str:
    """How an earlier run was begun; hashes of files say nothing to people."""
    if not (_is_hash(old) or _is_hash(new)):
        return f"with {name}={reprlib.repr(old)}, not {new!r}"
    if old is None:
        return f"without a {name}"
    return f"with a {name}" if new is None else f"with another {name}, or before it changed"


def _is_hash(value: Any) -> bool:
    """Whether a value is the hash of a file, or those of several."""
    if isinstance(value, list) and value:
        return all(map(_is_hash, value))
    return isinstance(value, str) and HASH.fullmatch(value) is not None


def _copy_mode(path: Path, new: Path, more: int = 0) -> None:
    """Let a file that will replace ``path`` be as private as that, but for the bits of ``more``."""
    with suppress(OSError):
        new.chmod(stat.S_IMODE(path.stat().st_mode) | more)


class ResumableFile:
    """A file that takes its name when all is written. An interrupted run keeps its lines.

    The lines lie beside the file in ``.NAME.partial``. A record, ``.NAME.partial.json``, holds the
    numbers and the hashes of the source lines done and of what was written for them, and how they
    were translated (``identity``). With ``resume`` the next run continues after these lines, or
    begins when there are none. It writes again what the record does not count. ``restart`` drops
    the lines.

    Raises OSError when the file cannot be written or another process is writing it, ValueError
    when it cannot be resumed, or when there are lines and neither is wanted.
    """

    def __init__(
        self, path: Path, identity: dict[str, Any], resume: bool = False, restart: bool = False
    ) -> None:
        self.path = path.resolve()  # a link stays a link
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder, not a file")
        check_folder(self.path)
        self.partial, self.record = self.temporary_files(self.path)
        self.identity = identity
        self.num_kept = 0  # source lines whose translations are in the partial file
        self.num_skipped = 0  # the part of these that this run has read again
        self.num_bytes = 0  # size of these translations
        self.kept_sha256: str | None = None  # hash of these source lines
        self.sha256 = hashlib.sha256()  # running hash of the source lines read
        self.output_sha256 = hashlib.sha256()  # running hash of what is written
        self.content: bytes | None = None  # instead of the lines
        self.is_other = False  # whether the kept lines are those of another input
        with ExitStack() as stack:
            try:
                stack.enter_context(only_writer(self.path))
                is_begun = not restart and self._read_record(resume)
                if not is_begun:  # remove the record first: it must not outlive the lines it counts
                    self.record.unlink(missing_ok=True)
                    self.partial.unlink(missing_ok=True)  # it may be a link to another file
                partial_path(self.record).unlink(missing_ok=True)  # or its name is too long
                self.stream: BinaryIO = self.partial.open("r+b" if is_begun else "xb")
            except OSError as error:
                if error.strerror is None:
                    raise
                raise OSError(f"{self.path} cannot be written: {error.strerror}") from None
            _copy_mode(self.path, self.partial, stat.S_IWUSR)  # which --resume needs
            self.stream.truncate(self.num_bytes)
            self.stream.seek(self.num_bytes)
            self.lock = stack.pop_all()

    @staticmethod
    def temporary_files(path: Path) -> tuple[Path, Path]:
        """Where the lines and the record lie until all is written."""
        partial = partial_path(path)
        return partial, partial.with_name(f"{partial.name}.json")

    def _read_record(self, resume: bool) -> bool:
        """Whether an interrupted run left lines. ValueError when they cannot be continued."""
        if not all(p.is_file() and not p.is_symlink() for p in (self.record, self.partial)):
            if resume and self.path.exists():
                raise ValueError(
                    f"{self.path} is complete, nothing was cut short: leave out --resume"
                )
            return False
        try:
            record = read_json(self.record)
            kept_identity, self.kept_sha256 = dict(record["identity"]), record["sha256"]
            self.num_kept, self.num_bytes = record["lines"], record["bytes"]
            check_int("lines", self.num_kept)
            check_int("bytes", self.num_bytes, self.num_kept)
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.record} is damaged: begin anew with --restart") from None
        if not resume:
            raise ValueError(
                f"{self.path}: an interrupted run has kept {self.num_kept:,} line(s): "
                "continue with --resume, or begin anew with --restart"
            )
        if self.partial.stat().st_size < self.num_bytes:
            raise ValueError(f"{self.partial} is cut short: begin anew with --restart")
        for name, new in self.identity.items():
            if (old := kept_identity.get(name)) != new:
                raise ValueError(
                    f"{self.path}: begun {_other(name, old, new)}: give the same again, or begin "
                    "anew with --restart"
                )
        num_lines = self._hash_kept()
        # The records of version 0.1 have no hash of what was written.
        sha256 = record.get("output_sha256", self.output_sha256.hexdigest())
        if num_lines < self.num_kept or sha256 != self.output_sha256.hexdigest():
            raise ValueError(f"{self.partial} is damaged: begin anew with --restart")
        return True

    def kept_lines(self) -> Iterator[str]:
        """What an interrupted run has written; to be read before anything is."""
        for line in self.partial.read_bytes()[: self.num_bytes].splitlines():
            yield line.decode("utf-8")

    def _hash_kept(self) -> int:
        """Hash what the record counts of the partial file; the number of its lines."""
        num_lines, left, block = 0, self.num_bytes, b""
        with self.partial.open("rb") as stream:
            while left > 0 and (block := stream.read(min(left, 2**20))):
                self.output_sha256.update(block)
                num_lines += block.count(b"\n")
                left -= len(block)
        return num_lines if block.endswith(b"\n") else 0

    def skip(self, sources: list[str]) -> list[str]:
        """The part of the next source lines that the file does not have yet.

        Raises ValueError when the lines that it has were translated from different ones.
        """
        known = sources[: self.num_kept - self.num_skipped]
        self._hash(known)
        self.num_skipped += len(known)
        complete = self.num_skipped == self.num_kept
        if known and complete and self.sha256.hexdigest() != self.kept_sha256:
            self.is_other = True
            raise ValueError(f"{self.path}: begun with another input: begin anew with --restart")
        return sources[len(known) :]

    def write(self, sources: list[str], text: str) -> None:
        """Write the translations of the next source lines, then the record that counts them."""
        self._hash(sources)
        content = text.encode("utf-8")
        self.output_sha256.update(content)
        self.stream.write(content)
        self.stream.flush()
        os.fsync(self.stream.fileno())
        record = {
            "identity": self.identity,
            "lines": self.num_kept + len(sources),
            "bytes": self.stream.tell(),
            "sha256": self.sha256.hexdigest(),
            "output_sha256": self.output_sha256.hexdigest(),
        }
        atomic_write(self.record, json.dumps(record))
        self.num_kept = self.num_skipped = self.num_kept + len(sources)

    def replace(self, content: bytes) -> None:
        """The file gets this content, which was made from the lines, and not the lines."""
        self.content = content

    def __enter__(self) -> "ResumableFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.lock:
            with nullcontext() if kind is None else suppress(OSError):  # write() told of it
                self.stream.close()
            partial_path(self.record).unlink(missing_ok=True)  # left by a killed run
            if kind is None and self.num_skipped < self.num_kept:
                raise ValueError(
                    f"{self.path}: begun with a longer input: begin anew with --restart"
                )
            if kind is None:
                self._complete()
            elif self.num_kept:
                if not self.is_other:
                    log.warning(
                        f"{self.num_kept:,} lines are translated and kept: continue with --resume"
                    )
                return
            self.partial.unlink(missing_ok=True)
            self.record.unlink(missing_ok=True)

    def _complete(self) -> None:
        if self.content is None:
            _copy_mode(self.path, self.partial)
            self.partial.replace(self.path)
            return
        whole = partial_path(self.partial)
        try:
            with whole.open("wb") as stream:
                _copy_mode(self.path, whole)
                stream.write(self.content)
            whole.replace(self.path)
        finally:
            whole.unlink(missing_ok=True)

    def _hash(self, sources: list[str]) -> None:
        for line in sources:
            self.sha256.update(line.encode("utf-8") + b"\n")


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    r"""The lines of a UTF-8 file, gzip when its name ends in .gz, as ``wc -l`` counts them.

    Lines end at \n and a \r before it is dropped; a lone \r, U+2028 and the like are text.
    Raises ValueError with the number of the first line that is not UTF-8 or too long.
    """
    path = Path(path)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
        number = 0
        try:
            for number, raw in enumerate(_raw_lines(stream, path), start=1):
                yield _decode(raw, path, number)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: damaged gzip: {error}") from None
