"""The output of a run: parts in a partial folder, then whole and checked files with their name.

The folder ``.NAME.partial`` lies beside the output NAME. Its manifest says how it was begun, and a
run that was killed goes on from the records of the parts that are there.
"""

import gzip
import hashlib
import json
import os
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
from mt.corpora.worker import Part, parse_record, part_path, record_path, write_whole
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
    where the output is there (unless ``overwrite``) or would replace the input.
    """

    def __init__(self, path: str, inputs: Sequence[str], overwrite: bool = False) -> None:
        self.fs, inner = filesystem(path)
        self.path = inner.rstrip("/")
        head, _, name = self.path.rpartition("/")
        self.is_folder = path.endswith("/") or not os.path.splitext(name)[1]
        self._inner = f"{head}/.{name}.partial" if head else f".{name}.partial"
        local = is_local(self.fs)
        self.folder = self._inner if local else self.fs.unstrip_protocol(self._inner)
        self.errors = f"{self.path}.errors.jsonl"
        self.overwrite = overwrite
        for file in inputs:
            if file_is_in(filesystem(file)[1], self.path):
                raise ValueError(f"{file} is read, and {path} would replace it: name another")
        if self.fs.exists(self.path) and not overwrite:
            raise ValueError(f"{path} exists: name another --output, or give --overwrite")
        if local and not os.path.isdir(head or "."):
            raise FileNotFoundError(f"{path}: there is no folder {head}")

    @property
    def kind(self) -> str | None:
        """The kind of all parts; None: each that of its input."""
        return None if self.is_folder else format_of(self.path).kind

    def targets(self, files: Sequence[str], blocks: Sequence[Block]) -> list[Target]:
        """Raises ValueError when two files of a folder would have one name."""
        if not self.is_folder:
            return [Target("", format_of(self.path), list(blocks))]
        of_file: dict[str, list[Block]] = {file: [] for file in files}
        for block in blocks:
            of_file[block.path].append(block)
        names = [file.rsplit("/", 1)[-1] for file in files]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"two input files have the name {twice[0]}: name an --output with a suffix, which "
                "becomes one file"
            )
        return [
            Target(name, format_of(file), of_file[file])
            for name, file in zip(names, files, strict=True)
        ]

    def writing(self) -> AbstractContextManager[None]:
        """Hold the lock on the output; a store of objects has none. Raises BlockingIOError."""
        return only_writer(Path(self.path)) if is_local(self.fs) else nullcontext()

    # What is there

    def begin(self, identity: dict[str, Any]) -> None:
        """Make the partial folder, or check that it was begun in the same way.

        Raises ValueError that names what differs.
        """
        manifest = f"{self._inner}/manifest.json"
        if self.overwrite and self.fs.exists(self._inner):
            self.fs.rm(self._inner, recursive=True)
        if self.fs.exists(manifest):
            self._check(parse_json(self.fs.cat_file(manifest)), identity)
            return
        self.fs.makedirs(self._inner, exist_ok=True)
        write_whole(f"{self.folder}/manifest.json", json.dumps(identity).encode())

    def _check(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        new = parse_json(json.dumps(new))
        again = "give the same again, or begin anew with --overwrite"
        for name in sorted(new.keys() | old.keys()):
            before: Any = old.get(name)
            now: Any = new.get(name)
            if before == now:
                continue
            if name != "input":
                shown = f"begun with {name}={reprlib.repr(before)}, not {reprlib.repr(now)}"
                raise ValueError(f"{self.path}: {shown}: {again}")
            files = [file for file, *_ in now]
            begun = [file for file, *_ in before]
            if files != begun:
                shown = f"begun with the input {reprlib.repr(begun)}, not {reprlib.repr(files)}"
                raise ValueError(f"{self.path}: {shown}: {again}")
            changed = next(f for f, a, b in zip(files, before, now, strict=True) if a != b)
            raise ValueError(f"{self.path}: {changed} has changed since it was begun: {again}")

    def kept_parts(self) -> Iterator[Part]:
        """The parts of an interrupted run; a damaged record goes and its block comes again."""
        names = self.fs.glob(f"{self._inner}/*[0-9].json")
        for name in sorted(names):
            content = self.fs.cat_file(name)
            try:
                yield parse_record(content)
            except ValueError:
                self.fs.rm_file(name)

    # What becomes of it

    def complete(self, targets: Sequence[Target], parts: dict[int, Part]) -> None:
        """Check all parts, make the files of them, and give these their name.

        Raises ValueError when a part is missing or damaged, which a further run computes again.
        """
        self.fs.invalidate_cache()  # what actors have written is new to this process
        whole = f"{self._inner}/whole"
        if self.fs.exists(whole):
            self.fs.rm(whole, recursive=True)
        if self.is_folder:
            self.fs.makedirs(whole)
        for target in targets:
            path = f"{whole}/{target.name}" if self.is_folder else whole
            write = _write_table if target.format.kind == "parquet" else _write_lines
            expected = sum(parts[block.number].rows for block in target.blocks)
            with self.fs.open(path, "wb") as stream:
                contents = [partial(self._part, parts[block.number]) for block in target.blocks]
                written = write(stream, target.format, contents)
            if written != expected:
                raise ValueError(f"{self.path}: {written:,} rows written, not {expected:,}")
        self._write_errors(parts)
        self._rename(whole)
        self.fs.rm(self._inner, recursive=True)

    def _part(self, part: Part) -> bytes:
        path = part_path(self._inner, part.number)
        try:
            content = self.fs.cat_file(path)
        except FileNotFoundError:
            content = b""
        if hashlib.sha256(content).hexdigest() != part.sha256:
            self.fs.rm_file(record_path(self._inner, part.number))
            raise ValueError(
                f"{path}: damaged, and so to be computed again: run the same command once more"
            )
        return content

    def _write_errors(self, parts: dict[int, Part]) -> None:
        errors = [error for number in sorted(parts) for error in parts[number].errors]
        if self.fs.exists(self.errors):
            self.fs.rm_file(self.errors)
        if errors:
            lines = "".join(json.dumps(error, ensure_ascii=False) + "\n" for error in errors)
            path = self.errors if is_local(self.fs) else self.fs.unstrip_protocol(self.errors)
            write_whole(path, lines.encode("utf-8", "backslashreplace"))

    def _rename(self, whole: str) -> None:
        if not is_local(self.fs):  # a store of objects copies
            if self.fs.exists(self.path):
                self.fs.rm(self.path, recursive=True)
            self.fs.mv(whole, self.path, recursive=self.is_folder)
            return
        if os.path.isdir(self.path) or self.is_folder:
            old = f"{self._inner}/old"
            shutil.rmtree(old, ignore_errors=True)
            if os.path.exists(self.path):
                os.rename(self.path, old)
        os.replace(whole, self.path)


def file_is_in(file: str, output: str) -> bool:
    """Whether the output is this file or a folder that has it, also by a link."""
    file, output = os.path.realpath(file), os.path.realpath(output)
    return file == output or file.startswith(f"{output}/")


Contents = Sequence[Callable[[], bytes]]  # of the parts, in order


def _write_lines(stream: BinaryIO, form: Format, contents: Contents) -> int:
    lines = 0
    with _packed(stream, form.compression) as packed:
        for read in contents:
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


def _write_table(stream: BinaryIO, form: Format, contents: Contents) -> int:
    schemas = [pq.read_schema(pa.BufferReader(read())) for read in contents]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(
            f"the rows do not go into one Parquet file ({error}): name an --output that ends in "
            ".jsonl, or a folder"
        ) from None
    rows, waiting = 0, [schema.empty_table()]
    with pq.ParquetWriter(stream, schema) as writer:
        for i, read in enumerate(contents, start=1):
            waiting.append(_as(pq.read_table(pa.BufferReader(read())), schema))
            if sum(map(len, waiting)) >= GROUP_ROWS or i == len(contents):
                table = pa.concat_tables(waiting)
                writer.write_table(table, row_group_size=max(len(table), 1))
                rows, waiting = rows + len(table), [schema.empty_table()]
    return rows


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and the types of a schema; what it lacks is null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
