"""Where sentence pairs come from: the phrasebook, files, the hub. All of them yield pairs.

Lines are read so that N lines stay N lines.
"""

import functools
import hashlib
import itertools
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq

from mt.data import phrasebook
from mt.utils.line_io import read_lines

Pair = tuple[str, str]
SPLITS = ("train", "validation", "test")
HUB_TIMEOUT = 8.0  # seconds to wait for the hub's first answer


class CorpusReader(Protocol):
    """Somewhere that sentence pairs come from."""

    def pairs(self, split: str) -> Iterator[Pair]:
        """The pairs of a split in their order. ValueError or OSError says what is wrong."""

    def identity(self, split: str) -> list[Any]:
        """What the pairs depend on, in JSON's types: another identity, other pairs."""


def make_reader(data: Mapping[Any, Any]) -> CorpusReader:
    """The source that ``conf/data`` describes by its ``kind`` and the options of that kind.

    Other keys are not the source's business. ValueError for a kind that does not exist.
    """
    kinds: dict[str, Any] = {"hub": HubReader, "files": FileReader, "phrasebook": PhrasebookReader}
    kind = data["kind"]
    if kind not in kinds:
        raise ValueError(f"data.kind={kind!r}: must be one of {', '.join(kinds)}")
    names = {field.name for field in fields(kinds[kind])}
    source: CorpusReader = kinds[kind](**{key: data[key] for key in data if key in names})
    return source


@dataclass(frozen=True)
class PhrasebookReader:
    """The corpus inside this package: English and German everyday sentences, no network."""

    src: str = "en"
    tgt: str = "de"

    def __post_init__(self) -> None:
        if {self.src, self.tgt} != {"en", "de"}:
            raise ValueError(f"the phrasebook is between en and de, not {self.src}-{self.tgt}")

    def pairs(self, split: str) -> Iterator[Pair]:
        for english, german in phrasebook.load(split):
            yield (english, german) if self.src == "en" else (german, english)

    def identity(self, split: str) -> list[Any]:
        text = json.dumps(list(self.pairs(split)))
        return ["phrasebook", hashlib.sha256(text.encode()).hexdigest()]


@dataclass(frozen=True)
class FileReader:
    """Files of one's own. Each split is one of

    - a prefix: ``corpus/train`` reads corpus/train.en and corpus/train.de, or .en.gz and .de.gz;
    - [source file, target file], line-aligned;
    - a .tsv file (.gz too), whose columns ``src`` and ``tgt`` are names in its header line, or
      numbers from 0 where it has none; quotes are text;
    - a .jsonl or .json file (.gz too), an object a line, with keys ``src`` and ``tgt``; a dot
      reaches into objects, as in translation.en.
    """

    train: str | list[str] | None = None
    validation: str | list[str] | None = None
    test: str | list[str] | None = None
    src: str | int = "en"
    tgt: str | int = "de"
    phrasebook: bool = False  # its training pairs too, behind the files'

    def __post_init__(self) -> None:
        if type(self.phrasebook) is not bool:
            raise ValueError(f"data.phrasebook={self.phrasebook!r}: must be true or false")
        if self.phrasebook and {self.src, self.tgt} != {"en", "de"}:
            raise ValueError(
                f"data.phrasebook=true is between en and de, not {self.src} and {self.tgt}"
            )

    def pairs(self, split: str) -> Iterator[Pair]:
        pairs = self._pairs(*self._locate(split))
        return itertools.chain(pairs, *(each.pairs(split) for each in self._more(split)))

    def identity(self, split: str) -> list[Any]:
        kind, paths = self._locate(split)
        stats = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in paths]
        more = [each.identity(split) for each in self._more(split)]
        return ["files", kind, stats, self.src, self.tgt, *more]

    def _more(self, split: str) -> list[PhrasebookReader]:
        wanted = self.phrasebook and split == "train"
        return [PhrasebookReader(str(self.src), str(self.tgt))] if wanted else []

    def _pairs(self, kind: str, paths: list[Path]) -> Iterator[Pair]:
        if kind == "tsv":
            return self._tsv(paths[0])
        if kind == "json":
            return self._json(paths[0])
        return _aligned(*paths)

    def _locate(self, split: str) -> tuple[str, list[Path]]:
        place = getattr(self, split)
        if not place:
            raise ValueError(f"data.{split} is not set: name its files")
        if isinstance(place, int | float):
            raise ValueError(f"data.{split}={place}: must name files; quote a number")
        if not isinstance(place, str):
            if len(place) != 2:
                raise ValueError(f"data.{split}={list(place)}: must name two files")
            return "lines", [_existing(Path(str(p))) for p in place]
        for suffix, kind in ((".tsv", "tsv"), (".jsonl", "json"), (".json", "json")):
            if place.removesuffix(".gz").endswith(suffix):
                return kind, [_existing(Path(place))]
        return "lines", [
            _existing(Path(f"{place}.{side}"), Path(f"{place}.{side}.gz"))
            for side in (self.src, self.tgt)
        ]

    def _tsv(self, path: Path) -> Iterator[Pair]:
        rows = (line.split("\t") for line in read_lines(path))
        first_line = 1
        wanted = (self.src, self.tgt)
        if all(str(name).isdigit() for name in wanted):
            columns = [int(name) for name in wanted]
        else:
            header, first_line = next(rows, []), 2
            for name in wanted:
                if name not in header:
                    raise ValueError(f"{path}: no column {name!r} in its header {header}")
            columns = [header.index(str(name)) for name in wanted]
        for number, row in enumerate(rows, start=first_line):
            if len(row) <= max(columns):
                raise ValueError(
                    f"{path}, line {number}: {len(row)} columns, needs {max(columns) + 1}"
                )
            yield row[columns[0]], row[columns[1]]

    def _json(self, path: Path) -> Iterator[Pair]:
        for number, line in enumerate(read_lines(path), start=1):
            try:
                record = json.loads(line)
                src, tgt = (_reach(record, str(key)) for key in (self.src, self.tgt))
            except (ValueError, KeyError, TypeError) as error:
                reason = f"no key {error}" if isinstance(error, KeyError) else error
                raise ValueError(
                    f"{path}, line {number}: {reason}; a line must hold one JSON object"
                ) from None
            yield src, tgt


