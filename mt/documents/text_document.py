"""What the text formats share: a file is text that stays, with segments between it."""

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

from mt.documents.document import DocumentError, Segment, Tag, TagKind, size_text
from mt.documents.stand_ins import ElementPlace, StandIn, find_places, unused_codes

MAX_BYTES = 50 * 2**20  # of a file, which is held in memory
MAX_PIECES = 150_000  # tags and texts between them: each takes up to 2 KB
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, which begins with the same bytes
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
BLANKS = re.compile(r"[^\S\xa0\u202f]+")  # without those that forbid a line break
TAG = re.compile(r"</?([a-zA-Z][^\s/<>]*)(?![^\s/<>])[^<>]*>")  # in linear time
TAG_OR_LINE = re.compile(rf"\n|{TAG.pattern}")
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


class TextDocument:
    """A file of text; a format adds its ``parts`` and thereby its ``segments``."""

    def __init__(self, encoding: str = "utf-8", mark: bytes = b"", errors: str = "replace") -> None:
        self.segments: list[Segment] = []
        self.remarks: list[str] = []
        self.parts: list[Part] = []
        self._runs: list[Run] = []
        self._count = 0  # of pieces
        self.encoding, self._mark, self._errors = encoding, mark, errors

    def render(self, translated: Sequence[Segment]) -> bytes:
        return self._mark + self.render_text(translated).encode(self.encoding, self._errors)

    def render_text(self, translated: Sequence[Segment]) -> str:
        """The file's text with a translation for each segment. Raises ValueError otherwise."""
        if len(translated) != len(self.segments):
            raise ValueError(f"{len(translated)} translations for {len(self.segments)} segments")
        return self._join(self.parts, translated)

    def check_count(self, more: int) -> None:
        """Raise DocumentError if the file has too many pieces with so many ``more``."""
        if self._count + more > MAX_PIECES:
            raise DocumentError(
                f"has more than {MAX_PIECES:,} tags and texts: cut it into several files"
            )

    def run(self, pieces: Iterable[Piece], write: Writer) -> Iterator[Part]:
        """The parts for ``pieces``: one new segment, if they have letters, and what is around it.

        Code alone is no segment. Blanks and tags at both ends stay outside of the segment where
        they do not belong to a part of it. Raises DocumentError where the file has more than
        MAX_PIECES of them.
        """
        pieces = list(islice(pieces, MAX_PIECES - self._count + 1))
        self.check_count(len(pieces))
        self._count += len(pieces)
        if len(pieces) == 1 and pieces[0].kind is None:  # as of most cells of a table
            [piece] = pieces
            if any(map(str.isalpha, piece.text)):
                yield len(self.segments)
                self.segments.append(Segment(BLANKS.sub(" ", piece.text).strip()))
                self._runs.append(Run(pieces, (), {}, frozenset(), frozenset(), write))
            else:
                yield from piece.raw
            return
        partners = partners_of(pieces)
        texts = [i for i, piece in enumerate(pieces) if piece.is_noun or piece.text.strip()]
        start = end = len(pieces)
        if any(any(map(str.isalpha, pieces[i].text)) for i in texts):
            first, last = texts[0], texts[-1]
            start = next((i for i in range(first) if first < partners[i] <= last), first)
            ends = (i for i in range(end - 1, last, -1) if first <= partners[i] <= last)
            end = next(ends, last) + 1
        for piece in pieces[:start]:
            yield from piece.raw
        if start < end:
            yield len(self.segments)
            inside = pieces[start:end]
            segment, run = _segment(inside, [p - start for p in partners[start:end]], write)
            self.segments.append(segment)
            self._runs.append(run)
        for piece in pieces[end:]:
            yield from piece.raw

    def plain(self, text: str, new_line: str = r"\n") -> Iterator[Part]:
        """The parts for a text that may have tags such as ``<b>``, each line a segment.

        Line breaks that ``new_line`` does not match are breaks in a segment.
        """
        position = 0
        for match in re.finditer(new_line, text):
            yield from self.run(_pieces(text[position : match.start()]), write_plain)
            yield match[0]
            position = match.end()
        yield from self.run(_pieces(text[position:]), write_plain)

    def _join(self, parts: Iterable[Part], translated: Sequence[Segment]) -> str:
        return "".join(self._part(part, translated) for part in parts)

    def _part(self, part: Part, translated: Sequence[Segment]) -> str:
        if isinstance(part, str):
            return part
        if isinstance(part, Value):
            if part.always or self._changed(part, translated):
                return part.encode(self._join(part.parts, translated))
            return part.raw
        run, segment = self._runs[part], translated[part]
        if segment == self.segments[part]:
            return "".join(self._join(piece.raw, translated) for piece in run.pieces)
        return run.write([
            Written(text if tag is None else tag.moved or self._join(tag.raw, translated), tag)
            for text, tag in _written(run, segment)
        ])  # fmt: skip

    def _changed(self, value: Value, translated: Sequence[Segment]) -> bool:
        numbers = [part for part in value.parts if isinstance(part, int)]
        return any(translated[n] != self.segments[n] for n in numbers)


