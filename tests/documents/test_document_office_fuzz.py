"""Office files with random damage, and with random translations; the seeds are fixed."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
import test_document_docx
import test_document_odt
import test_document_pptx
from lxml import etree
from office_files import (
    archive,
    letter,
    opendocument,
    parts_of,
    report,
    shuffled,
    slides,
    talk,
    word,
)

from mt.documents.document import Document, DocumentError
from mt.documents.docx import read_docx
from mt.documents.odt import read_odt
from mt.documents.pptx import read_pptx

Reader = Callable[[bytes], Document]

WORD_TEXTS = [xml for xml, _ in test_document_docx.PARAGRAPHS]
SLIDE_TEXTS = [xml for xml, _ in test_document_pptx.PARAGRAPHS]
ODT_TEXTS = [
    xml for xml, _ in test_document_odt.PARAGRAPHS if "99" not in xml and "<!--" not in xml
]
FORMATS = {
    "docx": (read_docx, letter, "word/document.xml"),
    "pptx": (read_pptx, talk, "ppt/slides/slide1.xml"),
    "odt": (read_odt, report, "content.xml"),
}
# What a translated paragraph may have more or less often.
OF_RUNS = {"r", "t", "rPr", "span", "s"}
STALE = {"proofErr", "softHyphen", "noBreakHyphen", "lastRenderedPageBreak"}


def structure(data: bytes, part: str) -> Counter[str]:
    """How often a part has each element, but runs, their properties, and what is dropped."""
    root = etree.fromstring(parts_of(data)[part])
    nodes = [node for node in root.iter("*") if next(node.iterancestors("{*}rPr"), None) is None]
    names = Counter(etree.QName(node).localname for node in nodes)
    return Counter({name: names[name] for name in names.keys() - OF_RUNS - STALE})


def check(read: Reader, data: bytes, rng: random.Random) -> bytes:
    """Read the file, and write it with its own text and with another one; return the latter."""
    document = read(data)
    assert document.render(document.segments) == data
    for segment in document.segments:
        assert segment.text == segment.text.strip() != ""
        assert len(segment.text.splitlines()) == 1
        positions = [tag.position for tag in segment.tags]
        assert positions == sorted(positions)
        assert all(0 <= position <= len(segment.text) for position in positions)
    output = document.render([shuffled(segment, rng) for segment in document.segments])
    read(output)
    return output


def paragraphs(texts: list[str], rng: random.Random) -> list[str]:
    return ["".join(rng.choices(texts, k=rng.randrange(1, 7))) for _ in range(8)]


@pytest.mark.parametrize("seed", range(60))
def test_random_translations_keep_every_element(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(f"<w:p>{xml}</w:p>" for xml in paragraphs(WORD_TEXTS, rng))
    show = "".join(f"<a:p>{xml}</a:p>" for xml in paragraphs(SLIDE_TEXTS, rng))
    odt = "".join(f"<text:p>{xml}</text:p>" for xml in paragraphs(ODT_TEXTS, rng))
    for name, data in (
        ("docx", word(text)),
        ("pptx", slides(show)),
        ("odt", opendocument(odt, test_document_odt.STYLES)),
    ):
        read, _, part = FORMATS[name]
        assert structure(check(read, data, rng), part) == structure(data, part)


def damaged_xml(xml: bytes, rng: random.Random) -> bytes:
    root = etree.fromstring(xml)
    nodes = list(root.iter("*"))
    for _ in range(rng.randrange(1, 6)):
        node, other = rng.choice(nodes[1:]), rng.choice(nodes)
        parent = node.getparent()
        change = rng.randrange(7)
        if parent is None:
            continue
        if change == 0:
            parent.remove(node)
        elif change == 1:
            node.tag = other.tag
        elif change == 2 and other not in list(node.iter("*")):
            other.append(node)
        elif change == 3:
            node.attrib.clear()
        elif change == 4 and len(node.attrib):
            node.set(rng.choice(node.keys()), rng.choice(["", "-1", "begin", "end", "9" * 30]))
        elif change == 5:
            node.text = node.tail = rng.choice([None, " ", "\t", "a\u2028b\x85c", "text ", "\n\n"])
        else:
            parent.append(etree.Comment("a comment"))
    return etree.tostring(root)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_xml_is_read_and_written_or_refused(name: str) -> None:
    read, build, part = FORMATS[name]
    parts = parts_of(build())
    messages = []
    for seed in range(25):
        rng = random.Random(seed)
        xml = damaged_xml(parts[part], rng)
        if seed % 5 == 0:
            position = rng.randrange(len(xml))
            xml = xml[:position] + rng.randbytes(3) + xml[position + rng.randrange(9) :]
        try:
            check(read, archive({**parts, part: xml}), rng)
        except DocumentError as error:
            messages.append(str(error))
    assert 0 < len(messages) < 20
    assert all(message.isprintable() for message in messages)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_archives_are_read_or_refused(name: str) -> None:
    read, build, _ = FORMATS[name]
    original = build()
    messages = []
    for seed in range(150):
        rng = random.Random(seed)
        data = bytearray(original)
        for _ in range(rng.randrange(1, 4)):
            # The headers at the end matter most.
            least = rng.choice([0, len(data) // 2, max(len(data) - 300, 0)])
            position = rng.randrange(least, len(data))
            data[position : position + rng.randrange(5)] = rng.randbytes(rng.randrange(5))
        if seed % 4 == 0:
            del data[rng.randrange(len(data)) :]
        try:
            document = read(bytes(data))
            document.render([shuffled(segment, rng) for segment in document.segments])
        except DocumentError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all(message.isprintable() and len(message) < 300 for message in messages)
