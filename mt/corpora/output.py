"""The output of a run: parts in a partial folder, then whole and checked files with their name.

The folder ``.NAME.partial`` lies beside the output NAME. Its manifest says how it was begun, and a
run that was killed goes on from the parts that are there, in a folder named by the manifest's hash.
"""

import gzip
import hashlib
import json
import os
import re
import reprlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mt.corpora.files import Block, Format, filesystem, format_of, is_local
from mt.corpora.rows import as_text
from mt.corpora.worker import BlockRecord, parse_record, part_path, record_path, write_whole
from mt.data.corpus_reader import ERRORS_SUFFIX
from mt.utils.atomic import only_writer
from mt.utils.json_io import parse_json

GROUP_ROWS = 2**16  # least rows of a row group but the last


class Target(NamedTuple):
    """A file of the output and the blocks that it is made of, in their order."""

    name: str  # empty where the output is this file
    format: Format
    blocks: list[Block]


class Output:
    """The file or folder that a run writes; a name without a suffix is a folder's.

    A folder has a file for each one of the input, with its name and format. Raises ValueError
    where the output is there (unless ``overwrite``), or would replace the input or files that the
    run does not write.
    """

    def __init__(self, path: str, inputs: Sequence[str], overwrite: bool = False) -> None:
        self.fs, inner = filesystem(path)
        self.path = inner.rstrip("/")  # in its file system, as those that follow
        head, slash, name = self.path.rpartition("/")
        self.partial = f"{head}{slash}.{name}.partial"
        self._manifest = f"{self.partial}/manifest.json"
        self.parts = ""  # the folder of this run's parts; ``begin`` makes it
        self.errors = f"{self.path}{ERRORS_SUFFIX}"
        self.overwrite = overwrite
        # The kind of all parts; None: each that of its input.
        self.kind: str | None = None
        self.names: list[str] = []  # of a folder's files
        if path.endswith("/") or not os.path.splitext(name)[1]:
            self.names = [file.rsplit("/", 1)[-1] for file in inputs]
        else:
            self.kind = format_of(self.path).kind
        self._check(path, inputs)

    def _check(self, path: str, inputs: Sequence[str]) -> None:
        for file in inputs:
            inner = filesystem(file)[1]
            if file_is_in(inner, self.path):
                raise ValueError(f"{file} is read, and {path} would replace it: name another")
            if file_is_in(inner, self.errors):
                raise ValueError(
                    f"{file} is read, and the bad rows of {path} would replace it: name another "
                    "--output"
                )
        if twice := [name for name in self.names if self.names.count(name) > 1]:
            raise ValueError(
                f"two input files have the name {twice[0]}: name an --output with a suffix, which "
                "becomes one file"
            )
        if self.fs.exists(self.path) and not self.overwrite:
            raise ValueError(f"{path} exists: name another --output, or give --overwrite")
        if self.fs.isdir(self.path):
            expected = {f"{self.path}/{name}" for name in self.names}
            if others := sorted(set(self.fs.find(self.path)) - expected):
                raise ValueError(f"{path} would replace {others[0]}: name another --output")
        folder = self.path.rpartition("/")[0]
        if is_local(self.fs) and not os.path.isdir(folder or "."):
            raise FileNotFoundError(f"{path}: there is no folder {folder}")

    @property
    def parts_url(self) -> str:
        """The folder of the parts, for other machines."""
        url: str = self.fs.unstrip_protocol(self.parts)
        return url

    def targets(self, files: Sequence[str], blocks: Sequence[Block]) -> list[Target]:
        if not self.names:
            return [Target("", format_of(self.path), list(blocks))]
        of_file: dict[str, list[Block]] = {file: [] for file in files}
        for block in blocks:
            of_file[block.path].append(block)
        return [
            Target(name, format_of(file), of_file[file])
            for name, file in zip(self.names, files, strict=True)
        ]

    def writing(self) -> AbstractContextManager[None]:
        """Hold the lock on the output; a store of objects has none. Raises BlockingIOError."""
        return only_writer(Path(self.path)) if is_local(self.fs) else nullcontext()

    # What is there

    def begin(self, identity: dict[str, Any]) -> None:
        """Make the partial folder, or go on in one that was begun in the same way.

        Raises ValueError that names what differs in it, unless ``overwrite``.
        """
        content = json.dumps(identity, sort_keys=True).encode()
        new = parse_json(content)
        old = None
        if self.fs.exists(self._manifest):
            old = _parse_manifest(self.fs.cat_file(self._manifest))
            if old is None and not self.overwrite:
                raise ValueError(f"{self._manifest} is damaged: begin anew with --overwrite")
        if old not in (None, new) and not self.overwrite:
            again = "give the same again, or begin anew with --overwrite"
            raise ValueError(f"{self.path}: {_difference(old, new)}: {again}")
        if old != new:
            self._remove_partial()
        # No part of another run is in this folder, even if one of its actors still writes.
        self.parts = f"{self.partial}/{hashlib.sha256(content).hexdigest()[:16]}"
        self.fs.makedirs(self.parts, exist_ok=True)
        write_whole(self.fs, self._manifest, content)

    def _remove_partial(self) -> None:
        if self.fs.exists(self._manifest):
            self.fs.rm_file(self._manifest)  # first: what has none is not gone on with
        if self.fs.exists(self.partial):
            self.fs.rm(self.partial, recursive=True)

    def kept_parts(self) -> Iterator[BlockRecord]:
        """The parts of an interrupted run; a damaged record goes and its block comes again."""
        try:
            names = self.fs.ls(self.parts, detail=False)
        except FileNotFoundError:  # a store of objects has no empty folders
            return
        for name in sorted(names):
            if not re.search(r"[0-9]\.json\Z", name):
                continue
            content = self.fs.cat_file(name)
            try:
                yield parse_record(content)
            except ValueError:
                self.fs.rm_file(name)

    # What becomes of it

    def complete(self, targets: Sequence[Target], parts: dict[int, BlockRecord]) -> None:
        """Check all parts, make the files of them, and give these their name.

        Raises ValueError when parts are missing or damaged, which a further run computes again.
        """
        self.fs.invalidate_cache()  # what actors have written is new to this process
        self._check_parts(parts)
        whole = f"{self.partial}/whole"
        if self.fs.exists(whole):
            self.fs.rm(whole, recursive=True)
        if self.names:
            self.fs.makedirs(whole)
        for target in targets:
            path = f"{whole}/{target.name}" if self.names else whole
            write = _write_table if target.format.kind == "parquet" else _write_lines
            expected = sum(parts[block.number].rows for block in target.blocks)
            paths = [part_path(self.parts, block.number) for block in target.blocks]
            readers = [partial(self.fs.cat_file, path_of_part) for path_of_part in paths]
            with self.fs.open(path, "wb") as stream:
                written = write(stream, target.format, readers)
            if is_local(self.fs):
                with open(path, "r+b") as stream:
                    os.fsync(stream.fileno())  # before the parts go
            if written != expected:
                raise ValueError(f"{self.path}: {written:,} rows written, not {expected:,}")
        self.write_errors(parts)
        self._rename(whole)
        self._remove_partial()

    def _check_parts(self, parts: dict[int, BlockRecord]) -> None:
        damaged = []
        for number, part in sorted(parts.items()):
            path = part_path(self.parts, number)
            content = self.fs.cat_file(path) if self.fs.exists(path) else b""
            if hashlib.sha256(content).hexdigest() != part.sha256:
                self.fs.rm_file(record_path(self.parts, number))
                damaged.append(path)
        if damaged:
            raise ValueError(
                f"{damaged[0]}: damaged, {len(damaged):,} parts in all, and so to be computed "
                "again: run the same command once more"
            )

    def write_errors(self, parts: dict[int, BlockRecord]) -> None:
        """Write the bad rows of the parts, or remove an older file of them if there are none."""
        errors = [error for number in sorted(parts) for error in parts[number].errors]
        if errors:
            lines = "".join(json.dumps(error, ensure_ascii=False) + "\n" for error in errors)
            write_whole(self.fs, self.errors, lines.encode("utf-8", "backslashreplace"))
        elif self.fs.exists(self.errors):
            self.fs.rm_file(self.errors)

    def _rename(self, whole: str) -> None:
        if not is_local(self.fs):  # a store of objects copies
            if self.fs.exists(self.path):
                self.fs.rm(self.path, recursive=True)
            self.fs.mv(whole, self.path, recursive=bool(self.names))
            return
        if os.path.isdir(self.path) or self.names:
            old = f"{self.partial}/old"
            shutil.rmtree(old, ignore_errors=True)
            if os.path.exists(self.path):
                os.rename(self.path, old)
        os.replace(whole, self.path)


