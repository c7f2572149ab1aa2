"""Runs without Ray: every format, what an interrupted run keeps, what is refused."""

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_files import FORMATS, NASTY, Upper, alone, read, run, write

from mt.corpora.files import Block, filesystem
from mt.corpora.operations import Compute
from mt.corpora.rows import Rows
from mt.corpora.worker import write_whole


@pytest.mark.parametrize("end", FORMATS)
@pytest.mark.parametrize("begin", FORMATS)
def test_every_format_becomes_every_other(begin: str, end: str, tmp_path: Path) -> None:
    records = [{"text": text, "n": n} for n, text in enumerate(NASTY)]
    source = write(tmp_path / f"in{begin}", records)
    output = tmp_path / f"out{end}"
    summary = run(Upper(), source, output, block_rows=2)
    assert (summary.rows, summary.written, summary.errors) == (len(NASTY), len(NASTY), 0)
    upper = [text.upper() for text in NASTY]
    if ".txt" in end:
        assert read(output) == upper
    else:
        others = [{}] * len(NASTY) if ".txt" in begin else [{"n": r["n"]} for r in records]
        expected = zip(NASTY, others, upper, strict=True)
        assert read(output) == [{"text": t, **o, "upper": u} for t, o, u in expected]
    assert sorted(os.listdir(tmp_path)) == sorted([source.name, output.name])


def test_a_folder_has_a_file_for_each_input(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl.gz", [{"text": "one"}, {"text": "two"}])
    write(tmp_path / "a.txt", [{"text": "three"}])
    write(tmp_path / "c.parquet", [{"text": "four", "n": 4}])
    inputs = [tmp_path / "*.jsonl.gz", tmp_path / "a.txt", tmp_path / "c.parquet"]
    run(Upper(), inputs, tmp_path / "out")
    assert read(tmp_path / "out" / "b.jsonl.gz") == [
        {"text": "one", "upper": "ONE"}, {"text": "two", "upper": "TWO"}
    ]  # fmt: skip
    assert read(tmp_path / "out" / "a.txt") == ["THREE"]
    assert read(tmp_path / "out" / "c.parquet") == [{"text": "four", "n": 4, "upper": "FOUR"}]
    assert len(os.listdir(tmp_path / "out")) == 3
    run(Upper(), inputs, tmp_path / "one.txt")
    assert read(tmp_path / "one.txt") == ["ONE", "TWO", "THREE", "FOUR"]


def test_several_parquet_files_of_different_columns_become_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"], "n": pa.array([1], pa.int8())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"m": [0.5], "text": ["b"], "n": [300]}), tmp_path / "2.parquet")
    run(Upper(), tmp_path / "*.parquet", tmp_path / "out.parquet")
    assert read(tmp_path / "out.parquet") == [
        {"text": "a", "n": 1, "upper": "A", "m": None},
        {"text": "b", "n": 300, "upper": "B", "m": 0.5},
    ]


def test_numbers_that_no_common_type_holds_become_text(tmp_path: Path) -> None:
    large = 2**60 + 1
    source = write(tmp_path / "a.jsonl", [{"text": "a", "n": large}, {"text": "b", "n": 1.5}])
    run(Upper(), source, tmp_path / "out.parquet", block_rows=1)
    assert [row["n"] for row in read(tmp_path / "out.parquet")] == [str(large), "1.5"]


def test_a_file_by_two_names_is_one_file(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [{"text": "a"}])
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="comes twice in the input"):
        run(Upper(), [tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out")


@pytest.mark.parametrize("end", [".txt", ".jsonl", ".parquet"])
@pytest.mark.parametrize("begin", [".txt", ".jsonl", ".parquet"])
def test_an_empty_input_becomes_an_empty_output(begin: str, end: str, tmp_path: Path) -> None:
    source = tmp_path / f"in{begin}"
    if begin == ".parquet":
        pq.write_table(pa.table({"text": pa.array([], pa.string())}), source)
    else:
        source.touch()
    assert run(Upper(), source, tmp_path / f"out{end}").rows == 0
    assert read(tmp_path / f"out{end}") == []


@pytest.mark.parametrize("block_rows", [1, 2])
@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([1, 0.5], [1.0, 0.5]),
        ([None, [1]], [None, [1]]),
        ([1, "one"], ["1", "one"]),
        (["one", None, [2]], ["one", None, "[2]"]),
        ([{"a": 1}, {"a": "x"}], ['{"a": 1}', '{"a": "x"}']),
        ([True, 2**70], ["true", "1180591620717411303424"]),
        ([{}, {}], ["{}", "{}"]),
    ],
)
def test_json_of_any_types_becomes_parquet(
    values: list[Any], written: list[Any], block_rows: int, tmp_path: Path
) -> None:
    """A column whose values have no common type is text, whichever block they are in."""
    source = write(tmp_path / "in.jsonl", [{"text": "a", "n": value} for value in values])
    run(Upper(), source, tmp_path / "out.parquet", block_rows=block_rows)
    assert [row["n"] for row in read(tmp_path / "out.parquet")] == written


