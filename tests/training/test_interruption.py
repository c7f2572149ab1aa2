"""How a run ends early, and what it leaves."""

import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT
from train_helpers import (
    PAIRS,
    arguments,
    assert_same_weights,
    free_port,
    run,
    start,
    wait_for_training,
)

from mt.inference.translator import Translator
from mt.training import interruption
from mt.training.checkpointing import AtomicCheckpointIO
from mt.training.lightning_module import Diverged, TranslationModule
from mt.training.run_dir import is_finished, resume_path


def processes(text: str) -> list[str]:
    """Command lines of running processes that contain a text."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if text in line]


def wait_until_gone(text: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while running := processes(text):
        assert time.monotonic() < deadline, running
        time.sleep(0.2)


def run_program(
    program: Path, arguments: list[str], environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run it in its folder until none of its processes is left."""
    done = subprocess.run(
        [sys.executable, program, *arguments],
        cwd=program.parent,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    wait_until_gone(str(program))
    return done


def start_process(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**ENVIRONMENT, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# Signals


@pytest.mark.parametrize(
    "signum",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        signal.SIGTERM,
        pytest.param(signal.SIGUSR1, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_ends_with_its_status(signum: int, corpus: Path, tmp_path: Path) -> None:
    """Here it reaches the loader's worker too, like Ctrl-C in a terminal or a cluster's signal."""
    changes = {"trainer.max_steps": 100_000, "checkpoint_every": 10_000, "data.workers": 1}
    process = start(arguments(corpus, tmp_path / "run", **changes), tmp_path)
    wait_for_training(process)
    os.killpg(process.pid, signum)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signum, output
    assert "ckpt=last continues" in output
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] > 0
    assert Translator.load(tmp_path / "run" / "model").translate(["Hello."])[0].source == "Hello."


# mt.train, with signals inside a validation: AT names the Trainer's function and the step.
SIGNALLED = """
import os, signal
from mt import train
from mt.training.lightning_module import TranslationModule

original = TranslationModule._translate

def translate(self, sources):
    step, fn = self.trainer.global_step, self.trainer.state.fn.value
    if self.global_rank == int(os.environ["RANK_OF"]) and f"{fn}-{step}" == os.environ["AT"]:
        for _ in range(int(os.environ["TIMES"])):
            os.kill(os.getpid(), int(os.environ["SIGNUM"]))
    return original(self, sources)

TranslationModule._translate = translate
if __name__ == "__main__":
    train.main()
"""


@pytest.mark.parametrize(
    ("at", "times", "devices", "signum", "message"),
    [
        pytest.param("fit-6", 1, 1, signal.SIGINT, "interrupted at step", marks=pytest.mark.slow),
        pytest.param("fit-6", 2, 1, signal.SIGTERM, "ended at once", marks=pytest.mark.slow),
        # after the last step
        pytest.param("fit-12", 1, 1, signal.SIGTERM, "interrupted at step", marks=pytest.mark.slow),
        pytest.param("validate-12", 1, 1, signal.SIGUSR1, "ended at once", marks=pytest.mark.slow),
        pytest.param("validate-12", 1, 2, signal.SIGTERM, "ended at once", marks=pytest.mark.slow),
        pytest.param("fit-6", 1, 2, signal.SIGTERM, "interrupted at step", marks=pytest.mark.slow),
        pytest.param("fit-6", 2, 2, signal.SIGTERM, "ended at once", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_signal_in_a_validation_ends_with_its_status(
    at: str, times: int, devices: int, signum: int, message: str, rank: int, corpus: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    """The workers must not keep the rest waiting, and ckpt=last completes the run."""
    if rank >= devices:
        pytest.skip("there is no such rank")
    program = tmp_path / "signalled.py"
    program.write_text(SIGNALLED)
    changes = {"validate_every": 6, "data.workers": 1, "data.validation_limit": 4}
    args = arguments(corpus, tmp_path / "run", **changes, trainer__devices=devices)
    settings = {"AT": at, "TIMES": str(times), "SIGNUM": str(int(signum)), "RANK_OF": str(rank)}
    done = run_program(program, args, settings)
    if rank == 1 and "at once" in message:  # rank 0 fails without it, or Lightning kills it
        assert done.returncode not in (0, 2), done.stderr
    else:
        assert done.returncode == 128 + signum, done.stderr
    assert message in done.stdout + done.stderr
    again = run_program(program, [*args, "ckpt=last"], {**settings, "AT": "never"})
    assert again.returncode == 0, again.stderr
    assert is_finished(tmp_path / "run", 12)


# Divergence


# 6: a checkpoint and a validation are due
@pytest.mark.parametrize("step", [6, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("max_tokens", [pytest.param(800, marks=pytest.mark.slow), 270])
def test_a_loss_that_is_not_finite_ends_the_run(
    step: int, max_tokens: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:  # fmt: skip
    """The error names the step and the sentences; no checkpoint has the diverged weights."""
    original = TranslationModule._loss_and_nll
    poisoned: list[str] = []

    def loss_and_nll(self: TranslationModule, batch: Any) -> Any:
        loss, nll = original(self, batch)
        if self.training and self.trainer.global_step == step - 1 and not poisoned:
            poisoned.extend(self.tokenizer.decode(batch.src.padded().tolist()))
            return loss * float("nan"), nll
        return loss, nll

    straight, run_dir = tmp_path / "straight", tmp_path / "run"
    changes = {"data.max_tokens": max_tokens, "checkpoint_every": 3, "validate_every": 6}
    assert run(arguments(corpus, straight, **changes), monkeypatch) == 0
    with monkeypatch.context() as poison:
        poison.setattr(TranslationModule, "_loss_and_nll", loss_and_nll)
        assert run(arguments(corpus, run_dir, **changes), poison) == 2
    error = capsys.readouterr().err
    assert f"the loss is not a finite number at step {step}\n" in error
    assert "training.warmup_steps" in error
    assert "Traceback" not in error
    file = run_dir / f"diverged-step-{step:08d}-rank-0.tsv"
    assert str(file) in error
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    assert [src for src, _ in rows] == poisoned
    assert {tuple(row) for row in rows} <= set(PAIRS)
    assert rows[0][0][:60] in error
    assert not (run_dir / "model").exists()
    names = {path.stem for path in (run_dir / "checkpoints").iterdir()}
    expected = {"step-00000003"} | ({"step-00000006", "best", "last"} if step == 7 else set())
    assert names == expected
    # the run continues from the last good checkpoint
    assert run([*arguments(corpus, run_dir, **changes), "ckpt=last"], monkeypatch) == 0
    assert_same_weights(straight, run_dir)


def test_weights_that_are_not_finite_are_not_saved(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    original = TranslationModule.on_before_optimizer_step

    def overflow(self: TranslationModule, optimizer: Any) -> None:
        original(self, optimizer)
        if self.trainer.global_step == 5:
            grad = next(self.parameters()).grad
            assert grad is not None
            grad[0, 0] = float("inf")

    monkeypatch.setattr(TranslationModule, "on_before_optimizer_step", overflow)
    args = arguments(corpus, tmp_path / "run", checkpoint_every=2)
    assert run(args, monkeypatch) == 2
    assert "a weight is not a finite number at step 6\n" in capsys.readouterr().err
    names = {path.stem for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {"step-00000002", "step-00000004"}


# A full disk


@pytest.mark.parametrize(
    ("name", "step"), [("step-00000006.ckpt", 6), ("last.ckpt", 6), ("best.ckpt", 3)]
)
def test_a_full_disk_leaves_earlier_checkpoints_intact(
    name: str, step: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:  # fmt: skip
    original = AtomicCheckpointIO.save_checkpoint
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def save(
        self: AtomicCheckpointIO, checkpoint: Any, path: Any, storage_options: Any = None
    ) -> None:
        if Path(path).name == name and checkpoint["global_step"] == step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))  # stops it halfway
        try:
            original(self, checkpoint, path, storage_options)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    straight, run_dir = tmp_path / "straight", tmp_path / "run"
    changes = {"checkpoint_every": 3, "validate_every": 3}
    assert run(arguments(corpus, straight, **changes), monkeypatch) == 0
    with monkeypatch.context() as full:
        full.setattr(AtomicCheckpointIO, "save_checkpoint", save)
        assert run(arguments(corpus, run_dir, **changes), full) == 2
    error = capsys.readouterr().err
    assert re.search(rf"mt.train: error: .*{name}: file too large \(.*ckpt=last.*\)$", error)
    assert "Traceback" not in error
    left = list((run_dir / "checkpoints").iterdir())
    assert all(path.suffix == ".ckpt" for path in left)
    for path in left:
        assert torch.load(path, weights_only=True)["global_step"] in (3, 6)
    assert run([*arguments(corpus, run_dir, **changes), "ckpt=last"], monkeypatch) == 0
    assert_same_weights(straight, run_dir)


# A run that ends before its first checkpoint


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def too_large(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB")


def diverging(module: TranslationModule, *_: Any) -> None:
    raise Diverged("the loss is not a finite number", 1, [])


@pytest.mark.parametrize(
    ("place", "failure", "message"),
    [
        ((torch, "save"), full, r"last.ckpt: no space left on device \(nothing was saved yet\)$"),
        ((TranslationModule, "training_step"), too_large, "max_tokens; nothing was saved yet$"),
        ((TranslationModule, "training_step"), diverging, "\n  nothing was saved yet$"),
    ],
)
def test_a_run_that_has_saved_nothing_does_not_promise_to_continue(
    place: tuple[Any, str], failure: Any, message: str, corpus: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: Any,
) -> None:  # fmt: skip
    args = arguments(corpus, tmp_path / "run", validate_every=3)
    with monkeypatch.context() as failing:
        failing.setattr(*place, failure)
        assert run(args, failing) == 2
    error = capsys.readouterr().err
    assert error.startswith("mt.train: error: ")
    assert re.search(message, error.strip()), error
    assert "ckpt=last" not in error
    assert run([*args, "trainer.max_steps=1"], monkeypatch) == 0  # the folder is no obstacle


@pytest.mark.parametrize(("saved", "hint"), [(False, "nothing was saved yet"), (True, "ckpt=last")])
def test_a_signal_before_training_says_what_is_true(
    saved: bool, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    if saved:
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "last.ckpt").write_bytes(b"")
    monkeypatch.setattr(interruption, "kill_workers", lambda: None)
    monkeypatch.setattr(interruption.os, "_exit", lambda status: None)
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(launcher=None))
    interruption.exit_now(trainer, tmp_path, signal.SIGTERM)
    error = capfd.readouterr().err
    assert error.startswith("mt.train: ended at once by SIGTERM; ")
    assert hint in error
    assert error.count("\n") == 1


# Several processes

# mt.train, with a statement that one rank runs in its fifth step.
DISTURBED = """
import os
from mt import train
from mt.training.lightning_module import TranslationModule

original = TranslationModule.training_step

def training_step(self, batch, batch_idx):
    loss = original(self, batch, batch_idx)
    if self.global_rank == int(os.environ["DISTURBED_RANK"]) and self.trainer.global_step == 4:
        {statement}
    return loss

TranslationModule.training_step = training_step
if __name__ == "__main__":
    train.main()
"""
TWO_RANKS: dict[str, Any] = {
    "checkpoint_every": 3,
    "data.max_tokens": 150,
    "data.workers": 1,
    "trainer.max_steps": 8,
}


def run_disturbed(
    statement: str, rank: int, arguments: list[str], folder: Path
) -> "subprocess.CompletedProcess[str]":
    """Run it on two ranks."""
    program = folder / "disturbed.py"
    program.write_text(DISTURBED.replace("{statement}", statement))
    done = run_program(program, [*arguments, "trainer.devices=2"], {"DISTURBED_RANK": str(rank)})
    program.unlink()
    return done


@pytest.fixture(scope="module")
def two_ranks(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of an undisturbed run on two ranks, with accumulation."""
    folder = tmp_path_factory.mktemp("two")
    process = start(arguments(corpus, folder / "run", **TWO_RANKS, trainer__devices=2), folder)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return folder / "run"


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_job_and_two_nodes_resume_it(
    two_ranks: Path, corpus: Path, tmp_path: Path
) -> None:
    """Two nodes of one device each, under torchrun, then end like the run that never failed."""
    args = arguments(corpus, tmp_path / "run", **TWO_RANKS)
    failed = run_disturbed('raise RuntimeError("this rank has failed")', 1, args, tmp_path)
    assert failed.returncode != 0
    assert "this rank has failed" in failed.stderr
    newest = resume_path(tmp_path / "run", "last")
    assert newest is not None
    assert newest.stem == "step-00000003"

    port = free_port()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1"]
    torchrun += ["--master_addr=127.0.0.1", f"--master_port={port}"]
    args += ["trainer.devices=1", "trainer.num_nodes=2", "ckpt=last"]
    nodes = [
        start_process([*torchrun, f"--node_rank={rank}", "-m", "mt.train", *args], tmp_path)
        for rank in (0, 1)
    ]
    outputs = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert "resuming from" in outputs[0]
    assert outputs[1].count("step ") == 0  # rank 0 alone prints
    assert_same_weights(two_ranks, tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_waits_for_another_machine_can_be_ended(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "NODE_RANK": "0"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    changes = {"trainer.devices": 1, "trainer.num_nodes": 2}
    process = start(arguments(corpus, tmp_path / "run", **changes), tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting for all of 2 machines" in line:
            break
    time.sleep(2)
    process.send_signal(signum)
    process.communicate(timeout=30)
    assert process.returncode == -signum
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.slow
def test_a_rank_does_not_outlive_rank_0(corpus: Path, tmp_path: Path) -> None:
    changes = {"trainer.max_steps": 100_000, "trainer.devices": 2, "data.validation_limit": 3}
    process = start(arguments(corpus, tmp_path / "run", **changes), tmp_path)
    wait_for_training(process)
    assert len(processes(str(tmp_path / "run"))) >= 2
    process.kill()
    wait_until_gone(str(tmp_path / "run"))
    process.communicate(timeout=30)


@pytest.mark.slow
def test_rank_0_failing_ends_the_job(corpus: Path, tmp_path: Path) -> None:
    args = arguments(corpus, tmp_path / "run", **TWO_RANKS)
    failed = run_disturbed('raise RuntimeError("this rank has failed")', 0, args, tmp_path)
    assert failed.returncode == 1
    assert "this rank has failed" in failed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_divergence_on_one_rank_ends_all(rank: int, corpus: Path, tmp_path: Path) -> None:
    args = arguments(corpus, tmp_path / "run", **TWO_RANKS)
    done = run_disturbed(
        'self._batch_losses[-1] = self._batch_losses[-1] * float("nan")', rank, args, tmp_path
    )
    assert done.returncode == 2, done.stderr
    file = tmp_path / "run" / f"diverged-step-00000005-rank-{rank}.tsv"
    assert file.name in done.stderr, done.stderr
    assert done.stderr.count("what to try") == 1 + rank  # rank 0 always reports it
    assert file.is_file()
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_slurm_starts_the_ranks_itself(two_ranks: Path, corpus: Path, tmp_path: Path) -> None:
    """Like srun: a process for each rank, which reads its rank from the environment."""
    args = arguments(corpus, tmp_path / "run", **TWO_RANKS)
    slurm = {"SLURM_NTASKS": "2", "SLURM_JOB_ID": str(free_port()), "SLURM_JOB_NAME": "train"}
    slurm |= {"SLURM_NTASKS_PER_NODE": "2", "SLURM_NODELIST": "127.0.0.1", "SLURM_NODEID": "0"}
    tasks = [
        start_process(
            [sys.executable, "-m", "mt.train", *args, "trainer.devices=2"],
            tmp_path,
            {**slurm, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        )
        for rank in (0, 1)
    ]
    outputs = [task.communicate(timeout=120)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], outputs
    assert_same_weights(two_ranks, tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
