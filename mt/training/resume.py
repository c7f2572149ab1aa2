"""What a run needs that resumes: a checkpoint of its own kind, and the settings it had before."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from omegaconf import OmegaConf
from torch import Tensor

from mt.model.decoder_only import make_model
from mt.model.weights import check_shapes, check_values, transformer_weights
from mt.training.run_dir import STEP_FILE
from mt.utils.atomic import atomic_write
from mt.utils.checks import short_repr

# What a resumed run reads of its checkpoint; CheckpointCallback and TranslationModule make the rest
# from the settings.
NEEDED: dict[str, type] = {
    "pytorch-lightning_version": str,
    "global_step": int,
    "hyper_parameters.model": dict,
    "optimizer_states": list,
    "callbacks.Saving.kept": list,
    "callbacks.Saving.best": float,
    "TranslationData.batches_seen": int,
    "TranslationData.max_tokens": int,
    "TranslationData.world_size": int,
    "TranslationData.pairs": int,
}
# Settings that may change without changing the model that the run ends with.
NEUTRAL = {
    "validate_every", "show_examples", "data.cache_dir", "data.workers",
    "data.test", "data.reader.test", "data.validation", "data.reader.validation",
    "data.validation_limit", "tokenizer.path", "trainer.max_steps", "trainer.log_every_n_steps",
    "search.beam_size", "search.alpha", "search.batch_size",
}  # fmt: skip
UNCOMPARED = {"ckpt", "tokenizer.vocab_size"}  # the run's tokenizer says its size
MOST_NAMED = 8  # changes in a message
MISSING = object()


def check_checkpoint(path: Path, saved: dict[str, Any]) -> None:
    """ValueError that names the file unless ``saved`` holds all that a resumed run reads."""

    def refuse(reason: str) -> NoReturn:
        raise ValueError(f"{path}: not a training checkpoint of this project: {reason}")

    for name, kind in NEEDED.items():
        value = _at(saved, name)
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 2**53):
            refuse(f"{name} is {'missing' if value is None else short_repr(value)}")
    data, kept = saved["TranslationData"], saved["callbacks"]["Saving"]["kept"]
    length = data.get("epoch_length", 1)  # checkpoints of version 0.1 may lack it
    if type(length) is not int or min(length, data["max_tokens"], data["world_size"]) < 1:
        refuse("TranslationData has no sizes above 0")
    if not all(isinstance(name, str) and STEP_FILE.fullmatch(name) for name in kept):
        refuse("callbacks.Saving.kept names other files than its checkpoints")
    if not re.match(r"[2-9]\.\d+", saved["pytorch-lightning_version"]):
        refuse("of another version of Lightning")
    started_from = saved["hyper_parameters"].get("started_from")
    if started_from is not None and not isinstance(started_from, str):
        refuse("hyper_parameters.started_from is no name")
    try:
        with torch.device("meta"):  # without memory for weights
            make_model(**saved["hyper_parameters"]["model"])
    except (TypeError, ValueError) as error:
        refuse(f"hyper_parameters.model: {error}")


def _at(content: Any, name: str) -> Any:
    for part in name.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content


def check_state(path: Path, saved: dict[str, Any], module: torch.nn.Module) -> None:
    """ValueError that names the file unless weights and Adam's moments are those of the model."""
    model = module.get_submodule("model")
    check_shapes(path, transformer_weights(saved, path), model)
    if saved["state_dict"].keys() != module.state_dict().keys():
        raise ValueError(f"{path}: holds more than the weights of the model")
    state = _at(saved["optimizer_states"][0], "state") if len(saved["optimizer_states"]) == 1 else 0
    parameters = dict(enumerate(module.parameters()))
    if saved["global_step"] == 0 and state == {}:
        return  # Adam makes its moments in the first step
    if not isinstance(state, dict) or state.keys() != parameters.keys():
        raise ValueError(f"{path}: its optimizer state is not that of the model")
    for number, w in parameters.items():
        shapes = {"step": torch.Size(), "exp_avg": w.shape, "exp_avg_sq": w.shape}
        for name, shape in shapes.items():
            moment = _at(state[number], name)
            if not isinstance(moment, Tensor) or moment.shape != shape:
                raise ValueError(f"{path}: its optimizer state is not that of the model")
            check_values(path, {f"optimizer_states.{number}.{name}": moment})
            if name != "exp_avg" and (moment < 0).any():
                raise ValueError(f"{path}: its optimizer state has a number below 0")


# Settings


def keep_settings(folder: Path, new: dict[str, Any], step: int) -> str:
    """Keep the run's config.yaml as config-STEP.yaml when the resumed run has other settings.

    Returns what has changed, in one line; an empty text when nothing has.
    """
    file = folder / "config.yaml"
    try:
        content = file.read_bytes()
        old = OmegaConf.to_container(OmegaConf.create(content.decode()))
    except Exception:  # YAML has many kinds
        return ""  # nothing to compare with
    if not isinstance(old, dict) or not (changes := dict(_changes(old, new))):
        return ""
    kept = folder / f"config-{step:08d}.yaml"
    number = 1
    while kept.exists():
        number += 1
        kept = folder / f"config-{step:08d}-{number}.yaml"
    atomic_write(kept, content)
    for name in list(changes):  # data.reader.train is data.train
        if ".reader." in name and name.replace(".reader.", ".", 1) in changes:
            del changes[name]
    named = [f"{name}: {change}" for name, change in list(changes.items())[:MOST_NAMED]]
    more = [f"{len(changes) - MOST_NAMED} more"] * (len(changes) > MOST_NAMED)
    text = f"settings that differ from those up to step {step:,}, which {kept} keeps: "
    text += ", ".join(named + more)
    if changes.keys() - NEUTRAL:
        text += "; the run will not end as it would have without the change"
    return text


def _changes(old: Any, new: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The settings with different values: full name, ``old → new``; "none" where one has none."""
    # Those of the trainer may be added on the command line; others come with new versions.
    both = [key for key in new if key in old]
    for key in dict.fromkeys((*old, *new)) if prefix == "trainer." else both:
        before, now = old.get(key, MISSING), new.get(key, MISSING)
        if isinstance(before, dict) and isinstance(now, dict):
            yield from _changes(before, now, f"{prefix}{key}.")
        elif before != now and f"{prefix}{key}" not in UNCOMPARED:
            yield f"{prefix}{key}", f"{_yaml(before)} → {_yaml(now)}"


def _yaml(value: Any) -> str:
    if value is MISSING:
        return "none"
    names = {None: "null", True: "true", False: "false"}
    plain = value is None or isinstance(value, bool)
    return names[value] if plain else short_repr(value).strip("'")
