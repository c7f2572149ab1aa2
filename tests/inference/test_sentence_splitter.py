"""Where sentences end and where they do not, and where a sentence that is too long is split."""

import itertools
import random
import time

import pytest

from mt.data.tokenizer import Tokenizer
from mt.inference.sentence_splitter import (
    chunks,
    is_all_caps,
    sentences,
    sentences_of_line,
    split_points,
)

# Sentences


@pytest.mark.parametrize(
    "text",  # a bar between its sentences
    [
        "Mr. Smith met Dr. Jones.|He was glad.",
        "See e.g. this one, i.e. that.|Or e.g. Smith.",
        "The U.S. troops left.|The U.S. Army stayed.",
        "It cost 3.5 million.|5 of them.",
        "J. R. R. Tolkien and J.R.R. Tolkien wrote.|He too.",
        'He said: "Stop."|Then he left.',
        '"Stop!" he said.|"Go."|"No!"',
        "Wait...|What?|Really?!|Yes…|No.",
        "Hello.World",
        "He said no.|Then No. 5 came.|See Fig. 3 on p. 7.|"
        "As Miller et al. 2015 say, call tel. 12 at max. 50 km.|The sun.|Then the rain.",
        "On Jan. 5 it rained.|That was in Jan.|Then it snowed.",
        "Meet me at 5 p.m. at the door.|The meeting is short.",
        "1. A list.|2. Two.",
        "You and I.|Then they.",
        "(Really.)|[Yes.]|“Good.”|¿Qué?|¡Sí!",
        "Das sind z. B. Äpfel, d. h. Obst.|Herr Dr. Müller mag es.",
        "Many things, etc.|And more, etc. in a row.",
        "no capital.|none here either.|nor here",
        "hello tom.|how are you?|fine?|see e.g. this, p. 5.|i know.",
        "A capital. none here. nor here",
        "we leave at 5 p.m. on sunday.|apples, pears etc. are fruit.|the u.s. army left.",
        '"what?" he asked.|well... i think so.|so do i.|what about you?',
        "你好。|再见！|「好。」|他走了。",
        "Привет.|Как дела?",
        "One.|Two.\u00a0|Three.\u2003|\tFour.",
        "...",
        "a",
        "?",
    ],
)
def test_sentences_end_where_they_should(text: str) -> None:
    expected = [sentence.strip() for sentence in text.split("|")]
    assert sentences(text.replace("|", " ")) == expected
    assert sentences(f" \t{text.replace('|', '  ')}\n") == expected


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u2003"])
def test_no_text_has_no_sentences(text: str) -> None:
    assert sentences(text) == []


@pytest.mark.parametrize(
    ("text", "all_caps"),
    [
        ("WHERE DO YOU LIVE?", True),
        ("HELP!", True),
        ("IT'S 5 O'CLOCK", True),
        ("ÄRGER ÜBERALL", True),
        ("NASA", False),
        ("U.S.", False),
        ("I", False),
        ("OK!", False),
        ("NASA is in the USA.", False),
        ("你好！你好！", False),
        ("12 34 56 78!", False),
        ("", False),
    ],
)
def test_what_is_in_capitals_throughout(text: str, all_caps: bool) -> None:
    assert is_all_caps(text) is all_caps


def test_nothing_but_white_space_is_lost() -> None:
    rng = random.Random(0)
    pool = [*"aA1 .!?…\"'”)(。！」\t\n😀", "Mr.", "no.", " I.", "e.g.", "\u2028", "\u0301"]
    for _ in range(2000):
        text = "".join(rng.choices(pool, k=rng.randrange(30)))
        split_text = sentences(text)
        assert "".join("".join(split_text).split()) == "".join(text.split())
        assert all(sentence == sentence.strip() != "" for sentence in split_text)


@pytest.mark.parametrize("unit", [".", ". ", "A. ", '!"', '."', "no. 1 ", "((", "。"])
def test_odd_texts_take_no_longer_than_others(unit: str) -> None:
    start = time.process_time()
    sentences(unit * 20_000)
    assert time.process_time() - start < 2


# Split points


def parts(text: str, max_length: int, tokenizer: Tokenizer | None = None) -> list[str]:
    """The segments between split points; without a tokenizer a word is a piece."""
    if tokenizer is None:
        pieces = [f"▁{word}" for word in text.split()]
    else:
        pieces = tokenizer.pieces(tokenizer.encode([text])[0])
    ends = split_points(pieces, max_length)
    assert ends[-1] == len(pieces)
    joined = ["".join(pieces[start:end]) for start, end in itertools.pairwise([0, *ends])]
    assert "".join(joined) == "".join(pieces)
    return [part.replace("▁", " ").strip() for part in joined]


