"""What a translator takes: any strings, never too long for the tokenizer, and nothing else."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import PAIRS, babbler

from mt.data.tokenizer import Tokenizer
from mt.inference import inputs
from mt.inference.translator import Translator

SENTENCES = [pair[0] for pair in PAIRS]
LINES = ["A door", "", "An apple"]


@pytest.mark.parametrize(
    "kind", [list, tuple, iter, np.array, dict.fromkeys, lambda lines: (line for line in lines)]
)
def test_any_iterable_of_strings_will_do(babbling: Translator, kind: Callable) -> None:
    expected = babbling.translate(LINES, prefixes=LINES, beam_size=1)
    assert babbling.translate(kind(LINES), prefixes=kind(LINES), beam_size=1) == expected
    assert babbling.score(kind(LINES), kind(LINES)) == babbling.score(LINES, LINES)


@pytest.mark.parametrize("item", [None, b"A door", 5, math.nan, ["A door"]])
def test_an_item_that_is_no_string_is_named(babbling: Translator, item: object) -> None:
    lines: list[Any] = ["A door", "", item, None]
    message = rf"^{{}}\[2\] is {type(item).__name__}: must be a string"
    for name, call in (
        ("sentences", lambda: babbling.translate(lines)),
        ("prefixes", lambda: babbling.translate(LINES, prefixes=lines)),
        ("sources", lambda: babbling.score(lines, LINES)),
        ("targets", lambda: babbling.score(LINES, lines)),
    ):
        with pytest.raises(TypeError, match=message.format(name)):
            call()
    with pytest.raises(TypeError, match=f"^text: must be a string, not {type(item).__name__}"):
        babbling.translate_text(item)  # type: ignore[arg-type]


def test_half_of_a_surrogate_pair_is_text_too(babbling: Translator) -> None:
    lines = ["\ud800", "A \udcff door\ud83d"]
    results = babbling.translate(lines, prefixes=lines, beam_size=1)
    assert [result.source for result in results] == lines
    for result in [*results, *babbling.translate(lines, split=True, beam_size=1)]:
        result.text.encode()
    assert len(babbling.score(lines, lines)) == 2


@pytest.mark.parametrize("alpha", [1e300, 10**400, -1, math.nan])
def test_the_alpha_of_a_score_has_the_bounds_of_a_search(
    babbling: Translator, alpha: float
) -> None:
    with pytest.raises(ValueError, match="alpha="):
        babbling.score([], [], alpha)


def test_a_tokenizer_gets_no_text_that_is_very_long(
    bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SentencePiece takes 200 bytes and more for each character of a long word."""
    monkeypatch.setattr(inputs, "CHUNK", 300)  # LONG_PIECE * 16 is less
    short = Translator(babbler(bpe.vocab_size), bpe, max_length=16)
    seen: list[int] = []
    for name in ("encode", "encode_target"):
        original = getattr(bpe, name)

        def encode(texts: list[str], original: Any = original) -> list[list[int]]:
            seen.extend(map(len, texts))
            return original(texts)

        monkeypatch.setattr(bpe, name, encode)
    lines = ["b" * 1000, " ".join(SENTENCES), "", " " * 1000, "A door"]
    results = short.translate(lines, beam_size=1)
    short.score(lines, lines[::-1])
    assert max(seen) == 300
    assert [result.source for result in results] == lines
    for line, result in zip(lines, results, strict=True):
        assert "".join(p for part in result.parts for p in part.source).replace("▁", "") == (
            line.replace(" ", "")
        )
    assert caplog.text.count("translated in") == 2, "one warning for each line"


@pytest.mark.parametrize(
    ("line", "tidy"),
    [
        ("A door , an apple !", "A door, an apple!"),
        ("A door . An apple ?", "A door. An apple?"),
        ("A door :) .x ,5 ...", "A door :) .x ,5 ..."),
        ("An apple : 2 : 1", "An apple : 2 : 1"),
        ("A `door , x ? 1` and {a , b}", "A `door , x ? 1` and {a , b}"),
    ],
)
def test_what_people_type_has_no_blank_before_a_mark(
    babbling: Translator, line: str, tidy: str
) -> None:
    typed = [x.text for own in babbling.plan([line], split=True) for x in own]
    assert " ".join(typed) == tidy
    assert babbling.plan([line])[0][0].text == line  # a corpus stays as it is
