"""Files and folders that appear whole or not at all, whatever ends the program.

Each is written under a temporary name beside its place, then renamed. The temporary name begins
with a dot and ends in ``.partial``; what a killed program left there is replaced by the next.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def partial_path(path: Path) -> Path:
    """The temporary name of a file or folder."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to inside the block; what is there takes its name when the block succeeds.

    Raises OSError when the file cannot be written.
    """
    path = Path(path)
    partial = partial_path(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def atomic_write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, text as UTF-8 with its line ends as they are. The folder must exist."""
    with atomic_path(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty folder to fill inside the block; it replaces ``folder`` when the block succeeds.

    Raises OSError when the folder cannot be written.
    """
    folder = Path(folder)
    partial, old = partial_path(folder), folder.with_name(f".{folder.name}.old")
    for left_over in (partial, old):  # by a killed process
        shutil.rmtree(left_over, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if folder.exists():
            folder.rename(old)
        partial.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
