"""A stand-in for the engine, applications around it and live servers."""

import asyncio
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any

import httpx
import torch
from fastapi import FastAPI

from mt.inference.inputs import split_lines
from mt.inference.options import SearchOptions
from mt.inference.translation import TranslatedPart, Translation
from mt.serving.app import create_app
from mt.serving.engine import Job, TextTranslation


class StandIn:
    """An engine whose translation is the text in capitals, or what ``error`` says.

    While ``hold`` is set, requests wait.
    """

    def __init__(self) -> None:
        self.translator: Any = SimpleNamespace(
            languages=("en", "de"),
            name="/somewhere/models/stand-in",
            options=SearchOptions(),
            max_length=128,
            calibration=None,
        )
        self.jobs: list[Job] = []
        self.error: Exception | None = None
        self.hold = threading.Event()
        self.cancelled = threading.Event()
        self.stopped = False

    def start(self) -> None:
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True

    async def translate(self, job: Job, timeout: float) -> list[TextTranslation]:
        self.jobs.append(job)
        if self.error:
            raise self.error
        try:
            if job.on_partial:
                job.on_partial(0, job.texts[0][:3].upper())
            await asyncio.sleep(0)
            while self.hold.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return [self._translation(text, job) for text in job.texts]

    def _translation(self, text: str, job: Job) -> TextTranslation:
        lines, breaks = split_lines(text)
        return TextTranslation(tuple(self._line(line, job) for line in lines), breaks)

    def _line(self, line: str, job: Job) -> Translation:
        if not line.strip():
            return Translation(line, "", 0.0, 0, (("", 0.0),))
        best = line.strip().upper()
        n_best = [(best + "!" * i, -float(i)) for i in range(job.options.n_best)]
        words = line.split()
        parts = tuple(self._part(words[i : i + 100], job) for i in range(0, len(words), 100))
        tokens = sum(len(part.log_probs) for part in parts)
        return Translation(line, *n_best[0], tokens, tuple(n_best), parts)

    def _part(self, words: list[str], job: Job) -> TranslatedPart:
        pieces = tuple("▁" + word for word in words)
        log_probs = (-0.5,) * (len(pieces) + 1)
        alignment = torch.eye(len(log_probs)) if job.options.attention else None
        output = tuple(piece.upper() for piece in pieces)
        text = " ".join(words).upper()
        return TranslatedPart(pieces, output, log_probs, alignment=alignment, text=text)


def ask(app: FastAPI, method: str, path: str, **request: Any) -> httpx.Response:
    """The application's answer to one request."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())


@cache
def _app() -> FastAPI:
    """One application for all tests that do not need their own, which takes 40 ms to make."""
    return create_app(StandIn())


def post(path: str, **request: Any) -> httpx.Response:
    """POST to an application around a stand-in, with the default limits."""
    return ask(_app(), "POST", path, **request)


def get(path: str, **request: Any) -> httpx.Response:
    return ask(_app(), "GET", path, **request)
