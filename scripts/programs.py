"""Programs of mt that a script runs one after another, each with a log."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run_program(arguments: Sequence[str], log: Path, threads: int | None = None) -> None:
    """Run ``python -m ARGUMENTS``; the log gets its output. ChildProcessError when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    with log.open("a") as stream:
        status = subprocess.run(
            [sys.executable, "-m", *arguments],
            stdout=stream, stderr=subprocess.STDOUT, env=environment,
        ).returncode  # fmt: skip
    if status:
        last = (log.read_text().strip().splitlines() or [""])[-1]
        raise ChildProcessError(f"{log}: {arguments[0]} ended with status {status}: {last}")
