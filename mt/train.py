"""python -m mt.train: train a Transformer as conf/train.yaml says (Hydra); -m: a sweep.

A run directory holds config.yaml, tokenizer.model and .vocab, train.log, checkpoints/, logs/ and,
in the end, model/, the model folder.
"""

import logging
import math
import os
import shlex
import shutil
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import hydra
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from mt.data import augmentation, preprocessing, tokenizer
from mt.data.datamodule import TranslationData
from mt.data.preprocessing import PairFilter
from mt.data.readers import CorpusReader, make_reader
from mt.data.tokenizer import Tokenizer
from mt.evaluation import metrics
from mt.model import checkpoint
from mt.model.transformer import Transformer
from mt.training import initialization, sweep
from mt.training.checkpointing import NO_VALIDATION, AtomicCheckpointIO, CheckpointCallback
from mt.training.interruption import Interruption, explain, kill_ranks, kill_workers
from mt.training.lightning_module import Diverged, TranslationModule
from mt.training.malloc import tune_malloc_for_setup
from mt.training.progress import Progress
from mt.training.run_dir import is_finished, resume_path
from mt.utils import hydra_app
from mt.utils.processes import SWEEP, exit_with_parent, resume_hint

log = logging.getLogger("mt")

USER_ERRORS = (*hydra_app.USER_ERRORS, MisconfigurationException)


def _plain(node: DictConfig) -> dict[str, Any]:
    """A configuration's values as built-in types."""
    return cast("dict[str, Any]", OmegaConf.to_container(node, resolve=True))


def _rank() -> int:
    return int(rank_zero_only.rank)  # type: ignore[attr-defined]


# Setting up


class Run(NamedTuple):
    trainer: pl.Trainer
    module: TranslationModule
    data: TranslationData
    saving: CheckpointCallback
    interruption: Interruption
    resume: Path | None


def make_data(
    cfg: DictConfig, source: CorpusReader, tok: Tokenizer, max_tokens: int
) -> TranslationData:
    """The data of a run; ``max_tokens`` in a batch on one device."""
    return TranslationData(
        source,
        tok,
        PairFilter(**_plain(cfg.data.clean)),
        max_tokens,
        cfg.data.cache_dir,
        cfg.seed,
        cfg.data.workers,
        cfg.data.limit,
        cfg.data.validation_limit,
        cfg.tokenizer.bpe_dropout,
        cfg.data.noise,
    )


def split_step(tokens_per_step: int, max_tokens: int, devices: int) -> tuple[int, int]:
    """How a step's tokens fit the devices: micro-batches to accumulate, and tokens in each.

    Raises ValueError when a number is not one to train with.
    """
    _check_positive(tokens_per_step=tokens_per_step, max_tokens=max_tokens)
    accumulate = math.ceil(tokens_per_step / (max_tokens * devices))
    return accumulate, math.ceil(tokens_per_step / (accumulate * devices))


def _check_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")


