"""OpenDocument texts, spreadsheets and presentations (.odt, .ods, .odp), OpenDocument 1.3.

Paragraphs and headings of the text, tables, frames, notes, slides, headers and footers are
segments, and so are the cells of a sheet with text that no formula gives. Comments, tracked
deletions, fields, formulas and charts stay as they are.
"""

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from lxml import etree

from mt.documents.archive import Archive
from mt.documents.document import DocumentError, is_note_mark
from mt.documents.inline import Item, Paragraph, Span, Text, Void, has_words
from mt.documents.office import OfficeDocument, element_value
from mt.documents.xml_text import local_name, writable

_KINDS = ("text", "text-master", "text-web", "spreadsheet", "presentation")
_PARTS = ("content.xml", "styles.xml")
_MANIFEST = "META-INF/manifest.xml"

_OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
_TEXT, _TABLE, _STYLE, _OFFICE = (
    f"{{{_OASIS}{name}:1.0}}" for name in ("text", "table", "style", "office")
)
_EXTENSION = "{http://openoffice.org/2009/office}"  # LibreOffice's marks of who wrote what when
_CELLS = f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"
_UNTOUCHED = (f"{_TEXT}tracked-changes", f"{_TABLE}tracked-changes", f"{_OFFICE}annotation")
_IN_STYLES = [  # of a page; other texts of styles.xml are placeholders
    f"{_STYLE}{place}{pages}" for place in ("header", "footer") for pages in ("", "-left", "-first")
]
# As LibreOffice before version 7 writes those of a first page
_IN_STYLES += [
    f"{{urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0}}{place}-first"
    for place in ("header", "footer")
]
_CONTAINERS = {"span", "a", "meta"}
_MARKS = "bookmark|reference-mark|change|toc-mark|alphabetical-index-mark|user-index-mark"
_RANGE = re.compile(rf"({_MARKS})-(start|end)\Z")
_HIDDEN = re.compile(rf"({_MARKS})(-start|-end)?\Z|soft-page-break")
_MAX_DEPTH = 20  # of elements within a paragraph; what is deeper is not translated

_name = partial(local_name, namespaces=frozenset({_TEXT[1:-1]}))


class _Atom(NamedTuple):
    """An element in a paragraph, and the text:span around it from the outermost on."""

    node: etree._Element
    spans: tuple[etree._Element, ...]


@dataclass(frozen=True)
class _Reader:
    """A place in a paragraph: the text:span elements around it, their looks, and its depth."""

    looks_of_styles: dict[str, Hashable]
    spans: tuple[etree._Element, ...] = ()
    looks: tuple[Hashable, ...] = ()
    weight: int = 0
    depth: int = 0
    raised: bool = False  # a superscript
    raised_styles: frozenset[str] = frozenset()

    def inside(self, node: etree._Element) -> "_Reader | None":
        if self.depth == _MAX_DEPTH:
            return None
        if _name(node) != "span":
            return replace(self, spans=(), looks=(), weight=0, depth=self.depth + 1)
        style = node.get(f"{_TEXT}style-name")
        look = self.looks_of_styles.get(style, style) if style else None
        looks = (*self.looks, look) if look else self.looks
        weight = self.weight + 20 + sum(map(len, node.attrib.values()))
        return replace(
            self,
            spans=(*self.spans, node),
            looks=looks,
            weight=weight,
            depth=self.depth + 1,
            raised=self.raised or style in self.raised_styles,
        )

    def text(self, text: str | None, *, collapse: bool = True) -> Text:
        text = re.sub("[ \t\r\n]+", " ", text or "") if collapse else text or ""
        return Text(text, self.spans, self.looks, self.weight, self.raised)


def read_odt(data: bytes) -> OfficeDocument:
    """The document with the bytes ``data``. Raises DocumentError."""
    archive = Archive(data)
    if "mimetype" in archive:
        family, _, kind = archive.read("mimetype")[:100].decode("latin-1").rpartition(".")
        if (
            family != "application/vnd.oasis.opendocument"
            or kind.strip().removesuffix("-template") not in _KINDS
        ):
            raise DocumentError("is no OpenDocument text, spreadsheet or presentation")
    # Not parsed: old programs wrote a DOCTYPE, which is not allowed in parts that are.
    if _MANIFEST in archive and b"encryption-data" in archive.read(_MANIFEST):
        raise DocumentError("is encrypted: save it without a password")
    if _PARTS[0] not in archive:
        raise DocumentError(f"is damaged, or is no OpenDocument file: it has no {_PARTS[0]}")
    return OfficeDocument(archive, [part for part in _PARTS if part in archive], _paragraphs)


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    if root.tag not in (f"{_OFFICE}document-content", f"{_OFFICE}document-styles"):
        raise DocumentError("is damaged: one of its parts is no OpenDocument text")
    reader = _Reader(_looks_of_styles(root), raised_styles=_raised_styles(root))
    in_styles = root.tag == f"{_OFFICE}document-styles"
    for node in list(root.iter(f"{_TEXT}p", f"{_TEXT}h")):
        if in_styles and next(node.iterancestors(*_IN_STYLES), None) is None:
            continue
        if _is_translated(node):
            yield Paragraph(Span(node, _items(node, reader)), _write)


