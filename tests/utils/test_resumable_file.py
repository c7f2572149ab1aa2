"""A file of lines that is complete, can be resumed, or does not exist."""

import itertools
import json
import logging
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import names_in

from mt.utils.line_io import ResumableFile

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


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.de"


LEFT = [".out.de.partial", ".out.de.partial.json"]


# Success


def test_a_success_leaves_only_the_file(out: Path) -> None:
    out.write_text("of yesterday")
    with ResumableFile(out, {}) as file:
        write(file, LINES)
        assert out.read_text() == "of yesterday"
        assert names_in(out.parent) == [".out.de.lock", *LEFT, "out.de"]
    assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\n"
    assert names_in(out.parent) == ["out.de"]


def test_no_lines_make_an_empty_file(out: Path) -> None:
    with ResumableFile(out, {}):
        pass
    assert out.read_bytes() == b""
    assert names_in(out.parent) == ["out.de"]


def test_a_link_stays_a_link(out: Path) -> None:
    (out.parent / "folder").mkdir()
    out.symlink_to("folder/real")
    with ResumableFile(out, {}) as file:
        write(file, ["x"])
    assert out.is_symlink()
    assert names_in(out.parent / "folder") == ["real"]


# Resuming


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_resumed_file_is_the_same(out: Path, kept: int, size: int) -> None:
    lines = [*LINES, "five", "six"]
    begin(out, lines[:kept])
    assert names_in(out.parent) == LEFT
    translated = []
    with ResumableFile(out, {"model": "a"}, resume=True) as file:
        for start in range(0, len(lines), size):
            block = file.skip(lines[start : start + size])
            translated += block
            if block:
                file.write(block, "".join(f"{line.upper()}\n" for line in block))
    assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\nFIVE\nSIX\n"
    assert translated == lines[kept:], "what was translated is not translated again"
    assert names_in(out.parent) == ["out.de"]


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


def test_what_is_kept_of_another_input_is_not_offered(
    out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin(out)
    caplog.clear()
    with (
        pytest.raises(ValueError, match="begun with another input"),
        ResumableFile(out, {"model": "a"}, resume=True) as file,
    ):
        file.skip(["one", "", "zwo", "Größe", "five"])
    assert caplog.messages == []


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
    assert names_in(out.parent) == LEFT
    assert (out.parent / LEFT[0]).read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0123" * 16, "ab" * 32, "begun with another glossary, or before it changed: give the"),
        (["0123" * 16], ["ab" * 32], "begun with another glossary, or before it changed: give the"),
        (None, "ab" * 32, "begun without a glossary: give the"),
        ("ab" * 32, None, "begun with a glossary: give the"),
    ],
)
def test_hashes_of_files_are_not_shown(
    out: Path, old: str | list[str] | None, new: str | list[str] | None, message: str
) -> None:
    begin(out, identity={"glossary": old})
    with pytest.raises(ValueError, match=message):
        ResumableFile(out, {"glossary": new}, resume=True)


@pytest.mark.parametrize("new", [{"model": "b", "beam_size": 4}, {"model": "a", "beam_size": 1}])
def test_other_settings_are_refused(out: Path, new: dict) -> None:
    begin(out, identity={"model": "a", "beam_size": 4})
    with pytest.raises(ValueError, match=r"begun with (model='a', not 'b'|beam_size=4, not 1)"):
        ResumableFile(out, new, resume=True)
    assert names_in(out.parent) == LEFT


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


@pytest.mark.parametrize("identity", [{"model": "a"}, {"model": "b"}])
def test_what_is_kept_is_not_dropped_by_forgetting_to_resume(out: Path, identity: dict) -> None:
    begin(out)
    before = (out.parent / LEFT[0]).read_bytes()
    with pytest.raises(ValueError, match=r"kept 4 line\(s\): .* --resume, .* --restart"):
        ResumableFile(out, identity)
    assert (out.parent / LEFT[0]).read_bytes() == before
    with ResumableFile(out, identity, restart=True) as file:
        write(file, ["x"])
    assert out.read_text() == "X\n"
    assert names_in(out.parent) == ["out.de"]


def assert_damaged(out: Path, name: str) -> None:
    """The error says so, and nothing is lost."""
    before = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    message = rf"{re.escape(name)} is damaged: begin anew with --restart"
    with pytest.raises(ValueError, match=message):
        ResumableFile(out, {"model": "a"}, resume=True)
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == before


NO_RECORDS = [b"", b"{", b"{}", b"[]", b"null", b'"text"', b"\xff", b"[" * 100_000, b"\0" * 100]
NO_RECORDS += [b'{"lines": 4}', b'{"lines": 4, "lines": 4}']


@pytest.mark.parametrize("content", NO_RECORDS, ids=range(len(NO_RECORDS)))
def test_what_is_no_record_is_named(out: Path, content: bytes) -> None:
    begin(out)
    (out.parent / LEFT[1]).write_bytes(content)
    assert_damaged(out, LEFT[1])


@pytest.mark.parametrize("value", [None, "4", [], {}, -5, 0, 1.5, True, 10**30, "\ud800"])
@pytest.mark.parametrize("name", ["lines", "bytes", "identity", "sha256", "output_sha256"])
def test_a_record_of_other_values_is_no_record(out: Path, name: str, value: object) -> None:
    """Whatever it says, what is continued is what was written."""
    begin(out)
    file = out.parent / LEFT[1]
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, name: value}))
    message = r"(damaged|cut short): begin anew|begun with (model=None|another input)"
    with pytest.raises(ValueError, match=message), ResumableFile(out, {"model": "a"}, True) as new:
        write(new, [*LINES, "five"])
    assert names_in(out.parent) == LEFT


