"""How the processes of a training run start, share signals, and end together."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import ModuleType

RANK_ZERO = "MT_RANK_ZERO"  # in the environment of ranks that rank 0 starts: its process id
SWEEP = "MT_SWEEP"  # in the environment of a job: the process id of its sweep
# They end a run. SLURM sends the last, which Windows lacks.
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
)
# The tracker would report the semaphores of a run that has been killed. It removes them.
_QUIET_TRACKER = "ignore:resource_tracker"


def exit_with_parent(parent: int | None = None) -> None:
    """From now on end this process when process ``parent``, by default its parent, is gone.

    Otherwise a rank whose rank 0 was killed would wait for it, on a GPU for many minutes.
    """
    if parent is None:
        parent = os.getppid()
        if RANK_ZERO in os.environ and parent == 1 != int(os.environ[RANK_ZERO]):
            os._exit(1)  # rank 0 was killed while this process began

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def starting_workers() -> Iterator[None]:
    """Processes that multiprocessing spawns inside the block get no signal, and no main module.

    They begin with SIGNALS blocked, until ``worker_init_fn`` ignores these: before that, torch's
    handlers would end a worker at SIGTERM, and the run with it. This process receives a blocked
    signal after the block, or at once in another thread. Without the main module workers import
    only what they need, and a program needs no guard of its main part.
    """
    main = sys.modules["__main__"]
    if os.name == "posix":
        _start_tracker()
    with _block_signals():
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _start_tracker() -> None:
    """Start multiprocessing's process that removes semaphores, safe from SIGNALS."""
    # It starts before the workers, because its start unblocks two of the signals here.
    with _block_signals():
        sys.warnoptions.append(_QUIET_TRACKER)
        try:
            resource_tracker.ensure_running()
        finally:
            sys.warnoptions.remove(_QUIET_TRACKER)


@contextmanager
def _block_signals() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_init_fn(parent: int, worker: int) -> None:
    """Make a data loader's worker ignore signals and end with ``parent``, its training process.

    Ctrl-C and clusters signal the workers too, and without them the run could not end in order.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    exit_with_parent(parent)