def file_is_in(file: str, output: str) -> bool:
    """Whether the output is this file or a folder that has it, also by a link."""
    file, output = os.path.realpath(file), os.path.realpath(output)
    return file == output or file.startswith(f"{output}/")


def _parse_manifest(content: bytes) -> dict[str, Any] | None:
    """The manifest of a run that was begun, None if it is damaged."""
    try:
        manifest: dict[str, Any] = parse_json(content)
        return manifest if all(len(file) == 3 for file in manifest["input"]) else None
    except (ValueError, TypeError, KeyError):
        return None


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between two manifests."""
    name = next(n for n in sorted(new.keys() | old.keys()) if old.get(n) != new.get(n))
    before, now = old.get(name), new.get(name)
    if name == "input":
        before, now = [file for file, *_ in old[name]], [file for file, *_ in new[name]]
        if before == now:
            pairs = zip(old[name], new[name], strict=True)
            return f"{next(a[0] for a, b in pairs if a != b)} has changed since it was begun"
    return f"begun with {name}={reprlib.repr(before)}, not {reprlib.repr(now)}"


Readers = Sequence[Callable[[], bytes]]  # of the parts, in order


def _write_lines(stream: BinaryIO, form: Format, readers: Readers) -> int:
    lines = 0
    with _packed(stream, form.compression) as packed:
        for read in readers:
            content = read()
            lines += content.count(b"\n")
            packed.write(content)
    return lines


@contextmanager
def _packed(stream: BinaryIO, compression: str) -> Iterator[Any]:
    if compression == ".gz":
        with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
            yield packed
    elif compression == ".zst":
        with pa.CompressedOutputStream(pa.PythonFile(stream, mode="w"), "zstd") as packed:
            yield packed
    else:
        yield stream


def _write_table(stream: BinaryIO, form: Format, readers: Readers) -> int:
    schema = _schema_of_all(readers)
    rows, waiting = 0, [schema.empty_table()]
    with pq.ParquetWriter(stream, schema) as writer:
        for i, read in enumerate(readers, start=1):
            table = pq.read_table(pa.BufferReader(read()))
            for at, field in enumerate(table.schema):
                wanted = schema.field(field.name).type
                if wanted == pa.string() and field.type != wanted:
                    table = table.set_column(at, field.name, as_text(table[at].to_pylist()))
            waiting.append(table)
            if sum(map(len, waiting)) >= GROUP_ROWS or i == len(readers):
                table = pa.concat_tables(waiting, promote_options="permissive")
                writer.write_table(table, row_group_size=max(len(table), 1))
                rows, waiting = rows + len(table), [schema.empty_table()]
    return rows


def _schema_of_all(readers: Readers) -> pa.Schema:
    """The columns of all parts; text for one whose values its common type cannot hold exactly."""
    schemas = [pq.read_schema(pa.BufferReader(read())) for read in readers]
    common = common_schema(schemas)
    for schema, read in zip(schemas, readers, strict=True):
        for field in schema:
            at = common.get_field_index(field.name)
            wanted = common.field(at).type
            if wanted in (field.type, pa.string()):
                continue
            try:
                column = pq.read_table(pa.BufferReader(read()), columns=[field.name])[0]
                column.cast(wanted)
            except pa.ArrowInvalid:  # such as a 64-bit number as a float
                common = common.set(at, pa.field(field.name, pa.string()))
    return common


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """All columns, each of a type that holds what it has everywhere; text where there is none."""
    fields: dict[str, list[pa.Field]] = {}
    for schema in dict.fromkeys(schemas):
        for field in schema:
            fields.setdefault(field.name, []).append(field.with_nullable(True))
    return pa.schema([_common_field(name, variants) for name, variants in fields.items()])


def _common_field(name: str, fields: list[pa.Field]) -> pa.Field:
    schemas = [pa.schema([field]) for field in fields]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0)
    except pa.ArrowException:
        return pa.field(name, pa.string())
