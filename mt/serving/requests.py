"""What the interfaces share: how a request is read, and what an error looks like in each."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from mt.utils.checks import printable
from mt.utils.json_io import parse_json

MOST_FIELDS = 1000  # of a form
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
SLICE = 2**16  # bytes of a form that are parsed at once: others want to be answered
DOCUMENT_PATHS = ("/v1/documents", "/v2/document", "/translate_file")  # whose body is a file

Body = TypeVar("Body", bound=BaseModel)


def worded(message: str) -> WrapValidator:
    """A check that says what a field must be: pydantic speaks of the parts of a type."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            if error.errors()[0]["type"] == "too_long":
                raise
            raise ValueError(message) from None

    return WrapValidator(check)


# A body has room for 60,000 mistakes: the first one suffices.
Strings = Annotated[list[str], Field(fail_fast=True), worded("must be a list of strings")]
Texts = Annotated[str | Strings, worded("must be a string or a list of strings")]


def _check_terms(value: Any) -> Any:
    """A plain loop: pydantic would collect the mistakes of thousands of terms."""
    if not isinstance(value, dict) or not all(
        isinstance(translation, str) or _are_strings(translation) for translation in value.values()
    ):
        raise ValueError(
            "must be an object with the translation of each term, a string or a list of strings"
        )
    return value


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


Terms = Annotated[dict[str, str | list[str]], Field(max_length=200), BeforeValidator(_check_terms)]
REASONS = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "too_long": "at most {max_length} are allowed",
    **dict.fromkeys(("string_type", "string_unicode"), "must be a string"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
}


class RequestError(Exception):
    """A request that is not served: ``code`` is for programs, the message is one kind sentence."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})


def bad_request(message: str) -> RequestError:
    return RequestError(400, "bad_request", message)


def interface_of(path: str) -> str:
    """The interface to which a path belongs."""
    for prefix, name in {
        **dict.fromkeys(DOCUMENT_PATHS, "documents"),  # they take minutes, the others do not
        "/download_file/": "documents",
        "/v1/": "v1",
        "/v2/": "deepl",
        "/translate": "libretranslate",
        "/languages": "libretranslate",
        "/detect": "libretranslate",
        "/frontend/": "libretranslate",
        "/health/": "health",
        "/metrics": "metrics",
    }.items():
        if path.startswith(prefix):
            return name
    return "page"


def error_body(path: str, error: RequestError) -> dict[str, Any]:
    """The error as the clients of this interface expect it."""
    if path.startswith("/v1/"):
        return {"error": {"code": error.code, "message": error.message}}
    return {"message" if path.startswith("/v2/") else "error": error.message}


def error_response(path: str, error: RequestError) -> JSONResponse:
    return JSONResponse(error_body(path, error), error.status, error.headers)


async def read_body(request: Request, model: type[Body], form: bool) -> Body:
    """The body of a request: JSON or, with ``form``, also a form or the query.

    Raises RequestError for what is none of these or does not fit the model.
    """
    return _fit(await _values(request, form), model)


def read_fields(pairs: Sequence[tuple[str, str]], model: type[Body]) -> Body:
    """The fields of a form. Raises RequestError for what does not fit the model."""
    return _fit(_gather(pairs), model)


def parse_text(text: str) -> Any:
    """JSON whose texts can be written. Raises ValueError."""
    values = parse_json(text)
    if re.search(r"\\u[dD][89a-fA-F]", text):  # half a surrogate pair is no character
        json.dumps(values, ensure_ascii=False).encode()
    return values


def _fit(values: dict[str, Any], model: type[Body]) -> Body:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise bad_request(_sentence(error)) from None


async def read_plain(request: Request) -> bytes:
    """The body as it was sent. Raises RequestError for a compressed one."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        message = f"Content-Encoding: {printable(encoding, 30)} is not read here"
        raise RequestError(415, "unsupported_media_type", f"{message}: send the body as it is")
    return await request.body()


