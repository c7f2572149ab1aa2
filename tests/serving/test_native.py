"""/v1, in front of a stand-in engine, and with the models of other tests."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from serving_helpers import StandIn, ask, post

from mt.inference.confidence import Calibration
from mt.inference.inputs import split_lines
from mt.inference.options import SearchOptions
from mt.inference.terms import TermRules
from mt.inference.translation import TranslatedPart, Translation
from mt.inference.translator import Translator
from mt.serving.app import create_app
from mt.serving.engine import DeadlineExceeded, Job, Overloaded, TextTranslation
from mt.serving.limits import ApiKeys, Limits
from mt.serving.segments import line_record

URL = "/v1/translate"


def events(response: httpx.Response) -> list[tuple[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in response.text.split("\n\n") if block]
    return [(event[7:], json.loads(data[6:])) for event, data in blocks]


def test_the_least_question() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    assert ask(app, "POST", URL, json={"text": "Hi"}).json() == {
        "model": "stand-in",
        "source": "en",
        "target": "de",
        "translations": [
            {
                "text": "HI",
                "score": 0.0,
                "tokens": 2,
                "confidence": None,
                "n_best": [{"text": "HI", "score": 0.0}],
            }
        ],
    }
    assert stand_in.jobs == [Job(["Hi"], SearchOptions(), terms=TermRules(keep=True))]


def test_terms_reach_the_engine() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    body = {
        "text": "a", "glossary": {"house": "Gebäude", "bill": ["Rechnung", "Gesetz"]},
        "keep": True, "decimal": "german", "forbidden": ["Sie"],
    }  # fmt: skip
    assert ask(app, "POST", URL, json=body).status_code == 200
    rules = stand_in.jobs[0].terms
    assert rules is not None
    assert rules.glossary is not None
    assert rules.glossary.entries["bill"].targets == ("Rechnung", "Gesetz")
    assert (rules.keep, rules.decimal, rules.forbidden) == (True, "german", ("Sie",))
    ask(app, "POST", URL, json={"text": "a", "keep": False})
    assert stand_in.jobs[1].terms is None


@pytest.mark.parametrize(
    "terms",
    [
        {"glossary": {" ": "x"}}, {"glossary": {"x": []}}, {"glossary": {"x": " "}},
        {"glossary": {"x": 1}}, {"glossary": {f"x{i}": "y" for i in range(201)}},
        {"decimal": "dutch"}, {"decimal": "german", "keep": False},
        {"decimal": "german", "samples": 2}, {"forbidden": ["x"] * 51},
        {"glossary": {"x" * 501: "y"}},
        {"glossary": {"house": ["Haus", "ein Haus"]}, "forbidden": ["Haus"]},
        {"forbidden": "x"}, {"keep": 1},
    ],
)  # fmt: skip
def test_wrong_terms_are_refused(terms: dict[str, Any]) -> None:
    assert post(URL, json={"text": "a", **terms}).status_code == 400


def test_the_terms_of_a_request_have_a_limit() -> None:
    glossary = {f"x{i}": "y" * 400 for i in range(51)}
    response = post(URL, json={"text": "a", "glossary": glossary})
    assert response.status_code == 413
    assert response.json()["error"]["message"].startswith("the terms have 20,5")


def test_every_option_reaches_the_engine() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    options = {
        "beam_size": 5, "alpha": 1, "n_best": 2, "min_length": 1, "max_length": 9,
        "no_repeat_ngram": 3, "repetition_penalty": 1.5, "samples": 4, "temperature": 0.5,
        "top_k": 7, "top_p": 0.9, "seed": 2**64 - 1, "mbr": True, "attention": True,
    }  # fmt: skip
    body = {"text": ["a", "b"], "prefix": ["A", ""], "split": False, **options}
    assert ask(app, "POST", URL, json=body).status_code == 200
    assert (
        ask(app, "POST", URL, json={"text": "a", "alternatives": 3, "max_length": None}).status_code
        == 200
    )
    assert stand_in.jobs[0] == Job(["a", "b"], SearchOptions(**options), False, ["A", ""])
    assert stand_in.jobs[1].options == SearchOptions(alternatives=3)
    assert {*options, "alternatives"} == set(vars(SearchOptions()))


def test_one_prefix_is_for_all_texts() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    ask(app, "POST", URL, json={"text": ["a", "b"], "prefix": "A"})
    assert stand_in.jobs[0].prefixes == ["A", "A"]


def test_tokens() -> None:
    body = {"text": "Hi you\n\nthere", "tokens": True, "n_best": 2}
    [translation] = post(URL, json=body).json()["translations"]
    assert translation["n_best"][0]["text"] == translation["text"] == "HI YOU\n\nTHERE"
    first, blank, last = translation["lines"]
    assert blank == {"segments": []}
    assert first["segments"] == [
        {
            "before": "", "source": "Hi you", "text": "HI YOU",
            "log_prob": -1.5, "confidence": None,
            "source_pieces": ["▁Hi", "▁you"], "pieces": ["▁HI", "▁YOU"],
            "log_probs": [-0.5, -0.5, -0.5],
        }
    ]  # fmt: skip
    assert len(last["segments"]) == 1


def test_segments_of_a_line_have_the_texts_of_its_sentences() -> None:
    def segment(source: str, output: str, text: str) -> TranslatedPart:
        pieces = [tuple("▁" + word for word in text.split()) for text in (source, output)]
        log_probs = (0.0,) * (len(pieces[1]) + 1)
        alignment = torch.full((3, 3), 1 / 3)
        sure = len(output) / 100
        return TranslatedPart(*pieces, log_probs, alignment=alignment, confidence=sure, text=text)

    parts = (
        segment("Where is it?", "Wo ist es?", "Wo ist es?"),
        segment("Come here!", "Komm <0xC3><0xA9>her!", "KOMM ÉHER!"),
    )
    text = "Wo ist es? KOMM ÉHER!"
    source = "Where  is it? COME HERE!"
    line = Translation(source, text, 0.0, 9, ((text, 0.0),), parts)
    one, two = line_record(line, split=True, tokens=False)["segments"]
    assert (one["source"], one["text"]) == ("Where  is it?", "Wo ist es?")
    assert (two["source"], two["text"]) == ("COME HERE!", "KOMM ÉHER!")
    assert [part["confidence"] for part in (one, two)] == [0.1, 0.21]
    assert one["alignment"] == [[0.3333] * 3] * 3
    assert "log_probs" not in one
    clauses = line_record(line, split=False, tokens=False)["segments"]  # a long line in parts
    assert [part["source"] for part in clauses] == ["Where is it?", "Come here!"]


def test_a_line_that_stays_as_it_is_has_a_segment() -> None:
    line = Translation(" 10:30 ", "10:30", 0.0, 0, (("10:30", 0.0),))
    for split in (True, False):
        assert line_record(line, split, tokens=True)["segments"] == [
            {
                "before": "", "source": "10:30", "text": "10:30",
                "log_prob": 0.0, "confidence": 1.0,
                "source_pieces": (), "pieces": (), "log_probs": [],
            }
        ]  # fmt: skip


def test_a_score_that_is_no_number_is_null() -> None:
    stand_in = StandIn()
    nan = float("nan")
    line = Translation("a", "", nan, 1, (("", nan),), (TranslatedPart(("a",), (), (nan,)),))

    async def translate(job: Job, timeout: float) -> list[TextTranslation]:
        return [TextTranslation((line,), ())]

    stand_in.translate = translate  # type: ignore[method-assign]
    answer = ask(create_app(stand_in), "POST", URL, json={"text": "a", "tokens": True}).json()
    assert answer["translations"][0]["score"] is None
    assert answer["translations"][0]["lines"][0]["segments"][0]["log_probs"] == [None]


def test_a_real_translator_aligns(babbling: Translator) -> None:
    class Plain(StandIn):
        async def translate(self, job: Job, timeout: float) -> list[TextTranslation]:
            lines, breaks = split_lines(job.texts[0])
            results = babbling.translate(lines, job.options, split=job.split)
            return [TextTranslation(tuple(results), breaks)]

    engine = Plain()
    engine.translator = babbling
    body = {"text": "I am here. You are there.", "attention": True, "max_length": 8}
    response = ask(create_app(engine), "POST", URL, json=body)
    [line] = response.json()["translations"][0]["lines"]
    assert [segment["source"] for segment in line["segments"]] == ["I am here.", "You are there."]
    for segment in line["segments"]:
        rows = segment["alignment"]
        assert len(rows) == len(segment["pieces"]) + 1
        assert {len(row) for row in rows} == {len(segment["source_pieces"]) + 1}
        assert all(sum(row) == pytest.approx(1, abs=0.01) for row in rows)
    joined = " ".join(segment["text"] for segment in line["segments"])
    assert joined == response.json()["translations"][0]["text"]


def test_a_stream_has_partial_results_and_the_answer() -> None:
    stream = events(post(URL, json={"text": "Hello", "stream": True}))
    assert stream == [
        ("partial", {"index": 0, "text": "HEL"}),
        ("done", post(URL, json={"text": "Hello"}).json()),
    ]


def test_an_error_before_the_stream_has_a_status_and_later_an_event() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    stand_in.error = Overloaded(7)
    response = ask(app, "POST", URL, json={"text": "Hi", "stream": True})
    assert (response.status_code, response.headers["Retry-After"]) == (429, "7")

    async def fail(job: Job, timeout: float) -> list[TextTranslation]:
        assert job.on_partial
        job.on_partial(0, "H")
        await asyncio.sleep(0.01)
        raise DeadlineExceeded

    stand_in.translate = fail  # type: ignore[method-assign]
    first, last = events(ask(app, "POST", URL, json={"text": "Hi", "stream": True}))
    assert first[0] == "partial"
    assert last[0] == "error"
    assert last[1]["error"]["code"] == "deadline_exceeded"


def test_only_the_newest_partial_result_of_a_text_is_sent() -> None:
    stand_in = StandIn()

    async def translate(job: Job, timeout: float) -> list[TextTranslation]:
        assert job.on_partial
        for text in ("a", "ab", "abc"):
            job.on_partial(1, text)
        await asyncio.sleep(0.05)
        return [stand_in._translation(text, job) for text in job.texts]

    app = create_app(stand_in)
    stand_in.translate = translate  # type: ignore[method-assign]
    stream = events(ask(app, "POST", URL, json={"text": ["x", "y"], "stream": True}))
    assert [data for event, data in stream if event == "partial"] == [{"index": 1, "text": "abc"}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "text: is missing"),
        ({"text": []}, "there is no text"),
        ({"text": None}, "text: must be a string or a list of strings"),
        ({"text": "a", "txt": 1}, "txt: there is no such field"),
        ({"text": "a", "n_best": 5}, "n_best=5: must not exceed beam_size=4"),
        ({"text": "a", "n_best": 11, "beam_size": 16}, "n_best: this server allows at most 10"),
        ({"text": "a", "beam_size": 17}, "beam_size: this server allows at most 16"),
        ({"text": "a", "samples": 17}, "samples: this server allows at most 16"),
        ({"text": "a", "alternatives": 11}, "alternatives: this server allows at most 10"),
        ({"text": "a", "max_length": 501}, "max_length: this server allows at most 500"),
        ({"text": "a", "beam_size": "4"}, "beam_size: must be a whole number"),
        ({"text": "a", "beam_size": True}, "beam_size: must be a whole number"),
        ({"text": "a", "beam_size": 10**400}, "beam_size="),
        ({"text": "a", "seed": -1}, "seed=-1"),
        ({"text": "a", "split": "yes"}, "split: must be true or false"),
        ({"text": "a", "temperature": 0.5}, "temperature, top_k and top_p are for sampling"),
        ({"text": "a", "alpha": float("nan")}, "alpha=nan: must be a number"),
        ({"text": "a", "alpha": float("inf")}, "alpha=inf: must be a number"),
        ({"text": "a", "alpha": "x"}, "alpha: must be a number"),
        ({"text": "a", "forbidden": ["x"] * 51}, "forbidden: at most 50 are allowed"),
        ({"text": "a", "forbidden": [1]}, "forbidden: must be a list of strings"),
        ({"text": "a", "glossary": {"a": [1]}}, "glossary: must be an object with the translation"),
        ({"text": ["a", 5]}, "text: must be a string or a list of strings"),
        ({"text": ["a", "b"], "prefix": ["A"]}, "prefix: 1 for 2 texts"),
    ],
)
def test_a_mistake_is_told(body: dict[str, Any], message: str) -> None:
    headers = {"Content-Type": "application/json"}
    response = post(URL, content=json.dumps(body), headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)
    assert response.json()["error"]["code"] in ("bad_request", "too_many_texts")


def test_a_body_that_cannot_be_read_is_told() -> None:
    headers = {"Content-Type": "application/json"}
    long = b'{"text": "a", "seed": ' + b"1" * 5000 + b"}"
    for content, message in ((long, "a number is too long"), (b"{", "Expecting")):
        response = post(URL, content=content, headers=headers)
        assert response.status_code == 400
        told = response.json()["error"]["message"]
        assert told.startswith(f"the body cannot be read as JSON in UTF-8: {message}")
    response = post(URL, content=b"\x1f\x8b", headers=headers | {"Content-Encoding": "gzip"})
    assert response.status_code == 415
    told = response.json()["error"]["message"]
    assert told == "Content-Encoding: gzip is not read here: send the body as it is"


def test_the_engine_may_refuse_options() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    stand_in.error = ValueError("these do not go together")
    response = ask(app, "POST", URL, json={"text": "a"})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "these do not go together"


def test_models() -> None:
    stand_in = StandIn()
    stand_in.translator.options = replace(SearchOptions(), alpha=1.2)
    app = create_app(stand_in, Limits(texts=7), ApiKeys(["secret"]))
    answer = ask(app, "GET", "/v1/models").json()
    assert answer["name"] == "stand-in"
    assert (answer["source"], answer["target"], answer["max_length"]) == ("en", "de", 128)
    assert answer["search"]["alpha"] == 1.2
    assert answer["limits"]["texts"] == 7
    assert answer["key_required"] is True
    assert answer["confidence"] is None
    stand_in.translator.calibration = Calibration(0.0, 1.0, -1.0, check_below=0.4)
    answer = ask(app, "GET", "/v1/models").json()
    assert answer["confidence"] == {"check_below": 0.4}


def test_a_key_is_asked_for() -> None:
    stand_in = StandIn()
    app = create_app(stand_in, keys=ApiKeys(["secret"]))
    for key in (None, "Bearer wrong", "secret", "DeepL-Auth-Key secret"):
        headers = {"Authorization": key} if key else {}
        refused = ask(app, "POST", URL, json={"text": "Hi"}, headers=headers)
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "unauthorized"
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    headers = {"Authorization": "Bearer secret"}
    assert ask(app, "POST", URL, json={"text": "Hi"}, headers=headers).status_code == 200
