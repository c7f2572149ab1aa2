"""What the exports share."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mt.data.special_ids import FIRST_OUTPUT_ID
from mt.data.tokenizer import Tokenizer
from mt.inference.incremental import position_table
from mt.inference.options import MAX_EXTRA
from mt.model.checkpoint import LoadedModel
from mt.model.marian import EXCLUDED, MarianTransformer
from mt.model.transformer import PAPER, Transformer

TYPICAL_LENGTH = 15  # tokens of a sentence


def check_exportable(
    loaded: LoadedModel,
    engine: str,
    learned: bool = True,
    imported: bool = False,
    variants: Sequence[str] = (),
) -> Transformer:
    """The model. Raises ValueError for one that the engine cannot run.

    ``learned`` positions and ``imported`` models are allowed if True, and of the settings of
    ``mt.model.transformer.PAPER`` those that ``variants`` names may differ from the paper's.
    """
    config: dict[str, Any] = loaded.model.config
    if not isinstance(loaded.model, Transformer):
        raise ValueError(f"{loaded.path}: a decoder-only model, {engine} here has an encoder too")
    for name in ("norm", "tied_embeddings", "scaled_scores", "activation"):
        value = config.get(name, PAPER[name])
        allowed = name in variants or (name == "activation" and imported)
        if value != PAPER[name] and not allowed:
            raise ValueError(f"{loaded.path}: {name}={value}, {engine} cannot be told so")
    if config["d_k"] * config["h"] != config["d_model"]:
        raise ValueError(f"{loaded.path}: d_k={config['d_k']}, {engine}'s is d_model / h")
    if config["learned_positions"] is not None and not learned:
        raise ValueError(f"{loaded.path}: learned positions, {engine}'s are sinusoids")
    if isinstance(loaded.model, MarianTransformer) and not imported:
        raise ValueError(f"{loaded.path}: an imported model: convert the one it comes from")
    return loaded.model


def num_positions(loaded: LoadedModel) -> int:
    """The positions that the longest input or output may need, bos or eos among them."""
    return max(512, int(loaded.config["max_length"]) + MAX_EXTRA + 2)


def position_encodings(loaded: LoadedModel) -> Tensor:
    """[num_positions, d_model]; the last learned position stands for all after it."""
    model = loaded.model
    learned = None if model.positions is None else model.positions.weight.detach()
    return position_table(learned, num_positions(loaded), model.d_model)


def length_exponent(alpha: float) -> float:
    """The exponent for engines that divide a score by length ** exponent.

    We divide by ((5 + length) / 6) ** alpha (Wu et al. 2016). The exponent is chosen so that both
    grow alike at TYPICAL_LENGTH.
    """
    return alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH)


def output_bias(loaded: LoadedModel) -> Tensor:
    """[V] to add to the logits, so that no output contains pad, unk or bos."""
    bias = torch.zeros(len(loaded.model.embedding.weight))
    bias[:FIRST_OUTPUT_ID] = EXCLUDED
    return bias


class OwnTokenizer:
    """The tokenizing methods of an engine whose folder holds our own tokenizer."""

    tokenizer: Tokenizer

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids without eos."""
        return self.tokenizer.encode(list(sentences))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return self.tokenizer.decode([list(row) for row in ids])
