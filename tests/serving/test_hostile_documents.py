"""Hostile documents by the route: never more than one line, and never the server's mistake."""

import importlib
from pathlib import Path

import pytest
from serving_helpers import StandIn, ask

from mt.serving.app import create_app

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MOST_BYTES = 20_000  # scripts/check_documents.py reads the larger ones


@pytest.mark.slow
def test_none_is_the_mistake_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    cases = importlib.import_module("hostile_documents").CASES
    app = create_app(StandIn())
    answered = []
    for case in cases:
        data = case.build()
        if len(data) > MOST_BYTES:
            continue
        fields = {"columns": "en"} if case.name.endswith(("csv", "tsv", "jsonl")) else {}
        files = {"file": (case.name, data)}
        response = ask(app, "POST", "/v1/documents", files=files, data=fields)
        answered.append(response.status_code)
        assert response.status_code in (200, 400, 413, 415), (case.name, case.wrong)
        if response.status_code != 200:
            message = response.json()["error"]["message"]
            assert message.startswith(f"{case.name}: ")
            assert "\n" not in message
            assert len(message) < 500
    assert answered.count(400) > 40
