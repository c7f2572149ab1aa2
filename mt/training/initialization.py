"""What a training run begins with: its tokenizer, and another model's weights if one is named."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from tqdm import tqdm

from mt.data import preprocessing, tokenizer
from mt.data.readers import CorpusReader
from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint
from mt.model.checkpoint import LoadedModel

log = logging.getLogger("mt")
_SHA = ", sha256 "


# All that comes with a model to start from, but for the numbers of its shape, model.NAME.
_BROUGHT = ("model", "variation", "tokenizer.path", "tokenizer.vocab_size")


class PretrainedModel(NamedTuple):
    """The model with whose weights a run begins, or once began."""

    name: str  # as ``start_from`` has it, and what its weights' file is known by
    shape: dict[str, Any]  # numbers of mt.model.Transformer; how much to drop out is the run's own
    loaded: LoadedModel | None  # None when the run goes on, with weights and tokenizer of its own


def find_pretrained(
    cfg: DictConfig, resume: Path | None, found: dict[str, Any] | None
) -> PretrainedModel | None:
    """What ``start_from`` names; None: random weights.

    ``found`` is the checkpoint, read from ``resume``, of a run that goes on: it knows its parent,
    which need not be there any more. Raises FileNotFoundError or ValueError when there is no such
    model, none to train further, or not the one that the run began with.
    """
    path = None if cfg.start_from is None else str(cfg.start_from)
    if found is not None:
        own = found["hyper_parameters"]
        name = own.get("started_from")
        began = name and name.rpartition(_SHA)[0]
        if began != path:
            began, given = began or "null", path or "null"
            raise ValueError(f"start_from={given}, but the run of {resume} has start_from={began}")
        return name and PretrainedModel(name, _shape(own["model"]), None)
    if path is None:
        return None
    if path == "latest":
        raise ValueError("start_from=latest: name the folder, for the latest soon is another")
    folder = checkpoint.BUNDLED_MODEL if path == checkpoint.BUNDLED_MODEL.name else Path(path)
    loaded = checkpoint.load(folder)
    if "activation" in loaded.config["model"]:
        raise ValueError(f"start_from={path}: an imported model, which cannot be trained")
    if not all(w.isfinite().all() for w in loaded.model.parameters()):
        raise ValueError(f"start_from={path}: a weight is not a finite number")
    shape = _shape(loaded.model.config)
    _check_overrides(shape)
    return PretrainedModel(f"{path}{_SHA}{checkpoint.digest(folder)[:12]}", shape, loaded)


def _shape(config: dict[str, Any]) -> dict[str, Any]:
    own = ("vocab_size", "P_drop")
    return {name: value for name, value in config.items() if name not in own}


def _check_overrides(shape: dict[str, Any]) -> None:
    """ValueError when the command line asks for another shape or tokenizer than the parent's."""
    brought = {*_BROUGHT, *(f"model.{name}" for name in shape)}
    for override in HydraConfig.get().overrides.task:
        if override.lstrip("+~").partition("=")[0] in brought:
            raise ValueError(
                f"{override} cannot go with start_from, which brings shape and tokenizer along"
            )


def get_tokenizer(
    cfg: DictConfig,
    source: CorpusReader,
    resume: Path | None = None,
    parent: PretrainedModel | None = None,
) -> Tokenizer:
    """The tokenizer whose ids the weights know, those of ``resume`` or of the parent.

    For new weights it is the one named, or one of this training text, trained if it is not there.
    Raises ValueError or OSError when it cannot be had.
    """
    if resume is not None:
        return _run_tokenizer(cfg, resume)
    if parent is not None and parent.loaded is not None:
        return parent.loaded.tokenizer
    return load_or_train(cfg, tokenizer_path(cfg, source), source)


def load_or_train(cfg: DictConfig, path: Path, source: CorpusReader) -> Tokenizer:
    """Load the tokenizer, or train it on both sides of the training pairs if it is not there.

    Of several ranks one trains it and the others wait.
    """
    if not path.exists():
        with preprocessing.file_lock(path, cfg.data.cache_dir):
            if not path.exists():
                size = cfg.tokenizer.vocab_size
                log.info(f"training a tokenizer of {size:,} pieces, {path}")
                pairs = tqdm(
                    preprocessing.first(source.pairs("train"), cfg.data.limit),
                    desc="reading", unit=" pairs", disable=None,
                )  # fmt: skip
                trained = tokenizer.train((side for pair in pairs for side in pair), size)
                tokenizer.save(trained, path)
    found = Tokenizer.load(path)
    log.info(f"tokenizer: {path}, {found.vocab_size:,} pieces")
    return found


def tokenizer_path(cfg: DictConfig, source: CorpusReader) -> Path:
    """The tokenizer's file: the one named, or one for exactly this training text and size."""
    if cfg.tokenizer.path:
        return Path(str(cfg.tokenizer.path))
    identity = json.dumps([source.identity("train"), cfg.data.limit])
    mark = hashlib.sha256(identity.encode()).hexdigest()[:8]
    data = HydraConfig.get().runtime.choices["data"]
    return Path("tokenizer") / f"{data}-{cfg.tokenizer.vocab_size}-{mark}.model"


def _run_tokenizer(cfg: DictConfig, resume: Path) -> Tokenizer:
    """The tokenizer of the run that is resumed."""
    path = resume.parent.parent / "tokenizer.model"
    found = Tokenizer.load(path)
    if cfg.tokenizer.path and Tokenizer.load(str(cfg.tokenizer.path)).proto != found.proto:
        raise ValueError(f"tokenizer.path={cfg.tokenizer.path} is not the run's own, {path}")
    return found
