"""Tiny model folders and training checkpoints, and what tests of both assert."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint
from mt.model.transformer import Transformer

SENTENCES = [
    f"{who} {does} {what}."
    for who in ("Der Bär", "Die Tür", "Ein Vogel")
    for does in ("hört", "öffnet", "trägt")
    for what in ("Äpfel", "die Straße", "nichts")
]
CONTENT = ["README.md", "config.json", "model.safetensors", "tokenizer.model"]
SRC = torch.tensor([[5, 6, 7, 3], [8, 9, 3, 0]])
TGT = torch.tensor([[2, 10, 11], [2, 12, 0]])


def tiny(seed: int = 0, **changes: int) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 50, "N": 1, "d_model": 16, "d_ff": 32, "h": 2, **changes}
    return Transformer(**sizes).eval()


def shaken(model: Any, noise: float = 0.1) -> Any:
    """In evaluation mode, and every number with noise, as if trained: no bias is 0, no gain 1.
    Models of one shape get the same noise."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=random)
    return model.eval()


def save(
    folder: Path,
    model: Transformer,
    tokenizer: Tokenizer,
    storage: str = "float32",
    **training: Any,
) -> Path:
    facts = {"steps": 7, **training}
    checkpoint.save(folder, model, tokenizer, 20, ["en", "de"], facts, storage=storage)
    return folder


def training_checkpoint(path: Path, model: Transformer, **changes: Any) -> Path:
    """What Lightning writes, as far as this project reads it."""
    content = {
        "state_dict": {f"model.{name}": w for name, w in model.state_dict().items()},
        "hyper_parameters": {"model": model.config, "max_length": 20, "seed": 1},
        "global_step": 7,
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def assert_same_model(loaded: Transformer, model: Transformer) -> None:
    assert loaded.config == model.config
    assert not loaded.training
    with torch.inference_mode():
        assert torch.equal(loaded(SRC, TGT), model(SRC, TGT))


def assert_refused(path: Path, error: type[Exception], message: str) -> str:
    """Loading fails with one line that names the path and says ``message``."""
    with pytest.raises(error, match=re.escape(message)) as caught:
        checkpoint.load(path)
    text = str(caught.value)
    assert str(path) in text
    assert text.isprintable()  # one line, without a terminal's escape sequences
    return text


def without_hashes(folder: Path) -> None:
    """As version 0.1 wrote the folder."""
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    (folder / "config.json").write_text(json.dumps(config))
