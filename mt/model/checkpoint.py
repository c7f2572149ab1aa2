"""The model folder: weights, config, tokenizer and card; self-contained, without pickles.

``model.safetensors``, ``config.json``, ``tokenizer.model`` and ``README.md``. Lightning's
training checkpoints (``.ckpt``) are read here too, under ``weights_only``.
"""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from mt.data.tokenizer import Tokenizer
from mt.model.marian import MarianTransformer
from mt.model.transformer import Transformer

FORMAT = "mt-model-1"
BUNDLED_MODEL = Path(__file__).parents[1] / "everyday"  # the model that comes with this package
FILES = ("model.safetensors", "config.json", "tokenizer.model")
_PREFIX = "model."  # of the Transformer's weights in a Lightning checkpoint


class LoadedModel(NamedTuple):
    model: Transformer  # in eval mode
    tokenizer: Tokenizer
    config: dict[str, Any]
    path: Path


def save(
    folder: str | os.PathLike[str],
    model: Transformer,
    tokenizer: Tokenizer,
    max_length: int,
    languages: Sequence[str],
    training: dict[str, Any],
    card: str | None = None,
    search: dict[str, Any] | None = None,
) -> None:
    """Write a model folder, whole or not at all; an older one of that name is replaced.

    ``max_length`` is the longest source, in tokens without eos, that training admitted;
    ``languages`` are the source's and the target's; ``training`` tells how the model was made
    and what it scores, in JSON's types; ``card`` is its README.md, None: one that says just this;
    ``search`` has the ``beam_size`` and ``alpha`` that suit the model best, where not the paper's.
    Weights are stored in the type they have, and loaded as float32.
    """
    folder = Path(folder)
    partial, old = (folder.with_name(f".{folder.name}.{what}") for what in ("partial", "old"))
    for left in (partial, old):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir(parents=True)
    config = {
        "format": FORMAT,
        "languages": list(languages),
        "max_length": max_length,
        "model": model.config,
        "training": training,
        **({"search": search} if search else {}),
    }
    try:
        weights = {name: w.detach().cpu().contiguous() for name, w in model.state_dict().items()}
        # Not save_file, which lets nobody but the owner read what it writes.
        (partial / "model.safetensors").write_bytes(safetensors.torch.save(weights))
        (partial / "tokenizer.model").write_bytes(tokenizer.proto)
        (partial / "README.md").write_text(card or _card(config, model), encoding="utf-8")
        (partial / "config.json").write_text(_json(config), encoding="utf-8")
        if folder.exists():
            folder.rename(old)
            partial.rename(folder)
            shutil.rmtree(old)
        else:
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def load(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> LoadedModel:
    """Read a model folder, or a training checkpoint ``RUN/checkpoints/NAME.ckpt``.

    Raises FileNotFoundError or ValueError naming the file and what is wrong with it.
    """
    path = Path(path)
    if path.is_file():
        config, weights, tokenizer = _read_checkpoint(path)
    elif path.is_dir():
        config, weights, tokenizer = _read_folder(path)
    else:
        raise FileNotFoundError(f"{path}: no such model folder or checkpoint")
    try:
        kind = MarianTransformer if "activation" in config["model"] else Transformer
        model = kind(**config["model"])
        if model.config["vocab_size"] != tokenizer.vocab_size:
            raise ValueError(
                f"a model of {model.config['vocab_size']} pieces with a tokenizer "
                f"of {tokenizer.vocab_size}"
            )
        model.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a model that this version reads: {reason}") from None
    return LoadedModel(model.to(device).eval(), tokenizer, config, path)


def resolve_model_path(name: str | os.PathLike[str] | None) -> Path:
    """The model that a user means: None and ``everyday`` are SHIPPED, else a path.

    ``latest`` is the newest under outputs/. FileNotFoundError when there is none.
    """
    if name in (None, BUNDLED_MODEL.name):
        if not BUNDLED_MODEL.is_dir():
            raise FileNotFoundError(f"{BUNDLED_MODEL} is missing: name a model")
        return BUNDLED_MODEL
    return latest() if name == "latest" else Path(str(name))


def latest(root: str | os.PathLike[str] = "outputs") -> Path:
    """The newest model folder below ``root``; FileNotFoundError says how to get one."""
    configs = [p for p in Path(root).glob("**/model/config.json") if p.is_file()]
    if not configs:
        raise FileNotFoundError(
            f"no model folder under {root}/: train one with `make quickstart` "
            "(about ten minutes), or name one"
        )
    return max(configs, key=lambda p: p.stat().st_mtime).parent


def set_search(folder: str | os.PathLike[str], beam_size: int, alpha: float) -> None:
    """Have a model folder name the beam size and alpha that suit it best: ``load_search_defaults``."""
    file = Path(folder) / "config.json"
    config = json.loads(file.read_text("utf-8"))
    config["search"] = {"beam_size": beam_size, "alpha": alpha}
    partial = file.with_name(".config.json.partial")
    partial.write_text(_json(config), encoding="utf-8")
    partial.replace(file)


def _json(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def average(paths: Sequence[str | os.PathLike[str]]) -> dict[str, Tensor]:
    """The mean of the Transformer's weights in several training checkpoints (6.1) or model folders.

    Raises ValueError when there are none, or when they are not of one model.
    """
    if not paths:
        raise ValueError("no checkpoints to average")
    total: dict[str, Tensor] = {}
    for path in map(Path, paths):
        weights = _read_folder(path)[1] if path.is_dir() else _weights(read(path), path)
        if total and {n: w.shape for n, w in weights.items()} != {
            n: w.shape for n, w in total.items()
        }:
            raise ValueError(f"{path}: not the same model as {paths[0]}")
        for name, w in weights.items():
            total[name] = total[name] + w.double() if name in total else w.double()
    return {name: (w / len(paths)).float() for name, w in total.items()}


def read(path: Path) -> dict[str, Any]:
    """A training checkpoint's content, under ``weights_only``: code in it is refused, not run.

    Raises FileNotFoundError or ValueError naming the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # torch's message explains how to load it all the same
        raise ValueError(
            f"{path}: not a readable checkpoint: damaged, or it holds code beside its weights"
        ) from None
    except Exception as error:  # zip and torch each raise their own on a damaged file
        reason = str(error).split("\n")[0] or type(error).__name__
        raise ValueError(f"{path}: not a readable checkpoint: {reason}") from None
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise ValueError(f"{path}: not a training checkpoint of this project")
    return checkpoint


def digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the weights' file, by which a report names the model that it is about."""
    path = Path(path)
    file = path / "model.safetensors" if path.is_dir() else path
    sha = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(2**20):
            sha.update(block)
    return sha.hexdigest()


def _read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor], Tokenizer]:
    for name in FILES:
        if not (folder / name).is_file():
            run = (folder / "model" / name).is_file()
            hint = f"; its model folder is {folder / 'model'}" if run else ""
            if (folder / "mt.json").is_file():
                hint = "; mt.export wrote it: mt.translate takes it with --engine ctranslate2"
            raise FileNotFoundError(f"{folder}: not a model folder, {name} is missing{hint}")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder}/config.json: not JSON: {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else type(config).__name__
        raise ValueError(f"{folder}/config.json: format is {found!r}, must be {FORMAT!r}")
    _check_config(config, f"{folder}/config.json")
    try:
        weights = safetensors.torch.load_file(folder / "model.safetensors")
    except safetensors.SafetensorError as error:
        raise ValueError(f"{folder}/model.safetensors: damaged or truncated: {error}") from None
    return config, weights, Tokenizer.load(folder / "tokenizer.model")


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], Tokenizer]:
    checkpoint = read(path)
    tokenizer = path.parent.parent / "tokenizer.model"
    if not tokenizer.is_file():
        raise FileNotFoundError(f"{path}: its run's tokenizer {tokenizer} is missing")
    hparams = checkpoint.get("hyper_parameters")
    if not isinstance(hparams, dict):
        raise ValueError(f"{path}: not a training checkpoint of this project")
    training = {"global_step": checkpoint.get("global_step")}
    if started_from := hparams.get("started_from"):
        training["started from"] = started_from
    config = {
        "model": hparams.get("model"),
        "max_length": hparams.get("max_length"),
        "languages": hparams.get("languages"),
        "training": training,
    }
    _check_config(config, str(path))
    return config, _weights(checkpoint, path), Tokenizer.load(tokenizer)


