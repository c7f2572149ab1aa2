"""Lines in, lines out: order, company, blank and over-long lines, odd Unicode, devices."""

import io
import itertools
import logging
import random
import time
from pathlib import Path

import pytest
import sentencepiece
import torch

from mt import checkpoint
from mt import tokenizer as tokenizers
from mt.model import Transformer
from mt.tokenizer import Tokenizer
from mt.translator import Translation, Translator, pick_device

SENTENCES = [
    f"{subject} {verb} {thing} {when}."
    for subject, verb, thing, when in itertools.product(
        ["The bear", "A door", "Unsere Großmutter", "Zwölf Vögel"],
        ["hears", "öffnet", "grüßt"],
        ["the key", "die Straße", "das schöne Haus", "2 Äpfel"],
        ["today", "morgen früh", "im Dezember"],
    )
]
MIXED = [  # lengths from one token to many, in no order
    *random.Random(0).sample(SENTENCES, 20),
    *("bear", "A", "A door", "the the the", "😀", " ".join(SENTENCES[:3]), "Zwölf"),
]
VOCAB_SIZE = 120
MAX_LENGTH = 80


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizers.train(SENTENCES, VOCAB_SIZE)


@pytest.fixture(scope="module")
def model() -> Transformer:
    """Random: it babbles, but differently for every source."""
    torch.manual_seed(0)
    return Transformer(VOCAB_SIZE, N=2, d_model=32, d_ff=64, h=4).eval()


@pytest.fixture(scope="module")
def translator(model: Transformer, tokenizer: Tokenizer) -> Translator:
    return Translator(model, tokenizer, MAX_LENGTH)


def assert_same(some: list[Translation], others: list[Translation]) -> None:
    for one, other in zip(some, others, strict=True):
        assert (one.source, one.text, one.tokens) == (other.source, other.text, other.tokens)
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert [text for text, _ in one.n_best] == [text for text, _ in other.n_best]


def lines_of(results: list[Translation]) -> list[str]:
    return [text for result in results for text in (result.text, *(t for t, _ in result.n_best))]


# One line in, one line out


def test_one_translation_for_each_line_in_order(translator: Translator) -> None:
    results = translator.translate(MIXED, beam_size=1)
    assert [result.source for result in results] == MIXED
    assert len({result.text for result in results}) > 15, "a model that ignores its source"
    for sentence, result in zip(MIXED, results, strict=True):
        assert_same([result], translator.translate([sentence], beam_size=1))


def test_no_lines_give_no_translations(translator: Translator) -> None:
    assert translator.translate([]) == []


def test_tokens_and_score_are_those_of_the_output(translator: Translator) -> None:
    for result in translator.translate(MIXED, beam_size=1, alpha=0.0):
        [source] = translator.tokenizer.encode([result.source])
        assert 1 <= result.tokens <= len(source) + 50 + 1  # 6.1, and eos
        assert result.score < 0
        assert result.n_best == ((result.text, result.score),)


BLANK = ["", " ", "\t", "\n", "\r\n", "\u00a0\u3000", "\u2028"]
INVISIBLE = [
    "\u200b",
    "\ufeff",
    " \u200d\u2060 ",
    "\u00ad",
    "\u200e",
    "\x00",
    "\x1b\x7f",
    "\ufeff\r\n",
]


@pytest.mark.parametrize("blank", [*BLANK, *INVISIBLE])
def test_a_line_with_nothing_to_see_is_blank(translator: Translator, blank: str) -> None:
    for beam_size in (1, 4):
        results = translator.translate(["A door", blank, "bear"], beam_size=beam_size)
        assert results[1] == Translation(blank, "", 0.0, 0, (("", 0.0),))
        assert_same([results[0], results[2]], translator.translate(["A door", "bear"], beam_size))


def test_zero_width_characters_do_not_blank_a_line(translator: Translator) -> None:
    [result] = translator.translate(["\ufeffA\u200b door"], beam_size=1)
    assert result.tokens > 0


def test_ten_thousand_blank_lines_are_fast(translator: Translator) -> None:
    start = time.process_time()
    results = translator.translate([""] * 10_000)
    assert time.process_time() - start < 2
    assert [result.text for result in results] == [""] * 10_000


