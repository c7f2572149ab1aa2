"""The private functions of PyTorch that we use are there, and do what we take them to do."""

import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from mt.utils import torch_private

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"
)
needs_bfloat16 = pytest.mark.skipif(
    not torch_private.can_multiply_bfloat16(), reason="this CPU has no instructions for bfloat16"
)


@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("dtype", "atol"),
    [
        pytest.param(torch.float32, 1e-4, marks=needs_onednn),
        pytest.param(torch.bfloat16, 0.2, marks=needs_bfloat16),
    ],
)
def test_blocked_products_are_the_formula(
    dtype: torch.dtype, atol: float, biased: bool, rows: int
) -> None:
    torch.manual_seed(0)
    W, x, residual = torch.randn(24, 16), torch.randn(rows, 16), torch.randn(rows, 24)
    b = torch.randn(24) if biased else None
    expected = torch.nn.functional.linear(x, W, b)
    W, x, residual = W.to(dtype), x.to(dtype), residual.to(dtype)
    b = None if b is None else b.to(dtype)
    with torch.inference_mode():
        blocked = torch_private.block_weight(W, rows=64)
        plain = torch_private.blocked_linear(x, blocked, b)
        relu = torch_private.blocked_linear(x, blocked, b, "relu")
        added = torch_private.blocked_linear_add(x, residual, blocked, b)
    assert plain.dtype == dtype
    assert_close(plain.float(), expected, atol=atol, rtol=0)
    assert_close(relu.float(), expected.relu(), atol=atol, rtol=0)
    assert_close(added.float(), expected + residual.float(), atol=atol, rtol=0)


def test_all_tensors_are_multiplied_in_place() -> None:
    tensors = [torch.ones(2, 3), torch.full((4,), 2.0)]
    torch_private.multiply_all(tensors, torch.tensor(0.5))
    assert torch.equal(tensors[0], torch.full((2, 3), 0.5))
    assert torch.equal(tensors[1], torch.ones(4))


# The memory of a process that multiplies by 300 numbers of rows, in MB more than after the first.
MANY_SHAPES = """
import torch
from mt.utils import torch_private

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

torch_private.limit_onednn_memory()
torch.set_num_threads(1)
x, W = torch.zeros(310, 64), torch.zeros(64, 64)
torch_private.blocked_linear(x[:5], W, None)
before = resident()
for rows in range(10, 310):
    torch_private.blocked_linear(x[:rows], W, None)
print(resident() - before)
"""


@needs_onednn
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_onednn_remembers_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-c", MANY_SHAPES]
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(grown) < 80  # 50; without the limit 180
