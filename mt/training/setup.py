"""Setting up a training run: everything is made and checked before the run writes anything."""

import collections
import logging
import math
import os
import sys
import warnings
from dataclasses import dataclass
from logging.handlers import MemoryHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from mt.data.datamodule import TranslationData
from mt.data.preprocessing import first_pairs
from mt.data.special_ids import SPECIAL_IDS
from mt.data.text_reader import TextReader
from mt.data.tokenizer import PairTokenizer, Tokenizer
from mt.model.checkpoint import MOST_LENGTH
from mt.model.decoder_only import DecoderOnly, make_model
from mt.model.transformer import shape_of
from mt.model.weights import read_checkpoint
from mt.training.checkpointing import (
    NEVER_VALIDATE,
    AtomicCheckpointIO,
    CheckpointCallback,
    parse_interval,
)
from mt.training.config import TrainConfig
from mt.training.initialization import PretrainedModel, find_pretrained, get_tokenizer
from mt.training.interruption import Interruption, TimeLimit
from mt.training.lightning_module import TranslationModule
from mt.training.malloc import tune_malloc_for_setup
from mt.training.progress import Progress
from mt.training.resume import check_checkpoint, check_state
from mt.training.run_dir import is_finished, resume_path, step_files
from mt.utils.console import discard_output
from mt.utils.torch_private import can_multiply_bfloat16, limit_onednn_memory

log = logging.getLogger("mt")


@dataclass(frozen=True)
class Run:
    """A training run that is ready to begin, or to continue from the checkpoint ``resume``."""

    config: TrainConfig
    folder: Path
    trainer: pl.Trainer
    module: TranslationModule
    data: TranslationData
    checkpoints: CheckpointCallback
    interruption: Interruption
    resume: Path | None
    resumed_step: int  # of the checkpoint; 0 for a run that begins


def set_up(config: TrainConfig, folder: Path) -> Run:
    """Prepare the run of a folder.

    What can be wrong is checked before the data are prepared, which may take hours. Raises one of
    hydra_app.USER_ERRORS; ends the program where ``ckpt=auto`` finds a finished run.
    """
    resume = resume_path(folder, config.ckpt)
    saved = None
    if resume is not None:
        saved = _read_checkpoint(resume)
        check_checkpoint(resume, saved)
    resumed_step = saved["global_step"] if saved else 0
    pretrained = find_pretrained(config, resume, saved)
    if pretrained is not None:
        config = config.with_shape(pretrained.shape)
    _check_architecture(config)
    _check_positions(config)
    hparams = _module_arguments(config, pretrained)
    _check_module_arguments(config, hparams)
    reader = config.data.reader
    for split in ("train", "validation"):
        reader.identity(split)  # raises an error where its files are missing
    # Few, so that what is wrong with them need not wait for the training text.
    pairs, limit = reader.pairs("validation"), config.data.validation_limit
    collections.deque(first_pairs(pairs, limit, "data.validation"), maxlen=0)

    checkpoints = CheckpointCallback(
        folder / "checkpoints", config.validate_every, config.checkpoint_every, config.average
    )
    _announce_few_steps(config, resume is not None)
    interruption = Interruption(folder)
    callbacks = [checkpoints, Progress(config.show_examples), interruption]
    trainer = make_trainer(config.trainer, folder, callbacks)
    _warn_of_slow_training(trainer)
    if trainer.precision.startswith("bf16"):
        limit_onednn_memory()
    trainer.accumulate_grad_batches, max_tokens = split_step(
        config.data.tokens_per_step, config.data.max_tokens, trainer.world_size
    )

    tokenizer = get_tokenizer(config, resume, pretrained)
    if config.tokenizer.bpe_dropout and isinstance(tokenizer, PairTokenizer):
        raise ValueError("tokenizer.bpe_dropout: an imported tokenizer cannot leave merges out")
    tune_malloc_for_setup()
    module = _make_module(config, tokenizer, hparams, pretrained)
    if resume is not None and saved is not None:
        _check_resume(config, resume, saved, module)
    del pretrained, saved  # copies of the weights; the trainer reads the checkpoint for itself
    data = make_data(config, tokenizer, max_tokens)
    data.trainer = trainer
    # Every rank prepares the data before the ranks connect: a connection would time out meanwhile.
    data.prepare_data()
    data.setup("fit")
    if config.data.clean.max_length is None:  # no bound but the longest of the sentences
        longest = int(data.train.lengths()[0].max()) - 1
        module.max_length = min(max(module.max_length, longest), MOST_LENGTH)
        module.hparams["max_length"] = module.max_length
    return Run(
        config, folder, trainer, module, data, checkpoints, interruption, resume, resumed_step
    )


def _read_checkpoint(path: Path) -> dict[str, Any]:
    try:
        return read_checkpoint(path)
    except ValueError as error:
        others = [file for file in step_files(path.parent) if file != path]
        if not others:
            raise
        raise ValueError(f"{error}; ckpt={others[-1]} is another one of this run") from None


