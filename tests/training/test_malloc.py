"""How glibc keeps freed memory, and where it puts long-lived blocks."""

import ctypes
import platform
import subprocess
import sys

import pytest

from mt.training.malloc import tune_malloc_for_setup, tune_malloc_for_steps

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
START = """
import ctypes, resource
from mt.training.malloc import tune_malloc_for_steps, tune_malloc_for_setup
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
"""


def run(tuning: str, program: str) -> str:
    """What a fresh process prints."""
    command = [sys.executable, "-c", START + tuning + program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def page_faults(tuning: str) -> int:
    """Pages that the kernel hands out while ten blocks of 16 MB are allocated and freed 5 times."""
    program = """
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
    return int(run(tuning, program))


@glibc
def test_freed_memory_stays_with_the_process() -> None:
    assert page_faults("") > 50_000
    assert page_faults("tune_malloc_for_steps()") < 1_000


@glibc
def test_large_blocks_are_mapped_separately_during_setup() -> None:
    """Blocks of 1 MB, mapped separately, go back to the system when they are freed."""
    program = """
libc.free(libc.malloc(8 << 20))  # glibc learns from this to take 1 MB from its heap
start, block = libc.sbrk(0), libc.malloc(1 << 20)
print(libc.sbrk(0) != start)
"""
    assert run("", program) == "True"
    assert run("tune_malloc_for_setup()", program) == "False"


@pytest.mark.parametrize("problem", [OSError("no such library"), AttributeError("mallopt")])
def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    def missing(name: str) -> object:
        raise problem

    monkeypatch.setattr(ctypes, "CDLL", missing)
    tune_malloc_for_setup()
    tune_malloc_for_steps()
