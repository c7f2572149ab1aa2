"""Which package may import which, and that a prompt starts without the heavy libraries.

Also that no module needs at its import what Windows lacks.
"""

import ast
import builtins
import graphlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mt

ROOT = Path(mt.__file__).parent

# Package -> the packages of mt that it may import. Entry points may import all of them.
MAY_IMPORT: dict[str, set[str]] = {
    "utils": set(),
    "data": {"utils"},
    "evaluation": {"utils"},
    "model": {"data", "utils"},
    "inference": {"model", "data", "evaluation", "utils"},
    "training": {"inference", "model", "data", "evaluation", "utils"},
    "export": {"inference", "model", "data", "evaluation", "utils"},
    "documents": {"inference", "model", "data", "evaluation", "utils"},
    "serving": {"documents", "inference", "model", "data", "evaluation", "utils"},
    "inspection": {"inference", "model", "data", "evaluation", "utils"},
    "corpora": {"inference", "model", "data", "evaluation", "utils"},
}
ENTRY_POINTS = {
    "train", "translate", "serve", "inspect", "evaluate", "corpus", "import_marian", "compile",
}  # fmt: skip
READS_THE_VERSION = "mt.utils.console"  # which may import mt
PACKAGE_ITSELF = {"__init__", "_old_names"}

# Library -> the only modules, or packages, that may import it.
CONFINED: dict[str, set[str]] = {
    "pytorch_lightning": {"mt.data.datamodule", "mt.training", "mt.train"},
    "lightning": set(),  # the same library under another name: one is enough
    "hydra": {"mt.training", "mt.utils.hydra_app", "mt.train", "mt.evaluate"},
    "omegaconf": {
        *("mt.training", "mt.utils.hydra_app", "mt.utils.omegaconf_private"),
        *("mt.train", "mt.evaluate"),
    },
    "datasets": {"mt.data"},
    "transformers": {"mt.export"},
    "ctranslate2": {"mt.export"},
    "onnxruntime": {"mt.export"},
    "fastapi": {"mt.serving"},
    "lxml": {"mt.documents"},
    "markdown_it": {"mt.documents"},
    "uvicorn": {"mt.serving"},
    "prometheus_client": {"mt.serving"},
    "py3langid": {"mt.serving", "mt.corpora"},
    "ray": {"mt.corpora"},
}
HEAVY = {*CONFINED, "sacrebleu", "sacremoses"}


