"""LibreTranslate's interface, in front of a stand-in engine."""

import json
from typing import Any

import pytest
from serving_helpers import StandIn, ask, get, post

from mt.serving.app import create_app
from mt.serving.limits import ApiKeys

PAIR = {"source": "en", "target": "de"}
NEITHER = "English (en) is not available as a target language from German (de)"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ({"q": "Hi"}, {"translatedText": "HI"}),
        ({"q": ["Hi", "a\n\nb"]}, {"translatedText": ["HI", "A\n\nB"]}),
        ({"q": "Hi", "alternatives": 2}, {"translatedText": "HI", "alternatives": ["HI!", "HI!!"]}),
        ({"q": ["a", "b"], "alternatives": "1"},
         {"translatedText": ["A", "B"], "alternatives": [["A!"], ["B!"]]}),
        ({"q": "<p>Hi <pre>no</pre>", "format": "html"}, {"translatedText": "<p>HI <pre>no</pre>"}),
        ({"q": "<p>Hi", "format": "html", "alternatives": 3},
         {"translatedText": "<p>HI", "alternatives": []}),
        ({"q": "Hi", "source": "de"}, {"translatedText": "Hi"}),
        ({"q": "Hi", "source": "en", "target": "en"}, {"translatedText": "Hi"}),
        ({"q": "Hi", "source": "en-GB", "target": "de_AT", "unknown": 1}, {"translatedText": "HI"}),
    ],
)  # fmt: skip
def test_translate_json(values: dict[str, Any], answer: dict[str, Any]) -> None:
    response = post("/translate", json=PAIR | values)
    assert (response.status_code, response.json()) == (200, answer)


def test_translate_reads_forms_and_the_query() -> None:
    values = PAIR | {"q": "Grüße & mehr", "alternatives": "1"}
    expected = {"translatedText": "GRÜSSE & MEHR", "alternatives": ["GRÜSSE & MEHR!"]}
    files = {name: (None, value) for name, value in values.items()}
    for request in ({"data": values}, {"files": files}, {"params": values}):
        assert post("/translate", **request).json() == expected


def test_source_auto_tells_the_language_and_leaves_german_alone() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    texts = ["Where do you live?", "Wo wohnst du denn jetzt?", "Berlin"]
    answer = ask(
        app, "POST", "/translate", json={"q": texts, "source": "auto", "target": "de"}
    ).json()
    assert answer["translatedText"] == ["WHERE DO YOU LIVE?", texts[1], "BERLIN"]
    assert [detected["language"] for detected in answer["detectedLanguage"]] == ["en", "de", "en"]
    assert stand_in.jobs[0].texts == [texts[0], texts[2]]
    answer = ask(
        app, "POST", "/translate", json={"q": texts[0], "source": "auto", "target": "de"}
    ).json()
    assert answer["detectedLanguage"]["confidence"] > 90


def test_detect() -> None:
    for request in ({"data": {"q": "Guten Morgen"}}, {"json": {"q": "Guten Morgen"}}):
        best, other = post("/detect", **request).json()
        assert (best["language"], other["language"]) == ("de", "en")
        assert best["confidence"] + other["confidence"] == pytest.approx(100)


def test_languages_and_settings() -> None:
    assert get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "en"]},
        {"code": "de", "name": "German", "targets": ["de"]},
    ]
    assert post("/languages").json() == get("/languages").json()
    settings = get("/frontend/settings").json()
    assert settings["charLimit"] == 20_000
    assert settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "q: is missing"),
        ({"q": ""}, "q: is empty"),
        ({"q": []}, "q: is empty"),
        ({"q": "Hi", "target": "xx"}, "xx is not supported"),
        ({"q": "Hi", "source": "fr"}, "fr is not supported"),
        ({"q": "Hi", "source": "de", "target": "en"}, NEITHER),
        ({"q": "Hi", "format": "pdf"}, "format: must be 'text' or 'html'"),
        ({"q": "Hi", "alternatives": 11}, "alternatives: at most 10 can be had"),
        ({"q": "Hi", "alternatives": -1}, "alternatives: must be greater than"),
        ({"q": ["Hi"] * 51}, "51 texts are too many"),
        ({"q": 5}, "q: must be a string or a list"),
        ({"q": ["\ud800"]}, "the body cannot be read as JSON in UTF-8"),
    ],
)
def test_a_mistake_is_told(values: dict[str, Any], message: str) -> None:
    content = json.dumps(PAIR | values)
    response = post("/translate", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert list(response.json()) == ["error"]
    assert response.json()["error"].startswith(message)


@pytest.mark.parametrize("encoded", ["He’s here", "He%E2%80%99s+here", "He’s+here"])
def test_a_form_may_hold_letters_as_curl_sends_them(encoded: str) -> None:
    """``curl -d`` encodes nothing."""
    stand_in = StandIn()
    app = create_app(stand_in)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = f"q={encoded}&source=en&target=de".encode()
    assert ask(app, "POST", "/translate", content=body, headers=headers).status_code == 200
    assert stand_in.jobs[0].texts == ["He’s here"]


def test_a_key_is_asked_for() -> None:
    stand_in = StandIn()
    app = create_app(stand_in, keys=ApiKeys(["secret"]))
    for path, values in (("/translate", PAIR | {"q": "Hi"}), ("/detect", {"q": "Hi"})):
        assert ask(app, "POST", path, json=values).status_code == 403
        refused = ask(app, "POST", path, json=values | {"api_key": "wrong"})
        assert (refused.status_code, refused.json()["error"]) == (403, "this API key is not valid")
        assert ask(app, "POST", path, data=values | {"api_key": "secret"}).status_code == 200
    assert ask(app, "GET", "/frontend/settings").json()["keyRequired"] is True
    assert ask(app, "GET", "/languages").status_code == 200