def set_up(cfg: DictConfig, run_dir: Path) -> Run:
    """Everything that training needs, prepared and checked before the run writes anything.

    Wrong settings and missing files show first: preparing the data may take hours.
    """
    hydra_app.check_sections(
        cfg, "data.clean", "model", "tokenizer", "training", "search", "trainer"
    )
    _check_numbers(cfg)
    resume = resume_path(run_dir, None if cfg.ckpt is None else str(cfg.ckpt))
    cleaning = PairFilter(**_plain(cfg.data.clean))
    shape = _plain(cfg.model)
    compiled = _check_compile(shape.pop("compile"))
    found = None if resume is None else checkpoint.read(resume)
    parent = initialization.find_pretrained(cfg, resume, found)
    if parent is not None:
        shape |= parent.shape
        OmegaConf.update(cfg, "model", shape, force_add=True)  # config.yaml has what is trained
    _check_positions(
        shape.get("learned_positions"),
        cleaning.max_length,
        {"tokenizer.bpe_dropout": cfg.tokenizer.bpe_dropout, "data.noise": cfg.data.noise},
    )
    options = _plain(cfg.training)
    options |= {
        "model": shape,
        "seed": cfg.seed,
        "max_length": cleaning.max_length or 256,
        "languages": [str(cfg.data.src), str(cfg.data.tgt)],
        "search": _plain(cfg.search),
        "started_from": parent and parent.name,
    }
    with torch.device("meta"):  # checks the numbers, takes no memory
        stand_in = SimpleNamespace(vocab_size=4, encode=lambda _: [])
        TranslationModule(cast("Tokenizer", stand_in), **options)
    source = make_reader(_plain(cfg.data))
    for split in ("train", "validation"):
        source.identity(split)

    saving = CheckpointCallback(
        run_dir / "checkpoints", cfg.validate_every, cfg.checkpoint_every, cfg.average
    )
    interruption = Interruption()
    trainer = _trainer(cfg, run_dir, [saving, Progress(), interruption])
    accumulate, max_tokens = split_step(
        cfg.data.tokens_per_step, cfg.data.max_tokens, trainer.world_size
    )
    trainer.accumulate_grad_batches = accumulate

    tok = initialization.get_tokenizer(cfg, source, resume, parent)
    tune_malloc_for_setup()
    pl.seed_everything(cfg.seed, verbose=False)
    module = TranslationModule(tok, **options)
    if parent is not None and parent.loaded is not None:
        module.model.load_state_dict(parent.loaded.model.state_dict())
        numbers = ", ".join(f"{name} {value}" for name, value in module.model.config.items())
        log.info(f"begins with the weights of {parent.name}: {numbers}")
    del parent  # a second copy of the weights
    if compiled:
        module.compile_layers()
    data = make_data(cfg, source, tok, max_tokens)
    if resume is not None and found is not None:
        _check_resume(resume, found, module, cfg)
    del found  # weights and Adam's moments, which the trainer reads for itself
    data.trainer = trainer
    # On every rank, before they know of each other: who waits for them loses patience at last.
    data.prepare_data()
    data.setup("fit")
    return Run(trainer, module, data, saving, interruption, resume)


def _check_numbers(cfg: DictConfig) -> None:
    _check_positive(
        **{
            name: OmegaConf.select(cfg, name)
            for name in (
                "validate_every",
                "average",
                "tokenizer.vocab_size",
                "trainer.max_steps",
                "trainer.log_every_n_steps",
            )
        }
    )
    tokenizer.check_dropout(cfg.tokenizer.bpe_dropout)
    augmentation.check_noise(cfg.data.noise)
    if type(cfg.seed) is not int or not 0 <= cfg.seed < 2**32:
        raise ValueError(f"seed={cfg.seed!r}: must be a whole number from 0 to {2**32 - 1}")
    if type(cfg.data.workers) is not int or cfg.data.workers < 0:
        raise ValueError(f"data.workers={cfg.data.workers!r}: must be a whole number of at least 0")
    for name in ("limit", "validation_limit"):
        preprocessing.check_limit(cfg.data[name], f"data.{name}")


def _check_compile(value: Any) -> bool:
    """ValueError when it is no truth value, or nothing here can compile."""
    if type(value) is not bool:
        raise ValueError(f"model.compile={value!r}: must be true or false")
    compilers = [os.environ.get("CXX", "c++"), "g++", "clang++", "cl"]
    if value and not any(map(shutil.which, compilers)):
        raise ValueError("model.compile=true needs a C++ compiler, and none is here")
    return value


def _check_positions(learned: Any, max_length: int | None, changes: dict[str, float]) -> None:
    """ValueError when the data may hold sentences longer than the positions that are learned."""
    for name, chance in changes.items():
        if learned is not None and chance:
            raise ValueError(
                f"model.learned_positions cannot go with {name}, whose pieces "
                "are more and may go beyond them"
            )
    if type(learned) is int and (max_length is None or max_length >= learned):
        raise ValueError(
            f"model.learned_positions={learned}: must be more than data.clean.max_length, "
            f"which is {'null, no bound' if max_length is None else max_length}"
        )