@pytest.mark.parametrize(
    ("expected", "max_length"),
    [
        ("a b c d", 4),
        ("a b c d|e", 4),
        ("a b see.|D e, f g h|i", 5),  # a sentence before a clause
        ("a b, c,|d e f", 5),  # the last of several
        ('a b see."|"D e f g', 5),
        ("a, b c d e|f g", 5),  # too early a mark
        ("a Mr. Smith b,|c Dr. Miller d", 5),  # "Mr. Smith" stays together
        ("a b c d (e),|f g", 5),
        ("a b c –|d e f", 5),
        ("a|b|c", 1),
    ],
)
def test_a_long_sentence_is_split_after_marks(expected: str, max_length: int) -> None:
    assert parts(expected.replace("|", " "), max_length) == expected.split("|")


def test_a_word_that_is_too_long_is_split_anywhere() -> None:
    assert split_points(["▁a", *"bcdefghij"], 4) == [4, 8, 10]
    assert split_points(["▁x", "▁a", *"bcdefghij"], 4) == [1, 5, 9, 11]
    assert split_points([], 4) == [0]


def test_split_points_fall_between_words_of_a_real_vocabulary(bpe: Tokenizer) -> None:
    text = "The bear hears the door, and a bird finds the key. My friend opens the key. " * 3
    for max_length in (12, 20, 33):
        split_text = parts(text, max_length, bpe)
        assert " ".join(split_text) == text.strip()
        assert sum(part.endswith((",", ".")) for part in split_text) >= len(split_text) // 2


def test_any_pieces_are_split_within_bounds() -> None:
    rng = random.Random(0)
    pool = ["▁", "▁a", "b", ".", ",", '."', "▁A", "▁Mr", "。", ")"]
    for _ in range(1000):
        pieces = rng.choices(pool, k=rng.randrange(40))
        max_length = rng.randrange(1, 12)
        ends = [0, *split_points(pieces, max_length)]
        assert ends[-1] == len(pieces)
        if pieces:
            assert all(0 < end - start <= max_length for start, end in itertools.pairwise(ends))


@pytest.mark.parametrize(
    "expected",
    [
        "",
        "a b c",
        "a b c. D e |f g h i j",  # after a word
        "a b c d e. |F g h i j k.",  # after a sentence in the second half
        "aaaaaaaaaaaa|aaaaaaaaaaaa|aa",  # within a word
        "a |bbbbbbbbbbbb|bbb c",
    ],
)
def test_a_very_long_text_comes_in_chunks(expected: str) -> None:
    assert chunks(expected.replace("|", ""), 12) == expected.split("|")


def test_any_text_comes_in_chunks_within_bounds() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        text = "".join(rng.choices([" ", "a", "b", ". A", "\u3002", "\t"], k=rng.randrange(60)))
        texts = chunks(text, 10)
        assert all(len(chunk) <= 10 for chunk in texts)
        assert "".join(texts).split() == text.split()


def test_a_long_line_without_ends_takes_no_more_than_its_share() -> None:
    start = time.process_time()
    assert len(sentences("Dr. A " * 50_000)) == 1
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("One. Two.", [("", "One."), (" ", "Two.")]),
        ("  One.   Two. ", [("  ", "One."), (" ", "Two.")]),
        ("Tea\t$3.00\tNo.", [("", "Tea"), ("\t", "$3.00"), ("\t", "No.")]),
        ("\t\tTea. Milk.\t\tBread\t", [("\t\t", "Tea."), (" ", "Milk."), ("\t\t", "Bread")]),
        ("- Tea", [("- ", "Tea")]),
        ("    * 3. Close it. Go.", [("    * 3. ", "Close it."), (" ", "Go.")]),
        ("b) [x] Done", [("b) [x] ", "Done")]),
        ("> A) Tea", [("> A) ", "Tea")]),
        ("•\tOpen the door.", [("•\t", "Open the door.")]),
        ("1.\t- Tea\t-\tMilk", [("1.\t- ", "Tea"), ("\t", "-"), ("\t", "Milk")]),
        ("Tea\t\t", [("", "Tea")]),
        ("\t• Tea\t- milk", [("\t• ", "Tea"), ("\t", "- milk")]),
        ("1990. It was good.", [("", "1990. It was good.")]),
        ("A. Smith is here", [("", "A. Smith is here")]),
        ("-5 degrees", [("", "-5 degrees")]),
        ("3.", [("", "3.")]),
        ("- ", [("", "-")]),
        (" \t ", []),
        ("", []),
    ],
)
def test_a_line_has_sentences_and_layout(line: str, expected: list[tuple[str, str]]) -> None:
    assert sentences_of_line(line) == expected
