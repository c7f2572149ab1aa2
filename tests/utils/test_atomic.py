"""Files and folders that are complete or do not exist."""

from pathlib import Path

import pytest

from mt.utils import atomic


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", ["Größe\r\n\u2028\n", b"\x00\xff\r\n", ""])
def test_a_file_is_written_as_it_is(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "out"
    path.write_text("of yesterday")
    atomic.atomic_write(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names(tmp_path) == ["out"]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("of yesterday")
    with pytest.raises(UnicodeEncodeError):
        atomic.atomic_write(path, "\ud800")
    with pytest.raises(KeyboardInterrupt), atomic.atomic_path(path) as partial:
        raise KeyboardInterrupt(partial.write_text("half"))
    assert path.read_text() == "of yesterday"
    assert names(tmp_path) == ["out"]


def test_the_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    with atomic.atomic_path(tmp_path / "out") as partial:
        partial.write_text("new")
        assert names(tmp_path) == [".out.partial"] == [atomic.partial_path(tmp_path / "out").name]
    assert names(tmp_path) == ["out"]


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomic.atomic_write(tmp_path / "none" / "out", "x")


def test_a_folder_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    for content in ("old", "new"):
        with atomic.atomic_folder(folder) as partial:
            assert names(partial) == []
            (partial / f"{content}.txt").write_text(content)
        assert names(folder) == [f"{content}.txt"]
    assert names(folder.parent) == ["model"]


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old.txt").write_text("old")
    with pytest.raises(ZeroDivisionError), atomic.atomic_folder(tmp_path / "model") as partial:
        raise ZeroDivisionError((partial / "new.txt").write_text("new"))
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == ["old.txt"]


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    for name in (".model.partial", ".model.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.txt").write_text("half")
    with atomic.atomic_folder(tmp_path / "model") as partial:
        (partial / "whole.txt").write_text("whole")
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == ["whole.txt"]
