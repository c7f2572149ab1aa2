"""What translating a line gives."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """What was translated at once: a line, or a sentence or clause of it."""

    source: tuple[str, ...]  # pieces, eos left out
    output: tuple[str, ...]  # pieces of the best translation, eos left out
    log_probs: tuple[float, ...]  # log P of each piece of the output and, last, of eos
    attention: Tensor | None = None  # [N, h, T, S], eos counted in both, when it was asked for


@dataclass(frozen=True)
class Translation:
    """One source line's result. A blank source has an empty text and a score of 0."""

    source: str
    text: str
    score: float  # length-penalised log-probability; its mean over the parts of a line
    tokens: int  # produced, eos counted
    n_best: tuple[tuple[str, float], ...]  # (text, score), best first, ``text`` among them
    parts: tuple[Segment, ...] = ()

    @property
    def log_prob(self) -> float:
        """Natural logarithm of P(text | source): the sum over the parts, 0 for a blank source.

        NaN of an engine that does not tell.
        """
        if not all(part.log_probs for part in self.parts):
            return math.nan
        return sum(log_p for part in self.parts for log_p in part.log_probs)
