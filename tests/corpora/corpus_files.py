"""The same rows in every format of a corpus, runs without Ray, and one cluster for all tests."""

import functools
import gzip
import json
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mt.corpora import job
from mt.corpora.files import Block
from mt.corpora.operations import Compute, Operation
from mt.corpora.rows import Rows
from mt.corpora.worker import Worker

FORMATS = (".txt", ".txt.gz", ".txt.zst", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")

# Lines as crawled text has them. Many programs count more or fewer than these.
NASTY = [
    "plain",
    "a lone \r stays",
    "line\u2028separator",
    "next\u0085line",
    "form\x0cfeed, \x1c\x1d\x1e separators",
    "",
    'an open "quote',
    "\ufeffmark inside",
    "no\u00a0break 😀",
]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    """Records in the format of the name; a text has the first column."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path, row_group_size=4)
        return path
    if ".jsonl" in path.name:
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
    else:
        lines = [str(next(iter(record.values()))) for record in records]
    content = "".join(f"{line}\n" for line in lines).encode()
    half = len(content) // 2
    if path.suffix == ".gz":  # of two members, as `cat a.gz b.gz` has
        content = gzip.compress(content[:half]) + gzip.compress(content[half:])
    elif path.suffix == ".zst":
        content = b"".join(bytes(pa.compress(c, "zstd")) for c in (content[:half], content[half:]))
    path.write_bytes(content)
    return path


def read(path: Path) -> list[Any]:
    """What a file has: lines, or records."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with pa.input_stream(str(path)) as stream:  # unpacks by the name's end
        lines = stream.read().decode().split("\n")
    assert lines.pop() == ""
    return list(map(json.loads, lines)) if ".jsonl" in path.name else lines


def alone(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
    """An engine of this process."""
    one = Worker(*worker)
    for block in blocks:
        yield one({"block": [json.dumps(block)]})["record"][0]


def run(operation: Any, inputs: Any, output: Any, **options: Any) -> job.Summary:
    inputs = [str(path) for path in inputs] if isinstance(inputs, list) else str(inputs)
    return job.run_job(operation, inputs, str(output), options.pop("engine", alone), **options)


@dataclass(frozen=True)
class Upper(Operation):
    """Capitals, which need no model."""

    source: str = "text"
    target: str = "upper"
    note: str = ""

    @property
    def columns(self) -> list[str]:
        return [self.source]

    @property
    def result(self) -> str:
        return self.target

    @property
    def identity(self) -> dict[str, Any]:
        return {"operation": "upper", "note": self.note}

    def load(self, threads: int) -> Compute:
        def upper(rows: Rows) -> tuple[Rows, Counter[str]]:
            texts = rows.texts(self.source)
            values = [None if text is None else text[0].upper() for text in texts]
            rows.set_column(self.target, values, pa.string())
            return rows, Counter()

        return upper


@dataclass(frozen=True)
class Slow(Upper):
    """Half a second for each block."""

    def load(self, threads: int) -> Compute:
        compute = super().load(threads)

        def slow(rows: Rows) -> tuple[Rows, Counter[str]]:
            time.sleep(0.5)
            return compute(rows)

        return slow


@dataclass(frozen=True)
class Deadly(Upper):
    """Kills its own actor, once for each of some rows, or whenever they come."""

    folder: str = ""
    always: bool = False

    def load(self, threads: int) -> Compute:
        compute = super().load(threads)

        def deadly(rows: Rows) -> tuple[Rows, Counter[str]]:
            for text in rows.values("text"):
                mark = Path(self.folder) / text
                if text.endswith("7") and (self.always or not mark.exists()):
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            with (Path(self.folder) / "computed").open("a") as stream:
                stream.write(f"{rows.values('text')[0]}\n")
            return compute(rows)

        return deadly


@functools.cache
def own_token() -> dict[str, str]:
    """The environment of a cluster that the tests start: else Ray keeps a token at home."""
    return {"RAY_AUTH_TOKEN": secrets.token_hex(32)}


@functools.cache
def start_ray() -> None:
    """A local cluster until this process ends."""
    pytest.importorskip("ray")
    os.environ.update(own_token())
    from mt.corpora.actors import ray  # which sets what Ray reads of the environment

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers lack this folder
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
        logging_level="ERROR", object_store_memory=100 * 2**20,
    )  # fmt: skip
