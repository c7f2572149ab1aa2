"""Sentence pairs: cleaned by the rules, tokenised and prepared once."""

import itertools
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PAIRS
from test_readers import (  # noqa: F401, fixtures among them
    NASTY,
    Format,
    as_gzip,
    as_nested_json,
    as_prefix,
    as_tsv,
    hub_cache,
    mirror,
    nasty_pairs,
)

from mt.data import preprocessing
from mt.data.preprocessing import DuplicateFilter, PairFilter
from mt.data.readers import FileReader, HubReader, Pair
from mt.data.tokenizer import Tokenizer

# Cleaning

ALL_RULES = PairFilter(
    empty=True, max_length=6, max_ratio=2.0, identical=True, duplicates=True
)  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "lengths", "reason"),
    [
        (("a b", "c"), (2, 1), None),
        (("", "c"), (0, 1), "empty"),
        (("a", " \t"), (1, 0), "empty"),
        (("", ""), (0, 0), "empty"),
        (("same", "same"), (1, 1), "identical"),
        (("same ", " same"), (1, 1), "identical"),
        (("same", "Same"), (1, 1), None),
        (("a", "b"), (6, 6), None),
        (("a", "b"), (7, 6), "max_length"),
        (("a", "b"), (6, 7), "max_length"),
        (("a", "b"), (2, 4), None),
        (("a", "b"), (2, 5), "max_ratio"),
        (("a", "b"), (5, 2), "max_ratio"),
        (("a", "b"), (1, 99), "max_length"),  # the first of two reasons counts
        (("x", "y"), (1, 1), "duplicates"),
        (("x", "y "), (1, 1), None),
        (("x y", ""), (2, 0), "empty"),
    ],
)
def test_each_rule(pair: Pair, lengths: tuple[int, int], reason: str | None) -> None:
    seen = DuplicateFilter()
    assert ALL_RULES.reject_reason(("x", "y"), (1, 1), seen) is None
    assert ALL_RULES.reject_reason(pair, lengths, seen) == reason
    off = PairFilter(False, None, None, False, False)
    assert off.reject_reason(pair, lengths, seen) is None


def test_the_defaults_drop_only_empty_and_very_long() -> None:
    rules = PairFilter()
    assert rules.reject_reason(("a", "a"), (1, 256), DuplicateFilter()) is None
    assert rules.reject_reason(("a", "b"), (1, 257), DuplicateFilter()) == "max_length"
    assert rules.reject_reason(("a", ""), (1, 0), DuplicateFilter()) == "empty"


def test_a_pair_dropped_for_another_reason_is_no_duplicate_later() -> None:
    seen = DuplicateFilter()
    assert ALL_RULES.reject_reason(("x", "y"), (9, 9), seen) == "max_length"
    assert ALL_RULES.reject_reason(("x", "y"), (1, 1), seen) is None
    assert ALL_RULES.reject_reason(("x", "y"), (1, 1), seen) == "duplicates"
    assert ALL_RULES.reject_reason(("y", "x"), (1, 1), seen) is None


