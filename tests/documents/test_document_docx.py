"""Word documents: which texts and tags they give, and what the translated file is."""

import io
import time

import docx
import pytest
from office_files import (
    COMPATIBLE,
    RELATED,
    WORD,
    WORD_TYPE,
    all_marked,
    archive,
    canonical,
    letter,
    marked,
    parsed,
    parts_of,
    rotated,
    translated,
    without_words,
    word,
    word_xml,
)

from mt.documents.document import DocumentError, Segment
from mt.documents.docx import read_docx

BOLD, ITALIC = "<w:rPr><w:b/></w:rPr>", "<w:rPr><w:i/></w:rPr>"
PICTURE = "<w:r><w:drawing><a:graphic/></w:drawing></w:r>"


def run(words: str, properties: str = "") -> str:
    space = ' xml:space="preserve"' if words != words.strip() else ""
    return f"<w:r>{properties}<w:t{space}>{words}</w:t></w:r>"


def code(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def a_field(instruction: str, result: str) -> str:
    middle = f"<w:r><w:instrText>{instruction}</w:instrText></w:r>{code('separate')}{result}"
    return code("begin") + middle + code("end")


def body_of(data: bytes) -> str:
    """The XML in the body of a file that ``word`` made, without its namespaces."""
    text = parts_of(data)["word/document.xml"].decode()
    for name, address in (("w", WORD), ("mc", COMPATIBLE)):
        text = text.replace(f' xmlns:{name}="{address}"', "")
    return text.partition("<w:body>")[2].removesuffix("</w:body></w:document>")


RAISED = '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
PARAGRAPHS = [  # XML in a paragraph, its segments with their tags
    (run("A ") + run("bear") + run("."), ["A bear."]),
    (run("All bold", BOLD), ["All bold"]),
    (run("A ") + run("big", BOLD) + run(" bear"), ["A <0>big</0> bear"]),
    (run("Note", BOLD) + run(": it is so"), ["<0>Note</0>: it is so"]),
    # What Word splits without a visible reason is one text.
    (run("A be", '<w:rPr><w:lang w:val="en-GB"/></w:rPr>') + run("ar"), ["A bear"]),
    ('<w:proofErr w:type="spellStart"/>' + run("A be") + "<w:proofErr/>" + run("ar"), ["A bear"]),
    (run("to") + "<w:r><w:softHyphen/></w:r>" + run("day"), ["today"]),
    (run("e") + "<w:r><w:noBreakHyphen/></w:r>" + run("mail"), ["e\u2011mail"]),
    (run("x ", BOLD) + run(" ", ITALIC) + run("y", BOLD), ["x  y"]),
    # Tabs end a segment, as two line breaks do, and one before a capital letter.
    (run("Name:") + "<w:r><w:tab/></w:r>" + run("Mary"), ["Name:", "Mary"]),
    ("<w:r><w:t>One</w:t><w:br/><w:t>Two</w:t></w:r>", ["One", "Two"]),
    ("<w:r><w:t>One</w:t><w:br/><w:t>bear</w:t></w:r>", ["One<0/> bear"]),
    ("<w:r><w:t>One</w:t><w:br/><w:br/><w:t>two</w:t></w:r>", ["One", "two"]),
    ('<w:r><w:t>One</w:t><w:br w:type="page"/><w:t>two</w:t></w:r>', ["One", "two"]),
    (run("1.") + "<w:r><w:tab/></w:r>" + run("Go", BOLD) + run(" home"), ["<0>Go</0> home"]),
    # What stands at the ends gives no tags.
    ('<w:bookmarkStart w:id="0"/>' + run("Title") + '<w:bookmarkEnd w:id="0"/>', ["Title"]),
    (run("Title ") + '<w:r><w:footnoteReference w:id="2"/></w:r>', ["Title"]),
    (run("A ") + PICTURE + run(" here"), ["A <0/>here"]),
    # The mark of a note is no part of a word.
    (run("A bear") + run("2", RAISED) + run(" here"), ["A bear<0/> here"]),
    (run("The 2") + run("nd", RAISED) + run(" bear"), ["The 2nd bear"]),
    (run("The 2") + run("ND", RAISED) + run(" bear"), ["The 2ND bear"]),
    (run("The bear") + run("nd", RAISED) + run(" x"), ["The bear<0>nd</0> x"]),
    (run("The ") + '<w:bookmarkStart w:id="0"/>' + run("end"), ["The <0/>end"]),
    # Elements around text.
    (run("See ") + f"<w:hyperlink>{run('here', BOLD)}</w:hyperlink>", ["See <0>here</0>"]),
    (f"<w:hyperlink>{run('All of it')}</w:hyperlink>", ["All of it"]),
    (f"<w:hyperlink>{run('A ') + run('b', BOLD) + run(' cd')}</w:hyperlink>", ["A <0>b</0> cd"]),
    (run("A ") + f"<w:ins>{run('b')}<w:r><w:tab/></w:r>{run('c')}</w:ins>" + run(" d"),
     ["A <0>b<1/> c</0> d"]),
    ("<w:r><w:t>one<!-- x --> two</w:t></w:r>", ["one two"]),
    (run("A ") + f"<w:hyperlink>{PICTURE}</w:hyperlink>" + run(" b"), ["A <0/>b"]),
    (run("A ") + f"<w:ins>{run('new ')}</w:ins>" + run("bear"), ["A <0>new </0>bear"]),
    (run("A ") + "<w:del><w:r><w:delText>old </w:delText></w:r></w:del>" + run("b"), ["A <0/>b"]),
    (run("A ") + f"<w:sdt><w:sdtPr/><w:sdtContent>{run('b')}</w:sdtContent></w:sdt>" + run(" c"),
     ["A <0>b</0> c"]),
    (run("A ") + "<w:sdt><w:sdtPr><w:date/></w:sdtPr><w:sdtContent>" + run("b")
     + "</w:sdtContent></w:sdt>" + run(" c"), ["A <0/>c"]),
    # Fields.
    (run("Page ") + a_field("PAGE", run("3")) + run(" of it"), ["Page <0/>of it"]),
    (run("See ") + a_field(" HYPERLINK x", run("here")) + run(" now"), ["See <0>here</0> now"]),
    (run("See ") + a_field("IF", a_field("HYPERLINK x", run("a"))) + run(" b"), ["See <0/>b"]),
    (code("begin") + code("separate") + run("Contents"), ["Contents"]),
    (run("Contents") + code("end") + code("begin"), ["Contents"]),
    (run("See ") + f'<w:fldSimple w:instr="REF a">{run("1")}</w:fldSimple>', ["See"]),
    (f'<w:fldSimple w:instr="HYPERLINK a">{run("Go")}</w:fldSimple>', ["Go"]),
    # Nothing to translate.
    (run("  "), []),
    (run("– * –"), []),
    ("", []),
]  # fmt: skip


@pytest.mark.parametrize(("xml", "expected"), PARAGRAPHS)
def test_a_paragraph_gives_segments_with_few_tags(xml: str, expected: list[str]) -> None:
    data = word(f"<w:p><w:pPr><w:keepNext/></w:pPr>{xml}</w:p>")
    document = read_docx(data)

    assert all_marked(document) == expected
    assert document.render(document.segments) == data
    output = translated(document, rotated)
    assert all_marked(read_docx(output)) == [marked(rotated(s)) for s in document.segments]
    assert "<w:keepNext/>" in body_of(output)


BREAK, TAB = "<w:r><w:br/></w:r>", "<w:r><w:tab/></w:r>"
START, END = '<w:bookmarkStart w:id="0"/>', '<w:bookmarkEnd w:id="0"/>'
RENDERED = [  # XML in a paragraph, its translations, the XML that it becomes
    (run("A ") + run("big", BOLD) + run(" bear"), ["Ein <0>groß</0> Bär"],
     run("Ein ") + run("groß", BOLD) + run(" Bär")),
    (run("big", BOLD) + run(" bear is here"), ["Da ist er, <0>groß</0>"],
     run("Da ist er, ") + run("groß", BOLD)),
    ('<w:r w:rsidR="00A1"><w:t>A</w:t></w:r>', ["Ein"], '<w:r w:rsidR="00A1"><w:t>Ein</w:t></w:r>'),
    (run("a") + BREAK + run("b"), ["Ein <0/> Satz"], run("Ein") + BREAK + run("Satz")),
    (run("see ") + PICTURE + run(" for more"), ["siehe<0/>für mehr"],
     run("siehe ") + PICTURE + run(" für mehr")),
    (run("see ") + PICTURE + run(" for."), ["für siehe<0/>."],
     run("für siehe ") + PICTURE + run(".")),
    (run("  A") + TAB + run("b "), ["x", "y"], run("  ") + run("x") + TAB + run("y") + run(" ")),
    # A segment that stays beside one that does not.
    (run("a ") + run("b", BOLD) + TAB + run("c"), ["a <0>b</0>", "x"],
     run("a ") + run("b", BOLD) + TAB + run("x")),
    # A field keeps its blank, also before a mark and after another field.
    (run("see page ") + a_field("PAGE", run("3")) + run("."), ["auf Seite<0/> sehen."],
     run("auf Seite ") + a_field("PAGE", run("3")) + run(" sehen.")),
    (run("Figure ") + a_field("SEQ", run("1")) + END + run(": x"), ["Abbildung<0/>: y"],
     run("Abbildung ") + a_field("SEQ", run("1")) + END + run(": y")),
    (run("I met ") + a_field("A", run("b")) + run(" ") + a_field("C", run("d")) + run(" then."),
     ["Ich traf<0/><1/> dann."], run("Ich traf ") + a_field("A", run("b")) + run(" ")
     + a_field("C", run("d")) + run(" dann.")),
    (run("(page ") + a_field("PAGE", run("3")) + run(")"), ["(<0/>Seite)"],
     run("(") + a_field("PAGE", run("3")) + run("Seite)")),
    (run("a ") + '<w:r><w:commentReference w:id="1"/></w:r>' + run("b."), ["x<0/>."],
     run("x") + '<w:r><w:commentReference w:id="1"/></w:r>' + run(".")),
    # The letters of an ordinal are no superscript of the translation.
    (run("On the 1") + run("st", RAISED) + run(" of May"), ["Am 1. Mai"], run("Am 1. Mai")),
    # The ends of a bookmark keep their order.
    (run("a") + START + run("b") + END + run("c"), ["x<1/>y<0/>z"],
     run("x") + START + run("y") + END + run("z")),
    (run("a"), ["x\u2011y\x00\x1b\n<&"],
     "<w:r><w:t>x</w:t><w:noBreakHyphen/><w:t>y &lt;&amp;</w:t></w:r>"),
    (run("a"), ["x\u2010y"], "<w:r><w:t>x</w:t><w:noBreakHyphen/><w:t>y</w:t></w:r>"),
    (run("a ") + a_field("HYPERLINK x", run("b")), ["<0>y</0> x"],
     a_field("HYPERLINK x", run("y")) + run(" x")),
    (run("a ") + f"<w:ins>{run('b')}</w:ins>", ["x <0></0>"], run("x ") + "<w:ins/>"),
]  # fmt: skip


@pytest.mark.parametrize(("xml", "translations", "expected"), RENDERED)
def test_a_translation_has_its_runs(xml: str, translations: list[str], expected: str) -> None:
    document = read_docx(word(f"<w:p>{xml}</w:p>"))
    output = document.render([parsed(text) for text in translations])

    # Namespaces that one part declares and the other does not are not told apart here.
    assert body_of(output) == body_of(word(f"<w:p>{expected}</w:p>"))


def test_a_run_of_many_lines_is_written_in_time() -> None:
    """Libraries write a text with line breaks as one run."""
    lines = "<w:t>A bear is here.</w:t><w:br/>" * 8000
    document = read_docx(word(f"<w:p><w:r>{lines}</w:r></w:p>"))
    start = time.process_time()
    output = translated(document)
    assert time.process_time() - start < 10  # s; 90 where each line looks through the run
    assert body_of(output).count("A BEAR IS HERE.") == 8000


def test_only_translated_paragraphs_change() -> None:
    first = f'<w:p><!-- x --><w:proofErr w:type="a"/>{run("One")}{run(" bear")}</w:p>'
    document = read_docx(word(first + f"<w:p>{run('Two')}</w:p>", footnotes=first))
    one, _, note = document.segments
    output = document.render([one, Segment("Zwei"), note])

    assert body_of(output) == first + f"<w:p>{run('Zwei')}</w:p>"
    before, after = parts_of(word("", footnotes=first)), parts_of(output)
    assert after["word/footnotes.xml"] == before["word/footnotes.xml"]


def test_all_texts_of_a_letter_are_found_and_nothing_else_changes() -> None:
    data = letter()
    document = read_docx(data)
    output = translated(document)

    assert document.render(document.segments) == data
    result = docx.Document(io.BytesIO(output))
    assert result.paragraphs[1].text == "WE ARE VERY GLAD TO SEND YOU THE FIRST EDITION."
    assert [run.text for run in result.paragraphs[1].runs if run.bold] == ["VERY"]
    assert [run.text for run in result.paragraphs[1].runs if run.italic] == ["FIRST EDITION"]
    assert result.paragraphs[2].style.name == "List Bullet"
    assert result.paragraphs[3].text == "NAME:\tMARY\nTOWN:\tPARIS"
    assert [cell.text for cell in result.tables[0].row_cells(1)] == ["A PEAR", "12.50"]
    assert len(result.inline_shapes) == 1
    assert result.sections[0].header.paragraphs[0].text == "CONFIDENTIAL"
    assert [comment.text for comment in result.comments] == ["Is this so?"]

    before, after = parts_of(data), parts_of(output)
    assert list(before) == list(after)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"word/document.xml", "word/footer1.xml", "word/header1.xml"}
    for name in changed:
        texts = ("r", "t", "rPr", "i", "b")
        assert without_words(before[name], texts) == without_words(after[name], texts)


