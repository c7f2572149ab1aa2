"""What the tests of mt.translate share."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from mt.inference.translator import Translator

Translate = Callable[..., Done]


@pytest.fixture(scope="module")
def expected(model_folder: Path) -> Callable[[list[str]], list[str]]:
    translator = Translator.load(model_folder, "cpu")

    def call(lines: list[str]) -> list[str]:
        return [result.text for result in translator.translate(lines, beam_size=1)]

    return call


def assert_error(done: Done, message: str) -> None:
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    *others, last = done.err.splitlines()
    assert re.match(r"mt\.translate: error: ", last), done.err
    assert re.search(message, last), last
    assert all(line.startswith("mt.translate: model ") for line in others), others
