"""The built-in corpus: the hand-written themes, and the splits of all parts."""

import itertools
import re
import unicodedata
from collections import Counter
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from mt.data import phrasebook

PACKAGE = files(phrasebook.__name__)
FOLDER = PACKAGE / "themes"
FILES, VOCABULARY, SITUATIONS = (
    sorted(path.name for path in (PACKAGE / name).iterdir() if path.name.endswith(".tsv"))
    for name in ("themes", "vocabulary", "situations")
)
TRAINING = Path(__file__).resolve().parents[2] / "docs/training.md"
WRITTEN = ("grammar", "themes", "vocabulary", "situations", "expressions")


def words(sentence: str) -> str:
    """The form in which sentences are equal but for case and punctuation."""
    return " ".join(re.sub(r"[^\w\s]", " ", sentence.casefold()).split())


@cache
def sides(split: str, part: str) -> list[set[str]]:
    pairs = phrasebook.load(split, [part])
    return [{words(sentence) for sentence in side} for side in zip(*pairs, strict=True)]


def test_the_themes_are_numbered() -> None:
    assert [int(name[:2]) for name in FILES] == list(range(1, len(FILES) + 1))
    held_out = [number for numbers in phrasebook.HELD_OUT_THEMES.values() for number in numbers]
    assert len(set(held_out)) == len(held_out)
    assert set(held_out) < {name[:2] for name in FILES}


@pytest.mark.parametrize("name", FILES)
def test_a_theme_has_its_name_and_size(name: str) -> None:
    assert re.fullmatch(r"\d\d-[a-z]+\.tsv", name)
    assert 100 <= len((FOLDER / name).read_text(encoding="utf-8").splitlines()) <= 170


@pytest.mark.parametrize(
    "path",
    [
        *(f"themes/{name}" for name in FILES),
        *(f"vocabulary/{name}" for name in VOCABULARY),
        *(f"situations/{name}" for name in SITUATIONS),
    ],
)
def test_a_file_is_well_formed(path: str) -> None:
    text = (PACKAGE / path).read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert unicodedata.is_normalized("NFC", text)
    for line in text.removesuffix("\n").split("\n"):
        assert all(char.isprintable() or char == "\t" for char in line), line
        english, german = line.split("\t")
        for side in (english, german):
            assert side, line
            assert side == " ".join(side.split()), line
            assert not re.search(r" [,;?!]| \.(?!\w)|[,;?!][^\W\d]", side), line
        assert english.count('"') % 2 == 0, line
        assert not re.search("[“”„«»‘’]", english), line
        assert not re.search('["”«»’]', german), line
        assert re.fullmatch("[^„“]*(„[^„“]*“[^„“]*)*", german), line
        assert ends(english) == ends(german), line


def ends(sentence: str) -> str:
    """Which kind of sentence its last mark shows."""
    return re.sub(r"[\"“)]", "", sentence)[-1] if sentence[-1] in '.?!"“)' else ""


def test_a_hand_written_pair_stands_once() -> None:
    pairs = []
    for split in phrasebook.SPLITS:
        pairs += phrasebook.themes(split)
        pairs += phrasebook.written("vocabulary", split) + phrasebook.written("situations", split)
    assert [pair for pair, count in Counter(pairs).items() if count > 1] == []


def test_a_split_has_whole_themes() -> None:
    count = {name: len(phrasebook.themes(name)) for name in phrasebook.SPLITS}
    of_files = {
        name: len((FOLDER / name).read_text(encoding="utf-8").splitlines()) for name in FILES
    }
    assert sum(count.values()) == sum(of_files.values())
    for split, numbers in phrasebook.HELD_OUT_THEMES.items():
        assert count[split] == sum(size for name, size in of_files.items() if name[:2] in numbers)


@pytest.mark.parametrize("split", phrasebook.SPLITS)
def test_few_pairs_are_left_out(split: str) -> None:
    loaded = phrasebook.load(split, ["themes"])
    assert set(loaded) <= set(phrasebook.themes(split))
    assert 0 < len(phrasebook.themes(split)) - len(loaded) <= 10


@pytest.mark.parametrize(
    ("part", "names"), [("vocabulary", VOCABULARY), ("situations", SITUATIONS)]
)
def test_other_hand_written_pairs_are_split_by_sentence(part: str, names: list[str]) -> None:
    count = {name: len(phrasebook.written(part, name)) for name in phrasebook.SPLITS}
    texts = [(PACKAGE / part / name).read_text(encoding="utf-8") for name in names]
    assert sum(count.values()) == sum(text.count("\n") for text in texts)
    for split in ("validation", "test"):
        assert 0.01 < count[split] / count["train"] < 0.03


@pytest.mark.parametrize("part", WRITTEN)
def test_the_documentation_has_the_sizes(part: str) -> None:
    sizes = [f"{len(phrasebook.load(name, [part])):,}" for name in phrasebook.SPLITS]
    lines = TRAINING.read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith(f"| `{part}` |"))
    assert row.split(" | ")[2:] == [*sizes[:2], f"{sizes[2]} |"]


@pytest.mark.parametrize("part", WRITTEN)
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(phrasebook.SPLITS, 2)))
def test_no_sentence_of_a_theme_is_in_another_split(part: str, one: str, other: str) -> None:
    for mine, theirs in zip(sides(one, "themes"), sides(other, part), strict=True):
        assert not mine & theirs


def test_the_pairs_of_two_parts_follow_each_other_once() -> None:
    grammar, themes, both = (
        phrasebook.load("train", p) for p in (("grammar",), ["themes"], WRITTEN[:2])
    )
    assert phrasebook.load("train") == grammar
    assert both[: len(grammar)] == grammar
    known = set(grammar)
    assert both[len(grammar) :] == [pair for pair in themes if pair not in known]
    assert known & set(themes)


def test_a_pair_that_another_split_knows_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out pairs of the grammar and of the same part come first, whatever the punctuation."""
    read = {
        "train": [("A?", "1"), ("b", "2!"), ("C", "9"), ("F", "6")],
        "validation": [("B!", "3"), ("G", "7")],
        "test": [("D", "2"), ("E", "4"), ("G", "5"), ("h", "8")],
    }
    grammar = {
        "train": [("e", "10"), ("H", "8")],
        "validation": [("a", "11")],
        "test": [("i", "9.")],
    }
    monkeypatch.setattr(phrasebook, "_grammar_splits", lambda: grammar)
    monkeypatch.setattr(phrasebook, "themes", read.get)
    splits = phrasebook._splits.__wrapped__
    monkeypatch.setattr(phrasebook, "_splits", splits)
    assert splits("themes") == {
        "test": [("D", "2"), ("G", "5")],
        "validation": [("B!", "3")],
        "train": [("F", "6")],
    }


@pytest.mark.parametrize("parts", [["news"], "themes", ["grammar", "Themes"]])
def test_an_unknown_part_names_the_known_ones(parts: list[str]) -> None:
    with pytest.raises(ValueError, match=f"expected some of: {', '.join(phrasebook.PARTS)}"):
        phrasebook.load("train", parts)
