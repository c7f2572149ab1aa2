"""Files and folders that appear whole or not at all, whatever ends the program.

Each is written under a temporary name beside its place, then renamed. The temporary name begins
with a dot and ends in ``.partial``; what a killed program left there is replaced by the next. A
lock, ``.NAME.lock``, lets one process at a time write; it goes with the temporary name.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from mt.utils.locks import exclusive_lock, waiting_lock

FilePath = str | os.PathLike[str]
Lock = Callable[[Path, str], AbstractContextManager[None]]
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def partial_path(path: Path) -> Path:
    """The temporary name of a file or folder."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def only_writer(path: Path, lock: Lock = exclusive_lock) -> Iterator[None]:
    """Hold the lock on writing a file or folder; ``exclusive_lock`` refuses where another does.

    Raises OSError when there cannot be a lock, BlockingIOError when another process writes.
    """
    file = path.with_name(f".{path.name}.lock")
    with lock(file, f"{path}: another process is writing it: name another"):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in an error of a full disk: the system's own has no name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in DISK_FULL:
            error.filename = str(path)
        raise


@contextmanager
def atomic_path(path: FilePath) -> Iterator[Path]:
    """A path to write to inside the block; what is there takes its name when the block succeeds.

    Of several processes that write one file, each waits for the one before, and the last wins. A
    link stays a link. A device or a pipe is written to, not replaced.
    Raises OSError when the file cannot be written.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        with _named(path):
            yield path
        return
    path = Path(os.path.realpath(path))  # not before: that of a pipe does not exist
    partial = partial_path(path)
    with only_writer(path, waiting_lock):
        partial.unlink(missing_ok=True)  # it may be a link to another file
        try:
            with _named(path):
                yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def atomic_write(path: FilePath, content: str | bytes) -> None:
    """Write a file, text as UTF-8 with its line ends as they are. The folder must exist."""
    with atomic_path(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(folder: FilePath) -> Iterator[Path]:
    """An empty folder to fill inside the block; it replaces ``folder`` when the block succeeds.

    Raises OSError when the folder cannot be written, or another process is writing it.
    """
    folder = Path(folder)
    if folder.is_symlink():  # the link stays
        folder = folder.resolve()
    partial, old = partial_path(folder), folder.with_name(f".{folder.name}.old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(folder):
        _put_back(old, folder)  # by a process that was killed between its two renames
        for left_over in (partial, old):
            shutil.rmtree(left_over, ignore_errors=True)
        partial.mkdir()
        try:
            with _named(folder):
                yield partial
            if folder.exists():
                folder.rename(old)
            partial.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            _put_back(old, folder)
            shutil.rmtree(partial, ignore_errors=True)


def _put_back(old: Path, folder: Path) -> None:
    if old.exists() and not folder.exists():
        old.rename(folder)


def check_not_input(output: FilePath, *inputs: FilePath | int) -> None:
    """ValueError when the file or folder ``output`` would replace something that is read.

    That is one of the ``inputs``, files, folders and open file descriptors, or a part of one, also
    by another name or by a link.
    """
    target = Path(output).resolve()
    if not (target.is_file() or target.is_dir()):  # new, or a terminal or another device
        return
    for source in inputs:
        if isinstance(source, int):
            same, name = os.path.samefile(source, target), "standard input"
        else:
            path, name = Path(source).resolve(), str(source)
            same = target in path.parents or path in target.parents
            same = same or (path.exists() and path.samefile(target))
        if same:
            raise ValueError(
                f"{name} is read, and writing {output} would replace it: name another output"
            )


def is_open(path: Path) -> bool:
    """Whether the shell has opened the file: for standard output or errors, or as /dev/fd/3."""
    if os.path.realpath(path.parent).startswith("/proc/"):
        return True
    streams = []
    for number in (1, 2):
        with suppress(OSError):  # it is closed
            streams.append(os.fstat(number))
    return any(os.path.samestat(path.stat(), stream) for stream in streams)
