"""The same lines out for any neighbours in the batch, and one line out for any line in."""

import gzip
import itertools
import logging
import random

import pytest
from conftest import SHARED

from mt.data import phrasebook
from mt.inference.options import SearchOptions
from mt.inference.translation import Translation
from mt.inference.translator import Translator

TATOEBA = SHARED / "data" / "tatoeba" / "test_v2020-07-28.en.gz"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """300 sentences of all lengths."""
    if not TATOEBA.is_file():
        return [pair[0] for pair in itertools.islice(phrasebook.phrases(), 300)]
    with gzip.open(TATOEBA, "rt", encoding="utf-8") as stream:
        return [line.rstrip("\n") for line in stream][:: 10_000 // 300][:300]


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam_size=1, max_length=16),
        SearchOptions(beam_size=4, max_length=16, n_best=2),
    ],
    ids=["greedy", "beam"],
)
def test_300_sentences_alone_and_in_batches(
    babbling: Translator, lines: list[str], options: SearchOptions
) -> None:
    together = babbling.translate(lines, options, batch_size=64)
    shuffled = random.Random(0).sample(range(300), 300)
    again = babbling.translate([lines[i] for i in shuffled], options, batch_size=64)
    assert len({result.text for result in together}) > 150, "a model that ignores its source"
    in_order = [again[shuffled.index(i)] for i in range(300)]
    one_by_one = babbling.translate(lines, options, batch_size=1)
    for results in (one_by_one, in_order):
        for result, expected in zip(together, results, strict=True):
            assert result.source == expected.source
            assert result.parts[0].output == expected.parts[0].output
            log_probs = expected.parts[0].log_probs
            assert result.parts[0].log_probs == pytest.approx(log_probs, abs=1e-4)
            assert result.score == pytest.approx(expected.score, abs=1e-4)
            texts, scores = zip(*result.n_best, strict=True)
            expected_texts, expected_scores = zip(*expected.n_best, strict=True)
            assert texts == expected_texts
            assert scores == pytest.approx(expected_scores, abs=1e-4)


def assert_a_line_each(results: list[Translation], sources: list[str]) -> None:
    assert [result.source for result in results] == sources
    for result in results:
        for text, _ in result.n_best:
            assert len(text.splitlines()) <= 1
            text.encode("utf-8")


def test_2000_random_token_sequences(babbling: Translator) -> None:
    rng = random.Random(0)
    vocabulary = babbling.tokenizer.all_pieces()
    sources = [
        "".join(rng.choices(vocabulary, k=rng.randrange(30))).replace("▁", " ") for _ in range(2000)
    ]
    assert_a_line_each(babbling.translate(sources, beam_size=2, n_best=2, max_length=8), sources)


@pytest.mark.parametrize("split", [False, True])
def test_2000_random_unicode_strings(
    babbling: Translator, split: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(1)
    odd = "😀👨‍👩‍👧\u0300\u0308\u200b\u2060\ufeff\x00\t\n\r\x85\u2028\ud800\udfff。"
    ends = (0x80, 0x250, 0x3000, 0x110000)  # most after the third are unassigned
    pools = [*(range(end) for end in ends), list(map(ord, odd))]
    sources = [
        "".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(40)))
        for _ in range(2000)
    ]
    with caplog.at_level(logging.CRITICAL):
        results = babbling.translate(sources, beam_size=1, max_length=8, split=split)
    assert_a_line_each(results, sources)
