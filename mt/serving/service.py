"""What the interfaces have in common: the engine, the limits and the keys of a server."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from starlette.types import Scope

from mt.documents.html import HtmlDocument
from mt.documents.tags import needs_links
from mt.inference.glossary import Glossary
from mt.inference.options import SearchOptions
from mt.inference.terms import TermRules
from mt.inference.translator import Translator
from mt.serving.detection import Detector
from mt.serving.engine import DeadlineExceeded, Engine, Job, Overloaded, TextTranslation
from mt.serving.limits import ApiKeys, Limits
from mt.serving.metrics import Metrics
from mt.serving.requests import RequestError, bad_request

NAMES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian"}
# Where the header Authorization has the key: its scheme, and the status without a valid one
SCHEMES = {"/v1/": ("bearer", 401), "/v2/": ("deepl-auth-key", 403)}


class Service:
    """One server's engine and rules. ``ready`` is whether it takes requests."""

    def __init__(self, engine: Engine, limits: Limits, keys: ApiKeys, metrics: Metrics) -> None:
        self.engine, self.limits, self.keys, self.metrics = engine, limits, keys, metrics
        self.ready = False
        self.inspect_characters = 0  # of the longest sentence that /inspect takes; 0: there is none
        self.characters = 0  # of all texts that were translated since the start
        self.source, self.target = engine.translator.languages
        self.detector = Detector(self.source, self.target)
        self.name = shown_name(engine.translator)

    def check_key(self, key: str | None, status: int) -> None:
        """Raise RequestError unless the server has no keys or this is one of them."""
        if self.keys and not self.keys.allow(key or ""):
            message = "this API key is not valid" if key else "this server wants an API key"
            challenge = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
            raise RequestError(status, "unauthorized", message, challenge)

    def check_authorization(self, scope: Scope) -> None:
        """Raise RequestError for a request to /v1 or /v2 without a valid key in its header."""
        path, headers = scope["path"], dict(scope["headers"])
        scheme, status = next(
            authorization for start, authorization in SCHEMES.items() if path.startswith(start)
        )
        auth_scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        self.check_key(key.strip() if auth_scheme.lower() == scheme else None, status)

    def check_texts(self, texts: Sequence[str], prefixes: Sequence[str] = ()) -> None:
        """Raise RequestError for no text, for too many, and for too many characters in all."""
        if not texts:
            raise bad_request("there is no text: give at least one")
        if len(texts) > self.limits.texts:
            message = f"{len(texts):,} texts are too many: send at most {self.limits.texts:,}"
            raise RequestError(400, "too_many_texts", message)
        characters = sum(map(len, texts)) + sum(map(len, prefixes))
        if characters > self.limits.characters:
            message = (
                f"{characters:,} characters are too many for one request: "
                f"send at most {self.limits.characters:,}"
            )
            raise RequestError(413, "too_long", message)

    async def translate(self, job: Job, seconds: float | None = None) -> list[TextTranslation]:
        """The translations of a job, which has the time of a request unless ``seconds`` are given.

        Raises RequestError, Overloaded or DeadlineExceeded.
        """
        try:
            results = await self.engine.translate(job, seconds or self.limits.deadline_seconds)
        except ValueError as error:
            raise bad_request(str(error)) from None
        self.characters += sum(map(len, job.texts))
        return results

    async def translate_texts(
        self, texts: Sequence[str], split: bool = True, alternatives: int = 0
    ) -> list[list[str]]:
        """The translation of each text, then up to ``alternatives`` different ones of it."""
        if not texts:
            return []
        defaults = self.engine.translator.options
        width = max(defaults.width, alternatives + 1) if alternatives else defaults.beam_size
        options = replace(defaults, beam_size=width, n_best=alternatives + 1)
        results = await self.translate(Job(texts, options, split, terms=TermRules(keep=True)))
        return [list(dict.fromkeys(text for text, _ in result.n_best)) for result in results]

    async def translate_markup(
        self,
        documents: Sequence[str],
        ignored_tags: Sequence[str] = (),
        split: bool = True,
        is_xml: bool = False,
    ) -> list[str]:
        """The documents with their text translated and everything else as it was."""
        # In threads: thousands of tags take a second.
        parsed = await asyncio.to_thread(
            lambda: [HtmlDocument(text, ignored_tags, is_xml=is_xml) for text in documents]
        )
        segments = [segment for document in parsed for segment in document.segments]
        results: list[TextTranslation] = []
        if segments:
            attention = any(map(needs_links, segments))
            options = replace(self.engine.translator.options, attention=attention)
            texts = [segment.text for segment in segments]
            results = await self.translate(Job(texts, options, split, terms=TermRules(keep=True)))

        def render() -> list[str]:
            translated = iter([
                result.with_tags(segment) for segment, result in zip(segments, results, strict=True)
            ])  # fmt: skip
            return [d.render_text(list(islice(translated, len(d.segments)))) for d in parsed]

        return await asyncio.to_thread(render)

    def term_rules(
        self,
        glossary: Mapping[str, str | Sequence[str]],
        keep: bool,
        decimal: str,
        forbidden: Sequence[str],
    ) -> TermRules | None:
        """What translations must have and must not have. Raises RequestError for what is wrong."""
        if decimal != "either" and not keep:
            raise bad_request("decimal says how keep writes numbers: it needs keep and beam search")
        entries = [
            (source, [targets] if isinstance(targets, str) else targets)
            for source, targets in glossary.items()
        ]
        characters = sum(len(source) + sum(map(len, targets)) for source, targets in entries)
        characters += sum(map(len, forbidden))
        if characters > self.limits.characters:
            message = f"the terms have {characters:,} characters: send at most"
            raise RequestError(413, "too_long", f"{message} {self.limits.characters:,}")
        try:
            loaded = Glossary(entries, inflect=self.target == "de")
            return TermRules(loaded or None, keep, decimal, tuple(forbidden)) or None
        except ValueError as error:
            raise bad_request(str(error)) from None

    def limit_options(self, options: SearchOptions) -> None:
        """Raise RequestError for options beyond the limits."""
        most = {
            "n_best": self.limits.alternatives,
            "alternatives": self.limits.alternatives,
            "beam_size": max(self.limits.beam_size, self.engine.translator.options.beam_size),
            "samples": self.limits.samples,
            "min_length": self.limits.max_length,
            "max_length": self.limits.max_length,
        }
        for name, limit in most.items():
            if (getattr(options, name) or 0) > limit:
                raise bad_request(f"{name}: this server allows at most {limit:,}")


def shown_name(translator: Translator) -> str:
    """The last part of each model's path, of a run's model the run's: clients must not see more."""
    return " + ".join(map(_last_name, translator.name.split(" + ")))


def _last_name(model: str) -> str:
    path = Path(model)
    run = path.resolve().parent
    return run.name if path.name == "model" and (run / "config.yaml").is_file() else path.name


def as_request_error(error: Exception) -> RequestError:
    """What to tell the client of an error."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, Overloaded):
        wait = {"Retry-After": str(error.retry_after)}
        return RequestError(429, "overloaded", f"the server is busy: {error}", wait)
    if isinstance(error, DeadlineExceeded):
        message = (
            "the translation took longer than the server allows: send a shorter text, or try "
            "again later if the server is busy"
        )
        return RequestError(504, "deadline_exceeded", message)
    return RequestError(500, "internal", "the server made a mistake, which its log describes")


def language_name(code: str) -> str:
    return NAMES.get(code, code)
