"""/inspect: the page of mt.inspect, drawn by the server."""

import asyncio
import threading
import time

import httpx
import pytest
from serving_helpers import StandIn, ask

from mt.inference.translator import Translator
from mt.serve import draw_inspection
from mt.serving.app import create_app
from mt.serving.inspection import MOST_CHARACTERS, MOST_WAITING
from mt.serving.limits import ApiKeys


def draw(text: str, prefix: str) -> tuple[str, str]:
    if text == "too hard":
        raise ValueError("it is too hard")
    return f"<p>{text}|{prefix}</p>", "default-src 'none'; style-src 'sha256-x'"


def test_the_page_has_a_policy_of_its_own() -> None:
    app = create_app(StandIn(), draw=draw)
    response = ask(app, "GET", "/inspect", params={"text": "Hello.", "prefix": "Hallo"})
    assert response.status_code == 200
    assert response.text == "<p>Hello.|Hallo</p>"
    policies = response.headers.get_list("content-security-policy")
    assert policies == ["default-src 'none'; style-src 'sha256-x'"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert ask(app, "GET", "/v1/models").json()["inspect"] == MOST_CHARACTERS


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "text: must be a sentence of at most 300 characters"),
        ({"text": "  "}, "text: must be a sentence of at most 300 characters"),
        ({"text": "a" * 301}, "text: must be a sentence of at most 300 characters"),
        (
            {"text": "a", "prefix": "b" * 601},
            "prefix: must be the beginning of a translation, of at most 600 characters",
        ),
        ({"text": "too hard"}, "it is too hard"),
    ],
)
def test_what_cannot_be_shown_is_said(params: dict[str, str], message: str) -> None:
    response = ask(create_app(StandIn(), draw=draw), "GET", "/inspect", params=params)
    assert response.status_code == 400
    assert response.json() == {"error": message}


def test_a_server_with_keys_has_none() -> None:
    for app in (create_app(StandIn(), keys=ApiKeys(["k"]), draw=draw), create_app(StandIn())):
        assert ask(app, "GET", "/inspect", params={"text": "Hello."}).status_code == 404
        assert ask(app, "GET", "/v1/models").json()["inspect"] == 0


def test_few_wait_for_a_page() -> None:
    held = threading.Event()

    def slow(text: str, prefix: str) -> tuple[str, str]:
        held.wait(10)
        return text, ""

    app = create_app(StandIn(), draw=slow)

    async def main() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            requests = [
                asyncio.ensure_future(client.get("/inspect", params={"text": "Hello."}))
                for _ in range(1 + MOST_WAITING + 2)
            ]
            done, _ = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
            assert {request.result().status_code for request in done} == {429}
            held.set()
            return [response.status_code for response in await asyncio.gather(*requests)]

    assert sorted(asyncio.run(main())) == [200] * (1 + MOST_WAITING) + [429] * 2


def test_one_page_is_drawn_at_a_time_when_clients_leave() -> None:
    drawing, most, drawn = 0, 0, 0

    def slow(text: str, prefix: str) -> tuple[str, str]:
        nonlocal drawing, most, drawn
        drawing += 1
        most = max(most, drawing)
        time.sleep(0.1)
        drawing -= 1
        drawn += 1
        return text, ""

    app = create_app(StandIn(), draw=slow)

    async def main() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for _ in range(4):
                request = asyncio.ensure_future(client.get("/inspect", params={"text": "Hello."}))
                await asyncio.sleep(0.05)
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)
            response = await client.get("/inspect", params={"text": "Hello."})
            assert response.status_code == 200

    asyncio.run(main())
    assert drawn > 1
    assert most == 1


def test_the_server_draws_what_the_model_does(model_folder) -> None:
    translator = Translator.load(model_folder, device="cpu", workers=1)
    page, policy = draw_inspection(translator, "The bear hears the door.", "Der Bär")
    assert '"server":"inspect"' in page
    assert f'"name":"{model_folder.name}"' in page
    assert str(model_folder.parent) not in page
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy in page
    page, _ = draw_inspection(translator, "THE BEAR HEARS  THE DOOR !", "")
    assert '"text":"The bear hears  the door!"' in page  # as the server translates it