def decode(data: bytes, declared: str = "utf-8") -> tuple[str, str, bytes]:
    """The text of a file, its encoding and byte order mark, which give ``data`` again.

    Raises DocumentError if the file is too long or not in the ``declared`` encoding.
    """
    if len(data) > MAX_BYTES:
        size = f"{size_text(len(data))}, more than {size_text(MAX_BYTES)}"
        raise DocumentError(f"has {size}: cut it into several files")
    marks = [pair for pair in BYTE_ORDER_MARKS if data.startswith(pair[0])]
    mark, encoding = marks[0] if marks else (b"", declared)
    try:
        text = data[len(mark) :].decode(encoding)
        if text.encode(encoding) == data[len(mark) :]:
            return text, encoding, mark
    except UnicodeError:  # not with its reason, which may hold the whole file
        pass
    raise DocumentError(f"is not valid {encoding.upper()}: save it as UTF-8")


def text_pieces(raw: str, unescape: Callable[[str], str] = str) -> Iterator[Piece]:
    """A text, with the blanks at both ends as pieces of their own."""
    start = len(raw) - len(raw.lstrip())
    end = max(start, len(raw.rstrip()))
    for part in (raw[:start], raw[start:end], raw[end:]):
        if part:
            yield Piece((part,), unescape(part))


def write_plain(written: list[Written]) -> str:
    """A translation in a format that escapes nothing."""
    return "".join(part.text for part in written)


def tag_piece(raw: str, name: str) -> Piece:
    """A tag such as ``<b>``, ``</b>`` or ``<b/>``."""
    kind = TagKind.EMPTY if raw.endswith("/>") else TagKind.OPEN
    return Piece((raw,), kind=TagKind.CLOSE if raw.startswith("</") else kind, name=name)


def _pieces(text: str) -> Iterator[Piece]:
    position = 0
    for match in TAG_OR_LINE.finditer(text):
        yield from text_pieces(text[position : match.start()])
        if match[0] == "\n":
            yield Piece(("\n",), kind=TagKind.EMPTY, breaks=True)
        else:
            yield tag_piece(match[0], match[1].lower())
        position = match.end()
    yield from text_pieces(text[position:])


def partners_of(pieces: Sequence[Piece]) -> list[int]:
    """For each OPEN the place of its CLOSE and the reverse; -1 for what is or becomes EMPTY."""
    partners = [-1] * len(pieces)
    stack: list[int] = []
    waiting: dict[str, int] = {}  # how many of an element are in the stack
    for i, piece in enumerate(pieces):
        if piece.kind is TagKind.OPEN:
            stack.append(i)
            waiting[piece.name] = waiting.get(piece.name, 0) + 1
        elif piece.kind is TagKind.CLOSE and waiting.get(piece.name):
            while True:
                opened = stack.pop()
                waiting[pieces[opened].name] -= 1
                if pieces[opened].name == piece.name:
                    break
            partners[i], partners[opened] = opened, i
    return partners


def _segment(
    pieces: Sequence[Piece], partners: Sequence[int], write: Writer
) -> tuple[Segment, Run]:
    elements: list[list[Piece]] = []
    blank_before: set[int] = set()
    blank_after: set[int] = set()
    text: list[str] = []  # characters, in pieces
    length, ends_blank = 0, True  # of text
    after_blank, empty = False, -1  # the last EMPTY tag, if nothing but tags came since
    tags: list[tuple[TagKind, int, int]] = []
    numbers: dict[int, int] = {}
    codes = _codes(pieces)
    nouns: dict[str, tuple[Piece, int]] = {}
    for i, piece in enumerate(pieces):
        if piece.is_noun:
            clean = next(codes)
            nouns[clean] = piece, length
            after_blank, empty = False, -1
        elif piece.kind is None:
            clean = BLANKS.sub(" ", piece.text)
            if clean[:1].isdigit() and text and text[-1] in nouns:
                clean = f" {clean}"  # not H5 and 2 as H52
            if empty >= 0 and clean[:1].isspace():
                blank_after.add(empty)
            if empty in blank_before and ends_blank and text and clean.startswith(CLOSING):
                text[-1] = text[-1][:-1]  # "see ![x](y), then": no blank before the comma
                length -= 1
                for j in range(len(tags) - 1, -1, -1):
                    if tags[j][2] <= length:
                        break
                    tags[j] = (*tags[j][:2], length)
            elif ends_blank:
                clean = clean.removeprefix(" ")
            if piece.text:
                after_blank, empty = piece.text[-1].isspace(), -1
        elif partners[i] >= 0:
            if piece.kind is TagKind.OPEN:
                numbers[partners[i]] = len(elements)
                tags.append((TagKind.OPEN, len(elements), length))
                elements.append([piece, pieces[partners[i]]])
            else:
                tags.append((TagKind.CLOSE, numbers[i], length))
            continue
        else:
            tags.append((TagKind.EMPTY, len(elements), length))
            empty = -1 if piece.breaks else len(elements)
            if after_blank and not piece.breaks:
                blank_before.add(empty)
            elements.append([piece])
            after_blank = False
            clean = " " if piece.breaks and not ends_blank else ""
        if clean:
            text.append(clean)
            length += len(clean)
            ends_blank = clean.endswith(" ")
    stand_ins = {}
    for code, (piece, at) in nouns.items():
        stand_ins[code] = StandIn(len(elements), at / length)
        elements.append([piece])
    joined = "".join(text)
    cut = len(joined) - len(joined.lstrip())
    joined = joined.strip()
    run = Run(pieces, elements, stand_ins, frozenset(blank_before), frozenset(blank_after), write)
    return Segment(joined, tuple(
        Tag(kind, number, min(max(at - cut, 0), len(joined))) for kind, number, at in tags
    )), run  # fmt: skip


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


def _written(run: Run, segment: Segment) -> Iterator[Written]:
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
