"""Matrix products for inference, in float32, bfloat16 and int8.

A LinearOp holds W [out, in] and perhaps b [out]. Each of its products uses as few operations as
its precision allows.
"""

import logging
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from mt.inference.native.linear import NativeLinear, can_multiply
from mt.inference.options import PRECISIONS
from mt.utils import torch_private

log = logging.getLogger(__name__)


class LinearOp(Protocol):
    """x [R, in] -> [R, out]."""

    def __call__(self, x: Tensor) -> Tensor:
        """x W^T + b"""

    def relu(self, x: Tensor) -> Tensor:
        """max(0, x W^T + b)"""

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        """x W^T + b + residual"""


MakeLinear = Callable[..., LinearOp]  # of W and b


class DenseLinear:
    """W as the model has it, without a copy."""

    def __init__(self, W: Tensor, b: Tensor | None = None) -> None:
        self.W, self.b = W.t(), b

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.W) if self.b is None else torch.addmm(self.b, x, self.W)

    def relu(self, x: Tensor) -> Tensor:
        return self(x).relu_()

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        y = torch.addmm(residual, x, self.W)
        return y if self.b is None else y.add_(self.b)


class BlockedLinear:
    """W in the blocks of oneDNN, on a CPU."""

    def __init__(self, W: Tensor, b: Tensor | None = None) -> None:
        self.W, self.b = torch_private.block_weight(W, rows=64), b
        # A float32 product with one row only waits for the memory: blocks do not help.
        self.single = DenseLinear(W, b) if W.dtype == torch.float32 else None

    def __call__(self, x: Tensor) -> Tensor:
        if self.single is not None and len(x) == 1:
            return self.single(x)
        return torch_private.blocked_linear(x, self.W, self.b)

    def relu(self, x: Tensor) -> Tensor:
        return torch_private.blocked_linear(x, self.W, self.b, "relu")

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch_private.blocked_linear_add(x, residual, self.W, self.b)


class Int8Linear:
    """W in 8 bits with a scale for each output; x is rounded to 8 bits between its extremes.

    That is, between those of all its rows: use ``mt.inference.native`` instead where it runs. On a
    CPU without VNNI, x has 7 bits.
    """

    def __init__(self, W: Tensor, b: Tensor | None = None) -> None:
        self.W = _quantize(W, b)
        self.reduce_range = saturates()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.W, self.reduce_range)

    def relu(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_relu_dynamic(x, self.W, self.reduce_range)

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)


def _quantize(W: Tensor, b: Tensor | None = None) -> Any:
    """W and b as PyTorch's products of 8 bits take them."""
    scales = W.abs().amax(dim=1).clamp(min=1e-8).double() / 127
    zeros = torch.zeros(len(W), dtype=torch.long)
    with warnings.catch_warnings():  # torch 2.13 announces a successor of this function
        warnings.filterwarnings("ignore", ".*quantize.*", UserWarning)
        rounded = torch.quantize_per_channel(W, scales, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(rounded, b)


@lru_cache(maxsize=1)
def saturates() -> bool:
    """Whether a sum of two products of 8 bits is cut at 16 bits, as vpmaddubsw of AVX2 does."""
    product = torch.ops.quantized.linear_dynamic(torch.ones(1, 64), _quantize(torch.ones(1, 64)))
    return float(product) < 60  # 64 where it is not


def linear_ops(
    precision: str, device: torch.device, native: bool = False
) -> tuple[MakeLinear, torch.dtype]:
    """A function that makes a LinearOp of W and b, and the dtype of its inputs and outputs.

    With ``native`` those of float32 are in C++; those of int8 are wherever they can be.
    Raises ValueError for an unknown precision, and for int8 on a device other than the CPU.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: must be one of {', '.join(PRECISIONS)}")
    kind: MakeLinear = DenseLinear
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    if precision == "int8":
        if device.type != "cpu":
            raise ValueError(f"precision='int8' is for the CPU, not for {device}")
        kind = _int8_linear
    elif precision == "float32" and native:
        kind = NativeLinear
    elif precision == "bfloat16" and can_block(device, dtype):
        kind = BlockedLinear
    elif precision == "bfloat16" and device.type == "cpu":
        log.warning(
            "precision bfloat16 takes many times longer than float32 here: this CPU has no "
            "instructions for it"
        )

    def make(W: Tensor, b: Tensor | None = None) -> LinearOp:
        return kind(W.to(dtype), None if b is None else b.to(dtype))

    return make, dtype


def _int8_linear(W: Tensor, b: Tensor | None = None) -> LinearOp:
    return NativeLinear(W, b, int8=True) if can_multiply(W) else Int8Linear(W, b)


def can_block(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether ``BlockedLinear`` takes such weights."""
    if device.type != "cpu":
        return False
    if dtype == torch.bfloat16:
        return torch_private.can_multiply_bfloat16()
    return torch.backends.mkldnn.is_available()
