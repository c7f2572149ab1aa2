"""Values of slots: names, numbers, money and measures; the class that draws all kinds.

The German forms that are right are those that a careful editor leaves as they are:

- decimal comma, and points (or blanks) in thousands: 1.250,50; four digits may do without: 1250
- numbers up to twelve in letters as well: zwölf Minuten
- the currency after the amount, as a sign, a code or a word: 45 €, 45 EUR, 45 Euro; sign or code
  and a blank may come before it: EUR 45; $1.250 is wrong
- 12 % and 12 Prozent, 5 °C and 5 Grad; a missing blank is no error: 12%
- 3. März 1987, 3.3.1987, 03.03.1987; an ISO date may stay as it is
- 8:15 Uhr, 8.15 Uhr, 08:15; 15 Uhr or 3 Uhr nachmittags for 3 pm
- Mr and Mrs are Herr(n) and Frau; scores have a colon: 3:1; the first floor is the erste Stock
"""

from __future__ import annotations

from itertools import product

from . import morphology as de
from .entity_codes import DIGITS, UPPER, Value, reserved, same, words
from .entity_times import Times, ordinal

# Sign, English word, code, German words
CURRENCIES = [
    *[("€", "euros", "EUR", ("Euro",))] * 5,
    *[("$", "dollars", "USD", ("Dollar", "US-Dollar"))] * 3,
    *[("£", "pounds", "GBP", ("Pfund", "britische Pfund"))] * 2,
    ("¥", "yen", "JPY", ("Yen",)),
    ("₹", "rupees", "INR", ("Rupien",)),
    ("", "francs", "CHF", ("Franken", "Schweizer Franken")),
    ("", "crowns", "CZK", ("Kronen", "tschechische Kronen")),
    ("", "zlotys", "PLN", ("Zloty", "Złoty")),
    ("", "roubles", "RUB", ("Rubel",)),
    ("", "liras", "TRY", ("Lira",)),
]

# English unit, German units
_WEIGHTS = [
    *[("kg", "kg", "Kilogramm", "Kilo"), ("g", "g", "Gramm"), ("kilos", "Kilo", "Kilogramm", "kg")],
    *[("grams", "Gramm", "g"), ("pounds", "Pfund"), ("ounces", "Unzen"), ("tons", "Tonnen", "t")],
]
_LENGTHS = [
    *[("km", "km", "Kilometer"), ("kilometres", "Kilometer", "km"), ("kilometers", "Kilometer")],
    *[("metres", "Meter", "m"), ("meters", "Meter", "m"), ("cm", "cm", "Zentimeter")],
    *[("m", "m", "Meter"), ("mm", "mm", "Millimeter"), ("miles", "Meilen"), ("feet", "Fuß")],
    *[("centimetres", "Zentimeter", "cm"), ("inches", "Zoll"), ("yards", "Yards", "Yard")],
]
_SPEEDS = [
    ("km/h", "km/h", "Stundenkilometer", "Kilometer pro Stunde", "Kilometern pro Stunde"),
    (
        *("kilometres per hour", "Kilometer pro Stunde", "Kilometern pro Stunde"),  # nom., dat.
        *("km/h", "Stundenkilometer"),
    ),
    *[("mph", "mph", "Meilen pro Stunde"), ("miles an hour", "Meilen pro Stunde", "mph")],
]
_STORAGE = [("MB", "MB"), ("GB", "GB"), ("TB", "TB"), ("KB", "KB"), ("gigabytes", "Gigabyte", "GB")]
_OTHERS = [
    *[("litres", "Liter", "l"), ("liters", "Liter", "l"), ("ml", "ml", "Milliliter")],
    *[("m²", "m²", "Quadratmeter"), ("square metres", "Quadratmeter", "m²"), ("kWh", "kWh")],
    *[("watts", "Watt", "W"), ("volts", "Volt", "V"), ("hectares", "Hektar", "ha")],
    *[("gallons", "Gallonen"), ("calories", "Kalorien"), ("sheets", "Blatt", "Blätter")],
]
# English unit, German units in the nominative, in the dative
_DURATIONS = [
    *[("seconds", "Sekunden", "Sekunden"), ("minutes", "Minuten", "Minuten")] * 2,
    *[("hours", "Stunden", "Stunden"), ("days", "Tage", "Tagen"), ("weeks", "Wochen", "Wochen")],
    *[("months", "Monate", "Monaten"), ("years", "Jahre", "Jahren")],
]
_MILLIONS = [("million", "Millionen", "Mio."), ("billion", "Milliarden", "Mrd.")]


