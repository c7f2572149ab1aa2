"""python -m mt.import_marian FOLDER OUT: import a MarianMTModel of transformers as a model folder.

FOLDER is what transformers saves and loads, such as a model of OPUS-MT: config.json, the weights
(model.safetensors or pytorch_model.bin), source.spm, target.spm and vocab.json. The import needs
no library beyond those of mt.
"""

import argparse
import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from mt.data.tokenizer import PairTokenizer
from mt.model import checkpoint, marian
from mt.utils import console
from mt.utils.checks import check_int

SIZES = ("layers", "attention_heads", "ffn_dim")
NUMBERS = ["vocab_size", "d_model", "pad_token_id", "eos_token_id", "decoder_start_token_id"]
NUMBERS += [f"{side}_{size}" for side in ("encoder", "decoder") for size in SIZES]
DEFAULTS = {"dropout": 0.1, "max_position_embeddings": 512}
NAMES = ("<pad>", "<unk>", "<s>", "</s>")  # of our first four ids
CARD = """# {source} → {target} translation model

`mt.import_marian` imported this model from {folder}, a MarianMTModel. See there who made it, from
which data and under which terms.
"""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The state dict. Raises FileNotFoundError or ValueError that names the folder."""
    file, older = folder / "model.safetensors", folder / "pytorch_model.bin"
    try:
        if file.is_file():
            return dict(safetensors.torch.load_file(file))
        if older.is_file():
            return dict(torch.load(older, map_location="cpu", weights_only=True))
    except (safetensors.SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{folder}: its weights cannot be read: {error}") from None
    raise FileNotFoundError(f"{folder}: neither model.safetensors nor pytorch_model.bin is there")


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file}: not a JSON object")
    return content


def read_config(folder: Path) -> dict[str, Any]:
    """The values of config.json. Raises ValueError unless it describes a Marian model."""
    config = DEFAULTS | read_json(folder / "config.json")
    if config.get("model_type") != "marian":
        raise ValueError(f"{folder}/config.json: not of a Marian model")
    for name in (*NUMBERS, "max_position_embeddings"):
        check_int(f"{folder}/config.json: {name}", config.get(name), least=0)
    return config


def read_languages(folder: Path) -> list[str]:
    """Source and target language. Raises ValueError if the folder does not name them."""
    file = folder / "tokenizer_config.json"
    config = read_json(file) if file.is_file() else {}
    languages = [config.get("source_lang"), config.get("target_lang")]
    if not all(isinstance(name, str) and name for name in languages):
        raise ValueError(f"{folder}: does not say its languages: name them with --languages en de")
    return [str(name) for name in languages]


def convert(folder: Path, out: Path, languages: Sequence[str] | None = None) -> int:
    """Write the model folder ``out``; return the parameter count. Raises OSError or ValueError."""
    config = read_config(folder)
    languages = list(languages) if languages else read_languages(folder)
    vocabulary = read_json(folder / "vocab.json")
    if "<unk>" not in vocabulary:
        raise ValueError(f"{folder}/vocab.json: holds no <unk>")
    pieces = {i: piece for piece, i in vocabulary.items()}
    try:
        order = marian.order_of_ids(config, vocabulary["<unk>"])
        model = marian.from_marian(config, read_weights(folder), order)
        spelled = [*NAMES, *(pieces[i] for i in order[len(NAMES) :])]
    except KeyError as error:
        raise ValueError(f"{folder}: {error} is missing") from None
    except (ValueError, RuntimeError, IndexError) as error:
        raise ValueError(f"{folder}: {' '.join(str(error).split())}") from None
    source, target = ((folder / name).read_bytes() for name in ("source.spm", "target.spm"))
    tokenizer = PairTokenizer.make(source, target, spelled)
    longest = config["max_position_embeddings"] - 1
    card = CARD.format(source=languages[0], target=languages[1], folder=folder.name)
    training = {"imported from": folder.name}
    checkpoint.save(out, model, tokenizer, longest, languages, training, card)
    return sum(p.numel() for p in model.parameters())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "mt.import_marian", description="Import a MarianMTModel of transformers as a model folder."
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="the folder that transformers saves and loads")
    add("out", metavar="OUT", type=Path, help="model folder to write; it must not exist yet")
    add("--languages", nargs=2, metavar=("FROM", "TO"),
        help="default: the languages that the folder names")  # fmt: skip
    args = parser.parse_args(argv)

    def run() -> None:
        if args.out.exists():
            raise FileExistsError(f"{args.out}: exists already: name another folder")
        parameters = convert(args.folder, args.out, args.languages)
        print(f"{args.out}: {parameters:,} parameters")

    return console.exit_status("mt.import_marian", run)


if __name__ == "__main__":
    sys.exit(main())
