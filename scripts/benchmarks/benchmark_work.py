"""What a worker of `benchmark_train.py` measures: sentences, their operations, steps, products.

Other toolkits' interpreters run this file too, so its top imports the standard library only.
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
from benchmarking import Meter, Sample

SIZES = {
    **benchmark_models.SIZES,
    "big": Size(1024, 4096, 16, 6, 37000),
    "tiny": Size(32, 64, 4, 1, 200),  # for tests
}
MEAN, SPREAD, SIDES = 27, 0.55, 0.12  # source tokens; of log(length); of log(target / source)
LONGEST = 250  # tokens


def draw_batches(vocabulary: int, max_tokens: int, count: int) -> list[Pairs]:
    """Random sentence pairs with the lengths of a corpus, in batches of similar lengths.

    Most toolkits batch like this. mt pads in attention only, and mixes lengths in training.
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
    """Positions, and pairs of positions that attention compares, with eos and without padding."""

    src_tokens: int
    tgt_tokens: int
    src_pairs: int  # every source position with every source position
    tgt_pairs: int  # every target position with those up to itself
    cross_pairs: int  # every target position with every source position

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
    """The share of padding if both sides of each batch are padded to rectangles."""
    cells = sum(
        len(pairs) * (max(len(s) for s, _ in pairs) + max(len(t) for _, t in pairs) + 2)
        for pairs in batches
    )
    return 1 - work_in(batches).tokens / cells


def step_flops(size: Size, work: Work) -> int:
    """Floating-point operations of the matrix products that steps need, forward and backward.

    Multiply-adds of the forward pass, where d is d_model, f is d_ff and V is the vocabulary size:
    * each source position in each layer: 4 d² (W_Q, W_K, W_V, W_O) + 2 d f (feed-forward network),
      and 2 d² in each layer of the decoder (W_K and W_V of its cross-attention);
    * each target position in each layer: 4 d² + 2 d² (W_Q and W_O of cross-attention) + 2 d f;
    * each pair of positions in each layer: 2 d (Q K^T and the sum of values);
    * each target position once: d V (the logits).
    A multiply-add is two operations. For each product of the forward pass, the backward pass has
    two, for the gradients of input and weight. The total is therefore multiplied by 2 and by 3.
    Everything else, such as looking up embeddings, counts 0.
    """
    d, f, N = size.d_model, size.d_ff, size.layers
    forward = work.src_tokens * N * (6 * d * d + 2 * d * f)
    forward += work.tgt_tokens * (N * (6 * d * d + 2 * d * f) + d * size.vocabulary)
    forward += (work.src_pairs + work.tgt_pairs + work.cross_pairs) * N * 2 * d
    return 3 * 2 * forward


def dropout_elements(size: Size, work: Work) -> int:
    """Elements in the paper's two places (section 5.4), without padding."""
    places = work.src_tokens * (1 + 2 * size.layers) + work.tgt_tokens * (1 + 3 * size.layers)
    return places * size.d_model


def products(size: Size) -> dict[tuple[int, int], int]:
    """The shapes [k, m] of the forward pass's weights, and how many products each has."""
    d, f, N = size.d_model, size.d_ff, size.layers
    attention = {(d, 3 * d): 2 * N, (d, 2 * d): N, (d, d): 4 * N}  # W_QKV, W_KV, W_Q and W_O
    return {**attention, (d, f): 2 * N, (f, d): 2 * N, (d, size.vocabulary): 1}


def describe_work(size: Size, batches: Sequence[Pairs], warm: int) -> dict[str, Any]:
    """Facts of the batches that are timed: all but the first ``warm`` and the last."""
    timed = batches[warm:-1]
    work = work_in(timed)
    flops = step_flops(size, work)
    return {
        "size": size._asdict(),
        "timed": work._asdict(),
        "flops_per_step": round(flops / len(timed)),
        "flops_per_token": flops / work.tokens,
        "padding": round(padding(timed), 3),
        "dropout_elements": dropout_elements(size, work_in(batches[-1:])),
    }