def module_name(path: Path) -> str:
    parts = ("mt", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(module: str, source: str) -> Iterator[str]:
    """Dotted names of all that ``source`` imports, at its top or inside a function.

    ``from a import b`` gives a.b where that is a module of mt, else a.
    """
    is_package = MODULES.get(module, Path()).name == "__init__.py"
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                yield name if name in MODULES else origin


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def within(module: str, places: set[str]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def violations(module: str, source: str) -> list[str]:
    """What ``module`` imports and may not."""
    own = package_of(module)
    messages = []
    for name in imports(module, source):
        if name.split(".")[0] != "mt":
            library = name.split(".")[0]
            if not within(module, CONFINED.get(library, {module})):
                messages.append(f"{module} imports {library}")
            continue
        if (module, name) == (READS_THE_VERSION, "mt"):
            continue
        other = package_of(name)
        if other in ENTRY_POINTS:
            messages.append(f"{module} imports the entry point {name}")
        elif own in MAY_IMPORT and other not in MAY_IMPORT[own] | {own}:
            messages.append(f"{module} imports {name}")
    return messages


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_package_may(module: str) -> None:
    assert violations(module, MODULES[module].read_text("utf-8")) == []


def test_every_module_lies_in_a_package_of_the_table_or_is_an_entry_point() -> None:
    assert {package_of(m) for m in MODULES} == MAY_IMPORT.keys() | ENTRY_POINTS | PACKAGE_ITSELF


def test_imports_have_no_circle_between_packages() -> None:
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()  # raises CycleError


def test_imports_have_no_circle_between_modules() -> None:
    # A package's __init__ runs before its modules; what these import of it does not count.
    graph = {
        module: {
            name
            for name in imports(module, path.read_text("utf-8"))
            if name in MODULES and name != module and not module.startswith(f"{name}.")
        }
        for module, path in MODULES.items()
        if module != "mt"
    }
    assert graph["mt.model.transformer"] >= {"mt.model.dropout"}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("mt.model.x", "from mt.inference.options import MAX_EXTRA", "mt.inference.options"),
        ("mt.model.x", "from mt.training import loss", "mt.training.loss"),
        ("mt.data.x", "import mt.model.transformer as t", "mt.model.transformer"),
        ("mt.data.x", "from ..model import dropout", "mt.model.dropout"),
        ("mt.utils.x", "def f():\n    from mt.data import tokenizer", "mt.data.tokenizer"),
        ("mt.training.x", "from mt.export import parity", "mt.export.parity"),
        ("mt.training.x", "from mt.train import main", "the entry point mt.train"),
        ("mt.evaluate", "from mt import translate", "the entry point mt.translate"),
        ("mt.data.readers", "import hydra.utils", "hydra"),
        ("mt.inference.x", "from omegaconf import DictConfig", "omegaconf"),
        ("mt.translate", "import pytorch_lightning as pl", "pytorch_lightning"),
        ("mt.train", "import lightning as L", "lightning"),
        ("mt.serving.x", "from mt.export import parity", "mt.export.parity"),
        ("mt.inference.x", "import fastapi", "fastapi"),
        ("mt.inference.x", "import ray.data", "ray"),
        ("mt.inference.x", "from mt.inspection import report", "mt.inspection.report"),
        ("mt.inspection.x", "from mt import inspect", "the entry point mt.inspect"),
    ],
)
def test_the_checker_finds_what_breaks_the_rules(module: str, source: str, message: str) -> None:
    [violation] = violations(module, source)
    assert violation == f"{module} imports {message}"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("mt.model.x", '"""Not an import: from mt.inference import options."""'),
        ("mt.model.x", "import math\nfrom mt.data.packing import Packed"),
        ("mt.training.x", "import hydra\nfrom mt.inference.translator import Translator"),
        ("mt.translate", "from mt.export import ctranslate2\nfrom mt.utils import console"),
    ],
)
def test_the_checker_allows_what_keeps_them(module: str, source: str) -> None:
    assert violations(module, source) == []


def loaded_by(statement: str) -> set[str]:
    """Top-level names of all that ``statement`` loads in a new Python."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


@pytest.mark.parametrize("statement", ["import mt.translate", "from mt import Translator"])
def test_translating_starts_without_the_heavy_libraries(statement: str) -> None:
    loaded = loaded_by(statement)
    assert {"mt", "torch", "sentencepiece", "safetensors"} <= loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_package_alone_loads_nothing_else() -> None:
    assert loaded_by("import mt").isdisjoint({"torch", "numpy", "sentencepiece", *HEAVY})


def test_the_list_of_loaded_libraries_can_hold_a_heavy_one() -> None:
    assert {"mt", "sacrebleu", "sacremoses"} <= loaded_by("import mt.evaluation.metrics")


# What Windows lacks: whole modules, and names of others.
POSIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
POSIX_NAMES = {"SIGUSR1", "SIGCHLD", "SIGKILL", "pthread_sigmask"}  # of signal


def load_as_on_windows(module: str) -> dict[str, Any]:
    """The names of a module that is run anew, and finds only what Windows has."""

    def import_(name: str, *rest: Any) -> Any:
        if name in POSIX_MODULES:
            raise ImportError(name)
        if name != "signal":
            return __import__(name, *rest)
        return SimpleNamespace(**{k: v for k, v in vars(signal).items() if k not in POSIX_NAMES})

    names = {"__name__": module, "__builtins__": {**vars(builtins), "__import__": import_}}
    exec(compile(MODULES[module].read_text("utf-8"), module, "exec"), names)
    return names


@pytest.mark.parametrize(
    "module",
    [
        name
        for name, path in MODULES.items()
        if {"signal", *POSIX_MODULES} & set(imports(name, path.read_text("utf-8")))
    ],
)
def test_a_module_can_be_imported_on_windows(module: str) -> None:
    assert load_as_on_windows(module)


def test_what_windows_lacks_is_left_out_there() -> None:
    load_as_on_windows("mt.serve")["allow_open_files"](10**6)
    processes = load_as_on_windows("mt.utils.processes")
    assert processes["SIGNALS"] == (signal.SIGINT, signal.SIGTERM)
    with processes["_block_signals"]():
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
