"""The chores under scripts/, run in this process."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

from mt import checkpoint
from mt import tokenizer as tokenizers
from mt.model import Transformer
from mt.tokenizer import Tokenizer

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def test_average_checkpoints_writes_the_mean(
    tmp_path: Path, small_tokenizer: Tokenizer, capsys: Any
) -> None:
    main = runpy.run_path(str(SCRIPTS / "average_checkpoints.py"))["main"]
    models = [Transformer(small_tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1) for _ in "ab"]
    tokenizers.save(small_tokenizer, tmp_path / "tokenizer.model")
    paths = [tmp_path / "checkpoints" / f"step-{i}.ckpt" for i in range(2)]
    paths[0].parent.mkdir()
    for path, model in zip(paths, models, strict=True):
        content = {
            "state_dict": {f"model.{name}": w for name, w in model.state_dict().items()},
            "hyper_parameters": {
                "model": model.config,
                "max_length": 9,
                "languages": ["en", "de"],
            },
            "global_step": 1,
        }
        torch.save(content, path)
    output = tmp_path / "mean"
    assert main([*map(str, paths), "--output", str(output)]) == 0
    mean = checkpoint.load(output).model.state_dict()
    for name, w in mean.items():
        both = (models[0].state_dict()[name] + models[1].state_dict()[name]) / 2
        torch.testing.assert_close(w, both)
    assert main([*map(str, paths), "--output", str(output)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_train_tokenizer_writes_one_and_never_over_one(
    tmp_path: Path, corpus_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    arguments = [
        "data=files",
        f"data.train={corpus_folder / 'train'}",
        "tokenizer.vocab_size=100",
        "tokenizer.path=mine.model",
    ]
    monkeypatch.setattr(sys, "argv", ["train_tokenizer", *arguments])

    def run() -> int:
        GlobalHydra.instance().clear()
        try:
            runpy.run_path(str(SCRIPTS / "train_tokenizer.py"), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    assert run() == 0
    assert Tokenizer.load("mine.model").vocab_size == 100
    assert run() == 2
    assert "mine.model exists" in capsys.readouterr().err
    assert not Path("outputs").exists()
