"""Health, metrics, headers, the log and the description of the application."""

import asyncio
import logging
from pathlib import Path

import pytest
from fastapi import FastAPI
from serving_helpers import StandIn, ask, get, post

from mt.serving.app import PAGE, create_app
from mt.serving.engine import Overloaded
from mt.serving.metrics import Metrics


def test_ready_is_said_between_start_and_stop() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)

    async def states() -> list[int]:
        codes = [await status(app)]
        async with app.router.lifespan_context(app):
            codes.append(await status(app))
        return [*codes, await status(app)]

    async def status(app: FastAPI) -> int:
        response = await asyncio.to_thread(ask, app, "GET", "/health/ready")
        return response.status_code

    assert asyncio.run(states()) == [503, 200, 503]
    assert stand_in.stopped
    assert ask(app, "GET", "/health/live").json() == {"status": "ok"}


def test_metrics() -> None:
    stand_in = StandIn()
    metrics = Metrics()
    app = create_app(stand_in, metrics=metrics)
    metrics.queue_depth(3)
    metrics.batch(17)
    metrics.first_token(0.2)
    metrics.tokens(5)
    ask(app, "POST", "/v1/translate", json={"text": "Hi"})
    ask(app, "POST", "/translate", json={})
    stand_in.error = Overloaded(1)
    ask(app, "POST", "/v2/translate", json={"text": "a", "target_lang": "DE", "source_lang": "EN"})
    response = ask(app, "GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        "mt_queue_sentences 3.0",
        "mt_batch_sentences 17.0",
        "mt_time_to_first_token_seconds_sum 0.2",
        "mt_tokens_total 5.0",
        'mt_requests_total{interface="v1",status="200"} 1.0',
        'mt_requests_total{interface="libretranslate",status="400"} 1.0',
        'mt_requests_total{interface="deepl",status="429"} 1.0',
        'mt_request_seconds_count{interface="v1"} 1.0',
        'mt_rejections_total{reason="overloaded"} 1.0',
        'mt_rejections_total{reason="bad_request"} 1.0',
        "process_resident_memory_bytes",
    ):
        assert line in response.text
    assert "mt_requests_total{" not in create_app(StandIn()).state.service.metrics.text().decode()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/somewhere/models/everyday", "everyday"),
        ("outputs/2026-11-28_15-48-30/model", "2026-11-28_15-48-30"),
        ("outputs/2026-11-28_15-48-30/model + everyday", "2026-11-28_15-48-30 + everyday"),
        ("model", "model"),
        ("/home/alice/model", "model"),  # the folder above is no run
    ],
)
def test_clients_see_the_name_of_a_model_but_not_its_path(
    path: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "outputs" / "2026-11-28_15-48-30"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    stand_in = StandIn()
    stand_in.translator.name = path
    assert ask(create_app(stand_in), "GET", "/v1/models").json()["name"] == name


@pytest.mark.parametrize("path", ["/v1/models", "/health/live", "/nothing", "/metrics"])
def test_every_answer_has_the_security_headers(path: str) -> None:
    headers = get(path).headers
    policy = dict(
        directive.split(" ", 1) for directive in headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_other_sites_may_ask_only_where_they_are_named() -> None:
    stand_in = StandIn()
    site, other = "https://example.org", "https://example.net"
    app = create_app(stand_in, origins=[site])
    for origin, allowed in ((site, site), (other, None)):
        headers = {"Origin": origin}
        answer = ask(app, "POST", "/v1/translate", json={"text": "Hi"}, headers=headers)
        assert answer.headers.get("access-control-allow-origin") == allowed
        headers["Access-Control-Request-Method"] = "POST"
        headers["Access-Control-Request-Headers"] = "authorization, content-type"
        preflight = ask(app, "OPTIONS", "/v1/translate", headers=headers)
        assert preflight.headers.get("access-control-allow-origin") == allowed
    assert ask(create_app(stand_in), "OPTIONS", "/v1/translate", headers=headers).status_code == 405


def test_the_log_has_neither_text_nor_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    params = {"q": "my secret", "source": "en", "target": "de"}
    assert post("/translate", params=params).status_code == 200
    post("/translate", content=b'{"q": "my secret', headers={"Content-Type": "application/json"})
    post("/v1/translate", json={"text": ["my secret"], "secret": 1, "beam_size": "secret"})
    post("/a%0A" + "b" * 500)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith(("mt", "uvicorn"))]
    assert len(ours) == 4
    assert "POST /translate 200" in ours[0]
    assert not any("secret" in line or "\n" in line or len(line) > 200 for line in ours)


def test_openapi_describes_all_interfaces() -> None:
    described = get("/openapi.json").json()
    for path in ("/v1/translate", "/translate", "/v2/translate", "/detect"):
        operation = described["paths"][path]["post"]
        assert operation["summary"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema["examples"]
        assert operation["responses"]["200"]["content"]["application/json"]["example"]
        assert {"400", "413", "429", "504"} <= operation["responses"].keys()
        assert "422" not in operation["responses"]
    assert "$ref" not in str(described)
    assert {"/health/live", "/metrics", "/v1/models"} <= described["paths"].keys()


@pytest.mark.parametrize("file", sorted(PAGE.glob("*")), ids=lambda file: file.name)
def test_the_page_is_served(file) -> None:
    stand_in = StandIn()
    path = "/" if file.name == "index.html" else f"/{file.name}"
    for method in ("GET", "HEAD"):
        response = ask(create_app(stand_in), method, path)
        assert response.status_code == 200
        assert response.headers["cache-control"] == "no-cache"
    assert ask(create_app(stand_in), "GET", path).content == file.read_bytes()
