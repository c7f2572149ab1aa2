"""Word documents (.docx), ISO/IEC 29500-1, chapter 17.

Paragraphs of the text, tables, text boxes, headers, footers, footnotes and endnotes are segments.
Comments, deleted text, field results but those of links, pictures and formulas stay as they are.
"""

import copy
import itertools
import re
from collections.abc import Hashable, Iterator
from functools import partial
from typing import NamedTuple

from lxml import etree

from mt.documents.archive import Archive
from mt.documents.document import DocumentError, is_note_mark
from mt.documents.inline import Item, Paragraph, Span, Text, Void, has_words
from mt.documents.office import OfficeDocument, element_value, element_weight, package_parts
from mt.documents.xml_text import child_of, local_name, text_of, writable

_WORD = frozenset(
    {
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",  # "strict"
    }
)
_TYPES = (".main+xml", ".header+xml", ".footer+xml", ".footnotes+xml", ".endnotes+xml")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_MAX_DEPTH = 20  # of elements within a paragraph; what is deeper is not translated

_CONTAINERS = {"hyperlink", "ins", "moveTo", "smartTag", "customXml", "dir", "bdo", "sdt"}
_BREAKS = {"br", "cr"}
_TABS = {"tab", "ptab"}
# Marks of the last spelling check and layout, which do not hold for a translation.
_STALE = {"proofErr", "lastRenderedPageBreak", "softHyphen"}
_RANGES = ("bookmark", "commentRange", "perm", "moveFromRange", "moveToRange", "customXml")
# Content controls whose text the program sets, from a list, a calendar or another part.
_SET_BY_PROGRAM = {"dropDownList", "comboBox", "date", "checkbox", "dataBinding"}
_UNSEEN = {"lang", "noProof"}  # properties of a run that do not change its look
_NO_BREAK_HYPHEN = "\u2011"
_HYPHENS = re.compile("([\u2010\u2011])")  # models write the first one for the second

_name = partial(local_name, namespaces=_WORD)
_child = partial(child_of, namespaces=_WORD)


class _Run(NamedTuple):
    """A run that gives its properties to others."""

    node: etree._Element
    look: Hashable
    weight: int
    is_raised: bool = False
    properties: etree._Element | None = None


class _Atom(NamedTuple):
    """What stands in a paragraph or, with a run, in that run of it."""

    node: etree._Element
    run: _Run | None = None


class _Field(NamedTuple):
    """A link as a field: what stands before its text and after it."""

    head: list[_Atom]
    tail: list[_Atom]


def read_docx(data: bytes) -> OfficeDocument:
    """The document with the bytes ``data``. Raises DocumentError."""
    archive = Archive(data)
    parts = [name for name, kind in package_parts(archive, "Word") if kind.endswith(_TYPES)]
    return OfficeDocument(archive, parts, _paragraphs)


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    if not _name(root):
        raise DocumentError("is damaged: one of its parts is no Word text")
    word = etree.QName(root).namespace
    fixed = {control for control in root.iter(f"{{{word}}}sdt") if _is_set_by_program(control)}
    for node in list(root.iter(f"{{{word}}}p")):
        if not fixed.intersection(node.iterancestors(f"{{{word}}}sdt")):
            yield Paragraph(Span(node, _items(_atoms(node), 0)), _write)


def _is_set_by_program(control: etree._Element) -> bool:
    properties = _child(control, "sdtPr")
    # By local names: a checkbox has a namespace of its own.
    names = {
        str(node.tag).rpartition("}")[2] for node in (() if properties is None else properties)
    }
    return bool(names & _SET_BY_PROGRAM)


def _atoms(parent: etree._Element) -> list[_Atom]:
    atoms = []
    for child in parent:
        if _name(child) == "r":
            run = _read_run(child)
            atoms += [_Atom(node, run) for node in child if _name(node) != "rPr"]
        elif not _is_setting(child):
            atoms.append(_Atom(child))
    return atoms


def _items(atoms: list[_Atom], depth: int) -> list[Item]:
    fields = _fields(atoms)
    items: list[Item] = []
    index = 0
    while index < len(atoms):
        if index in fields:
            separator, end = fields[index]
            last = end or separator or index  # a field may go on in the next paragraph
            head = separator and separator - index + 1
            items.append(_field_item(atoms[index : last + 1], head, bool(end), depth))
            index = last + 1
        else:
            item = _item(atoms[index], depth)
            items += [item] if item else []
            index += 1
    return items


def _fields(atoms: list[_Atom]) -> dict[int, tuple[int | None, int | None]]:
    """Where fields begin -> where their codes and they themselves end, if they do so here."""
    fields: dict[int, tuple[int | None, int | None]] = {}
    open_fields: list[int] = []
    for index, (node, _) in enumerate(atoms):
        if _name(node) != "fldChar":
            continue
        kind = _attribute(node, "fldCharType")
        if kind == "begin":
            open_fields.append(index)
            fields[index] = None, None
        elif open_fields and kind == "separate":
            fields[open_fields[-1]] = index, None
        elif open_fields and kind == "end":
            begin = open_fields.pop()
            fields[begin] = fields[begin][0], index
    return fields


