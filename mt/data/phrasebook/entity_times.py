"""Values of slots: times of day, dates and places."""

from __future__ import annotations

from itertools import product

from . import english as en
from . import morphology as de
from .entity_codes import DIGITS, UPPER, Codes, Value, reserved, same
from .times import MONTHS, WEEKDAYS

# When a part of the day begins and ends: "8 Uhr abends", "3 Uhr nachts".
_PARTS_OF_THE_DAY = [
    *[("nachts", range(5)), ("nachts", range(22, 24)), ("morgens", range(3, 12))],
    *[("früh", range(4, 10)), ("vormittags", range(8, 12)), ("mittags", range(12, 14))],
    *[("nachmittags", range(13, 19)), ("abends", range(17, 24))],
]


def clock(hour: int, minute: int, halves: bool = False) -> tuple[str, ...]:
    """Return the German forms of a time; ``halves``: also those of a day of twice twelve hours."""
    exact = [f"{h}{mark}{minute:02}" for mark in ":." for h in (hour, f"{hour:02}")]
    forms = [f"{time} Uhr" for time in exact] + [time for time in exact if ":" in time]
    if minute:
        forms.append(f"{hour} Uhr {minute}")
    else:
        words = [de.number(hour)] if 1 < hour <= 12 else ["ein"] if hour == 1 else []
        forms = [f"{h} Uhr" for h in (hour, *words)] + forms
        forms += ["Mitternacht", "24 Uhr"] if hour == 0 else []
    if halves:
        names = [name for name, hours in _PARTS_OF_THE_DAY if hour in hours]
        twelve = [form for form in clock(hour % 12 or 12, minute) if "Uhr" in form]
        forms += [f"{form} {name}" for form in twelve for name in names]
    return tuple(dict.fromkeys(forms))


