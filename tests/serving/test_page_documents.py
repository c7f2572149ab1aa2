"""The page in a real browser: documents, sent to a stand-in for the route."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright to drive Chromium")

from browser_page import QUESTION, Opener, eventually, translate
from chromium import CONTRASTS
from playwright.sync_api import Download, FileChooser, FilePayload, Page, Route, expect
from scripted_engine import ScriptedEngine, serving

from mt.documents.formats import EXTENSIONS
from mt.serving.app import PAGE
from mt.serving.limits import ApiKeys

pytest_plugins = ["chromium", "browser_page"]

ROUTE = "**/v1/documents"
LETTER: FilePayload = {"name": "letter.docx", "mimeType": "", "buffer": b"PK letter"}
PRICES: FilePayload = {
    "name": "prices.csv",
    "mimeType": "text/csv",
    "buffer": b'id,"item, text",note\r\n1,House,nice\r\n',
}


class StandInRoute:
    """Answers every document alike, or holds it while there is no answer."""

    def __init__(self, page: Page) -> None:
        self.answer: dict[str, Any] | None = None
        self.bodies: list[str] = []
        self.held: list[Route] = []
        page.route(ROUTE, self._on_route)

    def _on_route(self, route: Route) -> None:
        self.bodies.append(route.request.post_data or "")
        if self.answer is None:
            self.held.append(route)
        else:
            route.fulfill(**self.answer)

    def parts(self) -> list[tuple[str, str]]:
        """The names and values of the last form."""
        part = (
            r'name="(\w+)"(?:; filename="[^"]*")?(?:\r\nContent-Type: [^\r]*)?\r\n\r\n(.*?)\r\n--'
        )
        return re.findall(part, self.bodies[-1], re.S)


@pytest.fixture
def documents(page: Page) -> StandInRoute:
    return StandInRoute(page)


def file_answer(disposition: str, **headers: str) -> dict[str, Any]:
    headers["Content-Disposition"] = disposition
    return {"status": 200, "body": b"ganz neu", "headers": headers}


def error_answer(status: int, message: str, **headers: str) -> dict[str, Any]:
    error = {"error": {"code": "a_word", "message": message}}
    return {"status": status, "json": error, "headers": headers}


def choose(page: Page, file: FilePayload) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Translate a file").click()
    chooser.value.set_files(file)


def content_of(download: Download) -> bytes:
    return Path(download.path()).read_bytes()


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('attachment; filename="letter.de.docx"', "letter.de.docx"),
        ("attachment; filename*=UTF-8''B%C3%BCcher%3B%20neu.docx", "Bücher; neu.docx"),
        ("attachment", "translated-letter.docx"),
    ],
)
def test_a_document_is_translated_and_saved(
    page: Page, documents: StandInRoute, disposition: str, name: str
) -> None:
    documents.answer = file_answer(disposition)
    with page.expect_download() as saved:
        choose(page, LETTER)
    assert (saved.value.suggested_filename, content_of(saved.value)) == (name, b"ganz neu")
    assert documents.parts() == [("file", "PK letter")]
    assert 'filename="letter.docx"' in documents.bodies[0]
    message = page.locator("#document-message")
    expect(message).to_contain_text(f"{name} is among your downloads.")
    with page.expect_download() as saved:
        message.get_by_role("link", name="Save it again").click()
    assert saved.value.suggested_filename == name
    expect(page.get_by_role("button", name="Translate a file")).to_be_visible()


def test_progress_and_cancelling(page: Page, documents: StandInRoute) -> None:
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    choose(page, LETTER)
    expect(page.get_by_role("progressbar", name="Progress")).to_be_visible()
    message = page.locator("#document-message")
    expect(message).to_have_text("Translating letter.docx …")
    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel).to_be_focused()
    page.fill("#source", QUESTION)  # texts do not wait for the document
    expect(page.locator("#result")).to_have_text("Wo wohnst du?")
    page.keyboard.press("End")
    cancel.click()
    expect(message).to_have_text("Cancelled.")
    expect(page.get_by_role("button", name="Translate a file")).to_be_focused()
    expect(page.locator("#document-work")).to_be_hidden()
    eventually(lambda: any(url.endswith("/v1/documents") for url in ended), page)


def test_columns_of_a_table_are_asked_for(page: Page, documents: StandInRoute) -> None:
    headers = {"Mt-Remarks": '["2 of 9 rows have no text in \\"gr\\u00f6\\u00dfe\\""]'}
    documents.answer = file_answer('attachment; filename="prices.de.csv"', **headers)
    page.locator("summary").click()
    page.fill("#terms", "house = Haus | Heim")
    expect(page.locator("summary")).to_contain_text("1 term")
    choose(page, PRICES)
    expect(page.get_by_role("group", name="Which columns of prices.csv?")).to_be_visible()
    assert page.locator("#columns label").all_inner_texts() == ["id", "item, text", "note"]
    expect(page.get_by_label("id", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#document-message")).to_have_text("Choose a column that is translated.")
    page.get_by_label("item, text").check()
    page.get_by_label("note").check()
    with page.expect_download():
        page.keyboard.press("Enter")
    assert documents.parts() == [
        ("file", PRICES["buffer"].decode()),
        ("columns", "item, text"),
        ("columns", "note"),
        ("glossary", '{"house":["Haus","Heim"]}'),
    ]
    note = 'Please check it. Note: 2 of 9 rows have no text in "größe".'
    expect(page.locator("#document-message")).to_contain_text(note)


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", b"a;b;c", ["a", "b", "c"]),
        ("a.TSV", b"a\t b \t\tb\n1\t2\t3\t4", ["a", "b"]),
        ("a.csv", '"ä ""x""",y\n'.encode("utf-16"), ['ä "x"', "y"]),
        ("a.jsonl", b'{"id": 1, "text": "x"}\n{"more": ["y"], "text": "z", "n": null}\nbad', [
            "text", "more"]),
        ("a.csv", b"", []), ("a.jsonl", b"[]\n3\n", []),
    ],
)  # fmt: skip
def test_the_columns_that_are_found(
    page: Page, documents: StandInRoute, name: str, content: bytes, columns: list[str]
) -> None:
    choose(page, {"name": name, "mimeType": "", "buffer": content})
    if columns:
        expect(page.locator("#columns label")).to_have_text(columns)
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("button", name="Translate a file")).to_be_focused()
    else:
        expect(page.locator("#document-message")).to_contain_text(f"{name} has no columns")
    assert documents.bodies == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (error_answer(400, "my letter.docx: is encrypted: save it without a password"),
         "my letter.docx: is encrypted: save it without a password."),
        (error_answer(413, "the document has 300,000 characters"),
         "The document has 300,000 characters."),
        ({"status": 502, "body": "<h1>Bad gateway</h1>"}, "The server failed (status 502)."),
    ],
)  # fmt: skip
def test_an_error_is_said(
    page: Page, documents: StandInRoute, answer: dict[str, Any], message: str
) -> None:
    documents.answer = answer
    choose(page, LETTER)
    shown = page.locator("#document-message")
    expect(shown).to_have_text(message)
    expect(shown).to_have_class("wrong")
    expect(page.locator("#message")).to_be_empty()


