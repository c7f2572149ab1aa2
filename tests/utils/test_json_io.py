"""Files that anybody may have written are read with care."""

import os
from pathlib import Path

import pytest

from mt.utils.json_io import parse_json, read_json, read_regular


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("[1] 2", "Extra data"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' comes twice"),
        ('[{"x": {"y": 1, "y": 2}}]', "the key 'y' comes twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("1" * 5000, "integer"),
        (b"\xff", "can't decode"),
    ],
)
def test_what_is_not_json_is_refused(tmp_path: Path, text: str | bytes, reason: str) -> None:
    content = text.encode() if isinstance(text, str) else text
    with pytest.raises(ValueError, match=reason):
        parse_json(content)
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"file\.json: not JSON: .*{reason}"):
        read_json(tmp_path / "file.json")


def test_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text('{"a": [1, 2.5, null, "ä"], "b": {"a": true}}', "utf-8")
    expected = {"a": [1, 2.5, None, "ä"], "b": {"a": True}}
    assert read_json(tmp_path / "file.json") == expected


def test_a_file_may_have_so_many_bytes_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, 100) == b"x" * 100
    with pytest.raises(ValueError, match="file: larger than 99 bytes"):
        read_regular(path, 99)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device"])
def test_pipes_and_devices_do_not_block(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="not a regular file"):
        read_regular("/dev/zero" if kind == "device" else path)


def test_a_missing_file_and_a_folder_are_errors_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "missing")
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        read_regular(tmp_path)
