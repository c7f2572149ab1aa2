"""Save, load and average model folders; load and average training checkpoints.

A model folder is self-contained and holds no pickles: ``model.safetensors``, ``config.json``,
``tokenizer.model`` and a card, ``README.md``. Lightning's training checkpoints (``.ckpt``) are
pickles; they are read under ``weights_only``, which refuses code.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mt.data.tokenizer import Tokenizer
from mt.model import storage as storages
from mt.model.decoder_only import make_model
from mt.model.marian import MarianTransformer
from mt.model.transformer import Stacks
from mt.model.weights import check_shapes, read_checkpoint, read_safetensors, transformer_weights
from mt.utils.atomic import atomic_folder, atomic_write
from mt.utils.checks import check_int, printable, short_repr
from mt.utils.hashes import sha256_of
from mt.utils.json_io import json_text, read_json

# The second adds ``storage``, which is int8: programs that know only the first one refuse it.
FORMATS = ("mt-model-1", "mt-model-2")
BUNDLED_MODEL = Path(__file__).parents[1] / "everyday"
FILES = ("model.safetensors", "config.json", "tokenizer.model")
# Of a source, in tokens; the search gives a batch no more (mt.inference.batch_runner).
MOST_LENGTH = 8192
_HASHED = ("model.safetensors", "tokenizer.model")  # config.json has their SHA-256


class LoadedModel(NamedTuple):
    model: Stacks  # in eval mode
    tokenizer: Tokenizer
    config: dict[str, Any]
    path: Path


def save(
    folder: str | os.PathLike[str],
    model: Stacks,
    tokenizer: Tokenizer,
    max_length: int,
    languages: Sequence[str],
    training: dict[str, Any],
    card: str | None = None,
    search: dict[str, Any] | None = None,
    storage: str = "float32",
) -> None:
    """Write a model folder, whole or not at all; it replaces an older one of that name.

    ``max_length`` is the longest source, in tokens without eos, that training admitted.
    ``languages`` are those of the source and the target. ``training`` holds JSON values that tell
    how the model was made and how it scores. ``card`` is the text of README.md; None means one
    made from these facts. ``search`` holds the ``beam_size`` and ``alpha`` that suit the model
    best, if they are not the paper's. ``storage`` is that of the weights' file, one of
    ``mt.model.storage.STORAGES``; all load as float32.
    Raises OSError when the folder cannot be written, TypeError for values that JSON does not have,
    ValueError for weights that the storage cannot hold.
    """
    weights = storages.pack(model.state_dict(), storage)
    config = {
        "format": FORMATS[0],
        "languages": list(languages),
        "max_length": max_length,
        "model": model.config,
        "training": training,
        **({"search": search} if search else {}),
    }
    if storage == "int8":
        config |= {"format": FORMATS[1], "storage": storage}
    with atomic_folder(folder) as partial:
        # save_file would let only the owner read the file.
        (partial / "model.safetensors").write_bytes(safetensors.torch.save(weights))
        (partial / "tokenizer.model").write_bytes(tokenizer.proto)
        config["sha256"] = {name: sha256_of(partial / name) for name in _HASHED}
        (partial / "README.md").write_text(card or _card(config, model), encoding="utf-8")
        (partial / "config.json").write_text(json_text(config), encoding="utf-8")


def set_search(folder: str | os.PathLike[str], beam_size: int, alpha: float) -> None:
    """Store in a model folder the beam size and alpha that ``load_search_defaults`` reads."""
    file = Path(folder) / "config.json"
    config = read_json(file)
    config["search"] = {"beam_size": beam_size, "alpha": alpha}
    atomic_write(file, json_text(config))


_KINDS = {
    "encoder_decoder": "An encoder-decoder Transformer (Vaswani et al. 2017)",
    "decoder_only": "A decoder-only Transformer",
}


def _card(config: dict[str, Any], model: Stacks) -> str:
    """README.md of a model folder."""
    shape = [f"{name} {value}" for name, value in model.config.items() if value is not None]
    parameters = sum(p.numel() for p in model.parameters())
    source, target = config["languages"]
    is_text = source == target and model.architecture == "decoder_only"  # data=text
    title = f"A model of {target} text" if is_text else f"{source} → {target} translation model"
    call = 'continue_text("The")' if is_text else 'translate(["Where do you live?"])[0]'
    lines = [
        f"# {title}",
        "",
        f"{_KINDS[model.architecture]}, trained and written by `mt`.",
        "",
        f"- shape: {', '.join(shape)}",
        f"- parameters: {parameters:,}",
        f"- longest source that training admits: {config['max_length']} tokens",
        *(f"- {name}: {value}" for name, value in config["training"].items()),
        "",
        "```python",
        "from mt import Translator",
        "",
        f'print(Translator.load("PATH_OF_THIS_FOLDER").{call}.text)',
        "```",
    ]
    return "\n".join(lines) + "\n"


class _NoDraws(TorchFunctionMode):
    """Leaves out ``normal_``: on the meta device it does nothing but import for two seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return None if func.__name__ == "normal_" else func(*args, **(kwargs or {}))