@dataclass(frozen=True)
class HubReader:
    """A data set of the Hugging Face hub, or a folder that mirrors one.

    Its rows have a ``translation`` of {src: ..., tgt: ...}, as WMT's sets do, or two columns of
    those names.
    """

    path: str
    config: str | None = None
    src: str = "en"
    tgt: str = "de"

    def pairs(self, split: str) -> Iterator[Pair]:
        for rows in self._rows(split):
            if "translation" in rows:
                yield from ((t[self.src], t[self.tgt]) for t in rows["translation"])
            else:
                yield from zip(rows[self.src], rows[self.tgt], strict=True)

    def identity(self, split: str) -> list[Any]:
        files = self._mirror_shards(split) or Path(self.path).rglob("*")
        stats = sorted(
            (str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.is_file()
        )
        return ["hub", self.path, self.config, split, self.src, self.tgt, stats]

    def _mirror_shards(self, split: str) -> list[Path]:
        """The files of a folder that has the hub's own layout; none elsewhere.

        ValueError when the folder lacks the split or one of its shards.
        """
        folder = Path(self.path) / (self.config or "")
        found = sorted(folder.glob(f"{split}-*.parquet"))
        if not found and any(folder.glob("*-*-of-*.parquet")):
            raise ValueError(f"{folder}: no {split}-*.parquet")
        if numbers := [re.search(r"-(\d+)-of-(\d+)\.", path.name) for path in found]:
            have = {(int(n[1]), int(n[2])) for n in numbers if n}
            want = {(i, shards) for _, shards in have for i in range(shards)}
            if missing := sorted(want - have):
                number, shards = missing[0]
                name = f"{split}-{number:05d}-of-{shards:05d}.parquet"
                raise ValueError(f"{folder}: {name} is missing")
        return found

    def _rows(self, split: str) -> Iterator[dict[str, Any]]:
        """Some rows at a time, by column."""
        if shards := self._mirror_shards(split):
            self._check(datasets.Features.from_arrow_schema(_parquet(shards[0]).schema_arrow))
            for shard in shards:
                try:
                    for rows in _parquet(shard).iter_batches(batch_size=1000):
                        yield rows.to_pydict()
                except (pa.ArrowException, OSError) as error:
                    raise ValueError(f"{shard}: damaged: {_first_line(error)}") from None
        else:
            found = self._load(split)
            self._check(found.features)
            yield from found.iter(batch_size=1000)

    def _load(self, split: str) -> datasets.Dataset:
        silence = None if Path(self.path).is_dir() else _hub_silence(self.path)
        if silence:  # without this, `datasets` retries for 23 s before it looks into its cache
            datasets.config.HF_HUB_OFFLINE = True
        try:
            return datasets.load_dataset(self.path, self.config, split=split)
        except Exception as error:  # the hub's client has many, changing from version to version
            raise ConnectionError(
                f"the data set {self.path!r} ({self.config}, {split}) could not be loaded: "
                f"{silence or _first_line(error)}. To train on files of your own: python -m "
                "mt.train data=files data.train=PREFIX data.validation=PREFIX "
                "(PREFIX.en, PREFIX.de); to use a copy of the set: data.path=FOLDER; "
                "to try the built-in corpus: make quickstart"
            ) from None

    def _check(self, features: datasets.Features) -> None:
        nested = features.get("translation", {})
        known = list(getattr(nested, "languages", nested) or features)
        for side in (self.src, self.tgt):
            if side not in known:
                raise ValueError(f"{self.path}: no {side!r} among its columns {known}")


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a whole Parquet file: {_first_line(error)}") from None


@functools.cache
def _hub_silence(name: str) -> str | None:
    """Why the hub does not tell of a data set, or None when it does, within HUB_TIMEOUT."""
    outcome = ["the hub does not answer"]

    def ask() -> None:
        try:
            huggingface_hub.HfApi().dataset_info(name, timeout=HUB_TIMEOUT)
            outcome[0] = ""
        except Exception as error:
            outcome[0] = f"the hub cannot be reached ({_first_line(error)})"

    thread = threading.Thread(target=ask, daemon=True)  # looking its name up may hang on its own
    thread.start()
    thread.join(HUB_TIMEOUT)
    return outcome[0] or None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def _aligned(src: Path, tgt: Path) -> Iterator[Pair]:
    lines = [0, 0]
    for one, other in itertools.zip_longest(read_lines(src), read_lines(tgt)):
        lines[0] += one is not None
        lines[1] += other is not None
        if one is not None and other is not None:
            yield one, other
    if lines[0] != lines[1]:
        raise ValueError(
            f"not aligned: {src} has {lines[0]:,} lines, {tgt} has {lines[1]:,}; "
            "line n of the one must translate line n of the other"
        )


def _existing(*candidates: Path) -> Path:
    for path in candidates:
        if path.is_file():
            return path
    raise FileNotFoundError(f"no such file: {' or '.join(map(str, candidates))}")


def _reach(record: Any, key: str) -> str:
    value = record[key] if key in record else _walk(record, key.split("."))
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, not a text")
    return value


def _walk(record: Any, keys: list[str]) -> Any:
    for key in keys:
        record = record[key]
    return record
