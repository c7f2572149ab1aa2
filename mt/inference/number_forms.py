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
_HOURS = _NUMERALS | {1: "eins"}
_STEMS = _NUMERALS | {1: "ers", 3: "drit", 7: "sieb", 8: "ach"}  # of ordinals: with t and an ending
_MILLION, _BILLION = ("Million", "Millionen", "Mio."), ("Milliarde", "Milliarden", "Mrd.")
_LARGE = {  # one, several, and the abbreviation
    "k": ("Tausend", "Tausend", "Tsd."),
    **dict.fromkeys(("M", "million"), _MILLION),
    **dict.fromkeys(("bn", "billion"), _BILLION),
}

CURRENCIES = {"€": ("Euro",), "$": ("Dollar",), "£": ("Pfund",), "¥": ("Yen",)}


def is_number(token: str) -> bool:
    """Whether it is 12, 1,250.50 or .5."""
    return token.isdecimal() or _ENGLISH.fullmatch(token) is not None


def written(number: str, decimal: str) -> tuple[str, ...]:
    """The forms of a number that may have signs for thousands and decimals."""
    if decimal == "as written" or not _ENGLISH.fullmatch(number):
        return (number,)
    german = number.translate({ord(","): ".", ord("."): ","})
    forms = (f"0{german}" if german.startswith(",") else german,)
    return forms if decimal == "german" else (*forms, number)


def both_written(first: str, last: str, decimal: str) -> list[tuple[str, str]]:
    """Two numbers in the first form of ``written``, and both in its last one."""
    ends = written(first, decimal), written(last, decimal)
    return list(dict.fromkeys((ends[0][i], ends[1][i]) for i in (0, -1)))


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
    pairs = both_written(first, last, decimal)
    dashes = "-–" if dash == "-" else "–-"
    return tuple(f"{one}{sign}{other}" for one, other in pairs for sign in dashes)


def clock_time(hour: str, minute: str | None, is_afternoon: bool) -> tuple[str, ...]:
    """The forms of a time such as 3:15 pm: of 24 hours, or as it is."""
    hours = [str(int(hour) % 12 + 12 * is_afternoon), hour]
    if int(hour) == 12 and not is_afternoon:  # 12 Uhr is noon
        hours = ["0"] if minute else ["0", "24"]
    if minute:
        hours = [f"{h}{sign}{minute}" for h in hours for sign in ":."]
    return tuple(dict.fromkeys(hours))


def opening_hours(
    first: tuple[str, str | None, str | None], last: tuple[str, str | None, str]
) -> tuple[str, ...]:
    """The forms of a span of time such as 9:30am-5pm, each end as hour, minute and half of the day.

    A first time without its half is the nearest one before the last: 2-3 p.m., 11-1 p.m.
    """
    is_afternoon = last[2].lower() == "p"
    if first[2]:
        begins_in_afternoon = first[2].lower() == "p"
    else:
        begins_in_afternoon = is_afternoon == (int(first[0]) % 12 < int(last[0]) % 12)
    begins = clock_time(first[0], first[1], begins_in_afternoon)[:1]
    ends = clock_time(last[0], last[1], is_afternoon)[:1]
    ends = ("24",) if ends == ("0",) else ends
    if bool(first[1]) != bool(last[1]):  # 14:00–15:30 is as good as 14–15:30
        begins += () if first[1] else (f"{begins[0]}:00",)
        ends += () if last[1] else (f"{ends[0]}:00",)
    pairs = [(begin, end) for begin in begins for end in ends]
    return tuple(f"{begin}{sign}{end}" for begin, end in pairs for sign in ("–", "-", " bis "))


def spoken_time(words: str, hour: int) -> tuple[str, ...]:
    """The forms of a time such as "half past 5" or "quarter to 5"; in both ``hour`` is 5."""
    following = hour % 12 + 1
    if words == "half past":
        name, plain = f"halb {_HOURS[following]}", (hour, "30")
    elif words == "quarter to":
        name, plain = f"Viertel vor {_HOURS[hour]}", ((hour - 2) % 12 + 1, "45")
    else:
        name, plain = f"Viertel nach {_HOURS[hour]}", (hour, "15")
    names = (name, name[0].swapcase() + name[1:])
    return (*names, *(f"{plain[0]}{sign}{plain[1]}" for sign in ":."))


def numeric_date(first: str, second: str, year: str) -> tuple[str, ...]:
    """The forms of 03/18/1987 or 18/03/1987; none of 03/04/1987, which may be either day."""
    numbers = int(first), int(second)
    if min(numbers) < 1 or min(numbers) > 12 or not 12 < max(numbers) <= 31:
        return ()
    day, month = max(numbers), min(numbers)
    return tuple(dict.fromkeys((f"{day}.{month:02}.{year}", f"{day}.{month}.{year}")))


def with_sign(forms: tuple[str, ...], signs: str) -> tuple[str, ...]:
    """The forms with each of the signs before them."""
    return tuple(f"{sign}{form}" for form in forms for sign in signs)


def amounts(forms: tuple[str, ...], sign: str) -> tuple[str, ...]:
    """The forms of a number with the sign of a currency or a unit."""
    names = CURRENCIES.get(sign, ())
    written_forms = [f"{form} {name}" for form in forms for name in (sign, *names)]
    written_forms += [f"{form}{sign}" for form in forms]
    written_forms += [f"{sign}{form}" for form in forms if names]
    return tuple(written_forms)


def shortened(forms: tuple[str, ...], sign: str) -> tuple[str, ...]:
    """The forms of 20k, 1.5M or 2bn; ``forms`` are those of its number."""
    one, many, short = _LARGE[sign]
    rows = [f"{form} {name}" for form in forms for name in (one if _is_one(form) else many, short)]
    zeros = [f"{form}.000" for form in forms if sign == "k" and form.isdecimal() and len(form) < 4]
    return (*zeros, *rows, *(f"{form}{sign}" for form in forms))


def _is_one(form: str) -> bool:
    return form.lstrip("+-−–") == "1"


def millions(forms: tuple[str, ...], word: str, currency: str) -> tuple[str, ...]:
    """The forms of an amount such as €276 million; ``forms`` are those of its number."""
    one, many, short = _LARGE[word]
    signs = (*CURRENCIES.get(currency, ()), currency)
    names = [one if _is_one(form) else many for form in forms]
    rows = [*zip(forms, names, strict=True), *((form, short) for form in forms)]
    return tuple(f"{form} {written_name} {sign}" for form, written_name in rows for sign in signs)