def load(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> LoadedModel:
    """Load a model folder, or a training checkpoint ``RUN/checkpoints/NAME.ckpt``.

    Raises FileNotFoundError or ValueError that names the file and what is wrong with it.
    """
    path = Path(path)
    if path.is_file():
        config, weights, tokenizer = _load_checkpoint(path)
    elif path.is_dir():
        config, weights, tokenizer = _load_folder(path)
    else:
        raise FileNotFoundError(f"{path}: no such model folder or checkpoint")
    make = MarianTransformer if "output_bias" in weights else make_model
    try:
        with torch.device("meta"), _NoDraws():  # no memory: the configuration may name any size
            model: Stacks = make(**config["model"])
    except (TypeError, ValueError) as error:
        reason = printable(str(error))
        raise ValueError(f"{path}: not a model that this version reads: {reason}") from None
    sizes = model.config["vocab_size"], tokenizer.vocab_size
    if sizes[0] != sizes[1]:
        raise ValueError(f"{path}: a model of {sizes[0]} pieces with a tokenizer of {sizes[1]}")
    check_shapes(path, weights, model)
    # Floats are mapped from the file, which may change; those made from 8 bits are not.
    copy = config.get("storage") != "int8"
    weights = {name: w.to(torch.float32, copy=copy) for name, w in weights.items()}
    model.load_state_dict(weights, assign=True)
    return LoadedModel(model.to(device).eval(), tokenizer, config, path)


def _load_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor], Tokenizer]:
    for name in FILES:
        if not (folder / name).is_file():
            hint = ""
            if (folder / "model" / name).is_file():
                hint = f"; its model folder is {folder / 'model'}"
            elif (folder / "mt.json").is_file():
                hint = "; mt.export wrote it: mt.translate takes it with --engine ctranslate2"
            elif (folder / "encoder.onnx").is_file():
                hint = "; mt.export wrote it, for programs with ONNX Runtime"
            elif any(folder.glob("*.ckpt")):
                hint = "; it holds checkpoints: name one of them"
            state = "not a regular file" if (folder / name).exists() else "missing"
            raise FileNotFoundError(f"{folder}: not a model folder, {name} is {state}{hint}")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or config.get("format") not in FORMATS:
        actual = config.get("format") if isinstance(config, dict) else type(config).__name__
        allowed = " or ".join(map(repr, FORMATS))
        raise ValueError(f"{folder}/config.json: format is {short_repr(actual)}, must be {allowed}")
    storage, int8 = config.get("storage"), config["format"] == FORMATS[1]
    if int8 != (storage == "int8"):
        must = "'int8'" if int8 else "missing"
        raise ValueError(f"{folder}/config.json: storage is {short_repr(storage)}, must be {must}")
    _check_config(config, f"{folder}/config.json")
    weights = read_safetensors(folder / "model.safetensors", int8)
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    check_hashes(folder, config.get("sha256"), _HASHED)
    return config, weights, tokenizer


def _load_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], Tokenizer]:
    checkpoint = read_checkpoint(path)
    tokenizer = path.parent.parent / "tokenizer.model"
    if not tokenizer.is_file():
        raise FileNotFoundError(f"{path}: the tokenizer of its run, {tokenizer}, is missing")
    hparams = checkpoint.get("hyper_parameters")
    if not isinstance(hparams, dict):
        raise ValueError(f"{path}: not a training checkpoint of this project")
    training = {"global_step": checkpoint.get("global_step")}
    if started_from := hparams.get("started_from"):
        training["started from"] = started_from
    config = {name: hparams.get(name) for name in ("model", "max_length", "languages")}
    config["training"] = training
    _check_config(config, str(path))
    return config, transformer_weights(checkpoint, path), Tokenizer.load(tokenizer)


def _check_config(config: dict[str, Any], name: str) -> None:
    for key in ("model", "training"):
        if not isinstance(config.setdefault(key, {}), dict):
            raise ValueError(f"{name}: {key!r} must be an object")
    check_int(f"{name}: max_length", config.get("max_length"), most=MOST_LENGTH)
    languages = config.get("languages")
    if languages is not None and not (
        isinstance(languages, list)
        and len(languages) == 2
        and all(isinstance(language, str) for language in languages)
    ):
        raise ValueError(f"{name}: languages={short_repr(languages)}: must be two names")


def check_hashes(folder: Path, hashes: Any, names: Sequence[str]) -> None:
    """ValueError when a file is not the one that was saved; folders of version 0.1 have no hash."""
    for name in names if isinstance(hashes, dict) else ():
        if sha256_of(folder / name) != hashes.get(name):
            raise ValueError(
                f"{folder}/{name}: damaged, or of another model: its SHA-256 is not the one that "
                "was saved with it"
            )


def average(paths: Sequence[str | os.PathLike[str]]) -> dict[str, Tensor]:
    """The mean of the Transformer's weights in training checkpoints or model folders (6.1).

    Raises ValueError if there are none, or if they are not of one model.
    """
    if not paths:
        raise ValueError("no checkpoints to average")
    shapes: list[dict[str, torch.Size]] = []
    total: dict[str, Tensor] = {}
    for path in map(Path, paths):
        if path.is_dir():
            _, weights, _ = _load_folder(path)
        else:
            weights = transformer_weights(read_checkpoint(path), path)
        shapes.append({name: w.shape for name, w in weights.items()})
        if shapes[-1] != shapes[0]:
            raise ValueError(f"{path}: not the same model as {paths[0]}")
        for name, w in weights.items():
            total[name] = total[name] + w.double() if name in total else w.double()
    return {name: (w / len(paths)).float() for name, w in total.items()}


def digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a weights file or a model folder's weights; reports name a model by it."""
    path = Path(path)
    return sha256_of(path / "model.safetensors" if path.is_dir() else path)
