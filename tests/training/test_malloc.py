"""That glibc keeps what is freed, and where what stays lies."""

import ctypes
import platform
import subprocess
import sys

import pytest

from mt.training.malloc import tune_malloc_for_setup, tune_malloc_for_steps


def faults(program: str) -> int:
    """Pages that the kernel hands out while ten blocks of 16 MB are taken and freed five times."""
    code = f"""
import ctypes, resource
from mt.training.malloc import tune_malloc_for_steps, tune_malloc_for_setup
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
    assert faults("tune_malloc_for_steps()") < 1_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another")
def test_what_is_settled_leaves_no_hole() -> None:
    """Blocks of 1 MB, mapped by themselves, go back to the system when they are freed."""
    code = """
import ctypes
from mt.training.malloc import tune_malloc_for_setup
{program}
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(8 << 20))  # glibc learns from this to take 1 MB from its heap
start, block = libc.sbrk(0), libc.malloc(1 << 20)
print(libc.sbrk(0) != start)
"""
    grown = [
        subprocess.run(
            [sys.executable, "-c", code.format(program=program)],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for program in ("", "tune_malloc_for_setup()")
    ]  # fmt: skip
    assert grown == ["True", "False"]


@pytest.mark.parametrize("problem", [OSError("no such library"), AttributeError("mallopt")])
def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    def missing(name: str) -> object:
        raise problem

    monkeypatch.setattr(ctypes, "CDLL", missing)
    tune_malloc_for_setup()
    tune_malloc_for_steps()
