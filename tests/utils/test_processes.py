"""Processes that end with their parent, and workers that ignore signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mt
from mt.utils.processes import SIGNALS

PARENT = """
import os, sys, time
from mt.utils.processes import {function}
read, write = os.pipe()
if os.fork() == 0:
    {function}({arguments})
    os.write(write, b"x")
    time.sleep(60)
os.read(read, 1)  # the child is set up
"""


def child_of_a_dead_parent(function: str, arguments: str, after: str) -> "subprocess.Popen[str]":
    """The parent, whose output ends when its child does."""
    return subprocess.Popen(
        [sys.executable, "-c", PARENT.format(function=function, arguments=arguments) + after],
        env={**os.environ, "PYTHONPATH": str(Path(mt.__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_ends_with_its_parent() -> None:
    parent = child_of_a_dead_parent("exit_with_parent", "", "os._exit(0)")
    start = time.monotonic()
    parent.communicate(timeout=30)
    assert time.monotonic() - start < 20


def test_a_worker_ignores_signals_and_ends_with_its_parent() -> None:
    group = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    parent = child_of_a_dead_parent(
        "worker_init_fn", "os.getppid(), 0", group + "time.sleep(2); os._exit(7)"
    )
    time.sleep(1)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while not children.read_text().split():
        time.sleep(0.1)
    time.sleep(0.2)
    (child,) = map(int, children.read_text().split())
    for signum in SIGNALS:
        os.kill(child, signum)
    os.kill(child, 0)  # it still runs
    status = Path(f"/proc/{child}/status").read_text()
    ignored = int(next(x for x in status.splitlines() if x.startswith("SigIgn")).split()[1], 16)
    assert all(ignored >> (int(signum) - 1) & 1 for signum in SIGNALS)
    parent.communicate(timeout=30)  # the child ends a second after its parent
    assert parent.returncode == 7
    assert signal.SIGTERM in SIGNALS
