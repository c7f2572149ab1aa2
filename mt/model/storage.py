"""How the weights of a model folder are stored: in 32 or 16 bits, or the matrices in 8.

In 8 bits each row of a matrix is whole numbers from -127 to 127 and one scale, the greatest
magnitude of the row by 127: w = number * scale. The file holds the numbers as NAME, int8
[rows, columns], and the scales as NAME.scale, float32 [rows]; vectors stay float32.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from mt.utils.checks import short_repr

STORAGES = ("float32", "float16", "int8")
_SCALE = ".scale"


def pack(weights: Mapping[str, Tensor], storage: str) -> dict[str, Tensor]:
    """What the file holds for these weights.

    Raises ValueError for an unknown ``storage``, and for a weight that it cannot hold.
    """
    if storage not in STORAGES:
        allowed = ", ".join(STORAGES)
        raise ValueError(f"storage={short_repr(storage)}: must be one of {allowed}")
    dtype = torch.float16 if storage == "float16" else torch.float32
    stored = {name: w.detach().to("cpu", dtype).contiguous() for name, w in weights.items()}
    if storage == "float32":
        return stored
    for name, w in list(stored.items()):
        if not w.isfinite().all():
            raise ValueError(f"{name} has a weight that is too large for {storage}, or no number")
        if storage == "int8" and w.dim() == 2:
            # A row may be all zeros: the smallest scale is the smallest normal number.
            stored[name], stored[name + _SCALE] = round_rows(w, 127 * torch.finfo().tiny)
    return stored


def round_rows(W: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """[rows, columns] -> 8-bit numbers [rows, columns] and scales [rows]: W is about their product.

    The largest number of a row is 127, but in a row without one of ``least``.
    """
    scale = W.abs().amax(dim=1).clamp(min=least) / 127
    return W.div(scale[:, None]).round_().to(torch.int8), scale


def unpack_int8(path: Path, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a file in 8 bits, its matrices as float32; copies, which share no memory.

    Raises ValueError that names the file for a matrix that is not int8, and for scales that are
    missing or not positive. What is no matrix is left to ``check_values`` and ``check_shapes``.
    """
    weights = {name: w.clone() for name, w in stored.items() if w.dim() != 2}
    matrices = {name: w for name, w in stored.items() if w.dim() == 2}
    for name, numbers in matrices.items():
        if numbers.dtype != torch.int8:
            dtype = str(numbers.dtype).removeprefix("torch.")
            raise ValueError(f"{path}: {short_repr(name)} is of type {dtype}, must be int8")
    for name, numbers in matrices.items():
        scale = weights.pop(name + _SCALE, None)
        if scale is None:
            raise ValueError(f"{path}: lacks the scales of {short_repr(name)}")
        if scale.dtype != torch.float32 or scale.shape != numbers.shape[:1]:
            raise ValueError(
                f"{path}: the scales of {short_repr(name)} must be float32 [{len(numbers)}]"
            )
        if not ((scale > 0) & scale.isfinite()).all():
            raise ValueError(
                f"{path}: the scales of {short_repr(name)} must be finite numbers above 0"
            )
        weights[name] = numbers.float().mul_(scale[:, None])
    return weights
