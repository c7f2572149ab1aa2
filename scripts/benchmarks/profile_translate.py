"""Where the time of translating one sentence goes, and how far from the memory's limit it is.

python scripts/benchmarks/profile_translate.py [--threads 2] [--precision int8] [--output FILE.json]

Measures each size and search of `benchmark_translate.py`, in microseconds a step.
docs/performance.md says what each column means. In C++ (`mt.inference.native`), products are the
whole call; MT_NATIVE=0 shows float32 and int8 without it.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from benchmark_models import FIRST_WORD, SIZES, Size, padded
from benchmark_translate import batches, title
from benchmarking import add_output_options, new_parser, versions
from reporting import new_report, table, write_report

from mt.data.special_ids import EOS, PAD
from mt.inference.beam_search import search
from mt.inference.incremental import InferenceModel
from mt.inference.options import PRECISIONS, SearchOptions
from mt.model.transformer import Transformer

STEPS = 37  # tokens of each output, with eos
PRODUCTS = (
    "aten::mm",
    "aten::addmm",
    "mkldnn::_linear_pointwise",
    "quantized::linear_dynamic",
    "quantized::linear_relu_dynamic",
)
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}  # of a weight


def build(size: Size, precision: str) -> InferenceModel:
    torch.manual_seed(0)
    return InferenceModel(Transformer(size.vocabulary, **size.of_mt()).eval(), precision)


def bytes_a_step(size: Size, precision: str) -> int:
    """Weights that a step reads: six square matrices and the feed-forward's two in each layer."""
    layer = 6 * size.d_model**2 + 2 * size.d_model * size.d_ff
    return BYTES[precision] * (size.layers * layer + size.vocabulary * size.d_model)


def microseconds(run: Callable[[], object], repeats: int = 9) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


@torch.inference_mode()
def reading(count: int) -> float:
    """Microseconds that the fastest known way takes to read so many bytes of float32."""
    weights, x = torch.randn(count // 2048, 512), torch.randn(512)
    readers = (lambda: weights.sum(), lambda: torch.mv(weights, x), lambda: weights @ x[:, None])
    return min(microseconds(read) for read in readers)


@contextmanager
def clock(owner: Any, name: str) -> Iterator[list[float]]:
    """The microseconds that calls of a function take meanwhile."""
    original, spent = getattr(owner, name), []

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        result = original(*arguments)
        spent.append((time.perf_counter() - start) * 1e6)
        return result

    setattr(owner, name, timed)
    try:
        yield spent
    finally:
        setattr(owner, name, original)


def profiled_products(model: InferenceModel, beam: int, src: torch.Tensor) -> float:
    """Microseconds a step that PyTorch's products take."""
    state = model.start(src)
    with torch.inference_mode(), torch.profiler.profile() as profile:
        model.step(torch.full((1, 1), FIRST_WORD), state)
        parents = None if beam == 1 else torch.zeros(1, beam, dtype=torch.long)
        for _ in range(STEPS):
            model.step(torch.full((1, beam), FIRST_WORD), state, parents)
    events = profile.key_averages()
    return sum(e.self_cpu_time_total for e in events if e.key in PRODUCTS) / (STEPS + 1)


def measure(model: InferenceModel, beam: int, sources: list[list[int]]) -> dict[str, float]:
    """Microseconds a step of the search, of the decoder's step, and of its products."""
    options = SearchOptions(beam, min_length=STEPS - 1, max_length=STEPS - 1)
    inputs = [padded([source], EOS, PAD) for source in sources]

    def run() -> None:
        for src in inputs:
            search(model, src, options)

    whole = microseconds(run, 5)
    with clock(model, "step") as step:
        run()
    if model.native is None:
        products = profiled_products(model, beam, inputs[0])
    else:
        with clock(model.native, "_step") as call:
            run()
        products = statistics.mean(call)
    return {
        "search": whole / (STEPS * len(inputs)),
        "step": statistics.mean(step),
        "products": products,
    }


def main() -> None:
    parser = new_parser(__doc__)
    add_output_options(parser, picture=False)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows, results = [], []
    for name, size in SIZES.items():
        sources = next(batches(size.vocabulary, 8))
        # As small as the C++ takes it.
        empty = build(Size(16 * size.heads, 16, size.heads, size.layers, 64), args.precision)
        small_sources = [[FIRST_WORD] * len(source) for source in sources]
        model = build(size, args.precision)
        count = bytes_a_step(size, args.precision)
        limit = reading(count)
        for beam in (1, 4):
            measured = measure(model, beam, sources)
            measured["called at all"] = measure(empty, beam, small_sources)["step"]
            measured["reading"] = limit
            result = {
                "size": name,
                "beam": beam,
                "megabytes": count / 1e6,
                "gigabytes_per_second": round(count / limit / 1e3, 1),
                "microseconds": {key: round(value, 1) for key, value in measured.items()},
            }
            results.append(result)
            values = (f"{value:.0f}" for value in measured.values())
            rows.append([title({**result, "batch": 1}), f"{count / 1e6:.0f}", *values])
    header = ["µs a step", "MB read", "search", "step", "products", "called at all", "reading"]
    print(table(header, rows))
    settings = {"threads": args.threads, "precision": args.precision}
    settings["native"] = model.native is not None
    report = new_report(**settings, versions=versions(["torch"]), results=results)
    write_report(args.output, report)


if __name__ == "__main__":
    main()
