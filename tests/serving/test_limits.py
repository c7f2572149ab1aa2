"""The limits and the file with API keys."""

from pathlib import Path

import pytest

from mt.serving.limits import ApiKeys, Limits, read_api_keys


@pytest.mark.parametrize("name", ["body_bytes", "connections", "deadline_seconds"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "many", None])
def test_a_limit_is_a_number_above_zero(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})


def test_whole_numbers_are_whole_and_seconds_need_not_be() -> None:
    assert Limits(texts=3, send_seconds=0.5).send_seconds == 0.5
    with pytest.raises(ValueError, match="texts"):
        Limits(texts=2.5)  # type: ignore[arg-type]


def test_keys_are_read_without_comments_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbf# clients\r\n\nfirst-key  # of the shop\n  second#key\n")
    keys = read_api_keys(file)
    assert keys
    assert [keys.allow(key) for key in ("first-key", "second#key")] == [True, True]
    for wrong in ("", "first-ke", "first-key ", "# clients", "of", "second", "\ud800", "é"):
        assert not keys.allow(wrong)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no key"),
        (b"# only a comment\n", "holds no key"),
        (b"good\nnot good\n", ":2: a key has no blanks"),
        ("schlüssel\n".encode(), ":1: a key has"),
        (b"a\x00b\n", ":1: a key has"),
    ],
)
def test_a_bad_file_of_keys_is_named_and_no_key_shown(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_api_keys(file)
    assert str(file) in str(caught.value)
    assert "good" not in str(caught.value)


def test_without_keys_there_is_nothing_to_check() -> None:
    assert not ApiKeys([])
