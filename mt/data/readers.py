"""Where sentence pairs come from: the phrasebook, files, or the Hugging Face hub.

The reader of the hub lies in ``mt.data.hub_reader``; configurations name it as one of this module.
"""

import glob
import hashlib
import itertools
import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from mt.data import phrasebook
from mt.data.corpus_reader import CorpusReader, Pair, check_languages, file_stat, is_data_file
from mt.data.hub_reader import HubReader
from mt.data.parquet import read_parquet
from mt.utils.checks import short_repr
from mt.utils.json_io import parse_json
from mt.utils.line_io import read_lines

__all__ = [
    "SPLITS",
    "CorpusReader",
    "FileReader",
    "HubReader",
    "Pair",
    "PhrasebookReader",
    "check_languages",
    "file_stat",
    "is_header",
]

log = logging.getLogger("mt")

SPLITS = ("train", "validation", "test")
SURROGATE = re.compile("[\ud800-\udfff]")
HEADER = {"en", "de", "source", "target", "src", "tgt", "english", "german", "deutsch", "englisch"}


def is_header(*cells: str) -> bool:
    """Whether the first row of a table without names seems to be the names."""
    return all(cell.strip().lower() in HEADER for cell in cells)


def check_parts(name: str, parts: Any, others: str = "") -> None:
    """ValueError unless a list names parts of the phrasebook; ``others`` may be set as well."""
    known = phrasebook.PARTS
    if not isinstance(parts, Sequence) or not parts or any(part not in known for part in parts):
        raise ValueError(
            f"{name}={short_repr(parts)}: must be {others}a list of {', '.join(known)}"
        )


@dataclass(frozen=True)
class PhrasebookReader:
    """The corpus inside this package, English and German, no network: some of its parts."""

    src: str = "en"
    tgt: str = "de"
    parts: Sequence[str] = ("grammar",)

    def __post_init__(self) -> None:
        check_parts("data.parts", self.parts)
        if {self.src, self.tgt} != {"en", "de"}:
            raise ValueError(f"the phrasebook is between en and de, not {self.src}-{self.tgt}")

    def pairs(self, split: str) -> Iterator[Pair]:
        for english, german in phrasebook.load(split, self.parts):
            yield (english, german) if self.src == "en" else (german, english)

    def identity(self, split: str) -> list[Any]:
        text = json.dumps(list(self.pairs(split)))
        return ["phrasebook", hashlib.sha256(text.encode()).hexdigest()]


