"""Module names of version 0.1 still import, and mean the modules of today."""

import importlib
import subprocess
import sys

import pytest

from mt._old_names import NEW_NAMES


@pytest.mark.parametrize(("old", "new"), NEW_NAMES.items())
def test_an_old_name_is_the_module_of_today(old: str, new: str) -> None:
    module = importlib.import_module(old)
    assert module is importlib.import_module(new)
    assert module.__name__ == new
    assert module.__spec__ is not None
    assert module.__spec__.name == new


PROGRAMS = [
    "from mt.translator import Translator\nfrom mt import Translator as New\n"
    "assert Translator is New",
    "import mt.exports.onnx as old\nimport mt.export.onnx\nassert old is mt.export.onnx",
    "import mt.export.onnx\nimport mt.exports.onnx as old\nassert old is mt.export.onnx",
    "from mt.exports.onnx import Engine\nfrom mt.search import search",
    "from mt.exports import onnx, ctranslate2\nonnx.Engine, ctranslate2.Engine",
    "import mt.exports.huggingface\nmt.exports.huggingface.Engine",
]


@pytest.mark.parametrize(
    "program",
    [*PROGRAMS[:2], *(pytest.param(program, marks=pytest.mark.slow) for program in PROGRAMS[2:])],
)
def test_import_lines_in_a_new_process(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["mt.metrics", "mt.exports.nothing", "mt.nothing"])
def test_other_names_are_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)
