"""/inspect: the page that shows what the Transformer does with a sentence."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from mt.serving.engine import Overloaded
from mt.serving.requests import bad_request
from mt.serving.service import Service

PATH = "/inspect"
MOST_CHARACTERS = 300  # a page grows with the square of the sentence
MOST_OF_PREFIX = 2 * MOST_CHARACTERS  # German is longer, and a page links its own beginnings
MOST_WAITING = 4  # pages, besides the one that is drawn
RETRY_SECONDS = 4  # a page takes about one

# A sentence and how its translation begins -> a page and its Content-Security-Policy; raises
# ValueError for what cannot be shown.
Draw = Callable[[str, str], tuple[str, str]]


def make_router(service: Service, draw: Draw) -> APIRouter:
    """The route of the page."""
    router = APIRouter(tags=["inspection"])
    service.inspect_characters = MOST_CHARACTERS
    pool = ThreadPoolExecutor(1, "inspect")  # a page goes on when its client leaves
    waiting = 0

    @router.get(
        PATH,
        summary="What the Transformer does with a sentence, as a page",
        response_class=HTMLResponse,
        responses={
            400: {
                "description": "The sentence or the prefix cannot be shown; the message says why"
            },
            429: {"description": "Busy: try again after the seconds in Retry-After"},
        },
    )
    async def inspect(text: str = "", prefix: str = "") -> Response:
        nonlocal waiting
        if not text.strip() or len(text) > MOST_CHARACTERS:
            raise bad_request(f"text: must be a sentence of at most {MOST_CHARACTERS} characters")
        if len(prefix) > MOST_OF_PREFIX:
            kind = "the beginning of a translation"
            raise bad_request(f"prefix: must be {kind}, of at most {MOST_OF_PREFIX} characters")
        if waiting > MOST_WAITING:
            raise Overloaded(RETRY_SECONDS)
        waiting += 1  # with the one that is drawn
        loop = asyncio.get_running_loop()
        try:
            page, policy = await loop.run_in_executor(pool, draw, text, prefix)
        except ValueError as error:
            raise bad_request(str(error)) from None
        finally:
            waiting -= 1
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    return router
