"""What the processes of a run owe each other: whom a signal concerns, and to end with the rest."""

import contextlib
import ctypes
import os
import signal
import threading
import time

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # as in malloc.h
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # end a run; SLURM jobs ask for the last


def end_with_parent(parent: int | None = None) -> None:
    """From now on end this process when ``parent``, which started it, is gone.

    A rank whose rank 0 was killed would else wait for it, on a GPU for many minutes.
    """
    parent = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def begin_worker(parent: int, worker: int) -> None:
    """What a process that makes batches for ``parent`` does first.

    Ctrl-C and clusters signal it as well, and without it the run could not end in order.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    end_with_parent(parent)


def settle_memory() -> None:
    """Have glibc, the C library, map each block of some size by itself: for what will stay.

    By default it soon takes blocks of up to 32 MB from its heap, where the model and Adam's means
    would lie between what comes and goes at every step.
    """
    _mallopt(M_MMAP_THRESHOLD, 2**18)


def keep_memory() -> None:
    """Have glibc keep the memory that is freed.

    By default it returns much of it to the system, which clears it when it is asked for again, at
    every step: a tenth of the time of training on a CPU.
    """
    _mallopt(M_MMAP_MAX, 0)  # all blocks come from the heap
    _mallopt(M_TRIM_THRESHOLD, -1)  # which does not shrink


def _mallopt(parameter: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").mallopt(parameter, value)