def test_bad_rows_stay_in_their_place_and_are_told(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"text": "a"}\nnot json\n{"text": 5, "n": 1}\n\xff\n{"text": "b"}\n')
    summary = run(Upper(), source, tmp_path / "out.jsonl", block_rows=2)
    assert read(tmp_path / "out.jsonl") == [
        {"text": "a", "upper": "A"}, {"upper": None}, {"text": 5, "n": 1, "upper": None},
        {"upper": None}, {"text": "b", "upper": "B"},
    ]  # fmt: skip
    errors = read(tmp_path / "out.jsonl.errors.jsonl")
    assert summary.errors_file == f"{tmp_path}/out.jsonl.errors.jsonl"
    assert [error["number"] for error in errors] == [2, 3, 4]
    assert errors[0]["text"] == "not json"
    assert errors[1]["reason"] == "text is 5, not a text"
    assert all(error["file"] == str(source) for error in errors)
    run(Upper(), source, tmp_path / "out.txt")
    assert read(tmp_path / "out.txt") == ["A", "", "", "", "B"]


def test_too_many_bad_rows_end_the_run_and_what_is_done_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "a"}\nx\n{"text": "b"}\ny\nz\n')
    with pytest.raises(ValueError, match=r"2 bad rows, more than --max-errors 1; .* row 2: "):
        run(Upper(), source, tmp_path / "out.jsonl", block_rows=2, max_errors=1)
    assert not (tmp_path / "out.jsonl").exists()
    assert [e["number"] for e in read(tmp_path / "out.jsonl.errors.jsonl")] == [2, 4]
    summary = run(Upper(), source, tmp_path / "out.jsonl", block_rows=2, max_errors=3)
    assert (summary.rows, summary.kept, summary.errors) == (5, 4, 3)


class Killed(BaseException):
    """What ends a run at once."""


