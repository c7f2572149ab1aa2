"""Sentences with things that must be copied or converted: names, numbers, dates, times, codes.

The slots of hand-written sentences (``entities/carriers.tsv``) are filled with values. The values
of the test split, and a tenth of the sentences, are in no other split; so are those of the
validation split. Some values are in every split, because there are few: weekdays, months, full
hours, numbers below 100, floors, cities with another name in German.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from .entity_codes import Value, rows
from .entity_values import Values

Pair = tuple[str, str]

# Pairs of filled carriers; training has as many more of the hand-written sentences.
COUNTS = {"train": 75_000, "validation": 500, "test": 1000}
VARIANTS = 10_000
SEEDS = {"train": 1, "validation": 2, "test": 3}

# The kinds of slots that a report counts together.
KINDS = {
    **dict.fromkeys(("male", "female", "first", "surname", "full", "person"), "name"),
    **dict.fromkeys(("titled", "titledobj"), "title and name"),
    **dict.fromkeys(("small", "count", "number"), "number"),
    **dict.fromkeys(("big", "thousands"), "large number"),
    **dict.fromkeys(("weight", "length", "speed", "storage", "measure"), "measure"),
    **dict.fromkeys(("temperature", "oven", "fever"), "temperature"),
    **dict.fromkeys(("daymonth", "weekdate", "letterdate", "numdate", "iso"), "date"),
    **dict.fromkeys(("weekday", "weekdays", "month"), "weekday or month"),
    **dict.fromkeys(("oclock", "hours"), "time"),
    **dict.fromkeys(("durationdat",), "duration"),
    **dict.fromkeys(("year", "decade"), "year"),
    **dict.fromkeys(
        ("platform", "gate", "room", "seat", "line", "train", "motorway"), "platform, room, seat"
    ),
    **dict.fromkeys(("floor", "upper"), "floor"),
    **dict.fromkeys(("address", "streetf", "streetno", "postcode"), "address"),
    **dict.fromkeys(("file", "path"), "file or path"),
    **dict.fromkeys(("command", "identifier", "error"), "command or error"),
    **dict.fromkeys(("code", "order", "password", "model"), "code"),
    **dict.fromkeys(("plate", "iban"), "number plate or IBAN"),
    **dict.fromkeys(("handle", "tag"), "handle or hashtag"),
    **dict.fromkeys(("formula", "equation", "chemical"), "formula"),
    **dict.fromkeys(("score", "sets"), "score"),
    **dict.fromkeys(("page", "pages", "section"), "page or section"),
    **{"firm": "company", "dec": "decimal", "percent": "percentage", "foreign": "other script"},
}

WORD = re.compile(r"\w+")
SLOT = re.compile(r"\{([a-z]+)\d?\}")


@dataclass(frozen=True)
class Entity:
    """A value in a sentence, and its kind."""

    kind: str
    english: str
    german: tuple[str, ...]  # the forms that are right, the usual one first
    own: bool  # whether no other split has this value


@dataclass(frozen=True)
class Example:
    """A sentence pair with its entities; ``seen``: the training split has the same carrier."""

    english: str
    german: str
    entities: tuple[Entity, ...]
    seen: bool


def load(split: str) -> list[Pair]:
    """Return the pairs of a split: "train", "validation" or "test". No pair occurs twice."""
    return list(_training() if split == "train" else _pairs(split))


@cache
def _pairs(split: str) -> tuple[Pair, ...]:
    return tuple((example.english, example.german) for example in examples(split, COUNTS[split]))


@cache
def _training() -> tuple[Pair, ...]:
    from . import load as phrasebook  # which in turn loads this module when it is asked to
    from . import phrases
    from .variants import substitute

    held_out = Finder(held_out_values())
    filled = ((example.english, example.german) for example in examples("train"))
    short = set(phrases())
    written = [pair for pair in phrasebook("train") if pair in short]
    written += phrasebook("train", ("themes",))
    variants = substitute(written, VARIANTS, seed=4)
    kept = (pair for pair in filled if not any(map(held_out.finds, pair)))
    pairs = [
        *itertools.islice(kept, COUNTS["train"]),
        *(pair for pair in variants if not any(map(held_out.finds, pair))),
    ]
    return tuple(dict.fromkeys(pairs))


def held_out_values() -> set[str]:
    """Return what no pair of training may have: values of the held-out splits, parts of names."""
    values: set[str] = set()
    for split in ("validation", "test"):
        for example in examples(split, COUNTS[split]):
            for entity in example.entities:
                if entity.own:
                    values |= {entity.english, entity.german[0]}
                if entity.kind == "name":
                    values.update(entity.english.split())
    return values


class Finder:
    """Tells whether a text contains one of many values of four or more letters and digits."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values: dict[str, list[str]] = {}  # by their longest word, which is seldom elsewhere
        for value in values:
            words = WORD.findall(value)
            if sum(map(len, words)) >= 4:
                self.values.setdefault(max(words, key=len), []).append(value)

    def finds(self, text: str) -> bool:
        return any(
            value in text and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text)
            for word in set(WORD.findall(text))
            for value in self.values.get(word, ())
        )


