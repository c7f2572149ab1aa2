"""Whatever a client sends, the answer is one clear sentence in the form of the interface."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from serving_helpers import StandIn, ask, post

from mt.serving.app import create_app
from mt.serving.engine import DeadlineExceeded, Overloaded
from mt.serving.limits import Limits

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
GOOD: dict[str, dict[str, Any]] = {
    "/translate": {"q": "Hi", "source": "en", "target": "de"},
    "/detect": {"q": "Hi"},
    "/v2/translate": {"text": ["Hi"], "target_lang": "DE", "source_lang": "EN"},
    "/v1/translate": {"text": "Hi"},
}
EVERYWHERE = pytest.mark.parametrize("path", GOOD)


def message_of(path: str, body: Any) -> str:
    """The message; fails unless it has the form of the interface."""
    if path.startswith("/v1/"):
        assert body.keys() == {"error"}
        assert body["error"].keys() == {"code", "message"}
        return body["error"]["message"]
    [(key, message)] = body.items()
    assert key == ("message" if path.startswith("/v2/") else "error")
    return message


@EVERYWHERE
@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"nonsense", b"[]", b"null", b'"text"', b"NaN", b"1" * 5000, b"[" * 100_000,
        b'{"a":' * 20_000, b"\xff\xfe\x00", b'{"text": "\xff"}', b"\x00", b'{"text": "\x00"}',
        b'{"q": 1e999}', b"\xef\xbb\xbf", b"{}{}", b"{'text': 'a'}",
        b'{"text": "a", "text": "b"}', b'{"q": "\\ud800", "text": "\\udfff"}',
        b"{" + b",".join(b'"%d":0' % i for i in range(9000)) + b',"0":0}',
        json.dumps({"q": [1] * 20_000, "text": [None] * 10_000}).encode(),
        b'{"q": {"a": []}, "text": {"a": []}, "source": [], "target": {}, "target_lang": 1}',
    ],
    ids=range(23),
)  # fmt: skip
def test_malformed_json(path: str, content: bytes) -> None:
    response = post(path, content=content, headers=JSON)
    assert response.status_code == 400
    message = message_of(path, response.json())
    assert 0 < len(message) <= 300
    assert "\n" not in message


@EVERYWHERE
@pytest.mark.parametrize("content", [b"q=%ff&text=%ff", b"q=%ED%A0%80&text=%ED%A0%80", b"\xff=1",
                                     b"a&" * 2000, b"q&text"])  # fmt: skip
def test_malformed_forms(path: str, content: bytes) -> None:
    response = post(path, content=content, headers=FORM)
    assert response.status_code == (415 if path.startswith("/v1/") else 400)
    assert message_of(path, response.json())


@EVERYWHERE
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("multipart/form-data", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nbroken"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=q; "
         b'filename="a"\r\n\r\nHi\r\n--x--\r\n'),
        ("text/plain", b'{"q": "Hi"}'),
        ("", b"q=Hi"),
        ("application/octet-stream", bytes(range(256))),
    ],
)  # fmt: skip
def test_other_kinds_of_content(path: str, kind: str, content: bytes) -> None:
    response = post(path, content=content, headers={"Content-Type": kind} if kind else {})
    assert response.status_code in (400, 415)
    assert message_of(path, response.json())


def test_a_form_in_parts_may_name_any_charset() -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--\r\n'
    for sign in ("=", " ="):
        kind = f"multipart/form-data; boundary=x; charset{sign}punycode"
        assert post("/detect", content=part, headers={"Content-Type": kind}).status_code == 200


@EVERYWHERE
def test_a_form_field_may_be_strange(path: str) -> None:
    """NUL, a lonely accent or a private character are characters like others."""
    for text in ("\0", "\u0301", "\ue000", "\U0010ffff", "\u202e", "\r", " "):
        body = GOOD[path] | {name: text for name in ("q", "text") if name in GOOD[path]}
        assert post(path, json=body).status_code == 200


@pytest.mark.parametrize("path", [path for path in GOOD if path != "/detect"])
@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (Overloaded(3), 429, "3"),
        (DeadlineExceeded(), 504, None),
        (KeyError("secret text"), 500, None),
    ],
)
def test_errors_of_the_engine(path: str, error: Exception, status: int, retry: str | None) -> None:
    stand_in = StandIn()
    stand_in.error = error
    response = ask(create_app(stand_in), "POST", path, json=GOOD[path])
    assert response.status_code == status
    assert response.headers.get("Retry-After") == retry
    assert "secret" not in message_of(path, response.json())
    assert "content-security-policy" in response.headers


def test_a_mistake_is_counted_and_other_sites_may_read_the_answer() -> None:
    stand_in = StandIn()
    stand_in.error = KeyError()
    site = "https://example.org"
    app = create_app(stand_in, origins=[site])
    response = ask(app, "POST", "/translate", json=GOOD["/translate"], headers={"Origin": site})
    assert response.status_code == 500
    assert response.headers["access-control-allow-origin"] == site
    metrics = ask(app, "GET", "/metrics").text
    assert 'mt_rejections_total{reason="internal"} 1.0' in metrics


@EVERYWHERE
def test_too_many_characters_or_bytes(path: str) -> None:
    stand_in = StandIn()
    app = create_app(stand_in, Limits(characters=10, body_bytes=300))
    name = "q" if "q" in GOOD[path] else "text"
    for length, status, message in (
        (10, 200, ""),
        (11, 413, "11 characters"),
        (300, 413, "larger"),
    ):
        response = ask(app, "POST", path, json=GOOD[path] | {name: "a" * length})
        assert response.status_code == status
        assert message in (message_of(path, response.json()) if message else "")
    assert len(stand_in.jobs) == (path != "/detect")


def test_prefixes_count_as_characters() -> None:
    stand_in = StandIn()
    app = create_app(stand_in, Limits(characters=10))
    body = {"text": ["aaaa", "aaaa"], "prefix": ["b", "bb"]}
    assert ask(app, "POST", "/v1/translate", json=body).status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/v1/translate", "/v1/translate does not take GET: use POST"),
        ("DELETE", "/v2/translate", "/v2/translate does not take DELETE: use POST"),
        ("GET", "/translate", "does not take GET: use POST"),
        ("POST", "/health/live", "/health/live does not take POST: use GET"),
        ("POST", "/v1/nothing", "nothing is at /v1/nothing: /openapi.json lists what there is"),
        ("POST", "/translate_files", "nothing is at /translate_files"),
        ("POST", "/v1/translate/", "nothing is at /v1/translate/: "),
        ("GET", "/translate_file", "does not take GET: use POST"),
        ("GET", "/v2/document/ABC", "does not take GET: use POST"),
        ("GET", "/v2/glossaries", "nothing is at"),
        ("GET", "/docs", "nothing is at"),
        ("GET", "/page/../../serve.py", "nothing is at"),
        ("GET", "/" + quote("<script>\n\0"), "nothing is at"),
    ],
)
def test_unknown_addresses(method: str, path: str, message: str) -> None:
    stand_in = StandIn()
    response = ask(create_app(stand_in), method, path)
    assert response.status_code == (405 if "does not take" in message else 404)
    assert message in message_of(path, response.json())
    assert "\n" not in message_of(path, response.json())
