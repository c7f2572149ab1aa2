"""A data set of the Hugging Face hub as a corpus."""

import functools
import itertools
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa

from mt.data.corpus_reader import Pair, check_languages, file_stat
from mt.data.parquet import open_parquet
from mt.utils.checks import short_repr
from mt.utils.console import first_line

HUB_TIMEOUT = 8.0  # seconds to wait for the hub's first answer


@dataclass(frozen=True)
class HubReader:
    """A data set of the Hugging Face hub, or a folder that mirrors one.

    Its rows have a ``translation`` of {src: ..., tgt: ...}, as WMT's sets do, or two columns with
    the names ``src`` and ``tgt``.
    """

    path: str
    config: str | None = None
    src: str = "en"
    tgt: str = "de"

    def __post_init__(self) -> None:
        check_languages(self.src, self.tgt)
        for name, value in (("path", self.path), ("config", self.config or "none")):
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"data.{name}={short_repr(value)}: must be a text; quote a number")

    def pairs(self, split: str) -> Iterator[Pair]:
        rows = itertools.chain.from_iterable(map(self._sides, self._column_batches(split)))
        for number, (src, tgt) in enumerate(rows, start=1):
            if not isinstance(src, str) or not isinstance(tgt, str):
                raise ValueError(f"{self.path}, {split}: row {number:,} lacks a text")
            yield src, tgt

    def _sides(self, columns: dict[str, list[Any]]) -> Iterator[tuple[Any, Any]]:
        if self.src in columns and self.tgt in columns:
            return zip(columns[self.src], columns[self.tgt], strict=True)
        return ((t[self.src], t[self.tgt]) if t else (None, None) for t in columns["translation"])

    def identity(self, split: str) -> list[Any]:
        shards = self._mirror_shards(split)
        if shards:  # what is wrong shows before slow work
            self._check_shard(shards[0])
        files = shards or Path(self.path).rglob("*")
        stats = sorted(file_stat(path) for path in files if path.is_file())
        return ["hub", self.path, self.config, split, self.src, self.tgt, stats]

    def _mirror_shards(self, split: str) -> list[Path]:
        """The files of a split in a folder with the hub's own layout; none in other folders.

        Raises ValueError when the folder lacks the split or one of its shards.
        """
        folder = Path(self.path) / (self.config or "")
        paths = sorted(folder.glob(f"{split}-*.parquet"))
        if not paths and any(folder.glob("*-*-of-*.parquet")):
            raise ValueError(f"{folder}: no {split}-*.parquet")
        numbers = [re.search(r"-(\d+)-of-(\d+)\.", path.name) for path in paths]
        present = {(int(match[1]), int(match[2])) for match in numbers if match}
        expected = {(i, shards) for _, shards in present for i in range(shards)}
        if missing := sorted(expected - present):
            number, shards = missing[0]
            name = f"{split}-{number:05d}-of-{shards:05d}.parquet"
            raise ValueError(f"{folder}: {name} is missing")
        return paths

    def _column_batches(self, split: str) -> Iterator[dict[str, Any]]:
        """Up to 1,000 rows at a time, as a list of values for each column."""
        if shards := self._mirror_shards(split):
            for shard in shards:
                self._check_shard(shard)
            for shard in shards:
                try:
                    for rows in open_parquet(shard).iter_batches(batch_size=1000):
                        yield rows.to_pydict()
                except (pa.ArrowException, OSError) as error:
                    raise ValueError(f"{shard}: damaged: {first_line(error)}") from None
        else:
            dataset = self._load(split)
            self._check(dataset.features)
            yield from dataset.iter(batch_size=1000)

    def _load(self, split: str) -> datasets.Dataset:
        problem = None if Path(self.path).is_dir() else _hub_problem(self.path)
        if problem:  # without this, `datasets` retries for 23 s before it looks into its cache
            datasets.config.HF_HUB_OFFLINE = True
        try:
            return datasets.load_dataset(self.path, self.config, split=split)
        except Exception as error:  # the hub's client raises many kinds, new ones every version
            needed = ("train", "validation") if split != "test" else ("test",)
            splits = " ".join(f"data.{name}=PREFIX" for name in needed)
            raise ConnectionError(
                f"the data set {self.path!r} ({self.config}, {split}) could not be loaded: "
                f"{problem or first_line(error)}. For files of your own: data=files "
                f"{splits} (PREFIX.en, PREFIX.de); for a copy of the set: data.path=FOLDER; "
                "for the built-in corpus: data=phrasebook"
            ) from None

    def _check_shard(self, shard: Path) -> None:
        self._check(datasets.Features.from_arrow_schema(open_parquet(shard).schema_arrow))

    def _check(self, features: datasets.Features) -> None:
        """Raise ValueError unless both languages are among the columns."""
        if self.src in features and self.tgt in features:
            return
        nested = features.get("translation")
        names = getattr(nested, "languages", nested if isinstance(nested, dict) else None)
        names = list(names or features)
        for side in (self.src, self.tgt):
            if side not in names:
                raise ValueError(f"{self.path}: no {side!r} among its columns {names}")


@functools.cache
def _hub_problem(name: str) -> str:
    """Why the hub says nothing about a data set within HUB_TIMEOUT; empty when it answers."""
    problem = "the hub does not answer"

    def ask() -> None:
        nonlocal problem
        try:
            huggingface_hub.HfApi().dataset_info(name, timeout=HUB_TIMEOUT)
            problem = ""
        except Exception as error:
            problem = f"the hub cannot be reached ({first_line(error)})"

    # In a thread, because the timeout does not cover the look-up of the host's name.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT)
    return problem
