"""How starts of loader workers are counted; one of them really made is slow."""

import json
from pathlib import Path
from typing import Any

import pytest
from script_helpers import load_script

from mt.data.prepared_corpus import PreparedCorpus


def answer(seconds: float) -> dict[str, Any]:
    workers = [{"rss": 300, "private": 150}] * 2
    return {"started": 0.5, "first batch": seconds, "workers": workers, "threads": 9}


def test_starts_are_counted_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script(monkeypatch, "worker_starts")
    rounds: list[int] = []

    def run_round(corpus: Path, method: str, starts: int, patience: int) -> Any:
        assert len(PreparedCorpus(corpus).fetch([0, 29])[0]) == 2
        rounds.append(starts)
        hung = len(rounds) == 3
        return [answer(len(rounds))] * 2 * (starts - hung), int(hung)

    monkeypatch.setattr(script, "run_round", run_round)
    output = tmp_path / "report.json"
    options = ["--work", str(tmp_path), "--output", str(output), "--pairs", "30", "--renew", "2"]
    assert script.main([*options, "--starts", "3"]) == 0
    assert script.main([*options, "--starts", "7"]) == 1
    assert rounds == [2, 1, 2, 2]
    report = json.loads(output.read_text())
    assert (report["starts"], report["hangs"], report["new_ranks"]) == (7, 1, 8)
    assert report["latest_round"]["seconds_until_first_batch"] == 4
    with pytest.raises(SystemExit):  # they count for another method
        script.main([*options, "--method", "fork"])


@pytest.mark.slow
def test_a_start_of_both_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script(monkeypatch, "worker_starts")
    script.write_corpus(tmp_path / "corpus", 1000)
    answers, hung = script.run_round(tmp_path / "corpus", "spawn", 1, 100)
    assert (len(answers), hung) == (2, 0)
