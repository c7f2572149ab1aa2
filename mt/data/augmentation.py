"""Sentences as people type them: the corpora that we learn from are neater than they are."""

import random

MARKS = ".?!…"
QUOTES = str.maketrans("'", "’")


def add_typing_noise(source: str, rng: random.Random) -> str:
    """The same sentence, typed carelessly; it is to be translated by a proper one all the same.

    Small letters throughout, no mark at the end, typographic quotes or no apostrophes.
    """
    if rng.random() < 0.5:
        source = source.lower()
    if rng.random() < 0.5:
        source = source.rstrip(MARKS) or source
    if rng.random() < 0.3:
        bare = source.replace("'", "") or source
        source = bare if rng.random() < 0.3 else typographic_quotes(source)
    return source


def typographic_quotes(text: str) -> str:
    """Straight quotes as typographic ones: 'It's "here"' becomes ’It’s “here”’."""
    parts = text.translate(QUOTES).split('"')
    return parts[0] + "".join(f"{'“”'[i % 2]}{part}" for i, part in enumerate(parts[1:]))


def check_noise(noise: float) -> None:
    """ValueError when it is not a share of the pairs."""
    if not isinstance(noise, int | float) or isinstance(noise, bool) or not 0 <= noise <= 1:
        raise ValueError(f"data.noise={noise!r}: must be a number from 0 to 1")
