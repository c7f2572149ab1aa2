"""What a translation must have as the source has it: links, code, placeholders, numbers.

What has a digit and is no plain number (a product code, a version, a hash) stays as it is. Of
numbers the German forms are known: decimal comma, ordinal, 24 hours. The rules are for English
sources. Where a translator may well write a word for a small number ("3 apples"), the word is one
of the forms; beside a unit or a noun that is counted ("page 3", "5%") only the digits are.
"""

from mt.inference.kept_numbers import find_times_and_dates, find_with_digits
from mt.inference.kept_verbatim import (
    Kept,
    find_code,
    find_emoticons,
    find_files,
    find_links,
    find_placeholders,
)
from mt.inference.number_forms import DECIMALS

__all__ = ["KINDS", "Kept", "find_kept"]

# Of two finds of one length the first kind counts.
KINDS = (
    "code", "url", "e-mail", "placeholder", "file",
    "time", "date", "ordinal", "number", "identifier",
)  # fmt: skip


def find_kept(text: str, decimal: str = "either") -> list[Kept]:
    """What must be kept of a text, in its order. Of finds that overlap, it takes the longest.

    ``decimal`` is how numbers with a sign for thousands or decimals are to be written: "german"
    (1.250,50), "as written", which gives no German words for small numbers either, or "either".
    Raises ValueError for another.
    """
    if decimal not in DECIMALS:
        raise ValueError(f"decimal is {decimal!r}: must be one of {', '.join(DECIMALS)}")
    candidates = [*find_code(text), *find_links(text), *find_placeholders(text), *find_files(text)]
    candidates += [*find_times_and_dates(text), *find_with_digits(text, decimal)]
    candidates += find_emoticons(text)
    candidates.sort(key=lambda kept: (kept.start - kept.end, KINDS.index(kept.kind)))
    taken = bytearray(len(text))
    chosen = []
    for kept in candidates:
        if taken.find(1, kept.start, kept.end) < 0:
            taken[kept.start : kept.end] = b"\1" * (kept.end - kept.start)
            chosen.append(kept)
    return _joined(sorted(chosen))


def _joined(items: list[Kept]) -> list[Kept]:
    """Placeholders that touch, such as %d%%, are one."""
    joined: list[Kept] = []
    for kept in items:
        last = joined[-1] if joined else kept
        if last.end == kept.start and last.kind == kept.kind == "placeholder":
            form = last.forms[0] + kept.forms[0]
            joined[-1] = Kept(last.start, kept.end, kept.kind, (form,))
        else:
            joined.append(kept)
    return joined
