"""What figures of the benchmarks are computed from, and that their runs are not mixed."""

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from script_helpers import load_script

from mt.inference.terms import Terms


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "benchmark_data")


@pytest.mark.parametrize(
    ("text", "required", "expected"),
    [
        ("Das Haus ist alt.", [("Haus",)], (1, 1)),
        ("Das Haus ist alt.", [("Haus",), ("neu", "alt")], (2, 2)),
        ("Das Rathaus, die Häuser.", [("Haus",), ("haus",)], (0, 2)),  # a part of a word is none
        ("Das Haus.", [("Hauses",)], (0, 1)),
        ("Das Haus.", [], (0, 0)),
    ],
)
def test_terms_are_used_as_whole_words(
    text: str, required: list[tuple[str, ...]], expected: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    script = load_script(monkeypatch, "benchmark_terms")
    assert script.used([text], [Terms(tuple(required))]) == expected


@pytest.mark.parametrize(
    ("reference", "count", "words"),
    [
        ("Haus, Haus und Haus!", 2, {"Haus"}),
        ("Das Haus 12345 der 4you X_Men", 1, {"Haus"}),
        ("Der Bär", 2, set()),
    ],
)
def test_words_of_letters_are_drawn_once(
    reference: str, count: int, words: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script(monkeypatch, "benchmark_terms")
    drawn = script.draw(reference, count, random.Random(0))
    assert len(drawn) == len(set(drawn)) == min(count, len(words))
    assert set(drawn) <= words


def test_pairs_are_joined_differently_in_each_repetition(data: ModuleType) -> None:
    pairs = [(f"e{n}", f"g{n}") for n in range(10)]
    rows = list(data.join_pairs(pairs, 40))
    assert rows[0] == {"en": "e0", "de": "g0"}
    assert rows[1] == {"en": "e1 e8", "de": "g1 g8"}
    assert rows[10] == {"en": "e0 e4", "de": "g0 g4"}
    assert [len(row["en"].split()) for row in rows[:10]] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert len({row["en"] for row in rows[:20]}) == 20
    for row in rows:
        assert row["de"] == row["en"].replace("e", "g")


class Prepared:
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.random.default_rng(0).integers(3, 30, 2000)
        return lengths, lengths + 1

    def fetch(self, indices: Any) -> None:
        assert len(indices)


def test_an_epoch_is_shared_by_its_ranks(data: ModuleType) -> None:
    figures = data.plan(Prepared(), 500)
    assert figures["max_tokens"] == 500
    assert list(figures["world_sizes"]) == ["1", "2", "3", "4", "8"]
    batches = figures["world_sizes"]["1"]["batches_of_each_rank"][0]
    for size, ranks in figures["world_sizes"].items():
        assert ranks["pairs_twice"] == 0
        (of_each,) = ranks["batches_of_each_rank"]
        assert of_each * int(size) + ranks["batches_left_over"] == batches
        assert (ranks["pairs_left_over"] == 0) == (ranks["batches_left_over"] == 0)


def test_pairs_that_several_ranks_have_are_counted(
    data: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sampler(data.TokenBudgetSampler):  # type: ignore[misc, name-defined]
        def plan(self, epoch: int) -> list[np.ndarray]:
            return [np.arange(200), np.arange(200, 300)]  # on every rank

    monkeypatch.setattr(data, "TokenBudgetSampler", Sampler)
    ranks = data.plan(Prepared(), 500)["world_sizes"]
    assert [ranks[size]["pairs_twice"] for size in ("1", "2", "4")] == [0, 300, 900]
    assert [ranks[size]["pairs_left_over"] for size in ("1", "2")] == [1700, 1400]
    assert ranks["1"]["batches_of_each_rank"] == [2]


def test_a_folder_has_the_figures_of_one_corpus(
    data: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    report = {"pairs": 100}
    monkeypatch.setattr(data, "make_corpus", made.append)
    monkeypatch.setattr(data, "measured_once", lambda args: {})
    monkeypatch.setattr(data, "median_start", lambda args: {})
    monkeypatch.setattr(data, "report_of", lambda args, figures: report)
    command = ["--text=a", "--validation=b", f"--work={tmp_path}", f"--output={tmp_path}/o.json"]
    data.main([*command, "--pairs=100"])
    data.main([*command, "--pairs=100"])
    assert len(made) == 2
    for changed in (["--pairs=200"], ["--pairs=100", "--vocab-size=8000"]):
        with pytest.raises(SystemExit, match=r"was made with .*: name another --work"):
            data.main([*command, *changed])
    assert len(made) == 2


@pytest.mark.parametrize(
    ("lengths", "size", "expected"),
    [
        ([3, 1, 2], 1, [[1], [2], [3]]),
        ([3, 1, 2], 2, [[1, 2], [3]]),
        ([5, 4], 3, [[4, 5]]),
        ([], 2, []),
    ],
)
def test_exports_translate_batches_of_similar_length(
    lengths: list[int], size: int, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    script = load_script(monkeypatch, "benchmark_exports")
    batches = script.batches([[7] * length for length in lengths], size)
    assert [[len(ids) for ids in batch] for batch in batches] == expected


def test_a_step_reads_each_matrix_of_the_decoder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script(monkeypatch, "profile_translate")
    size = script.Size(d_model=8, d_ff=32, heads=2, layers=3, vocabulary=16)
    model = script.Transformer(size.vocabulary, **size.of_mt())
    matrices = {name: w for name, w in model.named_parameters() if w.dim() == 2}
    weights = sum(
        w.numel()
        for name, w in matrices.items()
        if not name.startswith("encoder") and "W_KV" not in name  # that is applied once
    )
    assert script.bytes_a_step(size, "float32") == 4 * weights
    assert script.bytes_a_step(size, "bfloat16") == 2 * weights
    assert script.bytes_a_step(size, "int8") == weights


def test_a_function_that_fails_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        def call(self, number: int) -> float:
            return 1 / number

    script, owner = load_script(monkeypatch, "profile_translate"), Owner()
    original = owner.call
    with script.clock(owner, "call") as spent:
        assert owner.call(1) == 1
        assert owner.call != original
    assert len(spent) == 1
    with pytest.raises(ZeroDivisionError), script.clock(owner, "call"):
        owner.call(0)
    assert owner.call == original
