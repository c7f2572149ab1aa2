"""An actor's work: a block is read, computed and written as a part, with a record of it."""

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mt.corpora.files import Block, BlockReader, filesystem, format_of, is_local
from mt.corpora.operations import Compute, Operation
from mt.corpora.rows import Rows
from mt.utils.console import describe, first_line, within_memory
from mt.utils.json_io import parse_json

MOST_TRIES = 10  # of a block


class BlockRecord(NamedTuple):
    """What the record of a part says. ``errors`` are the lines of errors.jsonl, as objects."""

    number: int
    rows_read: int
    rows: int  # written
    sha256: str
    errors: list[dict[str, Any]]
    dropped: dict[str, int]  # by the rule that left the rows out
    warnings: int  # of the translator, which nobody sees in an actor
    first_warning: str


def part_path(folder: str, number: int) -> str:
    return f"{folder}/{number:08d}.part"


def record_path(folder: str, number: int) -> str:
    return f"{folder}/{number:08d}.json"


def parse_record(content: bytes) -> BlockRecord:
    """Raises ValueError for a damaged one."""
    try:
        return BlockRecord(**parse_json(content))
    except TypeError as error:
        raise ValueError(str(error)) from None


class Worker:
    """Computes blocks. A block that has its record is not computed again.

    So it does no harm if Ray gives a block to another actor, whose first one has died. The record
    comes after the part, and both appear whole. ``folder`` may be on another machine (fsspec).
    """

    def __init__(
        self,
        operation: Operation,
        folder: str,
        kind: str | None,
        threads: int = 1,
        run: str = "",
    ) -> None:
        """``kind`` is that of the parts (``mt.corpora.files``); None is that of their input.

        ``run`` is a name that all workers of a run have, by which they count the tries of a block.
        """
        self.operation, self.kind, self.threads, self.run = operation, kind, threads, run
        self.fs, self.folder = filesystem(folder)
        self.reader = BlockReader()
        self._compute: Compute | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Blocks as JSON in, records as JSON out: Ray Data's function of a batch.

        A user's mistake comes back as the column's text {"failure": ...}, since Ray would wrap the
        exception in its own, with tracebacks of its processes.
        """
        return {"record": [self._answer(block) for block in batch["block"]]}

    def _answer(self, answered: str) -> str:
        block = Block(*json.loads(answered))
        try:
            return json.dumps(self.make_part(block)._asdict())
        except Exception as error:
            if isinstance(error, ValueError | OSError) and not isinstance(error, pa.ArrowException):
                failure = describe(error)
            else:  # of a library, or a mistake of our own
                failure = f"{_named(block)}: {type(error).__name__}: {first_line(error)}"
            return json.dumps({"failure": failure})

    def make_part(self, block: Block) -> BlockRecord:
        """Raises OSError or ValueError when it cannot be read, computed or written."""
        record = record_path(self.folder, block.number)
        if self.fs.exists(record):
            return parse_record(self.fs.cat_file(record))
        tries = self._count_try(block)
        rows = self.reader.read(block, self.operation.columns[0])
        size = len(rows)
        if size != block.rows:
            raise ValueError(f"{block.path}: has changed since the run began")
        advice = "give fewer --actors or a smaller --batch-size"
        with _warnings() as warnings, within_memory(advice):
            rows, dropped = self.compute(rows)
        content = self._content(rows, self.kind or format_of(block.path).kind)
        part = BlockRecord(
            block.number, size, len(rows), hashlib.sha256(content).hexdigest(),
            _errors(block, rows), dict(dropped), len(warnings), "".join(warnings[:1]),
        )  # fmt: skip
        write_whole(self.fs, part_path(self.folder, block.number), content)
        write_whole(self.fs, record, json.dumps(part._asdict()).encode())
        if self.fs.exists(tries):
            self.fs.rm_file(tries)
        return part

    def _count_try(self, block: Block) -> str:
        """Count a try in a file. Ray gives a block to the next actor however many have died.

        Raises ValueError for one try too many.
        """
        path = f"{self.folder}/{block.number:08d}.tries.{self.run}"
        tries = int(self.fs.cat_file(path)) if self.fs.exists(path) else 0
        if tries == MOST_TRIES:
            raise ValueError(
                f"{tries} actors died over {_named(block)}, probably of too little memory: "
                "give fewer --actors or a smaller --batch-size"
            )
        write_whole(self.fs, path, b"%d" % (tries + 1))
        return path

    @property
    def compute(self) -> Compute:
        """The operation, loaded when the first block comes: its errors are then an answer."""
        if self._compute is None:
            self._compute = self.operation.load(self.threads)
        return self._compute

    def _content(self, rows: Rows, kind: str) -> bytes:
        if kind == "text":
            return rows.as_lines(self.operation.result)
        if kind == "json":
            return rows.as_json()
        sink = pa.BufferOutputStream()
        pq.write_table(rows.as_table(), sink)
        return sink.getvalue().to_pybytes()


def write_whole(fs: Any, path: str, content: bytes) -> None:
    """Write a file under another name, then rename it; the name is its own, should two write."""
    if not is_local(fs):
        fs.pipe_file(path, content)  # an object of a store appears whole
        return
    partial = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(partial, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)  # there is one only where that failed


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """A list, which gets what ``mt`` warns of inside the block."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("mt")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def _named(block: Block) -> str:
    return f"rows {block.first + 1:,} to {block.first + block.rows:,} of {block.path}"


def _errors(block: Block, rows: Rows) -> list[dict[str, Any]]:
    return [
        {"file": block.path, "number": block.first + i + 1, "reason": bad.reason, "text": bad.text}
        for i, bad in sorted(rows.bad.items())
    ]
