"""scripts/rivals.py: rows are trained, stopped at equal FLOPs, scored, drawn and not repeated."""

import json
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script_helpers import load_script, table_rows
from train_helpers import run as run_training

from mt.utils.json_io import read_json

SMALL = [
    "model.N=1", "model.d_model=16", "model.d_ff=32", "model.h=2", "tokenizer.vocab_size=300",
    "data.tokens_per_step=400", "validate_every=10", "checkpoint_every=10",
    "trainer.precision=32-true", "trainer.accelerator=cpu",
]  # fmt: skip


class Here:
    """A pool whose jobs are done at once, in this thread: signals are handled in no other."""

    def __init__(self, jobs: int) -> None:
        pass

    def submit(self, function: Any, *arguments: Any) -> "Future[None]":
        done: Future[None] = Future()
        done.set_result(function(*arguments))
        return done

    def shutdown(self, **_: Any) -> None:
        pass


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; its trainings run in this process and are counted in ``trained``."""
    script = load_script(monkeypatch, "rivals")
    script.trained = []  # type: ignore[attr-defined]

    def train(arguments: list[str], log: Path, threads: int) -> None:
        script.trained.append(next(word for word in arguments if word.startswith("hydra.run.dir=")))
        assert arguments[0] == "mt.train"
        if status := run_training(arguments[1:], monkeypatch):
            raise ChildProcessError(f"{log}: mt.train ended with status {status}")

    monkeypatch.setattr(script, "ThreadPoolExecutor", Here)
    monkeypatch.setattr(script, "run_program", train)
    return script


@pytest.mark.slow
def test_rows_are_trained_scored_drawn_and_not_repeated(
    rivals: ModuleType, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = [f"--{s}={corpus / n}" for s, n in (("train", "train"), ("validation", "valid"))]
    command = [
        *(*splits, f"--test={corpus / 'valid'}", f"--folder={tmp_path / 'runs'}"),
        *("--only", "paper", "decoder_only_both", "--seeds", "3", "--steps", "20"),
        *("--output", f"{tmp_path / 'rivals.json'}", "--picture", f"{tmp_path / 'rivals.png'}"),
    ]
    settings = [*SMALL, f"data.cache_dir={corpus / 'cache'}"]
    assert rivals.main([*command, "--", *settings]) == 0, capsys.readouterr().err
    names = [Path(run.strip("'")).name for run in rivals.trained]  # type: ignore[attr-defined]
    assert names == [
        f"{row}-seed3" for row in ("paper", "decoder_only_both", "decoder_only_both_flops")
    ]
    rows = read_json(tmp_path / "rivals.json")["rows"]
    paper, both, early = rows
    assert both["petaflops"] > paper["petaflops"]
    assert early["steps"] < both["steps"] == paper["steps"] == 20
    assert early["petaflops"] == pytest.approx(paper["petaflops"], rel=0.1)
    assert all(row["perplexity"] > 1 and row["signature"].startswith("nrefs:1") for row in rows)
    if find_spec("matplotlib"):
        assert (tmp_path / "rivals.png").stat().st_size > 10_000
    printed = table_rows(capsys.readouterr().out)
    assert f"{paper['bleu']:.2f}" in printed["encoder-decoder, post-LN (the paper)"]

    assert rivals.main([*command, "--", *settings]) == 0
    assert len(rivals.trained) == 3  # type: ignore[attr-defined]
    assert rivals.main([*command, "--", *settings, "model.P_drop=0"]) == 2
    assert "has runs of other settings: name another --output" in capsys.readouterr().err


def test_a_row_of_the_report_is_not_trained_again_in_another_folder(
    rivals: ModuleType, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = [f"--{split}={corpus / 'valid'}" for split in ("train", "validation", "test")]
    command = [*splits, "--seeds", "3", "--steps", "10", "--output", f"{tmp_path / 'rivals.json'}"]
    settings = ["--", *SMALL, f"data.cache_dir={corpus / 'cache'}"]
    for folder, row in (("one", "decoder_only"), ("other", "paper")):
        options = ["--folder", f"{tmp_path / folder}", "--only", row]
        assert rivals.main([*command, *options, *settings]) == 0, capsys.readouterr().err
    third = ["--folder", f"{tmp_path / 'third'}", "--only", "paper", "decoder_only"]
    assert rivals.main([*command, *third, *settings]) == 0
    assert [Path(run.strip("'")).parts[-2:] for run in rivals.trained] == [  # type: ignore[attr-defined]
        ("one", "decoder_only-seed3"),
        ("other", "paper-seed3"),
        ("third", "decoder_only_flops-seed3"),
    ]
    rows = [run["row"] for run in read_json(tmp_path / "rivals.json")["runs"]]
    assert rows == ["paper", "decoder_only", "decoder_only_flops"]


def test_a_training_that_fails_ends_the_script(
    rivals: ModuleType, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = [f"--{split}={corpus / 'valid'}" for split in ("train", "validation", "test")]
    command = [*splits, f"--folder={tmp_path / 'runs'}", "--only", "paper", "--steps", "5"]
    assert rivals.main([*command, "--", "model.h=7"]) != 0
    assert "mt.train ended with status 2" in capsys.readouterr().err


def test_the_operations_of_a_step_are_those_of_the_matrix_products(
    rivals: ModuleType, tmp_path: Path
) -> None:
    """By hand, for one layer of width 2 and pairs of 3 and 4 tokens."""
    job = rivals.Job("paper", 1, 1, tmp_path)
    (job.run / "model").mkdir(parents=True)
    model = {"N": 1, "d_model": 2, "d_ff": 8, "vocab_size": 10}
    (job.run / "model" / "config.json").write_text(json.dumps({"model": model}))
    (job.run / "config.yaml").write_text("data: {tokens_per_step: 8}")
    costs = object.__new__(rivals.Costs)
    costs.S, costs.T, costs.SS, costs.TT, costs.ST, costs.joined = 3, 4, 9, 16, 12, 49
    encoder = 3 * (4 * 4 + 2 * 16) + 2 * 2 * 9  # weights, then scores and weighted values
    decoder = 4 * (4 * 4 + 2 * 16) + 2 * 2 * 16 / 2
    cross = 4 * 2 * 4 + 3 * 2 * 4 + 2 * 2 * 12
    pairs = 8 / 4
    assert costs.of_a_step(job) == 6 * (encoder + decoder + cross + 4 * 20) * pairs
