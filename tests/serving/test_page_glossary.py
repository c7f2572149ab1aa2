"""The page in a real browser: the glossary, and the sentences that should be checked."""

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright to drive Chromium")

from browser_page import QUESTION, eventually, result, translate, word
from playwright.sync_api import FilePayload, Page, expect
from scripted_engine import ScriptedEngine

pytest_plugins = ["chromium", "browser_page"]

HOUSE = "I see the house."


def write_terms(page: Page, text: str) -> None:
    if not page.locator("#terms").is_visible():
        page.locator("summary").click()
    page.get_by_label("A term and its translation").fill(text)


def terms_of(engine: ScriptedEngine) -> dict[str, tuple[str, ...]]:
    """The glossary of the last job."""
    rules = engine.jobs[-1].terms
    entries = rules.glossary.entries if rules and rules.glossary else {}
    return {source: entry.targets for source, entry in entries.items()}


def test_terms_are_sent_and_marked(page: Page, engine: ScriptedEngine) -> None:
    translate(page, f"{HOUSE} {QUESTION}", "Ich sehe das Haus. Wo wohnst du?")
    expect(page.locator("#result .term")).to_have_count(0)
    write_terms(page, "house = Gebäude / Haus\n\n# a comment\nWO\tIch|x/y\nkm/h = km/h\nLive=wohn")
    expect(page.locator("summary")).to_have_text("Glossary, 4 terms")
    expect(page.locator("#result .term")).to_have_text(["Haus"])  # "Live" has a capital
    assert terms_of(engine) == {
        "house": ("Gebäude", "Haus"), "WO": ("Ich", "x/y"), "km/h": ("km/h",), "Live": ("wohn",),
    }  # fmt: skip
    expect(page.locator("#hint")).to_contain_text("Underlined: from the glossary.")
    write_terms(page, "live = wohn\nhouse = Wohnung")
    expect(page.locator("#result .term")).to_have_text(["wohnst"])  # with an ending
    write_terms(page, "")
    expect(page.locator("#result .term")).to_have_count(0)
    expect(page.locator("summary")).to_have_text("Glossary")
    expect(page.locator("#terms-legend")).to_be_hidden()
    assert terms_of(engine) == {}


def test_a_term_of_several_words_and_signs(page: Page) -> None:
    write_terms(page, "see the = sehe das\n.house* = Haus\nC++ (a|b = Ich")
    translate(page, HOUSE, "Ich sehe das Haus.")
    expect(page.locator("#result .term")).to_have_text(["sehe", "das"])


def test_wrong_lines_are_named_and_not_sent(page: Page, engine: ScriptedEngine) -> None:
    wrong = page.locator("#terms-wrong")
    write_terms(page, "house = Haus\nroad\n= Weg\na = b = c\nx = | y\nkey =")
    expect(wrong).to_have_text("Lines 2, 3, 4, 5 and 6 are not sent: write “term = translation”.")
    expect(page.locator("#terms")).to_have_attribute("aria-invalid", "true")
    translate(page, HOUSE, "Ich sehe das Haus.")
    assert terms_of(engine) == {"house": ("Haus",)}
    write_terms(page, "house = Haus\n" + "wrong\n" * 9)
    expect(wrong).to_contain_text("Lines 2, 3, 4, 5, 6 and 4 more are not sent")
    write_terms(page, "house = Haus\nroad")
    expect(wrong).to_contain_text("Line 2 is not sent")
    write_terms(page, "\n".join(f"w{i} = x" for i in range(201)))
    expect(wrong).to_have_text("Only the first 200 terms are sent.")
    translate(page, QUESTION, "Wo wohnst du?")
    assert len(terms_of(engine)) == 200
    write_terms(page, "house = Haus")
    expect(wrong).to_be_empty()
    expect(page.locator("#terms")).to_have_attribute("aria-invalid", "false")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", b"house\tHaus|Heim\nand/or\tund/oder\n", {
            "house": ("Haus", "Heim"), "and/or": ("und/oder",)}),
        ("a.CSV", "\ufeffhouse,Haus\r\n\"a, b\",\"\"\"c\"\"\"\r\n".encode(), {
            "house": ("Haus",), "a, b": ('"c"',)}),
        ("a.csv", b"house,Haus,en-GB,DE\ncat,chat,en,fr\n", {"house": ("Haus",)}),
        ("a.csv", "house;Haus".encode("utf-16"), {"house": ("Haus",)}),
        ("a.txt", b"x = y=z\nhouse = Haus", {"house": ("Haus",)}),
    ],
)  # fmt: skip
def test_a_file_is_opened(
    page: Page, engine: ScriptedEngine, name: str, content: bytes, expected: dict[str, tuple[str]]
) -> None:
    write_terms(page, "road = Weg")
    file: FilePayload = {"name": name, "mimeType": "text/plain", "buffer": content}
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a file").click()
    chooser.value.set_files(file)
    expect(page.locator("summary")).to_contain_text(f"{len(expected) + 1} terms")
    translate(page, QUESTION, "Wo wohnst du?")
    assert terms_of(engine) == {"road": ("Weg",), **expected}
    other: FilePayload = {"name": "b.tsv", "mimeType": "", "buffer": b"\xff\x00\x81"}
    page.locator("#terms-file").set_input_files(other)
    expect(page.locator("#terms-wrong")).to_contain_text("b.tsv cannot be read")


