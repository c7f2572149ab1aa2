"""Shared by the tests of whole training runs, which take seconds: command lines and results."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT
from hydra.core.global_hydra import GlobalHydra

from mt import train
from mt.data import phrasebook

ROOT = Path(train.__file__).parents[1]
PAIRS = [pair for pair in phrasebook.phrases() if len(pair[0].split()) <= 6][:400]


def arguments(corpus: Path, run_dir: Path, **changes: Any) -> list[str]:
    """A command line for seconds of training; an epoch is about seven batches."""
    values: dict[str, Any] = {
        "data": "files",
        "data.train": corpus / "train",
        "data.validation": corpus / "valid",
        "data.cache_dir": corpus / "cache",
        "tokenizer.path": corpus / "bpe.model",
        "model": "tiny",
        "model.N": 1,
        "model.d_model": 16,
        "model.d_ff": 32,
        "model.h": 2,
        "data.tokens_per_step": 800,
        "training.warmup_steps": 50,
        "search.beam_size": 1,
        "validate_every": 100,
        "checkpoint_every": 100,
        "trainer.max_steps": 12,
        "trainer.accelerator": "cpu",
        "trainer.devices": 1,
        "hydra.run.dir": run_dir,
    }
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    return [f"{name}={value}" for name, value in values.items()]


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of mt.train, run in this process."""
    monkeypatch.setattr(sys, "argv", ["mt.train", *arguments])
    GlobalHydra.instance().clear()
    with pytest.raises(SystemExit) as end:
        train.main()
    return int(end.value.code or 0)


def start(arguments: list[str], cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "mt.train", *arguments],
        start_new_session=True,  # a process group of its own
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_training(process: "subprocess.Popen[str]") -> None:
    """Until Progress has announced the training, or the process ends."""
    assert process.stdout is not None
    for line in process.stdout:
        if "parameters for 100,000 steps" in line:
            break
    time.sleep(2)  # workers have begun, steps are taken


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    path = run_dir / "checkpoints" / "last.ckpt"
    return torch.load(path, weights_only=True)["state_dict"]


def assert_same_weights(one: Path, other: Path) -> None:
    weights_one, weights_other = weights(one), weights(other)
    assert weights_one.keys() == weights_other.keys()
    for name, weight in weights_one.items():
        assert torch.equal(weight, weights_other[name]), name


def metrics(run_dir: Path, column: str) -> list[float]:
    (file,) = run_dir.glob("logs/version_*/metrics.csv")
    header, *rows = (line.split(",") for line in file.read_text().splitlines())
    values = [row[header.index(column)] for row in rows]
    return [float(value) for value in values if value]


FORKER = """
import json, os, sys
import mt.train  # once, so that each forked process starts at once
answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        sys.argv = ["mt.train", *json.loads(line)]
        try:
            mt.train.main()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        os._exit(1)
    print(pid, file=answers)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers)
"""


class Forker:
    """Runs mt.train in forked processes, which need not import everything first."""

    def __init__(self, cwd: Path) -> None:
        read_end, write_end = os.pipe()
        self.answers = os.fdopen(read_end)
        self.log = (cwd / "output.txt").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORKER, str(write_end)],
            cwd=cwd,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
            text=True,
        )
        os.close(write_end)

    def start(self, arguments: list[str]) -> int:
        """The process number of a new run."""
        assert self.process.stdin is not None
        print(json.dumps(arguments), file=self.process.stdin, flush=True)
        return int(self.answers.readline())

    def status(self) -> int:
        """Wait for the run; its exit status, or minus a signal's number."""
        return int(self.answers.readline())

    def output(self) -> str:
        """What all runs have printed."""
        self.log.seek(0)
        return self.log.read()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.answers.close()
        self.log.close()
