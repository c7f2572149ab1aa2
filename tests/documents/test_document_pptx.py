"""Presentations: which texts and tags they give, and what the translated file is."""

import io

import pptx
import pytest
from office_files import (
    all_marked,
    marked,
    parsed,
    parts_of,
    rotated,
    slides,
    talk,
    translated,
    without_words,
)

from mt.documents.pptx import read_pptx

BOLD = '<a:rPr b="1"/>'
LINK = '<a:rPr><a:hlinkClick r:id="rId1"/></a:rPr>'
FIELD = '<a:fld id="{1}" type="slidenum"><a:rPr/><a:t>3</a:t></a:fld>'


def run(words: str, properties: str = "") -> str:
    return f"<a:r>{properties}<a:t>{words}</a:t></a:r>"


PARAGRAPHS = [  # XML in a paragraph, its segments with their tags
    (run("A ") + run("bear"), ["A bear"]),
    (run("A be", '<a:rPr lang="en-US" dirty="0"/>') + run("ar"), ["A bear"]),
    (run("A ") + run("big", BOLD) + run(" bear"), ["A <0>big</0> bear"]),
    (run("See it ") + run("here", LINK), ["See it <0>here</0>"]),
    (run("One") + "<a:br/>" + run("Two"), ["One", "Two"]),
    (run("One") + "<a:br/>" + run("bear"), ["One<0/> bear"]),
    (run("Left\tright"), ["Left", "right"]),
    (run("A bear") + run("2", '<a:rPr baseline="30000"/>') + run(" here"), ["A bear<0/> here"]),
    (run("CO") + run("2", '<a:rPr baseline="-25000"/>') + run(" here"), ["CO<0>2</0> here"]),
    (run("Slide ") + FIELD, ["Slide"]),
    (run("Slide ") + FIELD + run(" of it"), ["Slide <0/>of it"]),
    (FIELD, []),
    ("", []),
]


@pytest.mark.parametrize(("xml", "expected"), PARAGRAPHS)
def test_a_paragraph_gives_segments_with_few_tags(xml: str, expected: list[str]) -> None:
    data = slides(f'<a:p><a:pPr lvl="1"/>{xml}<a:endParaRPr lang="en-US"/></a:p>')
    document = read_pptx(data)

    assert all_marked(document) == expected
    assert document.render(document.segments) == data
    output = translated(document, rotated)
    assert all_marked(read_pptx(output)) == [marked(rotated(s)) for s in document.segments]
    assert b'<a:endParaRPr lang="en-US"/></a:p>' in parts_of(output)["ppt/slides/slide1.xml"]


def test_a_translation_has_its_runs() -> None:
    source = run("A ") + run("big", BOLD) + "<a:br/>" + run("bear\tgo") + FIELD
    document = read_pptx(slides(f"<a:p>{source}</a:p>"))
    output = document.render([parsed("Bär,<1/> <0>groß</0>"), parsed("los <&")])
    expected = run("Bär,") + "<a:br/>" + run("groß", BOLD) + run("\t") + run("los &lt;&amp;")

    slide = parts_of(output)["ppt/slides/slide1.xml"].decode()
    assert f"<a:p>{expected}{FIELD}</a:p>" in slide


def test_slides_come_in_the_order_of_their_numbers() -> None:
    words = [f"Slide {number}" for number in range(1, 12)]
    data = slides(*(f"<a:p>{run(text)}</a:p>" for text in words))
    assert all_marked(read_pptx(data)) == words


def test_all_texts_of_a_talk_are_found_and_nothing_else_changes() -> None:
    data = talk()
    document = read_pptx(data)
    output = translated(document)

    assert document.render(document.segments) == data
    slide = pptx.Presentation(io.BytesIO(output)).slides[0]
    assert slide.shapes.title.text == "A SHORT TALK"
    first, second, third = slide.placeholders[1].text_frame.paragraphs
    assert first.text == "THE FIRST POINT"
    assert [(run.text, run.font.bold) for run in second.runs] == [
        ("WE ", None), ("MUST", True), (" ACT NOW.", None)
    ]  # fmt: skip
    assert third.runs[0].text == "OUR SITE"
    assert third.runs[0].hyperlink.address == "https://example.org/"
    cells = slide.shapes[2].table.iter_cells()
    assert [cell.text for cell in cells] == ["LEFT CELL", "RIGHT CELL"]
    assert slide.notes_slide.notes_text_frame.text == "SPEAK SLOWLY HERE."

    before, after = parts_of(data), parts_of(output)
    assert list(before) == list(after)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"ppt/slides/slide1.xml", "ppt/notesSlides/notesSlide1.xml"}
    for name in changed:
        assert without_words(before[name], ()) == without_words(after[name], ())
