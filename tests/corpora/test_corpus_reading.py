"""``data=files`` reads what mt.corpus writes: one file, a folder of them, or a pattern."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import write_lines
from corpus_files import NASTY, Upper, run, write

from mt.data.readers import FileReader

PAIRS = [(text, text.upper()) for text in NASTY]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
@pytest.mark.parametrize("name", ["out", "out/*", "one"])
def test_the_output_is_training_data(suffix: str, name: str, tmp_path: Path) -> None:
    for part, texts in (("a", NASTY[:4]), ("b", NASTY[4:])):
        write(tmp_path / f"{part}{suffix}", [{"text": text} for text in texts])
    output = tmp_path / (f"one{suffix}" if name == "one" else "out")
    run(Upper(), tmp_path / f"*{suffix}", output)
    train = str(output) if name == "one" else str(tmp_path / name)
    reader = FileReader(train=train, src="text", tgt="upper")
    assert list(reader.pairs("train")) == PAIRS
    assert len(reader.identity("train")[2]) == (1 if name == "one" else 2)


def test_what_changes_the_files_changes_the_identity(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    write_lines(folder / "a.jsonl", ['{"en": "a", "de": "b"}'])
    reader = FileReader(train=str(folder))
    before = reader.identity("train")
    assert reader.identity("train") == before
    write_lines(folder / "b.jsonl", ['{"en": "c", "de": "d"}'])
    assert reader.identity("train") != before
    assert list(reader.pairs("train")) == [("a", "b"), ("c", "d")]


def test_the_file_of_bad_rows_is_no_training_data(tmp_path: Path) -> None:
    write_lines(tmp_path / "train" / "a.jsonl", ['{"en": "a", "de": "b"}'])
    write_lines(tmp_path / "train" / "a.jsonl.errors.jsonl", ['{"reason": "not UTF-8"}'])
    for train in ("train", "train/*", "train/*.jsonl"):
        assert list(FileReader(train=f"{tmp_path}/{train}").pairs("train")) == [("a", "b")]


def test_a_prefix_beside_a_folder_of_its_name_is_the_prefix(tmp_path: Path) -> None:
    write_lines(tmp_path / "train" / "a.jsonl", ['{"en": "a", "de": "b"}'])
    write_lines(tmp_path / "train.en", ["one"])
    write_lines(tmp_path / "train.de", ["eins"])
    assert list(FileReader(train=str(tmp_path / "train")).pairs("train")) == [("one", "eins")]


def test_files_that_are_no_pairs_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    write_lines(folder / "a.jsonl", ["{}"])
    write_lines(folder / "b.txt", ["text"])
    with pytest.raises(ValueError, match=r"its files must all be \.tsv, \.jsonl or \.parquet"):
        FileReader(train=str(folder)).identity("train")
    with pytest.raises(FileNotFoundError, match="no such file"):
        FileReader(train=f"{tmp_path}/*.jsonl").identity("train")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"en": ["a"]}), "no column 'de' among its columns"),
        (pa.table({"en": ["a", "b"], "de": ["x", None]}), "row 2 lacks a text"),
        (pa.table({"en": ["a"], "de": [5]}), "row 1 lacks a text"),
    ],
)
def test_parquet_without_texts_is_refused(table: pa.Table, message: str, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=message):
        list(FileReader(train=str(tmp_path / "x.parquet")).pairs("train"))


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(ValueError, match=r"x\.parquet: not a whole Parquet file"):
        list(FileReader(train=str(tmp_path / "x.parquet")).pairs("train"))
