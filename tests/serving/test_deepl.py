"""DeepL's interface, in front of a stand-in engine."""

from typing import Any

import pytest
from serving_helpers import StandIn, ask, post

from mt.serving.app import create_app
from mt.serving.limits import ApiKeys

URL = "/v2/translate"
ASKED = {"source_lang": "EN", "target_lang": "DE"}


def texts(answer: dict[str, Any]) -> list[str]:
    return [translation["text"] for translation in answer["translations"]]


def test_translate_form_and_json() -> None:
    expected = {
        "translations": [
            {"detected_source_language": "EN", "text": "HI"},
            {"detected_source_language": "EN", "text": "YOU"},
        ]
    }
    values = ASKED | {"text": ["Hi", "you"]}
    assert post(URL, data=values).json() == expected
    assert post(URL, json=values).json() == expected
    assert texts(post(URL, data=ASKED | {"text": "one"}).json()) == ["ONE"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"target_lang": "de-AT", "source_lang": "en-us"}, "ONE.\nTWO"),
        ({"split_sentences": "nonewlines"}, "ONE. TWO"),
        ({"split_sentences": 0}, "ONE. TWO"),
        ({"split_sentences": "1", "preserve_formatting": "1", "context": "x"}, "ONE.\nTWO"),
        ({"formality": "prefer_more", "unknown": 1, "glossary_id": None}, "ONE.\nTWO"),
        ({"source_lang": "DE"}, "One.\ntwo"),
        ({"tag_handling": "html"}, "ONE. TWO"),
    ],
)
def test_options(values: dict[str, Any], text: str) -> None:
    answer = post(URL, json=ASKED | {"text": ["One.\ntwo"]} | values)
    assert answer.status_code == 200
    assert texts(answer.json()) == [text]


def test_split_sentences_reaches_the_engine() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    for value in ("0", "1", "nonewlines"):
        ask(app, "POST", URL, data=ASKED | {"text": "Hi", "split_sentences": value})
    assert [job.split for job in stand_in.jobs] == [False, True, True]


def test_tags() -> None:
    document = "<doc><k>keep</k><p>One</p></doc>"
    values = ASKED | {"text": document, "tag_handling": "xml", "ignore_tags": "k,z"}
    for request in ({"data": values}, {"json": values | {"ignore_tags": ["k"]}}):
        assert texts(post(URL, **request).json()) == ["<doc><k>keep</k><p>ONE</p></doc>"]


def test_the_source_language_is_detected() -> None:
    values = {"text": ["Where do you live?", "Wo wohnst du denn jetzt?"], "target_lang": "DE"}
    answer = post(URL, json=values | {"show_billed_characters": True}).json()["translations"]
    assert [t["detected_source_language"] for t in answer] == ["EN", "DE"]
    assert [t["billed_characters"] for t in answer] == [18, 24]
    assert answer[1]["text"] == values["text"][1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target_lang": "FR"}, "Value for 'target_lang' not supported."),
        ({"target_lang": ""}, "Value for 'target_lang' not supported."),
        ({"source_lang": "FR"}, "Value for 'source_lang' not supported."),
        ({"text": []}, "there is no text"),
        ({"text": ["Hi"] * 51}, "51 texts are too many"),
        ({"text": {"a": 1}}, "text: must be a string or a list"),
        ({"formality": "more"}, "formality: must be 'default'"),
        ({"glossary_id": "x"}, "glossary_id: this server cannot do that"),
        ({"custom_instructions": ["be kind"]}, "custom_instructions: this server"),
        ({"split_sentences": "2"}, "split_sentences: must be"),
        ({"tag_handling": "markdown"}, "tag_handling: must be"),
        ({"model_type": "quality_optimized"}, "model_type: must be"),
    ],
)
def test_a_mistake_is_told(values: dict[str, Any], message: str) -> None:
    response = post(URL, json=ASKED | {"text": ["Hi"]} | values)
    assert response.status_code == 400
    assert list(response.json()) == ["message"]
    assert response.json()["message"].startswith(message)


def test_languages() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    target = [{"language": "DE", "name": "German", "supports_formality": False}]
    for method in ("GET", "POST"):
        answer = ask(app, method, "/v2/languages").json()
        assert answer == [{"language": "EN", "name": "English"}]
        for request in ({"params": {"type": "target"}}, {"data": {"type": "target"}}):
            assert ask(app, method, "/v2/languages", **request).json() == target
    assert ask(app, "GET", "/v2/languages?type=both").status_code == 400


def test_usage_counts_characters() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    assert ask(app, "GET", "/v2/usage").json()["character_count"] == 0
    ask(app, "POST", URL, json=ASKED | {"text": ["Hello", "you"]})
    usage = ask(app, "GET", "/v2/usage").json()
    assert usage["character_count"] == 8
    assert usage["character_limit"] > 10**9


@pytest.mark.parametrize(
    ("method", "path"), [("POST", URL), ("GET", "/v2/languages"), ("GET", "/v2/usage")]
)
def test_a_key_is_asked_for(method: str, path: str) -> None:
    stand_in = StandIn()
    app = create_app(stand_in, keys=ApiKeys(["other", "secret"]))

    def status(authorization: str | None) -> int:
        headers = {} if authorization is None else {"Authorization": authorization}
        body = {"json": ASKED | {"text": "Hi"}} if method == "POST" else {}
        return ask(app, method, path, headers=headers, **body).status_code

    assert [status(key) for key in (None, "DeepL-Auth-Key wrong", "Bearer secret")] == [403] * 3
    assert status("DeepL-Auth-Key secret") == 200
