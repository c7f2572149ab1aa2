"""An English-German corpus made of hand-written phrases and of a slot grammar.

``load`` returns a split of it.  Pairs that share a sentence, in either language, always go to the
same split, so that no sentence of the test split has been seen in training.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from . import templates

SPLITS = ("train", "validation", "test")

# Sentences that demonstrations and the documentation use: always in the training split.
SHOWCASE = ("Where do you live?",)

_PARTS = 1000  # a component's hash is taken modulo this
_VALIDATION, _TEST = 17, 35  # below the first: validation; below the second: test; else train


def phrases() -> list[tuple[str, str]]:
    """Return the hand-written pairs, in the order of their files."""
    pairs = []
    folder = files(__package__) / "phrases"
    if not folder.is_dir():
        return []
    for table in sorted(folder.iterdir(), key=lambda entry: entry.name):
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
    """Return the pairs of a split, "train", "validation" or "test": phrases first, then a mix."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}, expected one of: {', '.join(SPLITS)}")
    return list(_splits()[split])


@cache
def normalise(sentence: str) -> str:
    """Return what two sentences must share to count as the same."""
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
    shuffled = sorted(expand(), key=lambda pair: _digest(pair[0]))  # the first n are a fair sample
    for component in components(list(dict.fromkeys(phrases() + shuffled))):
        splits[choose(component)] += component
    return splits


def _digest(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode()).digest()
