"""How to search: the options of a call, and those that a model folder names for itself."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

MAX_EXTRA = 50  # an output is at most this many tokens longer than its input (6.1)


@dataclass(frozen=True)
class SearchOptions:
    """How to search. ``beam_size`` 1 is greedy; the paper's is 4 with ``alpha`` 0.6.

    A hypothesis is scored by log P / ((5 + length) / 6) ** alpha, eos counted in its length
    (Wu et al. 2016, equation 14). Raises ValueError on a value that makes no sense.
    """

    beam_size: int = 4
    alpha: float = 0.6
    n_best: int = 1
    min_length: int = 0  # tokens, eos not counted
    max_length: int | None = None  # the same; None: the input's length + MAX_EXTRA
    no_repeat_ngram: int = 0  # no n tokens come twice in an output; 0: they may
    # Logits of the tokens already in the output are divided by it where positive and multiplied
    # where negative (Keskar et al. 2019), and P is what softmax makes of that.
    repetition_penalty: float = 1.0
    samples: int = 0  # draw so many outputs instead of searching
    temperature: float = 1.0  # of the draws: softmax(logits / temperature)
    top_k: int = 0  # draw among the k likeliest tokens; 0: among all
    top_p: float = 1.0  # draw among the likeliest that together have this chance (Holtzman 2020)
    seed: int = 0  # with a source it gives the same samples in any company
    mbr: bool = False  # the translator ranks by expected chrF against all hypotheses
    attention: bool = False  # the translator adds how each token looked at the source

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best"):
            self._check_count(name, 1)
        for name in ("min_length", "no_repeat_ngram", "samples", "top_k", "seed"):
            self._check_count(name, 0)
        if self.max_length is not None:
            self._check_count("max_length", 0)
        self._check_number("alpha", 0, None)
        self._check_number("repetition_penalty", 0.01, 100)
        self._check_number("temperature", 0.01, 100)
        self._check_number("top_p", 1e-6, 1)
        if self.n_best > self.width:
            what = "samples" if self.samples else "beam_size"
            raise ValueError(f"n_best={self.n_best}: must not exceed {what}={self.width}")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length={self.min_length}: must not exceed max_length={self.max_length}"
            )
        if not self.samples and (self.temperature, self.top_k, self.top_p) != (1, 0, 1):
            raise ValueError("temperature, top_k and top_p are for sampling: set samples too")
        if self.mbr and self.width == 1:
            raise ValueError("mbr chooses among hypotheses: set beam_size or samples to 2 or more")

    def _check_count(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r}: must be a whole number of at least {least}")

    def _check_number(self, name: str, least: float, most: float | None) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value < math.inf or (most is not None and value > most):
            span = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"{name}={value!r}: must be a number {span}")

    @property
    def width(self) -> int:
        """Hypotheses of a sentence."""
        return self.samples or self.beam_size


def load_search_defaults(path: str | os.PathLike[str]) -> SearchOptions:
    """The beam size and alpha that a model folder, or an export, names; else the paper's (6.1).

    Reads no weights. ValueError names the file in which they make no sense.
    """
    for name in ("mt.json", "config.json"):
        file = Path(path) / name
        try:
            config = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError):  # whatever is wrong with the folder, loading it will say
            continue
        own = config.get("search", {}) if isinstance(config, dict) else {}
        try:
            if set(own) - {"beam_size", "alpha"}:
                raise ValueError("may hold beam_size and alpha, nothing else")
            return SearchOptions(**own)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file}: search={own!r}: {error}") from None
    return SearchOptions()
