"""German inflection as pure functions: articles, adjectives, nouns, verbs.

Genders are ``m``, ``f``, ``n`` and ``p`` (plural, which has no gender of its own); cases are
``nom``, ``acc``, ``dat`` and ``gen``. Persons are numbered as in a conjugation table:
0 ich, 1 du, 2 er/sie/es, 3 wir, 4 ihr, 5 sie/Sie.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CASES = ("nom", "acc", "dat", "gen")

# A row for each gender, a column for each case.
_DER = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "p": ("die", "die", "den", "der"),
}
_DIESER = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
_EIN = {
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
_DER_WORDS = ("der", "dies", "jed", "welch")
_EIN_WORDS = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser", "euer", "Ihr")

# Preposition and article that contract to one word.
_CONTRACTIONS = {
    "zu dem": "zum", "zu der": "zur", "in dem": "im", "in das": "ins",
    "an dem": "am", "an das": "ans", "von dem": "vom", "bei dem": "beim",
}  # fmt: skip
_CONTRACTIBLE = re.compile(rf"\b(?:{'|'.join(_CONTRACTIONS)})\b")


def article(word: str, gender: str, case: str) -> str:
    """Inflect an article-like word: ``article("mein", "f", "dat")`` is "meiner"."""
    column = CASES.index(case)
    if word == "der":
        return _DER[gender][column]
    if word in _DER_WORDS:
        return word + _DIESER[gender][column]
    if word in _EIN_WORDS:
        if word == "ein" and gender == "p":
            return ""
        ending = _EIN[gender][column]
        return ("eur" if word == "euer" and ending else word) + ending
    return ""


def adjective_ending(word: str, gender: str, case: str) -> str:
    """Return the ending of an adjective after the article-like word ("" for no article)."""
    column = CASES.index(case)
    bare = not word or (word == "ein" and gender == "p")
    if bare:
        # Without an article the adjective itself shows the case, except beside a genitive -s.
        return "en" if case == "gen" and gender in "mn" else _DIESER[gender][column]
    if case in ("dat", "gen") or gender == "p" or (gender == "m" and case == "acc"):
        return "en"
    return "e" if word in _DER_WORDS else _DIESER[gender][column]


def adjective(base: str, word: str, gender: str, case: str) -> str:
    """Inflect an attributive adjective: ``adjective("teuer", "ein", "n", "acc")`` is "teures"."""
    if base == "hoch":
        base = "hoh"
    elif base.endswith(("el", "euer")):
        base = base[:-2] + base[-1]
    ending = adjective_ending(word, gender, case)
    return base + (ending[1:] if base.endswith("e") else ending)


def relative_pronoun(gender: str, case: str) -> str:
    """Return the relative pronoun: like the article, but "denen" in the dative plural."""
    return "denen" if (gender, case) == ("p", "dat") else article("der", gender, case)


def noun_form(singular: str, plural: str, gender: str, case: str, weak: bool = False) -> str:
    """Inflect a noun; weak nouns (der Junge, den Jungen) look like their plural outside the
    nominative."""
    if gender == "p":
        return plural + ("n" if case == "dat" and not plural.endswith(("n", "s")) else "")
    if weak and case != "nom":
        return plural
    if case == "gen" and gender in "mn":
        # Short native words take -es; loans, known by their plural in -s, do not.
        short = len(re.findall("[aeiouäöüy]+", singular.lower())) == 1 and plural[-1:] != "s"
        return singular + ("es" if short or singular.endswith(("s", "ß", "z")) else "s")
    return singular


def contract(text: str) -> str:
    """Contract prepositions and articles: "zu dem Bahnhof" becomes "zum Bahnhof"."""
    return _CONTRACTIBLE.sub(lambda match: _CONTRACTIONS[match[0]], text)


_PRESENT = {
    "sein": ("bin", "bist", "ist", "sind", "seid", "sind"),
    "haben": ("habe", "hast", "hat", "haben", "habt", "haben"),
    "werden": ("werde", "wirst", "wird", "werden", "werdet", "werden"),
    "wissen": ("weiß", "weißt", "weiß", "wissen", "wisst", "wissen"),
    "tun": ("tue", "tust", "tut", "tun", "tut", "tun"),
    "können": ("kann", "kannst", "kann", "können", "könnt", "können"),
    "müssen": ("muss", "musst", "muss", "müssen", "müsst", "müssen"),
    "dürfen": ("darf", "darfst", "darf", "dürfen", "dürft", "dürfen"),
    "wollen": ("will", "willst", "will", "wollen", "wollt", "wollen"),
    "sollen": ("soll", "sollst", "soll", "sollen", "sollt", "sollen"),
    "mögen": ("mag", "magst", "mag", "mögen", "mögt", "mögen"),
    # Subjunctives that everyday German uses like presents of their own.
    "möchten": ("möchte", "möchtest", "möchte", "möchten", "möchtet", "möchten"),
    "könnten": ("könnte", "könntest", "könnte", "könnten", "könntet", "könnten"),
    "sollten": ("sollte", "solltest", "sollte", "sollten", "solltet", "sollten"),
    "hätten": ("hätte", "hättest", "hätte", "hätten", "hättet", "hätten"),
    "wären": ("wäre", "wärst", "wäre", "wären", "wärt", "wären"),
}
_PAST_STEM = {
    "sein": "war", "haben": "hatte", "werden": "wurde", "wissen": "wusste", "geben": "gab",
    "können": "konnte", "müssen": "musste", "dürfen": "durfte", "wollen": "wollte",
    "sollen": "sollte", "mögen": "mochte",
}  # fmt: skip
INSEPARABLE = ("be", "emp", "ent", "er", "ge", "hinter", "miss", "über", "unter", "ver", "zer")


@dataclass(frozen=True)
class Verb:
    """A dictionary entry: the infinitive, and the forms that do not follow from it."""

    infinitive: str  # without the separable prefix: "stehen"
    prefix: str = ""  # "auf" of aufstehen
    changed: str = ""  # stem of du and er where its vowel changes: "fähr"
    strong: str = ""  # irregular participle, without the prefix: "gestanden"
    auxiliary: str = "haben"

    @property
    def name(self) -> str:
        """The full infinitive: "aufstehen"."""
        return self.prefix + self.infinitive

    @property
    def stem(self) -> str:
        """The infinitive without -en or -n."""
        cut = 2 if self.infinitive.endswith("en") else 1
        return self.infinitive[:-cut]

    @property
    def has_past(self) -> bool:
        """Whether speech prefers the simple past (ich war) to the perfect."""
        return self.infinitive in _PAST_STEM and self.infinitive != "geben"


def _needs_e(stem: str) -> bool:
    """Whether -st and -t need a vowel before them: arbeit-e-t, regn-e-t, but lern-t."""
    if stem.endswith(("t", "d")):
        return True
    if stem.endswith("chn"):
        return True
    return stem[-1] in "mn" and stem[-2] not in "aeiouäöülrmnh"


def present(verb: Verb, person: int) -> str:
    """Conjugate in the present, without the separable prefix."""
    if verb.infinitive in _PRESENT:
        return _PRESENT[verb.infinitive][person]
    if person in (3, 5):
        return verb.infinitive
    stem = verb.stem
    if person == 0:
        return (stem[:-2] + "l" if verb.infinitive.endswith("eln") else stem) + "e"
    if person in (1, 2) and verb.changed:
        stem = verb.changed
        if person == 1:
            return stem + ("t" if stem.endswith(("s", "ß", "z")) else "st")
        return stem if stem.endswith("t") else stem + "t"
    link = "e" if _needs_e(stem) else ""
    if person == 1:
        return stem + link + ("t" if stem.endswith(("s", "ß", "z", "x")) else "st")
    return stem + link + "t"


def past(verb: Verb, person: int) -> str:
    """Conjugate in the simple past (only verbs for which everyday German uses it)."""
    stem = _PAST_STEM[verb.infinitive]
    if stem.endswith("e"):
        return stem + ("", "st", "", "n", "t", "n")[person]
    return stem + ("", "st", "", "en", "t", "en")[person]


def participle(verb: Verb) -> str:
    """Form the past participle: "aufgestanden", "besucht", "studiert"."""
    if verb.strong:
        return verb.prefix + verb.strong
    plain = verb.infinitive.startswith(INSEPARABLE) or verb.infinitive.endswith("ieren")
    link = "e" if _needs_e(verb.stem) else ""
    return verb.prefix + ("" if plain else "ge") + verb.stem + link + "t"


def zu_infinitive(verb: Verb) -> str:
    """Form the infinitive with zu: "zu gehen", "aufzustehen"."""
    return f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"


def imperative(verb: Verb, key: str) -> str:
    """Form the imperative for du, ihr or Sie, without the separable prefix."""
    if verb.infinitive == "sein":
        return {"du": "sei", "ihr": "seid", "Sie": "seien"}[key]
    if key == "Sie":
        return verb.infinitive
    if key == "ihr":
        return present(verb, 4)
    # Only e becoming i survives in the imperative (nimm, lies), not a becoming ä (fahr).
    if verb.changed and not set("äö") & set(verb.changed):
        return verb.changed
    stem = verb.stem
    if verb.infinitive.endswith("eln"):
        return stem[:-2] + "le"
    return stem + (
        "e" if _needs_e(stem) or stem.endswith(("er", "dig", "tig", "nig", "dank", "buch")) else ""
    )


_ONES = [
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn",
    "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn",
    "neunzehn",
]  # fmt: skip
_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


def number(value: int) -> str:
    """Spell a number from 0 to 999 as when counting: 21 is "einundzwanzig"."""
    if value < 20:
        return _ONES[value]
    if value < 100:
        ones, tens = value % 10, _TENS[value // 10 - 2]
        return (("ein" if ones == 1 else _ONES[ones]) + "und" if ones else "") + tens
    hundreds, rest = divmod(value, 100)
    head = ("ein" if hundreds == 1 else _ONES[hundreds]) + "hundert"
    return head + (number(rest) if rest else "")


def ordinal(value: int) -> str:
    """Spell the stem of an ordinal from 1 to 99: "dritt", to be inflected like an adjective."""
    irregular = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
    return irregular.get(value, number(value) + ("t" if value < 20 else "st"))