def ordinal(value: int) -> str:
    """Return an English ordinal in digits: 3rd."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{value}{'th' if 10 < value % 100 < 14 else ends.get(value % 10, 'th')}"


def date(day: int, month: int, year: str = "") -> tuple[str, ...]:
    """Return the German forms of a date: 3. März 1987, 3.3.1987, 03.03.1987."""
    end = f" {year}" if year else ""
    name = MONTHS[month - 1][1]
    numeric = [f"{day}.{month}.{year}", f"{day:02}.{month:02}.{year}", f"{day}. {month}.{end}"]
    return (f"{day}. {name}{end}", f"{day:02}. {name}{end}", *numeric)


class Times(Codes):
    """Draws times, dates and places; each public method is a kind."""

    # Times of day
    def time(self) -> Value:
        return self._full_hour() if self.rng.random() < 0.25 else self._exact_time()

    def _mark(self, hour: int) -> str:
        marks = [" a.m.", " am", "am", " AM"] if hour < 12 else [" p.m.", " pm", "pm", " PM"]
        return self.rng.choice(marks)

    def _full_hour(self) -> Value:
        hour = self.between(0, 23)
        return Value(f"{hour % 12 or 12}{self._mark(hour)}", clock(hour, 0, halves=True))

    @reserved
    def _exact_time(self) -> Value:
        hour, minute = self.between(0, 23), self.rng.choice([0, 15, 30, 45, *range(1, 60)])
        if self.rng.random() < 0.5:
            padded = f"{hour:02}" if self.rng.random() < 0.3 else str(hour)
            return Value(f"{padded}:{minute:02}", clock(hour, minute))
        dot = "." if self.rng.random() < 0.15 else ":"
        english = f"{hour % 12 or 12}{dot}{minute:02}{self._mark(hour)}"
        times = clock(hour, minute, halves=True)
        return Value(english, tuple(sorted(times, key=lambda form: ":" not in form)))

    def oclock(self) -> Value:
        hour = self.between(1, 12)
        return Value(f"{hour} o'clock", clock(hour, 0))

    @reserved
    def hours(self) -> Value:
        """From when to when."""
        first = self.between(6, 13)
        last = self.between(first + 1, 23)
        a, b = self.rng.choice([0, 0, 0, 30, 15, 45]), self.rng.choice([0, 0, 0, 30, 15, 45])
        if self.rng.random() < 0.3:
            english = f"{first}:{a:02} to {last}:{b:02}"
        else:
            starts, ends = (
                f"{h % 12 or 12}" + (f":{m:02}" if m else "") for h, m in ((first, a), (last, b))
            )
            english = f"{starts}{self._mark(first)} {self.rng.choice(['to', 'until'])} "
            english += f"{ends}{self._mark(last)}"
        earlier, later = clock(first, a), clock(last, b)
        bare = [form.removesuffix(" Uhr") for form in earlier]
        pairs = product(("bis", "–", "-"), dict.fromkeys((*bare, *earlier)), later)
        forms = [f"{x} {to} {y}" if to == "bis" else f"{x}{to}{y}" for to, x, y in pairs]
        return Value(english, tuple(forms))

    # Dates
    def weekday(self) -> Value:
        english, german = self.rng.choice(WEEKDAYS)
        return Value(english, (german,))

    def weekdays(self) -> Value:
        english, german = self.rng.choice(WEEKDAYS)
        return Value(f"{english}s", (f"{german}s", f"{german.lower()}s", f"jeden {german}"))

    def month(self) -> Value:
        english, german = self.rng.choice(MONTHS)
        return Value(english, (german,))

    @reserved
    def year(self) -> Value:
        return same(self._year())

    def _year(self) -> str:
        recent = self.rng.random() < 0.7
        return str(self.between(1950, 2035) if recent else self.between(1400, 1949))

    def decade(self) -> Value:
        """The dative: in den 1980er-Jahren."""
        tens = self.between(2, 9) * 10
        short = [f"{tens}er-Jahren", f"{tens}er Jahren", f"{de.number(tens)}er Jahren"]
        forms = [f"19{tens}er-Jahren", f"19{tens}er Jahren", f"19{tens}ern", f"{tens}ern"]
        return Value(f"19{tens}s", (*forms, *short))

    @reserved
    def daymonth(self) -> Value:
        day, month = self.between(1, 28), self.between(1, 12)
        return Value(self._english_date(day, month, ""), date(day, month))

    @reserved
    def date(self) -> Value:
        day, month, year = self.between(1, 28), self.between(1, 12), self._year()
        return Value(self._english_date(day, month, year), date(day, month, year))

    def _english_date(self, day: int, month: int, year: str) -> str:
        """Return a date in a British or American form."""
        name, th = MONTHS[month - 1][0], ordinal(day)
        end, after = (f" {year}", f", {year}") if year else ("", "")
        forms = [f"{name} {day}{after}", f"{day} {name}{end}"] * 2
        forms += [f"{name} {th}{after}", f"the {th} of {name}{end}", f"{th} {name}{end}"]
        return self.rng.choice(forms)

    def weekdate(self) -> Value:
        """The dative, as after am: Montag, dem 3. März."""
        return self._weekdate(("{0}, dem {1}", "{0}, den {1}", "{0}, {1}", "{0} {1}"))

    def letterdate(self) -> Value:
        """A date that stands alone: Montag, 3. März."""
        return self._weekdate(("{0}, {1}", "{0}, der {1}", "{0}, den {1}", "{0} {1}"))

    def _weekdate(self, frames: tuple[str, ...]) -> Value:
        day, value = self.weekday(), self.rng.choice([self.daymonth, self.daymonth, self.date])()
        while value.english.startswith("the "):
            value = self.daymonth()
        forms = [frame.format(day.german[0], form) for frame in frames for form in value.german]
        return Value(f"{day.english}, {value.english}", tuple(forms), own=True)

    @reserved
    def iso(self) -> Value:
        day, month, year = self.between(1, 28), self.between(1, 12), str(self.between(1990, 2035))
        return same(f"{year}-{month:02}-{day:02}", *date(day, month, year))

    @reserved
    def numdate(self) -> Value:
        """A date in digits, which only one order of day and month can explain."""
        day, month, year = self.between(13, 28), self.between(1, 12), str(self.between(1940, 2035))
        english = [f"{day}/{month:02}/{year}", f"{month}/{day}/{year}", f"{month:02}/{day}/{year}"]
        forms = sorted(
            date(day, month, year), key=lambda form: form != f"{day:02}.{month:02}.{year}"
        )
        return Value(self.rng.choice(english), tuple(forms))

    # Places
    def platform(self) -> Value:
        return same(f"{self.between(1, 24)}{self.rng.choice(['', '', '', 'a', 'b', 'C'])}")

    @reserved
    def gate(self) -> Value:
        return same(f"{self.rng.choice('ABCDEFGH')}{self.between(1, 79)}")

    @reserved
    def room(self) -> Value:
        between, pick = self.between, self.rng.choice
        rooms = [str(between(1, 999)), str(between(1, 999)), f"{between(0, 9)}.{between(1, 30):02}"]
        rooms += [f"{pick('ABCDEFG')}{between(1, 450)}", f"{pick('ABCD')}-{between(1, 30):02}"]
        return same(pick(rooms))

    def floor(self) -> Value:
        """The German form stands after im; the British count: the first floor is above ground."""
        if self.rng.random() < 0.25:
            return Value("ground floor", ("Erdgeschoss", "EG", "Parterre"))
        return Value("top floor", ("obersten Stock",)) if self.rng.random() < 0.1 else self.upper()

    def upper(self) -> Value:
        """The German form stands after im and in den."""
        n = self.between(1, 12)
        word = de.ordinal(n) + "en"
        english = f"{self.rng.choice([en.ordinal(n), en.ordinal(n), ordinal(n)])} floor"
        nouns = ("Stock", "Stockwerk", "Obergeschoss", "Geschoss", "Etage", "OG")
        return Value(english, tuple(f"{w} {noun}" for noun in nouns for w in (word, f"{n}.")))

    @reserved
    def seat(self) -> Value:
        return same(f"{self.between(1, 61)}{self.rng.choice('ABCDEF')}")

    @reserved
    def flight(self) -> Value:
        return same(f"{self.word('airline')}{self.rng.choice([' ', ''])}{self.between(12, 9899)}")

    @reserved
    def train(self) -> Value:
        """A train of which the German article is der."""
        return same(f"{self.word('train')} {self.between(1, 2999)}")

    def line(self) -> Value:
        return same(self.rng.choice(["", "", "", "M", "N", "X"]) + str(self.between(2, 249)))

    def motorway(self) -> Value:
        return same(f"{self.rng.choice('AAB')}{self.between(1, 99)}")

    @reserved
    def address(self) -> Value:
        number = f"{self.between(1, 240)}{self.rng.choice(['', '', '', 'a', 'b'])}"
        if self.rng.random() < 0.6:
            return same(f"{self.word('street')} {number}")
        if self.rng.random() < 0.6:
            return same(f"{number} {self.word('numberfirst')}")
        return same(f"{self.word('numberlast')} {number}")

    def streetf(self) -> Value:
        """A street of which the German article is die."""
        while not (street := self.word("street")).endswith(("straße", "allee", "gasse")):
            pass
        return same(street)

    @reserved
    def streetno(self) -> Value:
        return same(f"{self.streetf().english} {self.between(1, 200)}")

    @reserved
    def postcode(self) -> Value:
        letters = self.chars(UPPER, 2)
        german = f"{self.between(1000, 99999):05}"
        british = f"{letters}{self.between(1, 30)} {self.between(1, 9)}{self.chars(UPPER, 2)}"
        return same(
            self.rng.choice([german, german, british, f"{self.chars(DIGITS, 4)} {letters}"])
        )

    # Sport and books
    def score(self) -> Value:
        a, b = self.between(0, 9), self.between(0, 9)
        english = self.rng.choice([f"{a}-{b}", f"{a}:{b}", f"{a}–{b}"])
        return Value(english, (f"{a}:{b}", f"{a} : {b}", f"{a} zu {b}"))

    @reserved
    def sets(self) -> Value:
        """The sets of a tennis match."""
        sets = [f"6-{self.between(0, 4)}", self.rng.choice(["7-5", "7-6", "6-3", "6-1"])]
        return Value(", ".join(sets), (", ".join(sets).replace("-", ":"),))

    def page(self) -> Value:
        return same(str(self.between(2, 999)))

    @reserved
    def pages(self) -> Value:
        first = self.between(2, 300)
        last = first + self.between(1, 40)
        english = f"{first}{self.rng.choice(['–', '-', ' to '])}{last}"
        forms = [f"{first}–{last}", f"{first}-{last}", f"{first} – {last}", f"{first} bis {last}"]
        return Value(english, tuple(forms if " to " not in english else forms[::-1]))

    def section(self) -> Value:
        numbers = [str(self.between(1, 19)) for _ in range(self.rng.choice([2, 2, 3]))]
        return same(".".join(numbers))
