"""Office files that the tests build, and what they do with them."""

import codecs
import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence

import docx
import pptx
from lxml import etree
from odf import draw, style, table, text
from odf.opendocument import OpenDocumentText

from mt.documents.document import Document, Segment, Tag, TagKind

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
COMPATIBLE = "http://schemas.openxmlformats.org/markup-compatibility/2006"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"
OFFICE_TYPE = "application/vnd.openxmlformats-officedocument"
WORD_TYPE = f"{OFFICE_TYPE}.wordprocessingml"
SLIDE_TYPE = f"{OFFICE_TYPE}.presentationml"
ODT_TYPE = "application/vnd.oasis.opendocument.text"

Parts = Mapping[str, str | bytes]


def archive(parts: Parts, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", method) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return output.getvalue()


def parts_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def content_types(types: Mapping[str, str]) -> str:
    overrides = "".join(
        f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, kind in types.items()
    )
    return (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f"{overrides}</Types>"
    )


def word_xml(body: str, root: str = "document") -> str:
    body = f"<w:body>{body}</w:body>" if root == "document" else body
    return (
        f'<w:{root} xmlns:w="{WORD}" xmlns:r="{RELATED}" xmlns:mc="{COMPATIBLE}"'
        f' xmlns:a="{DRAWING}">{body}</w:{root}>'
    )


def word(body: str, **others: str) -> bytes:
    """A Word file of the XML of a body and, by name, of others, such as ``footnotes``."""
    kinds = {f"word/{name}.xml": f"{WORD_TYPE}.{name}+xml" for name in others}
    types = {"word/document.xml": f"{WORD_TYPE}.document.main+xml", **kinds}
    parts = {"[Content_Types].xml": content_types(types), "word/document.xml": word_xml(body)}
    parts |= {f"word/{name}.xml": word_xml(xml, name) for name, xml in others.items()}
    return archive(parts)


def slides(*bodies: str) -> bytes:
    """A presentation with a text box for each XML of paragraphs."""
    names = [f"ppt/slides/slide{number}.xml" for number in range(1, len(bodies) + 1)]
    types = {"ppt/presentation.xml": f"{SLIDE_TYPE}.presentation.main+xml"}
    types |= dict.fromkeys(names, f"{SLIDE_TYPE}.slide+xml")
    parts = {"[Content_Types].xml": content_types(types), "ppt/presentation.xml": "<p/>"}
    for name, body in zip(names, bodies, strict=True):
        parts[name] = (
            f'<p:sld xmlns:p="{SLIDE}" xmlns:a="{DRAWING}" xmlns:r="{RELATED}">'
            f"<p:txBody>{body}</p:txBody></p:sld>"
        )
    return archive(parts)


def opendocument(body: str, styles: str = "", kind: str = "text") -> bytes:
    """An OpenDocument file with the XML of what is in its body, and of its automatic styles."""
    names = ("office", "text", "table", "style", "draw", "fo")
    spaces = "".join(f' xmlns:{name}="{OASIS}:{name}:1.0"' for name in names)
    spaces += ' xmlns:xlink="http://www.w3.org/1999/xlink"'
    spaces += ' xmlns:loext="http://openoffice.org/2009/office"'
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content{spaces}>"
            f"<office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
            "</office:document-content>",
        }
    )


def image() -> bytes:
    """A small picture, as PNG."""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes((row * 16, 80, 200)) * 16 for row in range(16))
    header = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    end = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + end


def letter() -> bytes:
    """A Word file as python-docx writes it, with most of what a letter has."""
    document = docx.Document()
    document.add_heading("The annual report", 1)
    paragraph = document.add_paragraph("We are ")
    paragraph.add_run("very").bold = True
    paragraph.add_run(" glad to send you the ")
    paragraph.add_run("first ").italic = True
    paragraph.add_run("edition").italic = True
    paragraph.add_run(".")
    document.add_paragraph("One apple", style="List Bullet")
    document.add_paragraph("Name:\tMary\nTown:\tParis")
    grid = document.add_table(2, 2, style="Table Grid")
    grid.cell(0, 0).text, grid.cell(0, 1).text = "Article", "Price"
    grid.cell(1, 0).text, grid.cell(1, 1).text = "A pear", "12.50"
    document.add_paragraph("See ").add_run().add_picture(io.BytesIO(image()))
    section = document.sections[0]
    section.header.paragraphs[0].text = "Confidential"
    section.footer.paragraphs[0].text = "Page footer"
    document.add_comment(document.paragraphs[1].runs, "Is this so?", "Ann", "A")
    output = io.BytesIO()
    document.save(output)
    return output.getvalue()


def talk() -> bytes:
    """A presentation as python-pptx writes it."""
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "A short talk"
    frame = slide.placeholders[1].text_frame
    frame.text = "The first point"
    paragraph = frame.add_paragraph()
    for words, bold in (("We ", False), ("must", True), (" act now.", False)):
        run = paragraph.add_run()
        run.text, run.font.bold = words, bold or None
    link = frame.add_paragraph().add_run()
    link.text, link.hyperlink.address = "Our site", "https://example.org/"
    size = pptx.util.Inches(2)
    grid = slide.shapes.add_table(1, 2, size, size, size, size).table
    grid.cell(0, 0).text, grid.cell(0, 1).text = "Left cell", "Right cell"
    slide.notes_slide.notes_text_frame.text = "Speak slowly here."
    output = io.BytesIO()
    presentation.save(output)
    return output.getvalue()


