"""Prepared corpora: sentence pairs, cleaned and tokenised once."""

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PAIRS
from corpus_formats import (
    NASTY,
    Format,
    as_gzip,
    as_nested_json,
    as_prefix,
    as_tsv,
    nasty_pairs,
)

from mt.data import preprocessing
from mt.data import tokenizer as tokenizers
from mt.data.prepared_corpus import PreparedCorpus
from mt.data.preprocessing import PairFilter
from mt.data.readers import CorpusReader, FileReader, Pair
from mt.data.tokenizer import Tokenizer
from mt.utils import atomic

DEFAULTS = PairFilter()


class ListReader:
    """Reads a list of pairs and counts how often."""

    def __init__(self, pairs: list[Pair], name: str = "listed") -> None:
        self.list, self.name, self.reads = pairs, name, 0

    def pairs(self, split: str) -> Iterator[Pair]:
        self.reads += 1
        yield from self.list

    def identity(self, split: str) -> list[Any]:
        return [self.name, split]


class InterruptedReader(ListReader):
    """Fails before it has read everything, as when the machine goes down."""

    error: BaseException = KeyboardInterrupt()

    def pairs(self, split: str) -> Iterator[Pair]:
        yield from self.list * 1000
        raise self.error


def content(folder: Path) -> list[str]:
    """The paths in it, without the empty files of locks, which stay."""
    paths = (path for path in folder.rglob("*") if path.suffix != ".lock")
    return sorted(str(path.relative_to(folder)) for path in paths)


def as_lists(arrays: list[np.ndarray]) -> list[list[int]]:
    return [array.tolist() for array in arrays]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


Prepare = Callable[..., PreparedCorpus]


@pytest.fixture
def prepare(small_tokenizer: Tokenizer, cache: Path) -> Prepare:
    """Prepares a reader's training split; the options replace the defaults."""

    def call(reader: CorpusReader, pair_filter: PairFilter = DEFAULTS, **options: Any) -> Any:
        options = {"cache_dir": cache, **options}
        return preprocessing.prepare(reader, "train", small_tokenizer, pair_filter, **options)

    return call


def test_ids_are_the_tokenizers(prepare: Prepare, small_tokenizer: Tokenizer) -> None:
    prepared = prepare(ListReader(PAIRS))
    assert len(prepared) == len(PAIRS)
    src, tgt = prepared.fetch(list(range(len(PAIRS))))
    assert as_lists(src) == small_tokenizer.encode([en for en, _ in PAIRS])
    assert as_lists(tgt) == small_tokenizer.encode([de for _, de in PAIRS])
    assert src[0].dtype == np.uint16
    for lengths, arrays in zip(prepared.lengths(), (src, tgt), strict=True):
        assert lengths.tolist() == [len(array) + 1 for array in arrays]


@pytest.mark.parametrize("indices", [[5], [3, 1, 2], [7, 7, 0, 7], [35, 0, 35, 17], [2, 3, 4]])
def test_pairs_come_in_the_order_asked_for(
    prepare: Prepare, small_tokenizer: Tokenizer, indices: list[int]
) -> None:
    prepared = prepare(ListReader(PAIRS))
    src, tgt = prepared.fetch(indices)
    assert as_lists(src) == small_tokenizer.encode([PAIRS[i][0] for i in indices])
    assert as_lists(tgt) == small_tokenizer.encode([PAIRS[i][1] for i in indices])


def test_more_pairs_than_a_block_keep_their_order(
    prepare: Prepare, small_tokenizer: Tokenizer
) -> None:
    pairs = [(en, f"{number} {de}") for number in range(700) for en, de in PAIRS]  # 25,200
    pairs[12_345] = ("", "dropped")
    prepared = prepare(ListReader(pairs))
    assert (prepared.report["read"], prepared.report["kept"]) == (25_200, 25_199)
    places = [0, 9_999, 10_000, 12_344, 12_345, 25_198]
    _, tgt = prepared.fetch(places)
    kept = pairs[:12_345] + pairs[12_346:]
    assert as_lists(tgt) == small_tokenizer.encode([kept[i][1] for i in places])
    assert len(prepared.lengths()[0]) == 25_199


def test_empty_sides_that_are_kept_have_no_ids(
    prepare: Prepare, small_tokenizer: Tokenizer
) -> None:
    pairs = [("", "a"), *PAIRS[:2], ("a", "")]
    prepared = prepare(ListReader(pairs), PairFilter(empty=False))
    src, tgt = prepared.fetch([3, 0, 1])
    assert [len(array) for array in (tgt[0], src[1])] == [0, 0]
    assert as_lists(src[2:]) == small_tokenizer.encode([PAIRS[0][0]])
    assert prepared.lengths()[0][0] == 1  # eos alone


