"""Tune glibc's memory allocation for training; other C libraries are left as they are."""

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # as in malloc.h


def tune_malloc_for_setup() -> None:
    """Map every block of at least 256 KiB separately, for tensors that live as long as the run.

    By default glibc soon takes blocks of up to 32 MiB from its heap, where the model and Adam's
    moments would lie between tensors that come and go at every step.
    """
    _mallopt(M_MMAP_THRESHOLD, 2**18)


def tune_malloc_for_steps() -> None:
    """Keep freed memory for the next step.

    By default glibc returns much of it to the system, which clears it before it hands it out
    again, at every step: a tenth of the training time on a CPU.
    """
    _mallopt(M_MMAP_MAX, 0)  # all blocks come from the heap
    _mallopt(M_TRIM_THRESHOLD, -1)  # and the heap does not shrink


def _mallopt(parameter: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").mallopt(parameter, value)
