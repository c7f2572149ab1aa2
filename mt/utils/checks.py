"""Checks of the values that a user gives, one message for each kind of mistake.

Every function raises ValueError with the name of the setting, its value and what it must be.
"""

import math
import reprlib
import sys
from typing import Any

_short = reprlib.Repr()  # a value may come from a file and have any size
_short.maxstring = _short.maxother = 60


def short_repr(value: Any) -> str:
    """A value in one line of bounded length, without a terminal's escape sequences."""
    return _short.repr(value)


def printable(text: str, most: int = 500) -> str:
    """A text that may come from a file, as one line of at most ``most`` characters."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= most else text[: most - 3] + "..."


def check_int(
    name: str, value: Any, least: int = 1, most: float = math.inf, *, optional: bool = False
) -> None:
    """A whole number from ``least`` to ``most``; with ``optional`` also None, YAML's null."""
    if optional and value is None:
        return
    if type(value) is not int or not least <= value <= most:
        null = "null or " if optional else ""
        span = f"of at least {least}" if most == math.inf else f"from {least} to {most:,}"
        raise ValueError(f"{name}={short_repr(value)}: must be {null}a whole number {span}")


def check_number(
    name: str,
    value: Any,
    least: float,
    most: float = math.inf,
    *,
    below: float | None = None,
    optional: bool = False,
) -> None:
    """A finite number from ``least`` to ``most``, or from ``least`` up to but not ``below``."""
    if optional and value is None:
        return
    in_span = _is_finite(value) and least <= value <= most
    if in_span and (below is None or value < below):
        return
    if below is not None:
        span = f"from {least} up to, not including, {below}"
    else:
        span = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
    null = "null or " if optional else ""
    raise ValueError(f"{name}={short_repr(value)}: must be {null}a number {span}")


def check_positive(name: str, value: Any) -> None:
    """A finite number above 0."""
    if not _is_finite(value) or value <= 0:
        raise ValueError(f"{name}={short_repr(value)}: must be a number above 0")


def _is_finite(value: Any) -> bool:
    """Whether a float holds this number; whole numbers may be beyond 1.8e308."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -sys.float_info.max <= value <= sys.float_info.max


def check_bool(name: str, value: Any, optional: bool = False) -> None:
    """True or False; with ``optional`` also None, YAML's null."""
    if not isinstance(value, bool) and not (optional and value is None):
        null = "null, " if optional else ""
        raise ValueError(f"{name}={short_repr(value)}: must be {null}true or false")
