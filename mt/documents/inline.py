"""A paragraph of an office document as segments with inline tags, and back.

A format reads a paragraph into a tree of texts, voids and spans, and writes such a tree.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mt.documents.document import Segment, Tag, TagKind, goes_on_after

_BREAK = re.compile(r"[\t\n\r\x85\u2028\u2029]")
_CLOSING = tuple(".,;:!?)]}%…”“’»")  # no blank comes before these
_ORDINAL_LETTERS = ("st", "nd", "rd", "th")
_OPENING = tuple("([{„‚«»¿¡")  # nor after these


@dataclass
class Text:
    text: str
    style: Any = None  # what the format needs to write text of the same look
    look: Hashable = None  # equal for texts that look the same
    weight: int = 0  # of the style: about how many characters each copy of it takes
    raised: bool = False  # a superscript


@dataclass
class Void:
    """Something without text, such as a tab, a picture, a bookmark, a note's number."""

    content: list[Any]  # what the format writes
    separates: bool = False  # words, as a line break does; lines that are no sentence, too
    ends: bool = False  # a segment, as a tab does, which is mostly between columns
    ordered: bool = False  # must not change places with others, as the two ends of a bookmark
    weight: int = 0  # as of a text
    hidden: bool = False  # on the page, as a bookmark is
    spaced: bool = False  # has a blank on both sides; the segment has one of them
    after_blank: bool = False  # can be seen, and has a blank before it


@dataclass
class Span:
    """Texts with a common look, or within an element, such as a link."""

    content: Any  # the element; None if it is only a look
    items: "list[Item]"
    style: Any = None  # that of most of the text directly in it


Item = Text | Void | Span


def has_words(items: list[Item]) -> bool:
    """Whether there is any text but blanks, which makes an element worth a pair of tags."""
    return any(
        bool(item.text.strip())
        if isinstance(item, Text)
        else isinstance(item, Span) and has_words(item.items)
        for item in items
    )


class Paragraph:
    """A paragraph that was read into ``root``, and its segments. ``write`` puts it in its place."""

    def __init__(self, root: Span, write: Callable[[Span], None]) -> None:
        self._root = root
        self._write = write
        root.items = _merged(_with_plain_ordinals(root.items))
        weights = list(_weights(root.items))
        stretches = []
        if words := _words(root):
            focus, first, end = words
            parts: list[Item] = [Span(None, [])]
            inner = focus.items[first:end]
            for item, goes_on in zip(
                inner, goes_on_after(list(map(_first_text, inner))), strict=True
            ):
                if isinstance(item, Void) and (item.ends or (item.separates and not goes_on)):
                    parts += [item, Span(None, [])]
                else:
                    assert isinstance(parts[-1], Span)
                    parts[-1].items.append(item)
            focus.items[first:end] = parts
            stretches = [_Stretch(part) for part in parts if isinstance(part, Span)]
        self._stretches = [stretch for stretch in stretches if stretch.segment.text]
        # About how many characters the styles take if the text after each tag needs a copy of one.
        tags = sum(len(segment.tags) + 1 for segment in self.segments)
        self.weight = sum(weights) + tags * max(weights, default=0)

    @property
    def segments(self) -> list[Segment]:
        return [stretch.segment for stretch in self._stretches]

    def replace(self, translated: Sequence[Segment]) -> None:
        """Write the translations of the segments into the document's tree; once only.

        Raises ValueError unless a translation has its segment's tags, balanced.
        """
        for stretch, segment in zip(self._stretches, translated, strict=True):
            if segment != stretch.segment:
                stretch.replace(segment)
        self._write(self._root)


