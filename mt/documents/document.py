"""What every format has: a document is read into segments, and rendered with their translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

LONGEST_MARK = 8  # characters


class DocumentError(ValueError):
    """A file that cannot be read: one line that says what is wrong and what to do."""


class TagKind(Enum):
    OPEN = "open"
    CLOSE = "close"
    EMPTY = "empty"


class Tag(NamedTuple):
    """An inline tag: ``number`` is which of the segment's elements it opens, closes or is."""

    kind: TagKind
    number: int
    position: int  # in the text: the tag stands before this character


@dataclass(frozen=True)
class Segment:
    """A text that is translated as a whole, in one line, and the tags in it, in their order.

    An element has an OPEN and a CLOSE tag or one EMPTY tag. Elements are nested.
    """

    text: str
    tags: tuple[Tag, ...] = ()


class Document(Protocol):
    """A file that was read."""

    @property
    def segments(self) -> Sequence[Segment]:
        """What is translated, in the order of the file."""

    @property
    def remarks(self) -> Sequence[str]:
        """What the user should know about the file, each a line."""

    def render(self, translated: Sequence[Segment]) -> bytes:
        """The file with a translation for each segment, which has the same tags."""


def is_note_mark(raised: str) -> bool:
    """Whether a superscript is the mark of a note or an exponent, which is no part of the word.

    "1", "*", "[2]" and "n" are; "st" of "1st" is not.
    """
    mark = raised.strip()
    return 0 < len(mark) <= LONGEST_MARK and sum(map(str.isalpha, mark)) <= 1


def goes_on_after(texts: Sequence[str]) -> list[bool]:
    """For each of the texts, whether the next one that is not blank begins with a small letter.

    Then a line break is within a sentence. Otherwise it is between lines of an address or a verse,
    or after a title.
    """
    goes_on, result = False, []
    for text in reversed(texts):
        result.append(goes_on)
        if words := text.lstrip():
            goes_on = words[0].islower()
    return result[::-1]


def size_text(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 2**30:,.1f} GB" if size >= 2**30 else f"{size / 2**20:,.0f} MB"
