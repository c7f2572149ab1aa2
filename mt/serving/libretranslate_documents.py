"""LibreTranslate's interface for files: a file is translated, then fetched."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from mt.inference.terms import TermRules
from mt.serving.documents import Documents, Order
from mt.serving.kept_documents import KeptDocuments
from mt.serving.libretranslate import known_language
from mt.serving.requests import RequestError
from mt.serving.uploads import NUMBER, attachment, describe_upload, file_content, read_upload


class FileBody(BaseModel):
    source: str = Field(description="language code, or auto")
    target: str = Field(description="language code")
    api_key: str | None = None


def make_router(documents: Documents, kept: KeptDocuments) -> APIRouter:
    """The routes of LibreTranslate for files."""
    router = APIRouter(tags=["LibreTranslate"])
    service = documents.service

    @router.post(
        "/translate_file",
        summary="Translate a file",
        openapi_extra=describe_upload(
            "/translate_file", FileBody, {"translatedFileUrl": "http://host/download_file/ID"}
        ),
    )
    async def translate(request: Request) -> dict[str, Any]:
        body, name, data = await read_upload(request, FileBody)
        service.check_key(body.api_key, 403)
        target = known_language(service, body.target)
        source = None if body.source == "auto" else known_language(service, body.source)
        order = Order(name, data, target, source, TermRules(keep=True))
        progress = documents.begin(order)
        document_id = kept.add(progress, await documents.translate(order, progress))
        return {"translatedFileUrl": str(request.url_for("download", number=document_id))}

    @router.get(
        "/download_file/{number}",
        summary="Fetch a translated file",
        response_class=Response,
        openapi_extra={
            "parameters": NUMBER,
            "responses": {
                "200": {"description": "Done", "content": file_content()},
                "404": {"description": "There is no such file, or no longer"},
            },
        },
    )
    async def download(request: Request) -> Response:
        document = kept.get(request.path_params["number"])
        if document is None or document.file is None:
            raise RequestError(404, "not_found", "there is no such file, or no longer")
        return attachment(document.file.name, document.file.data)

    return router
