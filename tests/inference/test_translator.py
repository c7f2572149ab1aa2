"""Lines in, lines out: order, company, blank lines, odd Unicode, workers, precision, devices."""

import io
import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from mt.data import tokenizer as tokenizers
from mt.data.tokenizer import Tokenizer
from mt.inference.beam_search import search
from mt.inference.options import SearchOptions
from mt.inference.translation import Translation
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.decoder_only import DecoderOnly
from mt.model.device import pick_device
from mt.model.transformer import Transformer

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
        assert_same(
            [results[0], results[2]], translator.translate(["A door", "bear"], beam_size=beam_size)
        )


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


# Company


@pytest.mark.parametrize("beam_size", [1, 4])
def test_neither_batch_size_nor_order_matters(translator: Translator, beam_size: int) -> None:
    options = SearchOptions(beam_size, n_best=min(beam_size, 2), max_length=30)
    whole = translator.translate(MIXED, options, batch_size=64)
    assert len({result.text for result in whole}) > 15, "a model that ignores its source"
    for batch_size in (1, 3):
        assert_same(translator.translate(MIXED, options, batch_size=batch_size), whole)
    order = random.Random(1).sample(range(len(MIXED)), len(MIXED))
    shuffled = translator.translate([MIXED[i] for i in order], options)
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
        ({"max_length": 4, "min_length": 5}, "min_length=5: must not exceed max_length=4"),
        ({"temperature": 2.0}, "are for sampling: set samples too"),
        ({"mbr": True, "beam_size": 1}, "mbr chooses among hypotheses"),
    ],
)
def test_options_that_make_no_sense(translator: Translator, options: dict, message: str) -> None:
    for sentences in ([], ["A door"]):
        with pytest.raises(ValueError, match=message):
            translator.translate(sentences, **options)


def test_an_unknown_option_is_named(translator: Translator) -> None:
    with pytest.raises(TypeError, match="beams"):
        translator.translate(["A door"], beams=4)


def test_a_text_instead_of_lines_is_refused(translator: Translator) -> None:
    with pytest.raises(TypeError, match="translate_text"):
        translator.translate("A door")


def test_settings_go_before_the_options_that_they_change(translator: Translator) -> None:
    options = SearchOptions(beam_size=4, alpha=0.0)
    changed = translator.translate(MIXED[:4], options, beam_size=1)
    assert changed == translator.translate(MIXED[:4], beam_size=1, alpha=0.0)


# Progress


def test_progress_counts_the_lines(translator: Translator) -> None:
    done: list[int] = []
    translator.translate(MIXED, beam_size=1, batch_size=4, on_progress=done.append)
    assert max(done) <= 4
    assert sum(done) == len(MIXED)


