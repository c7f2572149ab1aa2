"""Compute results in batches of sources of similar length, in one thread or in several."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from mt.data.batch_sampler import token_budget_splits
from mt.utils.checks import check_int

MAX_TOKENS = 8192  # padded source tokens times hypotheses in one batch
MAX_WORKERS = 1024  # threads
MIN_SENTENCES = 8  # a worker with fewer sentences does not pay

Progress = Callable[[float], object]
Result = TypeVar("Result")


def run_batches(
    compute: Callable[[list[int]], list[Result]],
    lengths: Sequence[int],
    width: int,
    batch_size: int,
    workers: int,
    exact: bool,
    on_batch: Callable[[list[int]], object] | None = None,
) -> list[Result]:
    """The results of all sources, in order: ``compute`` gives those of a batch of source numbers.

    ``lengths`` has the tokens of each source, ``width`` is its number of hypotheses. A worker is a
    thread with an equal share of torch's threads. If results are ``exact``, that is, do not depend
    on their batch, batches become small enough to occupy all workers. ``on_batch`` is called in
    this thread, after each batch, with the numbers of its sources.
    """
    if not lengths:
        return []
    workers = min(workers, math.ceil(len(lengths) / MIN_SENTENCES))
    if workers > 1 and exact:
        batch_size = min(batch_size, math.ceil(len(lengths) / workers))
    sizes = np.array(lengths)
    order = np.argsort(-sizes, kind="stable")  # longest first
    ends = token_budget_splits(sizes[order][:, None], max(1, MAX_TOKENS // width), batch_size)
    batches = [batch.tolist() for batch in np.split(order, ends[:-1])]
    results: dict[int, Result] = {}

    def collect(results_of_batches: Iterable[list[Result]]) -> None:
        for batch, batch_results in zip(batches, results_of_batches, strict=True):
            results.update(zip(batch, batch_results, strict=True))
            if on_batch is not None:
                on_batch(batch)

    if workers < 2:
        collect(map(compute, batches))
    else:
        threads = torch.get_num_threads()
        share = (max(1, threads // workers),)
        pool = ThreadPoolExecutor(workers, "mt", torch.set_num_threads, share)
        try:
            collect(pool.map(compute, batches))
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # also the number of threads that start later
    return [results[i] for i in range(len(lengths))]


def pick_workers(workers: int | None, device: torch.device) -> int:
    """``workers``, or by default one for each of torch's threads on the CPU and 1 on a GPU.

    Raises ValueError for what is not a whole number from 1 to MAX_WORKERS.
    """
    if workers is None:
        return torch.get_num_threads() if device.type == "cpu" else 1
    check_int("workers", workers, 1, MAX_WORKERS)
    return workers
