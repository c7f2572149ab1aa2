"""Label-smoothed cross-entropy (5.4), without ever holding the logits of a whole batch.

Shapes: n target positions, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK = 4096  # rows of the weight's gradient that are made at a time in bfloat16


def smoothed_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, eps_ls: float
) -> tuple[Tensor, Tensor]:
    """Sums over n positions, in nats: the smoothed loss, and the plain negative log-likelihood.

    states [n, d_model] times weight [V, d_model] are the logits; targets [n] the ids to predict.
    Rows of states behind the n-th are padding and take no part, but spare the products odd sizes.
    The target distribution gives 1 - eps_ls to the id and spreads eps_ls over all V (Szegedy et
    al. 2016, which 5.4 cites). Only the first sum carries gradients, and backward can be taken
    once. The gradients are made beside the loss, chunk by chunk; softmax, loss and sums are in
    float32 (float64 for float64) whatever the precision of the products.

    Raises ValueError when eps_ls is outside [0, 1).
    """
    if not isinstance(eps_ls, int | float) or not 0 <= eps_ls < 1:
        raise ValueError(f"eps_ls={eps_ls!r}: must be a number from 0 up to, not including, 1")
    # needs_input_grad, in there, stays true under no_grad, and grad mode is always off
    grads = torch.is_grad_enabled()
    loss, nll = _SmoothedCrossEntropy.apply(states, weight, targets, eps_ls, grads)
    return loss, nll


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, eps_ls: float, grads: bool
    ) -> tuple[Tensor, Tensor]:
        n, V = len(states), len(weight)
        device = states.device.type
        if torch.is_autocast_enabled(device):
            product_dtype = torch.get_autocast_dtype(device)
        else:
            product_dtype = states.dtype
        sum_dtype = torch.promote_types(product_dtype, torch.float32)
        W = weight.to(product_dtype)
        X = states.to(product_dtype)
        with_grad = grads and any(ctx.needs_input_grad)
        grad_states = torch.empty_like(states) if with_grad else None
        grad_weight = torch.zeros_like(weight, dtype=sum_dtype) if with_grad else None
        loss = torch.zeros((), dtype=sum_dtype, device=states.device)
        nll = torch.zeros_like(loss)
        rows = _rows(weight)
        chunk = torch.empty(min(n, rows), V, dtype=sum_dtype, device=states.device)
        with torch.autocast(device, enabled=False):
            for start in range(0, n, rows):
                x, target = X[start : start + rows], targets[start : start + rows, None]
                log_P = chunk[: len(x)]
                if product_dtype == sum_dtype:
                    torch.mm(x, W.T, out=log_P)
                else:
                    log_P.copy_(x @ W.T)
                torch.log_softmax(log_P, dim=-1, out=log_P)
                gold = log_P[: len(target)].gather(1, target)
                loss -= (1 - eps_ls) * gold.sum() + eps_ls / V * log_P[: len(target)].sum()
                nll -= gold.sum()
                if grad_states is not None and grad_weight is not None:
                    # d loss / d logits = softmax - smoothed target distribution
                    grad = log_P.exp_().sub_(eps_ls / V)
                    grad[: len(target)].scatter_add_(1, target, torch.full_like(gold, eps_ls - 1))
                    grad[len(target) :] = 0
                    grad = grad.to(product_dtype)
                    grad_states[start : start + rows] = grad @ W
                    _add_product(grad_weight, grad.T, x)
        if with_grad:
            ctx.grads = grad_states, grad_weight
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        if ctx.grads is None:
            raise RuntimeError("the gradients of smoothed_cross_entropy can be taken once only")
        grad_states, grad_weight = ctx.grads
        ctx.grads = None
        return grad_states.mul_(grad_loss), grad_weight.mul_(grad_loss), None, None, None


def _rows(weight: Tensor) -> int:
    """How many positions' logits to make at a time.

    On a CPU they take about as much memory as the weight, or less: with fewer, reading that again
    and again would count, with more, the logits themselves. A GPU must be kept busy.
    """
    V, d_model = weight.shape
    return max(256, d_model // 2) if weight.device.type == "cpu" else max(1, 2**27 // V)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, where total may be of a higher precision than the product."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif total.device.type == "cpu":
        # A sum of two precisions makes a copy of the lower one in the higher.
        for i in range(0, len(total), _BLOCK):
            total[i : i + _BLOCK] += a[i : i + _BLOCK] @ b
    else:
        total += a @ b