@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_output_has_a_line_break(translator: Translator, beam_size: int) -> None:
    sources = [
        "A\ndoor",
        "A door\r\n",
        "\nbear\n\nhears",
        "the\x0bkey\x0cthe\x1ckey",
        "A\u2028B\x85",
    ]
    results = translator.translate(sources, beam_size=beam_size, n_best=beam_size)
    assert [result.source for result in results] == sources
    assert all(len(text.splitlines()) <= 1 for text in lines_of(results))


def test_line_breaks_of_the_vocabulary_become_blanks() -> None:
    """A SentencePiece model may hold line breaks, and a model may love them."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=trained,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        user_defined_symbols=["\n", "\u2028"],
        **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2},
    )
    tokenizer = Tokenizer(trained.getvalue())
    breaks = [i for i, p in enumerate(tokenizer.pieces(range(VOCAB_SIZE))) if p in "\n\u2028"]
    assert len(breaks) == 2
    torch.manual_seed(0)
    fond = Transformer(VOCAB_SIZE, N=1, d_model=32, d_ff=64, h=4).eval()
    with torch.no_grad():
        wanted = fond.embedding.weight[breaks].sum(dim=0)
        fond.decoder[-1].add_norm[2].norm.bias += 6 * wanted
    results = Translator(fond, tokenizer, MAX_LENGTH).translate(MIXED, beam_size=4, n_best=4)
    assert min(result.tokens for result in results) > 50
    assert {result.text for result in results} == {""}, "the best were to be line breaks alone"
    assert all(len(text.splitlines()) <= 1 for text in lines_of(results))


@pytest.mark.parametrize("beam_size", [1, 2])
def test_any_unicode_is_translated_to_one_line(translator: Translator, beam_size: int) -> None:
    rng = random.Random(beam_size)
    pools = [
        "abc ÄÖÜ.",
        "😀👨‍👩‍👧",
        "机器翻译",
        "\u0300\u0308",
        "\u200b\u2060\ufeff",
        "\x00\t\n\r\x85",
    ]
    pools += ["\ud800\udfff", "".join(chr(rng.randrange(0x110000)) for _ in range(100))]
    texts = [
        "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(20))) for _ in range(300)
    ]
    results = translator.translate(texts, beam_size=beam_size)
    assert [result.source for result in results] == texts
    for text in lines_of(results):
        assert len(text.splitlines()) <= 1
        text.encode("utf-8")


# Company


@pytest.mark.parametrize("beam_size", [1, 4])
def test_neither_batch_size_nor_order_matters(translator: Translator, beam_size: int) -> None:
    n_best = min(beam_size, 2)
    whole = translator.translate(MIXED, beam_size=beam_size, n_best=n_best, batch_size=64)
    assert len({result.text for result in whole}) > 15, "a model that ignores its source"
    for batch_size in (1, 3):
        assert_same(translator.translate(MIXED, beam_size, 0.6, n_best, batch_size), whole)
    order = random.Random(1).sample(range(len(MIXED)), len(MIXED))
    shuffled = translator.translate([MIXED[i] for i in order], beam_size, n_best=n_best)
    assert_same(shuffled, [whole[i] for i in order])


# n-best


@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 1), (4, 1), (4, 3), (4, 4)])
def test_n_best_are_that_many_and_best_first(
    translator: Translator, beam_size: int, n_best: int
) -> None:
    for result in translator.translate(MIXED, beam_size=beam_size, n_best=n_best):
        assert len(result.n_best) == n_best
        assert (result.text, result.score) == result.n_best[0]
        scores = [score for _, score in result.n_best]
        assert scores == sorted(scores, reverse=True)


def test_asking_for_more_does_not_change_the_first(translator: Translator) -> None:
    """The search may stop later for the sake of the second best, never end up worse."""
    one = translator.translate(MIXED, beam_size=4, n_best=1)
    four = translator.translate(MIXED, beam_size=4, n_best=4)
    for first, best in zip(one, four, strict=True):
        assert best.score >= first.score - 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 5, "beam_size": 4}, "n_best=5: must not exceed beam_size=4"),
        ({"n_best": 2, "beam_size": 1}, "n_best=2: must not exceed beam_size=1"),
        ({"n_best": 0}, "n_best=0"),
        ({"beam_size": 0}, "beam_size=0"),
        ({"beam_size": "4"}, "beam_size='4'"),
        ({"alpha": -0.1}, "alpha=-0.1"),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": "x"}, "batch_size='x'"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
    ],
)
def test_options_that_make_no_sense(translator: Translator, options: dict, message: str) -> None:
    for sentences in ([], ["A door"]):
        with pytest.raises(ValueError, match=message):
            translator.translate(sentences, **options)


# Over-long lines


def packed(words: list[str], tokenizer: Tokenizer, max_length: int) -> list[str]:
    """As many words as fit into each part, one after the other."""
    parts = [words[0]]
    for word in words[1:]:
        longer = f"{parts[-1]} {word}"
        if len(tokenizer.encode([longer])[0]) <= max_length:
            parts[-1] = longer
        else:
            parts.append(word)
    return parts


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_over_long_line_is_translated_in_parts(
    model: Transformer, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture, beam_size: int
) -> None:
    short = Translator(model, tokenizer, max_length=16)
    line = " ".join(SENTENCES[:6])
    tokens = len(tokenizer.encode([line])[0])
    parts = packed(line.split(), tokenizer, 16)
    assert len(parts) > 4
    with caplog.at_level(logging.WARNING):
        before, result, after = short.translate(["bear", line, "A door"], beam_size)
    [warning] = [record.getMessage() for record in caplog.records]
    for fact in (line[:30], f"{tokens} tokens", "than the 16", f"in {len(parts)} parts"):
        assert fact in warning
    by_hand = short.translate(parts, beam_size)
    assert result.text == " ".join(part.text for part in by_hand)
    assert result.score == pytest.approx(sum(p.score for p in by_hand) / len(parts), abs=1e-4)
    assert result.tokens == sum(part.tokens for part in by_hand)
    assert_same([before, after], short.translate(["bear", "A door"], beam_size))


def test_a_line_that_just_fits_is_not_split(
    model: Transformer, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = len(tokenizer.encode([SENTENCES[0]])[0])
    Translator(model, tokenizer, max_length=tokens).translate([SENTENCES[0]])
    assert not caplog.records
    Translator(model, tokenizer, max_length=tokens - 1).translate([SENTENCES[0]])
    assert "in 2 parts" in caplog.text


def test_an_over_long_word_is_split_too(model: Transformer, tokenizer: Tokenizer) -> None:
    results = Translator(model, tokenizer, 16).translate(["b" * 500, "A door"], 2, n_best=2)
    assert len(results) == 2
    assert results[0].tokens > 30
    assert len(results[0].n_best) == 2
    assert all(len(text.splitlines()) <= 1 for text in lines_of(results))


# Progress


def test_progress_counts_the_lines(translator: Translator) -> None:
    done: list[int] = []
    translator.translate(MIXED, beam_size=1, batch_size=4, on_progress=done.append)
    assert max(done) <= 4
    assert sum(done) == len(MIXED)


# Loading


def test_three_lines_are_enough(
    model: Transformer, tokenizer: Tokenizer, translator: Translator, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    checkpoint.save(path, model, tokenizer, MAX_LENGTH, ["en", "de"], {})

    from mt.translator import Translator

    loaded = Translator.load(str(path), device="cpu")
    text = loaded.translate(["The bear hears the key today."])[0].text

    assert text == translator.translate(["The bear hears the key today."])[0].text
    assert loaded.max_length == MAX_LENGTH
    assert loaded.name == str(path)


def test_loading_from_nowhere(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        Translator.load(tmp_path / "absent", device="cpu")


def test_pick_device() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    "name",
    ["toaster", "", "cpu:x", "cuda:99", *([] if torch.cuda.is_available() else ["cuda"])],
)
def test_a_device_that_is_not_there(name: str, tmp_path: Path) -> None:
    for use in (pick_device, lambda device: Translator.load(tmp_path, device)):
        with pytest.raises(ValueError, match=f"device {name!r} cannot be used here") as caught:
            use(name)
        assert "\n" not in str(caught.value)
