"""What a run begins with: its tokenizer, and the weights of another model if it names one."""

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from tqdm import tqdm

from mt.data import preprocessing, tokenizer
from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint
from mt.model.checkpoint import LoadedModel
from mt.model.marian import MarianTransformer
from mt.model.transformer import shape_of
from mt.training.config import TrainConfig
from mt.utils.console import describe
from mt.utils.hydra_app import CONF

log = logging.getLogger("mt")
_SHA = ", sha256 "


class PretrainedModel(NamedTuple):
    """The model whose weights a run begins with, or has begun with."""

    name: str  # the value of ``init_from`` and the hash of the weights' file
    shape: dict[str, Any]  # arguments of Stacks but for dropout, which each run chooses
    loaded: LoadedModel | None  # None for a resumed run, which has its own weights and tokenizer


def find_pretrained(
    config: TrainConfig, resume: Path | None, saved: dict[str, Any] | None
) -> PretrainedModel | None:
    """The model that ``init_from`` names; None for random weights.

    ``saved`` is the content of the checkpoint ``resume``, for a run that is resumed. It names the
    model that the run began with, which need not exist any more. Raises ValueError when the model
    does not exist, cannot be trained, or is not the one in ``saved``.
    """
    path = config.init_from
    if saved is not None:
        hparams = saved["hyper_parameters"]
        name = hparams.get("started_from")
        original = name and name.rpartition(_SHA)[0]
        if original != path:
            raise ValueError(
                f"init_from={path or 'null'}, but the run of {resume} "
                f"has init_from={original or 'null'}: give that again"
            )
        return name and PretrainedModel(name, _shape(hparams["model"]), None)
    if path is None:
        return None
    if path == "latest":
        raise ValueError("init_from=latest: name the folder; another run will soon be the latest")
    folder = checkpoint.BUNDLED_MODEL if path == checkpoint.BUNDLED_MODEL.name else Path(path)
    try:
        loaded = checkpoint.load(folder)
    except (OSError, ValueError) as error:
        raise ValueError(f"init_from: {describe(error)}") from None
    if isinstance(loaded.model, MarianTransformer):
        raise ValueError(f"init_from={path}: an imported model, which cannot be trained")
    shape = _shape(loaded.model.config)
    _check_overrides(config.overrides, shape)
    old, new = loaded.config.get("languages"), config.data.languages
    if old and old != new:
        log.warning(
            f"init_from={path} translates {' to '.join(old)}, and this run learns "
            f"{' to '.join(new)}: the weights may help little; data.src and data.tgt name the "
            "languages"
        )
    return PretrainedModel(f"{path}{_SHA}{checkpoint.digest(folder)[:12]}", shape, loaded)


def _shape(model: dict[str, Any]) -> dict[str, Any]:
    """The shape but for the vocabulary, which comes with the tokenizer."""
    return {name: value for name, value in shape_of(model).items() if name != "vocab_size"}


def _check_overrides(overrides: list[str], shape: dict[str, Any]) -> None:
    """ValueError when the command line names a shape or tokenizer beside a pretrained model."""
    kind = {f"tokenizer.{name}" for name in ("path", "vocab_size", "byte_fallback", "split_digits")}
    fixed = {"model", *kind, *(f"model.{name}" for name in shape)}
    for override, name in zip(overrides, _names(overrides), strict=True):
        if name in fixed or (name == "variation" and _changes_shape(override, shape)):
            raise ValueError(
                f"{override} cannot go with init_from: that model has a shape and a tokenizer"
            )


def _changes_shape(override: str, shape: dict[str, Any]) -> bool:
    """Whether an override such as variation=C_N2 names a file that sets shape or tokenizer."""
    file = Path(CONF, "variation", override.partition("=")[2] + ".yaml")
    if not file.is_file():  # one of the user's own
        return True
    content = OmegaConf.load(file)
    model = OmegaConf.select(content, "model") or ()
    return "tokenizer" in content or not set(model).isdisjoint(shape)


def _names(overrides: list[str]) -> list[str]:
    """The settings that a command line names."""
    return [override.lstrip("+~").partition("=")[0] for override in overrides]


