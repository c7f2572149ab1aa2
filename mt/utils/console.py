"""How a program of plain arguments ends: a user's mistake is one line and status 2."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def reader_may_go() -> Iterator[None]:
    """What is printed in here ends quietly when its reader, say ``head``, has gone."""
    try:
        yield
        if sys.stdout is not None:  # closed before the program began
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def status(program: str, run: Callable[[], object]) -> int:
    """Call ``run``: 0; 2 after a ValueError or OSError, which is printed; 130 after Ctrl-C.

    MT_TRACEBACK=1 in the environment lets the error through, with its traceback.
    """
    try:
        with reader_may_go():
            run()
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        print(f"{program}: error: {error}", file=sys.stderr)
        return 2
    return 0
