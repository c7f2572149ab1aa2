"""A page of a live server in a browser, and what tests do with it: a plugin of pytest.

No conftest.py: the tests of other folders import the one of all tests by that name.
PYTEST_DONT_REWRITE: test modules import it before pytest knows that it is a plugin.
"""

import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect
from scripted_engine import ScriptedEngine, serving

QUESTION = "Where do you live?"
Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def live_engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture(scope="module")
def live_server(live_engine: ScriptedEngine) -> Iterator[str]:
    with serving(live_engine) as address:
        yield address


@pytest.fixture
def engine(live_engine: ScriptedEngine) -> ScriptedEngine:
    live_engine.reset()
    return live_engine


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opener]:
    """Opens an address in a fresh context; what goes wrong unseen fails the test at its end."""
    contexts, wrong = [], []

    def open_address(address: str, **settings: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **settings})
        contexts.append(context)
        page = context.new_page()
        host = urlsplit(address).netloc

        def on_console(message: ConsoleMessage) -> None:
            # Chromium writes a line for an answer that is an error; the page says it to the user.
            if not message.text.startswith("Failed to load resource"):
                wrong.append(message.text)

        page.on("console", on_console)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        context.on(
            "request",
            lambda request: urlsplit(request.url).netloc == host or wrong.append(request.url),
        )
        page.goto(address)
        return page

    yield open_address
    for context in contexts:
        context.close()
    assert not wrong, wrong


@pytest.fixture
def page(open_page: Opener, live_server: str, engine: ScriptedEngine) -> Page:
    return open_page(live_server)


def result(page: Page) -> Locator:
    return page.locator("#result")


def word(page: Page, text: str) -> Locator:
    return page.locator("#result .word", has_text=text).first


def translate(page: Page, text: str, expected: str) -> None:
    page.fill("#source", text)
    expect(result(page)).to_have_text(expected)
    expect(page.locator("#result .word").first).to_be_visible()  # final: partial texts have none


def eventually(condition: Callable[[], bool], page: Page) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        page.wait_for_timeout(20)


def marked(page: Page, pane: str) -> list[str]:
    page.locator(f"{pane} .linked").first.wait_for()
    return page.locator(f"{pane} .linked").all_inner_texts()
