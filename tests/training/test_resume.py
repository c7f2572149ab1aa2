"""A resumed run ends like one that never stopped."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from train_helpers import PAIRS, Forker, arguments, assert_same_weights, run

from mt.data import tokenizer
from mt.evaluation.learning_curves import learning_curves
from mt.model import checkpoint
from mt.training.checkpointing import CheckpointCallback
from mt.training.interruption import TimeLimit
from mt.training.run_dir import resume_path


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the directory of a run that nothing has stopped, once for the same settings."""
    run_dirs: dict[str, Path] = {}

    def make(**changes: Any) -> Path:
        key = json.dumps(changes)
        if key not in run_dirs:
            run_dirs[key] = tmp_path_factory.mktemp("undisturbed") / "run"
            with pytest.MonkeyPatch.context() as patch:
                assert run(arguments(corpus, run_dirs[key], **changes), patch) == 0
        return run_dirs[key]

    return make


# With 270 tokens a batch, an epoch has 25 batches: its last step, the ninth, accumulates one.
@pytest.mark.parametrize(
    ("max_tokens", "stop"),
    [
        (800, 7), (270, 3), (270, 7), (270, 9), (270, 10),
        *(pytest.param(800, stop, marks=pytest.mark.slow) for stop in (3, 9, 10)),
        *(pytest.param(400, stop, marks=pytest.mark.slow) for stop in (3, 7, 9, 10)),
    ],
)  # fmt: skip
def test_a_resumed_run_ends_bit_for_bit_like_an_undisturbed_one(
    stop: int,
    max_tokens: int,
    undisturbed: Callable[..., Path],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {"data.max_tokens": max_tokens, "validate_every": 5}
    straight, resumed = undisturbed(**changes), tmp_path / "resumed"
    short = {**changes, "trainer.max_steps": stop}
    assert run(arguments(corpus, resumed, **short), monkeypatch) == 0
    assert run([*arguments(corpus, resumed, **changes), "ckpt=last"], monkeypatch) == 0
    assert_same_weights(straight, resumed)
    assert [step for step, _ in learning_curves(resumed / "model")["val_bleu"]] == [5, 10]


def test_the_log_of_a_run_has_what_was_said_before_training_and_the_profile(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run([*args, "+trainer.profiler=simple"], monkeypatch) == 0
    log = (tmp_path / "run" / "train.log").read_text("utf-8")
    assert log.index("tokenizer") < log.index("run directory")
    assert "Profiler Report" in log


def test_a_time_limit_ends_training_after_a_whole_step(
    undisturbed: Callable[..., Path],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    changes = {"data.max_tokens": 270, "validate_every": 5}
    straight, resumed = undisturbed(**changes), tmp_path / "resumed"
    checks = []

    def check(self: TimeLimit, trainer: pl.Trainer) -> None:
        checks.append(trainer.global_step)
        trainer.should_stop = len(checks) == 3  # within the first step, if batches were counted

    with monkeypatch.context() as patch:
        patch.setattr(TimeLimit, "_check_time_remaining", check)
        patch.setattr(TimeLimit, "time_elapsed", lambda *_: 1e9)  # which a checkpoint could keep
        limited = [*arguments(corpus, resumed, **changes), "+trainer.max_time=00:00:00:10"]
        assert run(limited, patch) == 0
    assert checks == [0, 1, 2]
    told = "trainer.max_time is over at step 2 of "
    assert told in capsys.readouterr().out
    assert told in (resumed / "train.log").read_text("utf-8")
    again = ["ckpt=last", "+trainer.max_time=00:00:10:00"]
    assert run([*arguments(corpus, resumed, **changes), *again], monkeypatch) == 0
    assert_same_weights(straight, resumed)


@pytest.mark.parametrize("name", ["step-00000003", "step-00000006", "best"])
@pytest.mark.parametrize("max_tokens", [pytest.param(800, marks=pytest.mark.slow), 270])
def test_every_checkpoint_of_a_run_leads_to_the_same_end(
    name: str,
    max_tokens: int,
    undisturbed: Callable[..., Path],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {
        "data.max_tokens": max_tokens,
        "validate_every": 4,
        "checkpoint_every": 3,
        "average": 10,
    }
    first, second = undisturbed(**changes), tmp_path / "second"
    shutil.copytree(first, second)
    ckpt = second / "checkpoints" / f"{name}.ckpt"
    assert run([*arguments(corpus, second, **changes), f"ckpt={ckpt}"], monkeypatch) == 0
    assert_same_weights(first, second)
    for run_dir in (first, second):  # the logs count optimizer steps
        curves = learning_curves(run_dir / "model")
        assert [step for step, _ in curves["val_bleu"]] == [4, 8, 12]
        assert curves["mean_bleu"][0][0] == 12


def test_checkpoints_after_the_resumed_one_are_not_averaged_and_not_lost(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    changes = {"checkpoint_every": 2, "average": 9}
    args = arguments(corpus, tmp_path / "run", **changes)
    assert run(args, monkeypatch) == 0
    ckpt = tmp_path / "run" / "checkpoints" / "step-00000004.ckpt"
    model, last = tmp_path / "run" / "model", ckpt.parent / "last.ckpt"
    before = {path.name: path.read_bytes() for path in (*model.iterdir(), last)}
    again = [*args, f"ckpt={ckpt}", "trainer.max_steps=8"]
    assert run(again, monkeypatch) == 0
    config = json.loads((model / "config.json").read_text())
    names = ", ".join(f"step-{step:08d}" for step in (2, 4, 6, 8))
    assert config["training"]["mean of checkpoints"] == names

    # Nothing of the twelve steps is lost.
    aside = tmp_path / "run" / "until-00000012"
    output = f"the run had reached step 12: its later checkpoints and model are in {aside}\n"
    assert output in capsys.readouterr().out
    kept = [f"step-{step:08d}.ckpt" for step in (6, 8, 10, 12)]
    names = {path.name for path in aside.iterdir()}
    assert names - {"best.ckpt"} == {"last.ckpt", "model", *kept}
    after = {path.name: path.read_bytes() for path in (aside / "model").iterdir()}
    assert {**after, "last.ckpt": (aside / "last.ckpt").read_bytes()} == before
    checkpoint.load(aside / "step-00000012.ckpt")  # it finds its tokenizer


def test_a_resumed_run_keeps_its_own_tokenizer(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    other = tokenizer.train((german for _, german in PAIRS), 400)
    tokenizer.save(other, tmp_path / "other.model")
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run(args, monkeypatch) == 0
    again = [*args, "ckpt=last", "trainer.max_steps=2"]
    assert run([*again, f"tokenizer.path={tmp_path / 'other.model'}"], monkeypatch) == 2
    assert "is not the tokenizer of the run" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)  # which has no folder tokenizer/
    assert run([*again, "tokenizer.path=null"], monkeypatch) == 0
    assert not Path("tokenizer").exists()


def test_a_loader_worker_changes_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker fetches ahead; a checkpoint counts the batches that were trained on."""
    changes = {"data.max_tokens": 270, "validate_every": 5}
    alone, resumed = tmp_path / "alone", tmp_path / "resumed"
    assert run(arguments(corpus, alone, **changes), monkeypatch) == 0
    changes["data.workers"] = 1
    short = {**changes, "trainer.max_steps": 7}
    assert run(arguments(corpus, resumed, **short), monkeypatch) == 0
    assert run([*arguments(corpus, resumed, **changes), "ckpt=last"], monkeypatch) == 0
    assert_same_weights(alone, resumed)


@pytest.mark.parametrize("hook", ["on_validation_start", "on_validation_end"])
@pytest.mark.parametrize("every", [4, pytest.param(9, marks=pytest.mark.slow)])
def test_a_run_killed_at_a_validation_resumes(
    hook: str,
    every: int,
    undisturbed: Callable[..., Path],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = {4: 8, 9: 9}[every]
    original = getattr(CheckpointCallback, hook)

    def kill(self: CheckpointCallback, trainer: Any, module: Any) -> None:
        original(self, trainer, module)
        if trainer.global_step == step:
            raise RuntimeError("killed")

    changes = {"data.max_tokens": 270, "validate_every": every, "trainer.max_steps": 20}
    straight, resumed = undisturbed(**changes), tmp_path / "resumed"
    with monkeypatch.context() as killer:
        killer.setattr(CheckpointCallback, hook, kill)
        assert run(arguments(corpus, resumed, **changes), killer) == 1
    assert run([*arguments(corpus, resumed, **changes), "ckpt=last"], monkeypatch) == 0
    assert_same_weights(straight, resumed)


@pytest.mark.parametrize("written", ["nothing", "model", "model and scores"])
def test_a_run_killed_after_its_last_step_still_writes_its_model(
    written: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    args = arguments(corpus, tmp_path / "run", checkpoint_every=5)
    assert run(args, monkeypatch) == 0
    model = tmp_path / "run" / "model"
    config = json.loads((model / "config.json").read_text())
    before = (model / "model.safetensors").read_bytes()
    if written == "nothing":
        shutil.rmtree(model)
    elif written == "model":
        unscored = {k: v for k, v in config["training"].items() if "validation" not in k}
        (model / "config.json").write_text(json.dumps({**config, "training": unscored}))
    done = written == "model and scores"
    assert run([*args, "ckpt=last"], monkeypatch) == (2 if done else 0)
    assert ("nothing left to train" in capsys.readouterr().err) == done
    again = json.loads((model / "config.json").read_text())
    assert (model / "model.safetensors").read_bytes() == before
    for name in ("steps", "mean of checkpoints", "validation sacreBLEU"):
        assert again["training"][name] == config["training"][name]


def test_auto_begins_and_resumes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The first start and all later ones use the same command line, as a cluster repeats it."""
    changes = {"checkpoint_every": 4}
    straight, auto = tmp_path / "straight", tmp_path / "auto"
    assert run(arguments(corpus, straight, **changes), monkeypatch) == 0
    (auto / "checkpoints").mkdir(parents=True)  # killed before the first checkpoint
    args = [*arguments(corpus, auto, **changes), "ckpt=auto"]
    assert run([*args, "trainer.max_steps=5"], monkeypatch) == 0
    assert "resuming" not in capsys.readouterr().out
    assert run(args, monkeypatch) == 0
    assert "resuming from" in capsys.readouterr().out
    assert_same_weights(straight, auto)
    assert run(args, monkeypatch) == 0  # a finished run is no error
    assert "nothing left to train" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [4, 20])
def test_killed_again_and_again_at_any_moment(corpus: Path, tmp_path: Path, kills: int) -> None:
    """SIGKILL while it starts, trains, validates or saves."""
    rng = random.Random(1)
    changes = {
        "data.max_tokens": 270,
        "checkpoint_every": 2,
        "validate_every": 3,  # at an epoch's end, too
        "data.validation_limit": 4,
        "trainer.max_steps": 100_000,
    }
    killed, straight = tmp_path / "killed", tmp_path / "straight"
    forker = Forker(tmp_path)
    try:
        steps = []  # at which each attempt ended
        begun = time.monotonic()
        for attempt in range(kills):
            process = forker.start([*arguments(corpus, killed, **changes), "ckpt=auto"])
            if attempt == 0:
                while not (killed / "checkpoints" / "last.ckpt").exists():
                    time.sleep(0.01)
                setting_up = time.monotonic() - begun
            # Most attempts get into the loop of training, and some do not.
            time.sleep(rng.uniform(0.1, 1.5) * setting_up)
            os.kill(process, signal.SIGKILL)
            assert forker.status() == -signal.SIGKILL, forker.output()
            newest = resume_path(killed, "last")
            assert newest is not None
            steps.append(torch.load(newest, weights_only=True)["global_step"])
        assert steps == sorted(steps)
        assert len(set(steps)) > 0.4 * kills, "most attempts must get into training"
        end = {**changes, "trainer.max_steps": steps[-1] + 5}
        forker.start([*arguments(corpus, killed, **end), "ckpt=last"])
        assert forker.status() == 0, forker.output()
        forker.start(arguments(corpus, straight, **end))
        assert forker.status() == 0, forker.output()
    finally:
        forker.close()
    assert_same_weights(straight, killed)
    for name in ("checkpoints", "model"):
        left = [sorted(path.name for path in (run / name).iterdir()) for run in (straight, killed)]
        assert left[0] == left[1]
