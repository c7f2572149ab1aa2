"""How a German translation may write the numbers of an English text, the likeliest form first.

``decimal`` is how numbers with a sign for thousands or decimals are written, one of DECIMALS.
"""

import re

DECIMALS = ("as written", "german", "either")

_ENGLISH = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]*\.[0-9]+")
_ONE = ("ein", "eine", "einen", "einem", "einer", "eines", "eins")
_NUMERALS = {
    2: "zwei", 3: "drei", 4: "vier", 5: "fünf", 6: "sechs", 7: "sieben", 8: "acht", 9: "neun",
    10: "zehn", 11: "elf", 12: "zwölf",
}  # fmt: skip
_STEMS = _NUMERALS | {1: "ers", 3: "drit", 7: "sieb", 8: "ach"}  # of ordinals: with t and an ending


def is_number(token: str) -> bool:
    """Whether it is 12, 1,250.50 or .5."""
    return token.isdecimal() or _ENGLISH.fullmatch(token) is not None


def written(number: str, decimal: str) -> tuple[str, ...]:
    """The forms of a number that may have signs for thousands and decimals."""
    if decimal == "as written" or not _ENGLISH.fullmatch(number):
        return (number,)
    german = number.translate({ord(","): ".", ord("."): ","})
    forms = (f"0{german}", german) if german.startswith(",") else (german,)
    return forms if decimal == "german" else (*forms, number)


def numerals(number: str) -> tuple[str, ...]:
    """What a German translator may write for a small number."""
    if len(number) > 2 or not number.isdecimal():
        return ()
    words = _ONE if int(number) == 1 else (_NUMERALS.get(int(number), ""),)
    return tuple(form for word in words if word for form in (word, word.capitalize()))


def ordinal(number: str, decimal: str) -> tuple[str, ...]:
    """The forms of an ordinal such as 3rd, without its ending."""
    numbers = written(number, decimal)
    words: tuple[str, ...] = ()
    if decimal != "as written" and len(number) < 3 and int(number) in _STEMS:
        stem = _STEMS[int(number)] + "t"
        words = tuple(stem + ending for ending in ("e", "en", "er", "es", "em"))
    return (*(f"{n}." for n in numbers), *words, *map(str.capitalize, words), *numbers)


def decade(number: str) -> tuple[str, ...]:
    """The forms of a decade such as 1990s."""
    endings = ("er", "ern", "er-Jahre", "er-Jahren")
    return (*(number + ending for ending in endings), f"{number}s", number)


def number_range(first: str, dash: str, last: str, decimal: str) -> tuple[str, ...]:
    """The forms of a range such as 3-5, with a hyphen or an en dash."""
    ends = written(first, decimal), written(last, decimal)
    pairs = dict.fromkeys((ends[0][i], ends[1][i]) for i in (0, -1))
    dashes = "-–" if dash == "-" else "–-"
    return tuple(f"{one}{sign}{other}" for one, other in pairs for sign in dashes)


def clock_time(hour: str, minute: str | None, is_afternoon: bool) -> tuple[str, ...]:
    """The forms of a time such as 3:15 pm: of 24 hours, or as it is."""
    hours = [str(int(hour) % 12 + 12 * is_afternoon), hour]
    if int(hour) == 12 and not is_afternoon:
        hours = ["0", "24", hour]
    if minute:
        hours = [f"{h}{sign}{minute}" for h in hours for sign in ":."]
    return tuple(dict.fromkeys(hours))
