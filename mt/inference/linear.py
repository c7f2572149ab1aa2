"""Matrix products for translating, in float32, bfloat16 and int8.

A Matrix holds W [out, in] and perhaps b [out]. For x [R, in], ``matrix(x)`` is x W^T + b,
``matrix.relu(x)`` is max(0, x W^T + b) and ``matrix.add_residual(x, residual)`` is x W^T + b + residual,
each [R, out] and as few operations as can be.
"""

import warnings
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

PRECISIONS = ("float32", "bfloat16", "int8")


class LinearOp(Protocol):
    def __call__(self, x: Tensor) -> Tensor: ...

    def relu(self, x: Tensor) -> Tensor: ...

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor: ...


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
    """W in oneDNN's blocks, by the operators that torch.compile puts in the place of nn.Linear."""

    def __init__(self, W: Tensor, b: Tensor | None = None) -> None:
        rows = 64  # for which the blocks are chosen; they serve any number
        self.W = torch.ops.mkldnn._reorder_linear_weight(W.contiguous(), rows)
        self.b = b
        # A float32 product with a single row only waits for the memory: blocks are of no use.
        self.single = DenseLinear(W, b) if W.dtype == torch.float32 else None

    def __call__(self, x: Tensor) -> Tensor:
        if self.single is not None and len(x) == 1:
            return self.single(x)
        return torch.ops.mkldnn._linear_pointwise(x, self.W, self.b, "none", [], "")

    def relu(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.W, self.b, "relu", [], "")

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.W, self.b, "add")


class Int8Linear:
    """W in 8 bits, a scale for each output; x is rounded to 8 bits by its least and largest."""

    def __init__(self, W: Tensor, b: Tensor | None = None) -> None:
        scales = W.abs().amax(dim=1).clamp(min=1e-8).double() / 127
        zeros = torch.zeros(len(W), dtype=torch.long)
        with warnings.catch_warnings():  # torch 2.13 announces other functions for this
            warnings.filterwarnings("ignore", ".*quantize.*", UserWarning)
            rounded = torch.quantize_per_channel(W, scales, zeros, 0, torch.qint8)
            self.W = torch.ops.quantized.linear_prepack(rounded, b)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.W)

    def relu(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_relu_dynamic(x, self.W)

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)


def linear_ops(precision: str, device: torch.device) -> tuple[Callable[..., LinearOp], torch.dtype]:
    """What makes a Matrix of W and b, and the type of what is multiplied.

    Raises ValueError for an unknown precision, or int8 on another device than the CPU.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: must be one of {', '.join(PRECISIONS)}")
    kind: Callable[..., LinearOp] = DenseLinear
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    if precision == "int8":
        if device.type != "cpu":
            raise ValueError(f"precision='int8' is for the CPU, not for {device}")
        kind = Int8Linear
    elif precision == "bfloat16" and can_pack(device):
        kind = BlockedLinear

    def make(W: Tensor, b: Tensor | None = None) -> LinearOp:
        return kind(W.to(dtype), None if b is None else b.to(dtype))

    return make, dtype


def can_pack(device: torch.device) -> bool:
    return device.type == "cpu" and torch.backends.mkldnn.is_available()
