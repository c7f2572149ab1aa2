"""Files of corpora: each row is read once, whatever the format and the size of the blocks."""

import gzip
import json
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_files import FORMATS, NASTY, write
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

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
    for name in ("b.txt", "a.txt", "c.jsonl", ".hidden.txt", "_SUCCESS", "c.jsonl.errors.jsonl"):
        (tmp_path / name).touch()
    assert find(f"{tmp_path}/*.txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    assert find(str(tmp_path)) == [f"{tmp_path}/{n}" for n in ("a.txt", "b.txt", "c.jsonl")]
    assert find(f"{tmp_path}/*.jsonl") == [f"{tmp_path}/c.jsonl"]
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


class RangeFile(AbstractBufferedFile):
    """As those of S3, GCS and HTTP: it gives ranges of bytes, and its readline takes no limit."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.content[self.path][start:end]


class Store(AbstractFileSystem):
    """A store of objects, which lists a folder with a slash at its end."""

    protocol = "ranges"
    content: ClassVar[dict[str, bytes]] = {}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> RangeFile:
        return RangeFile(self, path, mode, size=len(self.content[path]), block_size=5)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if path not in self.content:
            return {"name": path, "size": 0, "type": "directory"}
        return {"name": path, "size": len(self.content[path]), "type": "file"}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        entries = [self.info(name) for name in [*self.content, "folder/"]]
        return entries if detail else [entry["name"] for entry in entries]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_of_a_store_is_read(suffix: str, tmp_path: Path) -> None:
    fsspec.register_implementation("ranges", Store, clobber=True)
    records = [{"text": text} for text in NASTY]
    Store.content = {f"x{suffix}": write(tmp_path / f"x{suffix}", records).read_bytes()}
    assert find("ranges://") == [f"ranges://x{suffix}"]
    check_columns(f"ranges://x{suffix}", ["text"])
    blocks = survey(f"ranges://x{suffix}", 2, 0).blocks
    reader = BlockReader()
    assert [t for b in blocks for t in reader.read(b, "text").values("text")] == NASTY


def test_a_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the reader of all blocks; one that reads some begins with their groups."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": [str(n) for n in range(60)]}), path, row_group_size=10)
    begun = []

    class Counting(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, **options: Any) -> Any:
            begun.append(options["row_groups"][0])
            return super().iter_batches(**options)

    monkeypatch.setattr(pq, "ParquetFile", Counting)
    blocks = survey(str(path), 4, 0).blocks
    for wanted, groups in ((blocks, [0]), (blocks[::5], [0, 2, 4]), (blocks[::-7], [5, 2, 0])):
        begun.clear()
        reader = BlockReader()
        read = [reader.read(block, "text").values("text") for block in wanted]
        assert read == [[str(block.first + i) for i in range(block.rows)] for block in wanted]
        assert begun == groups


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError("bad block"), ValueError, "^x: damaged: bad block$"),
        (OSError(5, "Input/output error"), OSError, "Input/output error"),
        (PermissionError("Forbidden"), PermissionError, "^Forbidden$"),  # of a store
        (FileNotFoundError("no bucket"), FileNotFoundError, "^no bucket$"),
        (TimeoutError("no answer"), TimeoutError, "^no answer$"),
    ],
)
def test_only_what_is_damaged_is_called_so(
    error: OSError, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message), files.naming("x"):
        raise error


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_column_must_be_there(suffix: str, tmp_path: Path) -> None:
    path = str(write(tmp_path / f"x{suffix}", [{"en": "Hello."}]))
    check_columns(path, ["en"])
    with pytest.raises(ValueError, match=f"x{suffix}: no column 'de'; it has 'en'"):
        check_columns(path, ["en", "de"])


def test_a_row_without_the_column_is_only_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": 1}\nno JSON\n{"en": "Hello."}\n')
    check_columns(str(path), ["en"])
    with pytest.raises(ValueError, match="no column 'de'; it has 'id', 'en'"):
        check_columns(str(path), ["de"])


def test_a_column_must_be_there_after_a_mark_of_the_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"en": "Hello."}\n', encoding="utf-8-sig")
    check_columns(str(path), ["en"])
    with pytest.raises(ValueError, match="no column 'de'; it has 'en'"):
        check_columns(str(path), ["de"])


def test_columns_that_no_file_can_have(tmp_path: Path) -> None:
    text = str(write(tmp_path / "x.txt", [{"en": "Hello."}]))
    check_columns(text, ["en"])
    with pytest.raises(ValueError, match=r"x\.txt: a text is one column, not 'en', 'de': give"):
        check_columns(text, ["en", "de"])
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["en", "en"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet: has two columns 'en'"):
        check_columns(str(tmp_path / "x.parquet"), ["en"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.parquet.gz", r"Parquet is compressed inside: leave out \.gz"),
        ("x.txt.bz2", r"x\.txt\.bz2: \.bz2 is not supported, but text, "),
        ("x.jsonl.XZ", r"\.xz is not supported"),
        ("x.tsv.gz", r"\.tsv is not supported"),
    ],
)
def test_formats_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        format_of(name)
