"""Codes such as ``H5`` that stand for program code in a text that is translated.

A translation keeps such a code (``mt.inference.kept``), and a model without ``keep`` mostly copies
it. Code between backticks comes through, too, but spoils the sentence around it, as models have
seen no backticks; and without the code a sentence lacks a noun.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import count, cycle
from typing import NamedTuple

# In the order in which the bundled models copy them best
LETTERS = "HMTGKVNJ"
FIRST = 5
CODE = re.compile(r"[A-Z][0-9]+")
WORD = re.compile(r"\w+")


class ElementPlace(NamedTuple):
    """A part of a translation in whose stead element ``number`` is written; None: nothing."""

    start: int
    end: int
    number: int | None


class StandIn(NamedTuple):
    number: int  # of the element
    share: float  # of the source's text that is before it


def unused_codes(text: str) -> Iterator[str]:
    """Codes that are not in a text."""
    used = set(CODE.findall(text))
    codes = (f"{letter}{number}" for letter, number in zip(cycle(LETTERS), count(FIRST)))
    return (code for code in codes if code not in used)


def find_places(text: str, stand_ins: Mapping[str, StandIn]) -> list[ElementPlace]:
    """Where in a translation the elements go, each once, in the order of their places.

    One whose code is not there goes as far in the text as it was in the source; a code that is
    there again is cut out.
    """
    places: list[ElementPlace] = []
    missing = dict(stand_ins)
    end = 0
    for match in CODE.finditer(text):
        if match[0] not in stand_ins:
            continue
        start, stand_in = match.start(), missing.pop(match[0], None)
        if stand_in is None:
            start = max(end, len(text[:start].rstrip()))
        end = match.end()
        places.append(ElementPlace(start, end, stand_in.number if stand_in else None))
    words = [match.span() for match in WORD.finditer(text)]
    for number, share in missing.values():
        word = bisect_left(words, (round(share * len(text)), 0))
        # Before a word or, as the last one, after all of them
        at = words[word][0] if word < len(words) else words[-1][1] if words else len(text)
        places.append(ElementPlace(at, at, number))
    return sorted(places, key=lambda place: place[:2])
