"""Ray: actors of Ray Data that compute blocks, on this machine or on a cluster."""

import json
import logging
import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# What Ray reads when it is imported; a user's own values stay.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports every start to its makers
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data tells of what fails

import ray
import ray.data

from mt.corpora.files import Block
from mt.corpora.worker import Worker
from mt.utils.checks import check_int
from mt.utils.console import first_line

# Of the actors. Otherwise glibc gives each of Ray's threads a heap of its own, and an actor grows.
ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}


@dataclass(frozen=True)
class Actors:
    """Computes blocks by so many actors of so many threads; Ray starts the dead ones again.

    ``address`` is a running cluster's; None is a cluster of this machine, which ends with the
    block of ``connected``. ``actors`` None is as many as the cluster has room for. An actor on a
    GPU has one of its own: ``gpu`` None takes GPUs where there are some.
    """

    address: str | None = None
    actors: int | None = None
    threads: int = 1
    gpu: bool | None = None

    def __post_init__(self) -> None:
        check_int("actors", self.actors, optional=True)
        check_int("threads", self.threads)

    def __call__(self, worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        """The records of the blocks, as they come.

        Raises ValueError where no actor has room, and for what Ray reports.
        """
        with connected(self.address), one_line():
            actors, gpus = self._room()
            items = [{"block": json.dumps(block)} for block in blocks]
            dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
                Worker,
                fn_constructor_args=(*worker, self.threads, uuid.uuid4().hex),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(
                    size=min(actors, len(blocks)), max_tasks_in_flight_per_actor=2
                ),
                num_cpus=self.threads,
                num_gpus=gpus,
                runtime_env={"env_vars": ENVIRONMENT},
            )
            dataset.context.enable_progress_bars = False
            dataset.context.print_on_execution_start = False
            dataset.context.execution_no_progress_timeout_s = -1  # a block may take hours
            for row in dataset.iter_rows():
                yield row["record"]

    def _room(self) -> tuple[int, int]:
        """Actors, and the GPUs of each."""
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus = [int(machine.get("CPU", 0)) for machine in machines]
        gpus = [int(machine.get("GPU", 0)) for machine in machines]
        on_gpu = any(gpus) if self.gpu is None else self.gpu
        room = [cpu // self.threads for cpu in cpus]
        if on_gpu:
            room = [min(pair) for pair in zip(room, gpus, strict=True)]
        if not sum(room):
            wanted = f"{self.threads} CPUs" + (" and a GPU" if on_gpu else "")
            raise ValueError(f"no machine of the cluster has {wanted}: give fewer --threads")
        return self.actors or sum(room), int(on_gpu)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Inside the block Ray is there: a program's own, the cluster's, or one of this machine.

    Raises ValueError where no cluster answers.
    """
    if ray.is_initialized():  # by the program that calls this; its cluster stays
        yield
        return
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its errors are raised as well
    local = {"address": "local", "include_dashboard": False}
    try:
        ray.init(
            **({"address": address} if address else local),
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = address or "this machine"
        raise ValueError(f"no cluster at {where}: {first_line(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def one_line() -> Iterator[None]:
    """Turn what Ray raises, with the tracebacks of its processes, into a ValueError of one line."""
    try:
        yield
    except (ray.exceptions.RayError, ray.data.exceptions.ExecutionTimeoutError) as error:
        *_, reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"Ray: {reason.strip()}") from None
