"""An actor's work: a block is read, computed and written as a part, with a record of it."""

import hashlib
import json
import os
import uuid
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mt.corpora.files import Block, BlockReader, filesystem, format_of, is_local
from mt.corpora.operations import Compute, Operation
from mt.corpora.rows import Rows
from mt.utils.console import within_memory
from mt.utils.json_io import parse_json

MOST_TRIES = 10  # of a block


class Part(NamedTuple):
    """What the record of a part says. ``errors`` are the lines of errors.jsonl, as objects."""

    number: int
    rows_read: int
    rows: int  # written
    sha256: str
    errors: list[dict[str, Any]]
    dropped: dict[str, int]  # by the rule that left the rows out


def part_path(folder: str, number: int) -> str:
    return f"{folder}/{number:08d}.part"


def record_path(folder: str, number: int) -> str:
    return f"{folder}/{number:08d}.json"


def parse_record(content: bytes) -> Part:
    """Raises ValueError for a damaged one."""
    try:
        return Part(**parse_json(content))
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
        self.operation, self.folder, self.kind = operation, folder, kind
        self.threads, self.run_name = threads, run
        self.reader = BlockReader()
        self._compute: Compute | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Blocks as JSON in, records as JSON out: Ray Data's function of a batch.

        A user's mistake comes back as the column's text {"failure": ...}, since Ray would wrap the
        exception in its own, with tracebacks of its processes.
        """
        return {"record": [self._answer(block) for block in batch["block"]]}

    def _answer(self, block: str) -> str:
        try:
            return json.dumps(self.run(Block(*json.loads(block)))._asdict())
        except (ValueError, OSError, MemoryError) as error:
            return json.dumps({"failure": str(error) or type(error).__name__})

    def run(self, block: Block) -> Part:
        """Raises OSError or ValueError when it cannot be read, computed or written."""
        fs, _ = filesystem(self.folder)
        record = record_path(self.folder, block.number)
        if fs.exists(record):
            return parse_record(fs.cat_file(record))
        tries = self._count_try(block)
        rows = self.reader.read(block, self.operation.columns[0])
        size = len(rows)
        if size != block.rows:
            raise ValueError(f"{block.path}: has changed since the run began")
        with within_memory("give fewer --threads or a smaller --batch-size"):
            rows, dropped = self.compute(rows)
        content = self._content(rows, self.kind or format_of(block.path).kind)
        part = Part(
            block.number, size, len(rows), hashlib.sha256(content).hexdigest(),
            _errors(block, rows), dict(dropped),
        )  # fmt: skip
        write_whole(part_path(self.folder, block.number), content)
        write_whole(record, json.dumps(part._asdict()).encode())
        if fs.exists(tries):
            fs.rm_file(tries)
        return part

    def _count_try(self, block: Block) -> str:
        """Count a try in a file. Ray gives a block to the next actor however many have died.

        Raises ValueError for one try too many.
        """
        path = f"{self.folder}/{block.number:08d}.tries.{self.run_name}"
        fs, inner = filesystem(path)
        tries = int(fs.cat_file(inner)) if fs.exists(inner) else 0
        if tries == MOST_TRIES:
            raise ValueError(
                f"{tries} actors died over rows {block.first + 1:,} to "
                f"{block.first + block.rows:,} of {block.path}, probably of too little memory: "
                "give fewer --actors or a smaller --batch-size"
            )
        write_whole(path, b"%d" % (tries + 1))
        return inner

    @property
    def compute(self) -> Compute:
        """The operation, loaded when the first block comes: its errors are then an answer."""
        if self._compute is None:
            import torch

            torch.set_num_threads(self.threads)
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


def write_whole(path: str, content: bytes) -> None:
    """Write a file under another name, then rename it; the name is its own, should two write."""
    fs, inner = filesystem(path)
    partial = f"{inner}.{uuid.uuid4().hex}"
    if is_local(fs):
        with open(partial, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, inner)
    else:
        fs.pipe_file(inner, content)  # an object of a store appears whole


def _errors(block: Block, rows: Rows) -> list[dict[str, Any]]:
    return [
        {"file": block.path, "number": block.first + i + 1, "reason": bad.reason, "text": bad.text}
        for i, bad in sorted(rows.bad.items())
    ]