def get_tokenizer(
    config: TrainConfig, resume: Path | None = None, pretrained: PretrainedModel | None = None
) -> Tokenizer:
    """The tokenizer of the run of ``resume``, or of the pretrained model.

    Random weights take the one that ``tokenizer.path`` names, or one for this training text, which
    is trained if its file does not exist. Raises ValueError or OSError when that fails.
    """
    if resume is not None:
        path, named = resume.parent.parent / "tokenizer.model", config.tokenizer.path
        loaded = Tokenizer.load(path)
        if named is not None and Tokenizer.load(named).proto != loaded.proto:
            raise ValueError(f"tokenizer.path={named} is not the tokenizer of the run, {path}")
        _check_size(config, path, loaded)
        _check_kind(config, path, loaded)
        return loaded
    if pretrained is not None and pretrained.loaded is not None:
        return pretrained.loaded.tokenizer
    return load_or_train(config, tokenizer_path(config))


def load_or_train(config: TrainConfig, path: Path) -> Tokenizer:
    """Load the tokenizer, or train it on both sides of the training pairs if it does not exist.

    One of several ranks trains it; the others wait. A text that is too short for the pieces of a
    configuration file gets fewer. Raises ValueError when the command line names another size than
    the text supports, or what the file does not have.
    """
    settings, names = config.tokenizer, _names(config.overrides)
    size, named = settings.vocab_size, "tokenizer.vocab_size" in names
    if not path.exists():
        with preprocessing.file_lock(path, config.data.cache_dir):
            if not path.exists():
                _check_writable(path)
                log.info(f"training a tokenizer of {size:,} pieces, {path}")
                read = preprocessing.first_pairs(
                    config.data.reader.pairs("train"), config.data.limit, "data.train"
                )
                pairs = tqdm(read, desc="reading", unit=" pairs", disable=None)
                sentences = (side for pair in pairs for side in pair)
                trained = tokenizer.train(
                    sentences,
                    size,
                    exact=named,
                    byte_fallback=settings.byte_fallback,
                    split_digits=settings.split_digits,
                )
                if trained.vocab_size < size:
                    log.info(
                        f"the training text is too short for {size:,} pieces "
                        f"(tokenizer.vocab_size): {trained.vocab_size:,} suit it"
                    )
                tokenizer.save(trained, path)
    loaded = Tokenizer.load(path)
    _check_size(config, path, loaded)
    _check_kind(config, path, loaded)
    log.info(f"tokenizer: {path}, {loaded.vocab_size:,} pieces")
    return loaded


def _check_writable(path: Path) -> None:
    """PermissionError where the file cannot be made, before the minutes that its content takes."""
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder}: cannot be written: name another tokenizer.path")


def _check_size(config: TrainConfig, path: Path, loaded: Tokenizer) -> None:
    """ValueError when the command line names another number of pieces than the file has."""
    size = config.tokenizer.vocab_size
    if "tokenizer.vocab_size" in _names(config.overrides) and loaded.vocab_size != size:
        raise ValueError(
            f"tokenizer.vocab_size={size}, but {path} has {loaded.vocab_size} pieces: "
            "leave the size out, or name another tokenizer.path"
        )


def _check_kind(config: TrainConfig, path: Path, loaded: Tokenizer) -> None:
    """ValueError when the command line names a kind of tokenizer that the file does not have."""
    names, settings = _names(config.overrides), config.tokenizer
    other = {
        "byte_fallback": settings.byte_fallback != loaded.byte_fallback,
        # The pieces of a text without numbers tell nothing.
        "split_digits": settings.split_digits and not loaded.split_digits,
    }
    for name, differs in other.items():
        if differs and f"tokenizer.{name}" in names:
            value = str(getattr(settings, name)).lower()
            raise ValueError(
                f"tokenizer.{name}={value}, but {path} was made otherwise: "
                "leave the setting out, or name another tokenizer.path"
            )


def tokenizer_path(config: TrainConfig) -> Path:
    """The tokenizer's file: the one named, or one for exactly this training text and settings."""
    settings = config.tokenizer
    if settings.path is not None:
        return Path(settings.path)
    kind = [name for name in ("byte_fallback", "split_digits") if getattr(settings, name)]
    text = json.dumps([config.data.reader.identity("train"), config.data.limit, *kind])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Path("tokenizer") / f"{config.data_name}-{settings.vocab_size}-{digest}.model"
