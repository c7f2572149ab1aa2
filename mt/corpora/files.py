"""The files of a corpus: text, JSON lines and Parquet, here or wherever fsspec reaches.

Ray's own readers hold a whole text file in memory, take U+2028 and the like for ends of lines, and
fail as a whole for one bad row, so the actors read their blocks by these functions.
"""

import gzip
import hashlib
import io
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from mt.corpora.rows import Rows, rows_of_json, rows_of_lines
from mt.data.corpus_reader import is_data_file
from mt.utils.console import first_line
from mt.utils.line_io import BLOCK_BYTES, MAX_LINE, without_mark

KINDS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}  # other names are text's
COMPRESSIONS = (".gz", ".zst")
OTHERS = (".bz2", ".csv", ".tsv", ".xz", ".zip")  # no text with a row a line
KEY_ROWS = 1000  # of JSON lines, in which a column must come
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, pa.ArrowException)


class Format(NamedTuple):
    kind: str  # text, json or parquet
    compression: str  # .gz, .zst or nothing


class Block(NamedTuple):
    """Neighbouring rows of a file, which are read, computed and written together."""

    number: int  # of all blocks, from 0
    path: str
    first: int  # index of its first row in the file
    rows: int
    offset: int  # bytes before it in the file, unpacked; 0 in Parquet


def format_of(path: str) -> Format:
    """What the end of a name says. Raises ValueError for a format that is not read."""
    stem, end = os.path.splitext(path.lower())
    compression = end if end in COMPRESSIONS else ""
    if compression:
        end = os.path.splitext(stem)[1]
    if end in OTHERS:
        supported = "text, .jsonl and .parquet, the former two also .gz or .zst"
        raise ValueError(f"{path}: {end} is not supported, but {supported}")
    kind = KINDS.get(end, "text")
    if kind == "parquet" and compression:
        raise ValueError(f"{path}: Parquet is compressed inside: leave out {compression}")
    return Format(kind, compression)


def filesystem(path: str) -> tuple[Any, str]:
    """fsspec's file system and the path in it. Raises ValueError for one that is not there."""
    try:
        fs, inner = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return fs, inner


def is_local(fs: Any) -> bool:
    """Whether a file system is this machine's own, where files can be renamed and locked."""
    return isinstance(fs, LocalFileSystem)


def find(pattern: str) -> list[str]:
    """The files that a name or a pattern such as 'part-*.parquet' means, sorted.

    Raises FileNotFoundError when there are none.
    """
    fs, inner = filesystem(pattern)
    if fs.isfile(inner):  # whatever marks its name has
        paths = [inner]
    else:
        entries = fs.ls(inner, detail=False) if fs.isdir(inner) else fs.glob(inner)
        files = (path for path in entries if is_data_file(path.rsplit("/", 1)[-1]))
        paths = sorted(filter(fs.isfile, files))
    if not paths:
        raise FileNotFoundError(f"no input: {pattern}")
    return [fs.unstrip_protocol(p) if "://" in pattern else p for p in paths]


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Raise ValueError with the file's name for what its library says of a damaged one."""
    try:
        yield
    except BROKEN as error:
        raise ValueError(f"{path}: damaged: {first_line(error)}") from None
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise
        raise ValueError(f"{path}: damaged: {error}") from None  # Arrow's, of packed text


@contextmanager
def open_lines(path: str) -> Iterator[BinaryIO]:
    """The unpacked bytes of a text or of JSON lines."""
    fs, inner = filesystem(path)
    compression = format_of(path).compression
    # Files of a store have no readline with a limit.
    with io.BufferedReader(fs.open(inner, "rb"), 2**20) as packed:
        if compression == ".gz":
            with gzip.GzipFile(fileobj=packed) as stream:
                yield stream  # type: ignore[misc]
        elif compression == ".zst":
            source = pa.PythonFile(packed, mode="r")
            with io.BufferedReader(pa.CompressedInputStream(source, "zstd"), 2**20) as stream:
                yield stream
        else:
            yield packed


def read_line(stream: BinaryIO) -> tuple[bytes | None, int]:
    """The next line, None if it is too long, and its bytes, 0 at the end of the file."""
    line = stream.readline(MAX_LINE + 1)
    size = len(line)
    if size <= MAX_LINE:
        return line, size
    while line and not line.endswith(b"\n"):
        line = stream.readline(MAX_LINE)
        size += len(line)
    return None, size


class Survey(NamedTuple):
    """What a file of the input has: its rows, the hash of its bytes, and its blocks."""

    rows: int
    sha256: str
    blocks: list[Block]


def survey(path: str, block_rows: int, first_number: int) -> Survey:
    """Read a file once, to divide it into blocks that begin with ``first_number``.

    A block of lines also ends when it has BLOCK_BYTES. Raises OSError when the file cannot be read,
    ValueError when it is damaged.
    """
    with naming(path):
        if format_of(path).kind == "parquet":
            return _survey_parquet(path, block_rows, first_number)
        return _survey_lines(path, block_rows, first_number)


def _survey_lines(path: str, block_rows: int, number: int) -> Survey:
    sha256 = hashlib.sha256()
    blocks: list[Block] = []
    first = rows = offset = start = 0
    with open_lines(path) as stream:
        while True:
            line, size = read_line(stream)
            rows, offset = rows + bool(size), offset + size
            sha256.update(line if line is not None else b"%d" % size)
            full = rows - first == block_rows or offset - start >= BLOCK_BYTES
            if rows > first and (full or not size):
                blocks.append(Block(number + len(blocks), path, first, rows - first, start))
                first, start = rows, offset
            if not size:
                return Survey(rows, sha256.hexdigest(), blocks)