def test_a_busy_server_is_asked_again(page: Page, documents: StandInRoute) -> None:
    documents.answer = error_answer(429, "two documents are under way", **{"Retry-After": "1"})
    choose(page, LETTER)
    message = page.locator("#document-message")
    expect(message).to_have_text("The server is busy. Another try with letter.docx comes in 1 s.")
    documents.answer = file_answer('attachment; filename="letter.de.docx"')
    with page.expect_download():
        expect(message).to_contain_text("letter.de.docx is among your downloads.")
    documents.answer = error_answer(429, "two documents are under way", **{"Retry-After": "99"})
    choose(page, LETTER)
    expect(message).to_contain_text("comes in 99 s.")
    page.get_by_role("button", name="Cancel").click()
    expect(message).to_have_text("Cancelled.")
    assert len(documents.bodies) == 3


def test_a_server_that_does_not_answer(page: Page, documents: StandInRoute) -> None:
    choose(page, LETTER)
    eventually(lambda: len(documents.held) == 1, page)
    documents.held[0].abort()
    message = page.locator("#document-message")
    expect(message).to_contain_text("The server does not answer.")
    documents.answer = file_answer('attachment; filename="letter.de.docx"')
    with page.expect_download():
        message.get_by_role("button", name="Try again").click()


def test_a_key_is_asked_for_and_sent(open_page: Opener) -> None:
    with serving(ScriptedEngine(), keys=ApiKeys(["s3cret"])) as address:
        page = open_page(address)
        documents, keys = StandInRoute(page), []
        page.on("request", lambda r: keys.append(r.headers.get("authorization")))
        documents.answer = error_answer(401, "this server wants an API key")
        choose(page, LETTER)
        message = page.locator("#document-message")
        expect(message).to_contain_text("Give a key above, then try again.")
        page.get_by_label("API key").fill("s3cret")
        page.keyboard.press("Enter")
        documents.answer = file_answer('attachment; filename="letter.de.docx"')
        with page.expect_download():
            message.get_by_role("button", name="Try again").click()
        assert keys[-1] == "Bearer s3cret"


