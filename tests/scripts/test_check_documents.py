"""The check of hostile documents: what it calls a failure."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import load_script

from mt.documents.formats import EXTENSIONS, extension_of
from mt.documents.text_document import TextDocument

SAME = {".htm", ".markdown", ".pot", ".odp"}  # as others


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    script = load_script(monkeypatch, "check_documents")
    monkeypatch.setattr(script.resource, "setrlimit", lambda *_: None)  # it would last
    return script


def test_there_are_many_documents_of_every_format(script: ModuleType) -> None:
    names = [case.name for case in script.CASES]
    assert len(set(names)) == len(names) >= 50
    assert {extension_of(name) for name in names} >= set(EXTENSIONS) - SAME


@pytest.mark.slow
def test_small_documents_end_in_a_line_or_are_read(script: ModuleType, tmp_path: Path) -> None:
    results = {}
    for case in script.CASES:
        if (data := case.build()) and len(data) < 20_000:
            path = tmp_path / case.name
            path.write_bytes(data)
            results[case.name] = script.read(path)
    assert len(results) > 50
    assert [name for name, result in results.items() if result["failed"]] == []
    assert results["laughs.docx"]["result"].startswith("has a document type (DOCTYPE)")
    assert results["laughs.xhtml"]["result"] == "read: 1 texts"


def test_a_document_that_changes_fails(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.html"
    path.write_text("<p>A bear")
    assert script.read(path)["result"] == "read: 1 texts"
    monkeypatch.setattr(TextDocument, "render", lambda *_: b"")
    assert script.read(path) | {"result": "changed", "failed": True} == script.read(path)


@pytest.mark.parametrize(("limit", "failed"), [(5, []), (-1, ["empty.docx"])])
def test_the_status_tells_of_failures(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], limit: int, failed: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(script, "CASES", script.CASES[:1])
    monkeypatch.setattr(script, "MOST_SECONDS", limit)
    output = tmp_path / "report.json"
    assert script.main([str(tmp_path / "new"), "--output", str(output)]) == len(failed)
    report = json.loads(output.read_text())
    assert report["failed"] == failed
    assert report["results"][0]["result"] == "is empty"
    assert "| empty.docx" in capsys.readouterr().out


def test_a_traceback_fails(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = script.Case("a.docx", "no file", lambda: b"")
    monkeypatch.setattr(script, "__file__", str(tmp_path / "none.py"))
    row = script.check_case(case, tmp_path)
    assert row["failed"]
    assert row["result"].startswith("status 2: ")
