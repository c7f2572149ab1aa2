"""Our own interface: all that the translator can do, and partial results as they come."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, fields, replace
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from mt.inference.number_forms import DECIMALS
from mt.inference.options import SearchOptions
from mt.inference.terms import TermRules
from mt.serving.engine import Job, TextTranslation
from mt.serving.requests import Strings, Terms, Texts, bad_request, describe, error_body, read_body
from mt.serving.segments import line_record, rounded
from mt.serving.service import Service, as_request_error


class TranslateBody(BaseModel):
    """A field that is not given has the model's own default."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"text": "Where do you live?"},
                {"text": ["Good morning.", "Thank you."], "n_best": 3, "tokens": True},
                {"text": "Where do you live?", "prefix": "Wo leben", "stream": True},
            ]
        },
    )

    text: Texts = Field(description="the text, or several; a text may have several lines")
    split: bool = Field(True, description="whether sentences are translated one by one")
    prefix: Texts = Field("", description="how the translation begins; one, or one for each text")
    beam_size: int = Field(4, description="hypotheses of a sentence; 1 is greedy")
    alpha: float = Field(0.6, description="strength of the length penalty")
    n_best: int = Field(1, description="how many translations to return, best first")
    min_length: int = Field(0, description="least number of tokens of a sentence")
    max_length: int | None = Field(
        None, description="most tokens of a sentence; null: 50 more than its source"
    )
    no_repeat_ngram: int = Field(0, description="no n tokens come twice; 0: they may")
    repetition_penalty: float = Field(1.0, description="above 1 tokens come again less often")
    samples: int = Field(0, description="draw this many translations instead of searching")
    temperature: float = Field(1.0, description="of the samples")
    top_k: int = Field(0, description="sample among the k likeliest tokens; 0: among all")
    top_p: float = Field(1.0, description="sample among the likeliest tokens that sum to p")
    seed: int = Field(0, description="of the samples; the same seed gives the same samples")
    alternatives: int = Field(
        0, description="continue each of so many likeliest tokens after the prefix greedily"
    )
    mbr: bool = Field(False, description="rank translations by expected chrF")
    glossary: Terms = Field(
        {}, description="words that must become others; a list has alternatives"
    )
    keep: bool = Field(
        True, description="keep addresses, file names, placeholders, codes and numbers"
    )
    decimal: str = Field("either", description=f"how `keep` writes numbers: {', '.join(DECIMALS)}")
    forbidden: Strings = Field([], description="phrases that must not come", max_length=50)
    tokens: bool = Field(False, description="add the pieces of each sentence and their log P")
    attention: bool = Field(False, description="add the weights of the source pieces")
    stream: bool = Field(False, description="answer with server-sent events")


EXAMPLE = {
    "model": "everyday",
    "source": "en",
    "target": "de",
    "translations": [
        {
            "text": "Wo wohnst du?",
            "score": -0.31,
            "tokens": 5,
            "confidence": 0.84,
            "n_best": [{"text": "Wo wohnst du?", "score": -0.31}],
        }
    ],
}
OPTIONS = {field.name for field in fields(SearchOptions)}


