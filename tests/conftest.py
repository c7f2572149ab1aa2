"""Shared by all tests: one thread, no network, and a cache that goes with the test."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def worked_examples() -> dict[str, Any]:
    """Published worked examples; tests that need them skip where they are absent."""
    path = SHARED / "golden" / "worked_examples.json"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    return json.loads(path.read_text())