class _Stretch:
    """A part of a paragraph that is a segment.

    What stands at its ends without being text, and an element around all of its text, stays in
    place and gives no tags. Nor does the look that most characters have. The segment's text is
    empty if there is nothing to translate.
    """

    def __init__(self, root: Span) -> None:
        self._root = root
        self._elements: list[Void | Span] = []  # by their numbers in tags
        self._focus = root
        self._before, self._after = list[Item](), list[Item]()
        self._margins = "", ""  # blanks
        self.segment = self._read()

    def replace(self, translated: Segment) -> None:
        if sorted(_names(translated)) != sorted(_names(self.segment)):
            raise ValueError("a translated segment does not have the tags of its source")
        items = self._tree(self._repaired(list(self._pieces(translated))))
        lead, trail = (Text(blanks, self._focus.style) for blanks in self._margins)
        self._focus.items = [*self._before, lead, *items, trail, *self._after]

    def _read(self) -> Segment:
        words = _words(self._root)
        if words is None:
            return Segment("")
        self._focus, first, end = words
        inner = self._focus.items
        self._before, inner, self._after = inner[:first], inner[first:end], inner[end:]
        longest = max(_texts(inner), key=lambda text: len(text.text))
        inner, self._focus.style = _grouped(inner, longest.style)
        flat = _Flat(self._elements)
        flat.add(inner)
        text = "".join(flat.pieces)
        if not any(map(str.isalpha, text)):
            return Segment("")
        body = text.strip()
        start = text.index(body)
        self._margins = text[:start], text[start + len(body) :]
        tags = (
            Tag(tag.kind, tag.number, min(max(tag.position - start, 0), len(body)))
            for tag in flat.tags
        )
        return Segment(body, tuple(tags))

    def _pieces(self, segment: Segment) -> Iterator[str | Tag]:
        """The texts between the tags and the tags, with those voids in order that must be."""
        voids = [t.number for t in segment.tags if t.kind == TagKind.EMPTY]
        ordered = [number for number in voids if self._void(number).ordered]
        number_of = dict(zip(ordered, sorted(ordered), strict=True))
        end = 0
        for tag in segment.tags:
            yield segment.text[end : tag.position]
            yield tag._replace(number=number_of.get(tag.number, tag.number))
            end = max(end, tag.position)
        yield segment.text[end:]

    def _repaired(self, pieces: list[str | Tag]) -> list[str | Tag]:
        """With those blanks beside voids that the source had."""
        last = -1  # the last text that is not empty
        strip = space = False
        seen = " "  # the last character; a blank where a line begins, "" for a void that one sees
        for index, piece in enumerate(pieces):
            if isinstance(piece, Tag):
                if piece.kind != TagKind.EMPTY:
                    continue
                void = self._void(piece.number)
                before = pieces[last] if last >= 0 else ""
                assert isinstance(before, str)
                if void.separates or void.ends:
                    strip = True
                    if before:
                        pieces[last] = before.rstrip(" ")
                elif void.spaced and before:
                    space = True
                    if seen:
                        pieces[last] = before.rstrip(" ") + " "
                        seen = " "
                if void.after_blank and seen not in (" ", *_OPENING):
                    pieces[index - 1] = f"{pieces[index - 1]} "  # a text: one is before each tag
                if not void.hidden:
                    seen = " " if void.separates or void.ends else ""
            elif piece:
                if strip:
                    piece = piece.lstrip(" ")
                elif space and not piece.startswith((" ", *_CLOSING)):
                    piece = " " + piece
                pieces[index] = piece
                if piece:
                    last, strip, space, seen = index, False, False, piece[-1]
        return pieces

    def _tree(self, pieces: list[str | Tag]) -> list[Item]:
        items: list[Item] = []
        spans = [Span(None, items, self._focus.style)]
        numbers: list[int] = []
        for piece in pieces:
            if isinstance(piece, str):
                if piece:
                    spans[-1].items.append(Text(piece, spans[-1].style))
            elif piece.kind == TagKind.EMPTY:
                spans[-1].items.append(self._elements[piece.number])
            elif piece.kind == TagKind.OPEN:
                span = self._elements[piece.number]
                assert isinstance(span, Span)
                span.items = []
                spans[-1].items.append(span)
                spans.append(span)
                numbers.append(piece.number)
            else:
                if not numbers or numbers.pop() != piece.number:
                    raise ValueError("the tags of a translated segment are not nested")
                spans.pop()
        if numbers:
            raise ValueError("the tags of a translated segment are not balanced")
        return items

    def _void(self, number: int) -> Void:
        void = self._elements[number]
        assert isinstance(void, Void)
        return void


