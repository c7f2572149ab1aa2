"""The inline markup of Markdown: which characters of a paragraph are tags, and of what."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mt.documents.document import TagKind
from mt.documents.html import (
    CODE,
    INLINE,
    RAW,
    TOKEN,
    VERBATIM,
    VOID,
    attributes_of,
    has_text,
    is_kept,
    note_mark_end,
    ordinal_at,
    start_tag,
    unescape,
    verbatim_end,
)
from mt.documents.markdown_writer import write_alt
from mt.documents.pieces import Part, Piece
from mt.documents.text_document import TextDocument, text_pieces

# Not the tokens of markdown-it-py, which do not say where in a line they are
SPECIAL = re.compile(r"[\\`*_~\[\]!<&\n]")
SPECIAL_IN_ALT = re.compile(r"[\\`*_~\[\]<&\n]")
ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
AUTOLINK = re.compile(
    r"<(?:[a-zA-Z][a-zA-Z0-9+.-]{1,31}:[^\s<>]*|[\w.!#$%&'*+/=?^`{|}~-]{1,99}@[\w.-]{1,99})>"
)
FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,100}\]:?")
CHECKBOX = re.compile(r"\[[ xX]\](?=\s)")
ALERT = re.compile(r"\[!(?:NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*\n")  # of GitHub
BLANKS = re.compile(r"\s*")
ADDRESS = re.compile(r"<(?:[^<>\\\n]|\\.)*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*")
TITLE = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)""", re.DOTALL)
LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999})\]", re.DOTALL)


@dataclass
class _Item:
    """A tag or a text from ``start`` to ``end``."""

    start: int
    end: int
    text: str = ""
    kind: TagKind | None = None
    name: str = ""
    breaks: bool = False
    is_noun: bool = False
    moved: str | None = None
    html: re.Match[str] | None = None  # a tag that may have attributes to translate
    alt: tuple[int, int] | None = None  # the text of an image
    items: list["_Item"] = field(default_factory=list)  # what signs of emphasis are


@dataclass
class _Signs:
    """Signs of emphasis in a row. The first of them may close elements, the last open others."""

    index: int  # of the item
    sign: str
    start: int  # of those that are not used
    end: int
    can_open: bool
    can_close: bool
    size: int  # of all
    closing: list[_Item] = field(default_factory=list)
    opening: list[_Item] = field(default_factory=list)  # the last one first


