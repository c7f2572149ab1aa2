"""Shared by the programs that Hydra configures: where conf/ is, and how a user's mistake ends."""

import contextlib
import copy
import difflib
import functools
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mt.utils.console import VERSION, describe, ignore_broken_pipe
from mt.utils.omegaconf_private import whole_config

_PACKAGE = Path(__file__).resolve().parents[1]
# Inside the package when installed from a wheel, beside it in a checkout.
CONF = str(next(p for p in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if p.is_dir()))

# Wrong settings, wrong data and a wrong model raise these while a program is set up.
USER_ERRORS = (ValueError, OSError, TypeError, OmegaConfBaseException)

HYDRA_FLAGS = {
    "--hydra-help", "--cfg", "-c", "--resolve", "--package", "-p", "--run", "-r", "--multirun",
    "-m", "--shell-completion", "-sc", "--config-path", "-cp", "--config-name", "-cn",
    "--config-dir", "-cd", "--experimental-rerun", "--info", "-i",
}  # fmt: skip

# How other programs call settings of ours.
SYNONYMS = {
    **dict.fromkeys(("lr", "learning_rate", "rate"), "training.lr_factor"),
    **dict.fromkeys(("epochs", "max_epochs", "steps", "num_steps"), "trainer.max_steps"),
    **dict.fromkeys(("layers", "n_layers", "num_layers"), "model.N"),
    **dict.fromkeys(("heads", "n_heads", "num_heads", "nhead"), "model.h"),
    **dict.fromkeys(("hidden_size", "dim", "width"), "model.d_model"),
    **dict.fromkeys(("dropout", "p_dropout"), "model.P_drop"),
    **dict.fromkeys(("label_smoothing", "smoothing"), "training.eps_ls"),
    **dict.fromkeys(("warmup",), "training.warmup_steps"),
    **dict.fromkeys(("beam", "beams", "num_beams"), "search.beam_size"),
    **dict.fromkeys(("length_penalty", "lenpen"), "search.alpha"),
    **dict.fromkeys(("dev", "valid", "val"), "data.validation"),
    **dict.fromkeys(("batch", "batch_size", "batch_tokens"), "data.tokens_per_step"),
    **dict.fromkeys(("gpus", "num_gpus"), "trainer.devices"),
    **dict.fromkeys(("resume", "checkpoint"), "ckpt"),
}

Settings = dict[str, Any]  # nested


