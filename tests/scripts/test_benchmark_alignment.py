"""The alignment error rate, the pairs aligned by hand, and how the bundled model does on them."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import load_script

from mt.inference.alignment import TOKEN
from mt.inference.translator import Translator


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "benchmark_alignment")


def test_rates(benchmark: ModuleType) -> None:
    gold = [benchmark.Pair("", "", {(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)})]
    rates = benchmark.rates
    assert rates(gold, [{(0, 0), (1, 1)}]) == {"aer": 0, "precision": 1, "recall": 1}
    assert rates(gold, [{(0, 0), (1, 1), (1, 2)}])["aer"] == 0  # a possible link does no harm
    # 1 of 2 sure links, 2 of 4 links right: 1 - (1 + 2) / (4 + 2)
    values = rates(gold, [{(0, 0), (1, 2), (5, 5), (6, 6)}])
    assert values == {"aer": 0.5, "precision": 0.5, "recall": 0.5}
    assert rates(gold, [set()])["aer"] == 1


def test_the_pairs_aligned_by_hand(benchmark: ModuleType) -> None:
    gold = benchmark.read_gold()
    assert len({pair.source for pair in gold}) == len(gold) == 50
    for pair in gold:
        assert pair.sure
        assert pair.sure <= pair.possible
        for side, text in enumerate((pair.source, pair.target)):
            last = len(TOKEN.findall(text)) - 1  # the final mark has its link
            assert max(link[side] for link in pair.possible) == last


def test_the_bundled_model_aligns_far_better_than_its_mean_attention(
    benchmark: ModuleType, everyday: Translator, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert benchmark.main(["everyday", "--threads=1", f"--output={tmp_path}/x.json"]) == 0
    report = json.loads((tmp_path / "x.json").read_text())
    rows = report["results"]["everyday"]["by hand"]
    layers = len(everyday.models[0].decoder)
    assert len(rows) == 2 * layers + 2
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 2
    assert report["results"]["everyday"]["aligner"]["shifted"]
    chosen = rows.pop("chosen heads")
    assert chosen["aer"] < 0.08
    assert chosen["aer"] < rows["mean of all heads"]["aer"] - 0.1
    assert all(chosen["aer"] < row["aer"] for row in rows.values())
