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
        product_dtype, sum_dtype = _dtypes(states)
        W, X = weight.to(product_dtype), states.to(product_dtype)
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


def r_drop_cross_entropy(
    passes: tuple[Tensor, Tensor],
    weight: Tensor,
    targets: Tensor,
    eps_ls: float,
    alpha: float,
) -> tuple[Tensor, Tensor]:
    """The mean of two passes' ``smoothed_cross_entropy``, plus how far apart they are.

    The passes [n, d_model] are the states of one batch, each with its own dropout. To the mean
    comes alpha / 4 times KL(1 || 2) + KL(2 || 1) of what they predict, summed over positions:
    half of R-Drop's loss (Liang et al. 2021, equation 3), so that alpha is theirs and alpha 0 the
    loss without it. All else is as there; the second sum is the mean of both passes.
    """
    grads = torch.is_grad_enabled()
    loss, nll = _RDrop.apply(*passes, weight, targets, eps_ls, alpha, grads)
    return loss, nll


class _RDrop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        targets: Tensor,
        eps_ls: float,
        alpha: float,
        grads: bool,
    ) -> tuple[Tensor, Tensor]:
        n, V = len(targets), len(weight)
        product_dtype, sum_dtype = _dtypes(first)
        W, X = weight.to(product_dtype), [x[:n].to(product_dtype) for x in (first, second)]
        grad_states = [torch.zeros_like(x) for x in (first, second)]
        grad_weight = torch.zeros_like(weight, dtype=sum_dtype)
        loss = torch.zeros((), dtype=sum_dtype, device=first.device)
        nll = torch.zeros_like(loss)
        rows = _rows(weight)
        with torch.autocast(first.device.type, enabled=False):
            for start in range(0, n, rows):
                here = slice(start, min(start + rows, n))
                target = targets[here, None]
                log_P = [(x[here] @ W.T).to(sum_dtype).log_softmax(dim=-1) for x in X]
                for each in log_P:
                    gold = each.gather(1, target).sum()
                    loss -= ((1 - eps_ls) * gold + eps_ls / V * each.sum()) / 2
                    nll -= gold / 2
                apart = log_P[0] - log_P[1]
                P = [each.exp_() for each in log_P]
                more = P[0] - P[1]
                loss += alpha / 4 * torch.dot(more.flatten(), apart.flatten())
                if not grads:
                    continue
                for i, sign in enumerate((1, -1)):
                    # d / d logits of both divergences: P (log P - log P' - KL(P || P')) + P - P'
                    own = apart if sign > 0 else apart.neg_()
                    grad = own - (P[i] * own).sum(dim=-1, keepdim=True)
                    grad = grad.mul_(alpha / 4).add_(0.5).mul_(P[i])
                    grad.add_(more, alpha=sign * alpha / 4).sub_(eps_ls / V / 2)
                    half = torch.full_like(target, (eps_ls - 1) / 2, dtype=sum_dtype)
                    grad = grad.scatter_add_(1, target, half).to(product_dtype)
                    grad_states[i][here] = grad @ W
                    _add_product(grad_weight, grad.T, X[i][here])
        ctx.grads = (*grad_states, grad_weight) if grads else None
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.grads is None:
            raise RuntimeError("the gradients of r_drop_cross_entropy can be taken once only")
        found, ctx.grads = ctx.grads, None
        return *(each.mul_(grad_loss) for each in found), None, None, None, None


def _dtypes(states: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """Of the products, which autocast chooses where it is on, and of softmax, loss and sums."""
    device = states.device.type
    enabled = torch.is_autocast_enabled(device)
    product_dtype = torch.get_autocast_dtype(device) if enabled else states.dtype
    return product_dtype, torch.promote_types(product_dtype, torch.float32)


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
