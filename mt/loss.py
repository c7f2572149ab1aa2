"""Label-smoothed cross-entropy (5.4), without ever holding the logits of a whole batch.

Shapes: n target positions (padding left out), V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

# Logits held at a time: small enough for a CPU's cache, large enough to keep a GPU busy.
_ELEMENTS = {"cpu": 2**22, "cuda": 2**27}


def smoothed_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, eps_ls: float
) -> tuple[Tensor, Tensor]:
    """Sums over n positions, in nats: the smoothed loss, and the plain negative log-likelihood.

    states [n, d_model] times weight [V, d_model] are the logits; targets [n] the ids to predict.
    The target distribution gives 1 - eps_ls to the id and spreads eps_ls over all V (Szegedy et
    al. 2016, which 5.4 cites). Only the first sum carries gradients. The gradients are made
    beside the loss, chunk by chunk, in float32 whatever the precision of the products.

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
        V = weight.shape[0]
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
        rows = max(1, _ELEMENTS.get(device, 2**27) // V)
        with torch.autocast(device, enabled=False):
            for start in range(0, len(targets), rows):
                x, target = X[start : start + rows], targets[start : start + rows, None]
                logits = (x @ W.T).to(sum_dtype)
                log_Z = logits.logsumexp(dim=-1, keepdim=True)
                gold = log_Z - logits.gather(1, target)
                loss += (1 - eps_ls) * gold.sum() + eps_ls * (log_Z.sum() - logits.sum() / V)
                nll += gold.sum()
                if grad_states is not None and grad_weight is not None:
                    # d loss / d logits = softmax - smoothed target distribution
                    grad = logits.sub_(log_Z).exp_().sub_(eps_ls / V)
                    grad.scatter_add_(1, target, torch.full_like(gold, eps_ls - 1))
                    grad = grad.to(product_dtype)
                    grad_states[start : start + rows] = grad @ W
                    grad_weight += grad.T @ x
        if grad_states is not None:
            ctx.save_for_backward(grad_states, grad_weight)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grad_loss, grad_weight * grad_loss, None, None, None
