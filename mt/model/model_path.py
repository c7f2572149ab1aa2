"""Finds the model that a user names."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mt.model import checkpoint, hub, marian_import
from mt.utils.cache import cache_folder


def resolve_model_path(name: str | os.PathLike[str] | None) -> Path:
    """The path of a model folder or checkpoint that a user names.

    None and ``everyday`` are the bundled model, and ``latest`` is the newest one under outputs/.
    Anything else is a path if that exists. Other names ORG/NAME are models of the hub
    (``mt.model.hub``). These, and folders that transformers saved, become model folders in the
    cache, $MT_CACHE or ~/.cache/mt.
    Raises OSError or ValueError that says what is wrong and what to do.
    """
    bundled = checkpoint.BUNDLED_MODEL
    if name in (None, bundled.name):
        if not bundled.is_dir():
            raise FileNotFoundError(f"{bundled} is missing: name a model")
        return bundled
    if name == "latest":
        return latest()
    if isinstance(name, str) and hub.is_name(name):
        return hub.converted_from_hub(name, cache_folder("models"))
    path = Path(str(name))
    if marian_import.is_marian(path):
        return marian_import.converted_from_marian(path, cache_folder("models"))
    return path


def find_models(program: str, names: Sequence[str] | None) -> list[Path]:
    """The paths of the models that the user of a program names, or of the bundled one.

    Prints to standard error which one ``latest`` is. Raises as ``resolve_model_path``.
    """
    paths = []
    for name in names or (None,):
        paths.append(resolve_model_path(name))
        if name == "latest":
            print(f"{program}: model {paths[-1]}", file=sys.stderr)
    return paths


def latest(root: str | os.PathLike[str] = "outputs") -> Path:
    """The newest RUN/model below ``root``, but for those that ``run_dir.set_aside`` has moved.

    Raises FileNotFoundError that says how to get one.
    """
    configs = [
        path
        for path in Path(root).glob("**/model/config.json")
        if path.is_file() and not re.fullmatch(r"until-\d{8,}(-\d+)?", path.absolute().parts[-3])
    ]
    if not configs:
        raise FileNotFoundError(
            f"no model folder under {root}/: train one with "
            "`python -m mt.train experiment=quickstart`, or name one"
        )
    return max(configs, key=lambda p: p.stat().st_mtime).parent
