"""How a program of plain arguments ends: a user's mistake is one line and status 2."""

import os
import sys
from collections.abc import Callable


def status(program: str, run: Callable[[], object]) -> int:
    """Call ``run``: 0; 2 after a ValueError or OSError, which is printed; 130 after Ctrl-C.

    MT_TRACEBACK=1 in the environment lets the error through, with its traceback.
    """
    try:
        run()
    except BrokenPipeError:  # the reader, say `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        print(f"{program}: error: {error}", file=sys.stderr)
        return 2
    return 0
