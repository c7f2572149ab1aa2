"""Where this program keeps what it would otherwise fetch or make again."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """A folder in the cache, $MT_CACHE or ~/.cache/mt; it need not exist.

    Raises RuntimeError where the user has no home.
    """
    return Path(os.environ.get("MT_CACHE") or "~/.cache/mt").expanduser() / name