def _field_item(atoms: list[_Atom], code_length: int | None, ends: bool, depth: int) -> Item:
    if code_length and ends and depth < _MAX_DEPTH:
        head = atoms[:code_length]
        code = "".join(atom.node.text or "" for atom in head if _name(atom.node) == "instrText")
        if _is_link(code):
            items = _items(atoms[code_length:-1], depth + 1)
            if has_words(items):
                return Span(_Field(head, atoms[-1:]), items)
    weight = sum(atom.run.weight for atom in atoms if atom.run)
    return Void(list(atoms), ordered=not ends, weight=weight)


def _item(atom: _Atom, depth: int) -> Item | None:
    node, run = atom
    name = _name(node)
    if name in _STALE:
        return None
    if run is not None:
        if name == "t" and run.is_raised and is_note_mark(node.text or ""):
            return Void([atom], weight=run.weight)
        if name == "t":
            return Text(text_of(node), run, run.look, run.weight, run.is_raised)
        if name == "noBreakHyphen":
            return Text(_NO_BREAK_HYPHEN, run, run.look, run.weight)
    elif name in _CONTAINERS or (name == "fldSimple" and _is_link(_attribute(node, "instr"))):
        content = _content(node)
        if content is not None and depth < _MAX_DEPTH and not _is_set_by_program(node):
            items = _items(_atoms(content), depth + 1)
            if has_words(items):
                return Span(node, items)
    ordered = name.startswith(_RANGES) or name in ("fldChar", "instrText")
    ends = name in _TABS or (name == "br" and _attribute(node, "type") in ("page", "column"))
    weight = run.weight if run else 0
    hidden = ordered or name == "commentReference"
    return Void([atom], name in _BREAKS, ends, ordered, weight, hidden)


def _read_run(node: etree._Element) -> _Run:
    properties = _child(node, "rPr")
    weight = sum(map(len, node.attrib.values()))
    if properties is None:
        return _Run(node, frozenset(), weight)
    seen = (element_value(child) for child in properties if _name(child) not in _UNSEEN)
    position = _child(properties, "vertAlign")
    is_raised = position is not None and _attribute(position, "val") == "superscript"
    weight += element_weight(properties)
    return _Run(node, frozenset(seen), weight, is_raised, properties)


def _write(paragraph: Span) -> None:
    _fill(paragraph.content, paragraph.items)


def _fill(parent: etree._Element, items: list[Item]) -> None:
    for child in list(parent):
        if not _is_setting(child):
            parent.remove(child)
    _append(parent, items)


def _append(parent: etree._Element, items: list[Item]) -> None:
    for item in items:
        if isinstance(item, Text):
            _append_text(parent, item)
        elif isinstance(item, Void):
            _append_atoms(parent, item.content)
        elif item.content is None:
            _append(parent, item.items)
        elif isinstance(item.content, _Field):
            _append_atoms(parent, item.content.head)
            _append(parent, item.items)
            _append_atoms(parent, item.content.tail)
        else:
            content = _content(item.content)
            assert content is not None
            _fill(content, item.items)
            _append_node(parent, item.content)


def _append_text(parent: etree._Element, text: Text) -> None:
    if not text.text:
        return
    run = _new_run(parent, text.style)
    word = etree.QName(run).namespace
    for piece in _HYPHENS.split(writable(text.text)):
        if _HYPHENS.fullmatch(piece):
            etree.SubElement(run, f"{{{word}}}noBreakHyphen")
        elif piece:
            node = etree.SubElement(run, f"{{{word}}}t")
            node.text = piece
            if piece != piece.strip():
                node.set(_SPACE, "preserve")


def _append_atoms(parent: etree._Element, atoms: list[_Atom]) -> None:
    for run, group in itertools.groupby(atoms, key=lambda atom: atom.run):
        target = parent if run is None else _new_run(parent, run)
        for atom in group:
            _append_node(target, atom.node)


def _append_node(parent: etree._Element, node: etree._Element) -> None:
    node.tail = None  # blanks between elements
    parent.append(node)


def _new_run(parent: etree._Element, like: _Run) -> etree._Element:
    run = etree.SubElement(parent, like.node.tag, like.node.attrib)
    if like.properties is not None:
        _append_node(run, copy.deepcopy(like.properties))
    return run


def _content(container: etree._Element) -> etree._Element | None:
    return _child(container, "sdtContent") if _name(container) == "sdt" else container


def _is_setting(node: etree._Element) -> bool:
    """Whether a child of a paragraph or container says how it is, and is no content of it."""
    name = _name(node)
    return name.endswith("Pr") or name == "fldData"


def _is_link(code: str) -> bool:
    return code.split()[:1] == ["HYPERLINK"]


def _attribute(node: etree._Element, name: str) -> str:
    return node.get(f"{{{etree.QName(node).namespace}}}{name}") or ""
