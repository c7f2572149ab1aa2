"""What the processes of a run owe each other."""

import ctypes
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mt
from mt.processes import SIGNALS, keep_memory

PARENT = """
import os, sys, time
from mt.processes import {what}
read, write = os.pipe()
if os.fork() == 0:
    {what}({arguments})
    os.write(write, b"x")
    time.sleep(60)
os.read(read, 1)  # the child is set up
"""


def child_of_a_dead_parent(what: str, arguments: str, after: str) -> "subprocess.Popen[str]":
    """Its output ends when the child does."""
    return subprocess.Popen(
        [sys.executable, "-c", PARENT.format(what=what, arguments=arguments) + after],
        env={**os.environ, "PYTHONPATH": str(Path(mt.__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_ends_with_the_one_that_started_it() -> None:
    parent = child_of_a_dead_parent("end_with_parent", "", "os._exit(0)")
    start = time.monotonic()
    parent.communicate(timeout=30)
    assert time.monotonic() - start < 20


def test_a_worker_leaves_signals_to_the_run_and_ends_with_it() -> None:
    group = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    parent = child_of_a_dead_parent(
        "begin_worker", "os.getppid(), 0", group + "time.sleep(2); os._exit(7)"
    )
    time.sleep(1)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while not children.read_text().split():
        time.sleep(0.1)
    time.sleep(0.2)
    (child,) = map(int, children.read_text().split())
    for signum in SIGNALS:
        os.kill(child, signum)
    os.kill(child, 0)  # it is there
    status = Path(f"/proc/{child}/status").read_text()
    ignored = int(next(x for x in status.splitlines() if x.startswith("SigIgn")).split()[1], 16)
    assert all(ignored >> (int(signum) - 1) & 1 for signum in SIGNALS)
    parent.communicate(timeout=30)  # no longer than the parent and a second
    assert parent.returncode == 7
    assert signal.SIGTERM in SIGNALS


def faults(program: str) -> int:
    """Pages that the kernel hands out while ten blocks of 16 MB are taken and freed five times."""
    code = f"""
import ctypes, resource
from mt.processes import keep_memory
{program}
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
def touch():
    blocks = [libc.malloc(16 << 20) for _ in range(10)]
    for block in blocks:
        ctypes.memset(block, 1, 16 << 20)
    for block in blocks:
        libc.free(block)
def count():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch()
before = count()
for _ in range(5):
    touch()
print(count() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another")
def test_memory_that_is_freed_stays() -> None:
    assert faults("") > 50_000
    assert faults("keep_memory()") < 1_000


def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    keep_memory()
