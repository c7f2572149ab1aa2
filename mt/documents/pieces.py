"""A segment joined of the tags and texts of a file, and its translation as tags and texts again."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from mt.documents.document import Segment, Tag, TagKind
from mt.documents.stand_ins import ElementPlace, StandIn, find_places, unused_codes

BLANKS = re.compile(r"[^\S\xa0\u202f]+")  # without those that forbid a line break
OPENING, CLOSING = "([{„“‚‘«¿¡", tuple(".,;:!?)]}”’»…%")

# A part of a file: text that stays, the number of a segment, or a value with segments in it
Part: TypeAlias = "str | int | Value"
Writer = Callable[[list["Written"]], str]


@dataclass(frozen=True)
class Value:
    """An attribute, cell or string, which is encoded again if one of its segments changed."""

    raw: str
    parts: Sequence[Part]  # of what ``raw`` means
    encode: Callable[[str], str]
    always: bool = False  # also if no segment changed


class Piece(NamedTuple):
    """A tag or a text of a segment, and how the file has it."""

    raw: tuple[Part, ...]
    text: str = ""
    kind: TagKind | None = None  # None: a text
    name: str = ""  # of an element: OPEN and CLOSE have the same
    breaks: bool = False  # an EMPTY tag that ends a line
    is_noun: bool = False  # an EMPTY tag for which a code stands in the text
    moved: str | None = None  # how to write the tag in a changed segment, if not as in ``raw``


class Written(NamedTuple):
    """A tag or a text of a translation."""

    text: str
    tag: Piece | None = None


class Run(NamedTuple):
    """A segment and the pieces that it was made from."""

    pieces: Sequence[Piece]
    elements: Sequence[Sequence[Piece]]  # for each number: OPEN and CLOSE, or EMPTY; then the nouns
    stand_ins: Mapping[str, StandIn]  # for the nouns
    blank_before: frozenset[int]  # numbers of the EMPTY tags that stand after a blank
    blank_after: frozenset[int]
    write: Writer


def join_pieces(
    pieces: Sequence[Piece], partners: Sequence[int], write: Writer
) -> tuple[Segment, Run]:
    """The segment of pieces. ``partners`` has the number of the other tag of a pair, else < 0."""
    joiner = _Joiner(pieces, partners)
    for i, piece in enumerate(pieces):
        if piece.is_noun:
            joiner.add_noun(piece)
        elif piece.kind is None:
            joiner.add_text(piece)
        elif partners[i] >= 0:
            joiner.add_paired_tag(i, piece)
        else:
            joiner.add_empty_tag(piece)
    return joiner.finish(write)


class _Joiner:
    """Joins pieces to the text of a segment, with single blanks, and places its tags."""

    def __init__(self, pieces: Sequence[Piece], partners: Sequence[int]) -> None:
        self.pieces, self.partners = pieces, partners
        self.elements: list[list[Piece]] = []
        self.text: list[str] = []  # characters, in pieces
        self.length, self.ends_blank = 0, True  # of text
        self.tags: list[tuple[TagKind, int, int]] = []
        self.numbers: dict[int, int] = {}  # of an element, by the place of its closing tag
        self.codes = _codes(pieces)
        self.nouns: dict[str, tuple[Piece, int]] = {}  # by their codes, with their places
        self.blank_before: set[int] = set()  # the EMPTY tags with a blank before them
        self.blank_after: set[int] = set()
        self.after_blank = False
        self.empty = -1  # the last EMPTY tag, if nothing but tags came since

    def add_noun(self, piece: Piece) -> None:
        code = next(self.codes)
        self.nouns[code] = piece, self.length
        self.after_blank, self.empty = False, -1
        self._append(code)

    def add_text(self, piece: Piece) -> None:
        clean = BLANKS.sub(" ", piece.text)
        if clean[:1].isdigit() and self.text and self.text[-1] in self.nouns:
            clean = f" {clean}"  # not H5 and 2 as H52
        if self.empty >= 0 and clean[:1].isspace():
            self.blank_after.add(self.empty)
        is_after_tag = self.empty in self.blank_before and self.ends_blank
        if is_after_tag and self.text and clean.startswith(CLOSING):
            self._drop_blank()  # "see ![x](y), then": no blank before the comma
        elif self.ends_blank:
            clean = clean.removeprefix(" ")
        if piece.text:
            self.after_blank, self.empty = piece.text[-1].isspace(), -1
        self._append(clean)

    def add_paired_tag(self, i: int, piece: Piece) -> None:
        partner = self.partners[i]
        if piece.kind is TagKind.OPEN:
            self.numbers[partner] = len(self.elements)
            self.tags.append((TagKind.OPEN, len(self.elements), self.length))
            self.elements.append([piece, self.pieces[partner]])
        else:
            self.tags.append((TagKind.CLOSE, self.numbers[i], self.length))

    def add_empty_tag(self, piece: Piece) -> None:
        self.tags.append((TagKind.EMPTY, len(self.elements), self.length))
        self.empty = -1 if piece.breaks else len(self.elements)
        if self.after_blank and not piece.breaks:
            self.blank_before.add(self.empty)
        self.elements.append([piece])
        self.after_blank = False
        self._append(" " if piece.breaks and not self.ends_blank else "")

    def finish(self, write: Writer) -> tuple[Segment, Run]:
        stand_ins = {}
        for code, (piece, at) in self.nouns.items():
            stand_ins[code] = StandIn(len(self.elements), at / self.length)
            self.elements.append([piece])
        joined = "".join(self.text)
        cut = len(joined) - len(joined.lstrip())
        joined = joined.strip()
        tags = tuple(
            Tag(kind, number, min(max(at - cut, 0), len(joined))) for kind, number, at in self.tags
        )
        blank_before, blank_after = frozenset(self.blank_before), frozenset(self.blank_after)
        run = Run(self.pieces, self.elements, stand_ins, blank_before, blank_after, write)
        return Segment(joined, tags), run

    def _append(self, clean: str) -> None:
        if clean:
            self.text.append(clean)
            self.length += len(clean)
            self.ends_blank = clean.endswith(" ")

    def _drop_blank(self) -> None:
        """Leave out the blank at the end of the text, and move the tags after it."""
        self.text[-1] = self.text[-1][:-1]
        self.length -= 1
        for j in range(len(self.tags) - 1, -1, -1):
            if self.tags[j][2] <= self.length:
                break
            self.tags[j] = (*self.tags[j][:2], self.length)


def _codes(pieces: Sequence[Piece]) -> Iterator[str]:
    """Codes that the pieces do not have, not even two of them together."""
    if not any(piece.is_noun for piece in pieces):
        return iter(())
    texts = [piece.text for piece in pieces if piece.text]
    return unused_codes("".join(texts) + " ".join(texts))


def _with_nouns(segment: Segment, places: Sequence[ElementPlace]) -> Segment:
    """A translation with EMPTY tags in the stead of the codes."""
    text: list[str] = []
    tags: list[Tag] = []
    position = length = 0

    def take(end: int) -> None:
        nonlocal position, length
        text.append(segment.text[position : max(position, end)])
        length += len(text[-1])
        position = max(position, end)

    waiting = deque(segment.tags)
    for start, end, number in places:
        while waiting:
            tag = waiting[0]
            is_inside = start < tag.position < end and tag.kind is TagKind.OPEN
            if tag.position > start and not is_inside:
                break  # those that close in the code go after it
            take(min(tag.position, start))
            tags.append(waiting.popleft()._replace(position=length))
        take(start)
        position = max(position, end)
        if number is not None:
            tags.append(Tag(TagKind.EMPTY, number, length))
    for tag in waiting:
        take(tag.position)
        tags.append(tag._replace(position=length))
    take(len(segment.text))
    return Segment("".join(text), tuple(tags))


def written_pieces(run: Run, segment: Segment) -> Iterator[Written]:
    """The texts and tags of a translation, with the blanks that EMPTY tags had around them."""
    blank_before, blank_after = run.blank_before, run.blank_after
    if run.stand_ins:
        places = find_places(segment.text, run.stand_ins)
        lost = {number for start, end, number in places if number is not None and start == end}
        blank_before, blank_after = blank_before | lost, blank_after | lost
        segment = _with_nouns(segment, places)
    text, position = segment.text, 0
    pending = False  # the last EMPTY tag wants a blank after it
    strip = False  # blanks after a line break go
    last = " "  # character that was written
    ends = [tag.position for tag in segment.tags] + [len(text)]
    for tag, end in zip([*segment.tags, None], ends, strict=True):
        piece = text[position : max(position, end)]
        position = max(position, end)
        element = None
        if tag is not None:
            element = run.elements[tag.number][tag.kind is TagKind.CLOSE]
        if strip:
            piece = piece.lstrip()
        if element and element.breaks:
            piece = piece.rstrip()
        if piece:
            if pending and (piece[0].isalnum() or piece[0] in OPENING):
                yield Written(" ")
            yield Written(piece)
            pending = strip = False
            last = piece[-1]
        if tag is None or element is None:
            return
        wants = tag.kind is TagKind.EMPTY and tag.number in blank_before
        if tag.kind is not TagKind.CLOSE and (pending or wants) and not element.breaks:
            if not last.isspace() and last not in OPENING:
                yield Written(" ")
            pending = False
            last = " "
        yield Written("", element)
        if tag.kind is TagKind.EMPTY:
            pending, strip = tag.number in blank_after, element.breaks
            last = " " if element.breaks else "\0"
