"""How glibc, the C library, deals with a trainer's memory; others are left as they are."""

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # as in malloc.h


def tune_malloc_for_setup() -> None:
    """Have each block of some size mapped by itself: for what will stay.

    By default glibc soon takes blocks of up to 32 MB from its heap, where the model and Adam's
    means would lie between what comes and goes at every step.
    """
    _mallopt(M_MMAP_THRESHOLD, 2**18)


def tune_malloc_for_steps() -> None:
    """Have the memory that is freed kept.

    By default glibc returns much of it to the system, which clears it when it is asked for again,
    at every step: a tenth of the time of training on a CPU.
    """
    _mallopt(M_MMAP_MAX, 0)  # all blocks come from the heap
    _mallopt(M_TRIM_THRESHOLD, -1)  # which does not shrink


def _mallopt(parameter: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").mallopt(parameter, value)
