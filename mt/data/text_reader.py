"""Plain text for a model that continues text: sentence pairs whose source is empty."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.data.readers import Pair
from mt.utils.checks import short_repr
from mt.utils.line_io import read_lines

LONG = 600  # characters of a paragraph that is cut after a sentence
BREAK = re.compile(r"(?<=[.!?…][\"”’»)\s])\s*|(?<=[.!?…])\s+")


@dataclass(frozen=True)
class TextReader:
    """Text files (.gz too), one or several for each split.

    A paragraph ends at a blank line; in a file without blank lines each line is one. Its lines are
    joined, and one of more than LONG characters is cut between sentences or else between words.
    """

    train: str | Sequence[str] | None = None
    validation: str | Sequence[str] | None = None
    test: str | Sequence[str] | None = None
    src: str = "en"  # the language of the text
    tgt: str = "en"  # the same

    def pairs(self, split: str) -> Iterator[Pair]:
        for path in self._files(split):
            for paragraph in _paragraphs(path):
                for part in _parts(paragraph):
                    yield "", part

    def identity(self, split: str) -> list[Any]:
        stats = [path.resolve().stat() for path in self._files(split)]
        names = [str(path.resolve()) for path in self._files(split)]
        return ["text", [[n, s.st_size, s.st_mtime_ns] for n, s in zip(names, stats, strict=True)]]

    def _files(self, split: str) -> list[Path]:
        value = getattr(self, split)
        names = [value] if isinstance(value, str) else value
        if not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError(f"data.{split}={short_repr(value)}: name a text file, or a list")
        paths = list(map(Path, names))
        for path in paths:
            if not path.is_file():
                raise FileNotFoundError(f"no such file: {path}")
        return paths


def _paragraphs(path: Path) -> Iterator[str]:
    has_blank = any(not line.strip() for line in read_lines(path))
    lines: list[str] = []
    for line in read_lines(path):
        if line.strip():
            lines.append(line.strip())
        if lines and (not has_blank or not line.strip()):
            yield " ".join(lines)
            lines = []
    if lines:
        yield " ".join(lines)


def _parts(paragraph: str) -> Iterator[str]:
    """The paragraph in parts of about LONG characters at most."""
    part = ""
    for sentence in BREAK.split(paragraph):
        words = [sentence] if len(sentence) <= LONG else sentence.split()
        for word in words:
            if part and len(part) + len(word) > LONG:
                yield part
                part = ""
            part = f"{part} {word}".strip()
    if part:
        yield part
