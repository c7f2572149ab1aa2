"""Where a run lies, and which checkpoint a command line means; runs do not mix."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from train_helpers import arguments, run, weights

from mt.training import run_dir


def test_a_new_run_does_not_mix_with_an_old_one(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run(args, monkeypatch) == 0
    before = weights(tmp_path / "run")
    assert run([*args, "seed=2"], monkeypatch) == 2
    assert "holds a run: add ckpt=last" in capsys.readouterr().err
    assert all(torch.equal(before[name], w) for name, w in weights(tmp_path / "run").items())


def test_the_newest_run_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_dir.run_dir(None, "outputs/new") == "outputs/new"
    assert run_dir.run_dir("last", "outputs/new") == "outputs/new"
    for age, name in enumerate(("b", "a")):
        file = Path("outputs") / "x" / name / "checkpoints" / "last.ckpt"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        os.utime(file, (1000 + age, 1000 + age))
    assert run_dir.run_dir("last", "outputs/new") == "outputs/x/a"
    assert run_dir.run_dir("outputs/x/b/checkpoints/last.ckpt", "new") == str(
        tmp_path / "outputs/x/b"
    )


def test_a_run_goes_on_in_its_own_folder(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(arguments(corpus, tmp_path / "a", trainer__max_steps=1), monkeypatch) == 0
    args = [*arguments(corpus, tmp_path / "b"), f"ckpt={tmp_path / 'a/checkpoints/last.ckpt'}"]
    assert run(args, monkeypatch) == 2
    assert "leave out hydra.run.dir" in capsys.readouterr().err


def test_a_checkpoint_outside_of_a_run_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "x.ckpt").write_bytes(b"")
    args = arguments(corpus, tmp_path / "run")
    assert run([*args, f"ckpt={tmp_path / 'x.ckpt'}"], monkeypatch) == 2
    assert "RUN/checkpoints/NAME.ckpt" in capsys.readouterr().err


def test_a_finished_run_says_that_nothing_is_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=2)
    assert run(args, monkeypatch) == 0
    assert run([*args, "ckpt=last"], monkeypatch) == 2
    assert "trainer.max_steps=2 is a total" in capsys.readouterr().err
    assert run([*args, "ckpt=last", "model.d_ff=64", "trainer.max_steps=4"], monkeypatch) == 2
    assert "another model" in capsys.readouterr().err


def test_auto_wants_to_know_the_folder(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    args = [a for a in arguments(corpus, tmp_path / "run") if "hydra.run.dir" not in a]
    assert run([*args, "ckpt=auto"], monkeypatch) == 2
    assert "that hydra.run.dir=FOLDER names" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("training", "finished"),
    [
        ({"steps": 12, "validation sacreBLEU": 3.5}, True),
        ({"steps": 12}, False),  # killed before its model was scored
        ({"steps": 10, "validation sacreBLEU": 3.5}, False),  # of an earlier end
        ({}, False),
        (None, False),
    ],
)
def test_a_run_is_finished_when_its_model_has_scores(
    training: Any, finished: bool, tmp_path: Path
) -> None:
    assert not run_dir.is_finished(tmp_path, 12)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"training": training}))
    assert run_dir.is_finished(tmp_path, 12) == finished
