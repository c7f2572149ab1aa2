"""The page in a real browser when something goes wrong."""

import math
import re
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright to drive Chromium")

from browser_page import QUESTION, Opener, result, translate, word
from playwright.sync_api import Page, Route, expect
from scripted_engine import ScriptedEngine, serving

from mt.serving.engine import Overloaded
from mt.serving.limits import ApiKeys, Limits

pytest_plugins = ["chromium", "browser_page"]


def test_a_busy_server_is_asked_again(page: Page, engine: ScriptedEngine) -> None:
    engine.error = Overloaded(40)
    page.fill("#source", QUESTION)
    message = page.locator("#message")
    expect(message).to_have_text(re.compile(r"The server is busy. Next try in (40|3\d) s."))
    engine.error = Overloaded(1)
    page.get_by_role("button", name="Try again").click()
    expect(message).to_have_text(re.compile(r"Next try in [12] s."))
    engine.error = None
    expect(result(page)).to_have_text("Wo wohnst du?")
    expect(message).to_be_empty()


def test_a_server_that_stops_and_comes_back(open_page: Opener) -> None:
    engine = ScriptedEngine()
    with serving(engine) as address:
        page = open_page(address)
        translate(page, QUESTION, "Wo wohnst du?")
    page.fill("#source", "I see the house.")
    message = page.locator("#message")
    expect(message).to_contain_text("The server does not answer.")
    with serving(engine, port=urlsplit(address).port):
        page.get_by_role("button", name="Try again").click()
        expect(result(page)).to_have_text("Ich sehe das Haus.")
        expect(message).to_be_empty()
        page.context.set_offline(True)
        page.fill("#source", QUESTION + QUESTION)
        expect(message).to_contain_text("You are offline.")
        page.context.set_offline(False)
        expect(message).to_be_empty()


def test_too_long_a_text_is_not_sent(open_page: Opener) -> None:
    engine = ScriptedEngine()
    with serving(engine, Limits(characters=1000)) as address:
        page = open_page(address)
        counter = page.locator("#counter")
        expect(page.locator("#source")).to_have_attribute("aria-invalid", "false")
        page.fill("#source", "🙂" * 799)
        expect(counter).to_be_hidden()
        page.fill("#source", "x" * 900)
        expect(counter).to_have_text("900 of 1,000 characters")
        page.fill("#source", "🙂" * 1005)
        expect(counter).to_have_text("1,005 of 1,000 characters")
        expect(page.locator("#message")).to_contain_text("The text is 5 characters too long.")
        page.wait_for_timeout(500)
        assert all("🙂" * 1000 not in text for job in engine.jobs for text in job.texts)
        page.fill("#source", QUESTION)
        expect(page.locator("#message")).to_be_empty()
        expect(page.locator("#copy")).to_be_enabled()
        # Another text's translation is grey, and cannot be copied.
        page.fill("#source", "x" * 1001)
        expect(page.locator("#result .stale")).not_to_be_empty()
        expect(page.locator("#copy")).to_be_disabled()


def test_a_translation_that_takes_too_long(open_page: Opener) -> None:
    engine = ScriptedEngine()
    engine.words = 1
    with serving(engine, Limits(deadline_seconds=0.3)) as address:
        page = open_page(address)
        page.fill("#source", QUESTION)
        expect(page.locator("#message")).to_contain_text("longer than the server allows")
        engine.words = math.inf
        page.get_by_role("button", name="Try again").click()
        expect(result(page)).to_have_text("Wo wohnst du?")


def test_the_field_for_a_key_appears_when_one_is_needed(open_page: Opener) -> None:
    with serving(ScriptedEngine(), keys=ApiKeys(["s3cret"])) as address:
        page = open_page(address)
        form, field = page.locator("#key-form"), page.get_by_label("API key")
        page.fill("#source", QUESTION)
        expect(form).to_be_visible()
        field.fill("wrong")
        field.press("Enter")
        expect(page.locator("#message")).to_have_text("The server does not accept this key.")
        field.fill("s3cret")
        field.press("Enter")
        expect(result(page)).to_have_text("Wo wohnst du?")
        expect(form).to_be_hidden()


def test_an_error_in_the_menu_is_said_there(page: Page, engine: ScriptedEngine) -> None:
    translate(page, QUESTION, "Wo wohnst du?")
    engine.error = Overloaded(9)
    word(page, "wohnst").click()
    expect(page.get_by_role("menu")).to_contain_text("The server is busy.")
    page.keyboard.press("Escape")
    expect(word(page, "wohnst")).to_be_focused()


def test_an_answer_of_a_proxy_is_no_riddle(page: Page) -> None:
    def fail(route: Route) -> None:
        route.fulfill(status=502, body="<h1>Bad gateway</h1>")

    page.route("**/v1/translate", fail)
    page.fill("#source", QUESTION)
    expect(page.locator("#message")).to_contain_text("The server failed (status 502).")