def test_text_boxes_and_notes_are_segments_and_deleted_text_and_comments_are_not() -> None:
    box = f"<w:txbxContent><w:p>{run('In a box')}</w:p></w:txbxContent>"
    xml = f"<w:p>{run('Around')}<w:r><mc:AlternateContent>{box}</mc:AlternateContent></w:r></w:p>"
    deleted = "<w:p><w:del><w:r><w:delText>Gone</w:delText></w:r></w:del></w:p>"
    listed = f"<w:sdt><w:sdtPr><w:dropDownList/></w:sdtPr><w:sdtContent><w:p>{run('B')}</w:p>"
    others = {name: f"<w:p>{run(name)}</w:p>" for name in ("footnotes", "endnotes", "comments")}
    document = read_docx(word(xml + deleted + listed + "</w:sdtContent></w:sdt>", **others))

    assert all_marked(document) == ["Around", "In a box", "endnotes", "footnotes"]
    assert all_marked(read_docx(translated(document))) == [
        "AROUND", "IN A BOX", "ENDNOTES", "FOOTNOTES"
    ]  # fmt: skip


def test_comments_around_the_root_the_declaration_and_utf_16_are_kept() -> None:
    xml = '<?xml version="1.0" encoding="UTF-16" standalone="yes"?><!-- a -->' + word_xml(
        f"<w:p>{run('Grüße')}</w:p>"
    )
    parts = parts_of(word("")) | {"word/document.xml": xml.encode("utf-16")}
    document = read_docx(archive(parts))
    content = parts_of(translated(document))["word/document.xml"]

    assert content.startswith(
        b"<?xml version='1.0' encoding='UTF-8' standalone='yes'?>\n<!-- a -->"
    )
    assert canonical(content) == canonical(xml.replace("Grüße", "GRÜSE").encode("utf-16"))


