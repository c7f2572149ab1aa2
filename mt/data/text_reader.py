"""Plain text for a model that continues text: sentence pairs whose source is empty."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.data.corpus_reader import Pair, file_stat
from mt.utils.checks import short_repr
from mt.utils.line_io import read_lines

LONG = 600  # characters of a paragraph that is cut after a sentence
SENTENCE_END = re.compile(r"""[.!?…]["”’»)]?(?=\s)|[。！？]""")


@dataclass(frozen=True)
class TextReader:
    """Text files (.gz too), one or several for each split.

    A paragraph ends at a blank line; in a file without blank lines between its texts each line is
    one. Its lines are joined, and one of more than LONG characters is cut between sentences or else
    between words.
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
        return ["text", [list(file_stat(path.resolve())) for path in self._files(split)]]

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
    has_blank = _has_blank_between(read_lines(path))
    lines: list[str] = []
    for line in read_lines(path):
        if line.strip():
            lines.append(line.strip())
        if lines and (not has_blank or not line.strip()):
            yield " ".join(lines)
            lines = []
    if lines:
        yield " ".join(lines)


def _has_blank_between(lines: Iterator[str]) -> bool:
    """Whether a blank line stands between two others."""
    was_text = was_blank = False
    for line in lines:
        is_text = bool(line.strip())
        if is_text and was_blank:
            return True
        was_blank = was_text and not is_text
        was_text = was_text or is_text
    return False


def _parts(paragraph: str) -> Iterator[str]:
    """The paragraph in parts of at most LONG characters."""
    while len(paragraph) > LONG:
        ends = [match.end() for match in SENTENCE_END.finditer(paragraph, 0, LONG)]
        blank = paragraph.rfind(" ", 1, LONG)
        end = ends[-1] if ends else blank if blank > 0 else LONG
        yield paragraph[:end].strip()
        paragraph = paragraph[end:].strip()
    if paragraph:
        yield paragraph
