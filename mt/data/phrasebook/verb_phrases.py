"""Verb phrases: the lines of actions.tsv and expressions.tsv, with their slots filled."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from . import morphology as de
from .people import PRONOUNS
from .words import (
    Filler,
    Noun,
    NounPhrase,
    Person,
    adjectives,
    naming,
    nouns,
    places,
    rows,
    verb,
)

# Literal nouns without an article that are negated like objects: "kein Radio", but "nicht Schach".
_KEIN = {"Radio": "kein", "Deutsch": "kein", "Spanisch": "kein", "Italienisch": "kein",
         "Karten": "keine"}  # fmt: skip
_SLOT = re.compile(r"\{([^:}]+):?([^}]*)\}")
# A literal definite object, which comes before "nicht": "den Müll", "mein altes Auto".
_DEFINITE = re.compile(
    r"(?!(?:die|den) ganzen? (?:Nacht|Tag)\b)"
    r"(?:d(?:en|ie|as)|(?:[mds]ein|ihr|Ihr|unser|eue?r)(?:e[nmrs]?)?) "
    r"(?:[a-zäöüß]+ )*[A-ZÄÖÜ][\w-]*(?: des [A-ZÄÖÜ]\w*)?(?!\w)"
)


@dataclass(frozen=True)
class Action:
    """A line of a table: a verb phrase whose slots are still open."""

    english_verb: str
    english_rest: str
    german: tuple[str | tuple[str, str], ...]  # literal words and (slot, spec)
    german_verb: de.Verb
    tags: frozenset[str]
    slots: tuple[tuple[str, str], ...]


@cache
def actions(name: str = "actions") -> tuple[Action, ...]:
    """Read actions.tsv, or another table of that form."""
    return tuple(action(*row[:3]) for row in rows(name))


def action(source: str, target: str, tags: str) -> Action:
    """Parse a verb phrase in both languages."""
    head, _, rest = source.partition(" ")
    middle, _, title = target.rpartition(" ")
    infinitive, _, participle = title.partition("/")
    german_verb = verb(infinitive)
    if "{sich:" in middle and infinitive != "sein":
        german_verb = replace(german_verb, auxiliary="haben")
    if participle:
        german_verb = replace(german_verb, strong=participle)
    pieces: list[str | tuple[str, str]] = []
    for word in re.findall(r"\{[^}]*\}|[^\s{]+", middle):
        slot = _SLOT.match(word)
        pieces.append((slot[1], slot[2]) if slot else word)
    slots = [(m[1], m[2]) for m in _SLOT.finditer(rest) if m[1] not in ("own", "self")]
    return Action(head, rest, tuple(pieces), german_verb, frozenset(tags.split()), tuple(slots))


def allowed(determiner: str, noun: Noun) -> bool:
    """Whether a noun can have the determiner: no "a bread", no bare "car"."""
    if determiner in ("a", "plural"):
        return "count" in noun.tags
    # "by bus" and "play the piano", which is bare in German
    bare = {"mass", "plural", "transport", "instrument"}
    return determiner != "bare" or bool(bare & noun.tags)


def fillers(name: str, spec: str) -> list[Filler]:
    """All fillers of a slot of actions.tsv."""
    if name == "who":
        return [*PRONOUNS, Person("er", "Paul", "Paul"), Person("sie", "Anna", "Anna")]
    if name == "place":
        return list(places(spec.partition(" ")[2]))
    if name == "state":
        return list(adjectives(spec))
    options: list[Filler] = []
    for noun in nouns(name):
        for determiner in spec.split("|"):
            first, *more = determiner.split()
            plural = "plural" in (first, *more)
            if not allowed(first, noun):
                continue
            base = NounPhrase(noun, "a" if first == "plural" else first, None, plural)
            options.append(base)
            plain = first == "measure" or "only" in more
            if not plain and not {"kin", "transport", "instrument"} & noun.tags:
                # Colours and sizes suit an indefinite object best, and a few are enough.
                choices = naming(noun)
                rng = random.Random(noun.source + determiner)
                chosen = rng.sample(choices, min(3, len(choices)))
                options += [NounPhrase(noun, base.determiner, a, plural) for a in chosen]
    return options


def fits(thing: NounPhrase, subject: Person) -> bool:
    """Whether the thing or person suits the subject: children have no cars, men no dresses."""
    tags, sex = thing.noun.tags, subject.sex
    # "They are putting on their hat" lacks a plural: they have one hat each.
    shared = thing.determiner == "own" and "clothes" in tags and thing.gender != "p"
    return not (
        thing.noun.target == subject.noun
        or (subject.child and "adult" in tags)
        or (sex == "mixed" and (shared or "couple" in tags))
        or ("women" in tags and sex not in ("", "female"))
        or ("men" in tags and sex not in ("", "male"))
    )


@dataclass(frozen=True)
class VerbPhrase:
    """An action whose slots are filled."""

    action: Action
    slots: tuple[tuple[str, Filler], ...] = ()

    def _filler(self, name: str) -> Filler:
        for slot, filler in self.slots:
            if slot == name:
                return filler
        raise KeyError(name)

    @property
    def reflexive(self) -> bool:
        return any(piece[0] == "sich" for piece in self.action.german)

    @property
    def own(self) -> bool:
        """Whether it refers back to the subject, as "call my mother" does."""
        in_german = any(piece[0] == "mein" for piece in self.action.german)
        return in_german or "own" in re.split(r"[{}:|]", self.action.english_rest)

    def suits(self, subject: Person) -> bool:
        """Whether the subject would do this, to somebody other than itself."""
        if subject.child and "adult" in self.action.tags:
            return False
        for _, filler in self.slots:
            if isinstance(filler, Person):
                same_word = filler.english("obj") == subject.english("obj")
                group = {filler.key, subject.key} in ({"ich", "wir"}, {"er", "pl"}, {"sie", "pl"})
                if same_word or group or filler.key == subject.key:
                    return False
            elif isinstance(filler, NounPhrase):
                # "They are wearing a coat" lacks a plural: they have one each.
                several = "wear" in self.action.tags and subject.sex == "mixed"
                if not fits(filler, subject) or (several and filler.gender != "p"):
                    return False
        return True

    def english_rest(self, owner: Person) -> str:
        """The words after the English verb."""

        def fill(match: re.Match[str]) -> str:
            if match[1] in ("own", "self"):
                return owner.english(match[1])
            filler = self._filler(match[1])
            if isinstance(filler, Person):
                return filler.english("obj")
            return filler.english(match[2] if match[1] == "place" else "", owner)

        return _SLOT.sub(fill, self.action.english_rest)

    def german_middle(
        self, owner: Person, time: str, adverb: str, negated: bool
    ) -> tuple[list[str], list[str]]:
        """Return the object pronouns and the rest of the middle field."""
        pronouns: list[str] = []
        definite: list[str] = []
        indefinite: list[str] = []
        complement: list[str] = []
        for piece in self.action.german:
            if piece == "es" and not complement:
                pronouns.append(piece)
                continue
            if isinstance(piece, str):
                complement.append(piece)
                continue
            name, spec = piece
            if name == "mein":
                complement.append(owner.german(f"own {spec}"))
                continue
            if name == "sich":  # after a preposition it stays there
                (complement or pronouns).append(owner.german(f"self {spec}"))
                continue
            filler = self._filler(name)
            text = filler.german(spec, owner)
            if complement or "bare" in spec or not isinstance(filler, NounPhrase | Person):
                complement.append(text)
            elif isinstance(filler, Person):
                (definite if filler.target else pronouns).append(text)
            else:
                (definite if filler.definite else indefinite).append(text)
        if negated and not self.reflexive:
            words = " ".join(complement)
            if literal := _DEFINITE.match(words):
                definite.append(literal[0])
                complement = [words[literal.end() :].strip()]
        if negated and adverb != "gern":
            if indefinite:
                indefinite[-1] = self._negative(indefinite[-1])
            elif complement and re.match("eine?[nmr]? ", complement[0] + " "):
                complement[0] = "k" + complement[0]
            elif complement and complement[0] in _KEIN:
                complement[0] = f"{_KEIN[complement[0]]} {complement[0]}"
            else:
                indefinite = ["nicht"]
        elif negated:
            adverb = "nicht gern"
        head = [*definite, time] if negated or adverb else [time, *definite]
        return pronouns, [*head, adverb, *indefinite, *complement]

    def _negative(self, text: str) -> str:
        """Turn an indefinite object into one with kein."""
        if re.match("eine?[nmr]? ", text):
            return "k" + text
        phrase = next(f for _, f in reversed(self.slots) if isinstance(f, NounPhrase))
        return phrase.german("no acc")


class VerbPhrases(Sequence[VerbPhrase]):
    """All fillings of the actions that have one of the tags ("order|goal"; "" for any).

    Actions with a tag of ``without`` are left out; of an action with more than ``limit`` fillings
    a random sample of that size stays.
    """

    def __init__(self, tags: str = "", without: str = "", limit: int = 40) -> None:
        wanted, unwanted = set(tags.split("|")) - {""}, set(without.split("|"))
        self._phrases: list[VerbPhrase] = []
        for action in actions():
            if (wanted & action.tags or not wanted) and not unwanted & action.tags:
                options = bindings(action)
                if len(options) > limit:
                    options = random.Random(action.english_rest).sample(options, limit)
                # An action with few fillings would be rare among those with many: repeat it.
                self._phrases += options * max(1, 4 // len(options))

    def __len__(self) -> int:
        return len(self._phrases)

    def __getitem__(self, index: Any) -> Any:
        return self._phrases[index]


@cache
def bindings(action: Action) -> list[VerbPhrase]:
    """Fill the slots of an action in all ways."""
    phrases = [VerbPhrase(action)]
    for name, spec in action.slots:
        options = fillers(name, spec)
        if not options:
            raise ValueError(f"nothing fits the slot {{{name}:{spec}}}")
        phrases = [
            VerbPhrase(action, (*p.slots, (name, filler))) for p in phrases for filler in options
        ]
    return phrases