class DropoutCounter:
    """Counts the elements that dropout is applied to between ``start`` and ``stop``.

    Counts the calls of torch's dropout, and the outputs of mt's dropout module, which draws in its
    own way. Returns 0 if it sees neither, as inside a compiled model.
    """

    def start(self) -> None:
        import torch

        def count(module: Any, _: Any, output: Any) -> None:
            if type(module).__module__ == "mt.model.dropout":
                self._mt_elements += output.numel()

        self._mt_elements = 0
        self._hook = torch.nn.modules.module.register_module_forward_hook(count)
        activities = [torch.profiler.ProfilerActivity.CPU]
        self._profile = torch.profiler.profile(activities=activities, record_shapes=True)
        self._profile.start()

    def stop(self) -> int:
        self._profile.stop()
        self._hook.remove()
        native, counted = "aten::native_dropout", ("aten::native_dropout", "aten::bernoulli_")
        events = (event for event in self._profile.events() if event.name in counted)
        return self._mt_elements or sum(
            math.prod(event.input_shapes[0])
            for event in events
            if event.cpu_parent is None or event.cpu_parent.name != native
        )


class Stopwatch:
    """Is called after every step: measures ``steps`` steps after the first ``warm``, then counts
    the dropout of one more."""

    def __init__(self, warm: int, steps: int, device: str, count: bool = True) -> None:
        self.warm, self.steps, self.device, self.count = warm, steps, device, count
        self.losses: list[Any] = []
        self.meter, self.dropout = Meter(), DropoutCounter()
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
                self.dropout.start()
        elif done == self.steps + 1 and self.count:
            self.elements = self.dropout.stop()


def synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def peak_memory(device: str) -> float:
    """In megabytes of 10**6 bytes."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure_engine(
    name: str, size: Size, batches: Sequence[Pairs], warm: int, device: str
) -> Sample:
    """A sample of steps on all batches but the first ``warm`` and the last, which counts dropout.

    Raises ValueError when the loss shows that the model does not start untrained, or diverges.
    """
    import torch

    torch.manual_seed(0)
    engine = ENGINES[name]
    steps = len(batches) - warm - 1
    watch = Stopwatch(warm, steps, device, count=not engine.compiled)
    engine.build(size, device)(batches, watch)
    first, last = float(watch.losses[0]), float(watch.losses[-1])
    expected = math.log(size.vocabulary)
    # Some report the divergence from the smoothed distribution, whose entropy is about 1.2 nats.
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
        **watch.meter.load(),
    }


def measure_matrices(size: Size, rows: int, device: str) -> Sample:
    """What torch.mm reaches for the products of ``rows`` positions, in 10**9 operations a second.

    Measures the forward pass of each weight, the gradient of its input and its own gradient; "all"
    is the rate of a step, which has each product as often as ``products`` says.
    """
    import torch

    rates: dict[str, dict[str, float]] = {}
    with Meter() as meter:
        for precision in ("float32", "bfloat16"):
            dtype = getattr(torch, precision)
            seconds = flops = 0.0
            rates[precision] = {}
            for (k, m), count in products(size).items():
                x = torch.randn(rows, k, dtype=dtype, device=device)
                W = torch.randn(m, k, dtype=dtype, device=device)
                y = torch.randn(rows, m, dtype=dtype, device=device)
                for a, b in ((x, W.T), (y, W), (y.T, x)):
                    took = median_seconds(partial(torch.mm, a, b), device)
                    operations = 2 * rows * k * m
                    shape = f"{a.shape[0]}x{a.shape[1]}x{b.shape[1]}"
                    rates[precision][shape] = round(operations / took / 1e9, 1)
                    seconds += count * took
                    flops += count * operations
            rates[precision]["all"] = round(flops / seconds / 1e9, 1)
    gpu = {"gpu": torch.cuda.get_device_name()} if device == "cuda" else {}
    return {"gflops_per_second": rates, "rows": rows, **meter.load(), **gpu}


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
