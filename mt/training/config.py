"""The settings of a training run: Hydra's configuration, read and checked once.

The fields have the names of conf/train.yaml, which says what they mean. Everything after this
module takes plain values.
"""

import inspect
import logging
import os
import shutil
import types
import typing
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from mt.data.corpus_reader import CorpusReader
from mt.data.preprocessing import PairFilter
from mt.data.tokenizer import MAX_VOCAB_SIZE
from mt.model.checkpoint import MOST_LENGTH
from mt.utils import hydra_app
from mt.utils.cache import cache_folder
from mt.utils.checks import check_bool, check_int, check_number, short_repr

log = logging.getLogger("mt")

MOST_STEPS = 10**9  # a larger number of steps, tokens or pairs is a mistake
MOST_PROCESSES = 256  # of one machine
# Lightning's other arguments are set by mt.train, would break exact resume or interruption, or
# would leave the model without scores.
ALLOWED = {
    "accelerator", "benchmark", "detect_anomaly", "deterministic", "devices",
    "gradient_clip_algorithm", "gradient_clip_val", "inference_mode", "log_every_n_steps",
    "max_steps", "max_time", "num_nodes", "precision", "profiler", "strategy", "sync_batchnorm",
}  # fmt: skip
TRAINER = inspect.signature(pl.Trainer).parameters
YAML = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    list: "a list", dict: "names with values", type(None): "null",
}  # fmt: skip


@dataclass(frozen=True)
class DataConfig:
    """``data``: the corpus and its batches."""

    reader: CorpusReader
    src: str | int
    tgt: str | int
    clean: PairFilter
    tokens_per_step: int
    max_tokens: int
    noise: float
    limit: int | None
    validation_limit: int | None
    workers: int
    cache_dir: str

    @property
    def languages(self) -> list[str]:
        """The codes that the names of the columns are, or the ends of nested ones' names.

        Numbers of columns are none: the languages are then those of the paper's model.
        """
        names = [str(name).rpartition(".")[2] for name in (self.src, self.tgt)]
        return ["en", "de"] if any(map(str.isdigit, names)) else names

    def __post_init__(self) -> None:
        for name in ("tokens_per_step", "max_tokens"):
            check_int(f"data.{name}", getattr(self, name), most=MOST_STEPS)
        for name in ("limit", "validation_limit"):
            check_int(f"data.{name}", getattr(self, name), most=MOST_STEPS, optional=True)
        check_int("data.workers", self.workers, least=0, most=MOST_PROCESSES)
        check_number("data.noise", self.noise, 0, 1)
        check_int("data.clean.max_length", self.clean.max_length, most=MOST_LENGTH, optional=True)
        check_path("data.cache_dir", self.cache_dir)


@dataclass(frozen=True)
class TokenizerConfig:
    """``tokenizer``: which one, and how it is trained when its file does not exist."""

    path: str | None
    vocab_size: int
    byte_fallback: bool
    split_digits: bool
    bpe_dropout: float

    def __post_init__(self) -> None:
        check_int("tokenizer.vocab_size", self.vocab_size, most=MAX_VOCAB_SIZE)
        check_bool("tokenizer.byte_fallback", self.byte_fallback)
        check_bool("tokenizer.split_digits", self.split_digits)
        check_path("tokenizer.path", self.path, optional=True)
        check_number("tokenizer.bpe_dropout", self.bpe_dropout, 0, below=1)


@dataclass(frozen=True)
class TrainConfig:
    """All of conf/train.yaml. The constructors that take a ``dict`` check the values in it."""

    data: DataConfig
    tokenizer: TokenizerConfig
    model: dict[str, Any]  # arguments of mt.model.decoder_only.make_model
    compile: bool  # model.compile
    training: dict[str, Any]  # arguments of mt.training.lightning_module.TranslationModule
    search: dict[str, Any]  # arguments of Translator.translate
    trainer: dict[str, Any]  # arguments of pytorch_lightning.Trainer
    seed: int
    ckpt: str | None
    init_from: str | None
    validate_every: int
    checkpoint_every: int | str
    average: int
    show_examples: int

    data_name: str  # the file of conf/data
    overrides: list[str]  # the command line
    resolved: dict[str, Any]  # all settings, as config.yaml has them

    def __post_init__(self) -> None:
        if type(self.seed) is not int or not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed!r}: must be a whole number from 0 to {2**32 - 1}")
        check_int("validate_every", self.validate_every, most=MOST_STEPS)
        check_int("average", self.average, most=MOST_STEPS)
        check_int("show_examples", self.show_examples, least=0, most=MOST_STEPS)
        check_trainer(self.trainer)
        check_bool("model.compile", self.compile)
        compilers = [os.environ.get("CXX", "c++"), "g++", "clang++", "cl"]
        if self.compile and not any(map(shutil.which, compilers)):
            raise ValueError("model.compile=true needs a C++ compiler, and none is installed")

    def with_shape(self, shape: dict[str, Any]) -> "TrainConfig":
        """The same settings for a model of another shape; config.yaml has what is trained."""
        resolved = self.resolved | {"model": self.resolved["model"] | shape}
        return replace(self, model=self.model | shape, resolved=resolved)