def _is_translated(paragraph: etree._Element) -> bool:
    if next(paragraph.iterancestors(*_UNTOUCHED), None) is not None:
        return False
    cell = paragraph.getparent()
    if cell is None or cell.tag not in _CELLS:
        return True
    # The text of a number, and of a formula, is made anew by the program.
    is_text = cell.get(f"{_OFFICE}value-type", "string") == "string"
    return is_text and cell.get(f"{_TABLE}formula") is None


def _looks_of_styles(root: etree._Element) -> dict[str, Hashable]:
    """Automatic styles of text -> what they change; None if one sees nothing of it.

    LibreOffice makes such a style for every stretch of text that was typed at another time.
    """
    looks: dict[str, Hashable] = {}
    for style in root.iter(f"{_STYLE}style"):
        if style.get(f"{_STYLE}family") != "text":
            continue
        changes = []
        for properties in style:
            attributes = properties.attrib.items()
            seen = {pair for pair in attributes if not pair[0].startswith(_EXTENSION)}
            inner = tuple(element_value(node) for node in properties)
            if seen or inner:
                changes.append((properties.tag, frozenset(seen), inner))
        parent = style.get(f"{_STYLE}parent-style-name")
        look = (parent, tuple(changes)) if parent or changes else None
        looks[style.get(f"{_STYLE}name", "")] = look
    return looks


def _raised_styles(root: etree._Element) -> frozenset[str]:
    """The automatic styles of superscripts."""
    return frozenset(
        style.get(f"{_STYLE}name", "")
        for style in root.iter(f"{_STYLE}style")
        for properties in style
        if re.match(r"super|[1-9]", properties.get(f"{_STYLE}text-position") or "")
    )


def _items(parent: etree._Element, reader: _Reader) -> list[Item]:
    items: list[Item] = [reader.text(parent.text)]
    for node in parent:
        name = _name(node)
        inner = None if _is_mark(node, reader) else reader.inside(node)
        if name == "s" and (count := _blanks(node)):
            items.append(reader.text(" " * count, collapse=False))
        elif name == "span" and inner:
            items += _items(node, inner)
        elif name in _CONTAINERS and inner and has_words(content := _items(node, inner)):
            items.append(Span(_Atom(node, reader.spans), content))
        else:
            separates, ends = name == "line-break", name in ("tab", "s")
            atom = _Atom(node, reader.spans)
            is_range = _is_comment(node) and node.get(f"{_OFFICE}name") is not None
            ordered = is_range or bool(_RANGE.match(name))
            hidden = _is_comment(node) or bool(_HIDDEN.match(name))
            items.append(Void([atom], separates, ends, ordered, reader.weight, hidden))
        items.append(reader.text(node.tail))
    return items


def _is_comment(node: etree._Element) -> bool:
    """Whether a comment begins here, or the text with a comment ends."""
    return node.tag in (f"{_OFFICE}annotation", f"{_OFFICE}annotation-end")


def _is_mark(span: etree._Element, reader: _Reader) -> bool:
    is_raised = span.get(f"{_TEXT}style-name") in reader.raised_styles
    return is_raised and not len(span) and is_note_mark(span.text or "")


def _blanks(node: etree._Element) -> int:
    """How many blanks a text:s stands for; 0 if they are too many to be text."""
    count = node.get(f"{_TEXT}c", "1")
    return int(count) if re.fullmatch("[0-9]{1,2}", count) else 0


def _write(paragraph: Span) -> None:
    # The text would be there a second time, and be the value of the cell.
    cell = next(paragraph.content.iterancestors(*_CELLS), None)
    if cell is not None:
        cell.attrib.pop(f"{_OFFICE}string-value", None)
    _fill(paragraph.content, paragraph.items)


def _fill(parent: etree._Element, items: list[Item]) -> None:
    parent.text = None
    for child in list(parent):
        parent.remove(child)  # with its tail
    _append(parent, items)


def _append(parent: etree._Element, items: list[Item]) -> None:
    for item in items:
        if isinstance(item, Text):
            if item.text:
                _append_text(_wrapped(parent, item.style), item.text)
        elif isinstance(item, Void):
            for atom in item.content:
                _append_node(parent, atom)
        elif item.content is None:
            _append(parent, item.items)
        else:
            _fill(item.content.node, item.items)
            _append_node(parent, item.content)


def _append_node(parent: etree._Element, atom: _Atom) -> None:
    atom.node.tail = None
    _wrapped(parent, atom.spans).append(atom.node)


def _append_text(parent: etree._Element, text: str) -> None:
    """Blanks at the start, and several in a row, would be dropped or be one blank as text."""
    for piece in re.split("( {2,}|^ +)", writable(text)):
        if (len(piece) > 1 and not piece.strip(" ")) or (piece == " " and _is_first(parent)):
            etree.SubElement(parent, f"{_TEXT}s").set(f"{_TEXT}c", str(len(piece)))
        elif piece and len(parent):
            parent[-1].tail = (parent[-1].tail or "") + piece
        elif piece:
            parent.text = (parent.text or "") + piece


def _is_first(parent: etree._Element) -> bool:
    """Whether what is appended would be the first in its paragraph."""
    if parent.text or len(parent):
        return False
    while _name(parent) in _CONTAINERS:
        above = parent.getparent()
        if above is None or above.text or parent.getprevious() is not None:
            return False
        parent = above
    return True


def _wrapped(parent: etree._Element, spans: tuple[etree._Element, ...]) -> etree._Element:
    """The innermost of new spans like these in ``parent``, or ``parent`` itself."""
    for span in spans:
        parent = etree.SubElement(parent, span.tag, span.attrib)
    return parent