def test_reasons_stand_in_the_order_of_the_rules() -> None:
    """A pair against which every rule speaks is counted under the first of them; and so on."""
    rules = {"empty": True, "identical": True, "max_length": 1, "max_ratio": 1, "duplicates": True}
    off = {"empty": False, "identical": False, "max_length": None, "max_ratio": None}
    order = []
    for _ in range(len(rules)):
        seen = DuplicateFilter()
        PairFilter(**{**off, "duplicates": True}).reject_reason(("", ""), (0, 9), seen)
        reason = PairFilter(**rules).reject_reason(("", ""), (0, 9), seen)
        assert reason is not None
        order.append(reason)
        rules[reason] = {**off, "duplicates": False}[reason]
    assert PairFilter(**rules).reject_reason(("", ""), (0, 9), DuplicateFilter()) is None
    assert list(PairFilter().reasons()) == order


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("max_length", 0),
        ("max_length", -3),
        ("max_length", "long"),
        ("max_length", True),
        ("max_ratio", 0.5),
        ("max_ratio", float("nan")),
        ("max_ratio", [2]),
        ("empty", "no"),
        ("identical", 1),
        ("duplicates", "false"),
    ],
)
def test_rules_of_the_wrong_kind_are_refused(rule: str, value: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{rule}={value!r}: must be")):
        PairFilter(**{rule: value})


def test_what_was_seen_stays_seen_beyond_a_merge() -> None:
    seen = DuplicateFilter()
    pairs = [(str(number), "x") for number in range(200_000)]
    assert all(seen.add(pair) for pair in pairs)
    assert len(seen.sorted) > 100_000
    assert not any(seen.add(pair) for pair in pairs)
    assert seen.add(("x", "0"))


# Preparing


class Listed:
    """A source of given pairs that counts how often they are read."""

    def __init__(self, pairs: list[Pair], name: str = "listed") -> None:
        self.list, self.name, self.reads = pairs, name, 0

    def pairs(self, split: str) -> Iterator[Pair]:
        self.reads += 1
        yield from self.list

    def identity(self, split: str) -> list[Any]:
        return [self.name, split]


class Interrupted(Listed):
    """A source during which the machine goes down."""

    error: BaseException = KeyboardInterrupt()

    def pairs(self, split: str) -> Iterator[Pair]:
        yield from self.list * 1000
        raise self.error


def content(folder: Path) -> list[str]:
    """All that lies in it but for locks, which stay behind empty."""
    paths = (path for path in folder.rglob("*") if path.suffix != ".lock")
    return sorted(str(path.relative_to(folder)) for path in paths)


def as_lists(arrays: list[np.ndarray]) -> list[list[int]]:
    return [array.tolist() for array in arrays]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_ids_are_the_tokenizers(small_tokenizer: Tokenizer, cache: Path) -> None:
    prepared = preprocessing.prepare(Listed(PAIRS), "train", small_tokenizer, PairFilter(), cache)
    assert len(prepared) == len(PAIRS)
    src, tgt = prepared.fetch(list(range(len(PAIRS))))
    assert as_lists(src) == small_tokenizer.encode([en for en, _ in PAIRS])
    assert as_lists(tgt) == small_tokenizer.encode([de for _, de in PAIRS])
    assert src[0].dtype == np.uint16
    for lengths, arrays in zip(prepared.lengths(), (src, tgt), strict=True):
        assert lengths.tolist() == [len(array) + 1 for array in arrays]


@pytest.mark.parametrize("indices", [[5], [3, 1, 2], [7, 7, 0, 7], [35, 0, 35, 17], [2, 3, 4]])
def test_pairs_come_in_the_order_asked_for(
    small_tokenizer: Tokenizer, cache: Path, indices: list[int]
) -> None:
    prepared = preprocessing.prepare(Listed(PAIRS), "train", small_tokenizer, PairFilter(), cache)
    src, tgt = prepared.fetch(indices)
    assert as_lists(src) == small_tokenizer.encode([PAIRS[i][0] for i in indices])
    assert as_lists(tgt) == small_tokenizer.encode([PAIRS[i][1] for i in indices])


def test_more_pairs_than_a_block_keep_their_order(small_tokenizer: Tokenizer, cache: Path) -> None:
    pairs = [(en, f"{number} {de}") for number in range(700) for en, de in PAIRS]  # 25,200
    pairs[12_345] = ("", "dropped")
    prepared = preprocessing.prepare(Listed(pairs), "train", small_tokenizer, PairFilter(), cache)
    assert (prepared.report["read"], prepared.report["kept"]) == (25_200, 25_199)
    places = [0, 9_999, 10_000, 12_344, 12_345, 25_198]
    _, tgt = prepared.fetch(places)
    kept = pairs[:12_345] + pairs[12_346:]
    assert as_lists(tgt) == small_tokenizer.encode([kept[i][1] for i in places])
    assert len(prepared.lengths()[0]) == 25_199


def test_empty_sides_that_are_kept_have_no_ids(small_tokenizer: Tokenizer, cache: Path) -> None:
    pairs = [("", "a"), *PAIRS[:2], ("a", "")]
    rules = PairFilter(empty=False)
    prepared = preprocessing.prepare(Listed(pairs), "train", small_tokenizer, rules, cache)
    src, tgt = prepared.fetch([3, 0, 1])
    assert [len(array) for array in (tgt[0], src[1])] == [0, 0]
    assert as_lists(src[2:]) == small_tokenizer.encode([PAIRS[0][0]])
    assert prepared.lengths()[0][0] == 1  # eos alone


def test_every_pair_is_accounted_for(small_tokenizer: Tokenizer, cache: Path) -> None:
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
    rules = PairFilter(True, 60, 6.0, True, True)
    prepared = preprocessing.prepare(Listed(dirty), "train", small_tokenizer, rules, cache)
    assert prepared.report == {
        "split": "train",
        "read": 12,
        "kept": 5,
        "dropped": {
            "empty": 2,
            "identical": 1,
            "max_length": 1,
            "max_ratio": 1,
            "duplicates": 2,
        },
    }
    assert len(prepared) == 5
    src, _ = prepared.fetch(list(range(5)))
    assert as_lists(src) == small_tokenizer.encode([en for en, _ in PAIRS[:5]])


def test_the_table_is_for_people() -> None:
    report = {"split": "train", "read": 4_508_785, "dropped": {"empty": 1_234}, "kept": 4_507_551}
    assert preprocessing.table(report) == (
        "train:\n"
        "  pairs read              4,508,785\n"
        "  dropped: empty              1,234\n"
        "  kept                    4,507,551"
    )


@pytest.mark.parametrize("form", [as_prefix, as_gzip, as_tsv, as_nested_json])
def test_every_source_is_prepared_alike(
    small_tokenizer: Tokenizer, cache: Path, tmp_path: Path, form: Format
) -> None:
    source = FileReader(**form(tmp_path / "files", nasty_pairs()))
    prepared = preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)
    listed = preprocessing.prepare(
        Listed(nasty_pairs()), "train", small_tokenizer, PairFilter(), cache
    )
    assert prepared.report == listed.report
    assert prepared.report["dropped"]["empty"] == 1
    everything = list(range(len(listed)))
    for one, other in zip(prepared.fetch(everything), listed.fetch(everything), strict=True):
        assert as_lists(one) == as_lists(other)


