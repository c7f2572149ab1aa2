"""Translating with a vocabulary of bytes: no line is lost, no part of a character is printed."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, babbler

from mt.data import phrasebook
from mt.data import tokenizer as tokenizers
from mt.inference.sentence_splitter import split_points
from mt.inference.translator import Translator
from mt.model import checkpoint

LINES = ["I love 😀 and 東京.", "👨‍👩‍👧 Where do you live?", "", "Привет", "你好世界" * 30]


@pytest.fixture(scope="module")
def translator() -> Translator:
    text = itertools.chain.from_iterable(phrasebook.phrases())
    tokenizer = tokenizers.train(text, 800, byte_fallback=True, split_digits=True)
    return Translator(babbler(800), tokenizer, max_length=80)


def test_lines_parts_and_attention(translator: Translator) -> None:
    results = translator.translate(LINES, beam_size=2, attention=True)
    assert [result.source for result in results] == LINES
    bytes_written = 0
    for result in results:
        assert "\ufffd" not in result.text
        assert result.text.isprintable() or "\u200d" in result.text
        for part in result.parts:
            assert part.attention is not None
            assert part.attention.shape[-2:] == (len(part.output) + 1, len(part.source) + 1)
            bytes_written += sum(piece.startswith("<0x") for piece in part.output)
    assert bytes_written > 10  # the model babbles them
    assert "<0x" not in "".join(result.text for result in results)
    assert "".join(results[3].parts[0].source) == "▁<0xD0><0x9F>" + "".join(
        f"<0x{byte:02X}>" for byte in "ривет".encode()
    )


def test_a_prefix_in_bytes(translator: Translator) -> None:
    for prefix in ("😀 Haus", "東京", "👨‍👩‍👧"):
        [result] = translator.translate(["I love it."], prefixes=[prefix], beam_size=2)
        assert result.text.startswith(prefix)


def test_what_ends_within_a_character(translator: Translator) -> None:
    prefix = "Haus 😀"
    for length in range(3, 8):
        [result] = translator.translate(
            ["a"], prefixes=[prefix], beam_size=1, max_length=length, min_length=length
        )
        assert "\ufffd" not in result.text


def test_a_long_word_is_split_between_characters(translator: Translator) -> None:
    pieces = translator.tokenizer.pieces(translator.tokenizer.encode(["你好" * 3 + "😀é" * 4])[0])
    for length in range(4, 12):
        ends = split_points(pieces, length)
        sizes = [end - start for start, end in itertools.pairwise([0, *ends])]
        assert max(sizes) <= length
        segments = [pieces[start:end] for start, end in itertools.pairwise([0, *ends])]
        assert not any(s[0].startswith(("<0x8", "<0x9", "<0xA", "<0xB")) for s in segments)
    [result] = translator.translate([LINES[-1]], beam_size=1, max_length=3)
    assert len(result.parts) > 4
    decoded = [
        translator.tokenizer.decode([[vocabulary(translator)[p] for p in part.source]])[0]
        for part in result.parts
    ]
    assert "".join(decoded) == LINES[-1]


def vocabulary(translator: Translator) -> dict[str, int]:
    pieces = translator.tokenizer.all_pieces()
    return {piece: i for i, piece in enumerate(pieces)}


def test_the_command_line(
    translator: Translator, tmp_path: Path, run_translate: Callable[..., Done]
) -> None:
    """From a model folder in 8 bits: the tokenizer's table passes the check of model folders."""
    folder = tmp_path / "model"
    checkpoint.save(
        folder, babbler(800), translator.tokenizer, 80, ["en", "de"], {}, storage="int8"
    )
    stdin = "".join(f"{line}\n" for line in LINES).encode()
    done = run_translate("--model", folder, "--beam-size", "1", "--max-length", "9", stdin=stdin)
    assert done.code == 0, done.err
    assert len(done.out.split("\n")) == len(LINES) + 1
    assert "\ufffd" not in done.out
