"""How long a matrix product takes by each way that translation could go on a CPU.

python scripts/benchmarks/benchmark_products.py [--threads 1] [--rows 1,4,64] [--output FILE.json]

Measures the products of the size "small" of `benchmark_translate.py`, with rounding the activations
where a way needs that. docs/performance.md says what each way is.
"""

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from benchmarking import add_output_options, new_parser, numbers, versions
from reporting import new_report, table, write_report
from torch import Tensor

from mt.inference.linear import BlockedLinear, Int8Linear, can_block
from mt.inference.native.linear import NativeLinear, can_multiply

SHAPES = ((256, 256), (768, 256), (1024, 256), (256, 1024), (8000, 256))  # out, in


def ways(W: Tensor, x: Tensor) -> dict[str, Callable[[], Any]]:
    """A function for each way to compute x W^T."""
    scales = W.abs().amax(dim=1) / 127
    rounded = (W / scales[:, None]).round().to(torch.int8)
    half, zeros = torch.fbgemm_pack_gemm_matrix_fp16(W), torch.zeros(len(W))
    fbgemm, onednn = Int8Linear(W), with_engine("onednn", W)
    unchecked = torch.ops.quantized.linear_dynamic.default._op
    functions: dict[str, Callable[[], Any]] = {
        "float32": lambda: torch.mm(x, W.t()),
        "float16 weights, FBGEMM": lambda: torch.fbgemm_linear_fp16_weight_fp32_activation(
            x, half, zeros
        ),
        "int8 weights alone": lambda: torch._weight_int8pack_mm(x, rounded, scales),
        "int8, oneDNN": lambda: onednn(x),
        "int8, FBGEMM": lambda: fbgemm(x),
        "int8, FBGEMM, unchecked": lambda: unchecked(x, fbgemm.W),
    }
    if can_block(W.device, torch.bfloat16):
        blocked, x16 = BlockedLinear(W.bfloat16()), x.bfloat16()
        functions["bfloat16, oneDNN"] = lambda: blocked(x16)
    if len(x) > 64:  # it would take minutes
        del functions["int8 weights alone"]
    if can_multiply(W):
        native, native_int8 = NativeLinear(W), NativeLinear(W, int8=True)
        functions["float32, C++ of mt"] = lambda: native(x)
        functions["int8, C++ of mt"] = lambda: native_int8(x)
    return functions


def with_engine(name: str, W: Tensor) -> Int8Linear:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        return Int8Linear(W)
    finally:
        torch.backends.quantized.engine = before


def microseconds(run: Callable[[], object], seconds: float) -> float:
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(10):
            run()
        times.append((time.perf_counter() - start) * 1e5)
    return statistics.median(times)


@torch.inference_mode()
def main() -> None:
    parser = new_parser(__doc__)
    add_output_options(parser, picture=False, threads=1)
    parser.add_argument("--rows", type=numbers, default=[1, 4, 64, 256])
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement, at least")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")  # torch announces successors of some of these
    results = []
    for rows in args.rows:
        for out, n in SHAPES:
            runs = ways(torch.randn(out, n), torch.randn(rows, n))
            times = {way: round(microseconds(run, args.seconds), 1) for way, run in runs.items()}
            results.append({"rows": rows, "in": n, "out": out, "microseconds": times})
    columns = list(results[0]["microseconds"])
    lines = [
        [f"{r['rows']} × {r['in']} × {r['out']}", *(r["microseconds"].get(c, "") for c in columns)]
        for r in results
    ]
    print(table(["µs", *columns], lines))
    settings = {"threads": args.threads, "versions": versions(["torch"])}
    write_report(args.output, new_report(**settings, results=results))


if __name__ == "__main__":
    main()
