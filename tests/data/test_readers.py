"""Sentence pairs: read from files and from the phrasebook, line by line."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import PAIRS, SHARED, write_lines
from corpus_formats import (
    FORMATS,
    Format,
    as_json,
    as_nested_json,
    as_prefix,
    as_tsv,
    nasty_pairs,
)

from mt.data import phrasebook, readers
from mt.data.readers import FileReader, HubReader, PhrasebookReader

# Files


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_every_pair_as_it_is(tmp_path: Path, form: Format) -> None:
    reader = FileReader(**form(tmp_path, nasty_pairs()))
    assert list(reader.pairs("train")) == nasty_pairs()


@pytest.mark.parametrize("form", [as_prefix, as_tsv, as_json, as_nested_json])
def test_every_format_turns_around(tmp_path: Path, form: Format) -> None:
    options = {"src": "en", "tgt": "de"} | form(tmp_path, PAIRS)
    options["src"], options["tgt"] = options["tgt"], options["src"]
    assert list(FileReader(**options).pairs("train")) == [(de, en) for en, de in PAIRS]


def test_suffixes_may_be_any_names(tmp_path: Path) -> None:
    write_lines(tmp_path / "v1.0.clean.source", ["one"])
    write_lines(tmp_path / "v1.0.clean.target", ["eins"])
    reader = FileReader(train=str(tmp_path / "v1.0.clean"), src="source", tgt="target")
    assert list(reader.pairs("train")) == [("one", "eins")]


def test_each_split_has_its_own_files(corpus_folder: Path) -> None:
    reader = FileReader(*(str(corpus_folder / split) for split in readers.SPLITS))
    assert list(reader.pairs("train")) == PAIRS
    assert list(reader.pairs("validation")) == PAIRS[:6]
    assert list(reader.pairs("test")) == PAIRS[6:10]


@pytest.mark.parametrize(
    ("src", "tgt", "counts"),
    [
        ("a\nb\nc\n", "A\nB\n", (3, 2)),
        ("a\nb\n", "A\nB\nC\n", (2, 3)),
        ("a\nb\n\n", "A\nB\n", (3, 2)),
        ("a\nb\n", "A\nB\n\n\n", (2, 4)),
        ("a\nb\n", "", (2, 0)),
        ("", "A", (0, 1)),
        ("a\u2028b\n", "A\nB\n", (1, 2)),
        ("a\n" * 1200, "A\n" * 1199, ("1,200", "1,199")),
    ],
)
def test_misaligned_files_are_refused_with_both_counts(
    tmp_path: Path, src: str, tgt: str, counts: tuple[object, object]
) -> None:
    (tmp_path / "x.en").write_bytes(src.encode())
    (tmp_path / "x.de").write_bytes(tgt.encode())
    with pytest.raises(ValueError, match="not aligned") as caught:
        list(FileReader(train=str(tmp_path / "x")).pairs("train"))
    assert f"{tmp_path}/x.en has {counts[0]} lines" in str(caught.value)
    assert f"{tmp_path}/x.de has {counts[1]};" in str(caught.value)


@pytest.mark.parametrize(
    ("location", "tried"),
    [
        ("nowhere/x", "nowhere/x.en or nowhere/x.en.gz"),
        ("nowhere/x.tsv", "nowhere/x.tsv"),
        ("nowhere/x.jsonl.gz", "nowhere/x.jsonl.gz"),
        (["nowhere/a", "nowhere/b"], "nowhere/a"),
    ],
)
def test_the_error_names_all_files_that_were_tried(location: Any, tried: str) -> None:
    for method in (FileReader(train=location).pairs, FileReader(train=location).identity):
        with pytest.raises(FileNotFoundError, match=f"no such file: {re.escape(tried)}$"):
            method("train")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.en").mkdir()
    write_lines(tmp_path / "x.de", ["a"])
    with pytest.raises(FileNotFoundError, match=r"x\.en"):
        FileReader(train=str(tmp_path / "x")).pairs("train")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (None, "data.train is not set"),
        ("", "data.train is not set"),
        (["one"], "must name two files"),
        (["a", "b", "c"], "must name two files"),
        (5, "data.train=5"),
    ],
)
def test_a_split_that_names_no_files_is_refused(location: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        FileReader(train=location).pairs("train")


@pytest.mark.parametrize(
    ("name", "lines", "options", "message"),
    [
        ("x.tsv", ["en\tde", "a\tA", "b"], {}, "line 3: 1 of the 2 columns that a line needs"),
        ("x.tsv", ["a\tA", "b\tB", "c"], {"src": 0, "tgt": 1}, "line 3: 1 of the 2 columns"),
        ("x.tsv", ["a\tA"], {"src": 4, "tgt": 0}, "line 1: 2 of the 5 columns"),
        ("x.tsv", ["en\tde", "a\tA", "a\tA\tx"], {}, "line 3: 3 columns, where there are 2: a tab"),
        ("x.tsv", ["a\tA", "a\tA\tx"], {"src": 0, "tgt": 1}, "line 2: 3 columns, where there"),
        ("x.tsv", ["en\tfr", "a\tA"], {}, "no column 'de' in its header ['en', 'fr']"),
        ("x.tsv", ["a\tA"], {"src": 0, "tgt": "de"}, "no column 0 in its header"),
        ("x.tsv", ["en\tde"], {"src": -1, "tgt": 0}, "no column -1 in its header"),
        ("x.jsonl", ['{"en": "a", "de": "A"}', "{"], {}, "line 2: Expecting"),
        ("x.jsonl", ['{"en": "a", "fr": "A"}'], {}, "line 1: no key 'de'; data.src and data.tgt"),
        ("x.jsonl", ['{"en": "a", "de": null}'], {}, "line 1: de is None, not a text"),
        ("x.jsonl", ['{"en": "a", "de": 3}'], {}, "line 1: de is 3, not a text"),
        (
            "x.jsonl",
            ['{"en": "a", "de": "\\ud800"}'],
            {},
            "line 1: de is '\\ud800', which has half",
        ),
        ("x.jsonl", ["[1, 2]"], {}, "line 1: it holds [1, 2]; a line must hold one JSON object"),
        ("x.jsonl", ["7"], {}, "line 1: it holds 7; a line must"),
        ("x.jsonl", ['"en de"'], {}, "line 1: it holds 'en de'; a line must"),
        ("x.jsonl", ['{"t": {"en": "a"}}'], {"src": "t.en", "tgt": "t.de"}, "line 1: no key 'de'"),
        ("x.jsonl", ['{"t": "a"}'], {"src": "t.en", "tgt": "t.de"}, "line 1: string indices"),
    ],
)
def test_a_wrong_row_is_named(
    tmp_path: Path, name: str, lines: list[str], options: dict[str, Any], message: str
) -> None:
    path = write_lines(tmp_path / name, lines)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        list(FileReader(train=str(path), **options).pairs("train"))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("x.tsv", ["en\tde", "a\tA", "", "c\tC", ""]),
        ("x.jsonl", ['{"en": "a", "de": "A"}', " ", '{"en": "c", "de": "C"}', ""]),
        ("x.JSONL", ['{"en": "a", "de": "A"}', "", '{"en": "c", "de": "C"}', ""]),
    ],
)
def test_a_blank_line_is_an_empty_pair(tmp_path: Path, name: str, lines: list[str]) -> None:
    """The cleaning counts it, as in line-aligned files."""
    path = write_lines(tmp_path / name, lines)
    pairs = list(FileReader(train=str(path)).pairs("train"))
    assert pairs == [("a", "A"), ("", ""), ("c", "C"), ("", "")]
    with pytest.raises(ValueError, match=r"line [23]: "):  # a test set has no empty pairs
        list(FileReader(test=str(path)).pairs("test"))


@pytest.mark.skipif(not (SHARED / "data/news").is_dir(), reason="the shared data are not here")
def test_newstest2014_has_its_3003_pairs() -> None:
    pairs = list(FileReader(test=str(SHARED / "data/news/newstest2014")).pairs("test"))
    assert len(pairs) == 3003
    assert all(en.strip() and de.strip() for en, de in pairs)


# The phrasebook


def test_the_phrasebook_has_a_reader() -> None:
    pairs = list(PhrasebookReader().pairs("validation"))
    assert pairs == phrasebook.load("validation")
    assert list(PhrasebookReader("de", "en").pairs("validation")) == [(de, en) for en, de in pairs]
    assert PhrasebookReader().identity("validation") == PhrasebookReader().identity("validation")
    identities = [
        PhrasebookReader().identity("validation"),
        PhrasebookReader().identity("test"),
        PhrasebookReader("de", "en").identity("test"),
        PhrasebookReader(parts=["themes"]).identity("test"),
        PhrasebookReader(parts=["grammar", "themes"]).identity("test"),
    ]
    assert all(a != b for a, b in itertools.combinations(identities, 2))


def test_the_phrasebook_has_two_languages() -> None:
    with pytest.raises(ValueError, match="between en and de, not en-fr"):
        PhrasebookReader("en", "fr")


@pytest.mark.parametrize(
    "parts", [["news"], ["grammar", 1], [], "themes", None, True, {"themes": 1}]
)
def test_the_parts_of_the_phrasebook_are_known(parts: Any) -> None:
    message = (
        f"parts={parts!r}: must be a list of grammar, themes, vocabulary, situations, "
        "expressions, entities"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        PhrasebookReader(parts=parts)


def test_a_reader_has_the_parts_in_the_order_that_it_names() -> None:
    pairs = PhrasebookReader("de", "en", parts=["themes", "grammar"]).pairs("test")
    both = phrasebook.load("test", ["themes"]) + phrasebook.load("test")
    assert list(pairs) == [(german, english) for english, german in both]


def test_the_phrasebook_joins_the_training_pairs_of_files(corpus_folder: Path) -> None:
    named = {name: str(corpus_folder / name) for name in ("train", "validation")}
    plain, joined = FileReader(**named), FileReader(**named, phrasebook=True)
    own, book = list(plain.pairs("train")), list(PhrasebookReader().pairs("train"))
    assert list(joined.pairs("train")) == own + book
    assert list(joined.pairs("validation")) == list(plain.pairs("validation"))
    assert joined.identity("train") != plain.identity("train")
    assert joined.identity("validation") == plain.identity("validation")
    back = FileReader(**named, src="de", tgt="en", phrasebook=True)
    assert list(back.pairs("train"))[-1] == book[-1][::-1]
    themes = FileReader(**named, phrasebook=["themes"])
    assert list(themes.pairs("train")) == own + phrasebook.load("train", ["themes"])
    assert themes.identity("train") != joined.identity("train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phrasebook": "no"}, "data.phrasebook='no': must be true, false or a list of grammar"),
        ({"phrasebook": []}, r"data.phrasebook=\[\]: must be true, false or a list"),
        ({"phrasebook": True, "src": 0, "tgt": 1}, "between en and de, not 0 and 1"),
        ({"phrasebook": ["themes"], "tgt": "fr"}, "between en and de, not en and fr: set it to"),
    ],
)
def test_the_phrasebook_joins_english_and_german_alone(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileReader(train="train", **changes)


# Settings that cannot be meant


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (("en", "en"), "data.src=en and data.tgt=en: the source is the target"),
        ((0, "0"), "the source is the target"),
        ((None, "de"), "data.src=None: must name a side"),
        (("en", " "), "data.tgt=' ': must name a side"),
        ((True, "de"), "data.src=True: must name a side"),
        (("en", ["de"]), "must name a side"),
        (("en", 1.5), "data.tgt=1.5: must name a side"),
    ],
)
@pytest.mark.parametrize("kind", [FileReader, HubReader])
def test_source_and_target_are_two_names(kind: Any, sides: Any, message: str) -> None:
    location = {"path": "x"} if kind is HubReader else {}
    match = message if kind is FileReader else "data.(src|tgt)="  # the hub has no numbered columns
    with pytest.raises(ValueError, match=match):
        kind(**location, src=sides[0], tgt=sides[1])


def test_one_file_is_not_both_sides(corpus_folder: Path) -> None:
    file, link, hard = (corpus_folder / name for name in ("train.en", "link", "hard"))
    link.symlink_to(file)
    hard.hardlink_to(file)
    for other in (file, link, hard, corpus_folder / ".." / "corpus" / "train.en"):
        with pytest.raises(ValueError, match=r"data\.train: .* are one file"):
            list(FileReader(train=[str(file), str(other)]).pairs("train"))


def test_splits_have_one_form(corpus_folder: Path) -> None:
    reader = FileReader(validation=str(corpus_folder / "validation"), src=0, tgt=1)
    with pytest.raises(ValueError, match=r"src=0 and data\.tgt=1 are its suffixes, not columns"):
        reader.identity("validation")
    reader = FileReader(train=str(corpus_folder / "train.en"))
    with pytest.raises(ValueError, match=r"train\.en: neither .* nor \.parquet; .*SOURCE,TARGET"):
        reader.identity("train")


@pytest.mark.parametrize(
    ("line", "reason"),
    [("[" * 100_000, "nested too deeply"), ('{"en": "a", "en": "b"}', "'en' comes twice")],
)
def test_a_hostile_line_of_json_is_named(line: str, reason: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "x.jsonl", ['{"en": "a", "de": "b"}', line])
    with pytest.raises(ValueError, match=rf"x\.jsonl, line 2: .*{reason}"):
        list(FileReader(train=str(tmp_path / "x.jsonl")).pairs("train"))


@pytest.mark.parametrize(
    ("first", "warns"), [("en\tde", True), ("Source\tTarget\tid", True), ("a\tb", False)]
)
def test_a_header_that_is_read_as_a_pair_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: str, warns: bool
) -> None:
    (tmp_path / "x.tsv").write_text(f"{first}\nA house.\tEin Haus.\nen\tde\n")
    reader = FileReader(train=str(tmp_path / "x.tsv"), src=0, tgt=1)
    assert len(list(reader.pairs("train"))) == 3
    assert ("seems to be a header" in caplog.text) is warns
