"""Files of corpora: each row is read once, whatever the format and the size of the blocks."""

import gzip
import json
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_files import FORMATS, NASTY, write

from mt.corpora import files
from mt.corpora.files import BlockReader, check_columns, find, format_of, survey
from mt.utils import line_io


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("block_rows", [1, 2, 4, 5, 100])
def test_blocks_have_every_row_once(suffix: str, block_rows: int, tmp_path: Path) -> None:
    records = [{"text": text, "n": n} for n, text in enumerate(NASTY)]
    path = str(write(tmp_path / f"x{suffix}", records))
    contents = survey(path, block_rows, 7)
    assert contents.rows == len(NASTY)
    assert [block.number for block in contents.blocks] == list(range(7, 7 + len(contents.blocks)))
    assert max(block.rows for block in contents.blocks) <= block_rows
    reader = BlockReader()
    in_order = [t for block in contents.blocks for t in reader.read(block, "text").values("text")]
    assert in_order == NASTY
    backwards = [reader.read(block, "text").values("text") for block in contents.blocks[::-1]]
    assert [text for texts in backwards[::-1] for text in texts] == NASTY


def test_a_block_ends_when_it_has_many_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", [{"text": "x" * 400_000}] * 5)
    assert [block.rows for block in survey(str(path), 100, 0).blocks] == [3, 2]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"no end", ["no end"]),
        (b"\xef\xbb\xbfmarked\r\nwindows\r\n", ["marked", "windows"]),
    ],
)
def test_ends_of_lines(content: bytes, texts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    contents = survey(str(path), 10, 0)
    reader = BlockReader()
    assert [t for b in contents.blocks for t in reader.read(b, "text").values("text")] == texts


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".jsonl"])
def test_bad_rows_have_reasons(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 100)
    lines = [b'{"text": "good"}', b"\xff\xfe", b"x" * 1000, b'{"text": "last"}']
    content = b"".join(line + b"\n" for line in lines)
    path = tmp_path / f"x{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    [block] = survey(str(path), 10, 0).blocks
    rows = BlockReader().read(block, "text")
    assert len(rows) == 4
    assert rows.bad[1] == ("not UTF-8 (invalid start byte)", "\\xff\\xfe")
    assert rows.bad[2].reason == f"longer than {line_io.MAX_LINE:,} bytes"
    assert rows.bad.keys() == {1, 2}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "not a JSON object: not an object"),
        ('{"text": ', "not a JSON object: Expecting value"),
        ('{"text": "a", "text": "b"}', "the key 'text' comes twice"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "no text in the column 'text'"),
        ('{"text": null}', "no text in the column 'text'"),
        ('{"text": 5}', "text is 5, not a text"),
        ('{"text": "\\ud800"}', "half of a surrogate pair"),
    ],
)
def test_bad_json_has_a_reason(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"text": "good"}}\n{line}\n')
    [block] = survey(str(path), 10, 0).blocks
    rows = BlockReader().read(block, "text")
    assert [text and text[0] for text in rows.texts("text")] == ["good", None]
    assert reason in rows.bad[1].reason
    json.dumps(rows.bad[1].text).encode()


def test_an_empty_parquet_file_keeps_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    [block] = survey(str(path), 10, 0).blocks
    assert BlockReader().read(block, "text").as_table().column_names == ["text"]


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.zst", ".parquet"])
def test_a_damaged_file_is_named(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x{suffix}", [{"text": f"line {n}"} for n in range(500)])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=rf"x{suffix}: damaged: "):
        survey(str(path), 10, 0)


def test_files_that_a_pattern_means(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.jsonl", ".hidden.txt", "_SUCCESS"):
        (tmp_path / name).touch()
    assert find(f"{tmp_path}/*.txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    assert find(str(tmp_path)) == [f"{tmp_path}/{n}" for n in ("a.txt", "b.txt", "c.jsonl")]
    assert find(f"file://{tmp_path}/a.txt") == [f"file://{tmp_path}/a.txt"]
    with pytest.raises(FileNotFoundError, match="no input: "):
        find(f"{tmp_path}/*.parquet")
    with pytest.raises(ValueError, match="nowhere://x: "):
        find("nowhere://x")


def test_a_file_elsewhere_is_read() -> None:
    fsspec.filesystem("memory").pipe_file("/corpus/a.txt", b"one\ntwo\n")
    [path] = find("memory://corpus/*.txt")
    [block] = survey(path, 10, 0).blocks
    assert BlockReader().read(block, "text").values("text") == ["one", "two"]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_column_must_be_there(suffix: str, tmp_path: Path) -> None:
    path = str(write(tmp_path / f"x{suffix}", [{"en": "Hello."}]))
    check_columns(path, ["en"])
    with pytest.raises(ValueError, match=f"x{suffix}: no column 'de'; it has 'en'"):
        check_columns(path, ["en", "de"])


def test_packed_parquet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Parquet is compressed inside: leave out \.gz"):
        format_of("x.parquet.gz")
