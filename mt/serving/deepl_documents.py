"""Version 2 of DeepL's interface for documents: a file is sent, asked for, and fetched once."""

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from mt.inference.terms import TermRules
from mt.serving.deepl import Unsupported, check_target, known_source
from mt.serving.documents import Documents, Order
from mt.serving.kept_documents import KeptDocument, KeptDocuments
from mt.serving.requests import RequestError, bad_request, describe, read_body
from mt.serving.uploads import NUMBER, attachment, describe_upload, file_content, read_upload

UNKNOWN = "there is no such document, or no longer"
FAILED = "It could not be translated; the message says why"
NOT_READY = "the document is not translated yet: ask for its status"
WAIT_SECONDS = 1  # for a short document: the client that is told to wait comes again after 5 s


class DocumentBody(Unsupported):
    """The fields of the form beside its file."""

    target_lang: str
    source_lang: str | None = Field(None, description="detected if it is missing")
    output_format: str | None = Field(None, description="it must be that of the file")


class KeyBody(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"document_key": "KEY"}]})

    document_key: str


def described(path: str, example: dict[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of an operation on a document that was sent before."""
    content: dict[str, Any] = describe(path, KeyBody, example, form=True)
    content["responses"]["404"] = {"description": UNKNOWN}
    return {"parameters": NUMBER} | content


def make_router(documents: Documents, kept: KeptDocuments) -> APIRouter:
    """The routes of DeepL for documents."""
    router = APIRouter(prefix="/v2/document", tags=["DeepL"])
    service = documents.service

    @router.post(
        "",
        summary="Translate a document",
        openapi_extra=describe_upload(
            "/v2/document", DocumentBody, {"document_id": "ID", "document_key": "KEY"}
        ),
    )
    async def upload(request: Request) -> dict[str, Any]:
        service.check_authorization(request.scope)
        body, name, data = await read_upload(request, DocumentBody)
        body.check()
        check_target(service, body.target_lang)
        source = known_source(service, body.source_lang) if body.source_lang else None
        if body.output_format and not name.lower().endswith(f".{body.output_format.lower()}"):
            raise bad_request("output_format: must be that of the file")
        order = Order(name, data, service.target, source, TermRules(keep=True))
        document_id, key = kept.start(order)
        return {"document_id": document_id, "document_key": key}

    @router.post(
        "/{number}",
        summary="How far a document is",
        openapi_extra=described(
            "/v2/document/ID", {"document_id": "ID", "status": "done", "billed_characters": 1200}
        ),
    )
    async def status(request: Request) -> dict[str, Any]:
        document_id, document = await _find(request)
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(document.finished.wait(), WAIT_SECONDS)
        answer: dict[str, Any] = {"document_id": document_id}
        if document.error:
            return answer | {"status": "error", "error_message": document.error}
        if document.file:
            return answer | {"status": "done", "billed_characters": document.file.characters}
        if not document.progress.characters:
            return answer | {"status": "queued"}
        seconds_left = document.progress.seconds_left
        return answer | {"status": "translating", "seconds_remaining": seconds_left}

    of_result = described("/v2/document/ID/result", {})
    of_result["responses"]["200"]["content"] = file_content()
    of_result["responses"]["400"]["description"] = FAILED
    of_result["responses"]["503"] = {"description": NOT_READY}

    @router.post(
        "/{number}/result",
        summary="Fetch a translated document, once",
        openapi_extra=of_result,
        response_class=Response,
    )
    async def result(request: Request) -> Response:
        document_id, document = await _find(request)
        if document.error:
            raise bad_request(document.error)
        if document.file is None:
            raise RequestError(503, "not_ready", NOT_READY)
        kept.remove(document_id)
        return attachment(document.file.name, document.file.data)

    async def _find(request: Request) -> tuple[str, KeptDocument]:
        service.check_authorization(request.scope)
        body = await read_body(request, KeyBody, form=True)
        document_id = request.path_params["number"]
        document = kept.get(document_id)
        if document is None or not document.opens_with(body.document_key):
            raise RequestError(404, "not_found", UNKNOWN)
        return document_id, document

    return router
