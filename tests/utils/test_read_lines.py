"""Lines of a file: where they end, and what the error says when they cannot be read."""

import gzip
import re
from pathlib import Path

import pytest

from mt.utils import line_io
from mt.utils.line_io import read_lines

DAMAGED_GZIP = gzip.compress("".join(f"line {i}\n" for i in range(20_000)).encode())


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
    assert list(read_lines(path)) == lines


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
        list(read_lines(path))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_line_that_is_too_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(line_io, "MAX_LINE", 4)
    path = tmp_path / f"text.en{suffix}"
    content = b"abc\nabc\nabcd\n"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: longer than 4 bytes")):
        list(read_lines(path))


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
        list(read_lines(path))
