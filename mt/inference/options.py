"""How to search: the options of a call, and the defaults that a model folder names for itself."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from mt.model.limits import MAX_MODEL_BEAM
from mt.utils.checks import check_bool, check_int, check_number, short_repr
from mt.utils.json_io import read_json

Setting = TypeVar("Setting")

PRECISIONS = ("float32", "bfloat16", "int8")  # of the matrix products
MAX_EXTRA = 50  # an output is at most this many tokens longer than its input (6.1)
CONTINUATION_TOKENS = 100  # that a text is continued by, where nothing else is asked for

# Bounds of the options: wider than any use, narrow enough for memory and time to have an end.
MAX_WIDTH = 1000  # hypotheses of a sentence; the time and memory of a step grow with its square
MAX_LENGTH = 5000  # tokens of an output; no sentence has as many
MAX_ALPHA = 10  # from 106 on the penalty of MAX_LENGTH tokens is no float64
MAX_TOP_K = 10**6  # more than any vocabulary has
MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class SearchOptions:
    """How to search. ``beam_size`` 1 is greedy; the paper uses 4 with ``alpha`` 0.6 (6.1).

    A hypothesis scores log P / ((5 + length) / 6) ** alpha, where the length counts eos
    (Wu et al. 2016, equation 14). Raises ValueError on a value that makes no sense or is beyond
    the bounds above.
    """

    beam_size: int = 4
    alpha: float = 0.6
    n_best: int = 1
    min_length: int = 0  # tokens without eos
    max_length: int | None = None  # tokens without eos; None: the input's length + MAX_EXTRA
    no_repeat_ngram: int = 0  # no n tokens come twice in an output; 0: they may
    # Logits of the tokens already in the output are divided by it where positive and multiplied
    # by it where negative (Keskar et al. 2019); P is the softmax of the result.
    repetition_penalty: float = 1.0
    samples: int = 0  # draw this many outputs instead of searching
    temperature: float = 1.0  # sample from softmax(logits / temperature)
    top_k: int = 0  # sample among the k likeliest tokens; 0: among all
    top_p: float = 1.0  # sample among the likeliest tokens that sum to p (Holtzman et al. 2020)
    seed: int = 0  # a source and a seed give the same samples whatever else is in the batch
    alternatives: int = 0  # continue each of so many likeliest tokens after the prefix greedily
    mbr: bool = False  # the translator ranks hypotheses by expected chrF against each other
    attention: bool = False  # the translator adds the cross-attention weights of each token

    def __post_init__(self) -> None:
        check_int("beam_size", self.beam_size, 1, MAX_WIDTH)
        check_int("n_best", self.n_best, 1)
        check_int("samples", self.samples, 0, MAX_WIDTH)
        check_int("alternatives", self.alternatives, 0, MAX_WIDTH)
        check_int("min_length", self.min_length, 0, MAX_LENGTH)
        check_int("max_length", self.max_length, 0, MAX_LENGTH, optional=True)
        check_int("no_repeat_ngram", self.no_repeat_ngram, 0, MAX_LENGTH)
        check_int("top_k", self.top_k, 0, MAX_TOP_K)
        check_int("seed", self.seed, 0, MAX_SEED)
        check_number("alpha", self.alpha, 0, MAX_ALPHA)
        for name in ("mbr", "attention"):
            check_bool(name, getattr(self, name))
        check_number("repetition_penalty", self.repetition_penalty, 0.01, 100)
        check_number("temperature", self.temperature, 0.01, 100)
        check_number("top_p", self.top_p, 1e-6, 1)
        if self.n_best > self.width:
            names = ("samples", "alternatives", "beam_size")
            bound = next(name for name in names if getattr(self, name))
            raise ValueError(f"n_best={self.n_best}: must not exceed {bound}={self.width}")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length={self.min_length}: must not exceed max_length={self.max_length}"
            )
        if not self.samples and (self.temperature, self.top_k, self.top_p) != (1, 0, 1):
            raise ValueError("temperature, top_k and top_p are for sampling: set samples too")
        if self.samples and self.alternatives:
            raise ValueError("samples and alternatives exclude each other: set one of them")
        if self.mbr and self.width == 1:
            raise ValueError("mbr chooses among hypotheses: set beam_size or samples to 2 or more")

    @property
    def width(self) -> int:
        """Hypotheses of a sentence."""
        return self.samples or self.alternatives or self.beam_size

    @property
    def of_search(self) -> "SearchOptions":
        """The options of the search itself: minimum Bayes risk chooses among all hypotheses."""
        return replace(self, n_best=self.width) if self.mbr else self

    @property
    def is_beam_search(self) -> bool:
        """Whether hypotheses compete; samples and alternatives go on independently."""
        return not (self.samples or self.alternatives)

    def check_terms(self) -> None:
        """Raises ValueError where a search with terms is not possible."""
        if not self.is_beam_search:
            raise ValueError("terms need beam search: leave out samples and alternatives")


def load_search_defaults(path: str | os.PathLike[str]) -> SearchOptions:
    """The beam size and alpha that a model folder or an export names, else the paper's (6.1).

    Reads no weights. Raises ValueError that names the file if the values make no sense.
    """
    return read_setting(path, "search", search_defaults) or SearchOptions()


def read_setting(
    path: str | os.PathLike[str], name: str, parse: Callable[[Any], Setting]
) -> Setting | None:
    """What a model folder or an export says under ``name``; None if it says nothing.

    ``parse`` makes it of the value in the file. Raises ValueError that names the file where
    ``parse`` raises TypeError or ValueError.
    """
    for file in (Path(path) / "mt.json", Path(path) / "config.json"):
        try:
            config = read_json(file)
        except (OSError, ValueError):  # loading the folder reports what is wrong with it
            continue
        if not isinstance(config, dict) or name not in config:
            return None
        try:
            return parse(config[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file}: {name}={short_repr(config[name])}: {error}") from None
    return None


def search_defaults(settings: dict[str, Any]) -> SearchOptions:
    """The options of a model folder's settings. TypeError or ValueError if it may not have them."""
    if set(settings) - {"beam_size", "alpha"}:
        raise ValueError("may hold beam_size and alpha, nothing else")
    options = SearchOptions(**settings)
    check_int("beam_size", options.beam_size, 1, MAX_MODEL_BEAM)
    return options