def test_every_pair_is_accounted_for(prepare: Prepare, small_tokenizer: Tokenizer) -> None:
    dirty = [
        *PAIRS[:5],
        ("", "leer"),
        ("empty", "\u200b"),
        PAIRS[2],
        ("same", "same"),
        ("the door " * 50, "die Tür"),
        ("the key the key the key the key", "a"),
        PAIRS[0],
    ]
    prepared = prepare(ListReader(dirty), PairFilter(True, 60, 6.0, True, True))
    assert prepared.report == {
        "split": "train",
        "read": 12,
        "kept": 5,
        "dropped": {"empty": 2, "identical": 1, "max_length": 1, "max_ratio": 1, "duplicates": 2},
    }
    assert len(prepared) == 5
    src, _ = prepared.fetch(list(range(5)))
    assert as_lists(src) == small_tokenizer.encode([en for en, _ in PAIRS[:5]])


def test_the_table_is_for_people() -> None:
    report = {"split": "train", "read": 4_508_785, "dropped": {"empty": 1_234}, "kept": 4_507_551}
    assert preprocessing.format_report(report) == (
        "train:\n"
        "  pairs read      4,508,785\n"
        "  dropped: empty      1,234\n"
        "  kept            4,507,551"
    )


@pytest.mark.parametrize("form", [as_prefix, as_gzip, as_tsv, as_nested_json])
def test_every_source_is_prepared_alike(prepare: Prepare, tmp_path: Path, form: Format) -> None:
    prepared = prepare(FileReader(**form(tmp_path / "files", nasty_pairs())))
    listed = prepare(ListReader(nasty_pairs()))
    assert prepared.report == listed.report
    assert prepared.report["dropped"]["empty"] == 1
    everything = list(range(len(listed)))
    for side, expected in zip(prepared.fetch(everything), listed.fetch(everything), strict=True):
        assert as_lists(side) == as_lists(expected)


def test_the_second_time_nothing_is_read(prepare: Prepare, cache: Path) -> None:
    reader = ListReader(PAIRS)
    first = prepare(reader)
    second = prepare(reader, cache_dir=str(cache))
    assert reader.reads == 1
    assert second.report == first.report
    assert as_lists(second.fetch([3])[0]) == as_lists(first.fetch([3])[0])
    [folder] = cache.glob("train-*")
    assert content(folder) == ["fingerprints.npy", "lengths.npy", "pairs.arrow", "report.json"]


def test_whatever_a_corpus_depends_on_makes_another(
    prepare: Prepare, small_tokenizer: Tokenizer, cache: Path
) -> None:
    smaller = tokenizers.train(itertools.chain.from_iterable(PAIRS), 100)
    reader = ListReader(PAIRS)
    cases: list[tuple[ListReader, str, Tokenizer, PairFilter, int | None]] = [
        (reader, "train", small_tokenizer, PairFilter(), None),
        (reader, "validation", small_tokenizer, PairFilter(), None),
        (reader, "train", smaller, PairFilter(), None),
        (reader, "train", small_tokenizer, PairFilter(max_length=255), None),
        (reader, "train", small_tokenizer, PairFilter(duplicates=True), None),
        (reader, "train", small_tokenizer, PairFilter(), 36),
        (reader, "train", small_tokenizer, PairFilter(), 7),
    ]
    for number, (_, split, tokenizer, rules, limit) in enumerate(cases, start=1):
        prepared = preprocessing.prepare(reader, split, tokenizer, rules, cache, limit)
        assert reader.reads == number
        assert len(prepared) == (limit or len(PAIRS))
    renamed = ListReader(PAIRS, "another name")
    prepare(renamed)
    assert renamed.reads == 1
    assert len(list(cache.glob("[a-z]*"))) == len(cases) + 1


def test_a_changed_file_is_read_again(
    prepare: Prepare, small_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    reader = FileReader(**as_prefix(tmp_path / "files", PAIRS))
    prepare(reader)
    changed = [(en, de.upper()) for en, de in PAIRS]  # files of the same size
    as_prefix(tmp_path / "files", changed)
    os.utime(tmp_path / "files" / "set.de", (1e9, 1e9))
    prepared = prepare(reader)
    _, tgt = prepared.fetch([0])
    assert as_lists(tgt) == small_tokenizer.encode([changed[0][1]])


def test_other_columns_of_a_file_are_another_corpus(
    prepare: Prepare, small_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    options = as_tsv(tmp_path, PAIRS)
    for src, tgt, first in (("en", "de", PAIRS[0][0]), ("de", "en", PAIRS[0][1])):
        prepared = prepare(FileReader(**options, src=src, tgt=tgt))
        assert as_lists(prepared.fetch([0])[0]) == small_tokenizer.encode([first])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ValueError("row 7")])
