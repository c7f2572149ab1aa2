"""Convert a folder that transformers saved of a MarianMTModel, such as one of OPUS-MT.

Such a folder holds config.json, the weights (model.safetensors or pytorch_model.bin), source.spm,
target.spm and vocab.json. Anybody may have written it: everything in it is checked.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt.data.special_ids import BOS, PAD
from mt.data.tokenizer import PairTokenizer
from mt.model import checkpoint, marian
from mt.model.limits import MAX_MODEL_BEAM
from mt.model.transformer import MOST_WIDTH
from mt.model.weights import check_values, read_pickle, read_safetensors
from mt.utils.checks import check_int, printable, short_repr
from mt.utils.hashes import sha256_of
from mt.utils.json_io import read_json, read_regular
from mt.utils.locks import waiting_lock

log = logging.getLogger(__name__)

REQUIRED = ("config.json", "vocab.json", "source.spm", "target.spm")
OPTIONAL = ("tokenizer_config.json", "generation_config.json", "README.md")
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first of them that is there
SIZES = ("layers", "attention_heads", "ffn_dim")
NUMBERS = ["vocab_size", "d_model"]
NUMBERS += [f"{side}_{size}" for side in ("encoder", "decoder") for size in SIZES]
SPECIAL = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
DEFAULTS = {"dropout": 0.1, "max_position_embeddings": 512}
NAMES = ("<pad>", "<unk>", "<s>", "</s>")  # of our first four ids
MOST_CARD = 2**20  # bytes
CARD = """# {source} → {target} translation model

`mt` converted this model from a MarianMTModel of transformers. See there who made it, from which
data and under which terms.

{facts}
"""


def is_marian(path: Path) -> bool:
    """Whether this is a folder that ``convert`` is for; reads config.json alone."""
    try:
        config = read_json(path / "config.json")
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("model_type") == "marian"


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The state dict. Raises FileNotFoundError or ValueError that names the file."""
    file, older = (folder / name for name in WEIGHTS)
    if file.is_file():
        return read_safetensors(file)
    if not older.is_file():
        raise FileNotFoundError(f"{folder}: neither {' nor '.join(WEIGHTS)} is there")
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
        raise ValueError(
            f"{folder}: does not say its languages; this names them: "
            "python -m mt.import_marian FOLDER OUT --languages en de"
        )
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


def read_search(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The beam size that the folder's authors chose; empty where they chose none.

    Not their length penalty: transformers divides a score by length ** penalty, we do not.
    """
    file = folder / "generation_config.json"
    if file.is_file():
        config = config | read_object(file)
    if config.get("num_beams") is None:
        return {}
    check_int(f"{folder}: num_beams", config["num_beams"], 1, MAX_MODEL_BEAM)
    return {"beam_size": config["num_beams"]}


def read_card(folder: Path) -> dict[str, str]:
    """The licence and the languages that the front matter of README.md names, if it does."""
    import yaml  # 20 ms, which a translation does not need

    try:
        text = read_regular(folder / "README.md", MOST_CARD).decode("utf-8-sig")
        front = re.match(r"\s*---\r?\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
        # The plainest loader: every scalar is a text, and no merge of keys can be a bomb.
        data = yaml.load(front[1], yaml.BaseLoader) if front else {}
        licence = data.get("license_name") or data.get("license")
        named = {"licence": licence, "languages on its card": data.get("language")}
    except Exception:  # a card is for people: a damaged one does not make a model unusable
        return {}
    facts = {}
    for name, value in named.items():
        texts = value if isinstance(value, list) else [value]
        facts[name] = ", ".join(printable(t, 100) for t in texts[:9] if t and isinstance(t, str))
    return {name: text for name, text in facts.items() if text}


def convert(
    folder: Path,
    out: Path,
    languages: Sequence[str] | None = None,
    origin: Mapping[str, str] | None = None,
) -> int:
    """Write the model folder ``out``; return the parameter count.

    ``languages`` are those of source and target, by default what the folder names. ``origin`` tells
    where the folder comes from, by default its name. config.json and the card of ``out`` hold it,
    with what the folder's own card says. Raises OSError or ValueError.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder; to fetch a model of the Hugging Face hub: "
            "hf download ORG/NAME --local-dir FOLDER"
        )
    config = read_config(folder)
    languages = list(languages) if languages else read_languages(folder)
    search = read_search(folder, config)
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
    # No translation holds them (bad_words_ids), and one row of Marian's has become both.
    with torch.no_grad():
        model.output_bias[[PAD, BOS]] = marian.EXCLUDED
    facts = dict(origin or {"imported from": folder.resolve().name}) | read_card(folder)
    lines = "\n".join(f"- {name}: {text}" for name, text in facts.items())
    card = CARD.format(source=languages[0], target=languages[1], facts=lines)
    longest = config["max_position_embeddings"] - 1
    checkpoint.save(out, model, tokenizer, longest, languages, facts, card, search)
    return sum(p.numel() for p in model.parameters())


def converted_from_marian(folder: Path, cache: Path) -> Path:
    """The model folder in ``cache`` for a folder of transformers; written if it is not there.

    Its name is a hash of the contents: a folder that has changed is converted anew. Of several
    processes one converts, the others wait. Raises OSError or ValueError.
    """
    names = [name for name in (*REQUIRED, *OPTIONAL) if (folder / name).is_file()]
    names += [name for name in WEIGHTS if (folder / name).is_file()][:1]
    hashes = "".join(f"{name} {sha256_of(folder / name)}\n" for name in names)
    out = cache / f"marian-{hashlib.sha256(hashes.encode()).hexdigest()[:32]}"
    if not out.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with waiting_lock(cache / f".{out.name}.converting", f"another process converts {folder}"):
            if not out.is_dir():
                convert(folder, out)
                log.warning(f"{folder} converted, kept in {out}")
    return out
