"""Documents that are translated block by block, so many at once, within the server's limits."""

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

from mt.documents.archive import UNREAD_FORMATS, Archive, count_markup
from mt.documents.document import Document, DocumentError, Segment
from mt.documents.formats import EXTENSIONS, OPEN_DOCUMENT, extension_of, read_document
from mt.documents.tags import needs_links
from mt.inference.sentence_splitter import chunks
from mt.inference.terms import TermRules
from mt.serving.engine import DeadlineExceeded, Job, Overloaded, TextTranslation
from mt.serving.requests import RequestError, bad_request
from mt.serving.service import Service

# A block is one job of the engine. It leaves room in the queue for those of others.
BLOCK_TEXTS = 32
BLOCK_CHARACTERS = 4000
RETRY_SECONDS = 5  # at most, until a block that met a full queue comes again
# They bound the memory and the time to read a file: in the worst one each takes 1 KB and 50 µs.
MOST_UNPACKED = 50 * 2**20  # bytes of all parts of an archive
MOST_MARKUP = 500_000  # "<" and "=" in the parts of an archive
MOST_SIGNS = 100_000  # of markup in a text file, and its lines
MOST_CELLS = 1_000_000  # of a table; each takes 250 bytes and 5 µs
ARCHIVES = (".docx", ".pptx", *OPEN_DOCUMENT)
SIGN = re.compile(rb"[\n\r<>&*_`\[\]|~#]")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Order:
    """What a client asks for: the translation of the file ``name``."""

    name: str
    data: bytes
    target: str
    source: str | None = None  # to be detected
    terms: TermRules | None = None
    split: bool = True
    columns: Sequence[str] = ()


class TranslatedFile(NamedTuple):
    name: str
    data: bytes
    characters: int  # that were translated
    remarks: Sequence[str] = ()  # what the user should know about the file, each a line


@dataclass(eq=False)
class DocumentProgress:
    """How far a document is: ``done`` of its ``characters``, which are 0 while it is read."""

    characters: int = 0
    done: int = 0
    begun: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> int:
        """A guess from the time that the part before took."""
        if not self.done:
            return 10
        share_left = self.characters / self.done - 1
        return max(1, math.ceil(share_left * (time.monotonic() - self.begun)))


class _Piece(NamedTuple):
    """A text of at most BLOCK_CHARACTERS: a segment, mostly, or a part of it."""

    segment: Segment
    text: str
    is_last: bool