def test_the_hub_is_prepared_alike(
    small_tokenizer: Tokenizer,
    cache: Path,
    mirror: Path,  # noqa: F811
) -> None:
    source = HubReader(str(mirror), "de-en")
    prepared = preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)
    src, tgt = prepared.fetch(list(range(len(PAIRS))))
    assert as_lists(src) == small_tokenizer.encode([en for en, _ in PAIRS])
    assert as_lists(tgt) == small_tokenizer.encode([de for _, de in PAIRS])


def test_the_second_time_nothing_is_read(small_tokenizer: Tokenizer, cache: Path) -> None:
    source = Listed(PAIRS)
    first = preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)
    second = preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), str(cache))
    assert source.reads == 1
    assert second.report == first.report
    assert as_lists(second.fetch([3])[0]) == as_lists(first.fetch([3])[0])
    [folder] = cache.glob("train-*")
    assert content(folder) == ["lengths.npy", "pairs.arrow", "report.json"]


def test_whatever_a_corpus_depends_on_makes_another(
    small_tokenizer: Tokenizer, cache: Path
) -> None:
    from mt.data import tokenizer as tokenizers

    other = tokenizers.train(itertools.chain.from_iterable(PAIRS), 100)
    source = Listed(PAIRS)
    ways: list[tuple[Listed, str, Tokenizer, PairFilter, int | None]] = [
        (source, "train", small_tokenizer, PairFilter(), None),
        (source, "validation", small_tokenizer, PairFilter(), None),
        (source, "train", other, PairFilter(), None),
        (source, "train", small_tokenizer, PairFilter(max_length=255), None),
        (source, "train", small_tokenizer, PairFilter(duplicates=True), None),
        (source, "train", small_tokenizer, PairFilter(), 36),
        (source, "train", small_tokenizer, PairFilter(), 7),
    ]
    for number, (_, split, tokenizer, rules, limit) in enumerate(ways, start=1):
        prepared = preprocessing.prepare(source, split, tokenizer, rules, cache, limit)
        assert source.reads == number
        assert len(prepared) == (limit or len(PAIRS))
    renamed = Listed(PAIRS, "another name")
    preprocessing.prepare(renamed, "train", small_tokenizer, PairFilter(), cache)
    assert renamed.reads == 1
    assert len(list(cache.glob("[a-z]*"))) == len(ways) + 1


