"""Where a run lies, from which checkpoint it resumes, and that no other run lies there."""

import contextlib
import math
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from mt.utils.json_io import read_json
from mt.utils.locks import exclusive_lock
from mt.utils.processes import SWEEP

STEP_FILE = re.compile(r"step-\d{8,}\.ckpt")
LOCK_TIMEOUT = 3.0  # seconds in which the workers of a killed run end, which hold its lock


def run_dir(ckpt: str | None, new: str) -> str:
    """The folder of a run: a new one, or the folder of the checkpoint that it resumes."""
    if ckpt == "last":
        newest = max(Path("outputs").glob("**/checkpoints/*.ckpt"), key=_modified, default=None)
        if newest:
            return str(newest.parent.parent)
    elif ckpt not in (None, "auto"):
        path = Path(str(ckpt))  # Hydra reads 5 as a number
        if path.is_file():
            return str(path.absolute().parent.parent)
    return new_dir(new)


def new_dir(name: str) -> str:
    """Make a folder of this name, or of NAME-2, NAME-3, ... where that exists already.

    Two programs that start at the same time never get the same folder.
    """
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    folder, number = name, 1
    while True:
        try:
            os.mkdir(folder)
            return folder
        except FileExistsError:
            number += 1
            folder = f"{name}-{number}"


# The cache makes one folder of a program, however often Hydra asks.
OmegaConf.register_new_resolver("run_dir", run_dir, replace=True, use_cache=True)
OmegaConf.register_new_resolver("new_dir", new_dir, replace=True, use_cache=True)


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Let no other run use the folder inside the block. Raises BlockingIOError when one does."""
    file, end = folder / ".lock", time.monotonic() + LOCK_TIMEOUT
    with ExitStack() as stack:
        while True:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                message = f"{folder}: another mt.train is running there; wait, or name another"
                stack.enter_context(exclusive_lock(file, message))
                break
            except (BlockingIOError, FileNotFoundError):  # another rank removes empty folders
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.unlink()  # while it is held: nobody else can hold it


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def _progress(checkpoint: Path) -> tuple[float, float]:
    """Its step, and of equal ones its time: a copy of a run may have any times.

    One that cannot be read comes last: it is taken, and refused by its name.
    """
    step = _step(checkpoint)
    return math.inf if step is None else step, _modified(checkpoint)


def resume_path(folder: Path, ckpt: str | None) -> Path | None:
    """The checkpoint from which the run of ``folder`` resumes; None for a run that begins.

    ``ckpt`` is a path; ``last``, the checkpoint with the most steps in the folder; or ``auto``,
    the same where there is one. Raises FileNotFoundError when it does not exist, ValueError when
    it does not belong to the folder.
    """
    checkpoints = _checkpoints(folder)
    if ckpt in (None, "auto") and not checkpoints and (folder / "model/config.json").is_file():
        raise ValueError(
            f"{folder} holds a model and no checkpoint to continue from: name another folder"
        )
    if ckpt is None:
        if checkpoints:
            raise ValueError(f"{folder} holds a run: add ckpt=last to continue it, or name another")
        return None
    if ckpt == "auto":
        if not is_named("hydra.run.dir"):
            raise ValueError("ckpt=auto continues in the folder that hydra.run.dir=FOLDER names")
        return max(checkpoints, key=_progress, default=None)
    if ckpt == "last":
        if not checkpoints:
            where = folder if is_named("hydra.run.dir") else "outputs/"
            raise FileNotFoundError(f"no checkpoint in {where}: leave out ckpt=last to begin a run")
        return max(checkpoints, key=_progress)
    path = Path(str(ckpt))
    if path.is_dir():
        raise ValueError(f"ckpt={ckpt} is a folder: name a file, RUN/checkpoints/NAME.ckpt")
    if not path.is_file():
        raise FileNotFoundError(f"ckpt={ckpt}: no such file; give one, or last or auto")
    if path.absolute().parent.name != "checkpoints":
        raise ValueError(f"ckpt={ckpt}: must lie in its run's folder, as RUN/checkpoints/NAME.ckpt")
    if path.absolute().parent.parent != folder.absolute():
        raise ValueError(f"ckpt={ckpt} continues in its own folder: leave out hydra.run.dir")
    return path


def is_named(setting: str) -> bool:
    """Whether the command line names a folder by this setting, such as hydra.run.dir."""
    return any(o.startswith(f"{setting}=") for o in HydraConfig.get().overrides.hydra)


def _checkpoints(folder: Path) -> list[Path]:
    last = folder / "checkpoints" / "last.ckpt"
    return [*step_files(last.parent), *([last] if last.exists() else [])]


def step_files(checkpoints: Path) -> list[Path]:
    """The checkpoints of steps that a run has written, in order; copies of them are the user's."""
    paths = checkpoints.glob("step-*.ckpt")
    written = [path for path in paths if STEP_FILE.fullmatch(path.name)]
    return sorted(written, key=step_of)


def step_name(step: int) -> str:
    """The name of the file of a step, which STEP_FILE matches."""
    return f"step-{step:08d}.ckpt"


def step_of(file: Path) -> int:
    """The step of one of the ``step_files``, by its name."""
    return int(file.stem.removeprefix("step-"))


def resume_hint(folder: Path) -> str:
    """How to continue the run of a folder, for its last message; or that nothing was saved."""
    saved = bool(_checkpoints(folder))
    if SWEEP in os.environ:
        nothing = "" if saved else "nothing of this job was saved yet; "
        return f"{nothing}its sweep continues with ckpt=auto hydra.sweep.dir=FOLDER"
    if saved:
        return "what was saved is intact: ckpt=last continues from the last checkpoint"
    return "nothing was saved yet"


def is_finished(folder: Path, step: int) -> bool:
    """Whether the run has written its model of ``step`` and the scores of that model."""
    training = _model_facts(folder)
    has_scores = any(name.startswith("validation ") for name in training)
    return bool(training.get("steps") == step and has_scores)


def _model_facts(folder: Path) -> dict[str, Any]:
    """What the model folder of a run says of its training; nothing where it cannot be read."""
    try:
        return dict(read_json(folder / "model" / "config.json")["training"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def set_aside(folder: Path, resume: Path, step: int) -> str:
    """Move what the run wrote after ``step``, at which it resumes, to a folder of its own.

    Otherwise the training would replace it. Returns a line that says so; an empty text where the
    run has not gone further.
    """
    files = (*_checkpoints(folder), resume.parent / "best.ckpt")
    steps = {file: _step(file) or 0 for file in files if file.absolute() != resume.absolute()}
    of_model = _model_facts(folder).get("steps")
    steps[folder / "model"] = of_model if isinstance(of_model, int) else 0
    later = [path for path in steps if steps[path] > step]
    if not later:
        return ""
    reached = max(steps.values())
    aside = Path(new_dir(str(folder / f"until-{reached:08d}")))
    for path in later:
        shutil.move(path, aside / path.name)
    return f"the run had reached step {reached:,}: its later checkpoints and model are in {aside}"


def _step(checkpoint: Path) -> int | None:
    """The step of a checkpoint; None where it is none that can be read."""
    if checkpoint.stem.startswith("step-"):
        return step_of(checkpoint)
    try:
        content = torch.load(checkpoint, "cpu", mmap=True, weights_only=True)
        return int(content["global_step"])
    except Exception:  # torch has many kinds
        return None
