"""A run that goes on ends as if it had never stopped; runs do not mix."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from training import PAIRS, arguments, assert_same_weights, run, weights

from mt import runs, tokenizer


# With batches of 270 tokens an epoch has an odd number of them: its last step accumulates one.
@pytest.mark.parametrize("max_tokens", [800, 400, 270])
@pytest.mark.parametrize("stop", [3, 7, 10])
def test_a_resumed_run_ends_bit_for_bit_like_an_undisturbed_one(
    stop: int, max_tokens: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"data.max_tokens": max_tokens, "validate_every": 5}
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    assert run(arguments(corpus, straight, **changes), monkeypatch) == 0
    short = {**changes, "trainer.max_steps": stop}
    assert run(arguments(corpus, resumed, **short), monkeypatch) == 0
    assert run([*arguments(corpus, resumed, **changes), "ckpt=last"], monkeypatch) == 0
    assert_same_weights(straight, resumed)


@pytest.mark.parametrize("name", ["step-00000003", "step-00000006", "best"])
@pytest.mark.parametrize("max_tokens", [800, 270])
def test_every_checkpoint_of_a_run_leads_to_the_same_end(
    name: str, max_tokens: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {
        "data.max_tokens": max_tokens,
        "validate_every": 4,
        "checkpoint_every": 3,
        "average": 10,
    }
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(arguments(corpus, first, **changes), monkeypatch) == 0
    shutil.copytree(first, second)
    ckpt = second / "checkpoints" / f"{name}.ckpt"
    assert run([*arguments(corpus, second, **changes), f"ckpt={ckpt}"], monkeypatch) == 0
    assert_same_weights(first, second)


def test_checkpoints_of_an_abandoned_end_are_not_averaged(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"checkpoint_every": 2, "average": 9}
    args = arguments(corpus, tmp_path / "run", **changes)
    assert run(args, monkeypatch) == 0
    ckpt = tmp_path / "run" / "checkpoints" / "step-00000004.ckpt"
    again = [*args, f"ckpt={ckpt}", "trainer.max_steps=8"]
    assert run(again, monkeypatch) == 0
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    names = ", ".join(f"step-{step:08d}" for step in (2, 4, 6, 8))
    assert config["training"]["mean of checkpoints"] == names


def test_a_new_run_does_not_mix_with_an_old_one(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run(args, monkeypatch) == 0
    before = weights(tmp_path / "run")
    assert run([*args, "seed=2"], monkeypatch) == 2
    assert "holds a run: add ckpt=last" in capsys.readouterr().err
    assert all(torch.equal(before[name], w) for name, w in weights(tmp_path / "run").items())


def test_a_resumed_run_keeps_its_own_tokenizer(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    other = tokenizer.train((german for _, german in PAIRS), 400)
    tokenizer.save(other, tmp_path / "other.model")
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run(args, monkeypatch) == 0
    again = [*args, "ckpt=last", "trainer.max_steps=2"]
    assert run([*again, f"tokenizer.path={tmp_path / 'other.model'}"], monkeypatch) == 2
    assert "is not the run's own" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)  # where there is no tokenizer/ to find one in
    assert run([*again, "tokenizer.path=null"], monkeypatch) == 0
    assert not Path("tokenizer").exists()


def test_the_newest_run_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert runs.run_dir(None, "outputs/new") == "outputs/new"
    assert runs.run_dir("last", "outputs/new") == "outputs/new"
    for age, name in enumerate(("b", "a")):
        file = Path("outputs") / "x" / name / "checkpoints" / "last.ckpt"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        os.utime(file, (1000 + age, 1000 + age))
    assert runs.run_dir("last", "outputs/new") == "outputs/x/a"
    assert runs.run_dir("outputs/x/b/checkpoints/last.ckpt", "new") == str(tmp_path / "outputs/x/b")


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
