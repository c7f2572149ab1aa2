"""What the tests of mt.evaluate share: the program in this process, and what it writes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PAIRS, Done

from mt.evaluation import plots

RunModule = Callable[..., Done]
TEST = PAIRS[6:10]  # the test split of corpus_folder
NAMES = ["sacreBLEU", "chrF", "TER", "tokenised BLEU, compound-split", "lc-tok BLEU"]
FILES = [
    "hypotheses.beam1.txt",
    "hypotheses.beam4.txt",
    "report.json",
    "report.md",
    "sentences.beam1.jsonl",
    "sentences.beam4.jsonl",
]


@pytest.fixture
def quick_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/evaluation/test_plots.py draws real ones."""
    for name in ("draw_evaluation", "draw_comparison"):
        monkeypatch.setattr(plots, name, lambda path, *_: path.write_bytes(b"plot"))


@pytest.fixture
def evaluate(
    run_module: RunModule, corpus_folder: Path, model_folder: Path, quick_plots: None
) -> RunModule:
    """mt.evaluate of model_folder on corpus_folder into the folder ``out``."""

    def call(*changes: str) -> Done:
        values = {
            "data": "files",
            "data.test": "corpus/test",
            "model_path": str(model_folder),
            "device": "cpu",
            "hydra.run.dir": "out",
        } | dict(change.split("=", 1) for change in changes)
        if values["data"] != "files":
            del values["data.test"]
        return run_module("mt.evaluate", *(f"{name}={value}" for name, value in values.items()))

    return call


def read_report(folder: Path) -> dict:
    return json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))


def hypotheses(folder: Path, beam_size: int) -> list[str]:
    content = (folder / "out" / f"hypotheses.beam{beam_size}.txt").read_text(encoding="utf-8")
    assert content.endswith("\n")
    return content.split("\n")[:-1]
