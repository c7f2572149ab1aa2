"""Which room of the house may import which, and that a prompt starts without the heavy ones."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mt

PACKAGE = Path(mt.__file__).parent

# Room -> the rooms it may import. A new room gets a line here and in DESIGN.md.
MAY_IMPORT: dict[str, set[str]] = {
    "tokenizer": set(),
    "phrasebook": set(),
    "packing": set(),
    "batching": {"packing"},
    "dropout": set(),
    "model": {"dropout", "packing"},
    "loss": set(),
    "schedule": set(),
    "search": set(),
    "precision": set(),
    "inference": {"model", "precision"},
    "splitting": set(),
    "files": set(),
    "metrics": set(),
    "progress": {"batching"},
    "saving": {"datamodule", "module", "processes"},
    "ending": {"module", "processes"},
    "processes": set(),
    "memory": set(),
    "runs": set(),
    "sweep": {"model", "processes", "runs"},
    "cli": set(),
    "errors": set(),
    "sources": {"phrasebook"},
    "corpus": {"tokenizer", "sources"},
    "checkpoint": {"marian", "model", "search", "tokenizer"},
    "marian": {"model", "search"},
    "import_marian": {"checkpoint", "errors", "marian", "tokenizer"},
    "exports": {
        "batching",
        "checkpoint",
        "inference",
        "marian",
        "metrics",
        "search",
        "tokenizer",
        "translation",
        "translator",
    },
    "export": {"checkpoint", "errors", "exports", "phrasebook", "sources", "translator"},
    "translation": set(),
    "translator": {
        "tokenizer",
        "batching",
        "search",
        "inference",
        "splitting",
        "metrics",
        "checkpoint",
        "model",
        "translation",
    },
    "noise": set(),
    "datamodule": {"tokenizer", "sources", "corpus", "batching", "noise", "processes"},
    "module": {
        "tokenizer",
        "batching",
        "model",
        "loss",
        "schedule",
        "translator",
        "metrics",
        "memory",
    },
    "beginning": {"checkpoint", "corpus", "sources", "tokenizer"},
    "train": {
        "beginning",
        "datamodule",
        "module",
        "checkpoint",
        "corpus",
        "tokenizer",
        "progress",
        "saving",
        "ending",
        "processes",
        "memory",
        "runs",
        "model",
        "noise",
        "sources",
        "sweep",
        "cli",
        "metrics",
    },
    "report": {"metrics"},
    "compare": {"errors", "metrics", "pictures", "report"},
    "pictures": {"report"},
    "evaluate": {
        "checkpoint",
        "cli",
        "compare",
        "corpus",
        "errors",
        "metrics",
        "pictures",
        "report",
        "search",
        "sources",
        "translation",
        "translator",
    },
    "translate": {
        "checkpoint",
        "errors",
        "exports",
        "files",
        "precision",
        "search",
        "translation",
        "translator",
    },
}
ENTRY_POINTS = {"train", "evaluate", "translate", "export", "import_marian"}

# Library -> the only rooms that may import it.
CONFINED: dict[str, set[str]] = {
    "pytorch_lightning": {"datamodule", "module", "progress", "saving", "ending", "train"},
    "lightning": set(),  # the same library under its other name: one is enough
    "hydra": {"beginning", "cli", "runs", "sweep", "train", "evaluate"},
    "omegaconf": {"beginning", "cli", "runs", "sweep", "train", "evaluate"},
    "datasets": {"sources", "corpus"},
    "transformers": {"exports"},
    "ctranslate2": {"exports"},
    "onnxruntime": {"exports"},
}
# Room -> the only libraries, beside Python's own, that it may import.
ONLY = {"model": {"torch"}, "dropout": {"torch"}, "packing": {"torch"}}


def imported(source: str, package: str) -> Iterator[str]:
    """Dotted names of all that ``source``, a module of ``package``, imports anywhere in it.

    ``from a import b`` gives a.b, since b may be a module; relative names are made absolute.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            origin = [*base, *([node.module] if node.module else [])]
            yield from (".".join([*origin, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            function = ast.unparse(node.func).split(".")[-1]
            name = node.args[0]
            if function in ("import_module", "__import__") and isinstance(name, ast.Constant):
                yield str(name.value)


def rooms_and_libraries(source: str, package: str) -> tuple[set[str], set[str]]:
    """The rooms of mt, and the libraries outside of it, that ``source`` imports."""
    names = [name.split(".") for name in imported(source, package)]
    rooms = {name[1] if len(name) > 1 else "__init__" for name in names if name[0] == "mt"}
    return rooms, {name[0] for name in names if name[0] != "mt"} - sys.stdlib_module_names


def violations(room: str, source: str, package: str = "mt") -> list[str]:
    """What a module of ``room`` imports and may not; empty when all is well."""
    if room not in MAY_IMPORT:
        return [f"{room} is not in the table of tests/test_imports.py and DESIGN.md"]
    rooms, libraries = rooms_and_libraries(source, package)
    found = [
        f"{room} imports the entry point mt.{other}"
        for other in sorted((rooms & ENTRY_POINTS) - {room})
    ]
    found += [
        f"{room} imports mt.{other}"
        for other in sorted(rooms - MAY_IMPORT[room] - ENTRY_POINTS - {room})
    ]
    found += [
        f"{room} imports {library}"
        for library in sorted(libraries)
        if room not in CONFINED.get(library, {room}) or library not in ONLY.get(room, {library})
    ]
    return found


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def package_of(path: Path) -> str:
    return ".".join(("mt", *path.relative_to(PACKAGE).parts[:-1]))


# The house as it is


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    assert violations(room_of(path), path.read_text(encoding="utf-8"), package_of(path)) == []


def test_the_package_itself_imports_no_room() -> None:
    source = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    assert rooms_and_libraries(source, "mt") == (set(), set())


def test_the_checker_sees_the_imports_that_are_there() -> None:
    """Were it blind, everything above would pass."""
    seen: dict[str, tuple[set[str], set[str]]] = {}
    for path in modules():
        if path.parent == PACKAGE:
            seen[path.stem] = rooms_and_libraries(path.read_text(encoding="utf-8"), "mt")
    assert seen["checkpoint"][0] == {"marian", "model", "search", "tokenizer"}
    assert seen["translator"][0] == MAY_IMPORT["translator"]
    assert seen["model"][1] == {"torch"}
    assert {"sacrebleu", "sacremoses"} <= seen["metrics"][1]
    assert "sentencepiece" in seen["tokenizer"][1]


def test_nothing_in_the_table_goes_round_in_a_circle() -> None:
    left = {room: set(others) for room, others in MAY_IMPORT.items()}
    while free := {room for room, others in left.items() if not others & left.keys()}:
        left = {room: others for room, others in left.items() if room not in free}
    assert not left, f"a circle among {sorted(left)}"
    assert ENTRY_POINTS.isdisjoint(set.union(*MAY_IMPORT.values()))


# The checker on sources made to break the rules


@pytest.mark.parametrize(
    ("room", "source", "message"),
    [
        ("model", "from mt.tokenizer import PAD", "model imports mt.tokenizer"),
        ("model", "from mt import tokenizer", "model imports mt.tokenizer"),
        ("model", "import mt.tokenizer as t", "model imports mt.tokenizer"),
        ("model", "from . import tokenizer", "model imports mt.tokenizer"),
        ("model", "from .tokenizer import PAD", "model imports mt.tokenizer"),
        ("model", "import mt", "model imports mt.__init__"),
        ("model", "def f():\n    from mt.search import search", "model imports mt.search"),
        ("model", "if TYPE_CHECKING:\n    from mt.loss import x", "model imports mt.loss"),
        ("model", "importlib.import_module('mt.loss')", "model imports mt.loss"),
        ("model", "__import__('mt.loss')", "model imports mt.loss"),
        ("model", "import math, numpy", "model imports numpy"),
        ("model", "from einops import rearrange", "model imports einops"),
        ("corpus", "from mt.train import main", "corpus imports the entry point mt.train"),
        ("evaluate", "from mt import translate", "evaluate imports the entry point mt.translate"),
        ("translate", "import pytorch_lightning as pl", "translate imports pytorch_lightning"),
        ("train", "import lightning as L", "train imports lightning"),
        ("datamodule", "from datasets import Dataset", "datamodule imports datasets"),
        ("module", "from omegaconf import DictConfig", "module imports omegaconf"),
        ("datamodule", "import hydra.utils", "datamodule imports hydra"),
        ("garage", "import math", "garage is not in the table of tests/test_imports.py"),
    ],
)
def test_the_checker_finds(room: str, source: str, message: str) -> None:
    [found] = violations(room, source)
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("model", "import math\nimport torch.nn.functional as F\nfrom torch import nn"),
        ("model", '"""Not an import: from mt.tokenizer import PAD."""'),
        ("model", "from mt.model import Transformer"),
        ("checkpoint", "from mt.model import Transformer\nfrom mt import tokenizer"),
        ("train", "import hydra\nimport pytorch_lightning as pl\nfrom mt import corpus"),
        ("progress", "import pytorch_lightning as pl"),
        ("corpus", "import datasets\nfrom mt import tokenizer"),
    ],
)
def test_the_checker_allows(room: str, source: str) -> None:
    assert violations(room, source) == []


def test_the_checker_follows_relative_imports_in_a_room_of_several_files() -> None:
    package = "mt.phrasebook"
    assert violations("phrasebook", "from . import words\nfrom .words import rows", package) == []
    for source in ("from .. import tokenizer", "from ..tokenizer import PAD"):
        assert violations("phrasebook", source, package) == ["phrasebook imports mt.tokenizer"]


# Starting


def loaded_by(module: str) -> set[str]:
    """Top-level names of all that importing ``module`` in a new Python loads."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


def test_a_prompt_starts_without_the_heavy_libraries() -> None:
    loaded = loaded_by("mt.translate")
    assert {"mt", "torch", "sentencepiece", "safetensors"} <= loaded
    assert loaded.isdisjoint({*CONFINED, "sacrebleu", "sacremoses"})


def test_the_list_of_loaded_libraries_can_hold_a_heavy_one() -> None:
    assert {"mt", "sacrebleu", "sacremoses"} <= loaded_by("mt.metrics")
