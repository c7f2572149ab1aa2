"""What the office formats share: an archive with XML parts that hold paragraphs."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence

from lxml import etree

from mt.documents.archive import Archive, count_markup
from mt.documents.document import DocumentError, Segment
from mt.documents.inline import Paragraph
from mt.documents.xml_text import parse, serialize

MAX_MARKUP = 4_000_000  # of all parts together, which limits the time to read them
MAX_SEGMENTS = 100_000
# A translation may need a style anew at every tag. A book of 1,000 pages has 30 million.
MAX_STYLES = 100_000_000  # characters
CONTENT_TYPES = "[Content_Types].xml"
RELATIONSHIPS = "_rels/.rels"
_SIGNATURES = ("_xmlsignatures/", "META-INF/documentsignatures")
_DELETED = re.compile(rb"<\w+:(?:del|moveFrom|tracked-changes)[ >]")
# The family of the main part's content type, application/vnd.openxmlformats-officedocument.FAMILY.…
_PROGRAMS = {
    "wordprocessingml": "Word",
    "ms-word": "Word",
    "presentationml": "PowerPoint",
    "ms-powerpoint": "PowerPoint",
    "spreadsheetml": "Excel",
    "ms-excel": "Excel",
}

# Each paragraph below a root; one may be written before the next is read.
Finder = Callable[[etree._Element], Iterable[Paragraph]]


class OfficeDocument:
    """The paragraphs of some parts of an archive, as segments.

    A part with a translated paragraph is written anew; all others keep their bytes.
    """

    def __init__(self, archive: Archive, parts: Sequence[str], find: Finder) -> None:
        self._archive = archive
        self._find = find
        self._ends: dict[str, int] = {}  # part -> number of segments up to its end
        self.segments: list[Segment] = []
        self.remarks: list[str] = []
        markup = weight = 0
        has_deleted = False
        # No tree is kept: those of a long document would take ten times its size.
        for part in parts:
            content = archive.read(part)
            markup += count_markup(content)
            if markup > MAX_MARKUP:
                pieces = f"has more than {MAX_MARKUP:,} pieces of markup"
                raise DocumentError(f"is too large: it {pieces}; split it into several files")
            for paragraph in find(parse(content, part)):
                self.segments += paragraph.segments
                if len(self.segments) > MAX_SEGMENTS:
                    texts = f"has more than {MAX_SEGMENTS:,} texts"
                    raise DocumentError(f"is too large: it {texts}; split it into several files")
                weight += paragraph.weight
                if weight > MAX_STYLES:
                    message = f"is too large: the styles in its text take more than {MAX_STYLES:,}"
                    raise DocumentError(f"{message} characters; split it into several files")
            self._ends[part] = len(self.segments)
            has_deleted |= _DELETED.search(content) is not None
        if not self.segments:
            self.remarks.append("has no text to translate")
        if has_deleted:
            self.remarks.append("has tracked changes: what is deleted stays as it is")
        if any(name.startswith(_SIGNATURES) for name in archive.names):
            self.remarks.append(
                "has a digital signature, which the translation does not keep valid"
            )

    def render(self, translated: Sequence[Segment]) -> bytes:
        """The archive with these segments in place of ``segments``.

        Raises ValueError unless there are as many, each with its source's tags.
        """
        if len(translated) != len(self.segments):
            counts = f"{len(translated):,} translations for {len(self.segments):,} segments"
            raise ValueError(counts)
        changed: dict[str, bytes] = {}
        start = 0
        for part, end in self._ends.items():
            new = translated[start:end]
            if list(new) != self.segments[start:end]:
                changed[part] = self._with(new, part)
            start = end
        return self._archive.replaced(changed)

    def _with(self, translated: Sequence[Segment], part: str) -> bytes:
        root = parse(self._archive.read(part), part)
        start = 0
        for paragraph in self._find(root):
            end = start + len(paragraph.segments)
            new = list(translated[start:end])
            if new != paragraph.segments:
                paragraph.replace(new)
            start = end
        return serialize(root)


def package_parts(archive: Archive, program: str) -> list[tuple[str, str]]:
    """The parts of an Office Open XML file and their content types; slide 2 before slide 10.

    Raises DocumentError unless it has one main part, which is one of ``program``.
    """
    if CONTENT_TYPES not in archive:
        raise DocumentError(f"is no {program} file: it has no {CONTENT_TYPES}")
    types = _content_types(archive)
    mains = [part for part in types if part[1].endswith(".main+xml")]
    if len(mains) > 1 and (main := _main_part(archive)) in dict(mains):
        types = [part for part in types if part[0] == main or part not in mains]
        mains = [part for part in mains if part[0] == main]  # the others are files within this one
    if len(mains) != 1:
        raise DocumentError(f"is damaged: it has {len(mains)} main parts instead of one")
    actual = next((_PROGRAMS[word] for word in _PROGRAMS if f"{word}." in mains[0][1]), "unknown")
    if actual != program:
        raise DocumentError(f"is an Office file of {actual}, not of {program}")
    return sorted(types, key=lambda part: _in_order(part[0]))


def _main_part(archive: Archive) -> str:
    """The name of the part that the relationships of the file call its document."""
    if RELATIONSHIPS not in archive:
        return ""
    for node in parse(archive.read(RELATIONSHIPS), RELATIONSHIPS):
        if (node.get("Type") or "").endswith("/officeDocument"):
            return node.get("Target", "").lstrip("/")
    return ""


def element_weight(node: etree._Element) -> int:
    """About how many characters an element takes, with those in it."""
    return sum(20 + sum(map(len, inner.attrib.values())) for inner in node.iter())


def element_value(node: etree._Element) -> Hashable:
    """Equal for elements with the same name, attributes and elements in them."""
    inner = tuple(element_value(child) for child in node)
    return node.tag, frozenset(node.attrib.items()), inner


def _content_types(archive: Archive) -> list[tuple[str, str]]:
    root = parse(archive.read(CONTENT_TYPES), CONTENT_TYPES)
    of_part: dict[str, str] = {}
    of_extension: dict[str, str] = {}
    for node in root:
        kind = node.get("ContentType", "")
        if name := node.get("PartName"):
            of_part[name.lstrip("/").lower()] = kind
        elif extension := node.get("Extension"):
            of_extension[extension.lower()] = kind
    types = []
    for name in archive.names:
        if name == CONTENT_TYPES:
            continue
        extension = name.rpartition(".")[2].lower()
        types.append((name, of_part.get(name.lower(), of_extension.get(extension, ""))))
    return types


def _in_order(name: str) -> list[str | int]:
    """A key that sorts the numbers in names as numbers."""
    pieces = re.split(r"([0-9]{1,9})", name)
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces)]
