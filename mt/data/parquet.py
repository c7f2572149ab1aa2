"""Sentence pairs in Parquet files."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mt.utils.checks import short_repr
from mt.utils.console import first_line


def open_parquet(path: Path) -> pq.ParquetFile:
    """Raises OSError when there is no file, ValueError when it is not a whole one."""
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a whole Parquet file: {first_line(error)}") from None


def read_parquet(path: Path, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    """The texts of two columns. Raises ValueError for a row without one, or a damaged file."""
    file = open_parquet(path)
    for name in (src, tgt):
        if name not in file.schema_arrow.names:
            names = short_repr(file.schema_arrow.names)
            raise ValueError(f"{path}: no column {name!r} among its columns {names}")
        if file.schema_arrow.names.count(name) > 1:
            raise ValueError(f"{path}: several columns {name!r}")
    row = 0
    try:
        for batch in file.iter_batches(batch_size=1000, columns=[src, tgt]):
            columns = [batch.column(name).to_pylist() for name in (src, tgt)]
            for source, target in zip(*columns, strict=True):
                row += 1
                if not isinstance(source, str) or not isinstance(target, str):
                    raise ValueError(f"{path}: row {row:,} lacks a text")
                yield source, target
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: damaged: {first_line(error)}") from None
