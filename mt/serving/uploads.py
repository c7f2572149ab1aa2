"""Requests with a file, and answers that are one."""

import codecs
import json
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.datastructures import UploadFile

from mt.documents.formats import extension_of
from mt.serving.requests import (
    MOST_FIELDS,
    MULTIPART,
    RequestError,
    bad_request,
    describe,
    media_type,
    read_fields,
    read_multipart,
)
from mt.utils.checks import printable

NUMBER = [{"name": "number", "in": "path", "required": True, "schema": {"type": "string"}}]
REMARKS = "Mt-Remarks"  # a header: a list of texts in JSON
MOST_REMARKS = 10
MEDIA_TYPES = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odp": "application/vnd.oasis.opendocument.presentation",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".txt": "text/plain",
    ".srt": "application/x-subrip",
    ".vtt": "text/vtt",
    ".po": "text/x-gettext-translation",
    ".pot": "text/x-gettext-translation-template",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".jsonl": "application/jsonl",
}

Body = TypeVar("Body", bound=BaseModel)


async def read_upload(request: Request, model: type[Body]) -> tuple[Body, str, bytes]:
    """The fields of a form, the name of its file and what the file holds.

    Raises RequestError for what is no form, has no file ``file`` or does not fit the model.
    """
    if media_type(request) != MULTIPART:
        message = f"send the request with Content-Type: {MULTIPART}"
        raise RequestError(415, "unsupported_media_type", message)
    items = await read_multipart(request, MOST_FIELDS)
    files = {key: item for key, item in items if isinstance(item, UploadFile)}
    if "file" in files:
        if other := [key for key in files if key != "file"]:
            raise bad_request(f"{printable(other[0], 50)}: must be text, not a file")
        if sum(key == "file" for key, _ in items) > 1:
            raise bad_request("file: send one file a request")
    if any(key == "file" and isinstance(item, str) for key, item in items):
        raise bad_request("file: must be a file of the form, with its name")
    fields = read_fields([(key, item) for key, item in items if isinstance(item, str)], model)
    path = (files["file"].filename or "") if "file" in files else ""
    name = PurePosixPath(path.replace("\\", "/")).name
    if not name:
        raise bad_request("file: is missing, or has no name")
    data = await files["file"].read()
    cut = len(name) - len(extension_of(name))
    return fields, printable(name[:cut], 150) + printable(name[cut:], 20), data


def attachment(name: str, data: bytes, remarks: Sequence[str] = ()) -> Response:
    """The answer that is a file to be saved; a header has the ``remarks`` on it."""
    plain = re.sub(r"[^ !#$&-:<-\[\]-~]", "_", name)  # for programs that know no other form
    saved = f'filename="{plain}"'
    if plain != name:
        saved += f"; filename*=utf-8''{quote(name)}"
    headers = {
        # In the headers, since Response would add a charset of its own.
        "Content-Type": MEDIA_TYPES[extension_of(name)] + _charset(name, data),
        "Content-Disposition": f"attachment; {saved}",
    }
    if remarks:
        shown = [printable(remark, 200) for remark in remarks[:MOST_REMARKS]]
        headers[REMARKS] = json.dumps(shown)  # in ASCII, as headers are
    return Response(data, headers=headers)


def _charset(name: str, data: bytes) -> str:
    """The parameter of a text's type: without it some clients take it for Latin-1.

    A page in another encoding names it itself.
    """
    if not MEDIA_TYPES[extension_of(name)].startswith("text/"):
        return ""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "; charset=utf-16"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return "; charset=utf-8"


def describe_upload(path: str, model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of an operation that ``read_upload`` reads.

    It answers with JSON like ``example`` or, where that is empty, with a file.
    """
    described = describe(path, model, example, form=True)
    schema = model.model_json_schema()
    schema["properties"] = {"file": {"type": "string", "format": "binary"}} | schema["properties"]
    schema["required"] = ["file", *schema.get("required", [])]
    described["requestBody"]["content"] = {MULTIPART: {"schema": schema}}
    described["responses"]["501"] = {"description": "A package for this kind of file is missing"}
    if not example:
        described["responses"]["200"]["content"] = file_content()
    return described


def file_content() -> dict[str, Any]:
    """What OpenAPI says of an answer that is a file."""
    return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
