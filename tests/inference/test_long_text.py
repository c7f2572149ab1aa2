"""Texts and over-long lines: split, translated in parts and put together again."""

import itertools
import logging
import re
from typing import Any

import pytest
import torch
from conftest import PAIRS, babbler

from mt.data.tokenizer import Tokenizer
from mt.inference import sentence_splitter
from mt.inference.options import MAX_LENGTH
from mt.inference.sentence_search import Hypothesis
from mt.inference.translation import Translation
from mt.inference.translator import Translator

SENTENCES = [pair[0] for pair in PAIRS]


@pytest.fixture(scope="module")
def short(bpe: Tokenizer) -> Translator:
    """A translator whose model never saw more than 16 tokens."""
    return Translator(babbler(bpe.vocab_size), bpe, max_length=16)


def lines_of(results: list[Translation]) -> list[str]:
    return [text for result in results for text in (result.text, *(t for t, _ in result.n_best))]


# Over-long lines


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_over_long_line_is_translated_in_parts(
    short: Translator, caplog: pytest.LogCaptureFixture, beam_size: int
) -> None:
    line = " ".join(SENTENCES[:6])
    [ids] = short.tokenizer.encode([line])
    ends = sentence_splitter.split_points(short.tokenizer.pieces(ids), 16)
    parts = short.tokenizer.decode([ids[i:j] for i, j in itertools.pairwise([0, *ends])])
    assert len(parts) > 4
    assert " ".join(parts) == line
    with caplog.at_level(logging.WARNING):
        before, result, after = short.translate(["bear", line, "A door"], beam_size=beam_size)
    [warning] = [record.getMessage() for record in caplog.records]
    for fact in (line[:30], f"{len(ids)} tokens", "than the 16", f"in {len(parts)} parts"):
        assert fact in warning
    by_hand = short.translate(parts, beam_size=beam_size)
    assert result.text == " ".join(part.text for part in by_hand)
    assert result.score == pytest.approx(sum(p.score for p in by_hand) / len(parts), abs=1e-4)
    assert result.tokens == sum(part.tokens for part in by_hand)
    assert [part.source for part in result.parts] == [p.parts[0].source for p in by_hand]
    others = short.translate(["bear", "A door"], beam_size=beam_size)
    assert [before.text, after.text] == [other.text for other in others]


def test_a_line_that_just_fits_is_not_split(
    bpe: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = len(bpe.encode([SENTENCES[0]])[0])
    model = babbler(bpe.vocab_size)
    Translator(model, bpe, max_length=tokens).translate([SENTENCES[0]])
    assert not caplog.records
    Translator(model, bpe, max_length=tokens - 1).translate([SENTENCES[0]])
    assert "in 2 parts" in caplog.text


def test_an_over_long_word_is_split_too(short: Translator) -> None:
    results = short.translate(["b" * 500, "A door"], beam_size=2, n_best=2)
    assert len(results) == 2
    assert len(results[0].parts) > 10
    assert len(results[0].n_best) == 2
    assert all(len(text.splitlines()) <= 1 for text in lines_of(results))


def test_an_over_long_line_keeps_its_prefix_once(short: Translator) -> None:
    line = " ".join(SENTENCES[:3])
    [result] = short.translate([line], prefixes=["Ich habe"])
    assert len(result.parts) > 1
    [prefix] = short.tokenizer.encode(["Ich habe"])
    assert list(result.parts[0].output[: len(prefix)]) == short.tokenizer.pieces(prefix)
    [free] = short.translate([line])
    assert [part.output for part in result.parts[1:]] == [part.output for part in free.parts[1:]]


def test_progress_counts_the_parts_of_a_line(short: Translator) -> None:
    done: list[float] = []
    short.translate(["b" * 500, "A door", ""], beam_size=1, batch_size=3, on_progress=done.append)
    assert len(done) > 3
    assert max(done) < 1.3
    assert sum(done) == pytest.approx(2), "the lines that are not blank"


def test_outputs_that_must_be_long_come_in_smaller_batches(
    short: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes memory for its outputs too."""
    sizes: list[int] = []

    def search(model: Any, src: torch.Tensor, *_: Any) -> list[list[Hypothesis]]:
        sizes.append(len(src))
        return [[Hypothesis([], 0.0, 0.0)]] * len(src)

    monkeypatch.setattr("mt.inference.translator.search", search)
    for settings, expected in (({}, [6]), ({"min_length": 4000}, [2, 2, 2])):
        sizes.clear()
        short.translate(["A door"] * 6, beam_size=1, **settings)
        assert sizes == expected


def test_a_line_that_has_no_end_is_not_scored(short: Translator) -> None:
    line = "b " * (MAX_LENGTH + 1)
    for sources, targets in (([line], ["A door"]), (["A door"], [line])):
        with pytest.raises(ValueError, match=r"tokens: at most 5,000 can be scored"):
            short.score(sources, targets)


# Sentences


def test_split_translates_sentence_by_sentence(babbling: Translator) -> None:
    text = f"  {SENTENCES[0]} {SENTENCES[5]}\t{SENTENCES[20]} "
    [result] = babbling.translate([text], split=True)
    alone = babbling.translate([SENTENCES[0], SENTENCES[5], SENTENCES[20]])
    assert result.source == text
    first, second, third = (sentence.text for sentence in alone)
    assert result.text == f"  {first} {second}\t{third}"
    assert result.tokens == sum(sentence.tokens for sentence in alone)
    assert [part.output for part in result.parts] == [
        sentence.parts[0].output for sentence in alone
    ]
    [whole] = babbling.translate([text])
    assert len(whole.parts) == 1


def test_split_keeps_one_line_out_for_each_line_in(babbling: Translator) -> None:
    lines = ["", "One. Two. Three.", " ", "\u200b. \u200b", "A door", "..."]
    results = babbling.translate(lines, split=True, n_best=2)
    assert [result.source for result in results] == lines
    assert results[0].text == results[2].text == ""
    assert [len(result.parts) for result in results] == [0, 3, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "The bear hears the door.",
        "The bear hears the door. A bird finds the key.\n",
        "\n\nThe bear.\n\n  \nA bird. The door.\n\n",
        "The bear.\r\n\r\nA bird.\r\n",
        "The bear.\r\nA bird.\nThe key.",
        "The bear.\rA bird.\r\rThe key.",
    ],
)
def test_a_text_keeps_its_line_breaks(babbling: Translator, text: str) -> None:
    def one(line: str) -> str:
        parts = [
            babbling.translate([sentence])[0].text for sentence in sentence_splitter.sentences(line)
        ]
        return " ".join(parts)

    lines = re.split(r"(\r\n|\r|\n)", text)
    lines[::2] = map(one, lines[::2])
    assert babbling.translate_text(text) == "".join(lines)


def test_a_text_takes_the_options_of_lines(babbling: Translator) -> None:
    text = "The bear hears the door. A bird finds the key."
    greedy = babbling.translate_text(text, beam_size=1, max_length=3)
    assert greedy == babbling.translate([text], split=True, beam_size=1, max_length=3)[0].text
    assert greedy != babbling.translate_text(text)
