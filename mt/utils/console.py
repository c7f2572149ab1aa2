"""How a program with plain arguments ends: a user's mistake is one line and status 2."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Let the block stop quietly when the reader of its output, such as ``head``, has ended."""
    try:
        yield
        if sys.stdout is not None:  # None when the shell closed it before the program began
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_status(program: str, run: Callable[[], object]) -> int:
    """Call ``run``: 0; 2 after a ValueError or OSError, which is printed; 130 after Ctrl-C.

    MT_TRACEBACK=1 in the environment lets the error through, with its traceback.
    """
    try:
        with ignore_broken_pipe():
            run()
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        print(f"{program}: error: {error}", file=sys.stderr)
        return 2
    return 0


def install_hint(extra: str) -> str:
    """The command that installs an optional extra."""
    return f"pip install -e '.[{extra}]' in the project's folder"