def test_what_was_interrupted_leaves_nothing_and_starts_again(
    prepare: Prepare, cache: Path, error: BaseException
) -> None:
    broken = InterruptedReader(PAIRS)
    broken.error = error
    with pytest.raises(type(error)):
        prepare(broken)
    assert content(cache) == []
    whole = ListReader(PAIRS)  # of the same identity
    assert len(prepare(whole)) == len(PAIRS)
    assert whole.reads == 1


def test_what_a_killed_process_left_is_not_used(
    prepare: Prepare, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL or a power cut nothing removes the half-written folder."""
    with monkeypatch.context() as killed:
        killed.setattr(atomic.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            prepare(InterruptedReader(PAIRS))
    assert any(name.endswith("pairs.arrow") for name in content(cache))
    whole = ListReader(PAIRS)
    prepared = prepare(whole)
    assert whole.reads == 1
    assert not any(name.startswith(".") for name in content(cache))
    assert prepared.report["read"] == len(prepared) == len(PAIRS)


def test_of_two_processes_one_prepares_and_the_other_waits(
    prepare: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(ListReader):
        started, go = threading.Event(), threading.Event()

        def pairs(self, split: str) -> Iterator[Pair]:
            self.started.set()
            assert self.go.wait(30)
            yield from super().pairs(split)

    reader = Slow(PAIRS)

    def work() -> int:
        return len(prepare(reader))

    with caplog.at_level("INFO", "mt"), ThreadPoolExecutor(2) as pool:
        first = pool.submit(work)
        assert reader.started.wait(30)
        second = pool.submit(work)
        while "waiting for another process" not in caplog.text:
            assert not second.done()
            time.sleep(0.01)
        reader.go.set()
        assert first.result() == second.result() == len(PAIRS)
    assert reader.reads == 1


def test_without_a_terminal_a_line_now_and_then(
    prepare: Prepare, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preprocessing, "LOG_INTERVAL", 0)
    with caplog.at_level("INFO", "mt"):
        prepare(ListReader(PAIRS * 600))
    counts = [record.message for record in caplog.records]
    assert counts == [f"preparing train: {n} pairs read" for n in ("10,000", "20,000", "21,600")]


def test_a_folder_without_its_report_is_made_again(prepare: Prepare, cache: Path) -> None:
    reader = ListReader(PAIRS)
    prepare(reader)
    [folder] = cache.glob("train-*")
    (folder / "report.json").unlink()
    (folder / "pairs.arrow").write_bytes(b"half")
    assert len(prepare(reader)) == len(PAIRS)
    assert reader.reads == 2


def test_a_large_vocabulary_has_larger_ids(prepare: Prepare, cache: Path) -> None:
    class Large:
        proto, vocab_size = b"large", 70_000

        def encode(self, sentences: list[str]) -> list[list[int]]:
            return [[69_999, len(sentence)] for sentence in sentences]

        encode_target = encode

    prepared = preprocessing.prepare(ListReader(PAIRS), "train", Large(), PairFilter(), cache)
    src, _ = prepared.fetch([1])
    assert src[0].tolist() == [69_999, len(PAIRS[1][0])]
    assert src[0].dtype == np.int32


def test_the_limit_takes_the_first_pairs_and_reads_no_more(prepare: Prepare) -> None:
    reader = InterruptedReader(PAIRS)  # reading it to its end fails
    prepared = prepare(reader, PairFilter(duplicates=True), limit=40)
    assert (prepared.report["read"], prepared.report["kept"]) == (40, 36)


@pytest.mark.parametrize("limit", [0, -1, "3", 2.5])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"limit={limit!r}: must be null or a whole")):
        preprocessing.texts(ListReader(PAIRS), "test", limit)


def test_an_empty_corpus_is_refused(prepare: Prepare, cache: Path) -> None:
    with pytest.raises(ValueError, match="the corpus is empty"):
        prepare(ListReader([]))
    assert content(cache) == []
    with pytest.raises(ValueError, match="the corpus is empty"):
        preprocessing.texts(ListReader([]), "test")


def test_a_corpus_of_which_nothing_is_left_is_refused_with_the_table(
    prepare: Prepare, cache: Path
) -> None:
    pairs = [("", "a"), ("", ""), *PAIRS]
    with pytest.raises(
        ValueError, match=r"no pair of train is left after cleaning, .*max_length"
    ) as caught:
        prepare(ListReader(pairs), PairFilter(max_length=1))
    for row in ("pairs read *38\n", "dropped: empty *2\n", "dropped: max_length *36\n", "kept *0$"):
        assert re.search(row, str(caught.value))
    assert content(cache) == []


def test_texts_are_as_they_are(tmp_path: Path) -> None:
    reader = FileReader(**as_prefix(tmp_path, nasty_pairs()))
    assert preprocessing.texts(reader, "train") == (
        [en for en, _ in nasty_pairs()],
        [de for _, de in nasty_pairs()],
    )
    assert preprocessing.texts(reader, "train", 2) == (NASTY[:2], ["0 plain", "1 a lone \r stays"])
