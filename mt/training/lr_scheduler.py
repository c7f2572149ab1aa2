"""The learning rate of the paper (5.3, equation 3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int, lr_factor: float = 1.0) -> float:
    """Rate of optimizer step ``step``, counted from 1: up linearly, then down with 1/sqrt(step).

    The peak, at ``step == warmup_steps``, is (d_model * warmup_steps) ** -0.5: 6.99e-4 for base;
    ``lr_factor``, which is not the paper's, multiplies all of it.
    """
    return lr_factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