def make_router(service: Service) -> APIRouter:
    """The routes of /v1."""
    router = APIRouter(prefix="/v1", tags=["v1"])
    translator = service.engine.translator

    @router.post(
        "/translate",
        summary="Translate a text or several, with all options",
        description="With `stream` the answer is `text/event-stream`: `partial` events with the "
        "translation of a text up to now, which may still change, then one `done` with the "
        "answer, or one `error`.",
        openapi_extra=describe("/v1/translate", TranslateBody, EXAMPLE, form=False),
    )
    async def translate(request: Request) -> Response:
        service.check_authorization(request.scope)
        body = await read_body(request, TranslateBody, form=False)
        job = _job(service, body)
        if body.stream:
            events = _events(service, body, job)
            first = await anext(events)  # an overloaded server says so by its status
            unbuffered = {"X-Accel-Buffering": "no"}  # else nginx would collect the events
            return StreamingResponse(
                _chain(first, events), media_type="text/event-stream", headers=unbuffered
            )
        results = await service.translate(job)
        return await asyncio.to_thread(lambda: JSONResponse(_answer(service, body, results)))

    @router.get("/models", summary="The model, its search defaults and the server's limits")
    async def models() -> dict[str, Any]:
        defaults, calibration = asdict(translator.options), translator.calibration
        return {
            "name": service.name,
            "source": service.source,
            "target": service.target,
            "languages": [service.source, service.target],
            "max_length": translator.max_length,
            "search": {name: value for name, value in defaults.items() if name != "attention"},
            "limits": asdict(service.limits),
            "key_required": bool(service.keys),
            "inspect": service.inspect_characters,
            "confidence": calibration and {"check_below": calibration.check_below},
        }

    return router


def _job(service: Service, body: TranslateBody) -> Job:
    texts = [body.text] if isinstance(body.text, str) else body.text
    prefixes = [body.prefix] * len(texts) if isinstance(body.prefix, str) else body.prefix
    if len(prefixes) != len(texts):
        raise bad_request(f"prefix: {len(prefixes)} for {len(texts)} texts: give one for each")
    service.check_texts(texts, prefixes)
    settings = {name: getattr(body, name) for name in body.model_fields_set & OPTIONS}
    try:
        options = replace(service.engine.translator.options, **settings)
    except ValueError as error:
        raise bad_request(str(error)) from None
    service.limit_options(options)
    terms = _terms(service, body, options)
    return Job(texts, options, body.split, prefixes if any(prefixes) else (), terms)


def _terms(service: Service, body: TranslateBody, options: SearchOptions) -> TermRules | None:
    """Only beam search keeps terms: samples and alternatives go without what is kept by default."""
    keep = body.keep and options.is_beam_search
    return service.term_rules(body.glossary, keep, body.decimal, body.forbidden)


def _answer(
    service: Service, body: TranslateBody, results: list[TextTranslation]
) -> dict[str, Any]:
    translations = []
    for result in results:
        n_best = [{"text": text, "score": rounded(score)} for text, score in result.n_best]
        record: dict[str, Any] = {**n_best[0], "tokens": result.tokens}
        record |= {"confidence": rounded(result.confidence), "n_best": n_best}
        if body.tokens or body.attention:
            record["lines"] = [line_record(line, body.split, body.tokens) for line in result.lines]
        translations.append(record)
    return {
        "model": service.name,
        "source": service.source,
        "target": service.target,
        "translations": translations,
    }


async def _events(service: Service, body: TranslateBody, job: Job) -> AsyncIterator[str]:
    """The server-sent events of a job.

    A slow reader may miss partial results; ``done`` has the whole translation. Raises what
    ``Service.translate`` raises if that comes before the first event.
    """
    news: dict[int, str] = {}
    wake = asyncio.Event()

    def on_partial(index: int, text: str) -> None:
        news[index] = text
        wake.set()

    work = asyncio.ensure_future(service.translate(replace(job, on_partial=on_partial)))
    work.add_done_callback(lambda _: wake.set())
    has_begun = False
    try:
        while not work.done():
            await wake.wait()
            wake.clear()
            while news and not work.done():
                index = next(iter(news))
                yield _event("partial", {"index": index, "text": news.pop(index)})
                has_begun = True
        try:
            results = work.result()
            yield await asyncio.to_thread(lambda: _event("done", _answer(service, body, results)))
        except Exception as error:
            if not has_begun:
                raise
            request_error = as_request_error(error)
            service.metrics.rejection(request_error.code)
            yield _event("error", error_body("/v1/", request_error))
    finally:
        work.cancel()  # the client has left


async def _chain(first: str, others: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for event in others:
        yield event


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
