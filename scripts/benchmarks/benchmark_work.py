"""What a worker of `benchmark_train.py` measures: sentences, their operations, steps, products.

The peers' interpreters read this file too: at its top it imports nothing but Python's own.
"""

import math
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import benchmark_models
from benchmark_models import FIRST_WORD, Pairs, Size
from benchmark_steps import ENGINES
from benchmarking import Meter, Sample, disturbed

SIZES = {
    **benchmark_models.SIZES,
    "big": Size(1024, 4096, 16, 6, 37000),
    "tiny": Size(32, 64, 4, 1, 200),  # for tests
}
MEAN, SPREAD, SIDES = 27, 0.55, 0.12  # source tokens; of log(length); of log(target / source)
LONGEST = 250  # tokens


def draw_batches(vocabulary: int, max_tokens: int, count: int) -> list[Pairs]:
    """Random sentence pairs with the lengths of a corpus, in batches of like lengths.

    So most projects make them; ours, which pads but within attention, mixes lengths in training.
    """
    import numpy as np

    from mt.data.batch_sampler import TokenBudgetSampler

    rng = np.random.default_rng(0)
    pairs = max(10_000, 4 * count * max_tokens // MEAN)
    logs = rng.normal(math.log(MEAN) - SPREAD**2 / 2, SPREAD, pairs)
    src = np.exp(logs).round().clip(3, LONGEST).astype(int)
    tgt = (src * np.exp(rng.normal(0, SIDES, pairs))).round().clip(3, LONGEST).astype(int)
    plan = TokenBudgetSampler(src + 1, tgt + 1, max_tokens, seed=0, shuffle=False).plan(0)
    plan = [plan[i] for i in rng.permutation(len(plan))]
    ids = random.Random(0)

    def sentence(length: int) -> list[int]:
        return [ids.randrange(FIRST_WORD, vocabulary) for _ in range(length)]

    return [[(sentence(src[i]), sentence(tgt[i])) for i in batch] for batch in plan[:count]]


class Work(NamedTuple):
    """Positions, eos counted, and how often one looks at another; padding not."""

    src_tokens: int
    tgt_tokens: int
    src_pairs: int  # each position of a source at each
    tgt_pairs: int  # each position of a target at those up to itself
    cross_pairs: int  # each position of a target at each of its source

    @property
    def tokens(self) -> int:
        return self.src_tokens + self.tgt_tokens


def work_in(batches: Sequence[Pairs]) -> Work:
    lengths = [(len(s) + 1, len(t) + 1) for pairs in batches for s, t in pairs]
    return Work(
        sum(s for s, _ in lengths),
        sum(t for _, t in lengths),
        sum(s * s for s, _ in lengths),
        sum(t * (t + 1) // 2 for _, t in lengths),
        sum(s * t for s, t in lengths),
    )


def padding(batches: Sequence[Pairs]) -> float:
    """The share of padding in the rectangles of a batch's two sides."""
    cells = sum(
        len(pairs) * (max(len(s) for s, _ in pairs) + max(len(t) for _, t in pairs) + 2)
        for pairs in batches
    )
    return 1 - work_in(batches).tokens / cells


def step_flops(size: Size, work: Work) -> int:
    """Floating-point operations of the matrix products that steps need, forward and backward.

    Multiply-adds forward, with d = d_model and f = d_ff:
    * a source position in each layer: 4 d² (W_Q, W_K, W_V, W_O) + 2 d f (the feed-forward's two),
      and 2 d² in each layer of the decoder (W_K, W_V over the memory);
    * a target position in each layer: 4 d² + 2 d² (W_Q and W_O over the memory) + 2 d f;
    * a position that looks at another, in each layer: 2 d (Q K^T, and the sum of V);
    * a target position once: d V, the logits.
    A multiply-add is two operations, and backward has two products, for the gradients of input and
    weight, where forward has one: times 2, times 3. Everything else, a look-up among it, is 0.
    """
    d, f, N = size.d_model, size.d_ff, size.layers
    forward = work.src_tokens * N * (6 * d * d + 2 * d * f)
    forward += work.tgt_tokens * (N * (6 * d * d + 2 * d * f) + d * size.vocabulary)
    forward += (work.src_pairs + work.tgt_pairs + work.cross_pairs) * N * 2 * d
    return 3 * 2 * forward


def dropout_elements(size: Size, work: Work) -> int:
    """Those in the paper's two places, at real positions: (5.4)."""
    places = work.src_tokens * (1 + 2 * size.layers) + work.tgt_tokens * (1 + 3 * size.layers)
    return places * size.d_model


def products(size: Size) -> dict[tuple[int, int], int]:
    """The weights [k, m] that positions are multiplied by in a step forward, and how often."""
    d, f, N = size.d_model, size.d_ff, size.layers
    stacked = {(d, 3 * d): 2 * N, (d, 2 * d): N, (d, d): 4 * N}
    return {**stacked, (d, f): 2 * N, (f, d): 2 * N, (d, size.vocabulary): 1}


# ------------------------------------------------------------------------------------- measuring


class Dropped:
    """Counts the elements that dropout is applied to between ``start`` and ``stop``.

    By the calls that torch's own dropout makes; our module, which draws in a way of its own, by
    what goes through it. 0 where neither is seen, as inside a compiled model.
    """

    def start(self) -> None:
        import torch

        def count(module: Any, _: Any, output: Any) -> None:
            if type(module).__module__ == "mt.model.dropout":
                self._ours += output.numel()

        self._ours = 0
        self._hook = torch.nn.modules.module.register_module_forward_hook(count)
        activities = [torch.profiler.ProfilerActivity.CPU]
        self._profile = torch.profiler.profile(activities=activities, record_shapes=True)
        self._profile.start()

    def stop(self) -> int:
        self._profile.stop()
        self._hook.remove()
        torchs = sum(
            math.prod(call.input_shapes[0])
            for call in self._profile.events()
            if call.name == "aten::native_dropout"
            or (call.name == "aten::bernoulli_" and not _within(call, "aten::native_dropout"))
        )
        return self._ours or torchs


def _within(call: Any, name: str) -> bool:
    return call.cpu_parent is not None and call.cpu_parent.name == name


class Watch:
    """Is called with every step's loss; clocks the steps behind ``warm``, then one's dropout."""

    def __init__(self, warm: int, steps: int, device: str, count: bool = True) -> None:
        self.warm, self.steps, self.device, self.count = warm, steps, device, count
        self.losses: list[Any] = []
        self.meter, self.dropped = Meter(), Dropped()
        self.memory, self.elements = 0.0, 0

    def __call__(self, loss: Any) -> None:
        self.losses.append(loss)
        done = len(self.losses) - self.warm
        if done == 0:
            synchronize(self.device)
            self.meter.__enter__()
        elif done == self.steps:
            synchronize(self.device)
            self.meter.__exit__(None, None, None)
            self.memory = peak_memory(self.device)
            if self.count:
                self.dropped.start()
        elif done == self.steps + 1 and self.count:
            self.elements = self.dropped.stop()


def synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def peak_memory(device: str) -> float:
    """Megabytes, of 10**6 bytes."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure_engine(
    name: str, size: Size, batches: Sequence[Pairs], warm: int, device: str
) -> Sample:
    """A sample of steps on all batches but the first ``warm`` and the last, which is for counting.

    Raises ValueError when the loss of the untrained model says that it does something else.
    """
    import torch

    torch.manual_seed(0)
    engine = ENGINES[name]
    steps = len(batches) - warm - 1
    watch = Watch(warm, steps, device, count=not engine.compiled)
    engine.build(size, device)(batches, watch)
    first, last = float(watch.losses[0]), float(watch.losses[-1])
    expected = math.log(size.vocabulary)
    # Some give the divergence from the smoothed distribution, whose entropy is about 1.2 nats.
    if not 0.7 * expected < first < 1.4 * expected or not math.isfinite(last):
        raise ValueError(f"loss {first:.2f}, then {last:.2f}: not near {expected:.2f} at first")
    tokens = work_in(batches[warm:-1]).tokens
    return {
        "tokens_per_second": round(tokens / watch.meter.seconds, 1),
        "seconds": round(watch.meter.seconds, 3),
        "tokens": tokens,
        "steps": steps,
        "memory_mb": round(watch.memory),
        "dropout_elements": watch.elements or None,
        "first_loss": round(first, 4),
        "last_loss": round(last, 4),
        "others": watch.meter.others,
        "disturbed": disturbed(watch.meter.others),
    }


def measure_matrices(size: Size, rows: int, device: str) -> Sample:
    """What torch.mm reaches for the products of ``rows`` positions, in 10**9 operations a second.

    For each weight forward, for the gradient of the input and for the weight's; and for a step's
    share of them all together.
    """
    import torch

    rates: dict[str, dict[str, float]] = {}
    with Meter() as meter:
        for precision in ("float32", "bfloat16"):
            dtype = getattr(torch, precision)
            seconds = flops = 0.0
            found = rates[precision] = {}
            for (k, m), count in products(size).items():
                x = torch.randn(rows, k, dtype=dtype, device=device)
                W = torch.randn(m, k, dtype=dtype, device=device)
                y = torch.randn(rows, m, dtype=dtype, device=device)
                for a, b in ((x, W.T), (y, W), (y.T, x)):
                    took = median_seconds(partial(torch.mm, a, b), device)
                    operations = 2 * rows * k * m
                    found[f"{a.shape[0]}x{a.shape[1]}x{b.shape[1]}"] = operations / took / 1e9
                    seconds += count * took
                    flops += count * operations
            found["all"] = flops / seconds / 1e9
    rounded = {p: {key: round(rate, 1) for key, rate in r.items()} for p, r in rates.items()}
    about: Sample = {"others": meter.others, "disturbed": disturbed(meter.others)}
    if device == "cuda":
        about["gpu"] = torch.cuda.get_device_name()
    return {"gflops_per_second": rounded, "rows": rows, **about}


def median_seconds(run: Callable[[], object], device: str) -> float:
    run()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.1 and len(times) < 100):
        synchronize(device)
        start = time.perf_counter()
        run()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
