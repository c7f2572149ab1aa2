"""Files and folders that are complete or do not exist."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import names_in

from mt.utils import atomic


@pytest.mark.parametrize("content", ["Größe\r\n\u2028\n", b"\x00\xff\r\n", ""])
def test_a_file_is_written_as_it_is(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "out"
    path.write_text("of yesterday")
    atomic.atomic_write(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names_in(tmp_path) == ["out"]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("of yesterday")
    with pytest.raises(UnicodeEncodeError):
        atomic.atomic_write(path, "\ud800")
    with pytest.raises(KeyboardInterrupt), atomic.atomic_path(path) as partial:
        raise KeyboardInterrupt(partial.write_text("half"))
    assert path.read_text() == "of yesterday"
    assert names_in(tmp_path) == ["out"]


def test_the_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    with atomic.atomic_path(tmp_path / "out") as partial:
        partial.write_text("new")
        assert atomic.partial_path(tmp_path / "out") == partial
        assert names_in(tmp_path) == [".out.lock", ".out.partial"]
    assert names_in(tmp_path) == ["out"]


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomic.atomic_write(tmp_path / "none" / "out", "x")


def test_a_folder_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    for content in ("old", "new"):
        with atomic.atomic_folder(folder) as partial:
            assert names_in(partial) == []
            (partial / f"{content}.txt").write_text(content)
        assert names_in(folder) == [f"{content}.txt"]
    assert names_in(folder.parent) == ["model"]


@pytest.mark.parametrize("place", ["model", ".model.old"])
def test_an_error_leaves_the_old_folder(place: str, tmp_path: Path) -> None:
    """Also one that a killed process had moved away."""
    (tmp_path / place).mkdir()
    (tmp_path / place / "old.txt").write_text("old")
    with pytest.raises(ZeroDivisionError), atomic.atomic_folder(tmp_path / "model") as partial:
        raise ZeroDivisionError((partial / "new.txt").write_text("new"))
    assert names_in(tmp_path) == ["model"]
    assert names_in(tmp_path / "model") == ["old.txt"]


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    for name in (".model.partial", ".model.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.txt").write_text("half")
    with atomic.atomic_folder(tmp_path / "model") as partial:
        (partial / "whole.txt").write_text("whole")
    assert names_in(tmp_path) == ["model"]
    assert names_in(tmp_path / "model") == ["whole.txt"]


def test_a_folder_stays_where_the_new_one_cannot_take_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rename = tmp_path / "model", Path.rename
    folder.mkdir()
    (folder / "old.txt").write_text("old")

    def refuse(path: Path, target: Path) -> Path:
        if path.name == ".model.partial":
            raise OSError("refused")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="refused"), atomic.atomic_folder(folder) as partial:
        (partial / "new.txt").write_text("new")
    assert names_in(tmp_path) == ["model"]
    assert names_in(folder) == ["old.txt"]


# Several at once


def test_writers_of_one_file_take_turns(tmp_path: Path) -> None:
    """Each writes a file of its own: a mixture of two would be neither."""
    path = tmp_path / "out"
    seen: list[str] = []

    def write(text: str) -> None:
        with atomic.atomic_path(path) as partial, partial.open("w") as stream:
            for letter in text:
                stream.write(letter)
                stream.flush()
                os.sched_yield()
        seen.append(path.read_text())

    threads = [threading.Thread(target=write, args=(letter * 300,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert all(len(text) == 300 and len(set(text)) == 1 for text in seen)
    assert names_in(tmp_path) == ["out"]


def test_the_second_writer_of_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with atomic.atomic_folder(folder) as partial:
        (partial / "first.txt").write_text("first")
        with pytest.raises(BlockingIOError, match="model: another process is writing it"):
            atomic.atomic_folder(folder).__enter__()
        assert names_in(partial) == ["first.txt"]
    assert names_in(folder) == ["first.txt"]
    assert names_in(tmp_path) == ["model"]


def test_a_link_in_the_place_of_the_partial_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    (tmp_path / ".out.partial").symlink_to("precious")
    atomic.atomic_write(tmp_path / "out", "new")
    assert (tmp_path / "precious").read_text() == "text"
    assert names_in(tmp_path) == ["out", "precious"]


# What is read


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """``file`` with a hard link ``hard`` and a link ``soft``; ``folder`` with ``inner``."""
    (tmp_path / "file").write_text("x")
    os.link(tmp_path / "file", tmp_path / "hard")
    (tmp_path / "soft").symlink_to("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_text("x")
    (tmp_path / "to folder").symlink_to("folder")
    return tmp_path


@pytest.mark.parametrize(
    ("output", "source"),
    [
        ("file", "file"), ("file", "folder/../file"), ("hard", "file"), ("file", "hard"),
        ("soft", "file"), ("file", "soft"), ("hard", "soft"),
        ("folder", "folder"), ("folder", "folder/inner"), ("folder/inner", "folder"),
        ("to folder/inner", "folder/inner"), ("to folder", "folder/inner"),
    ],
)  # fmt: skip
def test_what_is_read_is_not_replaced(files: Path, output: str, source: str) -> None:
    with pytest.raises(ValueError, match=f"{source} is read, and writing .*{output} would replace"):
        atomic.check_not_input(files / output, files / "new", files / source)


@pytest.mark.parametrize(
    ("output", "source"),
    [
        ("new", "file"),
        ("new", "new"),
        ("folder/new", "folder"),
        ("file", "folder"),
        ("file", "new"),
    ],
)
def test_what_is_not_read_may_be_replaced(files: Path, output: str, source: str) -> None:
    atomic.check_not_input(files / output, files / source)
    atomic.check_not_input("/dev/null", "/dev/null")


def test_what_the_shell_opened_is_read_too(files: Path) -> None:
    with (files / "soft").open() as stream:
        atomic.check_not_input(files / "folder" / "inner", stream.fileno())
        with pytest.raises(ValueError, match=r"^standard input is read"):
            atomic.check_not_input(files / "hard", stream.fileno())


@pytest.mark.parametrize("write", [atomic.atomic_path, atomic.atomic_folder])
def test_an_error_of_a_full_disk_names_what_was_written(write: Any, tmp_path: Path) -> None:
    full = r"No space left on device: '.*/new'$"
    with pytest.raises(OSError, match=full), write(tmp_path / "new"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(ConnectionError) as other, write(tmp_path / "new"):
        raise ConnectionError(errno.ECONNRESET, "reset")  # not by the write
    assert other.value.filename is None


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    for content in ("of yesterday", "new"):  # at first there is nothing at its end
        atomic.atomic_write(link, content)
        assert file.read_text() == content
    assert link.is_symlink()
    assert names_in(tmp_path) == ["file", "link"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of Unix")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        atomic.atomic_write(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert names_in(tmp_path) == ["pipe"]


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="/dev/fd is of Unix")
def test_a_pipe_without_a_name_is_written_to() -> None:
    """As /dev/stdout is, before another program."""
    reader, writer = os.pipe()
    try:
        atomic.atomic_write(f"/dev/fd/{writer}", "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is of Linux")
def test_a_device_that_is_full_is_named() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        atomic.atomic_write("/dev/full", "text")


def test_a_folder_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    for text in ("first", "second"):
        with atomic.atomic_folder(link) as folder:
            (folder / "file").write_text(text)
        assert link.is_symlink()
        assert (tmp_path / "real" / "file").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
