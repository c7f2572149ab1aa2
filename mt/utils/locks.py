"""Locks between processes. The operating system frees a lock when its process ends, however.

A lock is an empty file, which may stay. A process removes the file only while it holds the lock.
"""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def exclusive_lock(path: Path, message: str) -> Iterator[None]:
    """Hold the lock whose file is ``path``.

    Raises BlockingIOError with ``message`` at once when another process, or thread, holds it, and
    OSError when the file cannot be made.
    """
    with _held(path, message, wait=False):
        yield


@contextmanager
def waiting_lock(path: Path, message: str) -> Iterator[None]:
    """Like ``exclusive_lock``, but log ``message`` and wait while another process holds it."""
    with _held(path, message, wait=True):
        yield


@contextmanager
def _held(path: Path, message: str, wait: bool) -> Iterator[None]:
    import filelock  # an import of 10 ms, which most runs of mt.translate do not need

    if not path.parent.is_dir():  # filelock would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        if not wait:
            raise BlockingIOError(message) from None
        log.info(message)
        try:  # it is gone where the other has just ended, or where there can be no file
            lock.acquire(timeout=-1 if path.exists() else 1)
        except filelock.Timeout:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent)) from None
    try:
        yield
    finally:
        lock.release()
