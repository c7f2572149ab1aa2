"""The sentences whose items a translation must keep, and the check whether it does."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import load_script

from mt.inference.kept import find_kept


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "kept_items")


def test_every_item_of_the_2000_sentences_is_found(benchmark: ModuleType) -> None:
    cases = benchmark.make_cases(2000)
    assert {case.kind for case in cases} == set(benchmark.KINDS)
    assert cases == benchmark.make_cases(2000) != benchmark.make_cases(2000, seed=1)
    assert len({case.source for case in cases}) > 1900
    for case in cases:
        texts = [case.source[kept.start : kept.end] for kept in find_kept(case.source)]
        assert len(texts) == len(case.items), case
        for text, item in zip(texts, case.items, strict=True):  # with its currency or unit
            assert item.kept in text, case


def test_there_are_enough_frames(benchmark: ModuleType) -> None:
    frames = benchmark.read_frames()
    assert len(set(frames)) == len(frames) >= 60
    assert {kind for kind, _ in frames} == {
        k for _, kinds in benchmark.KINDS.values() for k in kinds
    }
    for _, frame in frames:
        assert benchmark.SLOT in frame
        assert find_kept(frame) == []


@pytest.mark.parametrize(
    ("source", "translation", "kept"),
    [
        ("See x.txt.", "Siehe x.txt.", True),
        ("See x.txt.", "Siehe ax.txt.", False),
        ("See %s.", "Siehe %s.", True),
        ("See {a} and {a}.", "Siehe {a} und {b}.", False),
        ("See {a} and {a}.", "{a}, siehe {a}", True),
        ("It is 1,250.50 high.", "Es ist 1.250,50 hoch.", True),
        ("It is 1,250.50 high.", "Es ist 1250,5 hoch.", False),
        ("It is 25% of 1,250.", "Es sind 25 % von 1.250.", True),
        ("It is 25% of it.", "Es sind 1,25 % davon.", False),
        ("It is 3% of 3.5.", "Es sind 3 % von 3,5.", True),
        ("It is 3% of 3.5.", "Es sind 3,5 von 3,5.", False),
        ("I have 3 apples.", "Drei Äpfel.", True),
        ("I have 3 apples.", "Dreißig Äpfel.", False),
        ("Come at 3 pm.", "Komm um 15:00 Uhr.", True),
        ("Come at 3 pm.", "Komm um 13 Uhr.", False),
        ("on 3 March 1987", "am 3. März 1987", True),
        ("Nothing.", "", True),
    ],
)
def test_check(benchmark: ModuleType, source: str, translation: str, kept: bool) -> None:
    assert benchmark.check(source, translation) is kept


def test_the_report(
    benchmark: ModuleType, tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "kept.json"
    arguments = ["--model", model_folder, "--cases", 3, "--device", "cpu", "--output", output]
    assert benchmark.main([str(argument) for argument in arguments]) == 0
    results = json.loads(output.read_text("utf-8"))["results"]
    assert set(results["kept"]["kept_percent"]) == {"URL", "e-mail", "file", "all"}
    # The vocabulary of the model cannot spell all of them.
    assert results["kept"]["kept_percent"]["all"] > results["without"]["kept_percent"]["all"]
    assert "| all" in capsys.readouterr().out
    assert benchmark.main(["--model", "nowhere/at/all"]) == 2
