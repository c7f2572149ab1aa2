"""python -m mt.train: train a Transformer as conf/train.yaml says (Hydra).

A run directory holds config.yaml, tokenizer.model, train.log, checkpoints/, logs/ and, in the
end, model/, the model folder.
"""

import contextlib
import logging
import math
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple, cast

import hydra
import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from mt import checkpoint, corpus, metrics, tokenizer
from mt.corpus import Cleaning, Files, Source, make_source
from mt.datamodule import TranslationData
from mt.model import Transformer
from mt.module import TranslationModule
from mt.progress import Progress
from mt.tokenizer import Tokenizer

log = logging.getLogger("mt")

CONF = str(Path(__file__).resolve().parents[1] / "conf")

# What a wrong configuration or wrong data raise while a run is set up.
USER_ERRORS = (ValueError, OSError, TypeError, OmegaConfBaseException, MisconfigurationException)


# Where things are


def _run_dir(ckpt: str | None, new: str) -> str:
    """The folder of a run: a ``new`` one, or that of the checkpoint it resumes."""
    if ckpt is None:
        return new
    if ckpt != "last":
        return str(Path(ckpt).parent.parent)
    newest = max(Path("outputs").glob("**/checkpoints/*.ckpt"), key=_age, default=None)
    return str(newest.parent.parent) if newest else new


OmegaConf.register_new_resolver("run_dir", _run_dir, replace=True)


def _age(path: Path) -> float:
    return path.stat().st_mtime


def resume_path(run_dir: Path, ckpt: str) -> Path:
    """The checkpoint that ``ckpt`` names: a path, or ``last``, the newest one in ``run_dir``.

    Raises FileNotFoundError when it is not there.
    """
    if ckpt != "last":
        if not Path(ckpt).is_file():
            raise FileNotFoundError(f"ckpt={ckpt}: no such file")
        return Path(ckpt)
    found = [p for p in run_dir.glob("checkpoints/*.ckpt") if p.stem != "best"]
    if not found:
        raise FileNotFoundError(f"ckpt=last: no checkpoint in {run_dir} or elsewhere in outputs/")
    return max(found, key=_age)


def tokenizer_path(cfg: DictConfig, source: Source) -> Path:
    """The tokenizer's file: the one named, or one for this data and vocabulary size."""
    if cfg.tokenizer.path:
        return Path(cfg.tokenizer.path)
    name = _choices()["data"]
    if isinstance(source, Files):  # told apart by the names of the files
        place = Path(source.train if isinstance(source.train, str) else (source.train or ["?"])[0])
        name = f"{name}-{place.absolute().parent.name}-{place.name}"
    return Path("tokenizer") / f"{name}-{cfg.tokenizer.vocab_size}.model"


def _choices() -> dict[str, str]:
    """Which member of each config group was chosen."""
    return cast("dict[str, str]", HydraConfig.get().runtime.choices)


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
    interruption: "Interruption"
    resume: Path | None


def get_tokenizer(path: Path, vocab_size: int, source: Source) -> Tokenizer:
    """Load the tokenizer, or train it on both sides of the training split if it is not there.

    Rank 0 trains and stores it; the others wait for the file, which appears whole.
    """
    if not path.exists() and _rank() == 0:
        log.info(f"training a tokenizer of {vocab_size:,} pieces, {path}")
        pairs = corpus.first(source.pairs("train"), None)
        trained = tokenizer.train((side for pair in pairs for side in pair), vocab_size)
        tokenizer.save(trained, path)
    while not path.exists():
        time.sleep(0.2)
    return Tokenizer.load(path)


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
    """Everything that training needs, prepared and checked before anything is written."""
    _check_positive(
        validate_every=cfg.validate_every,
        checkpoint_every=cfg.checkpoint_every,
        average=cfg.average,
    )
    with torch.device("meta"):  # wrong numbers show before hours of preparing data
        Transformer(vocab_size=4, **_plain(cfg.model))
    pl.seed_everything(cfg.seed, verbose=False)
    resume = resume_path(run_dir, cfg.ckpt) if cfg.ckpt else None
    source = make_source(**_plain(cfg.data.source))
    source.identity("validation")  # a missing file shows before the tokenizer's training
    tok = get_tokenizer(tokenizer_path(cfg, source), cfg.tokenizer.vocab_size, source)

    interruption = Interruption()
    csv = CSVLogger(run_dir, name="logs")
    tensorboard = TensorBoardLogger(run_dir, name="logs", version=f"version_{csv.version}")
    trainer = pl.Trainer(
        **_plain(cfg.trainer),
        max_epochs=-1,
        callbacks=[*_checkpoints(cfg, run_dir / "checkpoints"), Progress(), interruption],
        logger=[csv, tensorboard],
        check_val_every_n_epoch=None,
        use_distributed_sampler=False,  # the sampler deals out batches to the ranks itself
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    accumulate, max_tokens = split_step(
        cfg.training.tokens_per_step, cfg.data.max_tokens, trainer.world_size
    )
    trainer.accumulate_grad_batches = accumulate
    trainer.val_check_interval = cfg.validate_every * accumulate

    cleaning = Cleaning(**_plain(cfg.data.clean))
    options = _plain(cfg.training)
    del options["tokens_per_step"]
    module = TranslationModule(
        tok,
        model=_plain(cfg.model),
        **options,
        seed=cfg.seed,
        max_length=int(cleaning.max_length or 256),
        languages=[str(cfg.data.source.src), str(cfg.data.source.tgt)],
        search=_plain(cfg.search),
    )
    data = TranslationData(
        source,
        tok,
        cleaning,
        max_tokens,
        cfg.data.cache_dir,
        cfg.seed,
        cfg.data.workers,
        cfg.data.limit,
        cfg.data.validation_limit,
    )
    if resume is not None:
        _check_resume(resume, module, cfg.trainer.max_steps)
    if trainer.local_rank == 0:
        data.prepare_data()
    return Run(trainer, module, data, interruption, resume)


def _checkpoints(cfg: DictConfig, folder: Path) -> list[ModelCheckpoint]:
    """best.ckpt and last.ckpt by validation, and the last ones every so many steps."""
    names: dict[str, Any] = {"auto_insert_metric_name": False, "enable_version_counter": False}
    best = ModelCheckpoint(folder, "best", monitor="val_bleu", mode="max", save_last=True, **names)
    periodic = ModelCheckpoint(
        folder,
        "step-{step:08d}",
        monitor="step",
        mode="max",
        save_top_k=cfg.average,
        every_n_train_steps=cfg.checkpoint_every,
        **names,
    )
    return [best, periodic]


def _check_resume(path: Path, module: TranslationModule, max_steps: int) -> None:
    found = checkpoint.read(path)
    shape = found["hyper_parameters"]["model"]
    if shape != module.model.config:
        raise ValueError(
            f"{path} is of another model, {shape}, than the configuration's, {module.model.config}"
        )
    if 0 <= max_steps <= found["global_step"]:
        raise ValueError(
            f"nothing left to train: {path} is at step {found['global_step']:,}, and "
            f"trainer.max_steps={max_steps} is a total, resumed steps included; raise it to go on"
        )


class Interruption(pl.Callback):
    """SIGINT and SIGTERM end training after the current step; a second one ends it at once."""

    def __init__(self) -> None:
        self.signum: int = signal.SIGTERM  # unless this rank hears of another one

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        def handle(signum: int, frame: Any) -> None:
            self.signum = signum
            cast("TranslationModule", pl_module).stop_requested = True
            signal.signal(signum, signal.default_int_handler)
            if trainer.is_global_zero:
                log.warning("stopping after this step, once the checkpoint is written")

        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, handle)