@pytest.mark.parametrize("changes", [{"bytes": 4}, {"bytes": 4, "lines": 1}, {"lines": 5}])
def test_a_record_of_other_numbers_is_damaged(out: Path, changes: dict[str, int]) -> None:
    begin(out)
    file = out.parent / LEFT[1]
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert_damaged(out, LEFT[0])


@pytest.mark.parametrize("content", [b"\0" * 18, b"ONE\n\nZWEI\nGROSSE!\n", b"\n" * 18])
def test_what_was_not_written_is_not_continued(out: Path, content: bytes) -> None:
    """As after a crash of the machine, which may leave zeros."""
    begin(out)
    assert len(content) == len((out.parent / LEFT[0]).read_bytes())
    (out.parent / LEFT[0]).write_bytes(content)
    assert_damaged(out, LEFT[0])


@pytest.mark.parametrize("damage", [False, True])
def test_a_record_of_version_0_1_has_no_hash_of_the_output(out: Path, damage: bool) -> None:
    begin(out)
    file = out.parent / LEFT[1]
    record = json.loads(file.read_text())
    del record["output_sha256"]
    file.write_text(json.dumps(record))
    if damage:
        (out.parent / LEFT[0]).write_bytes(b"\0" * record["bytes"])
        assert_damaged(out, LEFT[0])
    else:
        with ResumableFile(out, {"model": "a"}, resume=True) as new:
            write(new, [*LINES, "five"])
        assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\nFIVE\n"


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", LEFT)
def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(
    out: Path, name: str, resume: bool
) -> None:
    """In a shared folder it may be somebody's trap."""
    (out.parent / "precious").write_text("text")
    (out.parent / name).symlink_to("precious")
    with ResumableFile(out, {}, resume) as file:
        write(file, ["x"])
    assert (out.parent / "precious").read_text() == "text"
    assert names_in(out.parent) == ["out.de", "precious"]


# Two at once


def test_one_process_at_a_time_writes(out: Path) -> None:
    link = out.with_name("link")
    link.symlink_to(out)
    with ResumableFile(out, {}) as file:
        write(file, LINES[:2])
        for resume, path in itertools.product((False, True), (out, link)):
            with pytest.raises(BlockingIOError, match=r"out\.de: another process is writing it"):
                ResumableFile(path, {}, resume)
        write(file, LINES[2:])
    assert out.read_text(encoding="utf-8") == "ONE\n\nZWEI\nGRÖSSE\n"
    assert names_in(out.parent) == ["link", "out.de"]


def test_a_refusal_gives_the_lock_back(out: Path) -> None:
    begin(out)
    for _ in range(2):
        with pytest.raises(ValueError, match="begun with model='a', not 'b'"):
            ResumableFile(out, {"model": "b"}, resume=True)
    assert names_in(out.parent) == LEFT


def test_a_partial_file_that_lost_its_end_is_not_filled_up(out: Path) -> None:
    begin(out)
    (out.parent / LEFT[0]).write_bytes(b"ONE\n")
    with pytest.raises(ValueError, match=r"partial is cut short: begin anew with --restart"):
        ResumableFile(out, {"model": "a"}, resume=True)


def test_a_new_run_forgets_the_old_one_at_once(out: Path) -> None:
    """Killed before its first block, it must not leave the record of another run's lines."""
    begin(out)
    killed = ResumableFile(out, {"model": "a"}, restart=True)  # and no more, as after a SIGKILL
    killed.stream.close()
    killed.lock.close()
    with ResumableFile(out, {"model": "a"}, resume=True) as resumed:
        assert (resumed.num_kept, resumed.num_bytes) == (0, 0)


# Failures


def test_a_failure_before_the_first_block_leaves_nothing(out: Path) -> None:
    out.write_text("of yesterday")
    begin(out, [])
    assert names_in(out.parent) == ["out.de"]
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
    assert names_in(out.parent) == []


def test_a_full_disk_keeps_the_blocks_before(out: Path) -> None:
    def translate() -> None:
        with full_disk(), ResumableFile(out, {}) as file:
            file.write(["one"], "EINS\n")
            file.write(["two"], "Z" * (ROOM + 1))

    with pytest.raises(OSError, match="File too large"):
        translate()
    assert names_in(out.parent) == LEFT
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
    assert names_in(out.parent) == LEFT
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
    assert names_in(tmp_path) == ["folder"]


def test_a_file_that_nobody_may_write_can_be_resumed(out: Path) -> None:
    out.write_text("old\n")
    out.chmod(0o444)
    begin(out, LINES[:2])
    with ResumableFile(out, {"model": "a"}, resume=True) as file:
        assert file.partial.stat().st_mode & 0o777 == 0o644  # root may write any file
        write(file, LINES)
    assert out.read_text("utf-8") == "ONE\n\nZWEI\nGRÖSSE\n"
    assert out.stat().st_mode & 0o777 == 0o444


def test_a_private_file_stays_private(out: Path) -> None:
    out.write_text("old\n")
    out.chmod(0o600)
    with ResumableFile(out, {}) as file:
        assert file.partial.stat().st_mode & 0o777 == 0o600
        write(file, LINES)
    assert out.stat().st_mode & 0o777 == 0o600


def test_a_name_too_long_for_its_record_shows_before_the_work(tmp_path: Path) -> None:
    too_long = "cannot be written: File name too long"
    with pytest.raises(OSError, match=too_long), ResumableFile(tmp_path / ("x" * 238), {}):
        pass
    assert names_in(tmp_path) == []