def number(english: str) -> tuple[str, ...]:
    """Return the German forms of a number like 1,250.50."""
    whole, _, decimals = english.partition(".")
    tail = f",{decimals}" if decimals else ""
    digits = whole.replace(",", "")
    forms = [whole.replace(",", "."), whole.replace(",", " ")]
    if len(digits) == 4:
        forms += [digits, f"{digits[0]}.{digits[1:]}"]
    if not tail and digits.isdigit() and int(digits) <= 12:
        forms.append(de.number(int(digits)))
    return tuple(dict.fromkeys(form + tail for form in forms))


def quantity(english: str, unit: tuple[str, ...]) -> Value:
    """Return a number before a unit, of which the first form is the English one."""
    forms = [f"{n} {u}" for u, n in product(unit[1:], number(english))]
    return Value(f"{english} {unit[0]}", tuple(forms))


class Values(Times):
    """Draws values; each public method is a kind."""

    # Names
    def male(self) -> Value:
        return self._person(self.listed("male"))

    def female(self) -> Value:
        return self._person(self.listed("female"))

    def first(self) -> Value:
        return self.male() if self.rng.random() < 0.5 else self.female()

    def surname(self) -> Value:
        chance = self.rng.random()
        if chance < 0.05:
            return self._person(same(f"{self._surname()}-{self._surname()}"))
        return self._person(same(self._surname()))

    def _surname(self) -> str:
        return (self.listed("surname") if self.rng.random() < 0.75 else self.invented()).english

    def _person(self, name: Value) -> Value:
        german = (name.english, f"{name.english}s")  # the genitive is right where it occurs
        return Value(name.english, german, own=True)

    def full(self) -> Value:
        return self._full(self.first().english)

    def _full(self, first: str) -> Value:
        middle = f" {self.rng.choice(UPPER)}." if self.rng.random() < 0.05 else ""
        return self._person(same(f"{first}{middle} {self.surname().english}"))

    def person(self) -> Value:
        return self.first() if self.rng.random() < 0.5 else self.full()

    def titled(self) -> Value:
        return self._titled("Herr")

    def titledobj(self) -> Value:
        return self._titled("Herrn")

    def _titled(self, sir: str) -> Value:
        man, woman = self.rng.random() < 0.5, self.rng.random() < 0.15
        name = self.surname().english
        if self.rng.random() < 0.15:
            name = self._full((self.male() if man else self.female()).english).english
        titles = [("Mr", sir), ("Mr.", sir)] if man else [("Mrs", "Frau"), ("Ms", "Frau")]
        title, german = self.rng.choice(titles)
        if woman:
            title, german = self.rng.choice(
                [("Dr", "Dr."), ("Dr.", "Dr."), ("Professor", "Professor")]
            )
        also = [f"Prof. {name}", f"Professorin {name}"] if german == "Professor" else []
        return Value(f"{title} {name}", (f"{german} {name}", *also), own=True)

    def city(self) -> Value:
        city = self.listed("exonym" if self.rng.random() < 0.3 else "city")
        forms = [form + end for end in ("", "s", "er") for form in city.german]
        return Value(city.english, tuple(forms), city.own)  # Berlins Straßen, Berliner Straßen

    def firm(self) -> Value:
        """A company with a legal form of German law: its article is die."""
        name = f"{self._company()} {self.word('company')}"
        return Value(name, (name,), own=True)

    def company(self) -> Value:
        name = self._company()
        kind = self.rng.random()
        name = name if kind < 0.6 else f"{name} {self.word('foreigncompany')}"
        return Value(name, (name,), own=True)

    def _company(self) -> str:
        surname, other = self._surname(), self._surname()
        pair = self._brand().english
        return self.rng.choice([surname, self.invented().english, pair, f"{surname} & {other}"])

    @reserved
    def _brand(self) -> Value:
        return same(self.word().capitalize() + self.word().capitalize())

    # Numbers
    def small(self) -> Value:
        text = str(self.between(2, 99))
        return Value(text, number(text))

    @reserved
    def count(self) -> Value:
        text = str(self.rng.choice([self.between(13, 99), self.between(100, 999)]))
        return Value(text, number(text))

    @reserved
    def thousands(self) -> Value:
        n = self.between(1000, self.rng.choice([9999, 99999]))
        n = self.rng.choice([n, n // 100 * 100])
        bare = n < 10000 and self.rng.random() < 0.3
        text = str(n) if bare else f"{n:,}"
        return Value(text, (f"{n:,}".replace(",", "."), *number(text)))

    @reserved
    def big(self) -> Value:
        if self.rng.random() < 0.25:
            english, *units = self.rng.choice(_MILLIONS)
            text = self.rng.choice([str(self.between(2, 900)), self._decimal(20, 1)])
            return quantity(text, (english, *units))
        n = self.between(10 ** self.between(3, 6), 10**7 - 1)
        text = f"{self.rng.choice([n, n % 10**5 + 1000, n // 1000 * 1000 + 1000]):,}"
        return Value(text, number(text))

    def _decimal(self, largest: int, places: int) -> str:
        return f"{self.between(0, largest)}.{self.chars(DIGITS, places - 1)}{self.between(1, 9)}"

    @reserved
    def dec(self) -> Value:
        text = self._decimal(self.rng.choice([9, 20, 999]), self.rng.choice([1, 1, 2, 3]))
        return Value(text, number(text))

    def number(self) -> Value:
        return self.rng.choice([self.count, self.thousands, self.dec])()

    @reserved
    def percent(self) -> Value:
        n = self.rng.choice([str(self.between(2, 100)), self._decimal(20, 1), self._decimal(99, 2)])
        unit, german = self.rng.choice([("%", " %"), (" percent", " Prozent")] * 2 + [
            (" per cent", " Prozent"), (" %", " %")])  # fmt: skip
        forms = [f"{m}{end}" for end in (german, " %", "%", " Prozent") for m in number(n)]
        return Value(n + unit, tuple(dict.fromkeys(forms)))

    def ordinal(self) -> Value:
        n = self.between(2, 31)
        words = [f"{de.ordinal(n)}e{end}" for end in ("", "n", "r", "s")]
        return Value(ordinal(n), (f"{n}.", *words))

    @reserved
    def formula(self) -> Value:
        a, b = self.between(2, 99), self.between(2, 99)
        text = self.rng.choice(
            [
                *(f"{a} + {b} = {a + b}", f"{a + b} - {b} = {a}", f"{a} < {a + b}"),
                *(f"{a} × {b} = {a * b}", f"{a * b} / {b} = {a}", f"{a} x {b} = {a * b}"),
            ]
        )
        others = [text.replace(f" {x} ", f" {y} ") for x, y in ("×·", "x×", "x·", "-–", "-−", "/:")]
        return same(text, *(other for other in others if other != text))

    def equation(self) -> Value:
        return same(self.word("equation"))

    @reserved
    def chemical(self) -> Value:
        symbols = self.rng.sample(words()["elements"], self.rng.choice([1, 2, 2, 3]))
        counts = ["", "", "2", "3", str(self.between(4, 12))]
        text = "".join(symbol + self.rng.choice(counts) for symbol in symbols)
        text = text + "2" if len(text) < 3 else text
        lowered = text.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
        return same(*((text, lowered) if self.rng.random() < 0.7 else (lowered, text)))

    # Money and measures
    def _amount(self) -> str:
        kind = self.rng.random()
        if kind < 0.3:
            return str(self.between(2, 999))
        if kind < 0.7:
            cents = self.rng.choice(["99", "50", "95", f"{self.between(1, 99):02}"])
            return f"{self.between(2, 999)}.{cents}"
        if kind < 0.85:
            return f"{self.between(1000, 99999):,}.{self.between(0, 99):02}"
        return f"{self.between(10, 9999) * 100:,}"

    @reserved
    def price(self) -> Value:
        sign, name, code, german = self.rng.choice(CURRENCIES)
        amount, kind = self._amount(), self.rng.random()
        signs = [sign] if sign else []
        if kind < 0.1 and sign and amount.isdigit():
            scale, *scales = self.rng.choice(_MILLIONS)
            forms = [f"{n} {s}" for s in scales for n in number(amount)]
            ways = [(f"{sign}{amount} {scale}", german[0]), (f"{amount} {scale} {name}", german[0])]
            before: list[str] = []
        elif kind < 0.14 and amount.isdigit() and sign in ("€", "$"):
            return Value(f"{amount} cents", tuple(f"{n} Cent" for n in number(amount)))
        else:
            forms = list(number(amount))
            before = [*signs, code]
            ways = [(f"{amount} {name}", german[0])] * 2
            ways += [(f"{code} {amount}", code), (f"{amount} {code}", code)]
            if sign:
                ways += [(f"{sign}{amount}", sign)] * 6 + [(f"{amount} {sign}", sign)]
        english, unit = self.rng.choice(ways)
        units = dict.fromkeys([unit, *german, *signs, code])
        accepted = [f"{n} {u}" for u in units for n in forms]
        accepted += [f"{n}{sign}" for n in forms if sign] + [
            f"{b} {n}" for b in before for n in forms
        ]
        return Value(english, tuple(accepted))

    def _measured(self, units: list[tuple[str, ...]], largest: int) -> Value:
        choices = [str(self.between(2, largest)), str(self.between(2, 99)), self._decimal(20, 1)]
        return quantity(self.rng.choice(choices), self.rng.choice(units))

    @reserved
    def weight(self) -> Value:
        return self._measured(_WEIGHTS, 900)

    @reserved
    def length(self) -> Value:
        return self._measured(_LENGTHS, 900)

    @reserved
    def speed(self) -> Value:
        return quantity(str(self.between(3, 50) * 5), self.rng.choice(_SPEEDS))

    @reserved
    def storage(self) -> Value:
        return self._measured(_STORAGE, 999)

    @reserved
    def measure(self) -> Value:
        return self._measured([*_WEIGHTS, *_LENGTHS, *_OTHERS, *_OTHERS], 999)

    def temperature(self) -> Value:
        degrees = str(self.between(1, 45))
        return self._degrees(degrees, self.rng.choice(["", "", "", "-", "minus "]))

    def oven(self) -> Value:
        return self._degrees(str(self.between(20, 50) * 5), "")

    def fever(self) -> Value:
        return self._degrees(f"{self.between(36, 41)}.{self.between(1, 9)}", "")

    def _degrees(self, n: str, sign: str) -> Value:
        signs = ["-", "−", "–", "minus "] if sign else [""]
        signs.sort(key=lambda s: s != sign)
        fahrenheit = [
            ("°F", ["°F", "Grad Fahrenheit"]),
            (" degrees Fahrenheit", ["Grad Fahrenheit"]),
        ]
        celsius = [("°C", ["°C"]), (" °C", ["°C"]), (" degrees", ["Grad"])] * 2
        celsius += [(" degrees Celsius", ["Grad Celsius"])]
        unit, german = self.rng.choice(celsius + fahrenheit)
        units = [*german, "°F"] if "F" in unit else [*german, "°C", "Grad", "Grad Celsius", "°"]
        forms = [f"{s}{m} {u}" for u in units for s in signs for m in number(n)]
        forms += [f"{s}{m}{u}" for u in units if "°" in u for s in signs for m in number(n)]
        return Value(f"{sign}{n}{unit}", tuple(dict.fromkeys(forms)))

    def duration(self) -> Value:
        return self._lasting(1)

    def durationdat(self) -> Value:
        return self._lasting(2)

    def _lasting(self, case: int) -> Value:
        n, unit = str(self.between(2, 90)), self.rng.choice(_DURATIONS)
        if self.rng.random() < 0.1:
            h, m = str(self.between(2, 12)), str(self.between(2, 59))
            return Value(f"{h} hours and {m} minutes", (f"{h} Stunden und {m} Minuten",))
        if unit[0] in ("hours", "days", "weeks") and self.rng.random() < 0.15:
            n = f"{self.between(1, 9)}.5"
        forms = [f"{m} {unit[case]}" for m in number(n)]
        return Value(f"{n} {unit[0]}", tuple(forms))
