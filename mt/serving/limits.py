"""What a client may ask of the server, and the keys that let it in."""

import codecs
import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field, fields
from typing import Any

from mt.utils.checks import check_int, check_positive
from mt.utils.json_io import read_regular

MOST_KEY_BYTES = 2**20  # of the file with the keys


def _limit(default: float, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Limits:
    """All limits of a server. Raises ValueError for a value that makes no sense."""

    body_bytes: int = _limit(128 * 1024, "bytes of a request's body")
    texts: int = _limit(50, "texts of a request")
    characters: int = _limit(20_000, "characters of all texts of a request")
    alternatives: int = _limit(10, "alternatives that a request may ask for")
    beam_size: int = _limit(16, "hypotheses of a sentence that a request may ask for")
    samples: int = _limit(16, "samples of a sentence that a request may ask for")
    max_length: int = _limit(500, "tokens that a request may ask a translation to have")
    queue_sentences: int = _limit(1000, "sentences that may wait for their turn")
    queue_requests: int = _limit(256, "requests that may wait or be under way")
    connections: int = _limit(2000, "open connections")
    send_seconds: float = _limit(
        10.0, "seconds for the whole request to arrive, or with nothing read of an answer"
    )
    deadline_seconds: float = _limit(
        60.0, "seconds until the texts of a request must be translated"
    )
    documents: int = _limit(2, "documents that may be under way")
    document_bytes: int = _limit(5 * 2**20, "bytes of a document")
    document_characters: int = _limit(200_000, "characters of a document's texts")
    document_seconds: float = _limit(600.0, "seconds until a document must be translated")
    drain_seconds: float = _limit(30.0, "seconds to finish the requests when the server stops")

    def __post_init__(self) -> None:
        for limit in fields(self):
            check = check_int if limit.type in (int, "int") else check_positive
            check(limit.name, getattr(self, limit.name))


class ApiKeys:
    """The keys of the clients; no keys let everybody in."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, key: str) -> bool:
        """Whether it is one of them. How long this takes tells nothing about the keys."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: str) -> bytes:
    """Digests have one length; compare_digest would tell the length of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def read_api_keys(path: str | os.PathLike[str]) -> ApiKeys:
    """The keys of a file: one a line; what follows a # is a comment.

    Raises OSError when it cannot be read, ValueError that names the file and line for what is no
    key, and for a file without keys. The messages do not show the keys.
    """
    content = read_regular(path, MOST_KEY_BYTES).removeprefix(codecs.BOM_UTF8)
    keys = []
    for number, line in enumerate(content.splitlines(), 1):
        key = re.sub(rb"(^|\s)#.*", b"", line).strip()
        if re.search(rb"[^!-~]", key):
            raise ValueError(f"{path}:{number}: a key has no blanks and only ASCII characters")
        if key:
            keys.append(key.decode("ascii"))
    if not keys:
        raise ValueError(f"{path}: holds no key: write one on each line")
    return ApiKeys(keys)
