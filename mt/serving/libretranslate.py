"""LibreTranslate's interface, as its documentation and its clients have it."""

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from mt.documents.formats import EXTENSIONS, TABLES
from mt.serving.requests import Texts, bad_request, describe, read_body
from mt.serving.service import Service, language_name


class TranslateBody(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"q": "Where do you live?", "source": "en", "target": "de"}]
        }
    )

    q: Texts = Field(description="the text, or several")
    source: str = Field(description="language code, or auto")
    target: str = Field(description="language code")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="how many other translations to add")
    api_key: str | None = None


class DetectBody(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"q": "Where do you live?"}]})

    q: str
    api_key: str | None = None


def make_router(service: Service) -> APIRouter:
    """The routes of LibreTranslate."""
    router = APIRouter(tags=["LibreTranslate"])
    source, target = service.source, service.target
    names = [{"code": code, "name": language_name(code)} for code in (source, target)]
    # As in LibreTranslate a language is among its own targets.
    languages = [names[0] | {"targets": [target, source]}, names[1] | {"targets": [target]}]
    limits = service.limits

    @router.post(
        "/translate",
        summary="Translate a text or several",
        openapi_extra=describe(
            "/translate",
            TranslateBody,
            {"translatedText": "Wo wohnst du?", "alternatives": ["Wo leben Sie?"]},
            form=True,
        ),
    )
    async def translate(request: Request) -> dict[str, Any]:
        return await _translate(service, await read_body(request, TranslateBody, form=True))

    @router.post(
        "/detect",
        summary="Which of the model's languages a text is in",
        openapi_extra=describe("/detect", DetectBody, [_confidence("en", 0.98)], form=True),
    )
    async def detect(request: Request) -> list[dict[str, Any]]:
        body = await read_body(request, DetectBody, form=True)
        service.check_key(body.api_key, 403)
        if not body.q:
            raise bad_request("q: is empty")
        service.check_texts([body.q])
        return [_confidence(*pair) for pair in await service.detector.rank(body.q)]

    @router.post("/languages", include_in_schema=False)  # as libretranslatepy 2.1.0 asks
    @router.get("/languages", summary="The languages and their targets")
    async def list_languages() -> list[dict[str, Any]]:
        return languages

    @router.get("/frontend/settings", summary="Settings for a page")
    async def settings() -> dict[str, Any]:
        return {
            "charLimit": limits.characters,
            "frontendTimeout": 500,
            "apiKeys": bool(service.keys),
            "keyRequired": bool(service.keys),
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": [e for e in EXTENSIONS if e not in TABLES],
            "language": dict(zip(("source", "target"), names, strict=True)),
        }

    return router


async def _translate(service: Service, body: TranslateBody) -> dict[str, Any]:
    """The answer to a request. Raises RequestError for what makes no sense."""
    service.check_key(body.api_key, 403)
    if not body.q:
        raise bad_request("q: is empty")
    if body.alternatives > service.limits.alternatives:
        raise bad_request(f"alternatives: at most {service.limits.alternatives} can be had")
    texts = [body.q] if isinstance(body.q, str) else body.q
    service.check_texts(texts)
    target_language = known_language(service, body.target)
    detected = None
    if body.source == "auto":
        detected = [await service.detector.language(text) for text in texts]
        sources = [language for language, _ in detected]
    else:
        sources = [known_language(service, body.source)] * len(texts)
    for language in sources:
        if target_language not in (language, service.target):
            raise bad_request(
                f"{language_name(target_language)} ({target_language}) is not available as a "
                f"target language from {language_name(language)} ({language})"
            )
    todo = [text for text, code in zip(texts, sources, strict=True) if code != target_language]
    if body.format == "html":
        done = iter([[text] for text in await service.translate_markup(todo)])
    else:
        done = iter(await service.translate_texts(todo, alternatives=body.alternatives))
    pairs = zip(texts, sources, strict=True)
    results = [[text] if code == target_language else next(done) for text, code in pairs]

    answer: dict[str, Any] = {"translatedText": [best for best, *_ in results]}
    if body.alternatives:
        answer["alternatives"] = [others[: body.alternatives] for _, *others in results]
    if detected:
        answer["detectedLanguage"] = [_confidence(*pair) for pair in detected]
    if isinstance(body.q, str):
        answer = {name: several[0] for name, several in answer.items()}
    return answer


def known_language(service: Service, code: str) -> str:
    """One of the model's languages. A region, as in en-US, does not matter."""
    language = code.lower().replace("_", "-").partition("-")[0]
    for known in (service.source, service.target):
        if language == known.lower():
            return known
    raise bad_request(f"{code[:20]} is not supported")


def _confidence(language: str, probability: float) -> dict[str, Any]:
    return {"confidence": round(100 * probability, 1), "language": language}