def _trainer(cfg: DictConfig, run_dir: Path, callbacks: list[pl.Callback]) -> pl.Trainer:
    csv = CSVLogger(run_dir, name="logs")
    tensorboard = TensorBoardLogger(run_dir, name="logs", version=f"version_{csv.version}")
    ours: dict[str, Any] = {
        "max_epochs": -1,  # steps count
        "callbacks": callbacks,
        "logger": [csv, tensorboard],
        "accumulate_grad_batches": 1,  # set from tokens_per_step once the devices are known
        "check_val_every_n_epoch": None,
        "val_check_interval": NO_VALIDATION,  # Saving knows when
        "use_distributed_sampler": False,  # the sampler deals out batches to the ranks itself
        "num_sanity_val_steps": 0,
        "plugins": [AtomicCheckpointIO()],
        "enable_checkpointing": False,  # Saving does it
        "enable_progress_bar": False,  # Progress does it
        "enable_model_summary": False,
    }
    theirs = _plain(cfg.trainer)
    # These would break exact resume or leave the model without its scores; data.limit does not.
    refused = {"limit_train_batches", "limit_val_batches", "overfit_batches", "fast_dev_run"}
    if taken := sorted((ours.keys() | refused) & theirs.keys()):
        raise ValueError(f"trainer.{taken[0]} is mt.train's own business and cannot be given")
    return pl.Trainer(**theirs, **ours)


def _check_resume(
    path: Path, found: dict[str, Any], module: TranslationModule, cfg: DictConfig
) -> None:
    """ValueError when the run cannot go on from there; with ckpt=auto a finished one just ends."""
    with torch.device("meta"):  # older ones name fewer numbers
        shape = Transformer(**found["hyper_parameters"]["model"]).config
    if shape != module.model.config:
        raise ValueError(
            f"{path} is of another model, {shape}, than the configuration's, {module.model.config}"
        )
    step, max_steps = found["global_step"], cfg.trainer.max_steps
    if max_steps < step or (max_steps == step and is_finished(path.parent.parent, step)):
        message = (
            f"nothing left to train: {path} is at step {step:,}, and "
            f"trainer.max_steps={max_steps} is a total, resumed steps included; raise it to go on"
        )
        if cfg.ckpt != "auto":
            raise ValueError(message)
        log.info(message)
        sys.exit(0)


# Running


def train(cfg: DictConfig, run: Run, run_dir: Path) -> int:
    """Fit, and write the model folder.

    The exit status: 0; 128 plus a signal's number; 2 where the user has something to change.
    """
    trainer, module, data, saving, interruption, resume = run
    if trainer.is_global_zero:
        _open(cfg, run, run_dir)
    if resume is not None:
        log.info(f"resuming from {resume}")
    try:
        with interruption.install_handlers(trainer, module):
            trainer.fit(module, data, ckpt_path=resume)
            # A request after the last step that reads them, or on another rank.
            module.stopped = module.stopped or not trainer.strategy.reduce_boolean_decision(
                not module.stop_requested
            )
            if not module.stopped:
                saving.save_step(trainer)
            saving.save_last(trainer)
            write_model(run, run_dir)
    except Diverged as error:  # on all ranks at once
        if error.pairs or trainer.is_global_zero:
            told = explain(error, saving.folder.parent, trainer.global_rank)
            print(f"mt.train: error: {told}", file=sys.stderr)
        return 2 if trainer.is_global_zero else 0
    except BaseException:
        kill_ranks(trainer)
        raise
    finally:
        kill_workers()
    if module.stopped:
        log.warning(f"interrupted at step {trainer.global_step:,}; {resume_hint()}")
    # Lightning kills rank 0, maybe while it still writes, when another rank ends with an error.
    trainer.strategy.barrier()
    if dist.is_initialized():
        dist.destroy_process_group()
    return 128 + interruption.signum if module.stopped and trainer.is_global_zero else 0