def killed_after(number: int) -> Any:
    def engine(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        for done, record in enumerate(alone(worker, blocks)):
            if done == number:  # this block is written, and nobody has been told
                raise Killed
            yield record

    return engine


@pytest.mark.parametrize("suffix", [".jsonl", ".txt.gz", ".parquet"])
def test_a_killed_run_goes_on(suffix: str, tmp_path: Path) -> None:
    records = [{"text": f"line {n}"} for n in range(25)]
    source, output = write(tmp_path / f"in{suffix}", records), tmp_path / f"out{suffix}"
    run(Upper(), source, tmp_path / f"whole{suffix}", block_rows=4)
    with pytest.raises(Killed):
        run(Upper(), source, output, block_rows=4, engine=killed_after(2))
    assert not output.exists()
    computed = []

    def counting(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        computed.extend(block.number for block in blocks)
        yield from alone(worker, blocks)

    summary = run(Upper(), source, output, block_rows=4, engine=counting)
    assert computed == [3, 4, 5, 6]
    assert (summary.rows, summary.kept) == (25, 12)
    assert output.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    assert len(os.listdir(tmp_path)) == 3


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The input of a run that was killed; its output would be out.txt."""
    source = write(tmp_path / "in.txt", [{"text": f"line {n}"} for n in range(9)])
    with pytest.raises(Killed):
        run(Upper(), source, tmp_path / "out.txt", block_rows=4, engine=killed_after(1))
    return source


def test_another_run_under_the_same_name_is_refused(begun: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with pytest.raises(ValueError, match=r"begun with note='', not 'new': give the same again"):
        run(Upper(note="new"), begun, output, block_rows=4)
    with pytest.raises(ValueError, match="begun with block_rows=4, not 5"):
        run(Upper(), begun, output, block_rows=5)
    other = write(tmp_path / "other.txt", [{"text": "x"}])
    with pytest.raises(ValueError, match=r"begun with input=.*in\.txt.*, not .*other\.txt"):
        run(Upper(), other, output, block_rows=4)
    with begun.open("a") as stream:
        stream.write("one more\n")
    with pytest.raises(ValueError, match=r"in\.txt has changed since it was begun"):
        run(Upper(), begun, output, block_rows=4)
    summary = run(Upper(), begun, output, block_rows=4, overwrite=True)
    assert (summary.rows, summary.kept) == (10, 0)


def test_overwrite_goes_on_with_the_same_run(begun: Path, tmp_path: Path) -> None:
    write(tmp_path / "out.txt", [{"text": "older"}])
    assert run(Upper(), begun, tmp_path / "out.txt", block_rows=4, overwrite=True).kept == 8
    assert read(tmp_path / "out.txt") == [f"LINE {n}" for n in range(9)]


def test_parts_of_another_run_are_never_taken(begun: Path, tmp_path: Path) -> None:
    partial, output = tmp_path / ".out.txt.partial", tmp_path / "out.txt"
    [parts] = partial.glob("*/")
    shutil.copytree(parts, tmp_path / "copy")
    (partial / "manifest.json").unlink()  # it was removed, and the process killed
    computed = []

    def straggling(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        computed.append(len(blocks))
        if not parts.exists():  # an actor of the first run still writes
            shutil.copytree(tmp_path / "copy", parts)
        yield from killed_after(1)(worker, blocks)

    for _ in range(2):
        with suppress(Killed):
            run(Upper(note="new"), begun, output, block_rows=4, engine=straggling)
    assert computed == [3, 1]
    assert read(output) == [f"LINE {n}" for n in range(9)]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"input": 1}', '{"input": ["x"]}'])
def test_a_damaged_manifest_is_named(begun: Path, tmp_path: Path, content: str) -> None:
    output, manifest = tmp_path / "out.txt", tmp_path / ".out.txt.partial" / "manifest.json"
    manifest.write_text(content)
    with pytest.raises(ValueError, match=r"manifest\.json is damaged: begin anew with --overwrite"):
        run(Upper(), begun, output, block_rows=4)
    assert run(Upper(), begun, output, block_rows=4, overwrite=True).kept == 0
    assert read(output) == [f"LINE {n}" for n in range(9)]


def test_a_full_disk_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_whole(filesystem(str(tmp_path))[0], str(tmp_path / "errors.jsonl"), b"{}")
    assert list(tmp_path.iterdir()) == []


def test_damaged_parts_are_computed_again(begun: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    [parts] = (tmp_path / ".out.txt.partial").glob("*/")
    (parts / "00000000.json").write_text("{")  # a damaged record
    (parts / "00000001.part").write_text("LINE 4\n")  # a part that lost lines

    def losing(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        yield from alone(worker, blocks)
        (parts / "00000002.part").unlink()

    with pytest.raises(
        ValueError, match=r"01\.part: damaged, 2 parts .* the same command once more"
    ):
        run(Upper(), begun, output, block_rows=4, engine=losing)
    assert not output.exists()
    assert run(Upper(), begun, output, block_rows=4).kept == 4
    assert read(output) == [f"LINE {n}" for n in range(9)]


def test_a_name_with_brackets_goes_on_too(begun: Path, tmp_path: Path) -> None:
    output = tmp_path / "news [2024].txt"

    def killed(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        yield from alone(worker, blocks[:2])
        raise Killed

    with suppress(Killed):
        run(Upper(), begun, output, block_rows=4, engine=killed)
    assert run(Upper(), begun, output, block_rows=4).kept == 8


def test_a_store_without_empty_folders_is_written(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(fsspec.implementations.local.LocalFileSystem, "ls", missing)
    run(Upper(), begun, tmp_path / "new.txt", block_rows=4)
    assert read(tmp_path / "new.txt") == [f"LINE {n}" for n in range(9)]


def test_a_block_that_two_actors_computed_counts_once(tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": f"line {n}"} for n in range(9)])

    def twice(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        for record in alone(worker, blocks[::-1]):
            yield from (record, record)

    assert run(Upper(), source, tmp_path / "out.txt", block_rows=2, engine=twice).rows == 9
    assert read(tmp_path / "out.txt") == [f"LINE {n}" for n in range(9)]


def test_a_block_that_never_comes_leaves_no_output(tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "x"}] * 9)

    def lazy(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        yield from alone(worker, blocks[1:])

    with pytest.raises(ValueError, match="7 of 9 rows are done"):
        run(Upper(), source, tmp_path / "out.txt", block_rows=2, engine=lazy)
    assert not (tmp_path / "out.txt").exists()


def test_what_would_do_harm_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "x"}])
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "in.txt", [{"text": "y"}])
    write(tmp_path / "sub.txt" / "mine.txt", [{"text": "z"}])
    run(Upper(), source, tmp_path / "out.txt")
    run(Upper(), source, tmp_path / "out")
    bad = write(tmp_path / "bad.errors.jsonl", [{"text": "x"}])
    cases: list[tuple[Any, Path, dict[str, Any], str]] = [
        (source, tmp_path / "out.txt", {}, r"out\.txt exists: name another --output"),
        (source, source, {"overwrite": True}, "is read, and .* would replace it"),
        (bad, tmp_path / "bad", {}, "is read, and the bad rows of .* would replace it"),
        (source, tmp_path, {"overwrite": True}, "is read, and .* would replace it"),
        (source, tmp_path / "no" / "out.txt", {}, "there is no folder"),
        (source, tmp_path / "sub.txt", {"overwrite": True}, r"would replace .*mine\.txt"),
        (tmp_path / "sub" / "in.txt", tmp_path / "sub.txt/", {"overwrite": True}, "mine"),
        (source, tmp_path / "out.tsv", {}, r"\.tsv is not supported, but text, \.jsonl and"),
        ([source, source], tmp_path / "o.txt", {}, "comes twice in the input"),
        ([source, tmp_path / "sub" / "in.txt"], tmp_path / "o", {}, r"have the name in\.txt"),
        (tmp_path / "no*", tmp_path / "o.txt", {}, "no input: "),
        (source, tmp_path / "o.txt", {"max_errors": -1}, "max_errors=-1"),
        (source, tmp_path / "o.txt", {"block_rows": 0}, "block_rows=0"),
    ]
    for inputs, output, options, message in cases:
        with pytest.raises((ValueError, OSError), match=message):
            run(Upper(), inputs, output, **options)
    assert read(source) == ["x"]
    run(Upper(source="text", target="text"), tmp_path / "sub", tmp_path / "out.txt", overwrite=True)
    assert read(tmp_path / "out.txt") == ["Y"]
    run(Upper(), tmp_path / "sub" / "in.txt", tmp_path / "out", overwrite=True)
    assert read(tmp_path / "out" / "in.txt") == ["Y"]


def test_a_run_elsewhere(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/c/a.jsonl", b'{"text": "one"}\nbad\n')
    store.pipe_file("/c/b.jsonl", b'{"text": "two"}\n')
    run(Upper(), "memory://c/*.jsonl", "memory://done/out.txt")
    assert store.cat_file("/done/out.txt") == b"ONE\n\nTWO\n"
    assert b'"number": 2' in store.cat_file("/done/out.txt.errors.jsonl")
    run(Upper(), "memory://c/*.jsonl", "memory://done/folder")
    assert store.cat_file("/done/folder/b.jsonl") == b'{"text": "two", "upper": "TWO"}\n'
    assert not [path for path in store.find("/done") if ".partial" in path]


@dataclass(frozen=True)
class Failing(Upper):
    """What a library raises."""

    error: Exception | None = None

    def load(self, threads: int) -> Compute:
        def fail(rows: Rows) -> Any:
            assert self.error is not None
            raise self.error

        return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such model"), r"^no such model$"),
        (OSError(28, "No space left", "x"), r"^x: no space left$"),
        (KeyError("a"), r"^rows 1 to 1 of \S*in\.txt: KeyError: 'a'$"),
        (pa.ArrowNotImplementedError("no\nway"), r"in\.txt: ArrowNotImplementedError: no$"),
        (MemoryError(), r"^out of memory: give fewer --actors"),
    ],
)
def test_what_fails_is_told_in_one_line(error: Exception, message: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "x"}])
    with pytest.raises(ValueError, match=message):
        run(Failing(error=error), source, tmp_path / "out.txt")


def test_the_output_is_on_the_disk_before_the_parts_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    run(Upper(), write(tmp_path / "in.txt", [{"text": "x"}]), tmp_path / "out.txt")
    assert synced[-1] == f"{tmp_path}/.out.txt.partial/whole"
