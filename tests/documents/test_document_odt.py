"""OpenDocument files: which texts and tags they give, and what the translated file is."""

import io

import pytest
from odf import opendocument as odf
from odf import teletype, text
from office_files import (
    all_marked,
    archive,
    marked,
    opendocument,
    parsed,
    parts_of,
    report,
    rotated,
    translated,
    without_words,
)

from mt.documents.document import DocumentError
from mt.documents.odt import read_odt

# T1 is bold, T2 only says who typed it, T3 is bold, too.
STYLES = """
<style:style style:name="T1" style:family="text">
  <style:text-properties fo:font-weight="bold"/></style:style>
<style:style style:name="T2" style:family="text">
  <style:text-properties loext:rsid="001"/></style:style>
<style:style style:name="T3" style:family="text">
  <style:text-properties fo:font-weight="bold" loext:rsid="002"/></style:style>
<style:style style:name="T4" style:family="text"><!-- raised -->
  <style:text-properties style:text-position="super 58%"/></style:style>"""
NOTE = (
    "<text:note><text:note-citation>1</text:note-citation><text:note-body>"
    "<text:p>A note</text:p></text:note-body></text:note>"
)

COMMENT = '<office:annotation office:name="c"><text:p>Why?</text:p></office:annotation>'
COMMENT_END = '<office:annotation-end office:name="c"/>'


def span(words: str, style: int = 1) -> str:
    return f'<text:span text:style-name="T{style}">{words}</text:span>'


def link(words: str) -> str:
    return f'<text:a xlink:href="x">{words}</text:a>'


PARAGRAPHS = [  # XML in a paragraph, its segments with their tags
    ("A bear", ["A bear"]),
    ("A\n   bear", ["A bear"]),
    ("A " + span("big") + " bear", ["A <0>big</0> bear"]),
    ("A be" + span("ar", 2), ["A bear"]),
    (span("A bear"), ["A bear"]),
    ("The " + span("very") + span(" big", 3) + " bear", ["The <0>very big</0> bear"]),
    (span("Note: ") + "it is so here", ["<0>Note: </0>it is so here"]),
    ("A " + link("bear") + " here", ["A <0>bear</0> here"]),
    (link("All of it"), ["All of it"]),
    (span("A " + link("bear") + " here"), ["A <0>bear</0> here"]),
    ("A " + link("big " + span("bear")) + " here", ["A <0>big <1>bear</1></0> here"]),
    ("One.<text:s/> Two", ["One.  Two"]),
    ('A<text:s text:c="3"/>b', ["A   b"]),
    ('A<text:s text:c="900000000000"/>b', ["A", "b"]),
    ("A<text:tab/>b", ["A", "b"]),
    ("A<text:line-break/>b", ["A<0/> b"]),
    ("A<text:line-break/><text:line-break/>b", ["A", "b"]),
    ("A bear" + NOTE + " here", ["A bear<0/> here", "A note"]),
    ("A bear." + NOTE, ["A bear.", "A note"]),
    ("A bear" + span("2", 4) + " here", ["A bear<0/> here"]),
    ("The 2" + span("nd", 4) + " bear", ["The 2nd bear"]),
    ("The " + span("2") + span("ND ", 4) + "bear", ["The <0>2ND </0>bear"]),
    ("The x" + span("nd", 4) + " bear", ["The x<0>nd</0> bear"]),
    ("Page <text:page-number>3</text:page-number> of it", ["Page <0/>of it"]),
    ('<text:bookmark-start text:name="a"/>Title<text:bookmark-end text:name="a"/>', ["Title"]),
    ("A<office:annotation><text:p>Why?</text:p></office:annotation> b", ["A<0/> b"]),
    ("By <text:date/> <text:time/>, so", ["By <0/> <1/>, so"]),
    ("A<!-- x --> b", ["A<0/> b"]),
    (" <text:s/>A ", ["A"]),
    ("", []),
]


@pytest.mark.parametrize(("xml", "expected"), PARAGRAPHS)
def test_a_paragraph_gives_segments_with_few_tags(xml: str, expected: list[str]) -> None:
    data = opendocument(f"<text:p>{xml}</text:p>", STYLES)
    document = read_odt(data)

    assert all_marked(document) == expected
    assert document.render(document.segments) == data
    again = read_odt(translated(document, rotated))
    assert all_marked(again) == [marked(rotated(s)) for s in document.segments]


