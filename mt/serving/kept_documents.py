"""Documents whose translations are fetched later, as the clients of other interfaces want it.

They are in memory only, and not for long.
"""

import asyncio
import hmac
import logging
import secrets
from dataclasses import dataclass, field

from mt.serving.documents import DocumentProgress, Documents, Order, TranslatedFile
from mt.serving.service import as_request_error

log = logging.getLogger(__name__)

KEPT_SECONDS = 15 * 60  # of a translation that is not fetched
KEPT_BYTES = 64 * 2**20  # of all translations; beyond it the oldest goes
KEPT_FILES = 200


@dataclass(eq=False)
class KeptDocument:
    """A document under way or, when it is finished, its ``file``, or an ``error`` in one line."""

    progress: DocumentProgress
    key: str
    file: TranslatedFile | None = None
    error: str = ""
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def opens_with(self, key: str) -> bool:
        """How long this takes tells nothing about the right key."""
        return hmac.compare_digest(key.encode("utf-8", "replace"), self.key.encode())


class KeptDocuments:
    """The documents of a server by their ids, which nobody can guess."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._kept: dict[str, KeptDocument] = {}  # in the order of time
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, document_id: str) -> KeptDocument | None:
        return self._kept.get(document_id)

    def remove(self, document_id: str) -> None:
        self._kept.pop(document_id, None)

    def add(self, progress: DocumentProgress, file: TranslatedFile) -> str:
        """Keep a translation; returns its id."""
        document_id = self._new(progress)
        self._finish(document_id, file)
        return document_id

    def start(self, order: Order) -> tuple[str, str]:
        """Begin to translate a document; returns its id and key. Raises as ``Documents.begin``."""
        progress = self._documents.begin(order)
        document_id = self._new(progress)
        task = asyncio.create_task(self._work(document_id, order, progress))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return document_id, self._kept[document_id].key

    def stop(self) -> None:
        """Drop everything."""
        for task in self._tasks:
            task.cancel()
        self._kept.clear()

    def _new(self, progress: DocumentProgress) -> str:
        document_id = secrets.token_hex(16).upper()
        self._kept[document_id] = KeptDocument(progress, secrets.token_hex(32).upper())
        return document_id

    async def _work(self, document_id: str, order: Order, progress: DocumentProgress) -> None:
        try:
            self._finish(document_id, await self._documents.translate(order, progress))
        except Exception as error:
            request_error = as_request_error(error)
            if request_error.status == 500:
                log.exception("a document failed")
            self._documents.service.metrics.rejection(request_error.code)
            self._finish(document_id, error=request_error.message)

    def _finish(
        self, document_id: str, file: TranslatedFile | None = None, error: str = ""
    ) -> None:
        kept = self._kept.pop(document_id)  # it becomes the newest
        kept.file, kept.error = file, error
        kept.finished.set()
        self._kept[document_id] = kept
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self.remove, document_id)
        sizes = {
            old: len(other.file.data) if other.file else 0
            for old, other in self._kept.items()
            if other.finished.is_set()
        }
        for old in list(sizes)[:-1]:
            if len(sizes) <= KEPT_FILES and sum(sizes.values()) <= KEPT_BYTES:
                break
            self.remove(old)
            del sizes[old]
