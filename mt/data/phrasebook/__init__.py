"""An English-German corpus of hand-written phrases and of sentences from a slot grammar.

``load`` returns one of its splits. Pairs that share a sentence, in either language, always go to
the same split, so that training has seen no sentence of the test split.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from . import templates

SPLITS = ("train", "validation", "test")

# Demonstrations and the documentation use these sentences: always in the training split.
SHOWCASE = ("Where do you live?",)

# A component's hash modulo _PARTS decides: validation below the first bound, test below the
# second, otherwise train.
_PARTS, _VALIDATION, _TEST = 1000, 17, 35


def phrases() -> list[tuple[str, str]]:
    """Return the hand-written pairs, in the order of their files."""
    pairs = []
    for table in sorted((files(__package__) / "phrases").iterdir(), key=lambda path: path.name):
        if table.name.endswith(".tsv"):
            for line in table.read_text(encoding="utf-8").splitlines():
                english, tab, german = line.partition("\t")
                if tab and not line.startswith("#"):
                    pairs.append((english.strip(), german.strip()))
    return pairs


def expand() -> list[tuple[str, str]]:
    """Return all pairs of the slot grammar: distinct, in an order that never changes."""
    return list(templates.expand())


def load(split: str) -> list[tuple[str, str]]:
    """Return the pairs of a split: phrases first, then sentences of the grammar, mixed.

    Raises ValueError unless ``split`` is "train", "validation" or "test".
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}, expected one of: {', '.join(SPLITS)}")
    return list(_splits()[split])


@cache
def normalise(sentence: str) -> str:
    """Return the form in which equal sentences are equal: without case and extra blanks."""
    return " ".join(sentence.casefold().split())


def components(pairs: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Group the pairs that share a sentence, directly or through other pairs."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for english, german in pairs:
        parent[root("en " + normalise(english))] = root("de " + normalise(german))
    groups: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        groups.setdefault(root("en " + normalise(pair[0])), []).append(pair)
    return list(groups.values())


def choose(component: list[tuple[str, str]]) -> str:
    """Assign a component to a split by a hash of its smallest English sentence."""
    sentences = {normalise(english) for english, _ in component}
    if sentences & {normalise(english) for english in SHOWCASE}:
        return "train"
    part = int.from_bytes(_digest(min(sentences))[:4], "big") % _PARTS
    return "validation" if part < _VALIDATION else "test" if part < _TEST else "train"


@cache
def _splits() -> dict[str, list[tuple[str, str]]]:
    splits: dict[str, list[tuple[str, str]]] = {name: [] for name in SPLITS}
    shuffled = sorted(expand(), key=lambda pair: _digest(pair[0]))  # so the first n are a sample
    for component in components(list(dict.fromkeys(phrases() + shuffled))):
        splits[choose(component)] += component
    return splits


def _digest(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode()).digest()
