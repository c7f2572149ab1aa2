"""Running a training that is set up: fit, then write the model folder."""

import logging
import math
import shlex
import sys
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import OmegaConf

from mt.data import tokenizer
from mt.data.text_reader import TextReader
from mt.evaluation import metrics
from mt.model import checkpoint
from mt.model.decoder_only import make_model
from mt.training.interruption import explain_divergence, kill_ranks, kill_workers
from mt.training.lightning_module import Diverged
from mt.training.resume import keep_settings
from mt.training.run_dir import resume_hint, set_aside
from mt.training.setup import Run
from mt.utils.atomic import atomic_write

log = logging.getLogger("mt")


def fit(run: Run) -> int:
    """Train, and write the model folder.

    Returns the exit status: 0; 128 plus a signal's number; 2 when the user must change something.
    Raises OSError when a file cannot be written, MemoryError when a GPU's memory is full.
    """
    trainer, module, checkpoints = run.trainer, run.module, run.checkpoints
    if trainer.is_global_zero:
        _open_folder(run)
    if run.resume is not None:
        log.info(f"resuming from {run.resume}")
    if trainer.num_nodes > 1:
        log.info(f"waiting for all of {trainer.num_nodes} machines, which need the same settings")
    try:
        with run.interruption.install_handlers(trainer, module):
            trainer.fit(module, run.data, ckpt_path=run.resume)
            # The request may have come after the last step that reads it, or on another rank.
            module.stopped = module.stopped or not trainer.strategy.reduce_boolean_decision(
                not module.stop_requested
            )
            if report := trainer.profiler.summary():  # type: ignore[attr-defined]
                log.info(report)
            if not module.stopped:
                checkpoints.save_step(trainer, at_end=True)
            checkpoints.save_last(trainer)
            write_model(run)
    except Diverged as error:  # raised on all ranks at once
        if error.pairs or trainer.is_global_zero:
            message = explain_divergence(error, checkpoints.folder.parent, trainer.global_rank)
            print(f"mt.train: error: {message}", file=sys.stderr)
        return 2 if trainer.is_global_zero else 0
    except BaseException as error:
        kill_ranks(trainer)
        if isinstance(error, torch.OutOfMemoryError):
            advice = f"set a smaller data.max_tokens; {resume_hint(run.folder)}"
            raise MemoryError(f"the GPU's memory is full: {advice}") from error
        raise
    finally:
        kill_workers()
    if module.stopped:
        log.warning(f"interrupted at step {trainer.global_step:,}; {resume_hint(run.folder)}")
    # When another rank fails, Lightning kills rank 0, which may still be writing.
    trainer.strategy.barrier()
    if dist.is_initialized():
        dist.destroy_process_group()
    return 128 + run.interruption.signum if module.stopped and trainer.is_global_zero else 0


def _open_folder(run: Run) -> None:
    """Make the run directory with its settings, its tokenizer and its log."""
    (run.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    # That of a resumed or pretrained model need not be the one that was asked for.
    run.config.resolved["tokenizer"]["vocab_size"] = run.module.tokenizer.vocab_size
    changes = keep_settings(run.folder, run.config.resolved, run.resumed_step)
    atomic_write(run.folder / "config.yaml", OmegaConf.to_yaml(run.config.resolved))
    if run.resume is None:
        tokenizer.save(run.module.tokenizer, run.folder / "tokenizer.model")
    handler = logging.FileHandler(run.folder / "train.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    for early in log.handlers[:]:
        if isinstance(early, MemoryHandler):  # what was said before there was a folder
            early.setTarget(handler)
            early.close()
            log.removeHandler(early)
    log.info(f"run directory: {run.folder}")
    if run.resume is not None:
        if later := set_aside(run.folder, run.resume, run.resumed_step):
            log.warning(later)
        if changes:
            log.warning(changes)


def write_model(run: Run) -> None:
    """Write the model folder: the mean of the last checkpoints (6.1), then its validation scores.

    An interrupted run writes its current weights, without scores, so that it can end at once.
    """
    trainer, module = run.trainer, run.module
    # All ranks read the files, because some strategies keep only a part of the weights in each.
    last = run.checkpoints.folder / "last.ckpt"
    paths = [last] if module.stopped else run.checkpoints.to_average()
    model = make_model(**module.model.config)
    model.load_state_dict(checkpoint.average(paths))
    module.model = model
    training: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "mt.train", *run.config.overrides]),
        "training pairs": len(run.data.train),
        "steps": trainer.global_step,
    }
    if module.started_from is not None:
        training["started from"] = module.started_from
    if not module.stopped:
        training["mean of checkpoints"] = ", ".join(path.stem for path in paths)
        log.info(f"the model is the mean of {training['mean of checkpoints']}")
    _save_model(run, training)
    if not module.stopped:  # the model is safe now, and its card can wait for the scores
        training |= _validate_model(run, paths)
        _save_model(run, training)
    log.info(f"model folder: {run.folder / 'model'}")
    use = '--continue "..."' if isinstance(run.config.data.reader, TextReader) else '"..."'
    log.info(f"to use it: python -m mt.translate --model {run.folder / 'model'} {use}")


def _save_model(run: Run, training: dict[str, Any]) -> None:
    if run.trainer.is_global_zero:
        module, folder = run.module, run.folder / "model"
        checkpoint.save(
            folder, module.model, module.tokenizer, module.max_length, module.languages, training
        )


def _validate_model(run: Run, paths: list[Path]) -> dict[str, Any]:
    """The scores of the averaged model, as its card names them.

    It warns when the mean is worse than the last weights.
    """
    last_perplexity = round(float(run.trainer.callback_metrics.get("val_ppl", math.inf)), 3)
    run.trainer.validate(run.module, datamodule=run.data, verbose=False)
    scores = run.trainer.callback_metrics
    perplexity = round(float(scores["val_ppl"]), 3)
    if not math.isfinite(float(scores["val_loss"])):
        log.warning(
            "the validation loss of the model is not a finite number: its numbers are too large "
            f"for trainer.precision={run.trainer.precision}. Train with bf16-mixed or 32-true"
        )
    if perplexity > last_perplexity and len(paths) > 1:
        log.warning(
            f"the mean of {len(paths)} checkpoints is worse than the weights were at the last "
            f"validation (perplexity {perplexity:.3f}, not {last_perplexity:.3f}): they were still "
            f"learning. Take average={len(paths) // 2} for the next training; of this one "
            f"mt.translate takes a single checkpoint too: --model {shlex.quote(str(paths[-1]))}"
        )
    results: dict[str, Any] = {"validation perplexity": perplexity}
    if "val_bleu" in scores:
        results["validation sacreBLEU"] = round(float(scores["val_bleu"]), 2)
        signature = metrics.bleu(["x"], ["x"], target=run.module.languages[1]).signature
        results["signature"] = signature
    return results
