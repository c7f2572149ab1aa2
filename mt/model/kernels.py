"""Equation 1 on each kind of device, and the gather that lays out its inputs."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.model.dropout import dropout


def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    P_drop: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention, softmax(Q K^T / sqrt(d_k)) V (3.2.1, equation 1).

    Q [B, h, T, d_k], K [B, h, S, d_k], V [B, h, S, d_v] -> [B, h, T, d_v]. ``mask`` is True where
    a query may look at a key; ``causal``, which goes without a mask, lets query i see keys 0 to i.
    ``scale`` replaces 1 / sqrt(d_k); ``P_drop`` is the dropout of the weights.
    """
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    if Q.device.type == "cpu":
        return _attention_on_cpu(Q, K, V, mask, causal, scale, P_drop)
    return F.scaled_dot_product_attention(
        Q, K, V, attn_mask=mask, is_causal=causal, scale=scale, dropout_p=P_drop
    )


def _attention_on_cpu(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, causal: bool, scale: float, P_drop: float
) -> Tensor:
    """Two products and a softmax: PyTorch's fused kernel is slower here, ten times in bfloat16.

    All three use at least float32: bfloat16 gains nothing here, because oneDNN compiles code
    for every new T and S. B is the sentences of one group.
    """
    dtype = torch.promote_types(Q.dtype, torch.float32)
    (B, h, T, _), S = Q.shape, K.shape[2]
    if causal:
        mask = torch.ones(1, T, S, dtype=torch.bool).tril()
    elif mask is not None:
        mask = mask.expand(B, h, -1, S).flatten(0, 1)
    else:
        mask = torch.ones(1, 1, 1, dtype=torch.bool)
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, -math.inf)
    q, k, v = (x.flatten(0, 1).to(dtype) for x in (Q, K, V))
    with torch.autocast("cpu", enabled=False):
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)  # [B * h, T, S]
        weights = dropout(scores.softmax(dim=-1), P_drop)
        return torch.bmm(weights, v).view(B, h, T, -1).to(Q.dtype)


class Gather(torch.autograd.Function):
    """``Gather.apply(x, index, inverse, used)`` is x[index] with a gather as its gradient too.

    PyTorch's own gradient adds row by row, which is slow. Here ``inverse`` says at which place of
    ``index`` each row of x stands. Only the first ``used`` rows of x stand there (None: all);
    the others have no gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, used: int | None) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.used = used
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        grad = grad.index_select(0, inverse)
        if ctx.used is not None:
            grad[ctx.used :] = 0
        return grad, None, None, None