def test_terms_are_stored_only_if_the_user_wants_it(page: Page, engine: ScriptedEngine) -> None:
    write_terms(page, "house = Haus")
    expect(page.locator("summary")).to_have_text("Glossary, 1 term")
    page.reload()
    expect(page.locator("summary")).to_have_text("Glossary")
    write_terms(page, "house = Haus")
    page.get_by_label("Keep it in this browser").check()
    page.reload()
    expect(page.locator("summary")).to_have_text("Glossary, 1 term")
    translate(page, HOUSE, "Ich sehe das Haus.")
    assert terms_of(engine) == {"house": ("Haus",)}
    page.locator("summary").click()
    page.get_by_label("Keep it in this browser").uncheck()
    assert page.evaluate("localStorage.getItem('glossary')") is None
    page.reload()
    expect(page.locator("#terms")).to_have_value("")


def test_two_tabs_keep_one_glossary(page: Page) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    write_terms(page, "house = Haus")
    page.get_by_label("Keep it in this browser").check()
    write_terms(other, "bear = Bär")
    expect(other.locator("summary")).to_have_text("Glossary, 1 term")
    assert page.evaluate("localStorage.getItem('glossary')") == "house = Haus"
    other.reload()
    expect(other.locator("#terms")).to_have_value("house = Haus")
    write_terms(other, "house = Haus\nbear = Bär")
    expect(page.locator("summary")).to_have_text("Glossary, 2 terms")
    other.close()


def test_the_choice_of_a_word_is_free_of_terms(page: Page, engine: ScriptedEngine) -> None:
    """Only beam search keeps terms, and what was chosen must not get more of them."""
    write_terms(page, "live = wohnen")
    expect(page.locator("summary")).to_have_text("Glossary, 1 term")
    translate(page, QUESTION, "Wo wohnst du?")
    word(page, "wohnst").click()
    page.get_by_role("menuitemradio").nth(1).click()
    expect(result(page)).to_have_text("Wo lebst du?")
    eventually(lambda: list(engine.jobs[-1].prefixes) == ["Wo lebst du?"], page)
    searched, continued, forced = engine.jobs[-3:]
    assert searched.terms.glossary is not None
    assert (continued.terms, forced.terms) == (None, None)


def test_sentences_to_check_are_marked(page: Page) -> None:
    expect(page.locator("#doubt-legend")).to_be_empty()
    page.fill("#source", f"It is so. {QUESTION}")
    doubtful = page.locator("#result .doubtful")
    expect(doubtful).to_have_count(1)
    expect(doubtful).to_contain_text("Check this sentence: Es ist so.")  # for screen readers
    style = doubtful.evaluate("e => getComputedStyle(e).textDecorationStyle")
    assert style == "dotted"
    legend = page.locator("#doubt-legend")
    expect(legend).to_have_text("Check this sentence: the model is not sure of it.")
    page.evaluate("document.getSelection().selectAllChildren(document.getElementById('result'))")
    assert page.evaluate("document.getSelection().toString()") == "Es ist so. Wo wohnst du?"
    page.fill("#source", "It is so.\nIt is so.")
    expect(legend).to_have_text("Check these sentences: the model is not sure of them.")
    page.fill("#source", "It is so.")
    expect(page.locator("#others-list")).to_have_text("So ist es.")
    page.get_by_role("button", name="So ist es.").click()
    expect(result(page)).to_have_text("So ist es.")
    expect(legend).to_be_empty()


def test_without_a_calibration_nothing_is_marked(page: Page, engine: ScriptedEngine) -> None:
    engine.translator.calibration, before = None, engine.translator.calibration
    try:
        page.reload()
        translate(page, "It is so.", "Es ist so.")
    finally:
        engine.translator.calibration = before
    expect(page.locator(".doubtful")).to_have_count(0)
