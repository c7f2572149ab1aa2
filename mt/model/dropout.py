"""Dropout (5.4) that is cheap on a CPU, where a float drawn per element costs a tenth of a step.

An element is dropped when a 16-bit number drawn for it is below P_drop * 2^16, rounded: P_drop
is met to within 2^-17. The scale of the kept elements is one over the exact share kept, so that
the expectation equals the input exactly. native/dropout.cpp makes the numbers from a seed and the
element's place, in one pass with the addition; where there is no C++, PyTorch draws them. Other
devices use PyTorch's own kernels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mt.model.native.library import library

_VALUES = 2**16  # that a drawn number can have
_FLOATS = (torch.float32, torch.bfloat16)  # types of the C++
_ENOUGH = 2**15  # elements that are worth a second thread


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
    """Dropout(x), plus a ``residual`` of the same shape if there is one.

    In C++ it has no second derivatives.
    """
    if P_drop == 0:
        return x if residual is None else residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        dropped = F.dropout(x, P_drop)
        return dropped if residual is None else residual + dropped
    alike = residual is None or (residual.shape, residual.device) == (x.shape, x.device)
    is_float = x.dtype in _FLOATS and (residual is None or residual.dtype in _FLOATS)
    if alike and is_float and library() is not None:
        return _NativeDropout.apply(x, residual, P_drop)
    return _Dropout.apply(x, residual, P_drop)


class _NativeDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, P_drop: float) -> Tensor:
        ctx.dtype = x.dtype
        ctx.seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None))
        ctx.threshold, ctx.scale = _threshold_and_scale(P_drop)
        return _drop(x, residual, x.dtype if residual is None else residual.dtype, ctx)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        residual = grad if ctx.needs_input_grad[1] else None
        return _drop(grad, None, ctx.dtype, ctx), residual, None


def _drop(x: Tensor, residual: Tensor | None, dtype: torch.dtype, ctx: Any) -> Tensor:
    x = x.contiguous()
    out = x.new_empty(x.shape, dtype=dtype)
    residual = None if residual is None else residual.contiguous()
    native = library()
    assert native is not None
    native.mt_dropout(
        x.data_ptr(), x.dtype == torch.bfloat16, None if residual is None else residual.data_ptr(),
        out.data_ptr(), dtype == torch.bfloat16, x.numel(), ctx.seed, ctx.threshold, ctx.scale,
        torch.get_num_threads() if x.numel() > _ENOUGH else 1,
    )  # fmt: skip
    return out


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
    threshold, scale = _threshold_and_scale(P_drop)
    # 64 random bits at a time, read as four numbers from -2^15
    words = torch.empty(-(-shape.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[: shape.numel()].view(shape)
    return numbers >= threshold - _VALUES // 2, scale


def _threshold_and_scale(P_drop: float) -> tuple[int, float]:
    threshold = min(round(P_drop * _VALUES), _VALUES - 1)
    return threshold, _VALUES / (_VALUES - threshold)


def _factors(keep: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    return keep.to(dtype).mul_(scale)
