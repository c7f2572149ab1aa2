"""python -m mt.import_marian FOLDER OUT: import a MarianMTModel of transformers as a model folder.

FOLDER is what transformers saves and loads, such as a model of OPUS-MT: config.json, the weights
(model.safetensors or pytorch_model.bin), source.spm, target.spm and vocab.json. The import needs
no library beyond those of mt.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mt.utils import console

with console.exit_at_interrupt():
    from torch import Tensor

    from mt.data.tokenizer import PairTokenizer
    from mt.model import checkpoint, marian
    from mt.model.transformer import MOST_WIDTH
    from mt.model.weights import check_values, read_pickle, read_safetensors
    from mt.utils.checks import check_int, short_repr
    from mt.utils.json_io import read_json, read_regular

SIZES = ("layers", "attention_heads", "ffn_dim")
NUMBERS = ["vocab_size", "d_model"]
NUMBERS += [f"{side}_{size}" for side in ("encoder", "decoder") for size in SIZES]
SPECIAL = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
DEFAULTS = {"dropout": 0.1, "max_position_embeddings": 512}
NAMES = ("<pad>", "<unk>", "<s>", "</s>")  # of our first four ids
CARD = """# {source} → {target} translation model

`mt.import_marian` imported this model from {folder}, a MarianMTModel. See there who made it, from
which data and under which terms.
"""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The state dict. Raises FileNotFoundError or ValueError that names the file."""
    file, older = folder / "model.safetensors", folder / "pytorch_model.bin"
    if file.is_file():
        return read_safetensors(file)
    if not older.is_file():
        raise FileNotFoundError(
            f"{folder}: neither model.safetensors nor pytorch_model.bin is there"
        )
    weights = read_pickle(older, zipped=False)
    if not isinstance(weights, dict) or not all(
        isinstance(name, str) and isinstance(w, Tensor) for name, w in weights.items()
    ):
        raise ValueError(f"{older}: not the weights of a model")
    check_values(older, weights)
    return dict(weights)


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object. Raises OSError or ValueError that names the file."""
    content = read_json(file)
    if not isinstance(content, dict):
        raise ValueError(f"{file}: not a JSON object")
    return content


def read_config(folder: Path) -> dict[str, Any]:
    """The values of config.json. Raises ValueError unless it describes a Marian model."""
    config = DEFAULTS | read_object(folder / "config.json")
    if config.get("model_type") != "marian":
        raise ValueError(f"{folder}/config.json: not of a Marian model")
    ranges = dict.fromkeys(NUMBERS, (1, MOST_WIDTH))
    ranges["max_position_embeddings"] = 2, checkpoint.MOST_LENGTH + 1
    for name, span in ranges.items():
        check_int(f"{folder}/config.json: {name}", config.get(name), *span)
    for name in SPECIAL:
        check_int(f"{folder}/config.json: {name}", config.get(name), 0, config["vocab_size"] - 1)
    return config


def read_languages(folder: Path) -> list[str]:
    """Source and target language. Raises ValueError if the folder does not name them."""
    file = folder / "tokenizer_config.json"
    config = read_object(file) if file.is_file() else {}
    languages = [config.get("source_lang"), config.get("target_lang")]
    if not all(isinstance(name, str) and name.isprintable() and name for name in languages):
        raise ValueError(f"{folder}: does not say its languages: name them with --languages en de")
    return [str(name) for name in languages]


def read_vocabulary(folder: Path, size: int) -> dict[str, int]:
    """The id of each piece. ValueError unless all numbers below ``size`` are among them."""
    file = folder / "vocab.json"
    vocabulary = read_object(file)
    for piece, i in vocabulary.items():
        check_int(f"{file}: {short_repr(piece)}", i, 0)
    ids = {i for i in vocabulary.values() if i < size}
    if vocabulary.get("<unk>") not in ids:
        raise ValueError(f"{file}: holds no <unk>")
    if missing := size - len(ids):
        raise ValueError(f"{file}: {missing:,} of the {size:,} ids of config.json are missing")
    return vocabulary


def convert(folder: Path, out: Path, languages: Sequence[str] | None = None) -> int:
    """Write the model folder ``out``; return the parameter count. Raises OSError or ValueError."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder; to fetch a model of the Hugging Face hub: "
            "hf download ORG/NAME --local-dir FOLDER"
        )
    config = read_config(folder)
    languages = list(languages) if languages else read_languages(folder)
    vocabulary = read_vocabulary(folder, config["vocab_size"])
    pieces = {i: piece for piece, i in vocabulary.items()}
    order = marian.order_of_ids(config, vocabulary["<unk>"])
    spelled = [*NAMES, *(pieces[i] for i in order[len(NAMES) :])]
    source, target = (read_regular(folder / name) for name in ("source.spm", "target.spm"))
    weights = read_weights(folder)
    try:
        tokenizer = PairTokenizer.make(source, target, spelled)
        model = marian.from_marian(config, weights, order)
    except KeyError as error:
        raise ValueError(f"{folder}: {error} is missing") from None
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    longest = config["max_position_embeddings"] - 1
    name = folder.resolve().name
    card = CARD.format(source=languages[0], target=languages[1], folder=name)
    checkpoint.save(out, model, tokenizer, longest, languages, {"imported from": name}, card)
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
