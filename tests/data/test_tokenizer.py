"""Text to ids and back: normalisation, special ids, odd Unicode, training's errors, files."""

import io
import itertools
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece

from mt.data import tokenizer as tokenizers
from mt.data.special_ids import BOS, EOS, PAD, UNK
from mt.data.tokenizer import FEW, Tokenizer

SENTENCES = [
    f"{subject} {verb} {thing} {when}."
    for subject, verb, thing, when in itertools.product(
        ["Der Bär", "Die Tür", "Unsere Großmutter", "Zwölf Vögel", "Übrigens: er"],
        ["hört", "öffnet", "grüßt", "trägt"],
        ["den Schlüssel", "die Straße", "das schöne Haus", "2 Äpfel < 3 Öfen", "1/4 > 0"],
        ["heute", "morgen früh", "natürlich nicht", "im Dezember"],
    )
]
VOCAB_SIZE = 150


def trained(sentences: list[str] = SENTENCES, vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    return tokenizers.train(sentences, vocab_size)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return trained()


def random_text(rng: random.Random) -> str:
    """Up to 30 characters of any kind in Unicode, the unpleasant kinds more often."""
    pools = [
        "abcÄÖÜäöüß .,-<>/",
        "😀👨‍👩‍👧🇩🇪",
        "机器翻译はむずかしい",
        "\u0300\u0308\u0327\u20dd",  # combining marks
        "\u200b\u200c\u200d\u2060\ufeff\u00ad",  # zero width
        "\x00\x01\t\n\x0b\x0c\r\x1b\x1c\x7f\x85\u2028\u2029",  # control, and all line breaks
        "\ud800\udbff\udc00\udfff",  # lone surrogates
        "▁﷽ﬁＡ²\ue000\uffff",
    ]
    draws = [lambda pool=pool: rng.choice(pool) for pool in pools]
    draws.append(lambda: chr(rng.randrange(0x110000)))
    return "".join(rng.choice(draws)() for _ in range(rng.randrange(31)))


# Ids and text


def test_special_ids_and_their_pieces_are_fixed(tokenizer: Tokenizer) -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_vocabulary_has_exactly_the_size_asked_for(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == VOCAB_SIZE
    assert len(set(tokenizer.pieces(list(range(VOCAB_SIZE))))) == VOCAB_SIZE


def test_training_text_comes_back_unchanged(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(SENTENCES)
    assert tokenizer.decode(ids) == SENTENCES
    assert {PAD, UNK, BOS, EOS}.isdisjoint(itertools.chain(*ids))


def test_byte_pairs_make_a_sentence_shorter_than_its_characters(tokenizer: Tokenizer) -> None:
    tokens = sum(map(len, tokenizer.encode(SENTENCES)))
    assert tokens < 0.5 * sum(map(len, SENTENCES))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        pytest.param("ﬁnden", "finden", id="ligature"),
        pytest.param("Ｈａｕｓ", "Haus", id="full width"),
        pytest.param("m²", "m2", id="superscript"),
        pytest.param("Tu\u0308r", "Tür", id="u and combining dots"),
        pytest.param("\u3000Haus\u00a0 Bär ", "Haus Bär", id="blanks"),
        pytest.param("Haus\tBär\r\nTür\u2028Vögel", "Haus Bär Tür Vögel", id="tab and line breaks"),
    ],
)
def test_text_is_normalised(text: str, normal: str) -> None:
    tokenizer = trained([*SENTENCES, "finden, 5 m2"], 160)
    ids = tokenizer.encode([text])
    assert ids == tokenizer.encode([normal])
    assert tokenizer.decode(ids) == [normal]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\r\n", "\u3000\u00a0", "\u2028"])
def test_blank_text_has_no_ids(tokenizer: Tokenizer, blank: str) -> None:
    assert tokenizer.encode([blank]) == [[]]


@pytest.mark.parametrize("literal", ["<pad>", "<unk>", "<s>", "</s>", "Haus<s>Tür </s>"])
def test_a_literal_special_piece_is_ordinary_text(literal: str) -> None:
    tokenizer = trained([*SENTENCES, "<>/ pad unk s"], 160)
    [ids] = tokenizer.encode([literal])
    assert {PAD, UNK, BOS, EOS}.isdisjoint(ids)
    assert tokenizer.decode([ids]) == [literal]


def test_special_ids_are_not_decoded(tokenizer: Tokenizer) -> None:
    [ids] = tokenizer.encode(["Der Bär hört"])
    noisy = [BOS, ids[0], UNK, *ids[1:], EOS, PAD, PAD]
    assert tokenizer.decode([noisy, [PAD, UNK, BOS, EOS], []]) == ["Der Bär hört", "", ""]


def test_any_unicode_is_encoded_and_decoded(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    texts = [random_text(rng) for _ in range(2000)]
    rows = tokenizer.encode(texts)
    assert len(rows) == 2000
    assert rows == [tokenizer.encode([text])[0] for text in texts]
    allowed = {UNK, *range(EOS + 1, VOCAB_SIZE)}
    for text, ids in zip(texts, rows, strict=True):
        assert allowed.issuperset(ids), text
        [decoded] = tokenizer.decode([ids])
        assert isinstance(decoded, str)
        assert decoded.encode("utf-8").decode("utf-8") == decoded  # no lone surrogates
        assert len(decoded.splitlines()) <= 1, text


# Training


def test_few_lines_are_encoded_and_decoded_as_many(bpe: Tokenizer) -> None:
    lines = ["One small step.", "", "a \u0627 b", "\U0001f642 x"] * FEW
    together = bpe.encode(lines)
    assert len(lines) > FEW
    assert [bpe.encode([line])[0] for line in lines] == together
    assert [bpe.decode([row])[0] for row in together] == bpe.decode(together)


def test_training_twice_gives_the_same_bytes(tokenizer: Tokenizer) -> None:
    assert trained().proto == tokenizer.proto
    assert trained(SENTENCES[:200]).proto != tokenizer.proto


def test_training_takes_any_iterable(tokenizer: Tokenizer) -> None:
    assert tokenizers.train(iter(SENTENCES), VOCAB_SIZE).proto == tokenizer.proto


def test_too_large_a_vocabulary_names_the_largest_that_works() -> None:
    with pytest.raises(ValueError, match="vocab_size=90000: too large") as caught:
        trained(vocab_size=90000)
    largest = int(re.findall(r"\d+", str(caught.value))[-1])
    assert trained(vocab_size=largest).vocab_size == largest
    with pytest.raises(ValueError, match=f"at most {largest}"):
        trained(vocab_size=largest + 1)


@pytest.mark.parametrize("vocab_size", [1, 3, 4, 20])
def test_too_small_a_vocabulary_is_refused_in_words(vocab_size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size={vocab_size}: too small") as caught:
        trained(vocab_size=vocab_size)
    assert ".cc(" not in str(caught.value)


@pytest.mark.parametrize(
    "sentences",
    [
        SENTENCES,
        ["a"],
        ["机器翻译", "はむずかしい"],  # fewer words than characters
        ["<s> </s> <pad> <unk>"],
        ["ab " + "a" * 10**6],  # the long word is left out
        ["ab " + "\ufdfa" * tokenizers.MAX_WORD],  # NFKC makes 18 characters of each
    ],
)
def test_a_size_that_nobody_insists_on_becomes_one_that_the_text_supports(
    sentences: list[str],
) -> None:
    fitting = tokenizers.train(sentences, 90_000, exact=False)
    assert 4 < fitting.vocab_size < 90_000
    assert fitting.proto == trained(sentences, fitting.vocab_size).proto
    if sentences is SENTENCES:
        assert fitting.vocab_size < 150
        ids = set(itertools.chain(*fitting.encode(sentences)))
        assert len(ids) > 0.7 * fitting.vocab_size  # of the largest, less than a third


def test_one_text_is_no_list_of_its_letters(tokenizer: Tokenizer) -> None:
    for encode in (tokenizer.encode, tokenizer.encode_target):
        with pytest.raises(TypeError, match=r"encode wants a list of sentences: write \[text\]"):
            encode("Der Bär")  # type: ignore[arg-type]


def test_a_size_that_nobody_insists_on_is_at_most_half_the_number_of_words() -> None:
    """Also where the text supports more: else a little more text had several times the pieces."""
    syllables = ["ba", "de", "gi", "lo", "mu", "nek", "rap", "sit"]
    words = [" ".join(map("".join, itertools.product(syllables, repeat=3)))]  # 512
    assert tokenizers.train(words, 200, exact=False).proto == trained(words, 200).proto
    assert trained(words, 300).vocab_size == 300
    assert tokenizers.train(words, 300, exact=False).proto == trained(words, 256).proto


def test_too_small_a_vocabulary_names_the_smallest_that_works() -> None:
    with pytest.raises(ValueError, match="too small") as caught:
        trained(vocab_size=20)
    smallest = int(re.findall(r"\d+", str(caught.value))[-1])
    assert trained(vocab_size=smallest).vocab_size == smallest
    with pytest.raises(ValueError, match="too small"):
        trained(vocab_size=smallest - 1)


@pytest.mark.parametrize("sentences", [[], [""], ["", "  ", "\n"], ["a" * 10**5]])
def test_empty_text_is_refused_in_words(sentences: list[str]) -> None:
    with pytest.raises(ValueError, match="no text to train a tokenizer on"):
        trained(sentences)


@pytest.mark.parametrize("vocab_size", ["x", "150", 0, -1, 2.5, None, True, 2**31, 10**30])
def test_vocab_size_must_be_a_whole_number(vocab_size: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"vocab_size={vocab_size!r}: must be a whole")):
        tokenizers.train(SENTENCES, vocab_size)  # type: ignore[arg-type]


def test_an_error_of_the_reader_is_not_hidden() -> None:
    def broken():
        yield from SENTENCES[:10]
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        tokenizers.train(broken(), VOCAB_SIZE)


def test_odd_unicode_in_the_training_text_does_no_harm() -> None:
    odd = [*SENTENCES, "Haus \ud800 Tür", "Bär\x00hört", "\ufeffVögel\r\n"]
    assert trained(odd, 160).decode(trained(odd, 160).encode(SENTENCES)) == SENTENCES


# Files


def test_saved_and_loaded(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "new" / "small.model"
    tokenizers.save(tokenizer, path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["small.model", "small.vocab"]
    loaded = Tokenizer.load(path)
    assert loaded.proto == tokenizer.proto == path.read_bytes()
    assert loaded.encode(SENTENCES) == tokenizer.encode(SENTENCES)
    listed = (tmp_path / "new" / "small.vocab").read_text(encoding="utf-8").split("\n")
    assert listed == [*tokenizer.pieces(list(range(VOCAB_SIZE))), ""]


def test_saving_replaces_an_older_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "small.model"
    tokenizers.save(trained(vocab_size=120), path)
    tokenizers.save(tokenizer, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.model", "small.vocab"]
    assert Tokenizer.load(path).vocab_size == VOCAB_SIZE
    assert len((tmp_path / "small.vocab").read_text().splitlines()) == VOCAB_SIZE


@pytest.mark.parametrize("damage", ["empty", "text", "cut in half", "beginning lost"])
def test_a_damaged_file_is_named(tokenizer: Tokenizer, tmp_path: Path, damage: str) -> None:
    proto = tokenizer.proto
    content = {
        "empty": b"",
        "text": b"This is no model.",
        "cut in half": proto[: len(proto) // 2],
        "beginning lost": proto[10:],
    }[damage]
    path = tmp_path / "bad.model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: not a SentencePiece model")):
        Tokenizer.load(path)


def test_a_model_with_other_special_ids_is_named(tmp_path: Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        minloglevel=2,
    )
    path = tmp_path / "other.model"
    path.write_bytes(model.getvalue())
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        Tokenizer.load(path)
    assert "(-1, 0, 1, 2)" in str(caught.value)
    assert "(0, 1, 2, 3)" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.model"):
        Tokenizer.load(tmp_path / "absent.model")


def test_sampled_pieces_spell_the_same_text_and_follow_from_the_seed(bpe: Tokenizer) -> None:
    lines = ["Where do you live?", "My sister bought a new red bicycle."] * 20
    assert bpe.sample(lines, 0.0, seed=1) == bpe.encode(lines)
    sampled = bpe.sample(lines, 0.5, seed=1)
    assert bpe.decode(sampled) == lines
    assert bpe.sample(lines, 0.5, seed=1) == sampled != bpe.sample(lines, 0.5, seed=2)
    assert bpe.sample([], 0.5, seed=1) == []
    alone = [bpe.sample(lines[:1], 0.5, seed) for seed in range(9)]  # in the same thread
    assert [bpe.sample(lines[:1], 0.5, seed) for seed in range(9)] == alone
    assert sum(map(len, sampled)) > 1.2 * sum(map(len, bpe.encode(lines)))
    assert len({tuple(ids) for ids in sampled}) > 10  # equal lines get different pieces


def test_a_seed_means_the_same_pieces_in_every_process(bpe: Tokenizer, tmp_path: Path) -> None:
    """A resumed training continues as if it had not stopped; SentencePiece 0.2.2 breaks this."""
    tokenizers.save(bpe, tmp_path / "bpe.model")
    lines = ["Where do you live?", "My sister bought a new red bicycle."] * 3
    program = (
        "import sys; from mt.data.tokenizer import Tokenizer; "
        "print(Tokenizer.load(sys.argv[1]).sample(sys.argv[2:], 0.5, seed=1))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "bpe.model"), *lines]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.strip() == str(bpe.sample(lines, 0.5, seed=1))