def test_a_changed_file_is_read_again(
    small_tokenizer: Tokenizer, cache: Path, tmp_path: Path
) -> None:
    source = FileReader(**as_prefix(tmp_path / "files", PAIRS))
    preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)
    changed = [(en, de.upper()) for en, de in PAIRS]  # ẞ aside, of the same size
    as_prefix(tmp_path / "files", changed)
    os.utime(tmp_path / "files" / "set.de", (1e9, 1e9))
    prepared = preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)
    _, tgt = prepared.fetch([0])
    assert as_lists(tgt) == small_tokenizer.encode([changed[0][1]])


def test_other_columns_of_a_file_are_another_corpus(
    small_tokenizer: Tokenizer, cache: Path, tmp_path: Path
) -> None:
    options = as_tsv(tmp_path, PAIRS)
    for src, tgt, first in (("en", "de", PAIRS[0][0]), ("de", "en", PAIRS[0][1])):
        source = FileReader(**options, src=src, tgt=tgt)
        prepared = preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)
        assert as_lists(prepared.fetch([0])[0]) == small_tokenizer.encode([first])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ValueError("row 7")])
def test_what_was_interrupted_leaves_nothing_and_starts_again(
    small_tokenizer: Tokenizer, cache: Path, error: BaseException
) -> None:
    broken = Interrupted(PAIRS)
    broken.error = error
    with pytest.raises(type(error)):
        preprocessing.prepare(broken, "train", small_tokenizer, PairFilter(), cache)
    assert content(cache) == []
    whole = Listed(PAIRS)  # of the same identity
    assert len(preprocessing.prepare(whole, "train", small_tokenizer, PairFilter(), cache)) == len(
        PAIRS
    )
    assert whole.reads == 1


