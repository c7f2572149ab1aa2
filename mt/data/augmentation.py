"""Typing noise: training sentences as people type them, who are less careful than a corpus."""

import random
import re

COPIED = re.compile(r"\d|[@/\\_#]|\w\.\w")  # in codes, addresses and names of files
END_MARKS = ".?!…"
APOSTROPHES = str.maketrans("'", "’")


def add_typing_noise(sentence: str, rng: random.Random) -> str:
    """The same sentence, typed carelessly; the model still learns its neat translation.

    With probability 0.5 all letters become small, but for codes, addresses and names of files; with
    0.5 the marks at the end go; with 0.21 quotes become typographic, with 0.09 apostrophes go.
    """
    if rng.random() < 0.5:
        sentence = small_letters(sentence)
    if rng.random() < 0.5:
        sentence = sentence.rstrip(END_MARKS) or sentence
    if rng.random() < 0.3:
        bare = sentence.replace("'", "") or sentence
        sentence = bare if rng.random() < 0.3 else typographic_quotes(sentence)
    return sentence


def small_letters(text: str) -> str:
    """The text in small letters; a word with a digit, @, /, \\, _, # or a point inside stays."""
    return " ".join(word if COPIED.search(word) else word.lower() for word in text.split(" "))


def typographic_quotes(text: str) -> str:
    """Straight quotes as typographic ones: 'It's "here"' becomes ’It’s “here”’."""
    parts = text.translate(APOSTROPHES).split('"')
    return parts[0] + "".join(f"{'“”'[i % 2]}{part}" for i, part in enumerate(parts[1:]))
