"""How the tests import scripts."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
BENCHMARKS = SCRIPTS / "benchmarks"


def load_script(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """Import a file of scripts/, scripts/benchmarks/ or scripts/bundled_model/."""
    for folder in (BENCHMARKS, SCRIPTS / "bundled_model", SCRIPTS):
        if str(folder) not in sys.path:
            monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("mt.training.malloc._mallopt", lambda *_: None)  # it would last
    return importlib.import_module(name)


def table_rows(markdown: str) -> dict[str, list[str]]:
    """The rows of a Markdown table by their first cell."""
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in markdown.splitlines()]
    return {first: cells for first, *cells in rows}