class Inline:
    """A paragraph whose lines lie at ``spans`` of ``text``.

    The rules are those of CommonMark and, for ``~~``, GitHub's.
    """

    def __init__(
        self,
        document: TextDocument,
        text: str,
        spans: Sequence[tuple[int, int]],
        references: frozenset[str],
    ) -> None:
        self._document, self._text, self._references = document, text, references
        self._content = "\n".join(text[start:end] for start, end in spans)
        self._places = [start for start, _ in spans]  # of the lines in the text
        lengths = (end - start + 1 for start, end in spans[:-1])
        self._starts = list(accumulate(lengths, initial=0))  # and in the content
        self._items: list[_Item] = []
        self._signs: list[_Signs] = []
        self._brackets: list[tuple[int, int]] = []  # an opening one's item, and signs before it
        self._no_links = 0  # so many of the first brackets begin no link, as there is one in them
        self._pairs = 0
        self._ticks: dict[int, list[int]] = {}
        for match in re.finditer("`+", self._content):
            self._ticks.setdefault(len(match[0]), []).append(match.start())
        self._no_tag_before = 0
        self._without_end: set[str] = set()  # elements that have no end tag here

    def pieces(self) -> list[Piece]:
        position = 0
        content = self._content
        while match := SPECIAL.search(content, position):
            self._document.check_count(len(self._items))
            self._add_text(position, match.start())
            position = self._special(match[0], match.start())
        self._add_text(position, len(content))
        self._emphasize(0)
        items = (one for item in self._items for one in item.items or [item])
        return [piece for item in items for piece in self._item_pieces(item)]

    def _special(self, sign: str, at: int) -> int:
        """Add the item that begins at ``at``, and return its end."""
        content = self._content
        if sign == "\\":
            return self._escape(at)
        if sign == "\n":
            return self._new_line(at)
        if sign == "`":
            return self._code(at)
        if sign in "*_~":
            return self._sign(sign, at)
        if sign == "<":
            return self._html(at)
        if sign == "&":
            entity = ENTITY.match(content, at)
            end = entity.end() if entity else at + 1
            return self._add(at, end, unescape(content[at:end]))
        if sign == "]":
            return self._bracket(at)
        if sign == "!" and content[at + 1 : at + 2] != "[":
            return self._add(at, at + 1, "!")
        if sign == "[":
            if at == 0 and (alert := ALERT.match(content)):
                return self._add_tag(at, alert.end(), breaks=True)
            fixed = FOOTNOTE.match(content, at) or (at == 0 and CHECKBOX.match(content))
            if fixed:
                return self._add_tag(at, fixed.end())
        self._brackets.append((len(self._items), len(self._signs)))
        return self._add(at, at + 1 + (sign == "!"), content[at : at + 1 + (sign == "!")])

    def _add(self, start: int, end: int, text: str) -> int:
        self._items.append(_Item(start, end, text))
        return end

    def _add_text(self, start: int, end: int) -> None:
        if start < end:
            self._add(start, end, self._content[start:end])

    def _add_tag(self, start: int, end: int, *, breaks: bool = False, is_noun: bool = False) -> int:
        item = _Item(start, end, kind=TagKind.EMPTY, breaks=breaks, is_noun=is_noun)
        self._items.append(item)
        return end

    def _escape(self, at: int) -> int:
        following = self._content[at + 1 : at + 2]
        if following == "\n":
            return self._add_tag(at, at + 2, breaks=True)
        if following and not following.isalnum() and not following.isspace():
            return self._add(at, at + 2, following)
        return self._add(at, at + 1, "\\")

    def _new_line(self, at: int) -> int:
        last = self._items[-1] if self._items else None
        if last and last.kind is None and last.text.endswith("  "):
            kept = last.text.rstrip(" ")
            last.end -= len(last.text) - len(kept)
            last.text = kept
            return self._add_tag(last.end, at + 1, breaks=True)
        return self._add(at, at + 1, " ")

    def _code(self, at: int) -> int:
        ticks = re.compile("`+").match(self._content, at)
        size = len(ticks[0]) if ticks else 1
        same = self._ticks.get(size, [])
        place = bisect_left(same, at + size)
        if place < len(same):
            return self._add_tag(at, same[place] + size, is_noun=True)
        return self._add(at, at + size, "`" * size)

    def _html(self, at: int) -> int:
        content = self._content
        if link := AUTOLINK.match(content, at):
            return self._add_tag(at, link.end(), is_noun=True)
        match = TOKEN.match(content, at) if at >= self._no_tag_before else None
        if match is None:
            return self._add(at, at + 1, "<")
        closed = match["closed"] if match["tag"] else match[0][-1:] == ">"
        if not closed:  # the search does not begin again before its end: the time is linear
            self._no_tag_before = match.end()
            return self._add(at, at + 1, "<")
        name, end = (match["tag"] or "").lower(), match.end()
        if not name:
            return self._add_tag(at, end)
        if name == "sup" and not match["end"]:
            if content[at - 1 : at].isdigit() and (ordinal := ordinal_at(match)):
                return self._add(at, ordinal.end(), ordinal[1])
            if mark_end := note_mark_end(match):
                return self._add_tag(at, mark_end)
        alone = name in VOID or match["attributes"].endswith("/")
        keep = is_kept(attributes_of(match["attributes"]))
        is_verbatim = name in VERBATIM or name in RAW or (keep and not alone)
        if is_verbatim and not match["end"] and name not in self._without_end:
            whole = self._element_end(name, end)
            if whole is not None:
                is_noun = (keep or name in CODE) and has_text(match, whole)
                html = match if name in RAW and not keep and "\n" not in match[0] else None
                self._items.append(_Item(at, whole, kind=TagKind.EMPTY, is_noun=is_noun, html=html))
                return whole
            self._without_end.add(name)  # none is looked for again: the time is linear
        kind = TagKind.CLOSE if match["end"] else TagKind.OPEN
        if alone or name not in INLINE:
            kind = TagKind.EMPTY
        has_texts = not match["end"] and not keep and "\n" not in match[0]
        self._items.append(
            _Item(
                at,
                end,
                kind=kind,
                name=name,
                breaks=name == "br",
                html=match if has_texts else None,
            )
        )
        return end

    def _element_end(self, name: str, position: int) -> int | None:
        """Where an element ends whose start tag ends at ``position``; None without an end tag."""
        end = verbatim_end(self._content, name, position)
        if name in RAW:
            end_tag = TOKEN.match(self._content, end)
            return end_tag.end() if end_tag else None
        end_tag = re.compile(rf"</{re.escape(name)}\s*>\Z", re.I).search(
            self._content, max(position, end - len(name) - 20), end
        )
        return end if end_tag or name in VERBATIM else None

    def _sign(self, sign: str, at: int) -> int:
        content = self._content
        signs = re.compile(re.escape(sign) + "+").match(content, at)
        end = signs.end() if signs else at + 1
        before, after = content[at - 1 : at] if at else " ", content[end : end + 1] or " "
        left = not after.isspace() and (after.isalnum() or not before.isalnum())
        right = not before.isspace() and (before.isalnum() or not after.isalnum())
        if sign == "_":
            left, right = (
                left and not (right and before.isalnum()),
                right and not (left and after.isalnum()),
            )
        if sign != "~" or end - at == 2:
            self._signs.append(_Signs(len(self._items), sign, at, end, left, right, end - at))
        return self._add(at, end, content[at:end])

    def _bracket(self, at: int) -> int:
        """Make a link or an image of what lies between ``[`` and the ``]`` at ``at``."""
        content = self._content
        if not self._brackets:
            return self._add(at, at + 1, "]")
        index, signs = self._brackets.pop()
        opened = self._items[index]
        if len(self._brackets) < self._no_links:
            self._no_links = len(self._brackets)
            if opened.text == "[":
                return self._add(at, at + 1, "]")
        end, is_address = self._link_end(at, content[opened.end : min(at, opened.end + 1000)])
        if end is None:
            return self._add(at, at + 1, "]")
        is_label = not is_address and content[at:end] in ("]", "][]")  # the text is the label
        if opened.text == "![":
            del self._items[index:], self._signs[signs:]
            alt = None if is_label else (opened.end, at)
            if alt and SPECIAL_IN_ALT.search(content, opened.end, at):
                alt = None
            self._items.append(_Item(opened.start, end, kind=TagKind.EMPTY, alt=alt))
            return end
        self._emphasize(signs)
        self._pairs += 1
        opened.kind, opened.name, opened.text = TagKind.OPEN, f"[{self._pairs}", ""
        close = _Item(at, end, kind=TagKind.CLOSE, name=opened.name)
        if is_label:
            close.moved = f"][{content[opened.end : at]}]"
        self._items.append(close)
        self._no_links = len(self._brackets)
        return end

    def _link_end(self, at: int, text: str) -> tuple[int | None, bool]:
        """The end of what begins with ``](``, ``][`` or ``]``, and whether it has an address."""
        content = self._content
        if content[at + 1 : at + 2] == "(":
            position = _blanks(content, at + 2)
            address = ADDRESS.match(content, position)
            end = _blanks(content, address.end() if address else position)
            if title := TITLE.match(content, end):
                end = _blanks(content, title.end())
            if content[end : end + 1] == ")":
                return end + 1, True
        label = LABEL.match(content, at + 1)
        if label and label[1].strip():
            return (label.end(), False) if self._is_label(label[1]) else (None, False)
        if self._is_label(text):
            return label.end() if label else at + 1, False
        return None, False

    def _is_label(self, text: str) -> bool:
        # As markdown-it-py writes them
        return bool(self._references) and (
            " ".join(text.split()).lower().upper() in self._references
        )

    def _emphasize(self, first: int) -> None:
        """Make elements of the signs from number ``first`` on, and forget them."""
        waiting: list[_Signs] = []
        # Below it nothing in ``waiting`` fits such signs: the search takes linear time
        bottom: dict[tuple[str, bool, int], int] = {}
        for signs in self._signs[first:]:
            key = signs.sign, signs.can_open, signs.size % 3
            while signs.can_close and signs.start < signs.end:
                places = range(len(waiting) - 1, bottom.get(key, 0) - 1, -1)
                place = next((i for i in places if _fit(waiting[i], signs)), None)
                if place is None:
                    bottom[key] = len(waiting)
                    break
                self._pair(waiting[place], signs)
                is_used = waiting[place].start == waiting[place].end
                del waiting[place if is_used else place + 1 :]
                bottom = {one: min(at, len(waiting)) for one, at in bottom.items()}
            if signs.can_open and signs.start < signs.end:
                waiting.append(signs)
        for signs in self._signs[first:]:
            rest = _Item(signs.start, signs.end, self._content[signs.start : signs.end])
            self._items[signs.index].items = [*signs.closing, rest, *reversed(signs.opening)]
        del self._signs[first:]

    def _pair(self, opening: _Signs, closing: _Signs) -> None:
        size = 2 if min(opening.end - opening.start, closing.end - closing.start) > 1 else 1
        self._pairs += 1
        name = f"{opening.sign}{self._pairs}"
        opening.end -= size
        opening.opening.append(_Item(opening.end, opening.end + size, kind=TagKind.OPEN, name=name))
        closing.closing.append(
            _Item(closing.start, closing.start + size, kind=TagKind.CLOSE, name=name)
        )
        closing.start += size

    def _item_pieces(self, item: _Item) -> Iterator[Piece]:
        raw = self._raw(item.start, item.end)
        if item.kind is None:
            if raw == item.text:
                yield from text_pieces(raw)
            else:
                yield Piece((raw,), item.text)
            return
        parts: list[Part] = [raw]
        if item.html:
            rest = self._raw(item.html.end(), item.end)  # of an element that stays
            parts = [*start_tag(self._document, item.html), rest]
        elif item.alt:
            start, end = item.alt
            inner = self._document.run(text_pieces(self._content[start:end]), write_alt)
            parts = [self._raw(item.start, start), *inner, self._raw(end, item.end)]
        yield Piece(tuple(parts), "", item.kind, item.name, item.breaks, item.is_noun, item.moved)

    def _raw(self, start: int, end: int) -> str:
        return self._text[self._place(start) : self._place(end)]

    def _place(self, position: int) -> int:
        line = bisect_right(self._starts, position) - 1
        return self._places[line] + position - self._starts[line]


def _fit(opening: _Signs, closing: _Signs) -> bool:
    """CommonMark's rules 9 and 10 of emphasis."""
    if opening.sign != closing.sign or opening.sign == "~":
        return opening.sign == closing.sign
    sizes = opening.size, closing.size
    is_clear = not (opening.can_close or closing.can_open)
    return is_clear or sum(sizes) % 3 != 0 or all(size % 3 == 0 for size in sizes)


def _blanks(text: str, position: int) -> int:
    match = BLANKS.match(text, position)
    return match.end() if match else position
