"""Careless typing: what it does to a pair, and how often."""

import random
from typing import Any

import pytest

from mt.data import augmentation

SENTENCE = 'Don\'t you say "yes", Tom?'


def drawn(sentence: str, times: int = 4000) -> list[str]:
    rng = random.Random(1)
    return [augmentation.add_typing_noise(sentence, rng) for _ in range(times)]


def test_every_kind_of_carelessness_comes_as_often_as_it_should() -> None:
    found = drawn(SENTENCE)

    def share(test: Any) -> float:
        return sum(map(test, found)) / len(found)

    assert share(str.islower) == pytest.approx(0.5, abs=0.03)
    assert share(lambda text: not text.endswith("?")) == pytest.approx(0.5, abs=0.03)
    assert share(lambda text: "’" in text) == pytest.approx(0.21, abs=0.03)
    assert share(lambda text: "dont" in text.lower()) == pytest.approx(0.09, abs=0.02)
    assert share(lambda text: "“" in text) == share(lambda text: "’" in text)


def test_nothing_is_ever_typed_as_nothing() -> None:
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
    assert augmentation.typographic_quotes(straight) == typographic


@pytest.mark.parametrize("wrong", [-0.1, 1.1, "much", None, True])
def test_a_share_is_from_0_to_1(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"data\.noise="):
        augmentation.check_noise(wrong)
