"""Blocks of lines from a file, a pipe or a device, and a stream of lines."""

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mt.utils import line_io
from mt.utils.line_io import Stream, count_lines, read_blocks

LINES = ["one", "", "zwei", "Größe"]
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


class Endless(io.RawIOBase):
    """A device that gives one line without an end; it counts what is read."""

    def __init__(self, byte: bytes) -> None:
        self.byte, self.read_bytes = byte, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        buffer[:] = self.byte * len(buffer)
        self.read_bytes += len(buffer)
        return len(buffer)


def test_a_line_without_an_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_io, "MAX_LINE", 50_000)
    device = Endless(b"\0")
    stream = io.BufferedReader(device)
    with pytest.raises(ValueError, match=r"^zero, line 1: longer than 50,000 bytes"):
        list(read_blocks(stream, "zero"))
    assert device.read_bytes < 100_000


@pytest.mark.parametrize("whole", [False, True])
def test_lines_before_one_that_is_too_long_are_given(
    monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(line_io, "MAX_LINE", 5)
    monkeypatch.setattr(line_io, "BLOCK", 1)
    lines = []
    with pytest.raises(ValueError, match=r"^in, line 3: longer than 5 bytes"):  # noqa: PT012
        for block in read_blocks(io.BytesIO(b"1234\n\xc3\xa434\n12345\n"), "in", whole):
            lines += block
    assert lines == ["1234", "ä34"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_block_ends_with_the_line_that_makes_it_large(
    monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(line_io, "BLOCK_BYTES", 100)
    lines = ["a" * 40] * 9 + ["b" * 200] * 2 + ["c"]
    stream = io.BytesIO("\n".join(lines).encode())
    sizes = [[len(line) for line in block] for block in read_blocks(stream, "in", whole)]
    assert [size for block in sizes for size in block] == list(map(len, lines))
    assert all(sum(block[:-1]) < 100 for block in sizes)
    if whole:
        assert sizes == [[40, 40, 40]] * 3 + [[200], [200], [1]]


def test_long_lines_are_not_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else memory would hold BLOCK of them."""
    monkeypatch.setattr(line_io, "LONG_LINE", 10**4)
    monkeypatch.setattr(line_io, "BLOCK_BYTES", 10**4)
    read = 0

    def readline(limit: int) -> bytes:
        nonlocal read
        read += 1
        return b"x" * 10**5 + b"\n" if read < 100 else b""

    stream = SimpleNamespace(readline=readline, isatty=lambda: False)
    for number, block in enumerate(read_blocks(stream, "in"), start=1):
        assert len(block) == 1
        time.sleep(0.001)  # for a thread that reads ahead
        assert read <= number + 2
    assert number == 99


def test_a_stream_takes_everything() -> None:
    text = io.StringIO()
    stream = Stream(text)
    assert stream.skip(LINES) == LINES
    stream.write(LINES, "x\n")
    assert text.getvalue() == "x\n"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"a", ["a"]),
        (b"\n\na\n", ["", "", "a"]),
        (b"", [""]),
    ],
)
def test_a_mark_of_the_byte_order_is_no_text(content: bytes, lines: list[str]) -> None:
    blocks = read_blocks(io.BytesIO(b"\xef\xbb\xbf" + content), "in", whole=True)
    assert [line for block in blocks for line in block] == lines


def test_what_is_typed_need_not_be_utf8() -> None:
    """A stray byte does not end a session; a file with one would be translated wrongly."""

    class Typed(io.BytesIO):
        def isatty(self) -> bool:
            return True

    typed = "Wörter\n".encode("latin-1") + b"words\n"
    blocks = list(read_blocks(Typed(typed), "standard input"))
    assert [line for block in blocks for line in block] == [
        "W\N{REPLACEMENT CHARACTER}rter",
        "words",
    ]
    with pytest.raises(ValueError, match="standard input, line 1: not UTF-8"):
        list(read_blocks(io.BytesIO(typed), "standard input"))
