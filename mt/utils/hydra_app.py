"""What the programs that Hydra configures share: where conf/ is, how a user's mistake ends."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_PACKAGE = Path(__file__).resolve().parents[1]
# Beside the package in a checkout, inside it when installed from a wheel.
CONF = str(next(p for p in (_PACKAGE.parent / "conf", _PACKAGE / "conf") if p.is_dir()))

# What a wrong configuration, wrong data or a wrong model raise while a program is set up.
USER_ERRORS = (ValueError, OSError, TypeError, OmegaConfBaseException)


def run_folder() -> Path:
    """The run directory of this job, seen from here when it lies below."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def check_sections(cfg: DictConfig, *names: str) -> None:
    """ValueError when one of these parts of the configuration is not a part any more."""
    for name in names:
        if not OmegaConf.is_dict(value := OmegaConf.select(cfg, name)):
            raise ValueError(f"{name}={value}: is a section: set {name}.NAME=VALUE")


def remove_empty(run_dir: Path) -> None:
    """Take away the folders that Hydra has made for a run that did not begin."""
    with contextlib.suppress(OSError):  # a folder that holds something stays
        run_dir.rmdir()
        for parent in run_dir.parents:
            if Path("outputs") not in (parent, *parent.parents):
                break
            parent.rmdir()


@contextmanager
def user_errors(program: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Errors of these kinds end the program with status 2 and their message, without traceback.

    MT_TRACEBACK=1 in the environment shows the traceback all the same.
    """
    try:
        yield
    except kinds as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        message = str(error)
        if isinstance(error, HydraException | OmegaConfBaseException):
            message = " ".join(message.split())  # theirs run over several lines
        print(f"{program}: error: {message}", file=sys.stderr)
        sys.exit(2)


@contextmanager
def setting_up(program: str, run_dir: Path, *kinds: type[BaseException]) -> Iterator[None]:
    """``user_errors``, and whatever stops a run before it begins leaves no empty folder."""
    with user_errors(program, *kinds):
        try:
            yield
        except BaseException:
            remove_empty(run_dir)
            raise


def start(program: str, main: Callable[[], None]) -> None:
    """Call what Hydra has decorated; a command line that Hydra refuses is a user's error."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises, instead of ending with status 1
    with user_errors(program, HydraException, OmegaConfBaseException, OSError):
        try:
            main()
        except ValueError as error:
            if not str(error).startswith("Config group override"):
                raise
            # Of data=null or data=5: the only one of Hydra's that is none of its own exceptions.
            raise HydraException(f"{error}: name a file of that folder of conf/") from None
        except KeyboardInterrupt:
            print(f"{program}: interrupted", file=sys.stderr)
            sys.exit(130)
