"""PowerPoint presentations (.pptx), ISO/IEC 29500-1, chapters 19 and 21.

Paragraphs on slides and in notes, with their tables, groups and text boxes, are segments.
Layouts, charts, SmartArt, comments and fields, such as a slide's number, stay as they are.
"""

import copy
from collections.abc import Hashable, Iterator
from functools import partial

from lxml import etree

from mt.documents.archive import Archive
from mt.documents.document import is_note_mark
from mt.documents.inline import Item, Paragraph, Span, Text, Void
from mt.documents.office import OfficeDocument, element_value, element_weight, package_parts
from mt.documents.xml_text import child_of, local_name, text_of, writable

_DRAWING = frozenset(
    {
        "http://schemas.openxmlformats.org/drawingml/2006/main",
        "http://purl.oclc.org/ooxml/drawingml/main",  # "strict"
    }
)
_TYPES = (".slide+xml", ".notesSlide+xml")
# Properties of a run that do not change its look.
_UNSEEN = {"lang", "altLang", "dirty", "err", "noProof", "smtClean", "smtId", "bmk"}

_name = partial(local_name, namespaces=_DRAWING)
_child = partial(child_of, namespaces=_DRAWING)


def read_pptx(data: bytes) -> OfficeDocument:
    """The presentation with the bytes ``data``. Raises DocumentError."""
    archive = Archive(data)
    parts = package_parts(archive, "PowerPoint")
    slides = [name for name, kind in parts if kind.endswith(_TYPES)]
    return OfficeDocument(archive, slides, _paragraphs)


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    tags = [f"{{{drawing}}}p" for drawing in _DRAWING]
    for node in list(root.iter(*tags)):
        yield Paragraph(Span(node, _items(node)), _write)


def _items(paragraph: etree._Element) -> list[Item]:
    items: list[Item] = []
    for node in paragraph:
        name = _name(node)
        text = _child(node, "t") if name == "r" else None
        if text is not None:
            look, weight = _look(node)
            written = text_of(text)
            if _is_raised(node) and is_note_mark(written):
                items.append(Void([node], weight=weight))
                continue
            for index, words in enumerate(written.split("\t")):
                items += [Void([Text("\t", node)], ends=True, weight=weight)] if index else []
                items.append(Text(words, node, look, weight, _is_raised(node)))
        elif name not in ("pPr", "endParaRPr"):
            items.append(Void([node], separates=name == "br"))
    return items


def _is_raised(run: etree._Element) -> bool:
    properties = _child(run, "rPr")
    return properties is not None and properties.get("baseline", "0").strip("%") > "0"


def _look(run: etree._Element) -> tuple[Hashable, int]:
    """What is equal for runs with the same properties, as far as one sees them; their weight."""
    properties = _child(run, "rPr")
    if properties is None:
        return (frozenset(), ()), 0
    attributes = {pair for pair in properties.attrib.items() if pair[0] not in _UNSEEN}
    inner = tuple(element_value(node) for node in properties)
    return (frozenset(attributes), inner), element_weight(properties)


def _write(paragraph: Span) -> None:
    parent: etree._Element = paragraph.content
    end = _child(parent, "endParaRPr")
    for child in list(parent):
        if _name(child) != "pPr":
            parent.remove(child)
    _append(parent, paragraph.items)
    if end is not None:  # always the last one
        parent.append(end)


def _append(parent: etree._Element, items: list[Item]) -> None:
    for item in items:
        if isinstance(item, Span):
            _append(parent, item.items)
        elif isinstance(item, Void):
            for node in item.content:
                if isinstance(node, Text):
                    _append_run(parent, node.style, node.text)
                else:
                    node.tail = None  # blanks between elements
                    parent.append(node)
        elif item.text:
            _append_run(parent, item.style, writable(item.text))


def _append_run(parent: etree._Element, like: etree._Element, words: str) -> None:
    run = etree.SubElement(parent, like.tag)
    properties = _child(like, "rPr")
    if properties is not None:
        run.append(copy.deepcopy(properties))
    etree.SubElement(run, f"{{{etree.QName(run).namespace}}}t").text = words