@dataclass(frozen=True)
class FileReader:
    """The user's own files. A split is one of

    - a prefix: ``corpus/train`` reads corpus/train.en and corpus/train.de, or .en.gz and .de.gz;
    - [source file, target file], where line n of one translates line n of the other;
    - a .tsv file (.gz too). ``src`` and ``tgt`` name columns of its header line, or number them
      from 0 where it has none; quotes are ordinary text;
    - a .jsonl or .json file (.gz too) with one object a line, whose keys are ``src`` and ``tgt``;
      a dot reaches into objects, as in translation.en;
    - a .parquet file with the columns ``src`` and ``tgt``;
    - a folder of such files of one format, or a pattern, as in pairs/*.jsonl.
    """

    train: str | list[str] | None = None
    validation: str | list[str] | None = None
    test: str | list[str] | None = None
    src: str | int = "en"
    tgt: str | int = "de"
    # adds the phrasebook's training pairs after the files' own: true its grammar, a list its parts
    phrasebook: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        check_languages(self.src, self.tgt, str, int)
        for split in SPLITS:
            value = getattr(self, split)
            if isinstance(value, list | tuple) and len(value) != 2:
                raise ValueError(f"data.{split}={short_repr(value)}: must name two files")
            if value is not None and not isinstance(value, str | list | tuple):
                raise ValueError(
                    f"data.{split}={short_repr(value)}: must name files; quote a number"
                )
        if not isinstance(self.phrasebook, bool):
            check_parts("data.phrasebook", self.phrasebook, "true, false or ")
        if self.phrasebook and {self.src, self.tgt} != {"en", "de"}:
            raise ValueError(
                f"data.phrasebook is between en and de, not {self.src} and {self.tgt}: "
                "set it to false"
            )

    def pairs(self, split: str) -> Iterator[Pair]:
        file_format, paths = self._locate(split)
        if file_format == "lines":
            pairs = _read_aligned(*paths)
        else:
            formats = {
                "tsv": partial(self._read_tsv, split), "json": partial(self._read_json, split)
            }  # fmt: skip
            columns = partial(read_parquet, src=str(self.src), tgt=str(self.tgt))
            pairs = itertools.chain.from_iterable(map(formats.get(file_format, columns), paths))
        return itertools.chain(pairs, *(reader.pairs(split) for reader in self._added(split)))

    def identity(self, split: str) -> list[Any]:
        file_format, paths = self._locate(split)
        stats = [file_stat(path.resolve()) for path in paths]
        added = [reader.identity(split) for reader in self._added(split)]
        return ["files", file_format, stats, self.src, self.tgt, *added]

    def files(self, split: str) -> list[Path]:
        return self._locate(split)[1]

    def _added(self, split: str) -> list[PhrasebookReader]:
        """The phrasebook, where its pairs are added to the split."""
        if not self.phrasebook or split != "train":
            return []
        parts = ["grammar"] if self.phrasebook is True else self.phrasebook
        return [PhrasebookReader(str(self.src), str(self.tgt), parts)]

    def _locate(self, split: str) -> tuple[str, list[Path]]:
        """The format of a split, "lines", "tsv", "json" or "parquet", and its files."""
        location = getattr(self, split)
        if location is None or not str(location).strip():
            raise ValueError(f"data.{split} is not set: name its files")
        if not isinstance(location, str):
            return "lines", _aligned(split, [_existing(str(path)) for path in location])
        if paths := self._several(location):
            formats = {_format_of(path.name) for path in paths}
            if len(formats) > 1 or None in formats:
                raise ValueError(
                    f"data.{split}={location}: its files must all be .tsv, .jsonl or .parquet"
                )
            return str(*formats), paths
        if file_format := _format_of(location):
            return file_format, [_existing(location)]
        if Path(location).is_file():
            raise ValueError(
                f"data.{split}={location}: neither .tsv nor .jsonl nor .parquet; of line-aligned "
                "files name both, [SOURCE,TARGET], or what their names have in common"
            )
        if isinstance(self.src, int) or isinstance(self.tgt, int):
            raise ValueError(
                f"data.{split}={location}: not a .tsv or .jsonl file, so data.src={self.src} and "
                f"data.tgt={self.tgt} are its suffixes, not columns; all splits must have one form"
            )
        prefixes = [f"{location}.{side}" for side in (self.src, self.tgt)]
        return "lines", _aligned(split, [_existing(prefix, f"{prefix}.gz") for prefix in prefixes])

    def _several(self, location: str) -> list[Path]:
        """The files of a folder or a pattern; none if it is neither, or a folder beside a prefix's
        files.
        """
        folder = Path(location)
        beside = (Path(f"{location}.{self.src}{end}") for end in ("", ".gz"))
        if folder.is_dir() and not any(path.is_file() for path in beside):
            paths = list(folder.iterdir())
        elif glob.has_magic(location) and not folder.exists():
            paths = list(map(Path, glob.glob(location)))
        else:
            return []
        return sorted(path for path in paths if path.is_file() and is_data_file(path.name))

    def _read_tsv(self, split: str, path: Path) -> Iterator[Pair]:
        rows = (line.split("\t") for line in read_lines(path))
        first_pair, names = 1, (self.src, self.tgt)
        if all(str(name).isdigit() for name in names):
            src, tgt = map(int, names)
            columns = 0  # as many as the first line has
        else:
            header, first_pair = next(rows, []), 2
            for name in names:
                if name not in header:
                    raise ValueError(
                        f"{path}: no column {name!r} in its header {short_repr(header)}; "
                        "name two with data.src and data.tgt, or without a header 0 and 1"
                    )
            src, tgt = (header.index(str(name)) for name in names)
            columns = len(header)
        for number, row in enumerate(rows, start=first_pair):
            if number == 1 and len(row) > max(src, tgt) and is_header(row[src], row[tgt]):
                _warn_of_header(path, short_repr(row))
            if row == [""] and split == "train":  # counted as empty
                yield "", ""
                continue
            columns = columns or len(row)
            if len(row) <= max(src, tgt):
                message = f"{len(row)} of the {max(src, tgt) + 1} columns that a line needs"
                raise ValueError(f"{path}, line {number}: {message}")
            if len(row) > columns:
                message = f"{len(row)} columns, where there are {columns}: a tab too many?"
                raise ValueError(f"{path}, line {number}: {message}")
            yield row[src], row[tgt]

    def _read_json(self, split: str, path: Path) -> Iterator[Pair]:
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip() and split == "train":  # counted as empty
                yield "", ""
                continue
            try:
                record = parse_json(line)
                if not isinstance(record, dict):
                    raise ValueError(f"it holds {short_repr(record)}")
            except ValueError as error:
                message = f"{error}; a line must hold one JSON object"
                raise ValueError(f"{path}, line {number}: {message}") from None
            try:
                src, tgt = (_text_at(record, str(key)) for key in (self.src, self.tgt))
            except (ValueError, KeyError, TypeError) as error:
                reason = f"no key {error}" if isinstance(error, KeyError) else error
                message = f"{reason}; data.src and data.tgt name the keys of two texts"
                raise ValueError(f"{path}, line {number}: {message}") from None
            yield src, tgt


@cache
def _warn_of_header(path: Path, row: str) -> None:
    """Once for a file, which is read several times."""
    log.warning(
        f"{path}: its first line, {row}, seems to be a header and is read as a pair: name two of "
        "its columns with data.src and data.tgt"
    )


def _format_of(name: str) -> str | None:
    """The format of a file with whole pairs, by its name."""
    formats = {".tsv": "tsv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
    return formats.get(Path(name.removesuffix(".gz")).suffix.lower())


def _read_aligned(src: Path, tgt: Path) -> Iterator[Pair]:
    src_count = tgt_count = 0
    for src_line, tgt_line in itertools.zip_longest(read_lines(src), read_lines(tgt)):
        src_count += src_line is not None
        tgt_count += tgt_line is not None
        if src_line is not None and tgt_line is not None:
            yield src_line, tgt_line
    if src_count != tgt_count:
        raise ValueError(
            f"not aligned: {src} has {src_count:,} lines, {tgt} has {tgt_count:,}; "
            "line n of one file must translate line n of the other"
        )


def _aligned(split: str, paths: list[Path]) -> list[Path]:
    """The two files; ValueError when they are one."""
    src, tgt = paths
    if src.samefile(tgt):
        raise ValueError(f"data.{split}: {src} and {tgt} are one file: the source is the target")
    return paths


def _existing(*candidates: str) -> Path:
    for path in map(Path, candidates):
        if path.is_file():
            return path
    raise FileNotFoundError(f"no such file: {' or '.join(candidates)}")


def _text_at(record: Any, key: str) -> str:
    """The text under a key, or under the keys that its dots separate."""
    value = record
    for part in [key] if key in record else key.split("."):
        value = value[part]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {short_repr(value)}, not a text")
    if SURROGATE.search(value):
        raise ValueError(f"{key} is {short_repr(value)}, which has half of a character")
    return value
