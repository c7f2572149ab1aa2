"""Blocks of lines, and files that are complete, can be resumed, or do not exist."""

import io
import json
import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mt.utils import line_io
from mt.utils.line_io import ResumableFile, Stream, count_lines, read_blocks

LINES = ["one", "", "zwei", "Größe"]


def write(file: ResumableFile, lines: list[str], size: int = 2) -> None:
    """Lines in upper case, ``size`` at a time, as mt.translate does it."""
    for start in range(0, len(lines), size):
        block = file.skip(lines[start : start + size])
        if block:
            file.write(block, "".join(f"{line.upper()}\n" for line in block))


def begin(path: Path, lines: list[str] = LINES, identity: dict | None = None) -> None:
    """A run that is cut short after ``lines``."""
    with pytest.raises(KeyboardInterrupt), ResumableFile(path, identity or {"model": "a"}) as file:  # noqa: PT012
        write(file, lines)
        raise KeyboardInterrupt


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.de"


LEFT = [".out.de.partial", ".out.de.partial.json"]

# Reading


@pytest.mark.parametrize("whole", [False, True])
def test_blocks_together_are_the_lines(whole: bool) -> None:
    text = "".join(f"{i}\n" for i in range(5000))
    blocks = list(read_blocks(io.BytesIO(text.encode()), "in", whole))
    assert [line for block in blocks for line in block] == text.splitlines()
    if whole:
        assert [len(block) for block in blocks] == [line_io.BLOCK, line_io.BLOCK, 904]


@pytest.mark.parametrize("content", [b"", b"a", b"a\n", b"a\n\nb", b"\n", b"a\rb\r\n", b"\n\n"])
def test_lines_are_counted_as_they_are_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").write_bytes(content)
    blocks = read_blocks(io.BytesIO(content), "in", whole=True)
    assert count_lines(tmp_path / "in") == sum(map(len, blocks))


# Success


def test_a_success_leaves_only_the_file(out: Path) -> None:
    out.write_text("of yesterday")
    with ResumableFile(out, {}) as file:
        write(file, LINES)
        assert out.read_text() == "of yesterday"
        assert names(out.parent) == sorted([*LEFT, "out.de"])
    assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\n"
    assert names(out.parent) == ["out.de"]


def test_no_lines_make_an_empty_file(out: Path) -> None:
    with ResumableFile(out, {}):
        pass
    assert out.read_bytes() == b""
    assert names(out.parent) == ["out.de"]


def test_a_link_stays_a_link(out: Path) -> None:
    (out.parent / "folder").mkdir()
    out.symlink_to("folder/real")
    with ResumableFile(out, {}) as file:
        write(file, ["x"])
    assert out.is_symlink()
    assert names(out.parent / "folder") == ["real"]


# Resuming


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_resumed_file_is_the_same(out: Path, kept: int, size: int) -> None:
    lines = [*LINES, "five", "six"]
    begin(out, lines[:kept])
    assert names(out.parent) == LEFT
    translated = []
    with ResumableFile(out, {"model": "a"}, resume=True) as file:
        for start in range(0, len(lines), size):
            block = file.skip(lines[start : start + size])
            translated += block
            if block:
                file.write(block, "".join(f"{line.upper()}\n" for line in block))
    assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\nFIVE\nSIX\n"
    assert translated == lines[kept:], "what was translated is not translated again"
    assert names(out.parent) == ["out.de"]


def test_what_the_record_does_not_count_is_written_again(out: Path) -> None:
    begin(out)
    with (out.parent / LEFT[0]).open("ab") as partial:
        partial.write("HALF A LI\xc3".encode("latin-1"))
    with ResumableFile(out, {"model": "a"}, resume=True) as file:
        write(file, [*LINES, "five"])
    assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\nFIVE\n"


def test_a_run_can_be_cut_short_twice(out: Path) -> None:
    begin(out, LINES[:2])
    with pytest.raises(OSError), ResumableFile(out, {"model": "a"}, resume=True) as file:  # noqa: PT011, PT012
        write(file, LINES)
        raise OSError
    with ResumableFile(out, {"model": "a"}, resume=True) as file:
        write(file, [*LINES, "five"])
    assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\nFIVE\n"


def test_what_is_kept_is_told(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        begin(out)
    assert caplog.messages == ["4 lines are translated and kept: continue with --resume"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one", "", "zwo", "Größe", "five"], "begun with another input"),
        (["one", "", "zwei"], "begun with a longer input"),
        ([], "begun with a longer input"),
    ],
)
def test_another_input_is_refused(out: Path, lines: list[str], message: str) -> None:
    begin(out)
    before = (out.parent / LEFT[0]).read_bytes()
    with (
        pytest.raises(ValueError, match=message),
        ResumableFile(out, {"model": "a"}, resume=True) as file,
    ):
        write(file, lines)
    assert names(out.parent) == LEFT
    assert (out.parent / LEFT[0]).read_bytes() == before


