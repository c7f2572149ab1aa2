"""The tokens that would end a forbidden phrase, beside a search of all texts for it."""

import itertools
import random
import re
import time

import numpy as np
import pytest

from mt.inference.constraints import Constraints, Vocabulary

WORDS = ["Sie", "a", "ab", "b.", "(c)", "-n", "z. B.", "U-Bahn", "_u", "5"]
PIECES = [
    "<pad>", "<unk>", "<s>", "</s>", "▁", "▁a", "a", "b", "▁b", ".", "..", ".,", "▁Sie", "Sie", ",",
    "(", "▁(", "c", ")", "(c", "-", "n", "-n", "▁z", "▁B.", "U", "-B", "ahn", "_", "u", "5", "▁5,a",
    "ab.", "▁▁", "ie", "S", "a.Sie",
]  # fmt: skip
VOCABULARY = Vocabulary(PIECES)


def is_banned(text: str, token: str, phrases: list[str], is_last: bool) -> bool:
    """Whether a phrase ends in the token as whole words, or right before it."""
    whole = text + token
    for phrase, start in itertools.product(phrases, range(len(whole))):
        end = start + len(phrase)
        is_whole = not re.search(r"\w\Z", whole[:start]) and not re.match(r"\w", whole[end:])
        is_over = end == len(text) or len(text) < end < len(whole) + is_last
        if whole.startswith(phrase, start) and is_whole and is_over:
            return True
    return False


@pytest.mark.parametrize("seed", range(5))
def test_they_are_those_that_a_search_of_the_text_finds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        phrases = [" ".join(rng.sample(WORDS, rng.randint(1, 2))) for _ in range(rng.randint(1, 3))]
        text = "".join(
            rng.choice([" ", "", "-"]) + rng.choice(WORDS) for _ in range(rng.choice([0, 2]))
        )
        text += rng.choice(["", " "]) + rng.choice(phrases)[: rng.randint(0, 6)]
        constraints = Constraints(VOCABULARY, (), phrases)
        for is_last in (False, True):
            banned = constraints.forbidden_tokens(text, is_last)
            for token, piece in enumerate(VOCABULARY.texts):
                if piece:
                    expected = is_banned(text, piece, phrases, is_last)
                    assert banned[token] == expected, (text, piece, phrases, is_last)


def test_many_long_phrases_take_no_time() -> None:
    texts = [f"▁{a}{b}{c}" for a, b, c in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=3)]
    vocabulary = Vocabulary([*PIECES[:4], *texts])
    phrases = ["z" * 1000, *("a " * 170 + f"b{i}" for i in range(49))]
    constraints = Constraints(vocabulary, (), phrases)
    constraints.forbidden_tokens("a " * 160, True)
    begun = time.process_time()
    assert not np.any(constraints.forbidden_tokens("a " * 160, True))
    assert time.process_time() - begun < 0.1


def test_letters_that_begin_many_tokens_take_no_time() -> None:
    texts = [f"▁{a}{b}{c}" for a, b, c in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=3)]
    constraints = Constraints(Vocabulary([*PIECES[:4], *texts]), (), list("abcdefghijklmnopqrst"))
    constraints.forbidden_tokens("An output. ", False)
    begun = time.process_time()
    for _ in range(100):  # steps of a hypothesis
        constraints.forbidden_tokens("An output. ", False)
    assert time.process_time() - begun < 0.5
