"""Version 2 of DeepL's interface for text, as its documentation and its clients have it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mt.serving.requests import Strings, Texts, bad_request, describe, read_body
from mt.serving.service import Service, language_name

CHARACTER_LIMIT = 10**12  # what DeepL says of an account without a limit

# A client of the form may send one, or several with commas between them.
Tags = Annotated[
    Strings,
    BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value),
]


UNSUPPORTED = (
    "glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions"
)  # fmt: skip


class Unsupported(BaseModel):
    """Fields that the server cannot serve: it refuses them, or they change nothing."""

    formality: Literal["default", "prefer_more", "prefer_less"] | None = Field(
        None, description="it changes nothing; more and less are not to be had"
    )
    glossary_id: str | None = None
    glossary_ids: Strings | str | None = None
    style_id: str | None = None
    translation_memory_id: str | None = None
    custom_instructions: Strings | None = None

    def check(self) -> None:
        """Raise RequestError for what cannot be done."""
        for name in UNSUPPORTED:
            if getattr(self, name):
                raise bad_request(f"{name}: this server cannot do that")


class TranslateBody(Unsupported):
    model_config = ConfigDict(
        coerce_numbers_to_str=True,
        json_schema_extra={"examples": [{"text": ["Where do you live?"], "target_lang": "DE"}]},
    )

    text: Texts = Field(description="in a form: repeated")
    target_lang: str
    source_lang: str | None = Field(None, description="detected if it is missing")
    split_sentences: Annotated[
        Literal["0", "1", "nonewlines"] | None,
        BeforeValidator(lambda value: str(int(value)) if isinstance(value, int) else value),
    ] = Field(
        None,
        description="1: at punctuation and line breaks (default for text); nonewlines: at "
        "punctuation, and line breaks become blanks; 0: not at all, and they become blanks",
    )
    tag_handling: Literal["html", "xml", ""] | None = None
    ignore_tags: Tags = Field([], description="XML elements whose content stays")
    show_billed_characters: bool = False
    model_type: Literal["latency_optimized", "prefer_quality_optimized"] | None = Field(
        None, description="there is one model; quality_optimized alone is not to be had"
    )
    preserve_formatting: bool = Field(False, description="it changes nothing")
    context: str | None = Field(None, description="it changes nothing")


class LanguagesBody(BaseModel):
    type: Literal["source", "target"] = "source"


def make_router(service: Service) -> APIRouter:
    """The routes of DeepL."""
    router = APIRouter(prefix="/v2", tags=["DeepL"])

    @router.post(
        "/translate",
        summary="Translate a text or several",
        openapi_extra=describe(
            "/v2/translate",
            TranslateBody,
            {"translations": [{"detected_source_language": "EN", "text": "Wo wohnst du?"}]},
            form=True,
        ),
    )
    async def translate(request: Request) -> dict[str, Any]:
        service.check_authorization(request.scope)
        return await _translate(service, await read_body(request, TranslateBody, form=True))

    @router.post("/languages", include_in_schema=False)
    @router.get("/languages", summary="The languages at hand")
    async def languages(request: Request) -> list[dict[str, Any]]:
        service.check_authorization(request.scope)
        body = await read_body(request, LanguagesBody, form=True)
        code = service.source if body.type == "source" else service.target
        language: dict[str, Any] = {"language": code.upper(), "name": language_name(code)}
        return [language | ({"supports_formality": False} if body.type == "target" else {})]

    @router.post("/usage", include_in_schema=False)
    @router.get("/usage", summary="Characters since the start")
    async def usage(request: Request) -> dict[str, int]:
        service.check_authorization(request.scope)
        return {"character_count": service.characters, "character_limit": CHARACTER_LIMIT}

    return router


async def _translate(service: Service, body: TranslateBody) -> dict[str, Any]:
    """The answer to a request. Raises RequestError for what cannot be done."""
    body.check()
    check_target(service, body.target_lang)
    texts = [body.text] if isinstance(body.text, str) else body.text
    service.check_texts(texts)
    sources = await _sources(service, body.source_lang, texts)
    todo = [text for text, code in zip(texts, sources, strict=True) if code != service.target]
    split = body.split_sentences != "0"
    if body.tag_handling:
        is_xml = body.tag_handling == "xml"
        ignored = body.ignore_tags if is_xml else []
        done = iter(await service.translate_markup(todo, ignored, split, is_xml))
    else:
        if body.split_sentences in ("0", "nonewlines"):  # a line break ends nothing
            todo = [" ".join(text.splitlines()) for text in todo]
        done = iter([best for best, *_ in await service.translate_texts(todo, split)])
    answers = []
    for text, code in zip(texts, sources, strict=True):
        answer: dict[str, Any] = {"detected_source_language": code.upper()}
        answer["text"] = text if code == service.target else next(done)
        if body.show_billed_characters:
            answer["billed_characters"] = len(text)
        if body.model_type:
            answer["model_type_used"] = "latency_optimized"
        answers.append(answer)
    return {"translations": answers}


def check_target(service: Service, code: str) -> None:
    """Raise RequestError for another target language."""
    if _base(code) != service.target.upper():
        raise bad_request("Value for 'target_lang' not supported.")


def known_source(service: Service, code: str) -> str:
    """One of the model's languages. Raises RequestError for another one."""
    for language in (service.source, service.target):
        if _base(code) == language.upper():
            return language
    raise bad_request("Value for 'source_lang' not supported.")


def _base(code: str) -> str:
    """The language of a code such as DE-AT."""
    return code.upper().partition("-")[0]


async def _sources(service: Service, code: str | None, texts: list[str]) -> list[str]:
    """The language of each text."""
    if not code:
        return [(await service.detector.language(text))[0] for text in texts]
    return [known_source(service, code)] * len(texts)
