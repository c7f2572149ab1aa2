"""Dropout (5.4) that is cheap on a CPU, where a float drawn per element costs a tenth of a step.

An element is dropped when a 16-bit number drawn for it is below P_drop * 2^16, rounded: P_drop
is met to within 2^-17. The scale of the kept elements is one over the exact share kept, so that
the expectation equals the input exactly. Other devices use PyTorch's own kernels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_VALUES = 2**16  # that a drawn number can have


class Dropout(nn.Module):
    """Zeroes a share ``P_drop`` of the elements in training and scales up the others."""

    def __init__(self, P_drop: float) -> None:
        super().__init__()
        self.P_drop = P_drop

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Dropout(x), plus a ``residual`` of the same shape if there is one."""
        return dropout(x, self.P_drop if self.training else 0.0, residual)

    def extra_repr(self) -> str:
        return f"P_drop={self.P_drop}"


def dropout(x: Tensor, P_drop: float, residual: Tensor | None = None) -> Tensor:
    """Dropout(x), plus a ``residual`` of the same shape if there is one."""
    if P_drop == 0:
        return x if residual is None else residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        dropped = F.dropout(x, P_drop)
        return dropped if residual is None else residual + dropped
    return _Dropout.apply(x, residual, P_drop)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, P_drop: float) -> Tensor:
        keep, ctx.scale = draw_keep_mask(x.shape, P_drop)
        ctx.save_for_backward(keep)
        ctx.dtype = x.dtype
        if residual is None:
            return x * _factors(keep, ctx.scale, x.dtype)
        factors = _factors(keep, ctx.scale, residual.dtype)
        return torch.addcmul(residual, x.to(residual.dtype), factors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (keep,) = ctx.saved_tensors
        residual = grad if ctx.needs_input_grad[1] else None
        return (grad * _factors(keep, ctx.scale, grad.dtype)).to(ctx.dtype), residual, None


def draw_keep_mask(shape: torch.Size, P_drop: float) -> tuple[Tensor, float]:
    """The elements to keep, a bool of ``shape`` drawn by PyTorch's generator, and their scale."""
    threshold = min(round(P_drop * _VALUES), _VALUES - 1)
    # 64 random bits at a time, read as four numbers from -2^15
    words = torch.empty(-(-shape.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[: shape.numel()].view(shape)
    return numbers >= threshold - _VALUES // 2, _VALUES / (_VALUES - threshold)


def _factors(keep: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    return keep.to(dtype).mul_(scale)