class _Flat:
    """The text and the tags of a tree."""

    def __init__(self, elements: list[Void | Span]) -> None:
        self.pieces: list[str] = []
        self.tags: list[Tag] = []
        self._elements = elements
        self._length = 0
        self._blank = True  # at the start and after a blank
        self._void: Void | None = None  # directly before, and after a blank

    def add(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Text):
                self._add_text(_BREAK.sub(" ", item.text))
                continue
            number = len(self._elements)
            self._elements.append(item)
            if isinstance(item, Void):
                self._tag(TagKind.EMPTY, number)
                divides = item.separates or item.ends
                item.after_blank = self._blank and self._length > 0 and not (divides or item.hidden)
                if divides and not self._blank:
                    self._append(" ")
                self._void = item if self._blank and self._length else None
            else:
                self._tag(TagKind.OPEN, number)
                self.add(item.items)
                self._tag(TagKind.CLOSE, number)

    def _add_text(self, text: str) -> None:
        if self._void and text.startswith(" ") and text.strip():
            self._void.spaced = True
            text = text.lstrip(" ")
        if text:
            self._void = None
            self._append(text)

    def _append(self, text: str) -> None:
        self.pieces.append(text)
        self._length += len(text)
        self._blank = text.endswith(" ")

    def _tag(self, kind: TagKind, number: int) -> None:
        self.tags.append(Tag(kind, number, self._length))


def _words(root: Span) -> tuple[Span, int, int] | None:
    """The innermost span with all words, and from where to where in it they are."""
    while True:
        worded = [index for index, item in enumerate(root.items) if has_words([item])]
        if not worded:
            return None
        first, end = worded[0], worded[-1] + 1
        inner = root.items[first]
        if end > first + 1 or not isinstance(inner, Span):
            return root, first, end
        root = inner


def _names(segment: Segment) -> list[tuple[str, int]]:
    return [(tag.kind.value, tag.number) for tag in segment.tags]


def _texts(items: list[Item]) -> Iterator[Text]:
    for item in items:
        if isinstance(item, Text):
            yield item
        elif isinstance(item, Span):
            yield from _texts(item.items)


def _first_text(item: Item) -> str:
    return next((text.text for text in _texts([item]) if text.text.strip()), "")


def _weights(items: list[Item]) -> Iterator[int]:
    for item in items:
        if isinstance(item, Span):
            yield from _weights(item.items)
        else:
            yield item.weight


def _with_plain_ordinals(items: list[Item]) -> list[Item]:
    """With the raised letters of 1st like the digit before them: German has no such letters."""
    before: Item | None = None
    for item in items:
        if isinstance(item, Span):
            item.items = _with_plain_ordinals(item.items)
        elif isinstance(item, Text) and isinstance(before, Text):
            is_ordinal = item.raised and item.text.strip().lower() in _ORDINAL_LETTERS
            if is_ordinal and before.text[-1:].isdigit():
                item.style, item.look = before.style, before.look
        if not isinstance(item, Text) or item.text:
            before = item
    return items


def _merged(items: list[Item]) -> list[Item]:
    """With one void for several in a row."""
    merged: list[Item] = []
    for item in items:
        last = merged[-1] if merged else None
        if isinstance(item, Void) and isinstance(last, Void):
            last.content += item.content
            last.ends |= item.ends or (last.separates and item.separates)
            last.separates |= item.separates
            last.ordered |= item.ordered
            last.hidden &= item.hidden
            last.weight += item.weight
        elif not isinstance(item, Text) or item.text:
            if isinstance(item, Span):
                item.items = _merged(item.items)
            merged.append(item)
    return merged


def _grouped(items: list[Item], inherited: Any) -> tuple[list[Item], Any]:
    """With spans around texts of another look than most characters have, and the main style."""
    sizes = Counter[Hashable]()
    texts = [item for item in items if isinstance(item, Text) and item.text.strip()]
    for text in texts:
        sizes[text.look] += len(text.text)
    main = sizes.most_common(1)[0][0] if sizes else None
    style = next((text.style for text in texts if text.look == main), inherited)
    grouped: list[Item] = []
    between: list[Item] = []  # voids and blanks, which belong to a span if it goes on after them
    span, look = None, main
    for item in items:
        if isinstance(item, Void) or (isinstance(item, Text) and not item.text.strip()):
            between.append(item)
            continue
        if isinstance(item, Text) and item.look != main:
            if span and look == item.look:
                span.items += [*between, item]
            else:
                span, look = Span(None, [item], item.style), item.look
                grouped += [*between, span]
        else:
            if isinstance(item, Span):
                item.items, item.style = _grouped(item.items, style)
            span = None
            grouped += [*between, item]
        between = []
    return [*grouped, *between], style
