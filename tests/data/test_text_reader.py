"""Plain text as pairs with empty sources."""

import gzip
from pathlib import Path

import pytest

from mt.data.text_reader import LONG, TextReader


def parts(path: Path) -> list[str]:
    pairs = list(TextReader(train=str(path)).pairs("train"))
    assert all(source == "" for source, _ in pairs)
    return [text for _, text in pairs]


def test_blank_lines_end_paragraphs(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("One line,\n  and another.\n\n\nA second paragraph.\n \nA third", "utf-8")
    assert parts(path) == ["One line, and another.", "A second paragraph.", "A third"]


def test_without_blank_lines_each_line_is_one(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert parts(path) == ["one", "two"]


def test_blank_lines_at_the_ends_join_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("\none.\ntwo.\n\n\n", "utf-8")
    assert parts(path) == ["one.", "two."]


def test_text_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "quotes.txt"
    text = "“Stop!”—he said. (e.g.), «Non!», U.S.’s. "
    path.write_text(text * 30, "utf-8")
    assert " ".join(parts(path)) == (text * 30).strip()


def test_a_text_without_blanks_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "signs.txt"
    path.write_text("你好世界。" * 300 + "x" * 1500, "utf-8")
    assert "".join(parts(path)) == "你好世界。" * 300 + "x" * 1500
    assert max(map(len, parts(path))) <= LONG


def test_a_long_paragraph_is_cut_between_sentences_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    sentences = [f"This is sentence {i} of a long paragraph." for i in range(100)]
    path.write_text(" ".join(sentences), "utf-8")
    texts = parts(path)
    assert " ".join(texts).split() == " ".join(sentences).split()
    assert all(LONG / 2 < len(part) <= LONG for part in texts[:-1])
    assert all(part.endswith(".") for part in texts)


def test_a_long_sentence_is_cut_between_words(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("word " * 1000, "utf-8")
    texts = parts(path)
    assert " ".join(texts).split() == ["word"] * 1000
    assert max(map(len, texts)) <= LONG


def test_several_files_and_what_they_are_known_by(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a", "b")]
    for name in names:
        Path(name).write_text(f"{Path(name).name}\n", "utf-8")
    reader = TextReader(train=names)
    assert [text for _, text in reader.pairs("train")] == ["a", "b"]
    before = reader.identity("train")
    Path(names[1]).write_text("more text\n", "utf-8")
    assert reader.identity("train") != before


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "data.train=None: name"), ([], "name a text"), ([1], "name"), ("no", "no such file")],
)
def test_what_is_no_file_is_named(value: object, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        TextReader(train=value).identity("train")  # type: ignore[arg-type]