def test_the_main_part_is_the_one_that_the_file_names() -> None:
    """Microsoft's Open XML SDK makes its type the default; a file within it has it, too."""
    parts = parts_of(word(f"<w:p>{run('A bear')}</w:p>"))
    kind = f"{WORD_TYPE}.document.main+xml"
    override = f'<Override PartName="/word/document.xml" ContentType="{kind}"/>'
    types = parts["[Content_Types].xml"].decode()
    assert override in types
    types = types.replace(override, "").replace("application/xml", kind)
    sdk = archive(parts | {"[Content_Types].xml": types})
    assert all_marked(read_docx(sdk)) == ["A bear"]
    more = override + override.replace("document.xml", "afchunk.docx")
    types = parts["[Content_Types].xml"].decode().replace(override, more)
    related = f'<Relationship Type="{RELATED}/officeDocument" Target="/word/document.xml"/>'
    related = f"<Relationships><!-- of the file -->{related}</Relationships>"
    whole = {"[Content_Types].xml": types, "_rels/.rels": related, "word/afchunk.docx": b"PK"}
    assert all_marked(read_docx(archive(parts | whole))) == ["A bear"]


@pytest.mark.parametrize(
    ("body", "others", "remark"),
    [
        (f"<w:p>{PICTURE}</w:p>", {}, "has no text to translate"),
        ("<w:del><w:r><w:delText>a</w:delText></w:r></w:del>", {}, "what is deleted stays"),
        ("", {"_xmlsignatures/sig1.xml": "<x/>"}, "has a digital signature"),
    ],
)
def test_what_a_user_may_not_expect_is_remarked(
    body: str, others: dict[str, str], remark: str
) -> None:
    text = f"<w:p>{run('A bear')}{body}</w:p>" if "drawing" not in body else body
    (said,) = read_docx(archive(parts_of(word(text)) | others)).remarks
    assert remark in said


