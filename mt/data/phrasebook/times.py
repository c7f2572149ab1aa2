"""Clock times, dates, spans and amounts as pairs of texts."""

from __future__ import annotations

from functools import cache

from . import english as en
from . import morphology as de
from .words import Pair


def _zip_words(english: str, german: str) -> tuple[tuple[str, str], ...]:
    return tuple(zip(english.split(), german.split(), strict=True))


WEEKDAYS = _zip_words(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
)
MONTHS = _zip_words(
    "January February March April May June July August September October November December",
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
)


@cache
def clock() -> tuple[Pair, ...]:
    """Clock times: German counts halves towards the next hour, "half past seven" is halb acht."""
    times = []
    for hour in range(1, 13):
        next_hour = de.number(hour % 12 + 1)
        source, target = en.number(hour), de.number(hour)
        times += [
            Pair(f"{source} o'clock", f"{'ein' if hour == 1 else target} Uhr"),
            Pair(f"half past {source}", f"halb {next_hour}"),
            Pair(f"quarter past {source}", f"Viertel nach {target}"),
            Pair(f"quarter to {source}", f"Viertel vor {target}"),
        ]
        for minutes in (5, 10, 20):
            few, wenig = en.number(minutes), de.number(minutes)
            times += [
                Pair(f"{few} past {source}", f"{wenig} nach {target}"),
                Pair(f"{few} to {source}", f"{wenig} vor {target}"),
            ]
    return tuple(times)


def clock_times() -> tuple[Pair, ...]:
    """Clock times with their preposition."""
    return tuple(Pair(f"at {t.source}", f"um {t.target}") for t in clock())


def dates() -> tuple[Pair, ...]:
    """Dates; in German "#" stands where the ordinal's ending goes."""
    return tuple(
        Pair(f"the {en.ordinal(day)} of {month}", f"{de.ordinal(day)}# {monat}")
        for month, monat in MONTHS
        for day in range(1, 29)
    )


def dated(ending: str) -> tuple[Pair, ...]:
    """Dates with this adjective ending in German, which depends on the case."""
    return tuple(Pair(d.source, d.target.replace("#", ending)) for d in dates())


def numbers(first: int, last: int, step: int = 1) -> tuple[Pair, ...]:
    """Numbers from ``first`` to ``last``."""
    return tuple(Pair(en.number(n), de.number(n)) for n in range(first, last + 1, step))


def amounts(first: int, last: int, step: int = 1) -> tuple[Pair, ...]:
    """Numbers before a neuter or masculine noun: "hunderteins" loses its -s."""
    return tuple(
        Pair(n.source, n.target[:-1] if n.target.endswith("eins") else n.target)
        for n in numbers(first, last, step)
    )


def spans(years: int = 20, hours: int = 5) -> tuple[Pair, ...]:
    """Lengths of time up to ``years`` or ``hours``, in German in the dative, as after seit."""
    units = (("hour", "Stunden", 2, hours), ("day", "Tagen", 2, 9), ("week", "Wochen", 2, 9),
             ("month", "Monaten", 2, 9), ("year", "Jahren", 2, years))  # fmt: skip
    several = [
        Pair(f"{en.number(n)} {unit}s", f"{de.number(n)} {einheit}")
        for unit, einheit, first, last in units
        for n in range(first, last + 1)
    ]
    return (*several, Pair("a week", "einer Woche"), Pair("a month", "einem Monat"),
            Pair("a year", "einem Jahr"))  # fmt: skip


def hours() -> tuple[Pair, ...]:
    """Times that one may have to wait."""
    return tuple(Pair(f"for {s.source}", f"seit {s.target}") for s in spans() if "hour" in s.source)


def since(years: int = 20) -> tuple[Pair, ...]:
    """Times that something has lasted, at most ``years``."""
    return (
        *(
            Pair(f"for {s.source}", f"seit {s.target}")
            for s in spans(years)
            if "hour" not in s.source
        ),
        *(Pair(f"since {day}", f"seit {tag}") for day, tag in WEEKDAYS),
        *(Pair(f"since {month}", f"seit {monat}") for month, monat in MONTHS),
    )  # fmt: skip
