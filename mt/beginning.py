"""What a training run begins with: its tokenizer, and another model's weights if one is named."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from tqdm import tqdm

from mt import checkpoint, corpus, tokenizer
from mt.checkpoint import LoadedModel
from mt.sources import Source
from mt.tokenizer import Tokenizer

log = logging.getLogger("mt")


def get_tokenizer(
    cfg: DictConfig,
    source: Source,
    resume: Path | None = None,
    started_from: LoadedModel | None = None,
) -> Tokenizer:
    """The tokenizer whose ids the weights know, those of ``resume`` or of another model.

    For new weights it is the one named, or one of this training text, trained if it is not there.
    """
    if resume is not None:
        return _run_tokenizer(cfg, resume)
    if started_from is not None:
        return started_from.tokenizer
    return load_or_train(cfg, tokenizer_path(cfg, source), source)


def load_or_train(cfg: DictConfig, path: Path, source: Source) -> Tokenizer:
    """Load the tokenizer, or train it on both sides of the training pairs if it is not there.

    Of several ranks one trains it and the others wait.
    """
    if not path.exists():
        with corpus.alone(path, cfg.data.cache_dir):
            if not path.exists():
                size = cfg.tokenizer.vocab_size
                log.info(f"training a tokenizer of {size:,} pieces, {path}")
                pairs = tqdm(
                    corpus.first(source.pairs("train"), cfg.data.limit),
                    desc="reading", unit=" pairs", disable=None,
                )  # fmt: skip
                trained = tokenizer.train((side for pair in pairs for side in pair), size)
                tokenizer.save(trained, path)
    found = Tokenizer.load(path)
    log.info(f"tokenizer: {path}, {found.vocab_size:,} pieces")
    return found


def tokenizer_path(cfg: DictConfig, source: Source) -> Path:
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


def model_to_start_from(cfg: DictConfig) -> LoadedModel | None:
    """The model that ``start_from`` names; None: training begins with random weights.

    Raises FileNotFoundError or ValueError when there is none, or none to train further.
    """
    if cfg.start_from is None:
        return None
    if cfg.tokenizer.path:
        raise ValueError(
            f"tokenizer.path={cfg.tokenizer.path} cannot go with start_from={cfg.start_from}, "
            "whose own tokenizer its weights know"
        )
    # Not `latest`, which would be another one when the run is resumed.
    path = str(cfg.start_from)
    found = checkpoint.load(checkpoint.SHIPPED if path == checkpoint.SHIPPED.name else path)
    if "activation" in found.config["model"]:
        raise ValueError(f"start_from={cfg.start_from}: an imported model, which cannot be trained")
    return found


def shape(model: LoadedModel) -> dict[str, Any]:
    """The numbers of mt.model.Transformer that come with a model; how much to drop out does not."""
    own = {"vocab_size", "P_drop"}
    return {name: value for name, value in model.model.config.items() if name not in own}


def name(model: LoadedModel) -> str:
    """A model's name and what its weights' file is known by, for the card of what comes of it."""
    path = checkpoint.SHIPPED.name if model.path == checkpoint.SHIPPED else str(model.path)
    return f"{path}, sha256 {checkpoint.digest(model.path)[:12]}"
