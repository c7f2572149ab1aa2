"""What is done with the rows of a block, and the filter, which needs no model and no torch."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from mt.corpora.rows import Bad, Rows
from mt.utils.checks import check_int, check_number
from mt.utils.console import install_hint

Compute = Callable[[Rows], tuple[Rows, Counter[str]]]  # the rows, and why others were left out


class Operation(ABC):
    """What a worker does with rows. It travels to the worker, which then loads what it needs."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The columns that are read; a text has the first of them."""

    @property
    @abstractmethod
    def result(self) -> str:
        """The column that a text has as its line."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the result depends on, in JSON's types."""

    @abstractmethod
    def load(self, threads: int) -> Compute:
        """Called once by each worker. Raises OSError or ValueError."""


@dataclass(frozen=True)
class Filter(Operation):
    """Keeps the rows that pass all the rules that are set; lengths are words between blanks."""

    source: str
    target: str | None = None
    min_score: float | None = None  # of the column ``score``
    min_length: int | None = None  # words of each text
    max_length: int | None = None
    max_ratio: float | None = None  # words of the longer text over those of the shorter one
    source_language: str | None = None  # a code of py3langid's
    target_language: str | None = None
    rules: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        check_number("min_score", self.min_score, -math.inf, optional=True)
        check_int("min_length", self.min_length, 0, optional=True)
        check_int("max_length", self.max_length, 1, optional=True)
        if (self.min_length or 0) > (self.max_length or math.inf):
            raise ValueError(
                f"min_length={self.min_length}: must not exceed max_length={self.max_length}"
            )
        check_number("max_ratio", self.max_ratio, 1, optional=True)
        for name in ("max_ratio", "target_language"):
            if getattr(self, name) is not None and self.target is None:
                raise ValueError(f"{name}: compares pairs: name the column of the target too")
        for name in ("source_language", "target_language"):
            code = getattr(self, name)
            if code is not None and code not in _identifier().labels:
                raise ValueError(f"{name}={code!r}: not a code that py3langid knows, such as en")
        names = (
            "min_score", "min_length", "max_length", "max_ratio", "source_language",
            "target_language",
        )  # fmt: skip
        rules = tuple(name for name in names if getattr(self, name) is not None)
        object.__setattr__(self, "rules", rules)
        if not rules:
            raise ValueError("nothing to filter by: give a score, a length, a ratio or a language")

    @property
    def columns(self) -> list[str]:
        score = ["score"] if self.min_score is not None else []
        return [self.source, *([self.target] if self.target else []), *score]

    @property
    def result(self) -> str:
        return self.source

    @property
    def identity(self) -> dict[str, Any]:
        return {"operation": "filter", **asdict(self), "rules": list(self.rules)}

    def load(self, threads: int) -> Compute:
        def keep(rows: Rows) -> tuple[Rows, Counter[str]]:
            texts = rows.texts(*(self.columns[:2] if self.target else self.columns[:1]))
            scores = rows.values("score")
            broken = [
                self._broken_rule(i, text, scores[i], rows) if text is not None else "bad"
                for i, text in enumerate(texts)
            ]
            kept = rows.select([i for i, rule in enumerate(broken) if rule is None])
            kept.bad = rows.bad
            return kept, Counter(rule for rule in broken if rule not in (None, "bad"))

        return keep

    def _broken_rule(self, i: int, texts: tuple[str, ...], score: Any, rows: Rows) -> str | None:
        """The first rule that a row breaks; "bad" where a rule cannot be applied."""
        lengths = [len(text.split()) for text in texts]
        if self.min_score is not None:
            if isinstance(score, bool) or not isinstance(score, int | float):
                rows.bad[i] = Bad(f"score is {score!r}, not a number", texts[0][:200])
                return "bad"
            if not score >= self.min_score:  # nor is NaN
                return "min_score"
        if self.min_length is not None and min(lengths) < self.min_length:
            return "min_length"
        if self.max_length is not None and max(lengths) > self.max_length:
            return "max_length"
        if self.max_ratio is not None and max(lengths) > self.max_ratio * min(lengths):
            return "max_ratio"
        languages = zip(("source_language", "target_language"), texts, strict=False)
        for name, text in languages:
            wanted = getattr(self, name)
            if wanted is not None and _identifier().classify(text)[0] != wanted:
                return name
        return None


@cache
def _identifier() -> Any:
    """py3langid's model of all its languages. Raises ValueError where it is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        hint = install_hint("ray")
        raise ValueError(f"languages are told apart by py3langid: {hint}") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
