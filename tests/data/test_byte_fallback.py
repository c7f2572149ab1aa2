"""Tokenizers for which nothing is unknown: rare characters are spelled in bytes."""

import io
import itertools
import random
import tempfile
import unicodedata

import pytest
import sentencepiece
from test_tokenizer import SENTENCES, VOCAB_SIZE, random_text

from mt.data import normalisation
from mt.data import tokenizer as tokenizers
from mt.data.special_ids import BOS, EOS, PAD, UNK
from mt.data.tokenizer import Tokenizer

SIZE = 700


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizers.train(SENTENCES, SIZE, byte_fallback=True, split_digits=True)


def nfkc(text: str) -> str:
    """For comparisons: without blanks, which NFKC makes of some marks, and without joiners."""
    normal = unicodedata.normalize("NFKC", text)
    return "".join(c for c in normal if not c.isspace() and c not in "\u200c\u200d")


def back(tokenizer: Tokenizer, text: str) -> str:
    [ids] = tokenizer.encode([text])
    assert {PAD, UNK, BOS, EOS}.isdisjoint(ids)
    return tokenizer.decode([ids])[0]


# Text comes through


@pytest.mark.parametrize(
    "text",
    [
        "Ich liebe dich 😀❤️!",
        "👍🏽 👩🏿‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇺🇦 1️⃣",
        "Привет, как дела?",
        "Καλημέρα, τι κάνεις·",
        "你好世界、我叫李明。",
        "こんにちは。カタカナもある。",
        "안녕하세요 세계",
        "مرحبا بالعالم",
        "می‌خواهم بروم",  # a zero-width non-joiner within the word
        "שלום עולם",
        "नमस्ते दुनिया, क्ष और क्‍ष",  # with a zero-width joiner
        "สวัสดีชาวโลก",
        "ሰላም ልዑል ᚠᚢᚦ 𝄞 𐍈",
        "25 m² für ½ € – №5 ™ 10 °C 5 µg",
        "→ ← ∑ √ ≈ ☎ ♫ ✓ █ ∞ ≤ §",
        "Łukasz Đặng, Ștefan Țîrlea, Håkon Ångström, İstanbul",
        "<0xE2><0x9D> <unk> </s> ~ ^ ` {a} \\n",
    ],
)
def test_text_comes_back_and_nothing_is_unknown(tokenizer: Tokenizer, text: str) -> None:
    assert back(tokenizer, text) == text


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("ﬁnden Ａ ｶ … ℌ", "finden A カ ... H"),
        ("cafe\u0301 Tu\u0308r и\u0306", "café Tür й"),
        ("Haus\u200dTür a\u200cb \u200d😀\u200d \u00adx\ufeff", "HausTür ab \u200d😀 x"),
        ("a\tb\u2028c\x1b[31m \ud800", "a b c[31m ?"),
        ("\ufffd x", "x"),  # looks like part of a character
    ],
)
def test_text_is_normalised(tokenizer: Tokenizer, text: str, normal: str) -> None:
    assert back(tokenizer, text) == normal


def test_any_unicode_is_spelled(tokenizer: Tokenizer) -> None:
    rng = random.Random(1)
    texts = [random_text(rng) for _ in range(2000)]
    rows = tokenizer.encode(texts)
    for text, ids, decoded in zip(texts, rows, tokenizer.decode(rows), strict=True):
        assert {PAD, UNK, BOS, EOS}.isdisjoint(ids), text
        assert len(decoded.splitlines()) <= 1, text
        line = tokenizers.printable_bytes(text)
        assert nfkc(decoded) == nfkc(line.replace("▁", " ")), ascii(text)


def test_parts_of_a_character_are_left_out(tokenizer: Tokenizer) -> None:
    [ids] = tokenizer.encode(["a😀b"])
    byte = [i for i, piece in enumerate(tokenizer.pieces(ids)) if piece.startswith("<0x")]
    assert len(byte) == 4
    for i in byte:
        assert tokenizer.decode([ids[:i] + ids[i + 1 :], ids[: i + 1]]) == [
            "ab",
            "a😀" if i == byte[-1] else "a",
        ]