def _survey_parquet(path: str, block_rows: int, number: int) -> Survey:
    fs, inner = filesystem(path)
    sha256 = hashlib.sha256()
    with fs.open(inner, "rb") as stream:
        rows = pq.ParquetFile(stream).metadata.num_rows
        stream.seek(0)
        while content := stream.read(2**20):
            sha256.update(content)
    starts = range(0, rows or 1, block_rows)  # a block without rows keeps the columns
    sizes = [min(block_rows, rows - start) for start in starts]
    blocks = [
        Block(number + i, path, start, size, 0)
        for i, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    return Survey(rows, sha256.hexdigest(), blocks)


class BlockReader:
    """Reads blocks. One that comes after the last one of its file is read on from there.

    So an actor unpacks a compressed file once: nothing can jump in it.
    """

    def __init__(self) -> None:
        self._path = ""
        self._position = 0
        self._opened: Any = None
        self._stream: BinaryIO = io.BytesIO()

    def read(self, block: Block, column: str) -> Rows:
        """The rows; the lines of a text are in ``column``. Raises ValueError if they are gone."""
        with naming(block.path):
            kind = format_of(block.path).kind
            if kind == "parquet":
                return self._read_table(block)
            lines = self._read_lines(block)
        return rows_of_lines(lines, column) if kind == "text" else rows_of_json(lines)

    def _read_lines(self, block: Block) -> list[bytes | None]:
        self._move(block)
        lines: list[bytes | None] = []
        for _ in range(block.rows):
            line, size = read_line(self._stream)
            self._position += size
            if not size:
                raise ValueError(f"{block.path}: has become shorter")
            lines.append(line)
        if block.first == 0 and lines[0] is not None:
            lines[0] = without_mark(lines[0])
        return lines

    def _move(self, block: Block) -> None:
        packed = bool(format_of(block.path).compression)
        if self._path != block.path or (packed and self._position > block.offset):
            self._open(block.path, open_lines(block.path))
        if not packed:
            self._stream.seek(block.offset)
        while packed and self._position < block.offset:
            skipped = len(self._stream.read(min(2**20, block.offset - self._position)))
            if not skipped:
                raise ValueError(f"{block.path}: has become shorter")
            self._position += skipped
        self._position = block.offset

    def _read_table(self, block: Block) -> Rows:
        if self._path != block.path:
            fs, inner = filesystem(block.path)
            self._open(block.path, fs.open(inner, "rb"))
            self._table = TableReader(self._stream)
        return Rows(table=self._table.read(block.first, block.rows))

    def _open(self, path: str, opened: Any) -> None:
        self.close()
        self._opened = opened
        self._stream = opened.__enter__()
        self._path, self._position = path, 0

    def close(self) -> None:
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
        self._path, self._opened = "", None


class TableReader:
    """Reads rows of a Parquet file, by row groups. Rows that follow the last ones are read on."""

    def __init__(self, stream: BinaryIO) -> None:
        """Raises pyarrow.ArrowException for a damaged file."""
        self._file = pq.ParquetFile(stream)
        groups = range(self._file.metadata.num_row_groups)
        sizes = (self._file.metadata.row_group(group).num_rows for group in groups)
        self._starts = list(accumulate(sizes, initial=0))  # of the groups; the last one is the end
        self._position = -1  # of the next row; none is read yet

    def read(self, first: int, rows: int) -> pa.Table:
        """The rows from the index ``first``; fewer where the file ends."""
        group = max(0, bisect_right(self._starts, first, hi=len(self._starts) - 1) - 1)
        if not self._starts[group] <= self._position <= first:
            self._go_to(group)
        self._take(first - self._position)
        return pa.Table.from_batches(self._take(rows), self._file.schema_arrow)

    def _go_to(self, group: int) -> None:
        groups = list(range(group, len(self._starts) - 1))
        self._batches = self._file.iter_batches(batch_size=4096, row_groups=groups)
        self._batch: Any = None
        self._position = self._starts[group]

    def _take(self, rows: int) -> list[Any]:
        taken = []
        while rows:
            if not self._batch:
                self._batch = next(self._batches, None)
            if self._batch is None:
                break
            taken.append(self._batch.slice(0, rows))
            size = len(taken[-1])
            self._batch = self._batch.slice(size)
            self._position += size
            rows -= size
        return taken


def _keys(path: str, wanted: list[str]) -> list[str]:
    """The keys of the first JSON lines, up to the one with the last of those that are wanted."""
    keys: dict[str, None] = {}
    with open_lines(path) as stream:
        for number in range(KEY_ROWS):
            line, size = read_line(stream)
            if not size or keys.keys() >= set(wanted):
                break
            first = number == 0 and line is not None
            (record,) = rows_of_json([without_mark(line) if first and line else line]).records
            keys |= dict.fromkeys(record)
    return list(keys)


def check_columns(path: str, columns: list[str]) -> None:
    """ValueError unless the file has the columns, or JSON lines have them among the first ones."""
    with naming(path):
        kind = format_of(path).kind
        if kind == "text":
            if len(columns) > 1:
                wanted = ", ".join(map(repr, columns))
                raise ValueError(f"{path}: a text is one column, not {wanted}: give .jsonl")
            return
        if kind == "parquet":
            fs, inner = filesystem(path)
            with fs.open(inner, "rb") as stream:
                present = pq.ParquetFile(stream).schema_arrow.names
            if twice := [name for name in present if present.count(name) > 1]:
                raise ValueError(f"{path}: has two columns {twice[0]!r}")
        else:
            present = _keys(path, columns)
            if not present:  # bad rows, of which errors.jsonl will tell
                return
    for column in columns:
        if column not in present:
            shown = ", ".join(map(repr, present[:20]))
            raise ValueError(f"{path}: no column {column!r}; it has {shown}")
