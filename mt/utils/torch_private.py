"""What this project uses of PyTorch beyond its public interface, and why; each has a test."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor

# Shapes that oneDNN, and PyTorch's layer above it, each remember: a training step has fewer.
_REMEMBERED_SHAPES = "64"


def block_weight(W: Tensor, rows: int) -> Tensor:
    """W [out, in] copied into the blocks of oneDNN that are best for an x of ``rows`` rows.

    Any number of rows can be multiplied with it. The public nn.Linear blocks its weight again in
    every product; only torch.compile, which is slow to start, puts these operators in its place.
    """
    return torch.ops.mkldnn._reorder_linear_weight(W.contiguous(), rows)


def blocked_linear(x: Tensor, W: Tensor, b: Tensor | None, activation: str = "none") -> Tensor:
    """x [R, in], a blocked W, b [out] -> x W^T + b, or its "relu", [R, out]."""
    return torch.ops.mkldnn._linear_pointwise(x, W, b, activation, [], "")


def blocked_linear_add(x: Tensor, residual: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    """x [R, in], residual [R, out], a blocked W, b [out] -> x W^T + b + residual."""
    return torch.ops.mkldnn._linear_pointwise.binary(x, residual, W, b, "add")


def multiply_all(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply all tensors by a scalar in place, in few kernels: a public loop has one each."""
    torch._foreach_mul_(list(tensors), factor)


def can_multiply_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 on this CPU. PyTorch's own product takes very long."""
    available = torch.backends.mkldnn.is_available()
    return available and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def limit_onednn_memory() -> None:
    """Call this before the first product: later ones do not read the environment any more.

    oneDNN keeps the code of the last 1,024 shapes, and PyTorch their descriptors, 0.6 MB a shape.
    Products of bfloat16 have new shapes in most batches of a training, so that its memory grows for
    hundreds of steps. The variables' own values win, where they are set.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, _REMEMBERED_SHAPES)
