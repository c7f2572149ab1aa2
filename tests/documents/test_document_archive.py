"""Damaged, encrypted and hostile office files: each ends in one line, soon and in little memory."""

import io
import struct
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable

import pytest
from office_files import (
    ODT_TYPE,
    WORD_TYPE,
    archive,
    content_types,
    letter,
    opendocument,
    parts_of,
    slides,
    translated,
    word,
    word_xml,
)

from mt.documents import office
from mt.documents.archive import Archive, refuse_unread_format
from mt.documents.document import Document, DocumentError
from mt.documents.docx import read_docx
from mt.documents.odt import read_odt
from mt.documents.pptx import read_pptx

WORD_FILE = word("<w:p><w:r><w:t>A bear</w:t></w:r></w:p>")
MAIN = "word/document.xml"
DIRECTORY, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"
OLE = bytes.fromhex("D0CF11E0A1B11AE1") + bytes(1000)
MIB = 2**20


def with_part(content: str | bytes, name: str = MAIN, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return archive(parts_of(WORD_FILE) | {name: content}, method)


def with_entry(name: str, attributes: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    output = io.BytesIO(WORD_FILE)
    with zipfile.ZipFile(output, "a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two parts with one name
        info = zipfile.ZipInfo(name)
        info.external_attr, info.compress_type = attributes << 16, method
        file.writestr(info, b"content " * 10)
    return output.getvalue()


def patched(mark: bytes, offset: int, form: str, value: int, data: bytes = WORD_FILE) -> bytes:
    """With another number in the last header with this mark."""
    result = bytearray(data)
    struct.pack_into(form, result, data.rindex(mark) + offset, value)
    return bytes(result)


def both_patched(local: int, directory: int, form: str, value: int) -> bytes:
    return patched(DIRECTORY, directory, form, value, patched(LOCAL, local, form, value))


def bomb(megabytes: int, parts: int = 1) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as file:
        for part in range(parts):
            with file.open(f"word/{part}.xml", "w") as target:
                for _ in range(megabytes):
                    target.write(bytes(MIB))
    return output.getvalue()


def many_entries(count: int) -> bytes:
    return archive({f"{number}.xml": b"" for number in range(count)}, zipfile.ZIP_STORED)


def forged_directory(count: int) -> bytes:
    """One part, to which many entries of the directory point."""
    data = archive({"a": bytes(MIB)}, zipfile.ZIP_STORED)
    start, end = data.index(DIRECTORY), data.index(END)
    entry = data[start:end]
    tail = struct.pack("<HHII", min(count, 65535), min(count, 65535), len(entry) * count, start)
    return data[:start] + entry * count + data[end : end + 8] + tail + bytes(2)


def zip64_size() -> bytes:
    """A part that claims to have 2^60 bytes."""
    data = archive({"a": b"x"}, zipfile.ZIP_STORED)
    start, end = data.index(DIRECTORY), data.index(END)
    entry = bytearray(data[start:end]) + struct.pack("<HHQ", 1, 8, 2**60)
    struct.pack_into("<I", entry, 24, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, 12)
    tail = struct.pack("<HHII", 1, 1, len(entry), start)
    return data[:start] + bytes(entry) + data[end : end + 8] + tail + bytes(2)


def zip64_end() -> bytes:
    """An end of the directory that is said to be far outside of the file."""
    position = WORD_FILE.rindex(END)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, 2**62, 1)
    return WORD_FILE[:position] + locator + WORD_FILE[position:]


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def xml(doctype: str, text: str = "") -> str:
    return f'<?xml version="1.0"?>{doctype}' + word_xml(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>")


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
BILLION = f'<!DOCTYPE w [<!ENTITY l0 "ha">{LAUGHS}]>'
FILE = '<!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
PARAMETER = '<!DOCTYPE w [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]>'
QUADRATIC = f'<!DOCTYPE w [<!ENTITY x "{"a" * 50_000}">]>'
MAINS = {MAIN: f"{WORD_TYPE}.document.main+xml", "b.xml": f"{WORD_TYPE}.document.main+xml"}
EXCEL = MAIN, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
ODT = opendocument("<text:p>A bear</text:p>")
DIGITS = "".join(str(number) for number in range(1_800_000))  # 11 MB that pack badly

DAMAGED_MAIN = "is damaged: word/document.xml is no XML"

HOSTILE: list[tuple[str, Callable[[], bytes], str]] = [  # what, the file, the error
    ("nothing", lambda: b"", "is empty"),
    ("text", lambda: b"Dear Ann, ...", "is not an Office document: it is no zip archive"),
    ("PDF", lambda: b"%PDF-1.7\n", "is a PDF file: save its text as .docx or .odt first"),
    ("RTF", lambda: b"{\\rtf1 a}", "is an RTF file: save it as .docx or .odt first"),
    ("HTML", lambda: b"\n<html></html>", "is an XML or HTML file"),
    ("old Word", lambda: OLE, "is in an old Office format: save it as .docx"),
    ("password", lambda: OLE + "EncryptedPackage".encode("utf-16-le"), "is encrypted: save it"),
    ("zip password", lambda: both_patched(6, 8, "<H", 1), "is encrypted: save it without a pass"),
    ("half", lambda: WORD_FILE[: len(WORD_FILE) // 2], "is damaged"),
    ("no end", lambda: WORD_FILE[:-10], "is damaged"),
    ("no start", lambda: WORD_FILE[100:], "is not an Office document"),
    ("two bytes", lambda: b"PK", "is damaged"),
    ("program before", lambda: b"MZ" + WORD_FILE, "is not an Office document"),
    ("no parts", lambda: archive({}), "is no Word file: it has no [Content_Types].xml"),
    ("bomb", lambda: bomb(210), "would unpack to 210 MB, more than 200 MB"),
    ("bomb of parts", lambda: bomb(15, 20), "would unpack to 300 MB, more than 200 MB"),
    ("small bomb", lambda: bomb(20), "would unpack 'word/0.xml' from"),
    ("zip64 bomb", zip64_size, "would unpack to 1,073,741,824.0 GB, more than 200 MB"),
    ("zip64 end", zip64_end, "is damaged"),
    ("same part often", lambda: forged_directory(300), "two of its parts have the same name"),
    ("many parts", lambda: many_entries(10_001), "has 10,001 parts, more than 10,000"),
    ("large directory", lambda: forged_directory(60_000), "has 60,000 parts, more than 10,000"),
    ("larger than said", lambda: both_patched(22, 24, "<I", 5), "is damaged: 'word/document.xml'"),
    ("smaller than said", lambda: both_patched(22, 24, "<I", 2**19), "is damaged: 'word/docu"),
    ("packed beyond end", lambda: both_patched(18, 20, "<I", 2**30), "is damaged: its parts over"),
    ("wrong place", lambda: patched(DIRECTORY, 42, "<I", 7), "is damaged: 'word/document.xml'"),
    ("place outside", lambda: patched(DIRECTORY, 42, "<I", 2**31), "is damaged"),
    ("no directory", lambda: patched(END, 16, "<I", 2**31), "is damaged"),
    ("other disk", lambda: patched(LOCAL, 4, "<H", 99, patched(DIRECTORY, 6, "<H", 99)), "is da"),
    ("checksum", lambda: both_patched(14, 16, "<I", 1), "is damaged: 'word/document.xml': Bad CRC"),
    ("packed bytes", lambda: flipped(WORD_FILE, WORD_FILE.rindex(LOCAL) + 60), "is damaged: 'word"),
    ("two names", lambda: patched(LOCAL, 30, "B", 88), "is damaged: 'word/document.xml'"),
    ("same names", lambda: with_entry(MAIN), "is damaged: two of its parts have the same name"),
    ("way up", lambda: with_entry("../../etc/passwd"), "has a part with the forbidden name '../.."),
    ("inner way up", lambda: with_entry("a/../../b"), "has a part with the forbidden name 'a/../"),
    ("absolute", lambda: with_entry("/etc/passwd"), "has a part with the forbidden name '/etc/pa"),
    ("backslash", lambda: with_entry("..\\x"), "has a part with the forbidden name '..\\\\x'"),
    ("zero byte", lambda: with_entry("ab.xml").replace(b"ab.xml", b"a\0.xml"), "forbidden name"),
    ("link", lambda: with_entry("a", 0o120777), "has the part 'a', which is a link to another"),
    ("bzip2", lambda: with_entry("a", method=zipfile.ZIP_BZIP2), "'a' in a compression that is"),
    ("LZMA", lambda: with_entry("a", method=zipfile.ZIP_LZMA), "'a' in a compression that is"),
    ("escape codes", lambda: with_entry("/\x1b[2J" + "x" * 60_000),
     "forbidden name '/\ufffd[2J"),
    ("in an archive", lambda: archive({"letter.docx": WORD_FILE}), "is no Word file: it has no"),
    ("no types", lambda: archive({MAIN: word_xml("")}), "is no Word file: it has no [Content_T"),
    ("types not XML", lambda: with_part("x", "[Content_Types].xml"), "is no XML"),
    ("laughs in types", lambda: with_part(xml(BILLION), "[Content_Types].xml"), "DOCTYPE) in [Con"),
    ("no main part", lambda: with_part(content_types({}), "[Content_Types].xml"),
     "is damaged: it has 0 main parts instead of one"),
    ("main part gone", lambda: archive({"[Content_Types].xml": content_types(MAINS)}), "0 main p"),
    ("two main parts", lambda: archive({"[Content_Types].xml": content_types(MAINS), MAIN: "",
     "b.xml": ""}), "is damaged: it has 2 main parts instead of one"),
    ("Excel", lambda: with_part(content_types(dict([EXCEL])), "[Content_Types].xml"),
     "is an Office file of Excel, not of Word"),
    ("presentation", lambda: slides(""), "is an Office file of PowerPoint, not of Word"),
    ("OpenDocument", lambda: ODT, "is no Word file: it has no [Content_Types].xml"),
    ("billion laughs", lambda: with_part(xml(BILLION, "&l11;")), "(DOCTYPE) in word/document.xml"),
    ("file entity", lambda: with_part(xml(FILE, "&x;")), "has a document type (DOCTYPE) in word/"),
    ("outer DTD", lambda: with_part(xml(PARAMETER)), "has a document type (DOCTYPE) in word/docu"),
    ("quadratic", lambda: with_part(xml(QUADRATIC, "&x;" * 9999)), "has a document type (DOCTYPE)"),
    ("UTF-16 laughs", lambda: with_part(xml(BILLION).encode("utf-16")), "(DOCTYPE) in word/doc"),
    ("UTF-7 laughs", lambda: with_part(xml(BILLION, "&l11;").replace(
        '"1.0"', '"1.0" encoding="UTF-7"').replace("<!D", "+ADw-!D")), "word/document.xml"),
    ("unknown entity", lambda: with_part(xml("", "&x;")), DAMAGED_MAIN),
    ("no XML", lambda: with_part("not XML at all"), DAMAGED_MAIN),
    ("empty part", lambda: with_part(""), DAMAGED_MAIN),
    ("open element", lambda: with_part("<w:document><w:p>"), DAMAGED_MAIN),
    ("bad UTF-8", lambda: with_part(xml("").encode() + b"<!--\xff-->"), DAMAGED_MAIN),
    ("bad encoding", lambda: with_part('<?xml version="1.0" encoding="x-none"?><a/>'), "is no XML"),
    ("zero bytes", lambda: with_part(xml("", "a\0b")), DAMAGED_MAIN),
    ("deep", lambda: with_part(word_xml("<w:p>" * 9999 + "</w:p>" * 9999)), DAMAGED_MAIN),
    ("long text", lambda: with_part(xml("", DIGITS)), DAMAGED_MAIN),
    ("much markup", lambda: with_part(word_xml("<w:p/>" * 2_100_000), method=zipfile.ZIP_STORED),
     "is too large: word/document.xml has 2,100,"),
    ("heavy style", lambda: word(f"<w:p><w:r><w:rPr>{'<w:b/>' * 1000}</w:rPr>"
     + "<w:t>A</w:t><w:tab/>" * 9000 + "</w:r></w:p>"), "is too large: the styles in its text"),
    ("much attribute", lambda: with_part(word_xml(f"<w:p {'a=' * 2_100_000}/>"),
     method=zipfile.ZIP_STORED), "is too large: word/document.xml has 2,100,"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "message"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE]
)
def test_a_hostile_word_file_ends_in_one_line(build: Callable[[], bytes], message: str) -> None:
    check_error(read_docx, build(), message)


def odt(**parts: str) -> bytes:
    names = {"mimetype": "mimetype", "content": "content.xml", "manifest": "META-INF/manifest.xml"}
    return archive(parts_of(ODT) | {names[name]: content for name, content in parts.items()})


OTHERS: list[tuple[Callable[[bytes], Document], bytes, str]] = [
    (read_odt, odt(mimetype="application/zip"), "is no OpenDocument text, spreadsheet or pres"),
    (read_odt, odt(mimetype="application/vnd.oasis.opendocument.graphics"), "is no OpenDocument"),
    (read_odt, WORD_FILE, "is damaged, or is no OpenDocument file: it has no content.xml"),
    (read_odt, archive({"mimetype": ODT_TYPE}), "it has no content.xml"),
    (read_odt, odt(content="<html/>"), "is damaged: one of its parts is no OpenDocument text"),
    (read_odt, odt(content=BILLION + "<a>&l11;</a>"), "(DOCTYPE) in content.xml"),
    (read_odt, opendocument(f'<text:p><text:span text:style-name="{"T" * 19_000}">'
     + "A<text:tab/>" * 9000 + "</text:span></text:p>"), "is too large: the styles in its text"),
    (read_pptx, slides(f'<a:p>{"<a:br/>".join(["<a:r><a:t>A</a:t></a:r>"] * 9000)}<a:r><a:rPr>'
     + f"{'<a:ln/>' * 1000}</a:rPr><a:t>{'b' * 99_999}{'&#9;b' * 9000}</a:t></a:r></a:p>"),
     "is too large: the styles in its text take"),
    (read_odt, OLE, "is in an old Office format"),
    (read_odt, bomb(20), "is a zip bomb"),
    (read_pptx, WORD_FILE, "is an Office file of Word, not of PowerPoint"),
    (read_pptx, archive({"a": "b"}), "is no PowerPoint file: it has no [Content_Types].xml"),
    (read_pptx, slides("<a:p>&x;</a:p>"), "is damaged: ppt/slides/slide1.xml is no XML"),
    (read_pptx, slides("<a:p><a:r>"), "is damaged: ppt/slides/slide1.xml is no XML"),
    (read_pptx, slides("")[:-30], "is damaged"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "data", "message"), OTHERS)
def test_other_hostile_files_end_in_one_line(
    read: Callable[[bytes], Document], data: bytes, message: str
) -> None:
    check_error(read, data, message)


def check_error(read: Callable[[bytes], Document], data: bytes, message: str) -> None:
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(DocumentError) as caught:
            read(data)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert time.process_time() - start < 10
    assert peak < 4 * len(data) + 32 * MIB
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_the_markup_of_all_parts_together_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "MAX_MARKUP", 100)
    assert read_pptx(slides(*["<a:p/>" * 30] * 2)).segments == []
    with pytest.raises(DocumentError, match="is too large: it has more than 100 pieces of markup"):
        read_pptx(slides(*["<a:p/>" * 30] * 3))


def test_the_number_of_texts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "MAX_SEGMENTS", 2)
    text = "<w:p><w:r><w:t>A bear</w:t></w:r></w:p>"
    assert len(read_docx(word(text * 2)).segments) == 2
    with pytest.raises(DocumentError, match="is too large: it has more than 2 texts; split it"):
        read_docx(word(text * 3))


ODD = [  # what looks hostile, but is only odd; each is a document with one segment
    lambda: word("<w:p>" + '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 20_000
                 + "<w:r><w:t>A bear</w:t></w:r></w:p>"),
    lambda: word("<w:p>" + "<w:r><w:t>A</w:t></w:r>" * 30_000 + "</w:p>"),
    lambda: word("<w:p><w:r><w:t>A</w:t></w:r>" + "<w:ins>" * 200
                 + "<w:r><w:t>b</w:t></w:r>" + "</w:ins>" * 200 + "</w:p>"),
    lambda: word("<w:p>" + "<w:r><w:t>A</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>b</w:t></w:r>"
                 * 10_000 + "</w:p>"),
    lambda: opendocument("<text:p>A" + "<text:span>" * 200 + "b" + "</text:span>" * 200
                         + "</text:p>"),
    lambda: opendocument('<text:p>A bear<text:s text:c="99999999999"/></text:p>'),
    lambda: odt(manifest=BILLION + "<a>&l11;</a>"),  # is not parsed
    lambda: with_entry("word/embeddings/nested.zip"),
    lambda: with_part(WORD_FILE, "word/embeddings/nested.docx"),
]  # fmt: skip


@pytest.mark.parametrize("build", ODD)
def test_an_odd_file_is_read_and_written_soon(build: Callable[[], bytes]) -> None:
    data = build()
    read = read_odt if data[30:38] == b"mimetype" else read_docx
    start = time.process_time()
    document = read(data)
    assert len(document.segments) == 1
    assert document.render(document.segments) == data
    assert len(read(translated(document)).segments) == 1
    assert time.process_time() - start < 20


def test_unchanged_parts_keep_bytes_order_times_compression_and_comment() -> None:
    output = io.BytesIO(letter())
    with zipfile.ZipFile(output, "a") as file:
        info = zipfile.ZipInfo("word/mädchen.bin", (2001, 2, 3, 4, 5, 6))
        file.writestr(info, bytes(range(256)))  # stored
        file.comment = b"a comment"
    archive = Archive(output.getvalue())
    changed = archive.replaced({MAIN: b"<new/>"})

    with (
        zipfile.ZipFile(io.BytesIO(archive.data)) as old,
        zipfile.ZipFile(io.BytesIO(changed)) as new,
    ):
        assert new.comment == b"a comment"
        fields = ("filename", "date_time", "compress_type", "external_attr", "create_system")
        assert [[getattr(info, field) for field in fields] for info in new.infolist()] == [
            [getattr(info, field) for field in fields] for info in old.infolist()
        ]
        for name in old.namelist():
            assert new.read(name) == (b"<new/>" if name == MAIN else old.read(name))
    assert archive.replaced({}) == archive.data


@pytest.mark.parametrize(
    "extension",
    [".doc", ".DOC", ".ppt", ".xls", ".rtf", ".pdf", ".json", ".xml", ".xlf", ".yaml",
     ".docm", ".ppsx", ".xlsm", ".ott", ".fods", ".ipynb", ".ssa", ".ndjson", ".php"],
)  # fmt: skip
def test_old_formats_are_refused_by_name(extension: str) -> None:
    with pytest.raises(DocumentError, match=f"is a {extension.lower()} file: s"):
        refuse_unread_format(extension)
    refuse_unread_format(".docx")
