"""Module names of version 0.1 that model cards and exports print: they still import.

Version 0.1 had all modules in one flat list. Importing an old name returns the module that has
the same content today.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

NEW_NAMES = {
    "mt.translator": "mt.inference.translator",
    "mt.search": "mt.inference.beam_search",
    "mt.exports": "mt.export",
    "mt.exports.onnx": "mt.export.onnx",
    "mt.exports.ctranslate2": "mt.export.ctranslate2",
    "mt.exports.huggingface": "mt.export.huggingface",
}


class _OldNameFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in NEW_NAMES:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(NEW_NAMES[spec.name])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # importlib has replaced it by the spec of the old name


def install() -> None:
    """Let imports find the old names.

    The finder comes first: otherwise ``mt.exports.onnx`` would be a second copy of the module,
    found by the path of ``mt.export``.
    """
    sys.meta_path.insert(0, _OldNameFinder())
