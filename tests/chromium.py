"""Debian's Chromium for the tests of pages: a plugin of pytest.

PYTEST_DONT_REWRITE: test modules import it before pytest knows that it is a plugin.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
CONTRASTS = Path(__file__).with_name("contrasts.js").read_text("utf-8")
expect.set_options(timeout=20_000)  # ms; the machine may be busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """No other event loop can run in this thread until it ends."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