class Documents:
    """The documents of a server. At most ``limits.documents`` are under way."""

    def __init__(self, service: Service) -> None:
        self.service, self.limits = service, service.limits
        self._running: set[DocumentProgress] = set()
        # Own threads: one that reads a file goes on when its client leaves, and must be waited for.
        self._pool = ThreadPoolExecutor(self.limits.documents, "document")

    def begin(self, order: Order) -> DocumentProgress:
        """Take a place, which ``translate`` gives back; nothing may be awaited between them.

        Raises RequestError where there is none, for another kind of file and one that is too large.
        """
        extension = extension_of(order.name)
        if extension not in EXTENSIONS:
            better = UNREAD_FORMATS.get(extension)
            advice = f"save it as {better} first" if better else f"send {', '.join(EXTENSIONS)}"
            message = f"{order.name}: this kind of file is not read: {advice}"
            raise RequestError(415, "unsupported_media_type", message)
        if len(order.data) > self.limits.document_bytes:
            most = f"{self.limits.document_bytes:,}"
            raise _too_large(order, f"has {len(order.data):,} bytes: send at most {most}")
        if len(self._running) >= self.limits.documents:
            wait = min(60, min(progress.seconds_left for progress in self._running))
            message = f"the server is busy with other documents: try again in {wait} s"
            raise RequestError(429, "overloaded", message, {"Retry-After": str(wait)})
        progress = DocumentProgress()
        self._running.add(progress)
        return progress

    async def translate(self, order: Order, progress: DocumentProgress) -> TranslatedFile:
        """The translation. Raises RequestError, Overloaded or DeadlineExceeded."""
        try:
            working = self._translate(order, progress)
            return await asyncio.wait_for(working, self.limits.document_seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise DeadlineExceeded from None
        finally:
            self._running.discard(progress)

    async def _translate(self, order: Order, progress: DocumentProgress) -> TranslatedFile:
        document = await self._in_thread(order, partial(_read, order))
        segments = document.segments
        progress.characters = sum(len(segment.text) for segment in segments)
        if progress.characters > self.limits.document_characters:
            most = f"{self.limits.document_characters:,}"
            message = f"has {progress.characters:,} characters: send at most {most}"
            raise RequestError(413, "too_long", f"{order.name}: {message}")
        cut = len(order.name) - len(extension_of(order.name))
        name = f"{order.name[:cut]}.{order.target}{order.name[cut:]}"
        source = order.source
        if source is None:
            sample = " ".join(segment.text for segment in segments[:50])[:2000]
            source, _ = await self.service.detector.language(sample)
        if source == order.target:
            return TranslatedFile(name, order.data, 0)
        if order.target != self.service.target:
            raise bad_request(f"{order.target} is not available as a target language from {source}")
        translated = await self._translate_segments(order, segments, progress)
        data = await self._in_thread(order, partial(document.render, translated))
        return TranslatedFile(name, data, progress.characters, document.remarks)

    async def _translate_segments(
        self, order: Order, segments: Sequence[Segment], progress: DocumentProgress
    ) -> list[Segment]:
        translated: list[Segment] = []
        begun: list[TextTranslation] = []  # of the first pieces of a segment
        for block in _blocks(segments):
            attention = any(needs_links(piece.segment) for piece in block)
            texts = [piece.text for piece in block]
            results = await self._translate_block(order, texts, attention, progress)
            whole: list[tuple[Segment, TextTranslation]] = []
            for piece, result in zip(block, results, strict=True):
                begun.append(result)
                if piece.is_last:
                    whole.append((piece.segment, TextTranslation.joined(begun)))
                    begun = []
            translated += await self._in_thread(order, partial(_with_tags, whole))
            progress.done += sum(map(len, texts))
        return translated

    async def _translate_block(
        self, order: Order, texts: list[str], attention: bool, progress: DocumentProgress
    ) -> list[TextTranslation]:
        """The translations. Once a document has begun, it waits where the queue is full."""
        options = replace(self.service.engine.translator.options, attention=attention)
        job = Job(texts, options, order.split, terms=order.terms)
        while True:
            try:
                return await self.service.translate(job, self.limits.document_seconds)
            except Overloaded as error:
                if not progress.done:
                    raise
                await asyncio.sleep(min(error.retry_after, RETRY_SECONDS))

    async def _in_thread(self, order: Order, function: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function)
        except DocumentError as error:
            raise RequestError(400, "bad_document", f"{order.name}: {error}") from None


def _read(order: Order) -> Document:
    """Raises DocumentError, and RequestError for a file that would take too long to read."""
    if extension_of(order.name) in ARCHIVES:
        archive = Archive(order.data, MOST_UNPACKED)
        contents = map(archive.read, archive.names)
        signs = sum(map(count_markup, contents))
        most = MOST_MARKUP
    else:
        signs, most = len(SIGN.findall(order.data)), MOST_SIGNS
    counts = [(signs, most, "pieces of markup")]
    if extension_of(order.name) in (".csv", ".tsv"):
        counts.append((max(map(order.data.count, b",;\t")), MOST_CELLS, "cells"))
    for number, most, what in counts:
        if number > most:
            message = f"has {number:,} {what}, more than {most:,}: cut it into several files"
            raise _too_large(order, message)
    try:
        return read_document(order.name, order.data, order.columns)
    except DocumentError:
        raise
    except ValueError as error:  # a package is missing
        raise RequestError(501, "not_installed", f"this server cannot do that: {error}") from None


def _with_tags(pairs: Sequence[tuple[Segment, TextTranslation]]) -> list[Segment]:
    return [translation.with_tags(segment) for segment, translation in pairs]


def _too_large(order: Order, message: str) -> RequestError:
    return RequestError(413, "too_large", f"{order.name}: {message}")


def _blocks(segments: Sequence[Segment]) -> Iterator[list[_Piece]]:
    block: list[_Piece] = []
    size = 0
    for segment in segments:
        texts = chunks(segment.text, BLOCK_CHARACTERS)
        for number, text in enumerate(texts, 1):
            if len(block) == BLOCK_TEXTS or (block and size + len(text) > BLOCK_CHARACTERS):
                yield block
                block, size = [], 0
            block.append(_Piece(segment, text, number == len(texts)))
            size += len(text)
    if block:
        yield block
