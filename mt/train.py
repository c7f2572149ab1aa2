"""python -m mt.train: train a Transformer as conf/train.yaml says (Hydra).

From configuration to run directory: tokenizer, data, module, trainer, and at the end the model
folder. A run directory holds config.yaml, tokenizer.model, train.log, checkpoints/, logs/, model/.
"""

import logging
import math
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any, cast

import hydra
import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from mt import checkpoint, corpus, metrics, tokenizer
from mt.corpus import Cleaning, Source, make_source
from mt.datamodule import TranslationData
from mt.module import TranslationModule
from mt.progress import Progress
from mt.tokenizer import Tokenizer

log = logging.getLogger("mt")

USER_ERRORS = (ValueError, OSError, TypeError, OmegaConfBaseException,
               pl.utilities.exceptions.MisconfigurationException)  # fmt: skip


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
        raise FileNotFoundError(f"ckpt=last: no checkpoint under {run_dir}/")
    return max(found, key=lambda p: p.stat().st_mtime)


def _run_dir(ckpt: str | None, new: str) -> str:
    """The folder of a run: a ``new`` one, or that of the checkpoint it resumes."""
    if ckpt is None:
        return new
    if ckpt != "last":
        return str(Path(ckpt).parent.parent)
    found = list(Path("outputs").glob("**/checkpoints/*.ckpt"))
    newest = max(found, key=lambda p: p.stat().st_mtime, default=None)
    return str(newest.parent.parent) if newest else "outputs"


OmegaConf.register_new_resolver("run_dir", _run_dir)


def get_tokenizer(path: str | None, vocab_size: int, name: str, source: Source) -> Tokenizer:
    """Load the tokenizer, or train it on both sides of the training split if it is not there.

    Rank 0 trains and stores it; the others wait for the file, which appears whole.
    """
    file = Path(path) if path else Path("tokenizer") / f"{name}-{vocab_size}.model"
    if not file.exists() and _rank() == 0:
        log.info(f"training a tokenizer of {vocab_size:,} pieces, {file}")
        pairs = corpus.first(source.pairs("train"), None)
        trained = tokenizer.train((side for pair in pairs for side in pair), vocab_size)
        tokenizer.save(trained, file)
    while not file.exists():
        time.sleep(0.2)
    return Tokenizer.load(file)


def split_step(tokens_per_step: int, max_tokens: int, devices: int) -> tuple[int, int]:
    """How a step's tokens fit the devices: micro-batches to accumulate, and tokens in each.

    Raises ValueError when a number is not one to train with.
    """
    for name, value in (("tokens_per_step", tokens_per_step), ("max_tokens", max_tokens)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")
    accumulate = math.ceil(tokens_per_step / (max_tokens * devices))
    return accumulate, math.ceil(tokens_per_step / (accumulate * devices))


def _rank() -> int:
    return int(rank_zero_only.rank)  # type: ignore[attr-defined]


def _plain(node: DictConfig) -> dict[str, Any]:
    """A configuration's values as built-in types."""
    return cast("dict[str, Any]", OmegaConf.to_container(node, resolve=True))


class Interruption(pl.Callback):
    """SIGINT and SIGTERM end training after the current step; a second one ends it at once."""

    def __init__(self) -> None:
        self.signum: int = signal.SIGTERM  # unless this rank hears of another one

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        def handle(signum: int, frame: Any) -> None:
            self.signum = signum
            pl_module.stop_requested = True  # type: ignore[assignment]
            signal.signal(signum, signal.default_int_handler)
            if trainer.is_global_zero:
                log.warning("stopping after this step, once the checkpoint is written")

        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, handle)


def run(cfg: DictConfig, run_dir: Path) -> int:
    """Train; the exit status: 0, or 128 plus the signal that interrupted it."""
    pl.seed_everything(cfg.seed, verbose=False)
    source = make_source(**_plain(cfg.data.source))
    if not cfg.tokenizer.path:
        source.identity("validation")  # a missing file shows before the tokenizer's training
    tok = get_tokenizer(
        cfg.tokenizer.path, cfg.tokenizer.vocab_size, _data_name(cfg, source), source
    )
    callbacks = _checkpoints(cfg, run_dir / "checkpoints")
    interruption = Interruption()
    trainer = pl.Trainer(
        **_plain(cfg.trainer),
        max_epochs=-1,
        callbacks=[*callbacks, Progress(), interruption],
        logger=_loggers(run_dir),
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
    data = TranslationData(
        source,
        tok,
        Cleaning(**cfg.data.clean),
        max_tokens,
        cfg.data.cache_dir,
        cfg.seed,
        cfg.data.workers,
        cfg.data.limit,
        cfg.data.validation_limit,
    )
    options = _plain(cfg.training)
    del options["tokens_per_step"]
    module = TranslationModule(
        tok,
        model=_plain(cfg.model),
        **options,
        seed=cfg.seed,
        max_length=cfg.data.clean.max_length or 256,
        search=_plain(cfg.search),
    )
    resume = str(resume_path(run_dir, cfg.ckpt)) if cfg.ckpt else None
    if trainer.is_global_zero:
        (run_dir / "checkpoints").mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, run_dir / "config.yaml", resolve=True)
        tokenizer.save(tok, run_dir / "tokenizer.model")
        log.info(f"run directory: {run_dir}")
    trainer.fit(module, data, ckpt_path=resume)
    trainer.save_checkpoint(run_dir / "checkpoints" / "last.ckpt")
    _write_model(cfg, trainer, module, data, run_dir)
    if not module.stopped:
        return 0
    if trainer.is_global_zero:
        log.warning(f"interrupted at step {trainer.global_step:,}; resume with ckpt=last")
    # Lightning kills rank 0, maybe while it still writes, when another rank ends with an error.
    trainer.strategy.barrier()
    return 128 + interruption.signum if trainer.is_global_zero else 0


