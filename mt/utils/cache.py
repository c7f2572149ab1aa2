"""Where this program keeps what it would otherwise fetch or make again."""

import os
from pathlib import Path


def cache_folder(name: str = "") -> Path:
    """The cache, $MT_CACHE or ~/.cache/mt, or a folder in it; it need not exist.

    Raises OSError where the user has no home.
    """
    try:
        return Path(os.environ.get("MT_CACHE") or "~/.cache/mt").expanduser() / name
    except RuntimeError:
        raise OSError("you have no home folder: set MT_CACHE to one for what is kept") from None