@cache
def carriers(split: str) -> tuple[Pair, ...]:
    """Return the carriers that a split has for itself."""
    table = [(*row, "train")[:3] for row in rows("carriers")]
    return tuple((english, german) for english, german, home in table if home == split)


@cache
def _context(name: str) -> tuple[Pair, ...]:
    return tuple((english, german) for english, german in rows(name))


def examples(split: str, count: int | None = None) -> Iterator[Example]:
    """Yield different sentences of a split, always the same: ``count`` of them, or without end.

    Half of the held-out splits are sentences that training also has, filled with other values.
    """
    rng = random.Random(SEEDS[split])
    values = Values(rng, split)
    own, known = carriers(split), carriers("train")
    sentences: set[str] = set()
    while count is None or len(sentences) < count:
        seen = split == "train" or len(sentences) % 2 == 0
        table = known if seen else own
        carrier = rng.choice(table)
        parts = [carrier]
        chance = rng.random() if carrier[0][-1] in ".!?" else 1
        if chance < 0.12:
            parts.insert(0, rng.choice(_context("openings")))
        elif chance < 0.24:
            parts.append(rng.choice(_context("closings")))
        elif chance < 0.34:
            parts.append(rng.choice(table))
        filled = [fill(part, values) for part in parts]
        english, german = (" ".join(sides) for sides in zip(*(f[:2] for f in filled), strict=True))
        if english not in sentences:
            sentences.add(english)
            yield Example(english, german, tuple(e for f in filled for e in f[2]), seen)


def fill(carrier: Pair, values: Values) -> tuple[str, str, list[Entity]]:
    """Put values into the slots of a carrier."""
    slots = [match[0] for match in SLOT.finditer(carrier[0])]
    drawn: dict[str, Value] = {}
    for slot in dict.fromkeys(slots):
        draw = getattr(values, SLOT.sub(r"\1", slot))
        while (value := draw()) in drawn.values():
            pass  # nobody goes from Leeds to Leeds
        drawn[slot] = value
    years = [slot for slot in drawn if slot.startswith("{year")]
    in_order = sorted((drawn[slot] for slot in years), key=lambda value: value.english)
    drawn |= zip(years, in_order, strict=True)
    english = SLOT.sub(lambda match: drawn[match[0]].english, carrier[0])
    german = SLOT.sub(lambda match: drawn[match[0]].german[0], carrier[1])
    english = english.replace(".m..", ".m.")
    if carrier[0].startswith("{date") or carrier[1].startswith("{weekdays"):
        english, german = (text[0].upper() + text[1:] for text in (english, german))
    entities = []
    for slot in slots:
        kind, value = SLOT.sub(r"\1", slot), drawn[slot]
        entities.append(Entity(KINDS.get(kind, kind), value.english, value.german, value.own))
    return english, german, entities
