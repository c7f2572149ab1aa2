"""The check of signs in translations, with given translations; and a run with a small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from script_helpers import load_script, table_rows


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load_script(monkeypatch, "sign_test")


def test_a_sign_is_right_as_often_as_the_translation_has_it(script: Any) -> None:
    results = [
        script.check("© 2024 A | B | C.", "© 2024 A | B C."),
        script.check("See § 5!", "Siehe æ 5!"),
    ]
    assert [result["lacking"] for result in results] == [{"|": 1}, {"§": 1}]
    rows = table_rows(script.table(results))
    assert list(rows)[-1] == "all"
    assert rows["§"] == ["1", "0", "0.0"]
    assert rows["all"] == ["4", "2", "50.0"]


def test_marks_of_sentences_and_letters_are_no_signs(script: Any) -> None:
    assert script.check("„É“ (a-b), 5.", "x")["signs"] == {}


def test_a_model_is_tested(
    script: Any, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "signs.json"
    assert script.main([str(model_folder), "--count", "3", "--output", str(output)]) == 0
    assert "| all" in capsys.readouterr().out
    (results,) = json.loads(output.read_text("utf-8"))["results"].values()
    assert len(results) == 3


def test_a_mistake_is_told(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["everyday", "--output", "/no/folder/x.json"]) == 2
    assert "there is no folder" in capsys.readouterr().err
