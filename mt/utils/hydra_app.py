"""Shared by the programs that Hydra configures: where conf/ is, and how a user's mistake ends."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_PACKAGE = Path(__file__).resolve().parents[1]
# Beside the package in a checkout, inside it when installed from a wheel.
CONF = str(next(p for p in (_PACKAGE.parent / "conf", _PACKAGE / "conf") if p.is_dir()))

# Wrong settings, wrong data and a wrong model raise these while a program is set up.
USER_ERRORS = (ValueError, OSError, TypeError, OmegaConfBaseException)


def run_folder() -> Path:
    """The run directory of this job, relative to the current folder when it lies below."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def check_sections(cfg: DictConfig, *names: str) -> None:
    """ValueError when a value has replaced one of these sections of the configuration."""
    for name in names:
        if not OmegaConf.is_dict(value := OmegaConf.select(cfg, name)):
            raise ValueError(f"{name}={value}: is a section: set {name}.NAME=VALUE")


def instantiate(cfg: DictConfig, name: str) -> Any:
    """The object of the class that ``_target_`` names in this section of the configuration.

    A value that its constructor refuses raises the constructor's own error.
    """
    check_sections(cfg, name)
    try:
        return hydra.utils.instantiate(OmegaConf.select(cfg, name), _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, USER_ERRORS):
            raise error.__cause__ from None
        raise


def remove_empty(run_dir: Path) -> None:
    """Remove the folders that Hydra has made for a run that did not begin."""
    with contextlib.suppress(OSError):  # a folder that holds something stays
        run_dir.rmdir()
        for parent in run_dir.parents:
            if Path("outputs") not in (parent, *parent.parents):
                break
            parent.rmdir()


@contextmanager
def user_errors(program: str, *kinds: type[BaseException]) -> Iterator[None]:
    """End the program at an error of these kinds: status 2 and its message, without traceback.

    MT_TRACEBACK=1 in the environment lets the error through, with its traceback.
    """
    try:
        yield
    except kinds as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        message = str(error)
        if isinstance(error, HydraException | OmegaConfBaseException):
            message = " ".join(message.split())  # it has several lines
        print(f"{program}: error: {message}", file=sys.stderr)
        sys.exit(2)


@contextmanager
def setting_up(program: str, run_dir: Path, *kinds: type[BaseException]) -> Iterator[None]:
    """``user_errors``, and an error of any kind leaves no empty run directory."""
    with user_errors(program, *kinds):
        try:
            yield
        except BaseException:
            remove_empty(run_dir)
            raise


def start(program: str, main: Callable[[], None]) -> None:
    """Call a function that ``hydra.main`` has decorated; a wrong command line is a user's error."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra ends with status 1
    with user_errors(program, HydraException, OmegaConfBaseException, OSError):
        try:
            main()
        except ValueError as error:
            if not str(error).startswith("Config group override"):
                raise
            # Hydra raises this ValueError, no HydraException, for data=null and data=5.
            raise HydraException(f"{error}: name a file of that folder of conf/") from None
        except KeyboardInterrupt:
            print(f"{program}: interrupted", file=sys.stderr)
            sys.exit(130)
