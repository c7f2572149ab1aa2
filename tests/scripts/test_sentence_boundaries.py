"""The sentence boundaries marked by hand, how splitters are compared, and how our rules do."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import load_script

from mt.inference.sentence_splitter import sentences


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "sentence_boundaries")


@pytest.fixture
def gold(benchmark: ModuleType, tmp_path: Path) -> list:
    text = "# ¦ and ‖\nchat\tHi, Dr. Who!¦ Say: 'A.‖ B.'¦ Bye.\nnews\tIt rose 2.5 p.c. Oh.\n"
    (tmp_path / "gold.tsv").write_text(text, encoding="utf-8")
    return benchmark.read_gold(tmp_path / "gold.tsv")


def test_reading(gold: list) -> None:
    first, second = gold
    assert first == ("chat", "Hi, Dr. Who! Say: 'A. B.' Bye.", {10, 20}, {17})
    assert second == ("news", "It rose 2.5 p.c. Oh.", set(), set())


def test_lookalikes(benchmark: ModuleType, gold: list) -> None:
    # "Dr. Who", "2.5", "p.", "c. Oh"
    assert benchmark.lookalikes(gold) == {"all": 4, "before a capital or digit": 2}


@pytest.mark.parametrize(
    ("parts", "hits", "wrong", "missed"),
    [
        (["Hi, Dr. Who!", "Say: 'A. B.'", "Bye."], 2, 0, 0),
        (["Hi, Dr. Who! ", "Say: 'A.", "B.' ", "Bye."], 2, 0, 0),  # the third may end or not
        (["Hi, Dr.", "Who! Say: 'A. B.'", "Bye."], 1, 1, 1),
        (["Hi, Dr. Who! Say: 'A. B.' Bye."], 0, 0, 2),
    ],
)
def test_comparing(
    benchmark: ModuleType, gold: list, parts: list[str], hits: int, wrong: int, missed: int
) -> None:
    scores = benchmark.compare(lambda _: parts, gold[:1])
    assert (scores["hits"], scores["wrong"], scores["missed"]) == (hits, wrong, missed)
    assert scores["precision"] == round(100 * hits / max(1, hits + wrong), 2)
    assert scores["recall"] == 50 * hits
    assert scores["f1"] == round(200 * hits / (2 * hits + wrong + missed), 2)
    lines = benchmark.errors(lambda _: parts, gold[:1])
    assert [line[0] for line in lines].count("+") == wrong
    assert len(lines) == wrong + missed


def test_our_advantage(benchmark: ModuleType, gold: list) -> None:
    def perfect(text: str) -> list[str]:
        return ["Hi, Dr. Who!", "Say: 'A. B.'", "Bye."] if "Hi" in text else [text]

    def blind(text: str) -> list[str]:
        return [text]

    assert benchmark.advantage(perfect, perfect, gold) == [0, 0]
    assert benchmark.advantage(perfect, blind, gold[:1]) == [100, 100]
    assert benchmark.advantage(blind, perfect, gold[:1] * 9) == [-100, -100]
    low, high = benchmark.advantage(perfect, blind, gold)  # a sample may lack the first
    assert (low, high) == (0, 100)


def test_errors_show_the_place(benchmark: ModuleType, gold: list) -> None:
    lines = benchmark.errors(lambda _: ["Hi, Dr.", "Who! Say: 'A. B.'", "Bye."], gold[:1])
    assert lines == ["+ Hi, Dr.¦ Who! Say: 'A. B.' Bye.", "- Hi, Dr. Who!¦ Say: 'A. B.' Bye."]


def test_the_set_is_large_and_as_people_type(benchmark: ModuleType) -> None:
    paragraphs = benchmark.read_gold()
    assert sum(len(paragraph.boundaries) for paragraph in paragraphs) >= 500
    assert benchmark.lookalikes(paragraphs)["all"] >= 500
    assert len({paragraph.text for paragraph in paragraphs}) == len(paragraphs)
    for paragraph in paragraphs:
        assert not paragraph.boundaries & paragraph.either
        assert paragraph.text == paragraph.text.strip()
        assert "  " not in paragraph.text
        last = len("".join(paragraph.text.split()))
        assert all(0 < place < last for place in paragraph.boundaries | paragraph.either)


def test_our_rules_reach_their_figure(benchmark: ModuleType) -> None:
    scores = benchmark.compare(sentences, benchmark.read_gold())
    assert scores["f1"] >= 93.35
    assert scores["precision"] >= 93.2
    assert scores["recall"] >= 93.4


def test_a_run(
    benchmark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(benchmark, "splitters", lambda: {"mt": sentences})
    assert benchmark.main(["--rounds=1", f"--output={tmp_path}/x.json"]) == 0
    done = capsys.readouterr()
    assert "93.96" in done.out
    assert "sentencex is not installed" in done.err
    report = json.loads((tmp_path / "x.json").read_text("utf-8"))
    row = report["results"]["mt"]
    assert row["hits"] + row["missed"] == report["boundaries"]
    assert row["characters_per_cpu_second"] > 10_000
    assert row["f1_by_domain"].keys() == {p.domain for p in benchmark.read_gold()}
    assert benchmark.main(["--errors=mt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == row["wrong"] + row["missed"]
    with pytest.raises(SystemExit):
        benchmark.main(["--errors=sentencex"])
