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
        is_known = name.partition(":")[0] in ("cpu", "cuda")
        reason = str(error).split("\n")[0] if is_known else "give cpu, cuda, cuda:1 or auto"
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from None
    return device
