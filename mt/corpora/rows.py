"""The rows of a block: lines, JSON objects or a table of Arrow, with a reason for each bad one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from mt.utils.checks import short_repr
from mt.utils.json_io import parse_json
from mt.utils.line_io import MAX_LINE

MOST_TEXT = 1000  # characters of a bad row that are kept in errors.jsonl


class Bad(NamedTuple):
    """Why nothing could be done with a row, and what it holds."""

    reason: str
    text: str


@dataclass
class Rows:
    """The rows of a block. ``bad`` says of some, by their index, why they are left out.

    ``table`` holds the rows of a Parquet file, whose types it keeps; ``records`` those of others.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    table: pa.Table | None = None
    bad: dict[int, Bad] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records) if self.table is None else self.table.num_rows

    def texts(self, *columns: str) -> list[tuple[str, ...] | None]:
        """The texts of the columns in each row; None for a bad one, which ``bad`` then has."""
        values = zip(*(self.values(column) for column in columns), strict=True)
        return [self._checked(i, columns, texts) for i, texts in enumerate(values)]

    def values(self, column: str) -> list[Any]:
        """What a column holds; None where a row has no such column."""
        if self.table is None:
            return [record.get(column) for record in self.records]
        if column not in self.table.column_names:
            return [None] * len(self)
        return self.table[column].to_pylist()

    def _checked(
        self, i: int, columns: Sequence[str], texts: tuple[Any, ...]
    ) -> tuple[str, ...] | None:
        if i in self.bad:
            return None
        for column, text in zip(columns, texts, strict=True):
            if text is None:
                self.bad[i] = Bad(f"no text in the column {column!r}", self._shown(i))
            elif not isinstance(text, str):
                self.bad[i] = Bad(f"{column} is {short_repr(text)}, not a text", self._shown(i))
            elif len(text) > MAX_LINE:
                self.bad[i] = Bad(f"longer than {MAX_LINE:,} characters", text[:MOST_TEXT])
            elif not _is_unicode(text):
                self.bad[i] = Bad("half of a surrogate pair, which is no text", self._shown(i))
            else:
                continue
            return None
        return texts

    def _shown(self, i: int) -> str:
        one = self.select([i])
        record = one.records[0] if one.table is None else one.table.to_pylist()[0]
        return json.dumps(record, ensure_ascii=True, default=str)[:MOST_TEXT]

    def set_column(self, name: str, values: list[Any], kind: pa.DataType) -> None:
        """Add a column, or replace the one that has this name; of a bad row it is None."""
        if self.table is None:
            for record, value in zip(self.records, values, strict=True):
                record[name] = value
            return
        column = pa.array(values, kind)
        if name in self.table.column_names:
            at = self.table.column_names.index(name)
            self.table = self.table.set_column(at, name, column)
        else:
            self.table = self.table.append_column(name, column)

    def select(self, indices: list[int]) -> "Rows":
        """The rows with these indices, without what was bad in others."""
        if self.table is None:
            return Rows([self.records[i] for i in indices])
        return Rows(table=self.table.take(pa.array(indices, pa.int64())))

    # What is written

    def as_lines(self, column: str) -> bytes:
        """A column as lines; a bad row is a blank one."""
        return b"".join(_line(value) for value in self.values(column))

    def as_json(self) -> bytes:
        """An object a line."""
        records = self.records if self.table is None else self.table.to_pylist()
        return b"".join(_json_line(record) for record in records)

    def as_table(self) -> pa.Table:
        """A column of JSON whose values have no common type becomes text."""
        if self.table is not None:
            return self.table
        names = dict.fromkeys(name for record in self.records for name in record)
        return pa.table({name: _array(self.values(name)) for name in names})


def as_text(values: list[Any]) -> pa.Array:
    """Texts as they are, other values as JSON."""
    return pa.array(map(_utf8, values), pa.string())


def _utf8(value: Any) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace")  # half of a surrogate pair becomes "?"


def _array(values: list[Any]) -> pa.Array:
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return as_text(values)
    return as_text(values) if "struct<>" in str(array.type) else array  # Parquet has no such type


def rows_of_lines(lines: Sequence[bytes | None], column: str) -> Rows:
    """The rows of a text; None stands for a line that is too long."""
    rows = Rows()
    for i, line in enumerate(lines):
        text = _decoded(rows, i, line)
        rows.records.append({column: text})
    return rows


def rows_of_json(lines: Sequence[bytes | None]) -> Rows:
    """The rows of JSON lines; a bad one is an empty object."""
    rows = Rows()
    for i, line in enumerate(lines):
        text = _decoded(rows, i, line)
        record: dict[str, Any] = {}
        if text is not None:
            try:
                value = parse_json(text)
                if not isinstance(value, dict):
                    raise ValueError("not an object")
                record = value
            except ValueError as error:
                rows.bad[i] = Bad(f"not a JSON object: {error}", text[:MOST_TEXT])
        rows.records.append(record)
    return rows


def _decoded(rows: Rows, i: int, line: bytes | None) -> str | None:
    if line is None:
        rows.bad[i] = Bad(f"longer than {MAX_LINE:,} bytes", "")
        return None
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        shown = line[:MOST_TEXT].decode("utf-8", "backslashreplace")
        rows.bad[i] = Bad(f"not UTF-8 ({error.reason})", shown)
        return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _line(value: Any) -> bytes:
    text = f"{value:.4f}" if isinstance(value, float) else str(value or "")
    return text.replace("\n", " ").encode("utf-8", "replace") + b"\n"


def _json_line(record: dict[str, Any]) -> bytes:
    try:
        line = json.dumps(record, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair in another column
        line = json.dumps(record, ensure_ascii=True, default=str).encode("ascii")
    return line + b"\n"
