"""The encoding cp1252 as browsers read it: an error handler for Python's codec."""

import codecs

WEB_CP1252 = "cp1252-page"  # name of the handler
NO_CP1252 = frozenset("\x81\x8d\x8f\x90\x9d")  # bytes without a character in cp1252


def _as_browsers_do(error: UnicodeError) -> tuple[str | bytes, int]:
    """A byte that cp1252 lacks is the control character of its number (WHATWG, Encoding).

    Characters that cp1252 lacks are written as their number.
    """
    if not isinstance(error, UnicodeEncodeError | UnicodeDecodeError):
        raise error
    if isinstance(error, UnicodeDecodeError):
        return chr(error.object[error.start]), error.start + 1
    run = error.object[error.start : error.end]  # as a whole: the time is linear
    return b"".join(
        c.encode("latin-1") if c in NO_CP1252 else b"&#%d;" % ord(c) for c in run
    ), error.end


codecs.register_error(WEB_CP1252, _as_browsers_do)
