"""Which device to compute on."""

import torch


def pick_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one. Raises ValueError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # the device `meta` fails here
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from None
    return device