def _check_config(config: dict[str, Any], name: str) -> None:
    if not isinstance(config.get("model"), dict):
        raise ValueError(f"{name}: 'model' is missing or mistyped")
    max_length = config.get("max_length")
    if type(max_length) is not int or max_length < 1:
        raise ValueError(f"{name}: max_length={max_length!r}: must be a whole number of at least 1")


def _weights(checkpoint: dict[str, Any], path: Path) -> dict[str, Tensor]:
    weights = {
        name.removeprefix(_PREFIX): w
        for name, w in checkpoint["state_dict"].items()
        if name.startswith(_PREFIX) and isinstance(w, Tensor)
    }
    if not weights:
        raise ValueError(f"{path}: holds no weights of a Transformer")
    return weights


def _card(config: dict[str, Any], model: Transformer) -> str:
    """README.md of a model folder."""
    shape = ", ".join(
        f"{name} {value}" for name, value in model.config.items() if value is not None
    )
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        f"# {' → '.join(config['languages'])} translation model",
        "",
        "An encoder-decoder Transformer (Vaswani et al. 2017), trained and written by `mt`.",
        "",
        f"- shape: {shape}",
        f"- parameters: {parameters:,}",
        f"- longest source in training: {config['max_length']} tokens",
        *(f"- {name}: {value}" for name, value in config["training"].items()),
        "",
        "```python",
        "from mt import Translator",
        "",
        'print(Translator.load("PATH_OF_THIS_FOLDER").translate(["Where do you live?"])[0].text)',
        "```",
    ]
    return "\n".join(lines) + "\n"