def test_strict_documents_are_read() -> None:
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    parts = parts_of(word(f"<w:p>{run('A ')}{run('b', BOLD)}{run(' cd')}</w:p>"))
    parts["word/document.xml"] = parts["word/document.xml"].replace(WORD.encode(), strict.encode())
    document = read_docx(archive(parts))

    assert all_marked(document) == ["A <0>b</0> cd"]
    assert all_marked(read_docx(translated(document))) == ["A <0>B</0> CD"]


WRONG = [
    [],
    [Segment("A"), Segment("B")],
    [Segment("A b cd")],
    [parsed("A <0>b</0> <1>cd</1>")],
    [parsed("A </0>b<0> cd")],
    [parsed("<0>A <0>b</0> cd")],
]


@pytest.mark.parametrize("answer", WRONG)
def test_an_answer_with_other_segments_or_tags_is_refused(answer: list[Segment]) -> None:
    document = read_docx(word(f"<w:p>{run('A ')}{run('b', BOLD)}{run(' cd')}</w:p>"))
    with pytest.raises(ValueError, match="segment"):
        document.render(answer)


def test_a_part_of_another_format_is_refused() -> None:
    parts = parts_of(word("")) | {"word/document.xml": b"<html/>"}
    with pytest.raises(DocumentError, match="is damaged: one of its parts is no Word text"):
        read_docx(archive(parts))