def report() -> bytes:
    """An OpenDocument text as odfpy writes it."""
    document = OpenDocumentText()
    bold = style.Style(name="T1", family="text")
    bold.addElement(style.TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    document.text.addElement(text.H(outlinelevel=1, text="The annual report"))
    paragraph = text.P(text="We are ")
    paragraph.addElement(text.Span(stylename=bold, text="very"))
    paragraph.addText(" glad, see ")
    paragraph.addElement(text.A(href="https://example.org/", text="our site"))
    note = text.Note(noteclass="footnote")
    note.addElement(text.NoteCitation(text="1"))
    note.addElement(text.NoteBody())
    note.lastChild.addElement(text.P(text="A note below."))
    paragraph.addElement(note)
    paragraph.addText(".")
    document.text.addElement(paragraph)
    lines = text.P(text="Name:")
    lines.addElement(text.Tab())
    lines.addText("Mary")
    lines.addElement(text.LineBreak())
    lines.addText("Town")
    document.text.addElement(lines)
    grid = table.Table(name="Prices")
    grid.addElement(table.TableColumn(numbercolumnsrepeated=2))
    row = table.TableRow()
    for words in ("A pear", "An apple"):
        cell = table.TableCell(valuetype="string")
        cell.addElement(text.P(text=words))
        row.addElement(cell)
    grid.addElement(row)
    document.text.addElement(grid)
    frame = draw.Frame(width="4cm", height="2cm", anchortype="paragraph")
    box = draw.TextBox()
    box.addElement(text.P(text="In a box"))
    frame.addElement(box)
    holder = text.P()
    holder.addElement(frame)
    document.text.addElement(holder)
    page = style.PageLayout(name="Page")
    document.automaticstyles.addElement(page)
    master = style.MasterPage(name="Standard", pagelayoutname=page)
    header = style.Header()
    header.addElement(text.P(text="Confidential"))
    master.addElement(header)
    document.masterstyles.addElement(master)
    output = io.BytesIO()
    document.write(output)
    return output.getvalue()


def marked(segment: Segment) -> str:
    """The text with its tags: <0>, </0>, <0/>."""
    result, end = "", 0
    form = {TagKind.OPEN: "<{}>", TagKind.CLOSE: "</{}>", TagKind.EMPTY: "<{}/>"}
    for tag in segment.tags:
        result += segment.text[end : tag.position] + form[tag.kind].format(tag.number)
        end = tag.position
    return result + segment.text[end:]


def parsed(text: str) -> Segment:
    """The segment that ``marked`` wrote."""
    tags, words = [], ""
    for piece in re.split("(</?[0-9]+/?>)", text):
        if mark := re.fullmatch("<(/?)([0-9]+)(/?)>", piece):
            kind = TagKind.CLOSE if mark[1] else TagKind.EMPTY if mark[3] else TagKind.OPEN
            tags.append(Tag(kind, int(mark[2]), len(words)))
        else:
            words += piece
    return Segment(words, tuple(tags))


def all_marked(document: Document) -> list[str]:
    return [marked(segment) for segment in document.segments]


def upper(segment: Segment) -> Segment:
    return Segment("".join(c.upper()[:1] for c in segment.text), segment.tags)


def translated(document: Document, change: Callable[[Segment], Segment] = upper) -> bytes:
    return document.render([change(segment) for segment in document.segments])


def rotated(segment: Segment) -> Segment:
    """Other words in the same case, on which it depends whether a line break ends a segment."""
    return Segment(codecs.encode(segment.text, "rot13"), segment.tags)


def shuffled(segment: Segment, rng: random.Random) -> Segment:
    """Other words, with the elements in another order, each where it was nested."""
    tags = list(segment.tags)

    def element(index: int) -> tuple[list[Tag], int]:
        if tags[index].kind == TagKind.EMPTY:
            return [tags[index]], index + 1
        inner, end = siblings(index + 1)
        return [tags[index], *inner, tags[end]], end + 1

    def siblings(index: int) -> tuple[list[Tag], int]:
        elements = []
        while index < len(tags) and tags[index].kind != TagKind.CLOSE:
            one, index = element(index)
            elements.append(one)
        rng.shuffle(elements)
        return [tag for one in elements for tag in one], index

    order, _ = siblings(0)
    words = " ".join(
        rng.choice(["das", "Haus,", "grün", "&<x>", "a  b", "\u2011"]) for _ in range(9)
    )
    positions = sorted(rng.randrange(len(words) + 1) for _ in order)
    placed = (tag._replace(position=p) for tag, p in zip(order, positions, strict=True))
    return Segment(words, tuple(placed))


def canonical(xml: bytes) -> bytes:
    return etree.tostring(etree.fromstring(xml), method="c14n")


def without_words(xml: bytes, names: Sequence[str]) -> list[str]:
    """The elements and attributes of a part in their order, but those with these local names."""
    return [
        f"{node.tag} {sorted(node.attrib.items())}"
        for node in etree.fromstring(xml).iter("*")
        if etree.QName(node).localname not in names
    ]