def test_bytes_spell_no_control_characters(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.pieces(list(range(SIZE)))
    ids = [pieces.index(f"<0x{byte:02X}>") for byte in (0x41, 0x0A, 0x1B, 0x00, 0x41, 0x09, 0x41)]
    assert tokenizer.decode([ids]) == ["A A A"]


def test_sampled_pieces_spell_the_same(tokenizer: Tokenizer) -> None:
    lines = ["Die Tür 😀 hört 東京", "Zwölf Vögel öffnen 👨‍👩‍👧 2024"]
    sampled = tokenizer.sample(lines, 0.3, seed=1)
    assert tokenizer.decode(sampled) == lines
    assert UNK not in itertools.chain.from_iterable(sampled)
    assert sampled == tokenizer.sample(lines, 0.3, seed=1)
    assert sampled != tokenizer.encode(lines) == tokenizer.sample(lines, 0.0, seed=1)


# Training


def test_a_piece_has_one_digit_at_most(tokenizer: Tokenizer) -> None:
    numbers = [f"{word} {number}" for word in SENTENCES[:40] for number in (1987, 1988, 19)]
    whole, split = (
        tokenizers.train(numbers, SIZE, byte_fallback=True, split_digits=split)
        for split in (False, True)
    )
    assert (whole.split_digits, split.split_digits, tokenizer.split_digits) == (False, True, True)
    assert "▁1987" in whole.pieces(whole.encode(["in 1987"])[0])
    assert split.pieces(split.encode(["in 1987"])[0])[-4:] == ["1", "9", "8", "7"]


def test_it_says_what_it_is(tokenizer: Tokenizer) -> None:
    assert tokenizer.byte_fallback
    assert not tokenizers.train(SENTENCES, VOCAB_SIZE).byte_fallback
    assert not Tokenizer(tokenizers.train(["<0x00> <0x01>"], 16).proto).byte_fallback


def test_rare_characters_get_no_piece_but_those_of_latin_script() -> None:
    text = [*SENTENCES * 30, *["Привет мир"] * 60, "東京 😀 Łódź ǅ"]
    trained = tokenizers.train(text, SIZE, byte_fallback=True)
    assert sum(map(len, text)) > 2 * tokenizers.RARE
    pieces = set(trained.pieces(list(range(SIZE))))
    assert {*"Приветм", *"Łódź", *normalisation.alphabet()} <= pieces
    assert pieces.isdisjoint("東京😀")
    assert back(trained, "東京 😀 Łódź") == "東京 😀 Łódź"


def test_the_file_depends_on_nothing_else(tokenizer: Tokenizer) -> None:
    again = tokenizers.train(iter(SENTENCES), SIZE, byte_fallback=True, split_digits=True)
    assert again.proto == tokenizer.proto
    assert tempfile.gettempdir().encode() not in tokenizer.proto
    assert b".tsv" not in tokenizer.proto


@pytest.mark.parametrize("size", [3, 100, 570])
def test_too_small_a_vocabulary_names_the_smallest_that_works(size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size={size}: too small"):
        tokenizers.train(SENTENCES, size, byte_fallback=True)


def test_a_size_that_nobody_insists_on_becomes_one_that_the_text_supports() -> None:
    fitting = tokenizers.train(SENTENCES, 90_000, exact=False, byte_fallback=True)
    words = len({word for text in SENTENCES for word in text.split()})
    characters = tokenizers.BYTES + len(normalisation.alphabet())
    assert characters < fitting.vocab_size <= characters + words
    assert back(fitting, "😀 Tür") == "😀 Tür"


def test_without_it_the_file_is_the_same_as_ever() -> None:
    """Byte for byte: SentencePiece writes its settings into the file."""
    words: dict[str, int] = {}
    for word in " ".join(SENTENCES).split(" "):
        words[word] = words.get(word, 0) + 1
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{count}" for word, count in words.items()),
        input_format="tsv", model_writer=model, model_type="bpe", vocab_size=VOCAB_SIZE,
        character_coverage=1.0, normalization_rule_name="nfkc", minloglevel=2,
        pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, max_sentence_length=65536, num_threads=16,
    )  # fmt: skip
    assert tokenizers.train(SENTENCES, VOCAB_SIZE).proto == model.getvalue()


# Normalisation


def test_the_table_is_nfkc_but_for_what_is_kept(tokenizer: Tokenizer) -> None:
    replaced = normalisation.table()
    assert normalisation.KEPT.isdisjoint(replaced)
    for source, target in replaced.items():
        if source != target:
            assert unicodedata.normalize("NFKC", source) == unicodedata.normalize("NFKC", target)
    for text in random.Random(0).sample(sorted(replaced), 300):
        assert "".join(back(tokenizer, f"x{text}x").split()) == (
            "".join(f"x{replaced[text]}x".split())
        ), ascii(text)


def test_the_alphabet_is_not_changed_by_the_table() -> None:
    assert normalisation.alphabet().isdisjoint(normalisation.table())
    assert {*"aZäßéŁşŻ09.,;!?\"'„“€²½"} <= normalisation.alphabet()
