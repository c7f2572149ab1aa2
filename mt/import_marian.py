"""python -m mt.import_marian FOLDER OUT: a MarianMTModel of transformers as a model folder of ours.

FOLDER is what transformers saves and loads, such as those of OPUS-MT: config.json, the weights
(model.safetensors or pytorch_model.bin), source.spm, target.spm and vocab.json. Nothing is needed
to read it but what mt needs anyway.
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

COUNTS = ["vocab_size", "d_model", "pad_token_id", "eos_token_id", "decoder_start_token_id"]
COUNTS += [
    f"{side}_{what}"
    for side in ("encoder", "decoder")
    for what in ("layers", "attention_heads", "ffn_dim")
]
DEFAULTS = {"dropout": 0.1, "max_position_embeddings": 512}
NAMES = ("<pad>", "<unk>", "<s>", "</s>")  # of our first four ids
CARD = """# {source} → {target} translation model

Imported by `mt.import_marian` from {folder}, a MarianMTModel: who made it, of what data and under
which terms, is to be found there.
"""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Raises FileNotFoundError or ValueError naming the file."""
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
    """ValueError unless it is a Marian model's, with whole numbers where they belong."""
    config = DEFAULTS | read_json(folder / "config.json")
    if config.get("model_type") != "marian":
        raise ValueError(f"{folder}/config.json: not of a Marian model")
    for name in (*COUNTS, "max_position_embeddings"):
        if type(config.get(name)) is not int:
            raise ValueError(
                f"{folder}/config.json: {name}={config.get(name)!r}: must be a whole number"
            )
    return config


def languages_of(folder: Path) -> list[str]:
    """Source and target. ValueError when the folder does not say."""
    about = folder / "tokenizer_config.json"
    found = read_json(about) if about.is_file() else {}
    languages = [found.get("source_lang"), found.get("target_lang")]
    if not all(isinstance(name, str) and name for name in languages):
        raise ValueError(f"{folder}: does not say its languages: name them with --languages en de")
    return [str(name) for name in languages]


def convert(folder: Path, out: Path, languages: Sequence[str] | None = None) -> int:
    """Write ``out``; the number of parameters. Raises OSError or ValueError."""
    config = read_config(folder)
    languages = list(languages) if languages else languages_of(folder)
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
        prog="mt.import_marian", description="A MarianMTModel of transformers as a model folder."
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="as transformers saves and loads it")
    add("out", metavar="OUT", type=Path, help="model folder to write; it must not be there")
    add("--languages", nargs=2, metavar=("FROM", "TO"), help="default: what the folder says")
    args = parser.parse_args(argv)

    def run() -> None:
        if args.out.exists():
            raise FileExistsError(f"{args.out}: is there already: name another folder")
        parameters = convert(args.folder, args.out, args.languages)
        print(f"{args.out}: {parameters:,} parameters")

    return console.status("mt.import_marian", run)


if __name__ == "__main__":
    sys.exit(main())
