"""How the processes of a training run share signals, and how they end together."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SWEEP = "MT_SWEEP"  # in the environment of a job: the process id of its sweep
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # they end a run; SLURM sends the last


def exit_with_parent(parent: int | None = None) -> None:
    """From now on end this process when process ``parent``, by default its parent, is gone.

    Otherwise a rank whose rank 0 was killed would wait for it, on a GPU for many minutes.
    """
    parent = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def worker_init_fn(parent: int, worker: int) -> None:
    """Make a data loader's worker ignore signals and end with ``parent``, its training process.

    Ctrl-C and clusters signal the workers too, and without them the run could not end in order.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    exit_with_parent(parent)


@contextmanager
def block_signals() -> Iterator[None]:
    """Keep signals from workers that start inside the block, until ``worker_init_fn`` ignores them.

    Before that, torch's handlers would end the worker at SIGTERM, and the run with it. This
    process receives a blocked signal after the block, or at once in another thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
