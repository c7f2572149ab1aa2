"""Typing noise: what it does to a sentence, and how often."""

import random
from collections.abc import Callable

import pytest

from mt.data.augmentation import add_typing_noise, small_letters, typographic_quotes

SENTENCE = 'Don\'t you say "yes", Tom?'
EXPECTED = [  # what version 0.1 made of it, with seed 7
    'don\'t you say "yes", tom',
    'don\'t you say "yes", tom?',
    "don’t you say “yes”, tom?",
    'don\'t you say "yes", tom',
    "Don’t you say “yes”, Tom",
    'Don\'t you say "yes", Tom?',
    'Don\'t you say "yes", Tom',
    "don’t you say “yes”, tom",
]


def drawn(sentence: str, times: int = 4000) -> list[str]:
    rng = random.Random(1)
    return [add_typing_noise(sentence, rng) for _ in range(times)]


def test_every_kind_of_noise_comes_as_often_as_it_should() -> None:
    sentences = drawn(SENTENCE)

    def share(test: Callable[[str], bool]) -> float:
        return sum(map(test, sentences)) / len(sentences)

    assert share(str.islower) == pytest.approx(0.5, abs=0.03)
    assert share(lambda text: not text.endswith("?")) == pytest.approx(0.5, abs=0.03)
    assert share(lambda text: "’" in text) == pytest.approx(0.21, abs=0.03)
    assert share(lambda text: "dont" in text.lower()) == pytest.approx(0.09, abs=0.02)
    assert share(lambda text: "“" in text) == share(lambda text: "’" in text)


@pytest.mark.parametrize(
    ("typed", "small"),
    [
        ("Send KX7-B2q9 to Anna.Berg@Example.org, please.", None),
        ("Open /Data/Report_Final.PDF or C:\\Temp.", "open /Data/Report_Final.PDF or C:\\Temp."),
        ("See Example.org/News in Room B12!", "see Example.org/News in room B12!"),
        ("Tag it #Bug, Tom.", "tag it #Bug, tom."),
        ("Don't SHOUT. Ärger, Tom!", "don't shout. ärger, tom!"),
        ("  Two  blanks\tHere ", "  two  blanks\there "),
        ("", ""),
    ],
)
def test_small_letters_leave_what_is_copied(typed: str, small: str | None) -> None:
    assert small_letters(typed) == (small or typed.replace("Send", "send"))


def test_noise_is_as_before_where_nothing_is_copied() -> None:
    """A model's training can be repeated bit for bit."""
    rng = random.Random(7)
    noisy = [add_typing_noise(SENTENCE, rng) for _ in range(8)]
    assert noisy == EXPECTED


def test_noise_never_leaves_an_empty_sentence() -> None:
    assert set(drawn("?", 500)) == {"?"}
    assert set(drawn("...", 500)) == {"..."}
    assert set(drawn("'", 500)) == {"'", "’"}
    assert all(drawn("'?", 500))


@pytest.mark.parametrize(
    ("straight", "typographic"),
    [
        ('It\'s "here" and "there".', "It’s “here” and “there”."),
        ('"Yes', "“Yes"),
        ("'", "’"),
        ("none", "none"),
        ("", ""),
    ],
)
def test_quotes_are_typographic(straight: str, typographic: str) -> None:
    assert typographic_quotes(straight) == typographic
