"""An English-German corpus, written for this project, in six parts.

- ``grammar``: short hand-written phrases and the sentences of a slot grammar. Pairs that share a
  sentence, in either language, go to the same split, which a hash chooses.
- ``themes``: hand-written pairs, one file a theme. Whole themes are held out.
- ``vocabulary``: hand-written pairs that show frequent words in use, split by the same hash.
- ``situations``: hand-written pairs about fields of life and work, split in the same way.
- ``expressions``: hand-written verb phrases in clauses of many kinds, split by the same hash.
- ``entities``: sentences with names, numbers, dates and codes. Held-out values are not in training.

``load`` returns the pairs of a split. No sentence of a split, in either language, is also in
another one, whatever the parts: see ``_splits``.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files

from . import templates

PARTS = ("grammar", "themes", "vocabulary", "situations", "expressions", "entities")
SPLITS = ("train", "validation", "test")

# The numbers of the themes that are held out; all others are for training.
HELD_OUT_THEMES = {
    "validation": ("05", "26", "44", "58"),
    "test": ("11", "16", "23", "35", "48", "57"),
}

# Demonstrations and the documentation use these sentences: always in the training split.
SHOWCASE = ("Where do you live?",)

# A component's hash modulo _MODULUS decides: validation below the first bound, test below the
# second, otherwise train.
_MODULUS, _VALIDATION, _TEST = 1000, 17, 35

_NO_MARKS = str.maketrans(dict.fromkeys(string.punctuation + "„“”‚‘’–…", " "))  # emoji stay


def phrases() -> list[tuple[str, str]]:
    """Return the hand-written pairs of the grammar part, in the order of their files."""
    return [pair for table in _tables("phrases").values() for pair in table]


def themes(split: str) -> list[tuple[str, str]]:
    """Return all pairs of the themes of a split, in the order of their files."""
    home = {number: name for name, numbers in HELD_OUT_THEMES.items() for number in numbers}
    tables = _tables("themes").items()
    return [
        pair for name, table in tables if home.get(name[:2], "train") == split for pair in table
    ]


def written(part: str, split: str) -> list[tuple[str, str]]:
    """Return all pairs of a split of "vocabulary" or "situations", in the order of their files."""
    tables = _tables(part).values()
    return [pair for table in tables for pair in table if choose([pair]) == split]


def expand() -> list[tuple[str, str]]:
    """Return all pairs of the slot grammar: distinct, in an order that never changes."""
    return list(templates.expand())


def load(split: str, parts: Collection[str] = ("grammar",)) -> list[tuple[str, str]]:
    """Return the pairs of a split: those of each part in turn, each pair once.

    The grammar part has its phrases first, then its sentences, mixed. Raises ValueError unless
    ``split`` is one of SPLITS and ``parts`` are of PARTS.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}, expected one of: {', '.join(SPLITS)}")
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"unknown part {part!r}, expected some of: {', '.join(PARTS)}")
    return list(dict.fromkeys(pair for part in parts for pair in _splits(part)[split]))


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
    part = int.from_bytes(_digest(min(sentences))[:4], "big") % _MODULUS
    return "validation" if part < _VALIDATION else "test" if part < _TEST else "train"


@cache
def _splits(part: str) -> dict[str, list[tuple[str, str]]]:
    """Return the splits of a part, without the pairs that would be known from another split.

    Such a pair shares a sentence, but for case and punctuation, with a pair that comes before it
    and is in another split. The parts come in the order of PARTS, and in each of them test,
    validation, train: a held-out pair takes away training pairs of its own part and of later ones.
    """
    if part == "grammar":
        return _grammar_splits()
    homes: dict[str, set[str]] = {}  # the splits of every sentence so far
    for earlier in PARTS[: PARTS.index(part)]:
        for split, pairs in _splits(earlier).items():
            for pair in pairs:
                for sentence in _words(pair):
                    homes.setdefault(sentence, set()).add(split)
    splits: dict[str, list[tuple[str, str]]] = {}
    for split in reversed(SPLITS):
        splits[split] = []
        for pair in _read(part, split):
            sentences = _words(pair)
            if all(homes.get(sentence, {split}) == {split} for sentence in sentences):
                splits[split].append(pair)
                homes.update((sentence, {split}) for sentence in sentences)
    return splits


def _read(part: str, split: str) -> Iterable[tuple[str, str]]:
    if part == "themes":
        return themes(split)
    if part in ("vocabulary", "situations"):
        return written(part, split)
    if part == "expressions":
        from . import expressions  # only who needs this part waits for it

        return [pair for pair in expressions.expand() if choose([pair]) == split]
    from . import entities

    return entities.load(split)


@cache
def _grammar_splits() -> dict[str, list[tuple[str, str]]]:
    splits: dict[str, list[tuple[str, str]]] = {name: [] for name in SPLITS}
    shuffled = sorted(expand(), key=lambda pair: _digest(pair[0]))  # so the first n are a sample
    for component in components(list(dict.fromkeys(phrases() + shuffled))):
        splits[choose(component)] += component
    return splits


def _words(pair: tuple[str, str]) -> list[str]:
    """Return both sides, named by language, without case and punctuation."""
    sides = zip(("en", "de"), pair, strict=True)
    return [" ".join([name, *text.casefold().translate(_NO_MARKS).split()]) for name, text in sides]


def _tables(folder: str) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs of the folder's .tsv files by name; lines that begin with # are comments."""
    tables = {}
    for path in sorted((files(__package__) / folder).iterdir(), key=lambda path: path.name):
        if path.name.endswith(".tsv"):
            pairs = []
            for line in path.read_text(encoding="utf-8").splitlines():
                english, tab, german = line.partition("\t")
                if tab and not line.startswith("#"):
                    pairs.append((english.strip(), german.strip()))
            tables[path.name] = pairs
    return tables


def _digest(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode()).digest()
