"""Pairs with signs: both sides have the same ones, and nothing else changes."""

from collections import Counter

from mt.data.phrasebook.signs import SIGNS, sign

PAIRS = [
    ("We live in London.", "Wir wohnen in London."),
    ("I bought it from Samsung.", "Ich habe es bei Samsung gekauft."),
    ("Good night!", "Gute Nacht!"),
    ("Contact us", "Kontakt"),
    ("Home", "Startseite"),
]


def signs_of(text: str) -> Counter[str]:
    return Counter(c for c in text if not c.isalpha() and c not in " .!?()")


def test_both_sides_have_the_same_signs() -> None:
    pairs = sign(PAIRS, 2000, seed=1)
    assert len(pairs) == 2000
    seen: Counter[str] = Counter()
    for english, german in pairs:
        assert signs_of(english) == signs_of(german), (english, german)
        assert english == " ".join(english.split())
        seen += signs_of(english)
    assert seen.keys() >= set("©®™§|½^±†‡¶")
    assert sum(c in seen for c in SIGNS) > 0.9 * len(SIGNS)


def test_they_follow_from_the_seed() -> None:
    assert sign(PAIRS, 50, seed=1) == sign(PAIRS, 50, seed=1) != sign(PAIRS, 50, seed=2)
    assert sign(PAIRS[:1], 50, seed=1) == []  # nothing for a menu