def test_what_is_too_large_or_no_file_is_not_sent(page: Page, documents: StandInRoute) -> None:
    def limit(route: Route) -> None:
        answer = route.fetch()
        described = answer.json()
        described["limits"]["document_bytes"] = 3 * 2**19
        route.fulfill(response=answer, json=described)

    page.route("**/v1/models", limit)
    page.reload()
    expect(page.locator("#document-hint")).to_contain_text("JSONL, up to 1.5 MB.")
    choose(page, {"name": "big.md", "mimeType": "", "buffer": b"x" * 2**21})
    message = page.locator("#document-message")
    expect(message).to_have_text("big.md has 2 MB. The server takes up to 1.5 MB.")
    assert documents.bodies == []


DROP = """([target, name, text]) => {
  const data = new DataTransfer();
  if (name) data.items.add(new File([text], name));
  else data.setData("text/plain", text);
  const options = { dataTransfer: data, bubbles: true, cancelable: true };
  const element = document.querySelector(target);
  const over = !element.dispatchEvent(new DragEvent("dragover", options));
  const highlighted = document.getElementById("document").matches(".dropping");
  return [over, highlighted, !element.dispatchEvent(new DragEvent("drop", options))];
}"""


def test_files_may_be_dropped_anywhere(page: Page, documents: StandInRoute) -> None:
    documents.answer = file_answer('attachment; filename="letter.de.docx"')
    for target in ("#document", "#source", "footer"):
        with page.expect_download():
            assert page.evaluate(DROP, [target, "letter.docx", "PK"]) == [True, True, True]
    assert len(documents.bodies) == 3
    expect(page.locator(".dropping")).to_have_count(0)
    # On the glossary a file has terms; and the browser itself drops texts.
    taken = page.evaluate(DROP, ["#glossary summary", "terms.tsv", "house\tHaus"])
    assert taken == [True, False, True]
    expect(page.locator("#terms")).to_have_value("house = Haus")
    assert page.evaluate(DROP, ["#source", "", "a text"]) == [False, False, False]
    documents.answer = None
    page.evaluate(DROP, ["#document", "letter.docx", "PK"])
    expect(page.locator("#document-work")).to_be_visible()
    page.evaluate(DROP, ["#document", "other.docx", "PK"])
    expect(page.locator("#document-message")).to_contain_text("One document at a time")


@pytest.mark.parametrize(
    ("name", "content", "saved_as", "translation"),
    [
        ("ä.md", b"# It is so.\n\nWhere *do* you live?\n", "ä.de.md", "# Es ist so.\n\n"),
        ("prices.csv", PRICES["buffer"], "prices.de.csv", 'id,"item, text",note\r\n1,HOUSE,nice'),
    ],
)
def test_the_real_route(
    page: Page, engine: ScriptedEngine, name: str, content: bytes, saved_as: str, translation: str
) -> None:
    page.locator("summary").click()
    page.fill("#terms", "live = wohnen")
    with page.expect_download() as saved:
        choose(page, {"name": name, "mimeType": "", "buffer": content})
        if name.endswith(".csv"):
            page.get_by_label("item, text").check()
            page.get_by_role("button", name="Translate", exact=True).click()
    assert saved.value.suggested_filename == saved_as
    assert content_of(saved.value).decode().startswith(translation)
    assert engine.jobs[-1].terms.glossary.entries["live"].targets == ("wohnen",)