# Workers


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_nothing(
    model: Transformer, tokenizer: Tokenizer, translator: Translator, workers: int
) -> None:
    several = Translator(model, tokenizer, MAX_LENGTH, workers=workers)
    names: set[str] = set()
    done: list[int] = []

    def progress(sentences: int) -> None:
        names.add(threading.current_thread().name)
        done.append(sentences)

    options = SearchOptions(beam_size=2, n_best=2, max_length=20)
    results = several.translate(MIXED, options, batch_size=4, on_progress=progress)
    assert_same(results, translator.translate(MIXED, options))
    assert names == {threading.current_thread().name}, "a progress bar is not for many threads"
    assert sum(done) == len(MIXED)


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.usefixtures("two_threads")
def test_workers_share_the_threads_and_give_them_back(
    model: Transformer,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    seen: list[tuple[str, int]] = []

    def watched(*arguments: Any) -> list:
        seen.append((threading.current_thread().name, torch.get_num_threads()))
        if len(seen) > 4:
            raise RuntimeError("a worker fell ill")
        return search(*arguments)

    monkeypatch.setattr("mt.inference.translator.search", watched)
    several = Translator(model, tokenizer, MAX_LENGTH, workers=workers)
    several.translate(MIXED[:16], beam_size=1, batch_size=4)
    assert {threads for _, threads in seen} == {1}
    assert all(name.startswith("mt") for name, _ in seen)
    assert torch.get_num_threads() == 2
    with pytest.raises(RuntimeError, match="a worker fell ill"):
        several.translate(MIXED, beam_size=1, batch_size=4)
    assert torch.get_num_threads() == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mt")]


def test_a_single_sentence_needs_no_worker(
    model: Transformer, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.inference.batch_runner.ThreadPoolExecutor", None)
    Translator(model, tokenizer, MAX_LENGTH, workers=4).translate(["A door"], beam_size=1)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_workers_that_make_no_sense(
    model: Transformer, tokenizer: Tokenizer, workers: object
) -> None:
    with pytest.raises(ValueError, match=f"workers={workers!r}: must be a whole number"):
        Translator(model, tokenizer, MAX_LENGTH, workers=workers)


# Precision


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_lower_precision_mostly_agrees(
    model: Transformer, tokenizer: Tokenizer, translator: Translator, precision: str
) -> None:
    exact = translator.score(SENTENCES, SENTENCES)
    rounded = Translator(model, tokenizer, MAX_LENGTH, precision=precision)
    for result, truth in zip(rounded.score(SENTENCES, SENTENCES), exact, strict=True):
        assert result.score == pytest.approx(truth.score, rel=0.02)
    firsts = [
        [r.parts[0].output for r in engine.translate(SENTENCES, beam_size=1, max_length=3)]
        for engine in (translator, rounded)
    ]
    agreeing = sum(one == other for one, other in zip(*firsts, strict=True))
    assert agreeing > 0.7 * len(SENTENCES)


# Loading


def test_three_lines_are_enough(
    model: Transformer, tokenizer: Tokenizer, translator: Translator, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    checkpoint.save(path, model, tokenizer, MAX_LENGTH, ["en", "de"], {})

    from mt.inference.translator import Translator

    loaded = Translator.load(str(path), device="cpu")
    text = loaded.translate(["The bear hears the key today."])[0].text

    assert text == translator.translate(["The bear hears the key today."])[0].text
    assert loaded.max_length == MAX_LENGTH
    assert loaded.name == str(path)


def test_workers_are_by_default_as_many_as_threads(
    model: Transformer, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    checkpoint.save(path, model, tokenizer, MAX_LENGTH, ["en", "de"], {})
    assert Translator.load(path, "cpu").workers == torch.get_num_threads()
    assert Translator.load(path, "cpu", workers=3).workers == 3


def test_no_models_are_refused(tokenizer: Tokenizer) -> None:
    for make in (lambda: Translator([], tokenizer, 80), lambda: Translator.load([])):
        with pytest.raises(ValueError, match="no model to translate with"):
            make()


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


# Workers and precision; what goes wrong


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_workers_change_no_batch_where_it_would_show(
    model: Transformer, tokenizer: Tokenizer, precision: str
) -> None:
    one, three = (Translator(model, tokenizer, 80, "", precision, n) for n in (1, 3))
    results = [t.translate(MIXED, beam_size=2, batch_size=9) for t in (one, three)]
    assert_same(*results)


def test_threads_begun_later_are_as_before(model: Transformer, translator: Translator) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def seen() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    torch.set_num_threads(3)
    try:
        Translator(model, translator.tokenizer, 80, workers=2).translate(MIXED)
        assert (torch.get_num_threads(), seen()) == (3, 3)
    finally:
        torch.set_num_threads(1)


def test_logits_that_are_not_numbers_are_told(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Transformer(VOCAB_SIZE, N=1, d_model=16, d_ff=16, h=2).eval()
    with torch.no_grad():
        broken.decoder[0].add_norm[2].norm.bias.fill_(float("nan"))
    [result] = Translator(broken, tokenizer, MAX_LENGTH).translate(["A door"])
    assert result.text == ""
    assert "are not numbers: no translation of 'A door'" in caplog.text


def test_what_goes_beyond_the_learned_positions_is_counted(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    shape = {"N": 1, "d_model": 32, "d_ff": 64, "h": 4}
    models = [Transformer(VOCAB_SIZE, **shape, learned_positions=n).eval() for n in (30, None)]
    translator = Translator(models, tokenizer, MAX_LENGTH)
    lines = ["A door", "", " ".join(SENTENCES[:3])]
    assert 30 <= len(tokenizer.encode(lines[2:])[0]) <= MAX_LENGTH
    results = translator.translate(lines, beam_size=1, min_length=29, max_length=29)
    assert [result.tokens for result in results] == [30, 0, 30]
    message = "{} sentence(s) of the input or output go beyond the 30 positions"
    assert message.format(1) in caplog.text  # the source
    caplog.clear()
    translator.translate(lines, beam_size=1, min_length=30, max_length=30)
    assert message.format(2) in caplog.text
    caplog.clear()
    translator.score(lines[:1], lines[2:])
    assert message.format(1) in caplog.text
    caplog.clear()
    Translator(models[1], tokenizer, MAX_LENGTH).translate(lines, max_length=30)
    assert "positions" not in caplog.text


def test_a_decoder_alone_has_one_sequence_for_both_texts(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    shape = {"N": 1, "d_model": 32, "d_ff": 64, "h": 4}
    source, target = "A door", "A door"
    length = len(tokenizer.encode([source])[0])
    for learned, is_told in ((2 * length + 2, False), (2 * length + 1, True)):
        model = DecoderOnly(VOCAB_SIZE, **shape, learned_positions=learned).eval()
        caplog.clear()
        Translator(model, tokenizer, MAX_LENGTH).score([source], [target])
        assert ("1 sentence(s) of the input or output go beyond" in caplog.text) == is_told


def test_a_text_is_no_list_of_lines(translator: Translator) -> None:
    for call in (
        lambda: translator.score("AB", "CD"),
        lambda: translator.translate(["A", "B"], prefixes="Si"),
        lambda: translator.score(["A"], b"B"),
        lambda: translator.translate(5),
        lambda: translator.translate(None),
    ):
        with pytest.raises(TypeError, match="must be a list of lines"):
            call()
    with pytest.raises(ValueError, match="batch_size=0: must be"):
        translator.score(["A"], ["B"], batch_size=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"terms": 5}, "terms: must be TermRules"),
        ({"terms": ({} for _ in range(1))}, "terms: must be TermRules"),
        ({"options": {"beam_size": 2}}, "options: must be SearchOptions, not dict"),
    ],
)
def test_a_wrong_argument_is_named(
    translator: Translator, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        translator.translate(["A"], **arguments)
    if "options" in arguments:
        with pytest.raises(TypeError, match=message):
            translator.inspect("A", **arguments)


@pytest.mark.parametrize("path", [5, b"everyday"])
def test_what_is_no_path_is_named(path: Any) -> None:
    with pytest.raises(
        TypeError, match=f"path: must be a folder or several, not {type(path).__name__}"
    ):
        Translator.load(path)
