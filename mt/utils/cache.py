"""Where this program keeps what it would otherwise fetch or make again."""

import os
from pathlib import Path


def cache_folder(name: str = "") -> Path:
    """The cache, $MT_CACHE or ~/.cache/mt, or a folder in it; it need not exist.

    Raises RuntimeError where the user has no home.
    """
    return Path(os.environ.get("MT_CACHE") or "~/.cache/mt").expanduser() / name
