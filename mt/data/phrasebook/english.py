"""English inflection and numbers as pure functions."""

from __future__ import annotations

import re

_VOWELS = "aeiou"
_SHORT = re.compile(r"^[^aeiou]*[aeiou][bdgklmnprt]$")  # get, stop, swim: the consonant doubles
_DOUBLING = (  # in British English
    *("admit", "begin", "cancel", "dial", "forget", "label", "prefer", "quit", "reset"),
    *("resit", "shovel", "sublet", "submit", "transfer", "travel", "unplug", "unwrap"),
)
_BE = {"I": ("am", "was"), "he": ("is", "was")}


def plural(noun: str) -> str:
    """Form a regular plural."""
    if noun.endswith(("s", "x", "ch", "sh", "ato")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def indefinite(phrase: str) -> str:
    """Put "a" or "an" before a phrase."""
    by_sound = phrase.startswith(("uni", "use", "euro", "one "))
    return ("an " if phrase[0] in _VOWELS and not by_sound else "a ") + phrase


def third_person(verb: str) -> str:
    """Form the third person singular of the present."""
    if verb == "have":
        return "has"
    return verb + "es" if verb.endswith("o") else plural(verb)


def present(verb: str, agreement: str) -> str:
    """Conjugate in the present; agreement is "I", "he" or "they" (all other persons)."""
    if verb == "be":
        return _BE.get(agreement, ("are", ""))[0]
    return third_person(verb) if agreement == "he" else verb


def past_be(agreement: str) -> str:
    """Return "was" or "were"."""
    return _BE.get(agreement, ("", "were"))[1]


def _double(verb: str) -> str:
    return verb + verb[-1] if _SHORT.match(verb) or verb in _DOUBLING else verb


def gerund(verb: str) -> str:
    """Form the -ing form: "making", "sitting", "lying"."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and verb != "be" and not verb.endswith(("ee", "ye")):
        return verb[:-1] + "ing"
    return _double(verb) + "ing"


def regular_past(verb: str) -> str:
    """Form a regular past: "tried", "stopped", "danced"."""
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return verb[:-1] + "ied"
    return _double(verb) + "ed"


def comparative(adjective: str) -> str:
    """Compare a regular adjective: "older", "happier", "more expensive"."""
    if adjective.endswith("y"):
        return adjective[:-1] + "ier"
    if len(re.findall(r"[aeiouy]+(?!$)|[aiouy]$", adjective)) > 1:
        return "more " + adjective
    return adjective + "r" if adjective.endswith("e") else _double(adjective) + "er"


_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip


def number(value: int) -> str:
    """Spell a number from 0 to 999."""
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10 - 2] + ("-" + _ONES[value % 10] if value % 10 else "")
    hundreds, rest = divmod(value, 100)
    return _ONES[hundreds] + " hundred" + (" and " + number(rest) if rest else "")


def ordinal(value: int) -> str:
    """Spell an ordinal from 1 to 99: "twenty-first"."""
    head, dash, last = number(value).rpartition("-")
    if last.endswith("y"):
        return last[:-1] + "ieth"
    return head + dash + _ORDINALS.get(last, last + "th")


_SHORT_VERBS = {"am": "m", "is": "s", "are": "re", "will": "ll", "would": "d"}
_PRONOUN_AND_VERB = re.compile(
    r"\b(I|you|he|she|it|we|they) (am|is|are|will|would)\b(?! not)", re.IGNORECASE
)
_NEGATIVE = [
    (
        re.compile(r"\b(is|are|was|were|do|does|did|should|could|would) not\b", re.IGNORECASE),
        r"\1n't",
    ),
    (re.compile(r"\bcan not\b"), "can't"),
    (re.compile(r"\bwill not\b"), "won't"),
    (re.compile(r"\bI am not\b"), "I'm not"),
]


def contract_negatives(text: str) -> str:
    """Contract "do not" to "don't"."""
    if " not" in text:
        for pattern, short in _NEGATIVE:
            text = pattern.sub(short, text)
    return text


def contract_pronouns(text: str) -> str:
    """Contract "I am" to "I'm"."""
    return _PRONOUN_AND_VERB.sub(lambda m: f"{m[1]}'{_SHORT_VERBS[m[2]]}", text)
