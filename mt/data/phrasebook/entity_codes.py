"""Values that a translation copies as they stand: addresses, files, codes, emoji, other scripts."""

from __future__ import annotations

import functools
import hashlib
import random
import re
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TypeVar

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
HEX = "0123456789abcdef"

# Blocks of pictures, all of them older than the oldest Python that we support.
_PICTURES = [
    *((0x2190, 0x21FF), (0x2600, 0x26CE), (0x2701, 0x2704), (0x1F300, 0x1F320), (0x1F337, 0x1F37C)),
    *((0x1F380, 0x1F393), (0x1F3A0, 0x1F3C4), (0x1F3E0, 0x1F3F0), (0x1F400, 0x1F43E)),
    *((0x1F442, 0x1F4F7), (0x1F500, 0x1F53D), (0x1F600, 0x1F640), (0x1F680, 0x1F6C5)),
    *((0x1F910, 0x1F93A), (0x1F947, 0x1F971), (0x1F980, 0x1F9A2), (0x1F9B4, 0x1F9FF)),
]
PICTURES = [chr(code) for first, last in _PICTURES for code in range(first, last + 1)]

# The letters of other scripts: the first, the last, and how many a made-up word has at most.
SCRIPTS = [
    *((0x430, 0x44F, 9), (0x430, 0x44F, 9), (0x3B1, 0x3C9, 8), (0x4E00, 0x9FA5, 4)),
    *((0x4E00, 0x9FA5, 4), (0x3042, 0x3093, 6), (0x30A2, 0x30F3, 6), (0xAC00, 0xD7A3, 4)),
    *((0x627, 0x63A, 6), (0x5D0, 0x5EA, 6), (0x915, 0x928, 5), (0xE01, 0xE2E, 6)),
    *((0x10D0, 0x10F0, 7), (0x561, 0x586, 7)),
]


@dataclass(frozen=True)
class Value:
    """A value in English and the German forms that are right; the first is the usual one.

    ``own``: no other split has this value.
    """

    english: str
    german: tuple[str, ...]
    own: bool = False


Method = TypeVar("Method", bound=Callable[..., "Value"])


def split_of(text: str) -> str:
    """Return the only split in which a value occurs. A hash tells it: one in 13 is for tests."""
    part = hashlib.sha256(text.encode()).digest()[0]
    return "test" if part < 20 else "validation" if part < 30 else "train"


def reserved(method: Method) -> Method:
    """Make a method draw again until the value belongs to the split."""

    @functools.wraps(method)
    def draw(self: Codes) -> Value:
        while True:
            value: Value = method(self)
            if split_of(value.german[0]) == self.split:
                return replace(value, own=True)

    return draw  # type: ignore[return-value]


def same(text: str, *others: str) -> Value:
    """Return a value that is copied; ``others`` are also right."""
    return Value(text, (text, *others))


@functools.cache
def words() -> dict[str, list[str]]:
    """Return the table words.tsv by kind."""
    return {kind: values.split(", ") for kind, values in rows("words")}


@functools.cache
def names(kind: str, split: str) -> list[Value]:
    """Return the listed names of a kind, "male" for example, that a split may use."""
    entries = []
    for row_kind, fame, values in rows("names"):
        for text in values.split(", ") if row_kind == kind else ():
            english, *german = text.split("=")
            if fame == "every" or split == ("train" if fame == "common" else split_of(english)):
                entries.append(Value(english, tuple(german) or (english,), fame != "every"))
    return entries


