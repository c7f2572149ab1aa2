"""Documents in our own interface: the answer to a file is its translation."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mt.inference.number_forms import DECIMALS
from mt.serving.documents import Documents, Order
from mt.serving.requests import Strings, Terms, parse_text
from mt.serving.uploads import attachment, describe_upload, read_upload


def _object(value: Any) -> Any:
    """The object of a field, where it has JSON in it."""
    try:
        return parse_text(value or "{}") if isinstance(value, str) else value
    except ValueError:
        raise ValueError("must be an object in JSON") from None


def _texts(value: Any) -> Any:
    """The texts of a field, which may come several times."""
    texts = [value] if isinstance(value, str) else value
    return [text for text in texts if text] if isinstance(texts, list) else texts


Several = Annotated[Strings, BeforeValidator(_texts)]


class DocumentBody(BaseModel):
    """The fields of the form beside its file."""

    model_config = ConfigDict(extra="forbid")

    columns: Several = Field(
        [], description="of a table: the columns to translate, EN, or EN=DE to write them to DE"
    )
    split: bool = Field(True, description="whether sentences are translated one by one")
    glossary: Annotated[Terms, BeforeValidator(_object)] = Field(
        {}, description="as in /v1/translate, a JSON object"
    )
    keep: bool = Field(
        True, description="keep addresses, file names, placeholders, codes and numbers"
    )
    decimal: str = Field("either", description=f"how `keep` writes numbers: {', '.join(DECIMALS)}")
    forbidden: Several = Field([], description="phrases that must not come", max_length=50)


def make_router(documents: Documents) -> APIRouter:
    """The route of /v1 for documents."""
    router = APIRouter(prefix="/v1", tags=["v1"])
    service = documents.service

    @router.post(
        "/documents",
        summary="Translate a file",
        openapi_extra=describe_upload("/v1/documents", DocumentBody, {}),
        response_class=Response,
    )
    async def translate(request: Request) -> Response:
        service.check_authorization(request.scope)
        body, name, data = await read_upload(request, DocumentBody)
        terms = service.term_rules(body.glossary, body.keep, body.decimal, body.forbidden)
        order = Order(name, data, service.target, service.source, terms, body.split, body.columns)
        file = await documents.translate(order, documents.begin(order))
        return attachment(file.name, file.data, file.remarks)

    return router
