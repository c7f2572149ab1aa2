"""How a program with plain arguments ends: a user's mistake is one line and status 2."""

import argparse
import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from mt import __version__

if TYPE_CHECKING:
    from tqdm import tqdm


VERSION = f"mt {__version__}"


class ArgumentParser(argparse.ArgumentParser):
    """One whose errors are a line, like all errors of the programs, and who knows its version."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.add_argument("--version", action="version", version=VERSION)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


@contextmanager
def _handling(number: int, default: object, handler: Callable[..., object]) -> Iterator[None]:
    """Let a handler take a signal in the block.

    Does nothing where another handler than Python's ``default`` is set, as for a job in the
    background, or in another thread than the main one.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or (before := signal.getsignal(number)) is not default:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def exit_at_interrupt() -> AbstractContextManager[None]:
    """End quietly with status 130 when Ctrl-C comes inside the block, where libraries load.

    Python would print a traceback of their imports.
    """
    # No exception: a library may catch one, and half of it would go on.
    return _handling(signal.SIGINT, signal.default_int_handler, lambda *_: os._exit(130))


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


def interrupt_at_termination() -> AbstractContextManager[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what is done is closed and told of."""

    def interrupt(*_: object) -> NoReturn:
        raise Terminated

    return _handling(signal.SIGTERM, signal.SIG_DFL, interrupt)


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Let the block stop quietly when the reader of its output, such as ``head``, has ended."""
    try:
        yield
        if sys.stdout is not None:  # None when the shell closed it before the program began
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Let standard output go nowhere, because nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_utf8() -> None:
    """Let standard output be UTF-8, as files are, whatever the locale."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def exit_status(program: str, run: Callable[[], object]) -> int:
    """Call ``run``: 0; 2 after a ValueError or OSError, which is printed; 130 after Ctrl-C, or 143.

    MT_TRACEBACK=1 in the environment lets the error through, with its traceback.
    """
    try:
        with ignore_broken_pipe():
            run()
    except KeyboardInterrupt as interrupt:
        return 143 if isinstance(interrupt, Terminated) else 130
    except (ValueError, OSError) as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        print(f"{program}: error: {describe(error)}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def within_memory(advice: str) -> Iterator[None]:
    """Turn an error of too little memory into a ValueError with ``advice``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch raises the latter, on a GPU too
        words = "out of memory", "memoryerror", "outofmemory", "allocate memory", "enough memory"
        if not any(word in f"{type(error).__name__} {error}".lower() for word in words):
            raise
        raise ValueError(f"out of memory: {advice}") from error


def describe(error: BaseException) -> str:
    """What to print of an error: ``FILE: reason`` if it is the operating system's."""
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return reason if error.filename is None else f"{error.filename}: {reason}"
    return str(error) or type(error).__name__


def first_line(error: Exception) -> str:
    """The first line of a message, which of some libraries' errors says enough."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def progress_bar(total: int | None, unit: str) -> "tqdm[NoReturn]":
    """A bar on standard error, if that is a terminal; its ``update`` also takes fractions.

    Without a total it is a count, which appears when the work takes more than some seconds.
    """
    from tqdm import tqdm

    unit, delay = f" {unit}", 0
    form = "{l_bar}{bar}| {n:,.0f}/{total:,}{unit} [{elapsed}<{remaining}, {rate_fmt}]"
    if total is None:
        form, delay = "{n:,.1f}{unit} [{elapsed}, {rate_fmt}]", 3
    return tqdm(total=total, unit=unit, bar_format=form, delay=delay, disable=None)


def install_hint(extra: str) -> str:
    """The command that installs the packages of an optional extra."""
    import importlib.metadata  # an import of some milliseconds, for this message alone

    try:
        requirements = importlib.metadata.requires("mt") or []
    except importlib.metadata.PackageNotFoundError:  # the code alone, not installed
        requirements = []
    parts = (requirement.replace('"', "'").partition(";") for requirement in requirements)
    packages = [name for name, _, marker in parts if marker.endswith(f"extra == '{extra}'")]
    if not packages:  # not installed, or before there was such an extra
        return f"pyproject.toml names the packages of the extra {extra!r}"
    return shlex.join(["pip", "install", *packages])