def test_errors_of_the_real_route(page: Page) -> None:
    message = page.locator("#document-message")
    choose(page, LETTER)
    expect(message).to_contain_text("letter.docx: ")
    choose(page, {"name": "a.exe", "mimeType": "", "buffer": b"x"})
    expect(message).to_contain_text("a.exe: this kind of file is not read")
    expect(page.locator("#document-hint")).to_contain_text("JSONL, up to 5 MB.")


def test_the_page_offers_all_formats(page: Page) -> None:
    accepted = page.locator("#document-file").get_attribute("accept")
    assert accepted == ",".join(EXTENSIONS)


def test_no_script_or_style_is_inline() -> None:
    html = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?! [^>]*src=)|<style| style=| on\w+=", html) == []


def show_everything(page: Page, documents: StandInRoute) -> None:
    """A term, a sentence to check, a wrong line, columns and an error."""
    page.locator("summary").click()
    page.fill("#terms", "house = Haus\nwrong")
    expect(page.locator("#terms-wrong")).not_to_be_empty()
    page.fill("#source", "I see the house.\nIt is so.")
    expect(page.locator(".doubtful")).to_have_count(2)  # one of them in the legend
    expect(page.locator("#result .term")).to_have_count(1)
    choose(page, PRICES)
    page.get_by_role("button", name="Translate", exact=True).click()
    expect(page.locator("#document-message")).to_have_class("wrong")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(open_page: Opener, live_server: str, engine: ScriptedEngine, scheme: str) -> None:
    page = open_page(live_server, color_scheme=scheme, reduced_motion="reduce")
    documents = StandInRoute(page)
    show_everything(page, documents)
    texts = {text["text"]: text["ratio"] for text in page.evaluate(CONTRASTS)}
    shown = {"Glossary, 1 term", "Keep it in this browser", "Which columns of prices.csv?", "note"}
    shown |= {"Translate", "Choose a column that is translated.", "Underlined"}
    assert shown <= {text.strip() for text in texts}
    assert {text: ratio for text, ratio in texts.items() if ratio < 4.5} == {}
    documents.answer = file_answer('attachment; filename="prices.de.csv"')
    page.get_by_label("note").check()
    with page.expect_download():
        page.get_by_role("button", name="Translate", exact=True).click()
    page.get_by_role("button", name="Translate a file").hover()
    texts = {text["text"]: text["ratio"] for text in page.evaluate(CONTRASTS)}
    assert "Save it again" in texts
    assert {text: ratio for text, ratio in texts.items() if ratio < 4.5} == {}


def test_on_a_phone(open_page: Opener, live_server: str, engine: ScriptedEngine) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    page = open_page(live_server, **phone)
    expect(page.locator("#document-hint")).to_be_visible()
    expect(page.locator(".drop")).to_be_hidden()
    documents = StandInRoute(page)
    show_everything(page, documents)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    small = page.evaluate(
        "[...document.querySelectorAll('button, summary, label.choice, #document-message a')]"
        ".filter(e => e.checkVisibility()).filter(e => e.offsetWidth < 44 || e.offsetHeight < 44)"
        ".map(e => e.textContent)"
    )
    assert small == []


def test_the_keyboard_alone_is_enough(page: Page, documents: StandInRoute) -> None:
    choosers: list[FileChooser] = []
    page.on("filechooser", lambda chooser: choosers.append(chooser))
    translate(page, QUESTION, "Wo wohnst du?")
    documents.answer = file_answer('attachment; filename="letter.de.docx"')
    page.locator("#others-list button").last.focus()
    for key, expected in (("Tab", "Glossary"), ("Enter", "Glossary"), ("Tab", "")):
        page.keyboard.press(key)
        expect(page.locator(":focus")).to_have_text(expected)
    page.keyboard.type("house = Haus")
    for expected in ("Open a file", "", "Translate a file"):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text(expected)
    page.keyboard.press("Enter")
    eventually(lambda: len(choosers) == 1, page)
    with page.expect_download():
        choosers[0].set_files(LETTER)
    assert json.loads(dict(documents.parts())["glossary"]) == {"house": ["Haus"]}