def rows(name: str) -> list[list[str]]:
    """Return the rows of a table of the folder ``entities``, without the comments."""
    text = (files(__package__) / "entities" / f"{name}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


class Codes:
    """Draws values; each public method is a kind."""

    def __init__(self, rng: random.Random, split: str) -> None:
        self.rng, self.split = rng, split

    def word(self, kind: str = "word") -> str:
        return self.rng.choice(words()[kind])

    def chars(self, alphabet: str, count: int) -> str:
        return "".join(self.rng.choice(alphabet) for _ in range(count))

    def between(self, first: int, last: int) -> int:
        return self.rng.randint(first, last)

    def listed(self, kind: str) -> Value:
        return self.rng.choice(names(kind, self.split))

    @reserved
    def invented(self) -> Value:
        """A name that nobody has."""
        ends = ["", "", "n", "r", "s", "k", "l", "t", "ski", "ov", "ez", "ian"]
        syllables = range(self.between(2, 3))
        name = "".join(self.word("onset") + self.word("vowel") for _ in syllables)
        return same((name + self.rng.choice(ends)).capitalize())

    def plain(self, kind: str) -> str:
        """A name as addresses write it: small letters of ASCII."""
        name = self.listed(kind).english.lower().translate(str.maketrans("øłıđ", "olid"))
        return re.sub(r"[^a-z]", "", unicodedata.normalize("NFKD", name)) or "info"

    def person_plain(self) -> str:
        return self.plain(self.rng.choice(["male", "female"]))

    # Telephone, mail and web
    @reserved
    def phone(self) -> Value:
        def n(count: int) -> str:
            return self.chars(DIGITS, count)

        area, us = self.between(30, 999), self.between(201, 989)
        return same(
            self.rng.choice(
                [
                    *(f"+49 {area} {n(self.between(6, 8))}", f"+49 {area} {n(3)} {n(4)}"),
                    *(f"0{area} {n(6)}", f"0{area} / {n(6)}", f"(0{area}) {n(5)}-{n(2)}"),
                    *(f"0{self.between(151, 179)}/{n(7)}", f"0{self.between(151, 179)} {n(8)}"),
                    *(f"+44 20 {n(4)} {n(4)}", f"+44 7{n(3)} {n(6)}", f"020 {n(4)} {n(4)}"),
                    *(f"+1 {us}-{n(3)}-{n(4)}", f"({us}) {n(3)}-{n(4)}", f"{us}-{n(3)}-{n(4)}"),
                    *(f"+43 {n(3)} {n(3)} {n(3)}", f"+41 {area} {n(3)} {n(2)} {n(2)}"),
                    *(f"+33 {self.between(1, 9)} {n(2)} {n(2)} {n(2)} {n(2)}", f"0{n(3)}-{n(5)}"),
                    *(f"0800 {n(3)} {n(4)}", f"0049 {area} {n(7)}", f"{n(3)}-{n(4)}"),
                ]
            )
        )

    def domain(self) -> str:
        name = self.rng.choice(
            [
                *(self.word(), self.word() + self.rng.choice(["-", ""]) + self.word()),
                *(self.plain("surname"), "example", f"{self.word()}.{self.plain('surname')}"),
            ]
        )
        return f"{name}.{self.word('top')}"

    @reserved
    def email(self) -> Value:
        first, last = self.person_plain(), self.plain("surname")
        users = [
            *(f"{first}.{last}", f"{first}{self.between(1, 99)}", f"{first[0]}.{last}", last),
            *(f"{first}_{last}", f"{first}-{last}", f"{first}+{self.word()}", "info", "support"),
        ]
        return same(f"{self.rng.choice(users)}@{self.domain()}")

    @reserved
    def url(self) -> Value:
        word, number = self.word, self.between(1, 99999)
        port = f":{self.rng.choice([80, 443, 3000, 5000, 8000, 8080, 8443])}"
        paths = [
            *("", "", f"/{word()}", f"/{word()}/{number}", f"/{word()}/{word()}/", port),
            *(f"/{word()}?id={number}", f"/{word()}?q={word()}&page={number % 50 + 1}"),
            *(f"/{word()}/{word()}.html", f"/{word()}#{word()}", f"{port}/{word()}"),
            *(f"/{self.chars(UPPER + LOWER + DIGITS, 8)}", f"/{self.between(2001, 2030)}/{word()}"),
        ]
        start = self.rng.choice(["https://", "https://", "https://www.", "http://", "www.", "www."])
        return same(start + self.domain() + self.rng.choice(paths))

    @reserved
    def handle(self) -> Value:
        end = self.rng.choice([self.word(), str(self.between(1, 999))])
        return same(f"@{self.person_plain()}{self.rng.choice(['', '_', '.'])}{end}")

    @reserved
    def tag(self) -> Value:
        word, other = self.word(), self.word()
        year = self.between(1990, 2035)
        return same(
            "#" + self.rng.choice([word, word.capitalize() + other.capitalize(), f"{word}{year}"])
        )

    @reserved
    def ip(self) -> Value:
        if self.rng.random() < 0.1:
            groups = ":".join(self.chars(HEX, 4).lstrip("0") or "0" for _ in range(3))
            return same(f"2001:db8:{groups}::{self.between(1, 9)}")
        address = ".".join(str(self.between(0, 255)) for _ in range(4))
        return same(address + self.rng.choice(["", "", "", "/24", f":{self.between(80, 9999)}"]))

    # Files and programs
    def _file(self) -> str:
        word, r = self.word, self.between
        stems = [
            *(f"{word()}_{r(1, 2030)}", f"{word()}-{word()}", f"IMG_{r(1, 9999):04}", word()),
            *(f"{word().capitalize()}{r(1, 99)}", f"{word()}_v{r(1, 9)}.{r(0, 20)}"),
            *(f"{r(1995, 2035)}-{r(1, 12):02}-{r(1, 28):02}-{word()}", f"{word()}_{word()}_final"),
        ]
        return f"{self.rng.choice(stems)}.{self.word('extension')}"

    @reserved
    def file(self) -> Value:
        return same(self._file())

    @reserved
    def path(self) -> Value:
        word, file = self.word, self._file()
        paths = [
            *(f"/home/{self.person_plain()}/{file}", f"~/{word()}/{file}", f"src/{word()}/{file}"),
            *(f"/var/log/{word()}.log", f"/etc/{word()}/{word()}.conf", f"../{word()}/{word()}/"),
            *(f"C:\\{word().capitalize()}\\{file}", f"\\\\server\\{word()}\\{word()}"),
            *(f"C:\\Users\\{self.person_plain()}\\{file}", f"/usr/local/{word()}/{word()}"),
        ]
        return same(self.rng.choice(paths))

    @reserved
    def command(self) -> Value:
        command = f"{self.word('command')} {self.word()}"
        return same(command + (f" {self.word('option')}" if self.rng.random() < 0.3 else ""))

    @reserved
    def identifier(self) -> Value:
        a, b = self.word(), self.word()
        option = self.rng.choice(["--", "--no-", "--with-"]) + a
        return same(
            self.rng.choice(
                [
                    *(f"{a}_{b}", f"{a}_{b}()", a + b.capitalize(), f"{a}.{b}()", option),
                    *(f"{a}_{b}".upper(), f"${a}_{b}".upper(), f"get{a.capitalize()}()"),
                    *(f"{a.capitalize()}{b.capitalize()}", f"<{a}-{b}>", f"{a}[{b}]", f"{a}::{b}"),
                ]
            )
        )

    @reserved
    def error(self) -> Value:
        a, b = self.word().upper(), self.word().upper()
        return same(
            self.rng.choice(
                [
                    *(f"0x8{self.chars(DIGITS + 'ABCDEF', 7)}", f"E{self.between(1, 99):02}"),
                    *(f"E-{self.between(100, 9999)}", f"ERR_{a}_{b}", f"E{a}", f"{a}-{b}"),
                    *(
                        str(self.between(400, 599)),
                        f"{self.chars(UPPER, 2)}{self.chars(DIGITS, 4)}",
                    ),
                ]
            )
        )

    @reserved
    def version(self) -> Value:
        numbers = ".".join(str(self.between(0, 25)) for _ in range(self.rng.choice([2, 3, 3])))
        start = "v" if self.rng.random() < 0.1 else ""
        return same(start + numbers + self.rng.choice(["", "", "", "", "-rc.1", "-beta", "b2"]))

    # Codes
    @reserved
    def code(self) -> Value:
        def n(count: int) -> str:
            return self.chars(DIGITS, count)

        def u(count: int) -> str:
            return self.chars(UPPER, count)

        c, r = self.chars, self.between
        both = UPPER + DIGITS
        return same(
            self.rng.choice(
                [
                    *(f"{u(2)}-{n(4)}", f"{u(3)}{n(r(2, 6))}", c(both, r(5, 10)), c(HEX, 8)),
                    *(f"{c(both, 4)}-{c(both, 4)}-{c(both, 4)}", c(LOWER + DIGITS, r(6, 10))),
                    *(f"{u(1)}{n(2)}/{n(3)}", f"#{n(r(3, 7))}", f"{n(4)}-{n(3)}", n(r(5, 9))),
                    *(f"{u(2)}.{n(2)}.{u(1)}{n(1)}", f"{u(1)}{n(3)}{u(2)}", f"{n(3)} {n(3)}"),
                    *(f"{n(4)} {n(4)} {n(4)}", f"978-3-{n(3)}-{n(5)}-{n(1)}", f"1Z{c(both, 12)}"),
                ]
            )
        )

    @reserved
    def order(self) -> Value:
        year, number = self.between(2015, 2032), self.chars(DIGITS, self.between(3, 6))
        start = self.rng.choice(["RE", "INV", "ORD", "A", "B", "RG", "PO", "KD", "T"])
        return same(
            self.rng.choice(
                [
                    *(f"{start}-{number}", f"{start}{number}", f"{start}-{year}-{number}"),
                    *(f"{year}/{number}", f"#{number}", f"{number}{year}", f"{year}-{number}"),
                    *(f"{start}/{number}/{year % 100}", f"{number}-{self.chars(UPPER, 2)}"),
                ]
            )
        )

    @reserved
    def password(self) -> Value:
        word = self.word().capitalize()
        return same(
            self.rng.choice(
                [
                    *(self.chars(UPPER + LOWER + DIGITS, self.between(8, 12)), f"{word}2{word}!"),
                    *(f"{word}{self.between(10, 9999)}", f"{word}-{self.chars(DIGITS, 4)}"),
                    *(self.chars(LOWER + DIGITS, 8), f"{word}${self.chars(DIGITS, 3)}"),
                ]
            )
        )

    @reserved
    def model(self) -> Value:
        name, letters = self.invented().english, self.chars(UPPER, self.between(1, 3))
        return same(
            self.rng.choice(
                [
                    *(f"{letters}-{self.between(2, 9900)}", f"{name} {self.between(2, 900)}"),
                    *(
                        f"{name} {letters}{self.between(1, 99)}",
                        f"{letters}{self.between(10, 990)}",
                    ),
                    *(
                        f"{name} Pro {self.between(2, 20)}",
                        f"{letters}{self.between(10, 990)} Plus",
                    ),
                ]
            )
        )

    @reserved
    def plate(self) -> Value:
        u, digits = self.chars(UPPER, 2), self.between(1, 9999)
        german = f"{self.chars(UPPER, self.between(1, 3))}-{u} {digits}"
        british = f"{u}{self.between(51, 75)} {self.chars(UPPER, 3)}"
        return same(self.rng.choice([german, german, british]))

    @reserved
    def iban(self) -> Value:
        d = self.chars(DIGITS, 20)
        number = f"{self.word('iban')}{d[:2]} {d[2:6]} {d[6:10]} {d[10:14]} {d[14:18]} {d[18:]}"
        return same(number if self.rng.random() < 0.8 else number.replace(" ", ""))

    # Emoji and other scripts
    def emoji(self) -> Value:
        listed = self.rng.random() < 0.4
        one = self.word("emoji") if listed else self.rng.choice(PICTURES)
        if split_of(one) != self.split:
            return self.emoji()
        text = one * self.rng.choice([1, 1, 1, 1, 2, 3])
        return Value(text, tuple(dict.fromkeys((text, text.replace("\ufe0f", "")))), own=True)

    @reserved
    def foreign(self) -> Value:
        if self.rng.random() < 0.5:
            return same(self.word("foreign"))
        first, last, longest = self.rng.choice(SCRIPTS)
        return same(
            "".join(chr(self.between(first, last)) for _ in range(self.between(2, longest)))
        )