def media_type(request: Request) -> str:
    """The kind of a body by its header, in small letters and without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _values(request: Request, form: bool) -> dict[str, Any]:
    kind = media_type(request)
    body = await read_plain(request)
    if kind == "application/json":
        try:
            values = parse_text(body.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            reason = "a number is too long" if "set_int_max" in str(error) else error
            raise bad_request(f"the body cannot be read as JSON in UTF-8: {reason}"[:300]) from None
        if not isinstance(values, dict):
            raise bad_request("the body must be a JSON object")
        return values
    pairs = list(request.query_params.multi_items())
    if form and kind == MULTIPART:
        pairs += [(k, v) for k, v in await read_multipart(request, 0) if isinstance(v, str)]
    elif form and kind == FORM:
        try:
            text = body.decode()
            pairs += parse_qsl(text, True, errors="strict", max_num_fields=MOST_FIELDS)
        except ValueError as error:
            raise bad_request(f"the body is not a form in UTF-8: {error}") from None
    elif body or not form:
        kinds = f"application/json or {FORM}" if form else "application/json"
        message = f"send the request with Content-Type: {kinds}"
        raise RequestError(415, "unsupported_media_type", message)
    return _gather(pairs)


class InMemoryParser(MultiPartParser):
    """A form whose file is never written to the disk, whatever its size."""

    spool_max_size = 2**40


async def read_multipart(request: Request, most_files: int) -> list[tuple[str, str | UploadFile]]:
    """The fields and files of a form in several parts. Raises RequestError for what is none."""
    kind = request.headers.get("content-type", "")
    # Starlette would decode by a charset, which may be any of Python's.
    kind = re.sub(r";\s*charset\s*=[^;]*", "", kind, flags=re.IGNORECASE)
    parser = InMemoryParser(
        Headers({"content-type": kind}), _slices(await read_plain(request)),
        max_files=most_files, max_fields=MOST_FIELDS, max_part_size=2**20,
    )  # fmt: skip
    try:
        return (await parser.parse()).multi_items()
    except MultiPartException as error:
        raise bad_request(f"the form cannot be read: {error.message}"[:300]) from None


async def _slices(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), SLICE):
        yield body[start : start + SLICE]
        await asyncio.sleep(0)


def _gather(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form; one that comes several times is a list."""
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: several[0] if len(several) == 1 else several for key, several in values.items()}


def _sentence(error: ValidationError) -> str:
    """The first mistake in one sentence, which does not repeat what the client sent."""
    [first, *_] = error.errors(include_url=False, include_input=False)
    place = first["loc"][0] if first["loc"] else "the body"
    reason = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if template := REASONS.get(first["type"]):
        reason = template.format(**first.get("ctx", {}))
    return f"{place}: {reason}"[:300]


def describe(
    path: str, model: type[BaseModel], example: dict[str, Any] | list[Any], form: bool
) -> dict[str, Any]:
    """What OpenAPI says of an operation: the body that ``read_body`` reads, and the answers."""
    schema = {"schema": model.model_json_schema()}
    kinds = ("application/json", FORM, MULTIPART) if form else ("application/json",)
    responses: dict[str, Any] = {
        "200": {"description": "Done", "content": {"application/json": {"example": example}}}
    }
    for status, reason in {
        400: "The request makes no sense; the message says why",
        401 if path.startswith("/v1/") else 403: "No valid key",
        408: "The request took too long to arrive",
        413: "Too many bytes or characters",
        415: "A kind of body that is not read here",
        429: "Busy: try again after the seconds in Retry-After",
        504: "The translation took too long",
    }.items():
        error = error_body(path, RequestError(status, "a_word", "one sentence"))
        content = {"application/json": {"example": error}}
        responses[str(status)] = {"description": reason, "content": content}
    body = {"required": True, "content": dict.fromkeys(kinds, schema)}
    return {"requestBody": body, "responses": responses}
