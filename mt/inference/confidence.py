"""How good a translation probably is, so that users know which sentences to check.

The confidence is the chrF, divided by 100, that sentences with such features had on validation
data. It is a logistic function of two features of what the model has written: the mean probability
of the pieces, and how far their number is from the source's, which is large where words are left
out or repeated. ``scripts/calibrate_confidence.py`` fits it and stores it in the model folder.

A confidence ranks the sentences of texts like the validation data. For texts of another kind it
says less, and a fluent mistake of which the model is sure has a high one.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from mt.inference.options import read_setting
from mt.utils.checks import check_number

MAX_WEIGHT = 1000  # far beyond any fit


class Features(NamedTuple):
    probability: float  # mean P of the pieces, each given those before it; eos does not count
    length_ratio: float  # |log((pieces of the output + 1) / (pieces of the source + 1))|


@dataclass(frozen=True)
class Calibration:
    """What "confidence" holds in a model folder's config.json.

    Raises ValueError for values out of bounds.
    """

    intercept: float
    probability: float  # the weights of the features
    length_ratio: float
    check_below: float  # a tenth of the validation sentences had a lower confidence

    def __post_init__(self) -> None:
        for name in ("intercept", "probability", "length_ratio"):
            check_number(name, getattr(self, name), -MAX_WEIGHT, MAX_WEIGHT)
        check_number("check_below", self.check_below, 0, 1)


def features(token_log_probs: Sequence[float], source_length: int) -> Features:
    """The features of a translation.

    ``token_log_probs`` are log P of each piece of the output, then of eos, as in
    ``TranslatedPart.log_probs``; ``source_length`` counts the source's pieces without eos. An
    output without pieces has a probability of 0. Both features are NaN where an engine gives no
    log P.
    """
    if not token_log_probs:
        return Features(math.nan, math.nan)
    probs = [math.exp(log_prob) for log_prob in token_log_probs[:-1]]
    ratio = len(token_log_probs) / (source_length + 1)
    return Features(sum(probs) / max(1, len(probs)), abs(math.log(ratio)))


def confidence(
    calibration: Calibration | None, token_log_probs: Sequence[float], source_length: int
) -> float:
    """The expected chrF of a sentence, divided by 100; the arguments are those of ``features``.

    Without a calibration it is the mean probability of the pieces, which ranks sentences nearly as
    well, but is no expected chrF. NaN where an engine gives no log P.
    """
    predictors = features(token_log_probs, source_length)
    if calibration is None:
        return predictors.probability
    logit = (
        calibration.intercept
        + calibration.probability * predictors.probability
        + calibration.length_ratio * predictors.length_ratio
    )
    return 0.5 + 0.5 * math.tanh(logit / 2)  # the logistic function, which cannot overflow so


def load_calibration(path: str | os.PathLike[str]) -> Calibration | None:
    """The calibration that a model folder or an export holds; None without one.

    Reads no weights. Raises ValueError that names the file if the values make no sense.
    """
    return read_setting(path, "confidence", calibration_of)


def calibration_of(values: Any) -> Calibration | None:
    """The calibration in a config's "confidence", if it is not null.

    Raises ValueError if it may not hold these values.
    """
    if values is None:
        return None
    names = [field.name for field in fields(Calibration)]
    if not isinstance(values, dict) or set(values) != set(names):
        raise ValueError(f"must hold {', '.join(names[:-1])} and {names[-1]}, nothing else")
    return Calibration(**values)
