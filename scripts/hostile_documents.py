"""The documents of check_documents.py: damaged, encrypted, and made to take time or memory."""

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

MIB = 2**20
LOCAL, ENTRY, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"  # marks of zip's headers
OLE = bytes.fromhex("D0CF11E0A1B11AE1")  # of old Office files
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"
OFFICE_TYPE = "application/vnd.openxmlformats-officedocument"
MAIN = "word/document.xml"


class Case(NamedTuple):
    name: str  # of the file
    wrong: str  # what is wrong with it
    build: Callable[[], bytes]


# Office files


def archive(parts: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", method) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return output.getvalue()


def types(name: str, kind: str) -> str:
    return (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Override PartName="/{name}" ContentType="{OFFICE_TYPE}.{kind}+xml"/></Types>'
    )


def word_xml(body: str, doctype: str = "") -> str:
    return (
        f'<?xml version="1.0"?>{doctype}<w:document xmlns:w="{WORD}">'
        f"<w:body>{body}</w:body></w:document>"
    )


def word_parts(document: str | bytes) -> dict[str, str | bytes]:
    return {
        "[Content_Types].xml": types(MAIN, "wordprocessingml.document.main"),
        MAIN: document,
    }


def docx(document: str | bytes) -> bytes:
    return archive(word_parts(document))


def paragraph(text: str = "A bear") -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def pptx(body: str) -> bytes:
    slide = "ppt/slides/slide1.xml"
    kinds = types("ppt/presentation.xml", "presentationml.presentation.main").replace(
        "</Types>", types(slide, "presentationml.slide").partition(">")[2]
    )
    return archive({
        "[Content_Types].xml": kinds, "ppt/presentation.xml": "<p/>",
        slide: f'<p:sld xmlns:p="{SLIDE}" xmlns:a="{DRAWING}"><p:txBody>{body}</p:txBody></p:sld>',
    })  # fmt: skip


def odt(body: str, doctype: str = "", kind: str = "text", **others: str) -> bytes:
    names = "".join(f' xmlns:{n}="{OASIS}:{n}:1.0"' for n in ("office", "text", "table"))
    content = (
        f"{doctype}<office:document-content{names}><office:body><office:{kind}>{body}"
        f"</office:{kind}></office:body></office:document-content>"
    )
    mimetype = f"application/vnd.oasis.opendocument.{kind}"
    return archive({"mimetype": mimetype, "content.xml": content, **others})


def small() -> bytes:
    return docx(word_xml(paragraph()))


def bomb(megabytes: int, parts: int = 1) -> bytes:
    """Zeros, of which a thousand bytes are packed in one."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as file:
        for part in range(parts):
            with file.open(f"word/{part}.xml", "w") as target:
                for _ in range(megabytes):
                    target.write(bytes(MIB))
    return output.getvalue()


def forged_directory(count: int) -> bytes:
    """One part to which many entries of the directory point."""
    data = archive({"a": bytes(MIB)}, zipfile.ZIP_STORED)
    start, end = data.index(ENTRY), data.index(END)
    entry = data[start:end]
    tail = struct.pack("<HHII", min(count, 65535), min(count, 65535), len(entry) * count, start)
    return data[:start] + entry * count + data[end : end + 8] + tail + bytes(2)


def patched(mark: bytes, offset: int, form: str, value: int, data: bytes = b"") -> bytes:
    """A document with another number in the last header with this mark."""
    result = bytearray(data or small())
    struct.pack_into(form, result, result.rindex(mark) + offset, value)
    return bytes(result)


def with_entry(name: str, mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    output = io.BytesIO(small())
    output.seek(0, io.SEEK_END)
    with zipfile.ZipFile(output, "a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two parts with one name
        info = zipfile.ZipInfo(name)
        info.external_attr, info.compress_type = mode << 16, method
        file.writestr(info, b"content " * 10)
    return output.getvalue()


def flipped() -> bytes:
    data = bytearray(small())
    data[data.rindex(LOCAL) + 60] ^= 0xFF
    return bytes(data)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
BILLION = f'<!DOCTYPE w [<!ENTITY l0 "ha">{LAUGHS}]>'
OUTER = '<!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
REMOTE = '<!DOCTYPE w [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]>'
QUADRATIC = f'<!DOCTYPE w [<!ENTITY x "{"a" * 50_000}">]>'
RUN = "<w:r><w:t>A</w:t></w:r>"

OFFICE = [
    Case("empty.docx", "no byte", lambda: b""),
    Case("text.docx", "plain text", lambda: b"Dear Ann, ..."),
    Case("page.docx", "HTML", lambda: b"<html>A bear</html>"),
    Case("print.docx", "PDF", lambda: b"%PDF-1.7\n" + bytes(1000)),
    Case("rich.docx", "RTF", lambda: b"{\\rtf1 A bear}"),
    Case("letter.doc", "an old format", lambda: OLE + bytes(1000)),
    Case("old.docx", "an old Word file", lambda: OLE + bytes(1000)),
    Case("secret.docx", "a password", lambda: OLE + "EncryptedPackage".encode("utf-16-le")),
    Case("zip-secret.docx", "a password of zip",
         lambda: patched(ENTRY, 8, "<H", 1, patched(LOCAL, 6, "<H", 1))),
    Case("secret.odt", "a password",
         lambda: odt("", **{"META-INF/manifest.xml": "<manifest:encryption-data/>"})),
    Case("half.docx", "its second half is missing", lambda: small()[: len(small()) // 2]),
    Case("half.odt", "its second half is missing", lambda: odt("<text:p>A</text:p>")[:300]),
    Case("flipped.docx", "a wrong byte in a part", flipped),
    Case("longer.docx", "a part longer than it says", lambda: patched(ENTRY, 24, "<I", 5)),
    Case("beyond.docx", "a part beyond the end", lambda: patched(ENTRY, 20, "<I", 2**30)),
    Case("directory.docx", "a directory that is elsewhere", lambda: patched(END, 16, "<I", 2**31)),
    Case("twice.docx", "two parts of one name", lambda: with_entry(MAIN)),
    Case("up.docx", "a part named ../../etc/passwd", lambda: with_entry("../../etc/passwd")),
    Case("root.docx", "a part named /etc/passwd", lambda: with_entry("/etc/passwd")),
    Case("backslash.docx", "a part named ..\\x", lambda: with_entry("..\\x")),
    Case("link.docx", "a part that is a symbolic link", lambda: with_entry("a", 0o120777)),
    Case("lzma.docx", "a compression of other programs",
         lambda: with_entry("a", method=zipfile.ZIP_LZMA)),
    Case("terminal.docx", "a name with control characters", lambda: with_entry("/\x1b[2J" * 999)),
    Case("bomb.docx", "unpacks to 210 MB", lambda: bomb(210)),
    Case("bombs.odt", "20 parts of 15 MB each", lambda: bomb(15, 20)),
    Case("one-bomb.pptx", "a part of 20 MB in 20 kB", lambda: bomb(20)),
    Case("overlap.docx", "one part 300 times", lambda: forged_directory(300)),
    Case("entries.docx", "60,000 parts", lambda: forged_directory(60_000)),
    Case("inside.docx", "a document in an archive", lambda: archive({"letter.docx": small()})),
    Case("sheet.docx", "a table of Excel", lambda: archive(
        {"[Content_Types].xml": types(MAIN, "spreadsheetml.sheet.main"), MAIN: "<a/>"})),
    Case("word.pptx", "a Word file", small),
    Case("word.odt", "a Word file", small),
    Case("drawing.odt", "a drawing", lambda: odt("", kind="graphics")),
    Case("laughs.docx", "a billion laughs", lambda: docx(word_xml(paragraph("&l11;"), BILLION))),
    Case("laughs.odt", "a billion laughs", lambda: odt("<text:p>&l11;</text:p>", BILLION)),
    Case("laughs-16.docx", "a billion laughs in UTF-16",
         lambda: docx(word_xml(paragraph("&l11;"), BILLION).encode("utf-16"))),
    Case("quadratic.docx", "an entity of 50,000 characters, 9,999 times",
         lambda: docx(word_xml(paragraph("&x;" * 9999), QUADRATIC))),
    Case("passwd.docx", "an entity that is a file",
         lambda: docx(word_xml(paragraph("&x;"), OUTER))),
    Case("remote.odt", "a DTD in the network", lambda: odt("<text:p>A</text:p>", REMOTE)),
    Case("entity.pptx", "an unknown entity", lambda: pptx("<a:p>&x;</a:p>")),
    Case("open.pptx", "elements that do not end", lambda: pptx("<a:p><a:r>")),
    Case("zeros.docx", "a zero byte in XML", lambda: docx(word_xml(paragraph("a\0b")))),
    Case("utf8.docx", "invalid UTF-8 in XML",
         lambda: docx(word_xml("").encode() + b"<!--\xff-->")),
    Case("deep.docx", "9,999 elements in each other",
         lambda: docx(word_xml("<w:p>" * 9999 + "</w:p>" * 9999))),
    Case("deep.odt", "200 spans in each other", lambda: odt(
        "<text:p>A" + "<text:span>" * 200 + "b" + "</text:span>" * 200 + "</text:p>")),
    Case("cells.docx", "a table of a million cells", lambda: docx(word_xml(
        "<w:tbl>" + ("<w:tr>" + f"<w:tc>{paragraph()}</w:tc>" * 1000 + "</w:tr>") * 1000
        + "</w:tbl>"))),
    Case("cells.ods", "a table of 150,000 cells", lambda: odt(
        "<table:table>" + ("<table:table-row>" + "<table:table-cell><text:p>A b</text:p>"
        "</table:table-cell>" * 1000 + "</table:table-row>") * 150 + "</table:table>",
        kind="spreadsheet")),
    Case("runs.docx", "30,000 runs in a paragraph",
         lambda: docx(word_xml(f"<w:p>{RUN * 30_000}</w:p>"))),
    Case("fields.docx", "20,000 fields that do not end", lambda: docx(word_xml(
        "<w:p>" + '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 20_000 + RUN + "</w:p>"))),
    Case("attribute.docx", "an attribute of 9 MB",
         lambda: docx(word_xml(f'<w:p w:a="{"a1b2c3" * 1_500_000}">{RUN}</w:p>'))),
    Case("style.docx", "a style of 1,000 parts, 9,000 times", lambda: docx(word_xml(
        f"<w:p><w:r><w:rPr>{'<w:b/>' * 1000}</w:rPr>" + "<w:t>A</w:t><w:tab/>" * 9000
        + "</w:r></w:p>"))),
    Case("blanks.odt", "99,999,999,999 blanks in one sign",
         lambda: odt('<text:p>A bear<text:s text:c="99999999999"/></text:p>')),
]  # fmt: skip


# Files of text

CUE = "1\n00:00:01,000 --> 00:00:02,500\nA bear\n\n"
PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\nmsgid "A bear"\nmsgstr ""\n'


def text(content: str) -> Callable[[], bytes]:
    return content.encode


def record(**values: object) -> str:
    return json.dumps(values) + "\n"


TEXT = [
    Case("long.html", "51 MB", lambda: b"A bear\n" * 7_600_000),
    Case("latin.html", "not the encoding that it declares",
         lambda: "<meta charset=utf-8>grün".encode("latin-1")),
    Case("codec.html", "an encoding that is a transformation", text("<meta charset=zip>A bear")),
    Case("utf16.html", "half a character of UTF-16", lambda: b"\xff\xfeA\0b"),
    Case("zeros.html", "a million zero bytes", lambda: b"A bear" + bytes(1_000_000)),
    Case("binary.html", "a Word file", small),
    Case("deep.html", "300,000 elements in each other", text("<b>A " * 300_000)),
    Case("code.html", "100,000 pieces of code", text("<p>" + "a <code>b</code> " * 100_000)),
    Case("breaks.html", "500,000 line breaks", text("A<br>" * 500_000)),
    Case("comments.html", "300,000 comments that do not end", text("A<!--" * 300_000)),
    Case("tags.html", "a million tags that do not end", text("A<a " * 1_000_000)),
    Case("attribute.html", "an attribute of 5 MB", text(f"<p title='{'a b' * 1_700_000}'>A")),
    Case("attributes.html", "300,000 attributes of one tag", text(f"<p{' title=a' * 300_000}>A")),
    Case("quotes.html", "500,000 quotes that do not end", text("<a b=\"'" * 500_000)),
    Case("number.html", "a character with a number of 100,000 digits",
         text(f"A &#{'9' * 100_000}; bear")),
    Case("laughs.xhtml", "a billion laughs", text(f"{BILLION}<p>&l11;</p>")),
    Case("cells.html", "a table of a million cells", text("<table>" + "<td>A b" * 1_000_000)),
    Case("quotes.md", "20,000 quotations in each other", text("> " * 20_000 + "A bear")),
    Case("lists.md", "2,000 lists in each other",
         text("".join(f"{'  ' * i}- A bear\n" for i in range(2000)))),
    Case("stars.md", "200,000 signs of emphasis", text("*a **b " * 100_000)),
    Case("brackets.md", "300,000 brackets", text("[" * 150_000 + "A]" * 150_000)),
    Case("links.md", "100,000 links that do not end", text("[a](" * 100_000)),
    Case("ticks.md", "100,000 pieces of code of all lengths",
         text("".join("`" * (i % 400) + "a " for i in range(20_000)))),
    Case("labels.md", "30,000 labels that refer to nothing", text("[a][b] " * 30_000)),
    Case("cells.md", "a table of 200,000 cells",
         text("|a" * 200 + "|\n" + "|-" * 200 + "|\n" + ("|A b" * 200 + "|\n") * 1000)),
    Case("front.md", "front matter that does not end", text("---\n" + "a: b\n" * 100_000)),
    Case("utf8.md", "invalid UTF-8", lambda: b"A bear \xc3\x28 \xf0\x9f"),
    Case("surrogate.md", "UTF-8 of half a character", lambda: b"A \xed\xa0\x80 bear"),
    Case("zeros.md", "zero bytes", lambda: b"A\0bear\n\n" * 50_000),
    Case("lines.txt", "200,000 lines", text("A bear\n" * 200_000)),
    Case("tabs.txt", "a million words between tabs", text(("\t" + "a") * 1_000_000)),
    Case("latin.txt", "invalid UTF-8", lambda: "grün\n".encode("latin-1")),
    Case("none.srt", "no subtitle", text("A bear\n")),
    Case("times.srt", "times that are none", text(CUE + "2\n00:00:99 -> 1\nA bear\n\n")),
    Case("tags.srt", "100,000 tags that do not end", text(CUE + "<i>A" * 100_000)),
    Case("lines.srt", "a cue of 100,000 lines", text(CUE + "A bear\n" * 100_000)),
    Case("words.srt", "a cue of a million words", text(CUE.strip() + " bear" * 1_000_000)),
    Case("latin.srt", "invalid UTF-8", lambda: f"{CUE}grün\n".encode("latin-1")),
    Case("none.vtt", "not WEBVTT in its first line", text(CUE)),
    Case("notes.vtt", "200,000 notes", text("WEBVTT\n\n" + "NOTE A\n\n" * 200_000)),
    Case("arrows.vtt", "500,000 arrows", text("WEBVTT\n\n" + "-->" * 500_000)),
    Case("dashes.vtt", "a cue with 100,000 speakers",
         text("WEBVTT\n\n00:01.000 --> 00:02.000\n" + "- A\n" * 100_000)),
    Case("quote.po", "a string that does not end", text('msgid "A bear\nmsgstr ""\n')),
    Case("order.po", "a translation without a message", text('msgid "A"\nmsgid "B"\nmsgid "C"\n')),
    Case("charset.po", "an encoding without German letters", text(PO.format("ascii"))),
    Case("codec.po", "an encoding that is a transformation", text(PO.format("rot13"))),
    Case("lines.po", "a message of 100,000 lines",
         text('msgid ""\n' + '"A bear "\n' * 100_000 + 'msgstr ""\n')),
    Case("escapes.po", "a million backslashes", text(f'msgid "{chr(92) * 1_000_000}"\nmsgstr ""')),
    Case("entries.po", "50,000 messages", text('msgid "A b"\nmsgstr ""\n\n' * 50_000)),
    Case("column.csv", "another column", text("de\nA bear\n")),
    Case("quote.csv", "a quotation mark that does not end", text('en\n"A bear\n' * 100_000)),
    Case("quotes.csv", "a million quotation marks", text("en\n" + '"' * 1_000_000)),
    Case("columns.csv", "200,000 columns", text("en" + ",a" * 200_000 + "\nA bear\n")),
    Case("cells.csv", "a million cells", text("en,a\n" + "A b,c\n" * 500_000)),
    Case("utf8.tsv", "invalid UTF-8", lambda: b"en\tde\nA\xff\tB\n"),
    Case("list.jsonl", "a line that is no object", text(record(en="A") + "[1]\n")),
    Case("cut.jsonl", "a line that is cut", text(record(en="A bear")[:-3])),
    Case("deep.jsonl", "100,000 lists in each other", text('{"en": ' + "[" * 100_000)),
    Case("number.jsonl", "a number of a million digits",
         text('{"en": "A bear", "n": ' + "9" * 1_000_000 + "}\n")),
    Case("surrogate.jsonl", "half a character as an escape", text('{"en": "A \\ud800 bear"}\n')),
    Case("keys.jsonl", "an object of 200,000 keys",
         lambda: record(en="A", **{f"k{i}": i for i in range(200_000)}).encode()),
    Case("letter.xyz", "an unknown format", text("A bear")),
]  # fmt: skip
CASES = [*OFFICE, *TEXT]
