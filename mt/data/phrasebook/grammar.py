"""The slot grammar: templates in both languages, filled from the lexicon.

A template is an English and a German pattern with the same slots. ``{n:a acc}`` asks the filler of
slot ``n`` for a form; ``{s/be}`` conjugates a verb so that it agrees with the filler of ``s``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import english as en
from . import morphology as de
from .words import Adjective, Noun, NounPhrase, Person

CAP = 700  # sentences that a template contributes at most, by default
_START = re.compile(r"(?:^|(?<=\. ))[a-zäöü]")
_SLOT = re.compile(r"\{(\w+)([:/]?)([^}]*)\}")


@dataclass(frozen=True)
class Template:
    """Two patterns and, for each slot, the fillers to choose from.

    A slot name of several words ("n a") has tuples of fillers, which go together.
    """

    english: str
    german: str
    slots: dict[str, Sequence[Any]]
    cap: int = CAP

    def fillings(self, rng: random.Random) -> Iterator[dict[str, Any]]:
        """Yield sensible choices for all slots, in a random order."""
        size = 1
        for domain in self.slots.values():
            size *= len(domain)
        for index in rng.sample(range(size), min(size, 3 * self.cap)):
            chosen: dict[str, Any] = {}
            for names, domain in self.slots.items():
                index, position = divmod(index, len(domain))
                value = domain[position]
                values = value if " " in names else (value,)
                chosen.update(zip(names.split(), values, strict=True))
            if sensible(chosen):
                yield chosen

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Yield at most ``cap`` distinct pairs, the same in every run."""
        rng = random.Random(self.english + self.german)
        seen: set[tuple[str, str]] = set()
        for chosen in self.fillings(rng):
            pair = render(self.english, self.german, chosen, rng)
            if pair not in seen:
                seen.add(pair)
                yield pair
            if len(seen) >= self.cap:
                return


def render(
    english: str, german: str, chosen: dict[str, Any], rng: random.Random
) -> tuple[str, str]:
    """The pair of sentences that two patterns make of what was chosen for their slots."""
    text = en.contract_negatives(fill(english, chosen, "english"))
    if rng.random() < 0.5:  # people write both "I am" and "I'm"
        text = en.contract_pronouns(text)
    return finish(text, chosen, 0), finish(fill(german, chosen, "german"), chosen, 1)


def sensible(chosen: dict[str, Any]) -> bool:
    """Whether the choice names no thing and no person twice and does not contradict itself."""
    nouns: list[Noun | str] = []
    keys: list[str] = []
    for filler in chosen.values():
        if not getattr(filler, "sensible", True):
            return False
        if isinstance(filler, NounPhrase):
            nouns.append(filler.noun)
        if isinstance(filler, Person):
            keys.append(filler.english("obj"))
            nouns.append(filler.noun or filler.key)
    tags = [noun.tags for noun in nouns if isinstance(noun, Noun)]
    male = any("male" in t for t in tags) or any(
        isinstance(filler, Person) and filler.sex == "male" for filler in chosen.values()
    )
    if male and any({"clothes", "women"} <= t for t in tags):
        return False
    for adjective in chosen.values():
        # Both sides of a comparison must be able to have the adjective's quality.
        if isinstance(adjective, Adjective) and not all(
            adjective.tags & noun.tags
            for noun in nouns
            if isinstance(noun, Noun) and "kin" not in noun.tags
        ):
            return False
    return len(set(nouns)) == len(nouns) and len(set(keys)) == len(keys)


@cache
def parse(pattern: str) -> tuple[tuple[str, str, str, str], ...]:
    """Cut a pattern into pieces (literal text, slot, ":" or "/" or "", spec)."""
    pieces, end = [], 0
    for match in _SLOT.finditer(pattern):
        pieces.append((pattern[end : match.start()], match[1], match[2], match[3]))
        end = match.end()
    return (*pieces, (pattern[end:], "", "", ""))


def fill(pattern: str, chosen: dict[str, Any], language: str) -> str:
    """Fill the slots of a pattern with forms of one language."""
    words = []
    for literal, slot, kind, spec in parse(pattern):
        words.append(literal)
        if slot and kind == "/":
            words.append(getattr(chosen[slot], f"agree_{language}")(spec))
        elif slot:
            words.append(getattr(chosen[slot], language)(spec))
    return "".join(words)


def finish(text: str, chosen: dict[str, Any], side: int) -> str:
    """Add the person addressed, contract prepositions, and start with a capital letter."""
    for filler in chosen.values():
        name = getattr(filler, "vocative", None)
        if name and name[side]:
            text = f"{text[:-1]}, {name[side]}{text[-1]}"
            break
    if side == 1:
        text = de.contract(text)
    return _START.sub(lambda match: match[0].upper(), text)