def check_path(name: str, value: Any, optional: bool = False) -> None:
    """ValueError unless it can name a file or folder; an empty name is the current folder."""
    if not (optional and value is None) and not (isinstance(value, str) and value.strip()):
        null = "null or " if optional else ""
        raise ValueError(f"{name}={short_repr(value)}: must be {null}a path; quote a number")


def check_trainer(settings: dict[str, Any]) -> None:
    """ValueError for what mt.train does not leave to the user, and for a value of a wrong type.

    The types are those that Lightning's Trainer declares; it does not check all of them itself.
    """
    for name, value in settings.items():
        if name not in ALLOWED:
            raise ValueError(f"trainer.{name} is set by mt.train and cannot be changed")
        kinds = _kinds(TRAINER[name].annotation)
        if not any(_is_of(value, kind) for kind in kinds):
            words = [YAML.get(kind) if isinstance(kind, type) else str(kind) for kind in kinds]
            *others, last = dict.fromkeys(word for word in words if word)
            expected = f"{', '.join(others)} or {last}" if others else last
            raise ValueError(f"trainer.{name}={short_repr(value)}: must be {expected}")
    for name in ("max_steps", "log_every_n_steps", "num_nodes"):
        check_int(f"trainer.{name}", settings.get(name), most=MOST_STEPS)
    check_number("trainer.gradient_clip_val", settings.get("gradient_clip_val"), 0, optional=True)
    if type(devices := settings.get("devices")) is int:
        check_number("trainer.devices", devices, -1, MOST_PROCESSES)
        if devices == 0:
            raise ValueError("trainer.devices=0: must be at least 1, or -1 for all")


def _kinds(annotation: Any) -> list[Any]:
    """The types and the single values that an annotation allows."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return [kind for part in parts for kind in _kinds(part)]
    return list(parts) if origin is typing.Literal else [origin or annotation]


def _is_of(value: Any, kind: Any) -> bool:
    if not isinstance(kind, type):
        return type(value) is type(kind) and bool(value == kind)
    return type(value) is kind or (kind is float and type(value) is int)


def read_config(cfg: DictConfig) -> TrainConfig:
    """The settings of the program that Hydra has started.

    Raises ValueError, TypeError or an error of OmegaConf when one is wrong.
    """
    sections = ("data", "data.clean", "model", "tokenizer", "training", "search", "trainer")
    hydra_app.check_sections(cfg, *sections)
    hydra_app.check_names(cfg, "train", trainer=TRAINER)
    if cfg.data.cache_dir == os.environ.get("MT_CACHE") == "":  # which counts as not set
        cfg.data.cache_dir = str(cache_folder())
    resolved = cast("dict[str, Any]", OmegaConf.to_container(cfg, resolve=True))
    resolved["init_from"] = init_from = _init_from(resolved.pop("start_from", None), cfg.init_from)
    reader = hydra_app.instantiate(cfg, "data.reader")
    clean = PairFilter(**resolved["data"]["clean"])
    return _read(
        TrainConfig,
        cfg,
        data=_read(DataConfig, cfg.data, reader=reader, clean=clean),
        tokenizer=_read(TokenizerConfig, cfg.tokenizer),
        model={name: value for name, value in resolved["model"].items() if name != "compile"},
        compile=cfg.model.compile,
        **{name: resolved[name] for name in ("training", "search", "trainer")},
        ckpt=None if cfg.ckpt is None else str(cfg.ckpt),
        init_from=init_from,
        data_name=HydraConfig.get().runtime.choices["data"],
        overrides=list(HydraConfig.get().overrides.task),
        resolved=resolved,
    )


def _read(kind: Any, section: DictConfig, **read: Any) -> Any:
    """A dataclass of the section; ``read`` has the fields that are converted already."""
    names = {field.name for field in fields(kind)} - read.keys()
    return kind(**{name: section[name] for name in names}, **read)


def _init_from(start_from: Any, init_from: Any) -> str | None:
    """``init_from``, also where somebody still gives it as ``start_from``."""
    if start_from is not None:
        if init_from is not None:
            raise ValueError("start_from is now called init_from: set init_from alone")
        log.warning("start_from is now called init_from")
        init_from = start_from
    if init_from is not None and not str(init_from).strip():
        raise ValueError("init_from is empty: name a model")
    return None if init_from is None else str(init_from)
