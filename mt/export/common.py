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
from mt.model.marian import MarianTransformer

TYPICAL = 15  # tokens of a sentence
IMPOSSIBLE = -1e4  # added to the logit of what never stands in a translation; float16 holds it


def check(loaded: LoadedModel, engine: str, learned: bool = True, imported: bool = False) -> None:
    """ValueError for a model that the engine cannot be given: it says which and why."""
    config: dict[str, Any] = loaded.model.config
    if config["d_k"] * config["h"] != config["d_model"]:
        raise ValueError(f"{loaded.path}: d_k={config['d_k']}, {engine}'s is d_model / h")
    if config["learned_positions"] is not None and not learned:
        raise ValueError(f"{loaded.path}: learned positions, {engine}'s are sinusoids")
    if isinstance(loaded.model, MarianTransformer) and not imported:
        raise ValueError(f"{loaded.path}: an imported model: convert the one it comes from")


def longest(loaded: LoadedModel) -> int:
    """Positions that an input or output of the model may need, bos or eos among them."""
    return max(512, int(loaded.config["max_length"]) + MAX_EXTRA + 2)


def length_penalty(alpha: float) -> float:
    """The exponent of engines that divide by length ** exponent, where we do as Wu et al. 2016.

    Ours divides by ((5 + length) / 6) ** alpha. At TYPICAL tokens both grow alike.
    """
    return alpha * TYPICAL / (5 + TYPICAL)


def positions(loaded: LoadedModel) -> Tensor:
    """[longest, d_model]; beyond those that are learned the last one stands for all."""
    model = loaded.model
    learned = None if model.positions is None else model.positions.weight.detach()
    return position_table(learned, longest(loaded), model.d_model)


def never(loaded: LoadedModel) -> Tensor:
    """[V] to add to the logits: pad, unk and bos do not come."""
    bias = torch.zeros(len(loaded.model.embedding.weight))
    bias[:FIRST_OUTPUT_ID] = IMPOSSIBLE
    return bias


def pieces(tokenizer: Tokenizer) -> list[str]:
    """The whole vocabulary."""
    return tokenizer.pieces(list(range(tokenizer.vocab_size)))


class OurTokens:
    """The side of an engine that is our own tokenizer."""

    tokenizer: Tokenizer

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids without eos."""
        return self.tokenizer.encode(list(sentences))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return self.tokenizer.decode([list(row) for row in ids])