@pytest.mark.parametrize("new", [{"model": "b", "beam_size": 4}, {"model": "a", "beam_size": 1}])
def test_other_settings_are_refused(out: Path, new: dict) -> None:
    begin(out, identity={"model": "a", "beam_size": 4})
    with pytest.raises(ValueError, match=r"begun with (model='a', not 'b'|beam_size=4, not 1)"):
        ResumableFile(out, new, resume=True)
    assert names(out.parent) == LEFT


@pytest.mark.parametrize("left", [[], LEFT[:1], LEFT[1:]])
def test_what_is_there_is_not_made_again_by_resuming(out: Path, left: list[str]) -> None:
    out.write_text("of yesterday")
    for name in left:
        (out.parent / name).write_text("{}")
    with pytest.raises(ValueError, match=r"out\.de is complete, nothing was cut short"):
        ResumableFile(out, {}, resume=True)
    assert out.read_text() == "of yesterday"


def test_resuming_begins_where_nothing_is(out: Path) -> None:
    """So that the first run of a job and all others are the same command."""
    with ResumableFile(out, {}, resume=True) as file:
        assert file.skip(["one"]) == ["one"]
        file.write(["one"], "ONE\n")
    assert out.read_text() == "ONE\n"


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"lines": 4}'])
def test_a_damaged_record_is_named(out: Path, content: str) -> None:
    begin(out)
    (out.parent / LEFT[1]).write_text(content)
    with pytest.raises(ValueError, match=r"partial\.json is damaged: begin anew without --resume"):
        ResumableFile(out, {"model": "a"}, resume=True)


def test_a_partial_file_that_lost_its_end_is_not_filled_up(out: Path) -> None:
    begin(out)
    (out.parent / LEFT[0]).write_bytes(b"ONE\n")
    with pytest.raises(ValueError, match=r"partial is cut short: begin anew without --resume"):
        ResumableFile(out, {"model": "a"}, resume=True)


def test_a_new_run_forgets_the_old_one_at_once(out: Path) -> None:
    """Killed before its first block, it must not leave the record of another run's lines."""
    begin(out)
    ResumableFile(out, {"model": "a"}).stream.close()  # and no more, as after a SIGKILL
    resumed = ResumableFile(out, {"model": "a"}, resume=True)
    assert (resumed.num_kept, resumed.num_bytes) == (0, 0)
    resumed.stream.close()


# Failures


def test_a_failure_before_the_first_block_leaves_nothing(out: Path) -> None:
    out.write_text("of yesterday")
    begin(out, [])
    assert names(out.parent) == ["out.de"]
    assert out.read_text() == "of yesterday"


ROOM = 400  # bytes


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond ROOM: not even the log that the tests are written to, so be short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_nothing_of_the_first_block(out: Path) -> None:
    with (
        pytest.raises(OSError, match="File too large"),
        full_disk(),
        ResumableFile(out, {}) as file,
    ):
        file.write(["x"], "y" * (ROOM + 1))
    assert names(out.parent) == []


def test_a_full_disk_keeps_the_blocks_before(out: Path) -> None:
    def translate() -> None:
        with full_disk(), ResumableFile(out, {}) as file:
            file.write(["one"], "EINS\n")
            file.write(["two"], "Z" * (ROOM + 1))

    with pytest.raises(OSError, match="File too large"):
        translate()
    assert names(out.parent) == LEFT
    assert json.loads((out.parent / LEFT[1]).read_text())["lines"] == 1
    with ResumableFile(out, {}, resume=True) as file:
        assert file.skip(["one", "two"]) == ["two"]
        file.write(["two"], "ZWEI\n")
    assert out.read_text() == "EINS\nZWEI\n"


def test_a_record_that_cannot_be_written_leaves_the_one_before(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="No space"), ResumableFile(out, {}) as file:  # noqa: PT012
        file.write(["one"], "EINS\n")

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", fail)
        file.write(["two"], "ZWEI\n")
    monkeypatch.undo()
    assert names(out.parent) == LEFT
    with ResumableFile(out, {}, resume=True) as file:
        assert file.skip(["one", "two"]) == ["two"]


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("folder", IsADirectoryError, "folder is a folder"),
        ("none/out", FileNotFoundError, "there is no folder"),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, path: str, kind: type, message: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(kind, match=message):
        ResumableFile(tmp_path / path, {})
    assert names(tmp_path) == ["folder"]


def test_a_stream_takes_everything() -> None:
    text = io.StringIO()
    stream = Stream(text)
    assert stream.skip(LINES) == LINES
    stream.write(LINES, "x\n")
    assert text.getvalue() == "x\n"