def run_folder() -> Path:
    """The run directory of this job, relative to the current folder when it lies below."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def check_sections(cfg: DictConfig, *names: str) -> None:
    """ValueError when a value has replaced one of these sections of the configuration."""
    for name in names:
        if not OmegaConf.is_dict(value := OmegaConf.select(cfg, name)):
            raise ValueError(f"{name}={value}: is a section: set {name}.NAME=VALUE")


def check_names(cfg: DictConfig, name: str, **more: Iterable[str]) -> None:
    """ValueError for a setting that nothing reads, with the setting that may be meant.

    Read are those that conf/NAME.yaml and its groups list, those of ``more`` by their sections,
    and those to which others refer, as a reader of the user's own does.
    """
    check_sections(cfg, "data.reader")
    known = _listed(name)
    for section, names in more.items():
        known[section] |= dict.fromkeys(names)
    settings = cast("Settings", OmegaConf.to_container(cfg))
    referred = set(re.findall(r"\$\{([\w.]+)\}", str(settings)))
    referred |= {f"data.{key}" for key in settings["data"]["reader"]}
    for unknown in _unknown(settings, known):
        if unknown not in referred:
            raise ValueError(_no_setting(unknown, known))


def _listed(name: str) -> Settings:
    """The settings of conf/NAME.yaml and its groups. ``data.reader`` depends on the corpus."""
    known = copy.deepcopy(_load(name))
    known["data"] = _load("data/_common") | {"reader": None}
    if "model" in known:
        known["model"] |= _load("model/base")
    return known


@functools.cache
def _load(path: str) -> Settings:
    content = cast("Settings", OmegaConf.to_container(OmegaConf.load(f"{CONF}/{path}.yaml")))
    return {key: value for key, value in content.items() if key not in ("defaults", "hydra")}


def _unknown(settings: Settings, known: Settings, prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if key not in known:
            yield f"{prefix}{key}"
        elif isinstance(value, dict) and isinstance(known[key], dict):
            yield from _unknown(value, known[key], f"{prefix}{key}.")


def _full_names(settings: Settings, prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, dict) and key != "reader":
            yield from _full_names(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _no_setting(name: str, known: Settings) -> str:
    """The message about a setting that does not exist."""
    group, _, end = name.partition(".")
    files = sorted(Path(CONF, group).glob("[!_]*.yaml"))
    if owners := [f"{group}={file.stem}" for file in files if end in OmegaConf.load(file)]:
        return f"{name} is a setting of {' and '.join(owners)} only"
    groups = [p.name for p in Path(CONF).iterdir() if p.is_dir() and p.name in known]
    if "." not in name and (close := difflib.get_close_matches(name, groups, 1, 0.75)):
        return f"{name} is no setting; did you mean {close[0]}?"
    names = list(_full_names(known))
    by_end = {full.rpartition(".")[2]: full for full in reversed(names)}  # the first one wins,
    by_end |= {full: full for full in names if "." not in full}  # but before it one of no group
    end = name.rpartition(".")[2]
    known_names = {*names, *({"data.validation"} if "data" in known else ())}
    same = [full for short, full in by_end.items() if short.lower() == end.lower()]
    close = [by_end[end]] if end in by_end else same
    close = close or [full for full in [SYNONYMS.get(end.lower(), "")] if full in known_names]
    close = close or difflib.get_close_matches(name, names, 1, 0.75)
    close = close or [by_end[other] for other in difflib.get_close_matches(end, by_end, 1)]
    hint = f"did you mean {close[0]}?" if close else "--cfg job prints all settings"
    return f"{name} is no setting; {hint}"


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
        raise ValueError(" ".join(str(error).split())) from error


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
        message = describe(error)
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


def start(program: str, main: Callable[[], None], config: str | None = None) -> None:
    """Call a function that ``hydra.main`` has decorated; a wrong command line is a user's error.

    ``config`` is the file of conf/, by default that of the program's name. --help and --version are
    the program's own.
    """
    config = config or program.removeprefix("mt.")
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra ends with status 1
    with user_errors(program, HydraException, OmegaConfBaseException, OSError):
        for argument in sys.argv[1:]:
            if argument in ("-h", "--help", "--version"):
                with ignore_broken_pipe():
                    print(VERSION if argument == "--version" else _help(program, config))
                return
            _check_argument(argument)
        sys.argv[1:] = map(_quoted, sys.argv[1:])
        try:
            main()
        except OverrideParseException as error:
            message = f"{error.override}: write a setting as NAME=VALUE; --help lists them"
            if "=" in error.override:
                message = (
                    f"{error.override}: cannot be read: a list ends in ], and a value with blanks, "
                    "commas, umlauts or other signs stands in quotation marks, as in "
                    "'src=\"a b.en\"'"
                )
            raise HydraException(message) from None
        except ConfigCompositionException as error:
            raise HydraException(_explain(error, config)) from error
        except (ValueError, TypeError, AttributeError) as error:
            # Hydra raises these, no HydraException, for data=null, data=5 and data=[1,2].
            place = traceback.extract_tb(error.__traceback__)[-1].filename
            if "hydra" not in Path(place).parts:
                raise
            raise HydraException(f"{error}: name a file of that folder of conf/") from None
        except KeyboardInterrupt:
            print(f"{program}: interrupted", file=sys.stderr)
            sys.exit(130)


def _check_argument(argument: str) -> None:
    """HydraException for what Hydra would take for something else or explain in many lines."""
    if re.fullmatch(r"""\+*hydra\.(run\.dir|sweep\.(sub)?dir)=['"\s]*""", argument):
        raise HydraException(f"{argument}: must name a folder")  # it would take the current one
    named = re.match(r"\+*hydra\.(?:run|sweep)\.dir=(.*)", argument)
    if named and Path(named[1]).is_file():
        raise HydraException(f"{argument}: is a file: name a folder")
    if re.search("[\ud800-\udfff]", argument):  # bytes that Python could not decode
        raise HydraException(f"{argument.encode('utf-8', 'replace').decode()}: is not UTF-8")
    flag, _, value = argument.partition("=")
    if flag.startswith("-") and flag not in HYDRA_FLAGS:
        setting = f"{flag.strip('-').replace('-', '_') or 'NAME'}={value or 'VALUE'}"
        raise HydraException(f"{argument}: write a setting as {setting}; --help lists them")


def _quoted(argument: str) -> str:
    """The same setting, a simple value with letters that Hydra's grammar lacks (ä) in quotes."""
    name, equals, value = argument.partition("=")
    if value.isascii() or name.startswith("-") or re.search(r"""[\s'"\[\](){},=$]|\\$""", value):
        return argument
    return f"{name}{equals}'{value}'"


def _help(program: str, config: str) -> str:
    """The settings of conf/CONFIG.yaml and of its groups, with the comments that explain them."""
    content = Path(CONF, f"{config}.yaml").read_text("utf-8").partition("\n\n")
    choices = re.findall(r"^  - (\w+: .*)", content[0], re.M)
    settings = content[2].partition("\nhydra:")[0]
    model = re.search(r"^model:\n((?:  .*\n)+)\n", settings, re.M)
    if program.startswith("mt."):
        command, purpose = f"python -m {program}", content[0].partition("\n")[0].partition(": ")[2]
    else:  # a script that reads the settings of a program
        command, text = f"{program}.py", sys.modules["__main__"].__doc__ or ""
        purpose = text.partition("\n")[0]
    lines = [f"usage: {command} [NAME=VALUE ...]", "", f"{purpose[:1].upper()}{purpose[1:]}", ""]
    lines += ["Files of conf/ that give many settings at once, as data=files:", *choices, ""]
    if program.startswith("mt."):
        lines += ["hydra.run.dir=FOLDER names the folder of the run, and with -m (several runs)"]
        lines += ["hydra.sweep.dir=FOLDER that of all; else it is a new one under outputs/.", ""]
    lines += ["Settings and their defaults. Write an indented one with its section, as"]
    lines += ["search.beam_size=1:", "", settings.replace(model[0], "") if model else settings]
    lines += ["data:", _settings_of("data/_common")]
    if model:
        lines += ["model:", model[1] + _settings_of("model/base")]
    named = re.search(r"^  - data: .*# (.*)", content[0], re.M)
    for name in re.findall(r"\w+", named[1]) if named else ():
        lines += [f"data: # with data={name} also", _settings_of(f"data/{name}")]
    lines += ["--cfg job prints the settings with which the program would run, -m runs several."]
    return "\n".join(lines)


def _settings_of(path: str) -> str:
    """The lines of a file of conf/, indented, but how its data are read."""
    text = Path(CONF, f"{path}.yaml").read_text("utf-8")
    text = re.sub(r"^defaults: .*\n\n?|^reader:.*\n(  .*\n)*", "", text, flags=re.M)
    return textwrap.indent(text.lstrip("\n"), "  ")


def _explain(error: ConfigCompositionException, config: str) -> str:
    """What is wrong with the settings of the command line; Hydra's message says how to add them."""
    if isinstance(error, MissingConfigException) and error.options:
        group, _, choice = str(error.missing_cfg_file).rpartition("/")
        options = [option for option in error.options if not option.startswith("_")]
        return f"{group}={choice}: conf/{group} has no such file; it has {', '.join(options)}"
    if name := re.match(r"Could not override '([^']*)'", str(error)):
        node = getattr(error.__cause__, "parent_node", None)
        if node is None:  # it names a folder of conf/ that is not this program's
            return _no_setting(name[1], _listed(config))
        known = cast("Settings", OmegaConf.to_container(whole_config(node)))
        return _no_setting(name[1], {key: known[key] for key in known if key != "hydra"})
    return str(error)
