"""Where a run lies, and from which checkpoint it resumes."""

import json
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf


def run_dir(ckpt: str | None, new: str) -> str:
    """The folder of a run: ``new``, or the folder of the checkpoint that it resumes."""
    if ckpt in (None, "auto"):
        return new
    if ckpt != "last":
        return str(Path(str(ckpt)).absolute().parent.parent)
    newest = max(Path("outputs").glob("**/checkpoints/*.ckpt"), key=_modified, default=None)
    return str(newest.parent.parent) if newest else new


OmegaConf.register_new_resolver("run_dir", run_dir, replace=True)


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def resume_path(folder: Path, ckpt: str | None) -> Path | None:
    """The checkpoint from which the run of ``folder`` resumes; None for a run that begins.

    ``ckpt`` is a path; ``last``, the newest checkpoint in the folder; or ``auto``, the same where
    there is one. Raises FileNotFoundError when it does not exist, ValueError when it does not
    belong to the folder.
    """
    checkpoints = [path for path in folder.glob("checkpoints/*.ckpt") if path.stem != "best"]
    if ckpt is None:
        if checkpoints:
            raise ValueError(f"{folder} holds a run: add ckpt=last to continue it, or name another")
        return None
    if ckpt == "auto":
        if not any(o.startswith("hydra.run.dir=") for o in HydraConfig.get().overrides.hydra):
            raise ValueError("ckpt=auto continues in the folder that hydra.run.dir=FOLDER names")
        return max(checkpoints, key=_modified, default=None)
    if ckpt == "last":
        if not checkpoints:
            raise FileNotFoundError(f"ckpt=last: no checkpoint in {folder} or in outputs/")
        return max(checkpoints, key=_modified)
    path = Path(ckpt)
    if not path.is_file():
        raise FileNotFoundError(f"ckpt={ckpt}: no such file")
    if path.absolute().parent.name != "checkpoints":
        raise ValueError(f"ckpt={ckpt}: must lie in its run's folder, as RUN/checkpoints/NAME.ckpt")
    if path.absolute().parent.parent != folder.absolute():
        raise ValueError(f"ckpt={ckpt} continues in its own folder: leave out hydra.run.dir")
    return path


def is_finished(folder: Path, step: int) -> bool:
    """Whether the run has written its model of ``step`` and the scores of that model."""
    try:
        training = json.loads((folder / "model" / "config.json").read_text("utf-8"))["training"]
        return bool(training["steps"] == step and "validation sacreBLEU" in training)
    except (OSError, ValueError, KeyError, TypeError):
        return False
