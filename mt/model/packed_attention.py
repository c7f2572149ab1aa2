"""Equation 1 over packed sentences in C++, for training on a CPU.

It reads queries, keys and values where the products leave them: no padding, and no copy that lays
out sentences and heads.

Shapes: B sentences, m rows of queries, n rows of keys and values (``mt.data.packing``), h heads of
d_k numbers.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mt.data.packing import Packed
from mt.model.native.library import library

LANES = 16  # numbers that the C++ takes at a time


def starts(packed: Packed) -> Tensor:
    """The first row of each sentence, and the row after the last one [B + 1]."""
    lengths = (packed.rows < packed.tokens).sum(1)
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def is_possible(device: torch.device, d_k: int) -> bool:
    """Whether there is C++ for heads of ``d_k`` numbers.

    False without gradients: translating alone must not wait for a compiler.
    """
    return (
        device.type == "cpu"
        and d_k % LANES == 0
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and library() is not None
    )


def takes(x: Tensor) -> bool:
    """Whether ``attend`` takes these vectors, which it does for their gradients alone."""
    return (
        x.requires_grad
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        and not torch.compiler.is_compiling()
    )


def attend(
    Q: Tensor,
    KV: Tensor | None,
    h: int,
    scale: float,
    q_starts: Tensor,
    k_starts: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Softmax(scale Q K^T) V for each sentence and head (3.2.1, equation 1).

    Queries [m, h * d_k], keys and values side by side [n, 2 * h * d_k] -> [m, h * d_k]. Without
    KV and k_starts, Q has all three side by side [m, 3 * h * d_k]. Rows of padding become zeros,
    and so do their gradients. ``starts`` makes the rows at which sentences begin, of as many
    sentences on both sides. With ``causal``, query i sees keys 0 to i. There are no second
    derivatives.
    """
    if k_starts is None:
        assert KV is None
        k_starts = q_starts
    return _PackedAttention.apply(Q, KV, h, scale, q_starts, k_starts, causal)


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, Q: Tensor, KV: Tensor | None, h: int, scale: float, q_starts: Tensor,
        k_starts: Tensor, causal: bool,
    ) -> Tensor:  # fmt: skip
        Q, KV = Q.contiguous(), None if KV is None else KV.contiguous()
        ctx.save_for_backward(Q, KV, q_starts, k_starts)
        ctx.shape = h, Q.shape[1] // (3 if KV is None else 1), scale, causal
        context = Q.new_empty(len(Q), ctx.shape[1])
        context[q_starts[-1] :] = 0
        _call(Q, KV, q_starts, k_starts, ctx.shape, None, context, None)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        Q, KV, q_starts, k_starts = ctx.saved_tensors
        grad_Q, grad_KV = torch.empty_like(Q), None if KV is None else torch.empty_like(KV)
        grad_Q[q_starts[-1] :] = 0
        if grad_KV is not None:
            grad_KV[k_starts[-1] :] = 0
        _call(Q, KV, q_starts, k_starts, ctx.shape, grad.to(Q.dtype).contiguous(), grad_Q, grad_KV)
        return grad_Q, grad_KV, None, None, None, None, None


def _call(
    Q: Tensor,
    KV: Tensor | None,
    q_starts: Tensor,
    k_starts: Tensor,
    shape: tuple[int, int, float, bool],
    grad: Tensor | None,
    out: Tensor,
    grad_KV: Tensor | None,
) -> None:
    """The C++, whose arguments native/attention.cpp explains."""
    h, width, scale, causal = shape
    native = library()
    assert native is not None  # is_possible
    native.mt_attention(
        Q.data_ptr(), Q.shape[1], *_keys_values(Q, KV, width), (Q if KV is None else KV).shape[1],
        q_starts.data_ptr(), k_starts.data_ptr(), None if grad is None else grad.data_ptr(),
        out.data_ptr(), *((None, None) if grad is None else _keys_values(out, grad_KV, width)),
        Q.dtype == torch.bfloat16, len(q_starts) - 1, h, width // h, scale, causal,
        torch.get_num_threads(),
    )  # fmt: skip


def _keys_values(Q: Tensor, KV: Tensor | None, width: int) -> tuple[int, int]:
    """Where the first key and the first value stand."""
    first = Q[:, width:] if KV is None else KV
    return first.data_ptr(), first[:, width:].data_ptr()
