"""The result of translating a line."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class TranslatedPart:
    """What the model translates at once: a line, or a sentence or clause of a line."""

    source: tuple[str, ...]  # pieces without eos
    output: tuple[str, ...]  # pieces of the best translation, without eos
    log_probs: tuple[float, ...]  # log P of each piece of the output, then of eos
    attention: Tensor | None = None  # [N, h, T, S] if asked for; T and S count eos
    alignment: Tensor | None = None  # [T, S], with attention: ``mt.inference.alignment``
    confidence: float = math.nan  # 0 to 1: ``mt.inference.confidence``
    text: str = ""  # of the output, its terms written as they must be
    before: str = ""  # what stands before it in the line and in the translation
    apart: tuple[int, ...] = ()  # words of the source after which a mark stands apart in the line


@dataclass(frozen=True)
class Translation:
    """The result of one source line. A blank line has an empty text and a score of 0."""

    source: str
    text: str
    score: float  # length-penalised log-probability; of several parts the mean
    tokens: int  # produced, eos counted
    n_best: tuple[tuple[str, float], ...]  # (text, score), best first; the first is ``text``
    parts: tuple[TranslatedPart, ...] = ()

    @property
    def confidence(self) -> float:
        """How good it probably is, from 0 to 1: of several parts the least. 1 for a blank line.

        ``mt.inference.confidence`` says what it means; NaN if the engine gives no
        log-probabilities.
        """
        return min((part.confidence for part in self.parts), default=1.0)

    @property
    def log_prob(self) -> float:
        """Natural logarithm of P(text | source), summed over the parts; 0 for a blank line.

        NaN if the engine gives no log-probabilities.
        """
        if not all(part.log_probs for part in self.parts):
            return math.nan
        return sum(log_prob for part in self.parts for log_prob in part.log_probs)
