"""Pairs with signs that are copied: ©, |, ™, §, ½, ^, footnotes. Their lines are of given pairs.

Corpora of sentences hardly have them, and a sign that a model has never seen becomes some letter.
All is deterministic.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from mt.data.normalisation import KEPT, alphabet

from .entity_values import Values

Pair = tuple[str, str]

MOST_WORDS = 12  # of a pair that gets a sign
MENU_WORDS = 3  # of an entry between separators
ENDS = (*".!?",)
# Of those that stand by themselves
SIGNS = sorted(c for c in (alphabet() | KEPT) - set("\"'„“”‚‘’«»()[]{},;.:!?") if not c.isalnum())
SEPARATORS = "||||·•»›>/–—→-~*:"
MARKS = [*"®™®™*†‡¹²", "*", "[1]", "°"]
FRACTIONS = [*"½¼¾⅓⅔"]
MEASURES = (
    ("hours", "Stunden"), ("years", "Jahre"), ("kilos", "Kilo"), ("litres", "Liter"),
    ("metres", "Meter"), ("miles", "Meilen"),
)  # fmt: skip
REFERENCES = (("see", "siehe"), ("cf.", "vgl."), ("under", "nach"), ("in", "in"), ("", ""))
LEGAL_FORMS = ("", " Inc.", " Ltd.", " GmbH", " AG", " & Sons", " Software", " LLC")
UNITS = (
    ("cup of", "Tasse"), ("teaspoon of", "Teelöffel"), ("tablespoon of", "Esslöffel"),
    ("litre of", "Liter"), ("pound of", "Pfund"), ("pint of", "Pint"), ("glass of", "Glas"),
)  # fmt: skip
FOODS = (
    ("sugar", "Zucker"), ("milk", "Milch"), ("flour", "Mehl"), ("butter", "Butter"),
    ("oil", "Öl"), ("water", "Wasser"), ("salt", "Salz"), ("honey", "Honig"), ("rice", "Reis"),
    ("cream", "Sahne"), ("vinegar", "Essig"), ("yoghurt", "Joghurt"),
    ("lemon juice", "Zitronensaft"),
)  # fmt: skip


def sign(pairs: Sequence[Pair], count: int, seed: int) -> list[Pair]:
    """Return ``count`` pairs with signs; none where there are no short pairs."""
    rng = random.Random(seed)
    values = Values(rng, "train")
    short = [pair for pair in pairs if len(pair[0].split()) <= MOST_WORDS]
    menu = [_bare(pair) for pair in short if len(pair[0].split()) <= MENU_WORDS]
    named = [pair for pair in short if _names(pair)]
    if not (short and menu and named):
        return []
    makers: list[Callable[[], Pair]] = [
        lambda: _copyright(rng.choice(short), values),
        lambda: _separated(rng.sample(menu, min(rng.randint(2, 4), len(menu))), rng),
        lambda: _marked(rng.choice(named), rng),
        lambda: _paragraph(rng.choice(short), rng),
        lambda: _fraction(rng),
        lambda: _expression(rng.choice(short), rng),
        lambda: _anywhere(rng.choice(short), rng),
    ]
    return [rng.choice(makers)() for _ in range(count)]


def _bare(pair: Pair) -> Pair:
    """Without the marks at the ends."""
    english, german = (text.rstrip(".!?") for text in pair)
    return english, german


def _before_end(pair: Pair, inserted: Pair) -> Pair:
    """Something more at the end of both sides, before the final marks."""
    ends = (text[-1] if text.endswith(ENDS) else "" for text in pair)
    english, german = (
        f"{text.removesuffix(end)} {more}{end}"
        for text, more, end in zip(pair, inserted, ends, strict=True)
    )
    return english, german


def _names(pair: Pair) -> list[str]:
    """Words with a capital, not the first one, that both sides have."""
    english, german = (set(re.findall(r"(?<=\w )[A-Z]\w{2,}(?!\w)", text)) for text in pair)
    return sorted(english & german)


def _copyright(pair: Pair, values: Values) -> Pair:
    rng = values.rng
    owner = f"{values.surname().english}{rng.choice(LEGAL_FORMS)}"
    year = values.year().english
    line = rng.choice([f"© {year} {owner}", f"© {owner} {year}", f"©{year} {owner}", f"© {owner}"])
    if rng.random() < 0.3:
        line = f"Copyright {line}"
    stop = "" if line.endswith(".") else "."
    kind = rng.randrange(4)
    if kind == 0:
        return line, line
    if kind == 1:
        return f"{line}{stop} All rights reserved.", f"{line}{stop} Alle Rechte vorbehalten."
    if kind == 2:
        return f"{line} | All rights reserved", f"{line} | Alle Rechte vorbehalten"
    return f"{line}{stop} {pair[0]}", f"{line}{stop} {pair[1]}"


def _separated(entries: Sequence[Pair], rng: random.Random) -> Pair:
    english, german = map(f" {rng.choice(SEPARATORS)} ".join, zip(*entries, strict=True))
    return english, german


def _marked(pair: Pair, rng: random.Random) -> Pair:
    name, mark = rng.choice(_names(pair)), rng.choice(MARKS)
    english, german = (re.sub(rf"\b{name}\b", f"{name}{mark}", text, count=1) for text in pair)
    return english, german


def _paragraph(pair: Pair, rng: random.Random) -> Pair:
    number = f"{rng.choice('§§§§¶')} {rng.randint(1, 400)}"
    if rng.random() < 0.3:
        return f"{number} {pair[0]}", f"{number} {pair[1]}"
    english, german = (f"({word} {number})".replace("( ", "(") for word in rng.choice(REFERENCES))
    return _before_end(pair, (english, german))


def _fraction(rng: random.Random) -> Pair:
    number = f"{rng.choice(['', '', '', '1', '2', '3'])}{rng.choice(FRACTIONS)}"
    if len(number) == 2:
        measure, einheit = rng.choice(MEASURES)
        return f"{number} {measure}", f"{number} {einheit}"
    (unit, einheit), (food, zutat) = rng.choice(UNITS), rng.choice(FOODS)
    return f"{number} {unit} {food}", f"{number} {einheit} {zutat}"


def _expression(pair: Pair, rng: random.Random) -> Pair:
    a, b = rng.sample("abcdefghkmnpqrstuvwxyz", 2)
    m, n = rng.randint(1, 99), rng.randint(2, 999)
    text = rng.choice([
        f"{a}^{b}", f"{a}^{n}", f"{m}^{n}", f"±{n}", f"± {n} %", f"{a}|{b}", f"|{a}|", f"[^{m}]",
        f"~{n}", f"{m} × {n}", f"{m}÷{n}", f"{a} ≤ {n}", f"{a}_{b}", f"{{{a}}}", f"<{a}>", f"¬{a}",
        f"{a} = {b}", f"{a} + {b}", f"µ = {n}", f"{n}°", f"{n} µm", f"#{n}", f"№ {n}", f"\\{a}{b}",
    ])  # fmt: skip
    if rng.random() < 0.5:
        return _before_end(pair, (f"({text})", f"({text})"))
    return f"{text} {pair[0]}", f"{text} {pair[1]}"


def _anywhere(pair: Pair, rng: random.Random) -> Pair:
    """Any sign at either end, or before the final mark."""
    own, blank = rng.choice(SIGNS), rng.choice(["", " "])
    if rng.random() < 0.5:
        return f"{own}{blank}{pair[0]}", f"{own}{blank}{pair[1]}"
    return f"{pair[0]}{blank}{own}", f"{pair[1]}{blank}{own}"
