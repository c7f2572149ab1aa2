"""Label-smoothed cross-entropy (5.4) that never holds the logits of a whole batch.

Shapes: n target positions, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mt.model.native.library import library
from mt.utils.checks import check_number

_BLOCK = 4096  # rows of the weight's gradient that one bfloat16 product computes


def smoothed_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, eps_ls: float
) -> tuple[Tensor, Tensor]:
    """Sums over n positions, in nats: the smoothed loss and the plain negative log-likelihood.

    The logits are states [n, d_model] times weight [V, d_model] transposed; targets [n] are the
    ids to predict. States may have more than n rows: the rows after the n-th are padding that
    gives the products an even size, and they do not count. The target distribution gives
    1 - eps_ls to the target and spreads eps_ls over all V ids (Szegedy et al. 2016, cited in 5.4).
    Only the first sum carries gradients, computed together with the loss, chunk by chunk, and
    backward works once. Softmax, loss and sums are in float32 (float64 for float64) whatever the
    precision of the products.

    Raises ValueError when eps_ls is outside [0, 1).
    """
    check_number("eps_ls", eps_ls, 0, below=1)
    # Inside forward, needs_input_grad stays true under no_grad and grad mode is always off.
    with_grad = torch.is_grad_enabled()
    loss, nll = _SmoothedCrossEntropy.apply(states, weight, targets, eps_ls, with_grad)
    return loss, nll


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, eps_ls: float, with_grad: bool
    ) -> tuple[Tensor, Tensor]:
        m = len(states)  # n and the padding
        device = states.device.type
        if torch.is_autocast_enabled(device):
            product_dtype = torch.get_autocast_dtype(device)
        else:
            product_dtype = states.dtype
        sum_dtype = torch.promote_types(product_dtype, torch.float32)
        W = weight.to(product_dtype)
        X = states.to(product_dtype)
        with_grad = with_grad and any(ctx.needs_input_grad)
        grad_states = torch.empty_like(states) if with_grad else None
        grad_weight = torch.zeros_like(weight, dtype=sum_dtype) if with_grad else None
        loss = torch.zeros((), dtype=sum_dtype, device=states.device)
        nll = torch.zeros_like(loss)
        rows = _chunk_rows(weight)
        with torch.autocast(device, enabled=False):
            for start in range(0, m, rows):
                x = X[start : start + rows]
                logits = x @ W.T
                grad, chunk_loss, chunk_nll = _losses(
                    logits, targets[start : start + rows], eps_ls, with_grad
                )
                loss += chunk_loss
                nll += chunk_nll
                if grad_states is not None and grad_weight is not None:
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
            raise RuntimeError("smoothed_cross_entropy gives its gradients once only")
        grad_states, grad_weight = ctx.grads
        ctx.grads = None
        return grad_states.mul_(grad_loss), grad_weight.mul_(grad_loss), None, None, None


def _losses(
    logits: Tensor, targets: Tensor, eps_ls: float, with_grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the loss, in the logits' place, and both sums of ``smoothed_cross_entropy``.

    Logits [r, V], of which the first rows have targets. Without ``with_grad``, no gradient.
    """
    V = logits.shape[1]
    native = None
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.bfloat16):
        native = library()
    if native is not None:
        sums = torch.empty(2, len(targets), dtype=torch.float32)  # also where bf16 is the default
        targets = targets.contiguous()
        unknown = native.mt_loss(
            logits.data_ptr(), logits.dtype == torch.bfloat16, *(len(logits), len(targets), V),
            targets.data_ptr(), eps_ls, with_grad, sums[0].data_ptr(), sums[1].data_ptr(),
            torch.get_num_threads(),
        )  # fmt: skip
        if unknown:
            raise IndexError(f"a target is not an id of the vocabulary of {V}")
        return logits, sums[0].sum(), sums[1].sum()
    sum_dtype = torch.promote_types(logits.dtype, torch.float32)
    log_P = logits.to(sum_dtype)
    torch.log_softmax(log_P, dim=-1, out=log_P)
    target = targets[:, None]
    gold = log_P[: len(target)].gather(1, target)
    nll = -gold.sum()
    loss = (1 - eps_ls) * nll - eps_ls / V * log_P[: len(target)].sum()
    if not with_grad:
        return logits, loss, nll
    # d loss / d logits = softmax - smoothed target distribution
    grad = log_P.exp_().sub_(eps_ls / V)
    grad[: len(target)].scatter_add_(1, target, torch.full_like(gold, eps_ls - 1))
    grad[len(target) :] = 0
    return grad.to(logits.dtype), loss, nll


def _chunk_rows(weight: Tensor) -> int:
    """The number of positions whose logits are computed at a time.

    On a CPU a chunk of logits usually takes half the memory of the weight: with fewer rows the
    weight's memory traffic would dominate, with more the logits'. A GPU needs large products.
    """
    V, d_model = weight.shape
    return max(256, d_model // 2) if weight.device.type == "cpu" else max(1, 2**27 // V)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, where total may have a higher precision than the product."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif total.device.type == "cpu":
        # A sum of two precisions copies the lower one to the higher: block by block it stays small.
        for i in range(0, len(total), _BLOCK):
            total[i : i + _BLOCK] += a[i : i + _BLOCK] @ b
    else:
        total += a @ b
