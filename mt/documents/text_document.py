"""What the text formats share: a file is text that stays, with segments between it."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from mt.documents.document import DocumentError, Segment, TagKind, size_text
from mt.documents.pieces import (
    BLANKS,
    Part,
    Piece,
    Run,
    Value,
    Writer,
    Written,
    join_pieces,
    written_pieces,
)

MAX_BYTES = 50 * 2**20  # of a file, which is held in memory
MAX_PIECES = 150_000  # tags and texts between them: each takes up to 2 KB
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, which begins with the same bytes
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
TAG = re.compile(r"</?([a-zA-Z][^\s/<>]*)(?![^\s/<>])[^<>]*>")  # in linear time
TAG_OR_LINE = re.compile(rf"\n|{TAG.pattern}")


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
            segment, run = join_pieces(inside, [p - start for p in partners[start:end]], write)
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
            for text, tag in written_pieces(run, segment)
        ])  # fmt: skip

    def _changed(self, value: Value, translated: Sequence[Segment]) -> bool:
        numbers = [part for part in value.parts if isinstance(part, int)]
        return any(translated[n] != self.segments[n] for n in numbers)


def decode(data: bytes, declared: str = "utf-8", errors: str = "strict") -> tuple[str, str, bytes]:
    """The text of a file, its encoding and byte order mark, which give ``data`` again.

    Raises DocumentError if the file is too long or not in the ``declared`` encoding.
    """
    if len(data) > MAX_BYTES:
        size = f"{size_text(len(data))}, more than {size_text(MAX_BYTES)}"
        raise DocumentError(f"has {size}: cut it into several files")
    marks = [pair for pair in BYTE_ORDER_MARKS if data.startswith(pair[0])]
    mark, encoding = marks[0] if marks else (b"", declared)
    try:
        text = data[len(mark) :].decode(encoding, errors)
        if text.encode(encoding, errors) == data[len(mark) :]:
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
