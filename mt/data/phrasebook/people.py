"""The subjects of the sentences.

English "you" is three words in German. A cue in the sentence tells which: "you two" or "kids" for
ihr, "sir" or "Mr. Weber" for Sie, no cue for du. German has no everyday word for "sir" and "madam",
so its sentences use Sie alone. Requests of ``expressions`` have no cue: they may be either.
"""

from __future__ import annotations

from .words import NounPhrase, Person, nouns

PRONOUNS = tuple(Person(key) for key in ("ich", "du", "er", "sie", "wir", "pl"))
ME, YOU, HE, SHE, WE, THEY = PRONOUNS
YOU_ALL = (
    Person("ihr", "you two", "ihr beide"),
    Person("ihr", "you guys"),
    Person("ihr", vocative=("kids", "Kinder")),
)
FORMAL = (
    Person("Sie", vocative=("sir", "")),
    Person("Sie", vocative=("madam", "")),
    Person("Sie", vocative=("Mr. Weber", "Herr Weber")),
    Person("Sie", vocative=("Mrs. Schmidt", "Frau Schmidt")),
    Person("Sie", vocative=("Mr. Fischer", "Herr Fischer")),
    Person("Sie", vocative=("Mrs. Klein", "Frau Klein")),
)
MEN = tuple(Person("er", name, name) for name in ("Peter", "Paul", "Martin", "Tom", "David"))
WOMEN = tuple(Person("sie", name, name) for name in ("Anna", "Maria", "Julia", "Lena", "Sarah"))
COUPLE = Person("pl", "Anna and Peter", "Anna und Peter")


def _relatives(
    classes: str, key: str, determiner: str = "my", plural: bool = False
) -> tuple[Person, ...]:
    phrases = (
        NounPhrase(noun, determiner, None, plural)
        for noun in nouns(classes)
        if "elder" not in noun.tags  # many sentences do not suit them: their exams are long past
    )
    return tuple(Person(key, p.english(), p.german(), phrase=p) for p in phrases)


MALE_KIN = _relatives("kin male", "er")
FEMALE_KIN = _relatives("kin female", "sie")
GROUPS = (
    *_relatives("kin plural", "pl"),
    *_relatives("child", "pl", "the", plural=True),
    *_relatives("weak kin", "pl", "our", plural=True),
    *_relatives("friend", "pl", plural=True),
    COUPLE,
)
NAMED = (*MEN, *WOMEN, *MALE_KIN, *FEMALE_KIN, *GROUPS)

# Pronouns are far more frequent than anybody's aunt.
ANY = (*PRONOUNS * 6, *YOU_ALL, *FORMAL, *NAMED)
SINGLE = (*PRONOUNS[:4] * 5, *FORMAL, *MEN, *WOMEN, *MALE_KIN, *FEMALE_KIN)
ASKED = (*(YOU,) * 12, HE, SHE, THEY, *YOU_ALL * 2, *FORMAL, *MEN, *WOMEN, *GROUPS)
THIRD = (HE, SHE, THEY, *NAMED)
