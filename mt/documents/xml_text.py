"""XML from a stranger, parsed without document types, entities, files or the network."""

import re

from lxml import etree

from mt.documents.archive import count_markup
from mt.documents.document import DocumentError
from mt.utils.checks import printable

MAX_MARKUP = 2_000_000  # of one part; a book of 1,000 pages has a million
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse(content: bytes, part: str) -> etree._Element:
    """The root of a part of a document. Raises DocumentError, which names the part.

    libxml2 itself refuses elements nested deeper than 256 and texts longer than 10 MB.
    """
    part = printable(part, 60)
    if (markup := count_markup(content)) > MAX_MARKUP:
        pieces = f"{markup:,} pieces of markup, more than {MAX_MARKUP:,}"
        raise DocumentError(f"is too large: {part} has {pieces}; split it into several files")
    # Without zero bytes UTF-16 looks like ASCII.
    if b"<!DOCTYPE" in content.replace(b"\0", b""):
        raise _doctype(part)
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        root = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        reason = printable(str(error), 100)
        raise DocumentError(f"is damaged: {part} is no XML: {reason}") from None
    if root.getroottree().docinfo.doctype:
        raise _doctype(part)
    return root


def serialize(root: etree._Element) -> bytes:
    """The document of a root, in UTF-8, with the comments around the root."""
    tree = root.getroottree()
    return etree.tostring(
        tree, encoding="UTF-8", xml_declaration=True, standalone=tree.docinfo.standalone
    )


def local_name(node: etree._Element, namespaces: frozenset[str]) -> str:
    """The name of an element of one of these namespaces without it; "" for all else."""
    if not isinstance(node.tag, str):  # a comment or processing instruction
        return ""
    namespace, _, name = node.tag[1:].rpartition("}")
    return name if namespace in namespaces else ""


def child_of(node: etree._Element, name: str, namespaces: frozenset[str]) -> etree._Element | None:
    """The first child of a ``local_name``, if there is one."""
    return next((child for child in node if local_name(child, namespaces) == name), None)


def text_of(node: etree._Element) -> str:
    """The text of an element, also after comments in it."""
    return (node.text or "") + "".join(child.tail or "" for child in node)


def writable(text: str) -> str:
    """A text without line breaks and without characters that XML cannot hold."""
    return _NOT_XML.sub("", re.sub(r"[\t\n\r]", " ", text))


def _doctype(part: str) -> DocumentError:
    return DocumentError(f"has a document type (DOCTYPE) in {part}, which is not allowed")
