"""Where a run lies, and which checkpoint a command line means; runs do not mix."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT
from omegaconf import OmegaConf
from train_helpers import arguments, run, weights

from mt.training import run_dir
from mt.utils.processes import SWEEP


def test_a_new_run_does_not_mix_with_an_old_one(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run(args, monkeypatch) == 0
    before = weights(tmp_path / "run")
    assert run([*args, "seed=2"], monkeypatch) == 2
    assert "holds a run: add ckpt=last" in capsys.readouterr().err
    assert all(torch.equal(before[name], w) for name, w in weights(tmp_path / "run").items())


@pytest.mark.parametrize(
    ("resume", "step", "moved"),
    [
        ("step-00000004", 4, ["last.ckpt", "step-00000006.ckpt"]),
        ("step-00000006", 6, ["last.ckpt"]),  # a run that was killed at step 7
        ("best", 3, ["last.ckpt", "step-00000004.ckpt", "step-00000006.ckpt"]),
        ("last", 7, []),
    ],
)
def test_what_a_run_wrote_after_the_step_is_set_aside(
    resume: str, step: int, moved: list[str], tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    for name, of in {"step-00000004": 4, "step-00000006": 6, "last": 7, "best": 3}.items():
        torch.save({"global_step": of}, checkpoints / f"{name}.ckpt")
    before = {path.name: path.read_bytes() for path in checkpoints.iterdir()}
    line = run_dir.set_aside(tmp_path, checkpoints / f"{resume}.ckpt", step)
    aside = tmp_path / "until-00000007"
    assert (str(aside) in line) == bool(moved)
    assert sorted(path.name for path in aside.glob("*")) == moved
    files = [*checkpoints.iterdir(), *aside.glob("*")]
    assert {path.name: path.read_bytes() for path in files} == before
    assert run_dir.set_aside(tmp_path, checkpoints / f"{resume}.ckpt", step) == ""


def test_the_newest_run_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_dir.run_dir("last", "outputs/new") == "outputs/new"
    for age, name in enumerate(("b", "a")):
        file = Path("outputs") / "x" / name / "checkpoints" / "last.ckpt"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        os.utime(file, (1000 + age, 1000 + age))
    assert run_dir.run_dir("last", "new") == "outputs/x/a"
    assert run_dir.run_dir("outputs/x/b/checkpoints/last.ckpt", "new") == str(
        tmp_path / "outputs/x/b"
    )
    assert run_dir.run_dir("outputs/x/gone/y/last.ckpt", "new") == "new"
    assert not Path("outputs/x/gone").exists()


def test_a_copied_run_goes_on_from_its_last_step(tmp_path: Path) -> None:
    """Whatever times the copies have."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    for age, (name, step) in enumerate({"last": 7, "step-00000006": 6, "step-00000004": 4}.items()):
        torch.save({"global_step": step}, checkpoints / f"{name}.ckpt")
        os.utime(checkpoints / f"{name}.ckpt", (1000 + age, 1000 + age))
    assert run_dir.resume_path(tmp_path, "last") == checkpoints / "last.ckpt"
    (checkpoints / "last.ckpt").write_bytes(b"damaged")  # it is not passed over in silence
    assert run_dir.resume_path(tmp_path, "last") == checkpoints / "last.ckpt"
    (checkpoints / "last.ckpt").unlink()
    assert run_dir.resume_path(tmp_path, "last") == checkpoints / "step-00000006.ckpt"


@pytest.mark.parametrize("ckpt", [None, "auto"])
def test_a_model_without_checkpoints_is_not_replaced(tmp_path: Path, ckpt: str | None) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds a model and no checkpoint"):
        run_dir.resume_path(tmp_path, ckpt)


def test_a_checkpoint_of_step_0_is_no_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name, step in {
        "last": 0,
        "step-100000000": 100_000_000,
        "step-99999999": 99_999_999,
    }.items():
        torch.save({"global_step": step}, tmp_path / "checkpoints" / f"{name}.ckpt")
    latest = tmp_path / "checkpoints" / "step-100000000.ckpt"
    assert run_dir.resume_path(tmp_path, "last") == latest
    assert run_dir.step_files(latest.parent)[-1] == latest


def test_names_of_runs_that_start_together_do_not_clash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: run_dir.run_dir(None, "outputs/x/now"), range(24)))
    assert sorted(names) == sorted(["outputs/x/now", *(f"outputs/x/now-{i}" for i in range(2, 25))])
    assert all(Path(name).is_dir() for name in names)


def test_a_program_makes_one_folder_however_often_its_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = OmegaConf.create({"dir": "${run_dir:null,new}", "sweep": "${new_dir:many}"})
    assert [cfg.dir, cfg.dir, cfg.sweep, cfg.sweep] == ["new", "new", "many", "many"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many", "new"]


HOLD = """
import sys, time
from pathlib import Path
from mt.training.run_dir import only_run
with only_run(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_run_in_a_folder_ends_and_harms_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(run_dir, "LOCK_TIMEOUT", 0.2)
    folder = tmp_path / "run"
    args = [*arguments(corpus, folder, trainer__max_steps=1), "ckpt=auto"]
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        capsys.readouterr()
        assert run(args, monkeypatch) == 2
        error = f"{folder}: another mt.train is running there; wait, or name another"
        assert capsys.readouterr().err == f"mt.train: error: {error}\n"
        assert [path.name for path in folder.iterdir()] == [".lock"]
        first.kill()  # the system frees its lock
    assert run(args, monkeypatch) == 0
    assert not (folder / ".lock").exists()


def test_a_run_waits_a_moment_for_the_workers_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [BlockingIOError("held"), BlockingIOError("held")]

    @contextmanager
    def held(file: Path, message: str) -> Iterator[None]:
        if refusals:
            raise refusals.pop()
        yield

    monkeypatch.setattr(run_dir, "exclusive_lock", held)
    with run_dir.only_run(tmp_path / "run"):
        assert not refusals


def test_a_hint_says_what_can_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWEEP, raising=False)
    assert run_dir.resume_hint(tmp_path / "gone") == "nothing was saved yet"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.ckpt").write_bytes(b"")
    assert run_dir.resume_hint(tmp_path) == "nothing was saved yet"  # it resumes from no best.ckpt
    (tmp_path / "checkpoints" / "last.ckpt").write_bytes(b"")
    assert "ckpt=last continues" in run_dir.resume_hint(tmp_path)
    monkeypatch.setenv(SWEEP, "1")
    assert run_dir.resume_hint(tmp_path).startswith("its sweep continues with ckpt=auto")
    assert run_dir.resume_hint(tmp_path / "gone").startswith("nothing of this job was saved yet; ")


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
    assert run(["ckpt=5"], monkeypatch) == 2
    assert "ckpt=5: no such file" in capsys.readouterr().err


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