def _choices() -> dict[str, str]:
    """Which member of each config group was chosen."""
    return HydraConfig.get().runtime.choices


def _data_name(cfg: DictConfig, source: Source) -> str:
    """What the tokenizer of this data is called; files are told apart by their names."""
    choice = _choices()["data"]
    if isinstance(source, corpus.Files):
        place = source.train if isinstance(source.train, str) else (source.train or ["none"])[0]
        return f"{choice}-{Path(place).absolute().parent.name}-{Path(place).name}"
    return f"{choice}"


def _checkpoints(cfg: DictConfig, folder: Path) -> list[ModelCheckpoint]:
    """best.ckpt and last.ckpt by validation, and the last ones every so many steps."""
    names: dict[str, Any] = {"auto_insert_metric_name": False, "enable_version_counter": False}
    best = ModelCheckpoint(folder, "best", monitor="val_bleu", mode="max", save_last=True, **names)
    periodic = ModelCheckpoint(
        folder,
        "step-{step:08d}",
        monitor="step",
        mode="max",
        save_top_k=max(1, cfg.average),
        every_n_train_steps=cfg.checkpoint_every,
        **names,
    )
    return [best, periodic]


def _loggers(run_dir: Path) -> list[Any]:
    csv = CSVLogger(run_dir, name="logs")
    return [csv, TensorBoardLogger(run_dir, name="logs", version=f"version_{csv.version}")]


def _write_model(
    cfg: DictConfig,
    trainer: pl.Trainer,
    module: TranslationModule,
    data: TranslationData,
    run_dir: Path,
) -> None:
    """The model folder: the mean of the last checkpoints (6.1), validated.

    After an interruption it holds the weights as they are, at once.
    """
    step = trainer.global_step
    paths = sorted((run_dir / "checkpoints").glob("step-*.ckpt"))[-cfg.average :]
    training: dict[str, Any] = {"steps": step, "seed": cfg.seed}
    if cfg.average > 1 and paths and not module.stopped:
        module.model.load_state_dict(checkpoint.average(paths))
        training["averaged checkpoints"] = ", ".join(p.stem for p in paths)
    if not module.stopped:
        log.info("validating the model that is written")
        trainer.validate(module, datamodule=data, verbose=False)
        values = trainer.callback_metrics
        training["validation perplexity"] = round(float(values["val_ppl"]), 3)
        training["validation sacreBLEU"] = round(float(values["val_bleu"]), 2)
        training["signature"] = metrics.bleu(["x"], ["x"]).signature
    if trainer.is_global_zero:
        training |= {
            "data": _choices()["data"],
            "training pairs": len(data.train),
            "command": f"python -m mt.train {' '.join(HydraConfig.get().overrides.task)}".strip(),
        }
        src, tgt = str(cfg.data.source.src), str(cfg.data.source.tgt)
        folder = run_dir / "model"
        checkpoint.save(
            folder, module.model, module.tokenizer, module.max_length, src, tgt, training
        )
        log.info(f"model folder: {folder}")


def _set_up_logging(run_dir: Path) -> None:
    """Messages of rank 0 to the terminal and, with the time, to train.log."""
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    log.propagate = False
    if _rank() != 0:
        return
    log.setLevel(logging.INFO)
    run_dir.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(run_dir / "train.log", encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.handlers = [logging.StreamHandler(sys.stdout), file]


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
def main(cfg: DictConfig) -> None:
    run_dir = Path(HydraConfig.get().run.dir)
    _set_up_logging(run_dir)
    try:
        status = run(cfg, run_dir)
    except USER_ERRORS as error:
        if os.environ.get("MT_TRACEBACK"):
            raise
        print(f"mt.train: error: {error}", file=sys.stderr)
        status = 2
    sys.exit(status)


if __name__ == "__main__":
    main()
