"""Where the time of translating one sentence goes, and how far from the memory's limit it is.

python scripts/profile_translate.py [--threads 2] [--output FILE.json]

One sentence at a time, a step of decoding reads every weight of the decoder and the vocabulary once
and uses it for as many rows as there are hypotheses. For each size and search of
`benchmark_translate.py` this prints, in microseconds a step: the whole search; of it the decoder's
step; of that the matrix products; the step of a model with as many operations and next to no
weights, which is what it costs to call PyTorch at all; and the time in which the fastest plain
reading found on this machine, a sum or a matrix-vector product over one buffer of that size, goes
through as many bytes. No search in this precision can be faster than that reading.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from benchmark_models import FIRST_WORD, SIZES, Size, padded
from benchmark_translate import batches, title
from benchmarking import command_line, machine, table, versions

from mt.data.special_ids import EOS, PAD
from mt.inference.beam_search import search
from mt.inference.incremental import InferenceModel
from mt.inference.options import SearchOptions
from mt.model.transformer import Transformer

STEPS = 37  # tokens of each output, eos counted
PRODUCTS = ("aten::mm", "aten::addmm", "mkldnn::_linear_pointwise")


def build(size: Size) -> InferenceModel:
    torch.manual_seed(0)
    return InferenceModel(
        Transformer(
            size.vocabulary, N=size.layers, d_model=size.d_model, d_ff=size.d_ff, h=size.heads
        ).eval()
    )


def bytes_a_step(size: Size) -> int:
    """Of what a step multiplies by: six square matrices and the feed-forward's two a layer."""
    layer = 6 * size.d_model**2 + 2 * size.d_model * size.d_ff
    return 4 * (size.layers * layer + size.vocabulary * size.d_model)


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
    """Microseconds of the fastest way found to read so many bytes of float32."""
    weights, x = torch.randn(count // 2048, 512), torch.randn(512)
    ways = (lambda: weights.sum(), lambda: torch.mv(weights, x), lambda: weights @ x[:, None])
    return min(microseconds(way) for way in ways)


def steps(decoder: InferenceModel, beam: int, sources: list[list[int]]) -> dict[str, float]:
    """Microseconds a step of the search, of the decoder alone, and of its products."""
    options = SearchOptions(beam, min_length=STEPS - 1, max_length=STEPS - 1)
    inputs = [padded([source], EOS, PAD) for source in sources]

    def run() -> None:
        for src in inputs:
            search(decoder, src, options)

    whole = microseconds(run, 5)
    original, spent = decoder.step, [0.0]

    def timed(*arguments: Any) -> torch.Tensor:
        start = time.perf_counter()
        logits = original(*arguments)
        spent[0] += time.perf_counter() - start
        return logits

    decoder.step = timed  # type: ignore[method-assign]
    run()
    decoder.step = original  # type: ignore[method-assign]
    state = decoder.start(inputs[0])
    with torch.inference_mode(), torch.profiler.profile() as profile:
        decoder.step(torch.full((1, 1), FIRST_WORD), state)
        parents = None if beam == 1 else torch.zeros(1, beam, dtype=torch.long)
        for _ in range(STEPS):
            decoder.step(torch.full((1, beam), FIRST_WORD), state, parents)
    events = profile.key_averages()
    products = sum(e.self_cpu_time_total for e in events if e.key in PRODUCTS)
    count = STEPS * len(inputs)
    return {
        "search": whole / count,
        "step": spent[0] * 1e6 / count,
        "products": products / (STEPS + 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])  # type: ignore[union-attr]
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", help="a JSON file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows, found = [], []
    for name, size in SIZES.items():
        sources = next(batches(size.vocabulary, 8))
        nothing = build(Size(16, 16, size.heads, size.layers, 64))
        small_sources = [[FIRST_WORD] * len(source) for source in sources]
        decoder = build(size)
        count = bytes_a_step(size)
        limit = reading(count)
        for beam in (1, 4):
            measured = steps(decoder, beam, sources)
            measured["called at all"] = steps(nothing, beam, small_sources)["step"]
            measured["reading"] = limit
            found.append(
                {
                    "size": name,
                    "beam": beam,
                    "megabytes": count / 1e6,
                    "gigabytes_per_second": round(count / limit / 1e3, 1),
                    "microseconds": {key: round(value, 1) for key, value in measured.items()},
                }
            )
            values = (f"{value:.0f}" for value in measured.values())
            rows.append([title(name, beam, 1), f"{count / 1e6:.0f}", *values])
    header = ["µs a step", "MB read", "search", "step", "products", "called at all", "reading"]
    print(table(header, rows))
    report = {
        "date": date.today().isoformat(),
        "command": command_line(),
        "machine": machine(),
        "threads": args.threads,
        "versions": versions(["torch"]),
        "results": found,
    }
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
