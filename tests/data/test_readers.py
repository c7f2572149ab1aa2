"""Sentence pairs: read from files, the hub and the phrasebook, line by line."""

import gzip
import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import PAIRS, SHARED, write_lines

from mt.data import phrasebook, readers
from mt.data.readers import FileReader, HubReader, Pair, PhrasebookReader
from mt.utils import line_io

# Lines as newstest and crawled text have them: other programs count more or fewer than 12.
NASTY = [
    "plain",
    "a lone \r stays",
    "line\u2028separator",
    "paragraph\u2029separator",
    "next\u0085line",
    "form\x0cfeed, \x0bvertical tab",
    "\x1c\x1d\x1e separators",
    "",
    'an open "quote',
    "“typographic” 'quotes' \\n and a backslash \\",
    "\ufeffmark inside",
    "no\u00a0break 😀 \U0001f1e9\U0001f1ea",
]
DAMAGED_GZIP = gzip.compress("".join(f"line {i}\n" for i in range(20_000)).encode())


def read(path: Path) -> list[str]:
    return list(line_io.read_lines(path))


# Lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\n\nb\n\n", ["a", "", "", "b", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\nc", ["a\rb", "c"]),
        (b"a\r\r\nb", ["a\r", "b"]),
        (b"\r\n\n", ["", ""]),
        ("a\u2028b\u2029c\u0085d\n".encode(), ["a\u2028b\u2029c\u0085d"]),
        (b"a\x0cb\x0bc\x1cd\x1de\x1ef\n", ["a\x0cb\x0bc\x1cd\x1de\x1ef"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", [""]),
        (b'"a\tb"\n\'c\n"d\n', ['"a\tb"', "'c", '"d']),
        (b"a\x00b\n", ["a\x00b"]),
        (b" a \t\n", [" a \t"]),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_lines_end_at_newlines_alone(
    tmp_path: Path, content: bytes, lines: list[str], suffix: str
) -> None:
    path = tmp_path / f"text.en{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert read(path) == lines


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (b"\xff", 1),
        (b"good\nb\xe4d\nmore\n", 2),
        ("süß\n".encode("latin-1"), 1),
        ("süß\n".encode("utf-16"), 1),
        (b"a\n\n\r\n\xed\xa0\x80\n", 4),  # a surrogate
        (b"a\nb\xc3\n", 2),  # cut in half
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_line_that_is_not_utf8_is_named(
    tmp_path: Path, content: bytes, number: int, suffix: str
) -> None:
    path = tmp_path / f"text.en{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line {number}: not UTF-8")):
        read(path)


@pytest.mark.parametrize(
    "content",
    [
        b"not gzip at all\n",
        DAMAGED_GZIP[:-9],
        DAMAGED_GZIP[: len(DAMAGED_GZIP) // 2],
        DAMAGED_GZIP[:5000] + b"\x00" * 500 + DAMAGED_GZIP[5500:],
        DAMAGED_GZIP[:5000] + b"\xff" * 500 + DAMAGED_GZIP[5500:],
        DAMAGED_GZIP[:-8] + b"\x00" * 8,
        DAMAGED_GZIP + b"tail",
    ],
    ids=["other", "cut end", "cut half", "zeros", "ones", "checksum", "tail"],
)
def test_damaged_gzip_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"{path}, ") + "(after line|line)"):
        read(path)


# Files


def nasty_pairs() -> list[Pair]:
    return [(text, f"{number} {text}") for number, text in enumerate(NASTY)]


