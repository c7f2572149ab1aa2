"""What the processes of a run owe each other: whom a signal concerns, and to end with the rest."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SWEEP = "MT_SWEEP"  # in the environment of a job: the process of its sweep
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # end a run; SLURM jobs ask for the last


def resume_hint() -> str:
    """What goes on with a run that was cut short, for its last message."""
    if SWEEP in os.environ:
        return "its sweep goes on with ckpt=auto hydra.sweep.dir=FOLDER"
    return "ckpt=last goes on from what is saved"


def exit_with_parent(parent: int | None = None) -> None:
    """From now on end this process when ``parent``, which started it, is gone.

    A rank whose rank 0 was killed would else wait for it, on a GPU for many minutes.
    """
    parent = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def worker_init_fn(parent: int, worker: int) -> None:
    """What a process that makes batches for ``parent`` does first.

    Ctrl-C and clusters signal it as well, and without it the run could not end in order.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    exit_with_parent(parent)


@contextmanager
def block_signals() -> Iterator[None]:
    """Workers started meanwhile hear no signal before ``worker_init_fn``, which ignores them.

    Torch has them end by SIGTERM until then, and the run with them. This process hears it later,
    or at once in another thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
