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


STARTER = """
import multiprocessing, os, signal, time
from multiprocessing import resource_tracker
from mt.utils.processes import SIGNALS, starting_workers
received = []
for signum in SIGNALS:
    signal.signal(signum, lambda *args: received.append(args))
context = multiprocessing.get_context("spawn")
with starting_workers():
    context.Event()
    worker = context.Process(target=time.sleep, args=(60,))
    worker.start()
for signum in SIGNALS:
    os.killpg(0, signum)
time.sleep(0.5)
assert worker.is_alive() and len(received) == len(SIGNALS)
os.kill(resource_tracker._resource_tracker._pid, 0)
worker.kill()
os._exit(7)  # nothing is cleaned up
"""


def test_a_worker_that_starts_gets_no_signal_and_no_main_module(tmp_path: Path) -> None:
    """The program has no guard against being imported by its workers."""
    program = tmp_path / "program.py"
    program.write_text(STARTER)
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(Path(mt.__file__).parents[1])},
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, "")
