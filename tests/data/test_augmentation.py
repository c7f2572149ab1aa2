"""Typing noise: what it does to a sentence, and how often."""

import random
from collections.abc import Callable

import pytest

from mt.data.augmentation import add_typing_noise, typographic_quotes

SENTENCE = 'Don\'t you say "yes", Tom?'


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