def as_prefix(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    for side, suffix in enumerate(("en", "de")):
        write_lines(folder / f"set.{suffix}", [pair[side] for pair in pairs])
    return {"train": str(folder / "set")}


def as_gzip(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    options = as_prefix(folder, pairs)
    for path in list(folder.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return options


def as_half_gzip(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    options = as_prefix(folder, pairs)
    path = folder / "set.de"
    path.with_name("set.de.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return options


def as_windows(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    options = as_prefix(folder, pairs)
    for path in folder.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    return options


def as_two_files(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    as_prefix(folder, pairs)
    (folder / "set.en").rename(folder / "original text.txt")
    (folder / "set.de").rename(folder / "translation")
    return {"train": [str(folder / "original text.txt"), str(folder / "translation")]}


def as_tsv(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = ["id\tde\tnote\ten", *(f"{i}\t{de}\t\t{en}" for i, (en, de) in enumerate(pairs))]
    return {"train": str(write_lines(folder / "set.tsv", rows))}


def as_tsv_gzip(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    path = Path(as_tsv(folder, pairs)["train"])
    path.with_name("set.tsv.gz").write_bytes(gzip.compress(path.read_bytes()))
    return {"train": f"{path}.gz"}


def as_tsv_numbered(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [f"{de}\t0.5\t{en}\tmore" for en, de in pairs]
    return {"train": str(write_lines(folder / "set.tsv", rows)), "src": 2, "tgt": 0}


def as_tsv_numbered_in_quotes(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    return {**as_tsv_numbered(folder, pairs), "src": "2", "tgt": "0"}


def as_json(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [json.dumps({"en": en, "de": de, "id": 3}, ensure_ascii=False) for en, de in pairs]
    return {"train": str(write_lines(folder / "set.jsonl", rows))}


def as_nested_json(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [json.dumps({"translation": {"en": en, "de": de}}) for en, de in pairs]
    path = write_lines(folder / "set.json", rows)
    return {"train": str(path), "src": "translation.en", "tgt": "translation.de"}


def as_dotted_json(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [json.dumps({"text.en": en, "text.de": de}) for en, de in pairs]
    path = folder / "set.json.gz"
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))
    return {"train": str(path), "src": "text.en", "tgt": "text.de"}


FORMATS = [
    as_prefix,
    as_gzip,
    as_half_gzip,
    as_windows,
    as_two_files,
    as_tsv,
    as_tsv_gzip,
    as_tsv_numbered,
    as_tsv_numbered_in_quotes,
    as_json,
    as_nested_json,
    as_dotted_json,
]
Format = Callable[[Path, list[Pair]], dict[str, Any]]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_every_pair_as_it_is(tmp_path: Path, form: Format) -> None:
    source = FileReader(**form(tmp_path, nasty_pairs()))
    assert list(source.pairs("train")) == nasty_pairs()


@pytest.mark.parametrize("form", [as_prefix, as_tsv, as_json, as_nested_json])
def test_every_format_turns_around(tmp_path: Path, form: Format) -> None:
    options = {"src": "en", "tgt": "de"} | form(tmp_path, PAIRS)
    options["src"], options["tgt"] = options["tgt"], options["src"]
    assert list(FileReader(**options).pairs("train")) == [(de, en) for en, de in PAIRS]


def test_suffixes_may_be_any_names(tmp_path: Path) -> None:
    write_lines(tmp_path / "v1.0.clean.source", ["one"])
    write_lines(tmp_path / "v1.0.clean.target", ["eins"])
    source = FileReader(train=str(tmp_path / "v1.0.clean"), src="source", tgt="target")
    assert list(source.pairs("train")) == [("one", "eins")]


def test_each_split_has_its_own_files(corpus_folder: Path) -> None:
    source = FileReader(*(str(corpus_folder / split) for split in readers.SPLITS))
    assert list(source.pairs("train")) == PAIRS
    assert list(source.pairs("validation")) == PAIRS[:6]
    assert list(source.pairs("test")) == PAIRS[6:10]


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
    ("place", "tried"),
    [
        ("nowhere/x", "nowhere/x.en or nowhere/x.en.gz"),
        ("nowhere/x.tsv", "nowhere/x.tsv"),
        ("nowhere/x.jsonl.gz", "nowhere/x.jsonl.gz"),
        (["nowhere/a", "nowhere/b"], "nowhere/a"),
    ],
)
def test_a_missing_file_is_told_with_all_that_was_tried(place: Any, tried: str) -> None:
    for method in (FileReader(train=place).pairs, FileReader(train=place).identity):
        with pytest.raises(FileNotFoundError, match=f"no such file: {re.escape(tried)}$"):
            method("train")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.en").mkdir()
    write_lines(tmp_path / "x.de", ["a"])
    with pytest.raises(FileNotFoundError, match=r"x\.en"):
        FileReader(train=str(tmp_path / "x")).pairs("train")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (None, "data.train is not set"),
        ("", "data.train is not set"),
        (["one"], "must name two files"),
        (["a", "b", "c"], "must name two files"),
        (5, "data.train=5"),
    ],
)
def test_a_split_that_names_no_files_is_refused(place: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        FileReader(train=place).pairs("train")


@pytest.mark.parametrize(
    ("name", "lines", "options", "message"),
    [
        ("x.tsv", ["en\tde", "a\tA", "b"], {}, "line 3: 1 columns, needs 2"),
        ("x.tsv", ["en\tde", "a\tA", "", "c\tC"], {}, "line 3: 1 columns, needs 2"),
        ("x.tsv", ["a\tA", "b\tB", "c"], {"src": 0, "tgt": 1}, "line 3: 1 columns, needs 2"),
        ("x.tsv", ["a\tA"], {"src": 4, "tgt": 0}, "line 1: 2 columns, needs 5"),
        ("x.tsv", ["en\tfr", "a\tA"], {}, "no column 'de' in its header ['en', 'fr']"),
        ("x.tsv", ["a\tA"], {"src": 0, "tgt": "de"}, "no column 0 in its header"),
        ("x.tsv", ["en\tde"], {"src": -1, "tgt": 0}, "no column -1 in its header"),
        ("x.jsonl", ['{"en": "a", "de": "A"}', "{"], {}, "line 2: Expecting"),
        ("x.jsonl", ['{"en": "a", "de": "A"}', ""], {}, "line 2: Expecting"),
        ("x.jsonl", ['{"en": "a", "fr": "A"}'], {}, "line 1: no key 'de'; a line must"),
        ("x.jsonl", ['{"en": "a", "de": null}'], {}, "line 1: de is None, not a text"),
        ("x.jsonl", ['{"en": "a", "de": 3}'], {}, "line 1: de is 3, not a text"),
        ("x.jsonl", ["[1, 2]"], {}, "line 1: "),
        ("x.jsonl", ["7"], {}, "line 1: "),
        ("x.jsonl", ['"en de"'], {}, "line 1: "),
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


@pytest.mark.skipif(not (SHARED / "data/news").is_dir(), reason="the shared data are not here")
def test_newstest2014_has_its_3003_pairs() -> None:
    pairs = list(FileReader(test=str(SHARED / "data/news/newstest2014")).pairs("test"))
    assert len(pairs) == 3003
    assert all(en.strip() and de.strip() for en, de in pairs)


# The hub


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


@pytest.fixture
def mirror(tmp_path: Path, hub_cache: None) -> Path:
    """A folder laid out as wmt/wmt14 is on the hub."""
    shards = {
        "train-00000-of-00002": PAIRS[:20],
        "train-00001-of-00002": PAIRS[20:],
        "validation-00000-of-00001": PAIRS[:6],
        "test-00000-of-00001": nasty_pairs(),
    }
    (tmp_path / "wmt14" / "de-en").mkdir(parents=True)
    for name, pairs in shards.items():
        rows = {"translation": [{"de": de, "en": en} for en, de in pairs]}
        features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
        table = datasets.Dataset.from_dict(rows, features=features)
        table.to_parquet(tmp_path / "wmt14" / "de-en" / f"{name}.parquet")
    return tmp_path / "wmt14"


def test_a_mirror_of_the_hub_gives_all_shards_in_order(mirror: Path) -> None:
    source = HubReader(str(mirror), "de-en")
    assert list(source.pairs("train")) == PAIRS
    assert list(source.pairs("validation")) == PAIRS[:6]
    assert list(source.pairs("test")) == nasty_pairs()


def test_the_hub_turns_around(mirror: Path) -> None:
    source = HubReader(str(mirror), "de-en", src="de", tgt="en")
    assert list(source.pairs("train")) == [(de, en) for en, de in PAIRS]


def test_a_plain_structure_and_flat_columns_do_as_well(tmp_path: Path, hub_cache: None) -> None:
    en, de = (list(side) for side in zip(*PAIRS, strict=True))
    nested = [{"en": one, "de": other} for one, other in PAIRS]
    for name, columns in (
        ("flat", {"de": de, "note": en, "en": en}),
        ("nested", {"id": de, "translation": nested}),
    ):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "train-00000-of-00001.parquet"
        pa.parquet.write_table(pa.table(columns), path)
        assert list(HubReader(str(tmp_path / name)).pairs("train")) == PAIRS


def test_a_mirror_by_other_names_is_read_by_datasets_itself(
    tmp_path: Path, hub_cache: None
) -> None:
    rows = [json.dumps({"translation": {"en": en, "de": de}}) for en, de in PAIRS]
    write_lines(tmp_path / "set" / "train.jsonl", rows)
    assert list(HubReader(str(tmp_path / "set")).pairs("train")) == PAIRS


@pytest.mark.parametrize(
    ("src", "tgt", "wrong"), [("en", "fr", "fr"), ("english", "de", "english")]
)
def test_a_language_that_is_not_there_is_named(
    mirror: Path, src: str, tgt: str, wrong: str
) -> None:
    with pytest.raises(ValueError, match=f"no '{wrong}' among its columns") as caught:
        list(HubReader(str(mirror), "de-en", src, tgt).pairs("validation"))
    assert "'de'" in str(caught.value)
    assert "'en'" in str(caught.value)


def test_a_damaged_shard_is_named(mirror: Path) -> None:
    shard = mirror / "de-en" / "train-00000-of-00002.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(
        ValueError, match=r"train-00000-of-00002\.parquet: not a whole Parquet file"
    ):
        list(HubReader(str(mirror), "de-en").pairs("train"))


def test_a_shard_damaged_inside_is_named(mirror: Path) -> None:
    shard = mirror / "de-en" / "train-00000-of-00002.parquet"
    content = bytearray(shard.read_bytes())
    content[4:200] = bytes(196)
    shard.write_bytes(content)
    with pytest.raises(ValueError, match=r"train-00000-of-00002\.parquet: damaged: "):
        list(HubReader(str(mirror), "de-en").pairs("train"))


def test_a_mirror_without_one_of_its_shards_is_refused(mirror: Path) -> None:
    (mirror / "de-en" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(ValueError, match=r"train-00000-of-00002\.parquet is missing"):
        HubReader(str(mirror), "de-en").identity("train")


def test_a_mirror_without_a_split_is_refused(mirror: Path) -> None:
    (mirror / "de-en" / "validation-00000-of-00001.parquet").unlink()
    source = HubReader(str(mirror), "de-en")
    source.identity("train")
    with pytest.raises(ValueError, match=r"de-en: no validation-\*\.parquet"):
        source.identity("validation")


def test_a_changed_file_of_another_layout_is_another_corpus(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text("{}\n")
    source = HubReader(str(tmp_path))
    before = source.identity("train")
    os.utime(file, (1e9, 1e9))
    assert source.identity("train") != before


def test_a_changed_shard_is_another_corpus(mirror: Path) -> None:
    source = HubReader(str(mirror), "de-en")
    before = source.identity("train")
    assert source.identity("train") == before
    assert source.identity("test") != before
    shard = mirror / "de-en" / "train-00001-of-00002.parquet"
    os.utime(shard, (1, 1))
    assert source.identity("train") != before


def test_without_the_hub_the_message_says_what_else_to_do(
    hub_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("[Errno -3] Temporary failure in name resolution")

    monkeypatch.setattr(readers.huggingface_hub.HfApi, "dataset_info", unreachable)
    monkeypatch.setattr(readers.datasets, "load_dataset", unreachable)
    with pytest.raises(ConnectionError, match="'wmt/wmt14'") as caught:
        list(HubReader("wmt/wmt14", "de-en").pairs("train"))
    message = str(caught.value)
    assert message.isprintable()  # one line
    for words in (
        "de-en, train",
        "Temporary failure in name resolution",
        "data=files data.train=PREFIX",
        "data.path=FOLDER",
        "make quickstart",
    ):
        assert words in message


# The phrasebook, and the choice of a source


def test_the_phrasebook_is_a_source() -> None:
    pairs = list(PhrasebookReader().pairs("validation"))
    assert pairs == phrasebook.load("validation")
    assert list(PhrasebookReader("de", "en").pairs("validation")) == [(de, en) for en, de in pairs]
    assert PhrasebookReader().identity("validation") == PhrasebookReader().identity("validation")
    identities = [
        PhrasebookReader().identity("validation"),
        PhrasebookReader().identity("test"),
        PhrasebookReader("de", "en").identity("test"),
    ]
    assert all(a != b for a, b in itertools.combinations(identities, 2))


def test_the_phrasebook_has_two_languages() -> None:
    with pytest.raises(ValueError, match="between en and de, not en-fr"):
        PhrasebookReader("en", "fr")


def test_a_source_is_made_by_its_kind() -> None:
    make = readers.make_reader
    assert make({"kind": "phrasebook", "src": "de", "tgt": "en"}) == PhrasebookReader("de", "en")
    assert make({"kind": "files", "train": "x", "workers": 0}) == FileReader(train="x")
    hub = {"kind": "hub", "path": "wmt/wmt14", "config": "de-en", "clean": {}}
    assert make(hub) == HubReader("wmt/wmt14", "de-en")
    with pytest.raises(ValueError, match="'web': must be one of hub, files, phrasebook"):
        make({"kind": "web"})


def test_the_phrasebook_joins_the_training_pairs_of_files(corpus_folder: Path) -> None:
    named = {name: str(corpus_folder / name) for name in ("train", "validation")}
    alone, joined = FileReader(**named), FileReader(**named, phrasebook=True)
    own, book = list(alone.pairs("train")), list(PhrasebookReader().pairs("train"))
    assert list(joined.pairs("train")) == own + book
    assert list(joined.pairs("validation")) == list(alone.pairs("validation"))
    assert joined.identity("train") != alone.identity("train")
    assert joined.identity("validation") == alone.identity("validation")
    back = FileReader(**named, src="de", tgt="en", phrasebook=True)
    assert list(back.pairs("train"))[-1] == book[-1][::-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phrasebook": "no"}, "data.phrasebook='no': must be true or false"),
        ({"phrasebook": True, "src": 0, "tgt": 1}, "between en and de, not 0 and 1"),
    ],
)
def test_the_phrasebook_joins_english_and_german_alone(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileReader(train="train", **changes)
