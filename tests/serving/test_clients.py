"""The public clients, unmodified, and a reader of events, against the bundled model."""

import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError

import deepl
import httpx
import pytest
from libretranslatepy import LibreTranslateAPI
from live_server import running

from mt.inference.translator import Translator
from mt.serve import make_engine
from mt.serving.app import create_app
from mt.serving.limits import ApiKeys, Limits
from mt.serving.metrics import Metrics
from mt.serving.server import Server


@pytest.fixture(scope="module")
def server(everyday: Translator) -> Iterator[Server]:
    limits, metrics = Limits(), Metrics()
    engine = make_engine(everyday, limits, metrics)
    app = create_app(engine, limits, ApiKeys(["good-key"]), metrics=metrics)
    with running(app) as server:
        yield server


def test_libretranslatepy(server: Server) -> None:
    client = LibreTranslateAPI(server.address, api_key="good-key")
    assert client.translate("Where do you live?", "en", "de") == "Wo wohnen Sie?"
    assert client.translate("I’m hungry.", "auto", "de") == "Ich habe Hunger."
    assert client.detect("Wo wohnst du denn jetzt?")[0]["language"] == "de"
    assert [language["code"] for language in client.languages()] == ["en", "de"]
    with pytest.raises(HTTPError, match="403"):
        LibreTranslateAPI(server.address, "bad-key").translate("Hi", "en", "de")
    with pytest.raises(HTTPError, match="400"):
        client.translate("Hola", "es", "de")


def test_deepl(server: Server) -> None:
    client = deepl.Translator("good-key", server_url=server.address)
    result = client.translate_text("Where do you live?", target_lang="DE")
    assert isinstance(result, deepl.TextResult)
    assert (result.text, result.detected_source_lang) == ("Wo wohnen Sie?", "EN")
    assert result.billed_characters == len("Where do you live?")
    options = {
        "formality": "prefer_more",
        "split_sentences": "nonewlines",
        "context": "Small talk.",
    }
    several = client.translate_text(
        ["I'm hungry.", "Where do\nyou live?"], source_lang="EN", target_lang="DE", **options
    )
    assert [result.text for result in several] == ["Ich habe Hunger.", "Wo wohnen Sie?"]
    html = client.translate_text(
        "<p>Where do you live?</p>", source_lang="EN", target_lang="DE", tag_handling="html"
    )
    assert html.text == "<p>Wo wohnen Sie?</p>"
    assert [language.code for language in client.get_source_languages()] == ["EN"]
    [target] = client.get_target_languages()
    assert (target.code, target.name, target.supports_formality) == ("DE", "German", False)
    assert client.get_usage().character.count > 40
    with pytest.raises(deepl.DeepLException, match="'target_lang' not supported"):
        client.translate_text("Hi", target_lang="FR")
    with pytest.raises(deepl.AuthorizationException, match="not valid"):
        deepl.Translator("bad-key", server_url=server.address).get_usage()


def test_deepl_translates_documents(server: Server, tmp_path: Path) -> None:
    client = deepl.Translator("good-key", server_url=server.address)
    source, target = tmp_path / "page.html", tmp_path / "seite.html"
    source.write_text("<p>Where do you <b>live</b>?</p>")
    status = client.translate_document_from_filepath(source, target, target_lang="DE")
    assert (status.done, status.billed_characters) == (True, 18)
    assert re.fullmatch(r"<p>Wo <b>\w+</b> Sie\?</p>", target.read_text())
    source.write_bytes(b"<meta charset=utf-8>\xff")
    with pytest.raises(deepl.DocumentTranslationException, match="is not valid UTF-8"):
        client.translate_document_from_filepath(source, target, target_lang="DE")
    with pytest.raises(deepl.DeepLException, match=r"a\.xyz: this kind of file"):
        client.translate_document(b"x", BytesIO(), target_lang="DE", filename="a.xyz")


def test_a_file_of_libretranslate(server: Server) -> None:
    """libretranslatepy knows no files: as LibreTranslate's own page does it."""
    with httpx.Client(base_url=server.address, timeout=60) as client:
        fields = {"source": "en", "target": "de", "api_key": "good-key"}
        files = {"file": ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nI am hungry.\n")}
        answer = client.post("/translate_file", files=files, data=fields).json()
        fetched = client.get(answer["translatedFileUrl"])
    assert fetched.text == "1\n00:00:01,000 --> 00:00:02,000\nIch habe Hunger.\n"


def test_a_stream_grows_to_the_offline_translation(server: Server, everyday: Translator) -> None:
    text = "I have lived here for ten years. Where do you live?\nI like the old house very much."
    events = []
    headers = {"Authorization": "Bearer good-key"}
    body = {"text": text, "stream": True}
    with httpx.stream(
        "POST", server.address + "/v1/translate", json=body, headers=headers, timeout=60
    ) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        for line in response.iter_lines():
            if line.startswith("event: "):
                events.append([line[7:]])
            elif line.startswith("data: "):
                events[-1].append(json.loads(line[6:]))
    assert [name for name, _ in events] == ["partial"] * (len(events) - 1) + ["done"]
    assert len(events) > 1
    assert all(data["text"] for _, data in events[:-1])
    assert events[-1][1]["translations"][0]["text"] == everyday.translate_text(text)


def test_all_that_v1_can_do_works_with_the_model(server: Server) -> None:
    headers = {"Authorization": "Bearer good-key"}
    with httpx.Client(base_url=server.address, headers=headers, timeout=60) as client:

        def translate(**body: object) -> dict:
            response = client.post("/v1/translate", json={"text": "Where do you live?"} | body)
            assert response.status_code == 200, response.text
            return response.json()["translations"][0]

        assert translate(prefix="Wo leben")["text"].startswith("Wo leben")
        assert len(translate(n_best=4)["n_best"]) == 4
        alternatives = [
            t["text"] for t in translate(prefix="Wo", alternatives=3, n_best=3)["n_best"]
        ]
        assert len(set(alternatives)) == 3
        assert all(text.startswith("Wo") for text in alternatives)
        samples = {"samples": 4, "n_best": 4, "seed": 3, "top_k": 5}
        assert translate(**samples) == translate(**samples)
        assert translate(mbr=True)["text"]
        [segment] = translate(tokens=True, attention=True)["lines"][0]["segments"]
        assert len(segment["alignment"]) == len(segment["log_probs"]) == len(segment["pieces"]) + 1
        assert translate(text="")["text"] == ""