def make_data(config: TrainConfig, tokenizer: Tokenizer, max_tokens: int) -> TranslationData:
    """The data of a run, with at most ``max_tokens`` tokens a side in a batch of one device."""
    data = config.data
    return TranslationData(
        data.reader, tokenizer, data.clean, max_tokens, data.cache_dir, config.seed, data.workers,
        data.limit, data.validation_limit, config.tokenizer.bpe_dropout, data.noise,
    )  # fmt: skip


def make_trainer(
    settings: dict[str, Any], folder: Path, callbacks: list[pl.Callback]
) -> pl.Trainer:
    """The trainer of the ``trainer`` section; ValueError for settings that Lightning refuses."""
    csv = CSVLogger(folder, name="logs")
    tensorboard = TensorBoardLogger(
        folder, name="logs", version=f"version_{csv.version}", default_hp_metric=False
    )
    fixed: dict[str, Any] = {
        "max_epochs": -1,  # max_steps ends the training
        "logger": [csv, tensorboard],
        "accumulate_grad_batches": 1,  # set_up sets it when it knows the number of devices
        "check_val_every_n_epoch": None,
        "val_check_interval": NEVER_VALIDATE,  # CheckpointCallback decides
        "use_distributed_sampler": False,  # TokenBudgetSampler divides the batches among the ranks
        "num_sanity_val_steps": 0,
        "plugins": [AtomicCheckpointIO()],
        "enable_checkpointing": False,  # CheckpointCallback saves
        "enable_progress_bar": False,  # Progress reports
        "enable_model_summary": False,
    }
    settings = dict(settings)
    max_time = settings.pop("max_time", None)
    try:
        limit = [] if max_time is None else [TimeLimit(max_time)]
        return pl.Trainer(**settings, **fixed, callbacks=[*callbacks, *limit])
    except Exception as error:  # Lightning has many kinds for wrong settings
        raise ValueError(f"trainer: {' '.join(str(error).split())}") from error


def _warn_of_slow_training(trainer: pl.Trainer) -> None:
    on_cpu = trainer.strategy.root_device.type == "cpu"
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if on_cpu and trainer.num_devices > cores:
        log.warning(
            f"trainer.devices={trainer.num_devices} processes share {cores} CPU core(s): they wait "
            "for each other, and each takes the memory of a whole model"
        )
    if on_cpu and trainer.precision.startswith("bf16") and not can_multiply_bfloat16():
        log.warning(
            f"trainer.precision={trainer.precision} takes many times longer than 32-true here: "
            "this CPU has no instructions for bfloat16"
        )


def split_step(tokens_per_step: int, max_tokens: int, devices: int) -> tuple[int, int]:
    """Micro-batches that a step accumulates on each device, and the tokens a side in each."""
    accumulate = math.ceil(tokens_per_step / (max_tokens * devices))
    return accumulate, math.ceil(tokens_per_step / (accumulate * devices))


def _module_arguments(config: TrainConfig, pretrained: PretrainedModel | None) -> dict[str, Any]:
    return config.training | {
        "model": config.model,
        "seed": config.seed,
        "max_length": config.data.clean.max_length or 256,
        "languages": config.data.languages,
        "search": config.search,
        "started_from": pretrained and pretrained.name,
    }


def _check_module_arguments(config: TrainConfig, hparams: dict[str, Any]) -> None:
    """Raise now the error of a wrong argument; the tokenizer may take minutes.

    ValueError for a model that does not fit in this machine's memory: 16 bytes a parameter on a
    CPU, the weights, their gradients and Adam's two moments; on a GPU the weights come from there.
    """
    size = len(SPECIAL_IDS) if config.tokenizer.path else config.tokenizer.vocab_size
    tokenizer = SimpleNamespace(vocab_size=size, encode=lambda _: [])
    with torch.device("meta"):  # without memory for weights
        module = TranslationModule(cast("Tokenizer", tokenizer), **hparams)
    count = sum(p.numel() for p in module.parameters())
    on_cpu = config.trainer.get("accelerator") == "cpu" or not torch.cuda.is_available()
    needed = count * (16 if on_cpu else 4)
    if not hasattr(os, "sysconf"):  # Windows
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"the model would have {count:,} parameters: training it takes {needed / 1e9:,.0f} GB "
            f"of memory or more, and this machine has {memory / 1e9:,.0f} GB; "
            "set a smaller model.d_model, model.d_ff, model.N or tokenizer.vocab_size"
        )


def _make_module(
    config: TrainConfig,
    tokenizer: Tokenizer,
    hparams: dict[str, Any],
    pretrained: PretrainedModel | None,
) -> TranslationModule:
    pl.seed_everything(config.seed, verbose=False)
    module = TranslationModule(tokenizer, **hparams)
    if pretrained is not None and pretrained.loaded is not None:
        module.model.load_state_dict(pretrained.loaded.model.state_dict())
        shape = ", ".join(f"{name} {value}" for name, value in module.model.config.items())
        log.info(f"begins with the weights of {pretrained.name}: {shape}")
    if config.compile:
        module.compile_layers()
    return module