# Running


def train(cfg: DictConfig, run: Run, run_dir: Path) -> int:
    """Fit, and write the model folder; the exit status: 0, or 128 plus a signal's number."""
    trainer, module, data, interruption, resume = run
    if trainer.is_global_zero:
        (run_dir / "checkpoints").mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, run_dir / "config.yaml", resolve=True)
        tokenizer.save(module.tokenizer, run_dir / "tokenizer.model")
        file = logging.FileHandler(run_dir / "train.log", encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.addHandler(file)
        log.info(f"run directory: {run_dir}")
    if resume is not None:
        log.info(f"resuming from {resume}")
    trainer.fit(module, data, ckpt_path=resume)
    trainer.save_checkpoint(run_dir / "checkpoints" / "last.ckpt")
    write_model(cfg, run, run_dir)
    if not module.stopped:
        return 0
    log.warning(f"interrupted at step {trainer.global_step:,}; resume with ckpt=last")
    # Lightning kills rank 0, maybe while it still writes, when another rank ends with an error.
    trainer.strategy.barrier()
    return 128 + interruption.signum if trainer.is_global_zero else 0


def write_model(cfg: DictConfig, run: Run, run_dir: Path) -> None:
    """The model folder: the mean of the last checkpoints (6.1), validated.

    After an interruption it holds the weights as they are, at once.
    """
    trainer, module, data, _, _ = run
    about: dict[str, Any] = {
        "command": " ".join(["python -m mt.train", *HydraConfig.get().overrides.task]),
        "training pairs": len(data.train),
        "steps": trainer.global_step,
    }
    if not module.stopped:
        paths = sorted((run_dir / "checkpoints").glob("step-*.ckpt"))[-cfg.average :]
        if len(paths) > 1:
            module.model.load_state_dict(checkpoint.average(paths))
            about["averaged checkpoints"] = ", ".join(p.stem for p in paths)
            log.info(f"averaging {about['averaged checkpoints']}")
        trainer.validate(module, datamodule=data, verbose=False)
        values = trainer.callback_metrics
        about["validation perplexity"] = round(float(values["val_ppl"]), 3)
        about["validation sacreBLEU"] = round(float(values["val_bleu"]), 2)
        about["signature"] = metrics.bleu(["x"], ["x"]).signature
    if trainer.is_global_zero:
        folder = run_dir / "model"
        checkpoint.save(
            folder, module.model, module.tokenizer, module.max_length, module.languages, about
        )
        log.info(f"model folder: {folder}")


def set_up_logging() -> None:
    """Messages of rank 0 to the terminal; only warnings from Lightning."""
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    log.propagate = False
    log.setLevel(logging.INFO if _rank() == 0 else logging.ERROR)
    log.handlers = [logging.StreamHandler(sys.stdout)]


def _remove_empty(run_dir: Path) -> None:
    """Take away the folders that Hydra has made for a run that did not begin."""
    with contextlib.suppress(OSError):  # a folder that holds something stays
        run_dir.rmdir()
        for parent in run_dir.parents:
            if Path("outputs") not in (parent, *parent.parents):
                break
            parent.rmdir()


_composed = False  # whether Hydra got as far as calling main


@hydra.main(version_base="1.3", config_path=CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    global _composed
    _composed = True
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    if run_dir.is_relative_to(Path.cwd()):
        run_dir = run_dir.relative_to(Path.cwd())
    set_up_logging()
    try:
        run = set_up(cfg, run_dir)
    except USER_ERRORS as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        _remove_empty(run_dir)
        print(f"mt.train: error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(train(cfg, run, run_dir))


if __name__ == "__main__":
    try:
        main()
    except SystemExit as end:  # Hydra's own status for a wrong command line is 1
        sys.exit(end.code if _composed else 2)
