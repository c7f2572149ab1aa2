"""Reads weights from files that anybody may have written, and checks them before they are used.

Training checkpoints (``.ckpt``) are pickles in a zip archive; they are read under
``weights_only``, which runs no code of the file.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from mt.model.storage import unpack_int8
from mt.utils.checks import short_repr

_PREFIX = "model."  # begins the names of the Transformer's weights in a Lightning checkpoint
_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def read_safetensors(path: Path, int8: bool = False) -> dict[str, Tensor]:
    """The weights of a ``.safetensors`` file. Raises OSError or ValueError that names it.

    ``int8``: its matrices are stored in 8 bits (``mt.model.storage``).
    """
    try:
        weights = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: damaged or truncated: {short_repr(str(error))}") from None
    if int8:
        weights = unpack_int8(path, weights)
    check_values(path, weights)
    return weights


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a training checkpoint; its ``state_dict`` is a dict.

    Raises OSError or ValueError that names the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    checkpoint = read_pickle(path)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise ValueError(f"{path}: not a training checkpoint of this project")
    return checkpoint


def read_pickle(path: Path, zipped: bool = True) -> Any:
    """What ``torch.save`` wrote to a file. Raises OSError or ValueError that names it.

    If not ``zipped``, also in the form that torch before 1.6 wrote, which has no CRC.
    """
    with path.open("rb") as file:
        try:
            if zipped or zipfile.is_zipfile(file):
                _check_archive(file)
            file.seek(0)
            return torch.load(file, map_location="cpu", weights_only=True)
        except MemoryError:
            raise
        except Exception:  # torch's own message would explain how to run the code
            raise ValueError(
                f"{path}: not a readable checkpoint: it is damaged, or of another program, "
                "or holds code beside its weights"
            ) from None


def _check_archive(file: BinaryIO) -> None:
    """ValueError unless the file is an archive as torch writes it, each part as its CRC says.

    torch checks no CRC. It stores the parts as they are: a compressed one may be a bomb.
    """
    with zipfile.ZipFile(file) as archive:
        stored = all(part.compress_type == zipfile.ZIP_STORED for part in archive.infolist())
        if not stored or archive.testzip() is not None:
            raise ValueError("damaged")


def transformer_weights(checkpoint: dict[str, Any], path: Path) -> dict[str, Tensor]:
    """The Transformer's weights in a training checkpoint. Raises ValueError that names the file."""
    weights = {
        name.removeprefix(_PREFIX): w
        for name, w in checkpoint["state_dict"].items()
        if isinstance(name, str) and name.startswith(_PREFIX) and isinstance(w, Tensor)
    }
    if not weights:
        raise ValueError(f"{path}: holds no weights of a Transformer")
    check_values(path, weights)
    return weights


def check_values(path: Path, weights: Mapping[str, Tensor]) -> None:
    """ValueError unless every weight is an ordinary tensor of finite floating-point numbers."""
    for name, w in weights.items():
        # One that is not contiguous may claim more elements than the file has.
        plain = w.device.type == "cpu" and w.layout is torch.strided and not w.is_nested
        if not plain or not w.is_contiguous():
            raise ValueError(f"{path}: {short_repr(name)} is not a plain tensor")
        if w.dtype not in _TYPES:
            dtype = str(w.dtype).removeprefix("torch.")
            raise ValueError(
                f"{path}: {short_repr(name)} is of type {dtype}, must be a floating-point type"
            )
        if w.numel() and not all(extreme.float().isfinite() for extreme in w.aminmax()):
            raise ValueError(f"{path}: {short_repr(name)} has a value that is not a finite number")


def check_shapes(path: Path, weights: Mapping[str, Tensor], model: torch.nn.Module) -> None:
    """ValueError unless these are exactly the weights of the model, which may have no memory."""
    shapes = {name: w.shape for name, w in model.state_dict().items()}
    if missing := shapes.keys() - weights.keys():
        raise ValueError(f"{path}: lacks the weight {min(missing)!r} that its configuration wants")
    if unknown := weights.keys() - shapes.keys():
        raise ValueError(
            f"{path}: holds the weight {short_repr(min(unknown))}, "
            "which is not in a model of its configuration"
        )
    for name, shape in shapes.items():
        if weights[name].shape != shape:
            raise ValueError(
                f"{path}: {name!r} has the shape {list(weights[name].shape)}, "
                f"its configuration wants {list(shape)}"
            )
