"""Reads files that anybody may have written: regular ones, of a bounded size.

Also how JSON is written that people read.
"""

import json
import math
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

MOST_BYTES = 64 * 2**20  # of a config, a record or a tokenizer; the largest real ones have 10 MiB


def read_regular(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file; a pipe or a device would make the program wait, or never end.

    Raises OSError when it cannot be read, ValueError that names it when it is not regular or has
    more than ``most_bytes``.
    """
    with open(path, "rb", opener=_open_at_once) as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path}: not a regular file")
        if status.st_size > most_bytes:
            raise ValueError(f"{path}: larger than {most_bytes:,} bytes")
        return stream.read()


def _open_at_once(path: str, flags: int) -> int:
    # Otherwise the opening of a pipe waits for its writer. Windows has no such pipes.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_json(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> Any:
    """The content of a JSON file, parsed by ``parse_json``.

    Raises OSError when it cannot be read, ValueError that names it when it is not JSON.
    """
    content = read_regular(path, most_bytes)
    try:
        return parse_json(content)
    except ValueError as error:
        raise ValueError(f"{Path(path)}: not JSON: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError, also where Python's parser does not.

    That one lets the last of two equal keys win, and raises RecursionError for deep nesting.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:60]!r} comes twice")
    return result


def json_number(value: float) -> float | None:
    """A number for JSON, which knows neither NaN nor infinity: bad weights give them."""
    return value if math.isfinite(value) else None


def json_text(content: Any) -> str:
    """The text of a file of JSON, for people to read too."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
