"""Arrays of numbers in JSON: short ones as lists, others in 16 bits.

Stored is n = round((value - lowest) / scale), from 0 to 65535. So no value is off by more than
scale / 2, which is the array's range divided by 131,070.
"""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

SMALL = 200  # numbers that are listed one by one
LEVELS = 2**16 - 1


def encode(values: Tensor) -> Any:
    """Nested lists, or {"shape", "lowest", "scale", "data"}: base64 of little-endian uint16."""
    array = values.detach().cpu().double().numpy()
    if array.size <= SMALL:
        return np.vectorize(lambda value: float(f"{value:.7g}"), otypes=[float])(array).tolist()
    lowest = float(array.min())
    scale = (float(array.max()) - lowest) / LEVELS or 1.0
    levels = np.rint((array - lowest) / scale).astype("<u2")
    return {
        "shape": list(array.shape),
        "lowest": lowest,
        "scale": scale,
        "data": base64.b64encode(levels.tobytes()).decode("ascii"),
    }


def decode(stored: Any) -> NDArray[np.float64]:
    """The array that ``encode`` has stored."""
    if isinstance(stored, list):
        return np.array(stored, dtype=np.float64)
    levels = np.frombuffer(base64.b64decode(stored["data"]), dtype="<u2")
    return stored["lowest"] + stored["scale"] * levels.reshape(stored["shape"]).astype(np.float64)