def _open(cfg: DictConfig, run: Run, run_dir: Path) -> None:
    """The run directory with what is known beforehand."""
    # Two runs started in the same second must not share a folder.
    (run_dir / "checkpoints").mkdir(parents=True, exist_ok=cfg.ckpt is not None)
    partial = run_dir / ".config.yaml"
    OmegaConf.save(cfg, partial, resolve=True)
    partial.replace(run_dir / "config.yaml")
    if run.resume is None:
        tokenizer.save(run.module.tokenizer, run_dir / "tokenizer.model")
    file = logging.FileHandler(run_dir / "train.log", encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(file)
    log.info(f"run directory: {run_dir}")


def write_model(run: Run, run_dir: Path) -> None:
    """The model folder: the mean of the last checkpoints (6.1), validated.

    After an interruption it holds the weights as they are, at once.
    """
    trainer, module, data, saving, _, _ = run
    # From the files, on every rank: a strategy may have the weights in pieces.
    paths = [saving.folder / "last.ckpt"] if module.stopped else saving.to_average()
    model = Transformer(**cast("dict[str, Any]", module.model.config))
    model.load_state_dict(checkpoint.average(paths))
    module.model = model

    def save(training: dict[str, Any]) -> None:
        if trainer.is_global_zero:
            folder, tok = run_dir / "model", module.tokenizer
            checkpoint.save(folder, model, tok, module.max_length, module.languages, training)

    about: dict[str, Any] = {
        "command": " ".join(["python -m mt.train", *HydraConfig.get().overrides.task]),
        "training pairs": len(data.train),
        "steps": trainer.global_step,
    }
    if module.started_from is not None:
        about["started from"] = module.started_from
    if not module.stopped:
        about["mean of checkpoints"] = ", ".join(path.stem for path in paths)
        log.info(f"the model is the mean of {about['mean of checkpoints']}")
    save(about)
    if not module.stopped:  # the model is safe: its scores are added to its card
        single = float(trainer.callback_metrics.get("val_ppl", math.inf))
        trainer.validate(module, datamodule=data, verbose=False)
        values = trainer.callback_metrics
        perplexity = float(values["val_ppl"])
        if perplexity > single and len(paths) > 1:
            log.warning(
                f"the mean of {len(paths)} checkpoints is worse than the weights were at the last "
                f"validation (perplexity {perplexity:.2f}, {single:.2f}): they were still "
                f"learning. Take fewer: python scripts/average_checkpoints.py "
                f"{shlex.join(map(str, paths[-(len(paths) // 2) :]))} --output FOLDER, and "
                "average=N for the next training"
            )
        about["validation perplexity"] = round(perplexity, 3)
        about["validation sacreBLEU"] = round(float(values["val_bleu"]), 2)
        about["signature"] = metrics.bleu(["x"], ["x"]).signature
        save(about)
    log.info(f"model folder: {run_dir / 'model'}")
    log.info(f'to use it: python -m mt.translate --model {run_dir / "model"} "..."')


def set_up_logging() -> None:
    """Messages of rank 0 to the terminal; only warnings from Lightning."""
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    log.propagate = False
    log.setLevel(logging.INFO if _rank() == 0 else logging.ERROR)
    log.handlers = [logging.StreamHandler(sys.stdout)]


@hydra.main(version_base="1.3", config_path=hydra_app.CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    run_dir = hydra_app.run_folder()
    if sweep.is_sweep():
        with hydra_app.setting_up("mt.train", run_dir, *USER_ERRORS):
            return sweep.run_job(cfg, run_dir)
    set_up_logging()
    if _rank() != 0:
        hydra_app.remove_empty(
            run_dir
        )  # started apart, this rank has made one that rank 0 may not use
        exit_with_parent()
    elif SWEEP in os.environ:
        exit_with_parent(int(os.environ[SWEEP]))  # else it might come to train beside its successor
    with hydra_app.setting_up("mt.train", run_dir, *USER_ERRORS):
        run = set_up(cfg, run_dir)
    with hydra_app.user_errors("mt.train", OSError):  # a full disk: what was saved before is whole
        status = train(cfg, run, run_dir)
    sys.exit(status)


if __name__ == "__main__":
    hydra_app.start("mt.train", main)
