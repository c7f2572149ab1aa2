"""The learning rate of the paper (5.3, equation 3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int, lr_factor: float = 1.0) -> float:
    """Learning rate of optimizer step ``step``, counted from 1.

    It rises linearly to (d_model * warmup_steps) ** -0.5 at ``step == warmup_steps``, 6.99e-4 for
    base, then falls with 1/sqrt(step). ``lr_factor``, not in the paper, multiplies every rate.
    """
    return lr_factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
