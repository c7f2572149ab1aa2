"""Other pairs made of given ones: other names and numbers, several sentences in a line.

``substitute`` serves hand-written sentences, ``rename`` those of Tatoeba, where half of the people
are Tom or Mary, and ``join`` any corpus. All of them are deterministic.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from functools import cache

from .entity_codes import names
from .entity_values import Values, number
from .times import MONTHS, WEEKDAYS

Pair = tuple[str, str]


def rename(pairs: Iterable[Pair], count: int, seed: int) -> list[Pair]:
    """Return at most ``count`` pairs in which Tom and Mary have other names.

    Pairs with a genitive ("Tom's", "Toms") stay away: the German one depends on the new name.
    """
    rng = random.Random(seed)
    values = Values(rng, "train")
    chosen = [pair for pair in pairs if re.search(r"\b(Tom|Mary)\b", pair[0])]
    rng.shuffle(chosen)
    renamed = (_rename(*pair, values) for pair in chosen)
    return [pair for pair, _ in zip(filter(None, renamed), range(count), strict=False)]


def _rename(english: str, german: str, values: Values) -> Pair | None:
    if re.search(r"\b(Tom|Mary|Maria)['’]|\b(Toms|Marys|Marias|Tommy)\b", f"{english} {german}"):
        return None
    for old, draw in (("Tom", values.male), ("Mary", values.female)):
        word = "Maria" if old == "Mary" and "Maria" in german else old
        places = len(re.findall(rf"\b{old}\b", english))
        if places != len(re.findall(rf"\b{word}\b", german)):
            return None
        if places:
            new = draw().english
            if values.rng.random() < 0.2:
                new += f" {values.surname().english}"
            english = re.sub(rf"\b{old}\b", new, english)
            german = re.sub(rf"\b{word}\b", new, german)
    return english, german


def join(pairs: Iterable[Pair], count: int, seed: int) -> list[Pair]:
    """Return ``count`` lines of two to four sentences; none when there are no whole sentences."""
    rng = random.Random(seed)
    whole = [
        (english, german)
        for english, german in pairs
        if english[:1].isupper() and len(english) < 160
        and english[-1:] in (*".!?",) and german[-1:] in (*".!?",)
    ]  # fmt: skip
    if len(whole) < 4:
        return []
    chosen = (rng.sample(whole, rng.choice([2, 2, 3, 4])) for _ in range(count))
    return [(" ".join(e for e, _ in some), " ".join(g for _, g in some)) for some in chosen]


def substitute(pairs: Sequence[Pair], count: int, seed: int) -> list[Pair]:
    """Return ``count`` variants of pairs with an entity that both sides plainly share.

    A variant has other values of the same kinds: names, numbers, prices, times, dates. Fewer come
    back where so many different ones cannot be found.
    """
    rng = random.Random(seed)
    values = Values(rng, "train")
    usable = [pair for pair in pairs if _vary(*pair, values) != pair]
    variants: dict[Pair, None] = {}
    for _ in range(4 * count if usable else 0):
        pair = rng.choice(usable)
        variant = _vary(*pair, values)
        if variant != pair:
            variants[variant] = None
        if len(variants) == count:
            break
    return list(variants)


def _vary(english: str, german: str, values: Values) -> Pair:
    for rewrite in (_names, _weekdays, _times, _dates, _numbers):
        english, german = rewrite(english, german, values)
    return english, german


def _swap(pair: Pair, old: Pair, new: Pair) -> Pair:
    """Replace a word in both sides, or in none: the two must have it equally often.

    Nothing happens where it is part of another word, of a genitive or of a longer number.
    """
    patterns = [rf"(?<![\w'’.,:/-]){re.escape(word)}(?![\w'’/-]|[.,:]\d)" for word in old]
    places = [len(re.findall(p, text)) for p, text in zip(patterns, pair, strict=True)]
    if [text.count(word) for text, word in zip(pair, old, strict=True)] != [places[0]] * 2:
        return pair
    if places[0] != places[1]:
        return pair
    english, german = (
        re.sub(pattern, word, text) for pattern, word, text in zip(patterns, new, pair, strict=True)
    )
    return english, german


@cache
def _gender() -> dict[str, str]:
    return {name.english: kind for kind in ("male", "female") for name in names(kind, "train")}


def _names(english: str, german: str, values: Values) -> Pair:
    """First names, surnames after them or after a title, cities of one name."""
    pair = english, german
    titled = re.findall(r"\b(?:Mrs?|Ms|Dr|Professor)\.? ([A-Z][\w-]+)", english)
    for name in sorted(set(re.findall(r"\b[A-Z][\w-]+", english))):
        if name in _gender():
            new = getattr(values, _gender()[name])().english
            for surname in re.findall(rf"\b{name} ([A-Z][\w-]+)", english):
                pair = _swap(pair, (surname, surname), (other := values.surname().english, other))
        elif name in titled:
            new = values.surname().english
        elif name in _cities():
            new = values.rng.choice(sorted(_cities()))
        else:
            continue
        pair = _swap(pair, (name, name), (new, new))
    return pair


@cache
def _cities() -> frozenset[str]:
    return frozenset(city.english for city in names("city", "train"))


def _weekdays(english: str, german: str, values: Values) -> Pair:
    pair = english, german
    days = [day for day in WEEKDAYS if day[0] in english]
    if len(days) == 1:
        pair = _swap(pair, days[0], values.rng.choice(WEEKDAYS))
    return pair


_ENGLISH_TIME = re.compile(
    r"(?<![\w.,:])(\d{1,2})(?:[:.](\d\d))?(?: ?([ap])\.?m\b\.?| (o)'clock|(?<=:\d\d))(?![\w:])"
)
_GERMAN_TIME = re.compile(r"(?<![\w.,:])(\d{1,2})(?:[:.](\d\d))? Uhr(?! \d| \w+(?:s|früh)\b)")


def _times(english: str, german: str, values: Values) -> Pair:
    """A time in digits, if it is the only one."""
    times, german_times = list(_ENGLISH_TIME.finditer(english)), list(_GERMAN_TIME.finditer(german))
    if len(times) != 1 or len(german_times) != 1 or german.count("Uhr") != 1:
        return english, german
    hour, minute, half, _ = times[0].groups()
    hours = int(hour) % 12 + (12 if half == "p" else 0) if half else int(hour)
    stunde, minuten = german_times[0].groups()
    if (hours, int(minute or 0)) != (int(stunde), int(minuten or 0)):
        return english, german
    new = values.time()
    source = english[: times[0].start()] + new.english + english[times[0].end() :]
    if english.endswith(".") and not source.endswith("."):
        source += "."
    source = source.replace(".m..", ".m.")
    return source, _GERMAN_TIME.sub(lambda _: new.german[0], german)


_MONTH, _MONAT = ("|".join(names) for names in zip(*MONTHS, strict=True))
_ENGLISH_DATE = re.compile(
    rf"(?:(the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})|"
    rf"\b({_MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?)(?:,? (\d{{4}}))?\b"
)
_GERMAN_DATE = re.compile(rf"\b(\d{{1,2}})\. ({_MONAT})(?: (\d{{4}}))?\b")


def _dates(english: str, german: str, values: Values) -> Pair:
    """A date with the name of a month, if it is the only one."""
    dates, german_dates = list(_ENGLISH_DATE.finditer(english)), list(_GERMAN_DATE.finditer(german))
    if len(dates) != 1 or len(german_dates) != 1:
        return english, german
    the, day, month, month2, day2, year = dates[0].groups()
    tag, monat, jahr = german_dates[0].groups()
    if (day or day2, dict(MONTHS)[month or month2], year) != (tag, monat, jahr):
        return english, german
    while (new := (values.date if year else values.daymonth)()).english.startswith("the ") != bool(
        the
    ):
        pass
    source = english[: dates[0].start()] + new.english + english[dates[0].end() :]
    return source, _GERMAN_DATE.sub(lambda _: new.german[0], german)


_NUMBER = re.compile(r"(?<![\w'’.,:/#@-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w'’/-]|[.,:]\d)")


def _numbers(english: str, german: str, values: Values) -> Pair:
    """Numbers but those of dates and times: the new one has as many digits."""
    pair = english, german
    if "Uhr" in german or re.search(_MONTH, english) or re.search(r"\d\. [A-ZÄÖÜ]", german):
        return pair
    for old in sorted(set(_NUMBER.findall(english)), key=lambda text: (-len(text), text)):
        if old in ("0", "1", "100"):
            continue
        if re.fullmatch(r"1\d{3}|20[0-3]\d", old):
            new = values.year().english
        else:
            new = re.sub(r"\d", lambda _: values.rng.choice("123456789"), old)
            new = (values.rng.choice("23456789") if old[0] != "0" else "0") + new[1:]
        forms = [form for form in number(old) if form in german]
        if forms and not re.search(rf"\d[.,]?{re.escape(forms[0])}", german):
            shape = (
                number(new)[number(old).index(forms[0])] if len(number(new)) > 1 else number(new)[0]
            )
            pair = _swap(pair, (old, forms[0]), (new, shape))
    return pair