def _is_decoder_only(config: TrainConfig) -> bool:
    return bool(config.model.get("architecture") == DecoderOnly.architecture)


def _check_positions(config: TrainConfig) -> None:
    """ValueError when a sentence may be longer than the positions that the model learns."""
    learned, max_length = config.model.get("learned_positions"), config.data.clean.max_length
    if learned is None:
        return
    if config.tokenizer.bpe_dropout or config.data.noise:
        name = "tokenizer.bpe_dropout" if config.tokenizer.bpe_dropout else "data.noise"
        raise ValueError(
            f"model.learned_positions cannot go with {name}, which makes sentences longer"
        )
    if _is_decoder_only(config) and max_length is not None:  # a source, its eos, bos and a target
        max_length += 1 + (0 if isinstance(config.data.reader, TextReader) else max_length)
    if type(learned) is int and (max_length is None or max_length >= learned):
        bound = "null, no bound" if max_length is None else max_length
        raise ValueError(
            f"model.learned_positions={learned}: must be more than the longest sequence, which "
            f"data.clean.max_length makes {bound}"
        )


def _check_architecture(config: TrainConfig) -> None:
    """ValueError for plain text, which an encoder would not read."""
    if isinstance(config.data.reader, TextReader) and not _is_decoder_only(config):
        raise ValueError(
            "data=text is for a decoder-only model: choose model=decoder_only, "
            "decoder_only_tiny or decoder_only_big"
        )


def _announce_few_steps(config: TrainConfig, is_resumed: bool) -> None:
    """Say what a short run lacks: the full learning rate, a best checkpoint, enough to average."""
    steps, warmup_steps = config.trainer["max_steps"], config.training["warmup_steps"]
    if steps < warmup_steps:
        log.info(
            f"the learning rate only rises: {steps:,} steps are fewer than "
            f"training.warmup_steps={warmup_steps:,}"
        )
    if steps < config.validate_every:
        log.info(
            f"the only validation comes at the end and makes no best.ckpt: {steps:,} steps are "
            f"fewer than validate_every={config.validate_every:,}"
        )
    every, _ = parse_interval(config.checkpoint_every)
    if every is not None and not is_resumed:  # which may have other checkpoints
        count = math.ceil(steps / every)  # the last one comes at the end
        if count < config.average:
            log.info(
                f"the model will be the mean of {count:,}, not of average={config.average:,}: "
                f"{steps:,} steps with checkpoint_every={every:,} make no more checkpoints"
            )


def _check_resume(
    config: TrainConfig, resume: Path, saved: dict[str, Any], module: TranslationModule
) -> None:
    """ValueError when the run cannot continue; with ckpt=auto a finished one ends the program."""
    with torch.device("meta"):  # make_model adds the defaults that older checkpoints lack
        saved_model = make_model(**saved["hyper_parameters"]["model"])
    old, new = (shape_of(model.config) for model in (saved_model, module.model))
    changed = [
        f"{name}: {old.get(name)} → {new.get(name)}"
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    if changed:
        raise ValueError(
            f"{resume} is of another model ({', '.join(changed)}): give the settings of its first "
            f"command again, which {resume.parent.parent / 'config.yaml'} holds"
        )
    pairs = [saved["hyper_parameters"].get("languages", module.languages), module.languages]
    learned, asked = (" to ".join(map(str, pair)) for pair in pairs)
    if learned != asked:
        raise ValueError(
            f"{resume} learns {learned}, not {asked}: give the data.src and data.tgt of its first "
            "command again"
        )
    check_state(resume, saved, module)
    step, max_steps = saved["global_step"], config.trainer["max_steps"]
    if max_steps < step or (max_steps == step and is_finished(resume.parent.parent, step)):
        message = (
            f"nothing left to train: {resume} is at step {step:,}, and trainer.max_steps="
            f"{max_steps} is a total, which includes resumed steps; raise it to train further"
        )
        if config.ckpt != "auto":
            raise ValueError(message)
        log.info(message)
        sys.exit(0)


def is_rank_zero() -> bool:
    """Whether this is the process of rank 0; it works before the ranks connect."""
    return bool(rank_zero_only(lambda: True)())


def set_up_logging() -> None:
    """Print the messages of rank 0, and of Lightning only warnings."""
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    log.propagate = False
    log.setLevel(logging.INFO if is_rank_zero() else logging.ERROR)
    # For train.log, which comes later
    early = MemoryHandler(capacity=10_000, flushLevel=logging.CRITICAL + 1, flushOnClose=True)
    log.handlers = [_Output(sys.stdout), early]


class _Output(logging.StreamHandler):
    """Training goes on where nobody reads its output any more, as in ``| head``."""

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            discard_output()
        else:
            super().handleError(record)