RENDERED = [  # XML in a paragraph, its translations, the XML that it becomes
    ("A " + span("big") + " bear", ["Ein <0>groß</0> Bär"], "Ein " + span("groß") + " Bär"),
    ("A<text:line-break/>b", ["Ein <0/> Satz <&"], "Ein<text:line-break/>Satz &lt;&amp;"),
    ("A " + link("bear"), ["<0>Bär</0> da"], link("Bär") + " da"),
    ("<text:s/>A", ["Ein  Bär"], '<text:s text:c="1"/>Ein<text:s text:c="2"/>Bär'),
    ("See " + COMMENT + "a" + COMMENT_END + " bear", ["x<1/> <0/>y"],
     "x" + COMMENT + " " + COMMENT_END + "y"),
    ("See " + COMMENT_END + "it.", ["x<0/>."], "x" + COMMENT_END + "."),
    (span("A" + NOTE + " b"), ["x<0/> y", "z"],
     span("x") + span(NOTE.replace("A note", "z")) + span(" y")),
    ("Some " + span("big") + "<text:tab/>b", ["Some <0>big</0>", "x"],
     "Some " + span("big") + "<text:tab/>x"),
]  # fmt: skip


@pytest.mark.parametrize(("xml", "translations", "expected"), RENDERED)
def test_a_translation_has_its_spans(xml: str, translations: list[str], expected: str) -> None:
    document = read_odt(opendocument(f"<text:p>{xml}</text:p>", STYLES))
    output = document.render([parsed(text) for text in translations])
    assert f"<text:p>{expected}</text:p>" in parts_of(output)["content.xml"].decode()


def test_tracked_deletions_numbers_and_formulas_are_no_segments() -> None:
    def cell(attributes: str, words: str) -> str:
        return f"<table:table-cell {attributes}><text:p>{words}</text:p></table:table-cell>"

    deleted = "<text:tracked-changes><text:p>Gone</text:p></text:tracked-changes>"
    cells = (
        cell('office:value-type="string"', "Word")
        + cell('office:value-type="float" office:value="1.5"', "1,5 pieces")
        + cell('office:value-type="string" table:formula="of:=A1"', "Result")
        + cell('office:value-type="string" office:string-value="Other"', "Other")
        + cell('table:number-columns-repeated="1000000000"', "Repeated")
    )
    rows = f"<table:table><table:table-row>{cells}</table:table-row></table:table>"
    document = read_odt(opendocument(deleted + rows, kind="spreadsheet"))

    assert all_marked(document) == ["Word", "Other", "Repeated"]
    output = translated(document)
    assert all_marked(read_odt(output)) == ["WORD", "OTHER", "REPEATED"]
    assert b"string-value" not in parts_of(output)["content.xml"]  # it would have the old text


def test_all_texts_of_a_report_are_found_and_nothing_else_changes() -> None:
    data = report()
    document = read_odt(data)
    output = translated(document)

    assert document.render(document.segments) == data
    result = odf.load(io.BytesIO(output))
    paragraphs = [teletype.extractText(node) for node in result.text.getElementsByType(text.P)]
    assert paragraphs[0] == "WE ARE VERY GLAD, SEE OUR SITE1A NOTE BELOW.."
    assert paragraphs[2] == "NAME:\tMARY\nTOWN"
    assert {"A PEAR", "IN A BOX"} < set(paragraphs)
    assert [str(span) for span in result.text.getElementsByType(text.Span)] == ["VERY"]
    assert b"CONFIDENTIAL" in parts_of(output)["styles.xml"]

    before, after = parts_of(data), parts_of(output)
    assert list(before) == list(after)
    assert next(iter(before)) == "mimetype"
    for name in before:
        if name in ("content.xml", "styles.xml"):
            assert without_words(before[name], ()) == without_words(after[name], ())
        else:
            assert before[name] == after[name]


def test_first_headers_of_older_versions_are_segments() -> None:
    space = "urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0"
    parts = parts_of(opendocument("<text:p>Body</text:p>"))
    header = f'<l:header-first xmlns:l="{space}"><text:p>First page</text:p></l:header-first>'
    parts["styles.xml"] = (
        parts["content.xml"].decode().replace("document-content", "document-styles")
        .replace("<text:p>Body</text:p>", header).encode()
    )  # fmt: skip
    document = read_odt(archive(parts))
    assert [segment.text for segment in document.segments] == ["Body", "First page"]


def test_an_encrypted_file_is_named_as_such() -> None:
    space = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
    entry = f'<m:file-entry xmlns:m="{space}"><m:encryption-data/></m:file-entry>'
    parts = parts_of(opendocument("")) | {"META-INF/manifest.xml": entry.encode()}
    with pytest.raises(DocumentError, match="is encrypted: save it without a password"):
        read_odt(archive(parts | {"content.xml": b"\x8f\x00garbage"}))