def test_what_a_killed_process_left_is_not_used(
    small_tokenizer: Tokenizer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tidies up after SIGKILL or a power cut: the half-written folder stays."""
    with monkeypatch.context() as killed:
        killed.setattr(preprocessing.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            preprocessing.prepare(Interrupted(PAIRS), "train", small_tokenizer, PairFilter(), cache)
    assert any(name.endswith("pairs.arrow") for name in content(cache))
    whole = Listed(PAIRS)
    prepared = preprocessing.prepare(whole, "train", small_tokenizer, PairFilter(), cache)
    assert whole.reads == 1
    assert not any(name.startswith(".") for name in content(cache))
    assert prepared.report["read"] == len(prepared) == len(PAIRS)


def test_of_two_processes_one_prepares_and_the_other_waits(
    small_tokenizer: Tokenizer, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(Listed):
        started, go = threading.Event(), threading.Event()

        def pairs(self, split: str) -> Iterator[Pair]:
            self.started.set()
            assert self.go.wait(30)
            yield from super().pairs(split)

    source = Slow(PAIRS)

    def work() -> int:
        return len(preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache))

    with caplog.at_level("INFO", "mt"), ThreadPoolExecutor(2) as pool:
        one = pool.submit(work)
        assert source.started.wait(30)
        other = pool.submit(work)
        while "waiting for another process" not in caplog.text:
            assert not other.done()
            time.sleep(0.01)
        source.go.set()
        assert one.result() == other.result() == len(PAIRS)
    assert source.reads == 1


def test_without_a_terminal_a_line_now_and_then(
    small_tokenizer: Tokenizer, cache: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(preprocessing, "SECONDS_BETWEEN_LINES", 0)
    with caplog.at_level("INFO", "mt"):
        preprocessing.prepare(Listed(PAIRS * 600), "train", small_tokenizer, PairFilter(), cache)
    counts = [record.message for record in caplog.records]
    assert counts == [f"preparing train: {n} pairs read" for n in ("10,000", "20,000", "21,600")]


def test_a_folder_without_its_report_is_made_again(small_tokenizer: Tokenizer, cache: Path) -> None:
    source = Listed(PAIRS)
    preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)
    [folder] = cache.glob("train-*")
    (folder / "report.json").unlink()
    (folder / "pairs.arrow").write_bytes(b"half")
    assert len(preprocessing.prepare(source, "train", small_tokenizer, PairFilter(), cache)) == len(
        PAIRS
    )
    assert source.reads == 2


def test_a_large_vocabulary_has_larger_ids(cache: Path) -> None:
    class Large:
        proto, vocab_size = b"large", 70_000

        def encode(self, sentences: list[str]) -> list[list[int]]:
            return [[69_999, len(sentence)] for sentence in sentences]

        encode_target = encode

    prepared = preprocessing.prepare(Listed(PAIRS), "train", Large(), PairFilter(), cache)
    src, _ = prepared.fetch([1])
    assert src[0].tolist() == [69_999, len(PAIRS[1][0])]
    assert src[0].dtype == np.int32


def test_the_limit_takes_the_first_pairs_and_reads_no_more(
    small_tokenizer: Tokenizer, cache: Path
) -> None:
    source = Interrupted(PAIRS)  # reading it to its end fails
    rules = PairFilter(duplicates=True)
    prepared = preprocessing.prepare(source, "train", small_tokenizer, rules, cache, limit=40)
    assert (prepared.report["read"], prepared.report["kept"]) == (40, 36)


@pytest.mark.parametrize("limit", [0, -1, "3", 2.5])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"limit={limit!r}: must be null or a whole")):
        preprocessing.texts(Listed(PAIRS), "test", limit)


def test_an_empty_corpus_is_refused(small_tokenizer: Tokenizer, cache: Path) -> None:
    with pytest.raises(ValueError, match="the corpus is empty"):
        preprocessing.prepare(Listed([]), "train", small_tokenizer, PairFilter(), cache)
    assert content(cache) == []
    with pytest.raises(ValueError, match="the corpus is empty"):
        preprocessing.texts(Listed([]), "test")


def test_a_corpus_of_which_nothing_is_left_is_refused_with_the_table(
    small_tokenizer: Tokenizer, cache: Path
) -> None:
    pairs = [("", "a"), ("", ""), *PAIRS]
    with pytest.raises(ValueError, match="no pair is left after cleaning") as caught:
        preprocessing.prepare(
            Listed(pairs), "train", small_tokenizer, PairFilter(max_length=1), cache
        )
    for row in ("pairs read *38\n", "dropped: empty *2\n", "dropped: max_length *36\n", "kept *0$"):
        assert re.search(row, str(caught.value))
    assert content(cache) == []


def test_texts_are_as_they_are(tmp_path: Path) -> None:
    source = FileReader(**as_prefix(tmp_path, nasty_pairs()))
    assert preprocessing.texts(source, "train") == (
        [en for en, _ in nasty_pairs()],
        [de for _, de in nasty_pairs()],
    )
    assert preprocessing.texts(source, "train", 2) == (NASTY[:2], ["0 plain", "1 a lone \r stays"])
