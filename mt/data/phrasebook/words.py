"""The words of the lexicon as fillers of slots, which render themselves in both languages.

A filler's methods take a *spec*, the words after the colon in a template: ``{n:my acc}`` asks the
noun phrase ``n`` for "my sister" in the accusative. ``owner`` is the person to whom a word like
"own" refers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Protocol

from . import english as en
from . import morphology as de


class Filler(Protocol):
    """Anything that can fill a slot."""

    def english(self, spec: str = "", owner: Person | None = None) -> str: ...

    def german(self, spec: str = "", owner: Person | None = None) -> str: ...


@cache
def rows(name: str, width: int = 4) -> list[list[str]]:
    """Read a table of the lexicon, each row padded with empty fields to the width."""
    text = (files(__package__) / "lexicon" / f"{name}.tsv").read_text(encoding="utf-8")
    table = [line.split("\t") for line in text.splitlines() if line and line[0] != "#"]
    return [row + [""] * (width - len(row)) for row in table]


@cache
def _verbs() -> dict[str, de.Verb]:
    """Return the verbs of verbs.tsv by their full infinitive."""
    table = {}
    for title, changed, strong, auxiliary in rows("verbs"):
        prefix, _, infinitive = title.rpartition("|")
        base = de.Verb(infinitive, prefix, changed, strong, auxiliary or "haben")
        table[prefix + infinitive] = base
    return table


@cache
def verb(title: str) -> de.Verb:
    """Look up a German verb by its full infinitive, in which | may end a separable prefix.

    One that is not in verbs.tsv is regular, or a compound: "ab|brechen" and "zerbrechen" inherit
    from "brechen".
    """
    prefix, _, infinitive = title.rpartition("|")
    known = _verbs().get(prefix + infinitive)
    if known is not None:
        return known
    if prefix:
        return replace(verb(infinitive), prefix=prefix)
    for start in de.INSEPARABLE:
        base = _verbs().get(infinitive.removeprefix(start))
        if base is not None:
            changed = start + base.changed if base.changed else ""
            strong = start + base.strong.removeprefix("ge") if base.strong else ""
            return de.Verb(infinitive, "", changed, strong)
    return de.Verb(infinitive)


@cache
def english_past(name: str) -> tuple[str, str]:
    """Return the past and the past participle of an English verb."""
    irregular = {row[0]: (row[1], row[2]) for row in rows("english")}
    return irregular.get(name) or (en.regular_past(name), en.regular_past(name))


@dataclass(frozen=True)
class Pair:
    """Two fixed texts that translate each other."""

    source: str
    target: str

    def english(self, spec: str = "", owner: Person | None = None) -> str:
        return self.source

    def german(self, spec: str = "", owner: Person | None = None) -> str:
        return self.target


@dataclass(frozen=True)
class Grammar:
    """How verbs and pronouns agree with somebody: one row of persons.tsv."""

    person: int
    agreement: str
    key: str
    they: str
    them: str
    their: str
    themselves: str
    nominative: str
    accusative: str
    dative: str
    possessive: str
    reflexive_acc: str
    reflexive_dat: str


@cache
def grammar_of(key: str) -> Grammar:
    """Return the row of persons.tsv with that key."""
    for row in rows("persons"):
        if row[0] == key:
            return Grammar(int(row[11]), row[12], *row[:11])
    raise KeyError(key)


@dataclass(frozen=True)
class Person:
    """Somebody who can be a subject: a pronoun, a name, or a noun phrase like "my brother"."""

    key: str
    source: str = ""  # English name, empty for the bare pronoun
    target: str = ""
    vocative: tuple[str, str] = ("", "")
    phrase: NounPhrase | None = None  # "my brother", where it is not a name

    @property
    def noun(self) -> str:
        """The German noun, to avoid "my brother visits his brother"; empty for a name."""
        return self.phrase.noun.target if self.phrase else ""

    @property
    def grammar(self) -> Grammar:
        return grammar_of(self.key)

    @property
    def is_pronoun(self) -> bool:
        return not self.target or self.key in ("ihr", "Sie")

    @property
    def child(self) -> bool:
        """Whether these are children, who sell no cars."""
        return self.noun == "Kind" or self.vocative[0] == "kids"

    @property
    def sex(self) -> str:
        """ "male", "female", "mixed" for several people, or "" for anybody."""
        if self.key == "er" or self.vocative[0].startswith(("sir", "Mr.")):
            return "male"
        if self.key == "sie" or self.vocative[0].startswith(("madam", "Mrs.")):
            return "female"
        return "mixed" if self.key in ("wir", "ihr", "pl") else ""

    def agree_english(self, name: str) -> str:
        """Conjugate: "be", "be past" or any verb in the present."""
        if name == "be past":
            return en.past_be(self.grammar.agreement)
        return en.present(name, self.grammar.agreement)

    def agree_german(self, name: str) -> str:
        """Conjugate: "sein", or "sein past"."""
        name, _, tense = name.partition(" ")
        return (de.past if tense else de.present)(verb(name), self.grammar.person)

    def english(self, spec: str = "", owner: Person | None = None) -> str:
        row = self.grammar
        if spec == "":
            return self.source or row.they
        if self.source and spec == "obj" and self.key in ("er", "sie", "pl"):
            return self.source
        return {"obj": row.them, "own": row.their, "self": row.themselves, "pro": row.they}[spec]

    def german(self, spec: str = "", owner: Person | None = None) -> str:
        row = self.grammar
        named = self.target and self.key in ("er", "sie", "pl")
        if spec in ("", "nom"):
            return self.target or row.nominative
        if spec in ("acc", "dat"):
            if self.phrase:
                return self.phrase.german(spec)
            return self.target if named else row.accusative if spec == "acc" else row.dative
        if spec == "pro":
            return row.nominative
        if spec.startswith("own "):
            _, gender, case = spec.split()
            return de.article(row.possessive, gender, case)
        return row.reflexive_dat if spec == "self dat" else row.reflexive_acc


@dataclass(frozen=True)
class Adjective:
    """An adjective and its degrees in both languages."""

    source: str
    more: str
    target: str
    comparative: str
    superlative: str
    tags: frozenset[str]

    def english(self, spec: str = "", owner: Person | None = None) -> str:
        return self.more if spec == "more" else self.source

    def german(self, spec: str = "", owner: Person | None = None) -> str:
        return {"": self.target, "more": self.comparative, "most": self.superlative}[spec]


@dataclass(frozen=True)
class Noun:
    """A dictionary entry: both nouns, their plurals, the German gender and semantic classes."""

    source: str
    source_plural: str
    target: str
    target_plural: str
    gender: str
    tags: frozenset[str]


# English determiners and the German words inflected for them; "bare" has none.
DETERMINERS = {
    "the": "der", "a": "ein", "no": "kein", "this": "dies", "every": "jed", "which": "welch",
    "my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr",
    "bare": "", "plural": "",
}  # fmt: skip


@dataclass(frozen=True)
class NounPhrase:
    """Determiner, adjective and noun; a spec names a case and may replace the determiner."""

    noun: Noun
    determiner: str = "the"
    adjective: Adjective | None = None
    plural: bool = False

    def _parse(self, spec: str) -> tuple[str, bool, str]:
        determiner, plural, case = self.determiner, self.plural, "nom"
        for word in spec.split():
            if word in de.CASES:
                case = word
            elif word == "plural":
                plural = True
                determiner = "bare" if spec.startswith("plural") else determiner
            else:
                determiner = word
        return determiner, plural or "plural" in self.noun.tags, case

    @property
    def definite(self) -> bool:
        return self.determiner in ("the", "own", "this", "my", "your", "his", "her", "our")

    @property
    def gender(self) -> str:
        return "p" if self.plural or "plural" in self.noun.tags else self.noun.gender

    @property
    def english_plural(self) -> bool:
        return self.plural or bool({"plural", "plural-en"} & self.noun.tags)

    @property
    def key(self) -> str:
        """The German pronoun that replaces the phrase."""
        return {"p": "pl", "m": "er", "f": "sie", "n": "es"}[self.gender]

    def agree_english(self, name: str) -> str:
        if name == "be past":
            return en.past_be("they" if self.english_plural else "he")
        return en.present(name, "they" if self.english_plural else "he")

    def agree_german(self, name: str) -> str:
        return Person(self.key).agree_german(name)

    def english(self, spec: str = "", owner: Person | None = None) -> str:
        determiner, plural, _ = self._parse(spec)
        many = plural or "plural-en" in self.noun.tags
        if determiner == "pro":
            return "they" if many else "it"
        noun = self.noun.source_plural if many else self.noun.source
        phrase = f"{self.adjective.source} {noun}" if self.adjective else noun
        if determiner in ("bare", "plural"):
            return phrase
        if determiner == "measure":
            return f"a {'cup' if 'hot' in self.noun.tags else 'glass'} of {phrase}"
        if determiner == "a":
            return phrase if many else en.indefinite(phrase)
        if determiner == "this" and many:
            return f"these {phrase}"
        if determiner == "own":
            determiner = owner.grammar.their if owner else "my"
        return f"{determiner} {phrase}"

    def german(self, spec: str = "", owner: Person | None = None) -> str:
        determiner, plural, case = self._parse(spec)
        gender = "p" if plural else self.noun.gender
        if determiner == "pro":
            return grammar_of(self.key).nominative
        if determiner == "measure":
            measure = "eine Tasse" if "hot" in self.noun.tags else "ein Glas"
            return f"{measure} {self.noun.target}"
        if determiner == "own":
            stem = owner.grammar.possessive if owner else "mein"
        else:
            stem = DETERMINERS[determiner]
        noun = self.noun
        weak = "weak" in noun.tags
        words = [de.article(stem, gender, case)]
        if self.adjective:
            words.append(de.adjective(self.adjective.target, stem, gender, case))
        words.append(de.noun_form(noun.target, noun.target_plural, gender, case, weak))
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Place:
    """A place with its prepositions: ``to`` asks for the direction, ``at`` for the location."""

    to: tuple[str, str]
    at: tuple[str, str]
    tags: frozenset[str]

    def english(self, spec: str = "", owner: Person | None = None) -> str:
        return self.to[0] if spec.startswith("to") else self.at[0]

    def german(self, spec: str = "", owner: Person | None = None) -> str:
        return self.to[1] if spec.startswith("to") else self.at[1]


@cache
def all_nouns() -> tuple[Noun, ...]:
    """Return the nouns of nouns.tsv."""
    table = []
    for source, target, target_plural, tags in rows("nouns"):
        singular, _, plural = source.partition("/")
        article, _, noun = target.partition(" ")
        classes = frozenset(tags.split())
        if not plural:
            plural = singular if {"plural", "plural-en"} & classes else en.plural(singular)
        gender = {"der": "m", "die": "f", "das": "n"}[article]
        table.append(Noun(singular, plural, noun, target_plural, gender, classes))
    return tuple(table)


@cache
def nouns(classes: str) -> tuple[Noun, ...]:
    """Return the nouns that carry all these classes ("count food"), or one of "a|b"."""
    wanted = [set(option.split()) for option in classes.split("|")]
    return tuple(n for n in all_nouns() if any(option <= n.tags for option in wanted))


@cache
def adjectives(classes: str = "") -> tuple[Adjective, ...]:
    """Return the adjectives that carry all these classes."""
    table = []
    for source, target, comparative, superlative, tags in rows("adjectives", 5):
        positive, _, more = source.partition("/")
        more = more or en.comparative(positive)
        german = (target, comparative, superlative)
        table.append(Adjective(positive, more, *german, frozenset(tags.split())))
    return tuple(adjective for adjective in table if set(classes.split()) <= adjective.tags)


@cache
def fitting(noun: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe the noun."""
    return tuple(a for a in adjectives() if a.tags & noun.tags and "event" not in noun.tags)


@cache
def naming(noun: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives that can stand before it: "a red shirt", not "the dark kitchen"."""
    tags = noun.tags - {"interior", "size"}
    return tuple(a for a in fitting(noun) if "predicative" not in a.tags and a.tags & tags)


@cache
def places(classes: str = "") -> tuple[Place, ...]:
    """Return the places that carry all these classes."""
    wanted = set(classes.split())
    table = (Place((r[0], r[1]), (r[2], r[3]), frozenset(r[4].split())) for r in rows("places", 5))
    return tuple(place for place in table if wanted <= place.tags)


@cache
def adverbs(tag: str) -> tuple[Pair, ...]:
    """Return the adverbs with that tag, or with one of "a|b"."""
    wanted = set(tag.split("|"))
    return tuple(Pair(r[0], r[1]) for r in rows("adverbs") if wanted & set(r[2].split()))


@cache
def pairs(group: str) -> tuple[Pair, ...]:
    """Return a group of pairs.tsv."""
    return tuple(Pair(r[1], r[2]) for r in rows("pairs") if r[0] == group)
