"""How a run ends before its time, and what it leaves."""

import signal
import time
from pathlib import Path

import pytest
import torch
from training import arguments, start

from mt.translator import Translator


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_with_its_status(signum: int, corpus: Path, tmp_path: Path) -> None:
    changes = {"trainer.max_steps": 100_000, "checkpoint_every": 10_000}
    process = start(arguments(corpus, tmp_path / "run", **changes), tmp_path)
    deadline = time.monotonic() + 60
    assert process.stdout is not None
    for line in process.stdout:  # Progress has announced the training: its handlers are set
        if "parameters for 100,000 steps" in line or time.monotonic() > deadline:
            break
    time.sleep(1)
    process.send_signal(signum)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signum, output
    assert "resume with ckpt=last" in output
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] > 0
    assert Translator.load(tmp_path / "run" / "model").translate(["Hello."])[0].source == "Hello."
