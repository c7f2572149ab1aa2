"""What is done with the rows of a block: they are translated, scored or filtered."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from mt.corpora.rows import Bad, Rows
from mt.inference.options import MAX_LENGTH, SearchOptions, load_search_defaults
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.model_path import resolve_model_path
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
class Models:
    """The models of an operation: names, which each machine resolves, and hashes of the weights.

    ``find`` makes them. Machines that have other weights under these names are refused.
    """

    names: tuple[str | None, ...]
    digests: tuple[str, ...]
    device: str = "auto"
    precision: str = "float32"

    @classmethod
    def find(
        cls, names: list[str] | None = None, device: str = "auto", precision: str = "float32"
    ) -> "Models":
        """Raises OSError or ValueError for a model that is not there."""
        paths = [resolve_model_path(name) for name in names or (None,)]
        bundled = checkpoint.BUNDLED_MODEL  # it may lie elsewhere on another machine
        kept = tuple(None if path == bundled else str(path.resolve()) for path in paths)
        return cls(kept, tuple(map(checkpoint.digest, paths)), device, precision)

    @property
    def search_defaults(self) -> SearchOptions:
        return load_search_defaults(resolve_model_path(self.names[0]))

    def load(self, threads: int) -> Translator:
        """The translator. Raises ValueError if a model is another one on this machine."""
        paths: list[Path] = [resolve_model_path(name) for name in self.names]
        for path, digest in zip(paths, self.digests, strict=True):
            if checkpoint.digest(path) != digest:
                raise ValueError(f"{path}: another model than where the run was started")
        return Translator.load(paths, self.device, self.precision, threads)


@dataclass(frozen=True)
class Translate(Operation):
    """Adds the translations of a column as the column ``target``, or in its place."""

    models: Models
    source: str
    target: str
    options: SearchOptions
    split: bool = False
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_int("batch_size", self.batch_size)

    @property
    def columns(self) -> list[str]:
        return [self.source]

    @property
    def result(self) -> str:
        return self.target

    @property
    def identity(self) -> dict[str, Any]:
        rest = {"source": self.source, "target": self.target, "split": self.split}
        return {"operation": "translate", **_identity(self.models), **rest, **asdict(self.options)}

    def load(self, threads: int) -> Compute:
        translator = self.models.load(threads)

        def translate(rows: Rows) -> tuple[Rows, Counter[str]]:
            texts = rows.texts(self.source)
            good = [text[0] for text in texts if text is not None]
            results = translator.translate(
                good, self.options, split=self.split, batch_size=self.batch_size
            )
            found = iter([result.text for result in results])
            values = [None if text is None else next(found) for text in texts]
            rows.set_column(self.target, values, pa.string())
            return rows, Counter()

        return translate


@dataclass(frozen=True)
class Score(Operation):
    """Adds the columns ``log_prob``, natural log P of the target, and ``score``.

    The score is log P with the length penalty (``mt.inference.options.SearchOptions``).
    """

    models: Models
    source: str
    target: str
    alpha: float = 0.6
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_int("batch_size", self.batch_size)
        SearchOptions(alpha=self.alpha)  # checks it

    @property
    def columns(self) -> list[str]:
        return [self.source, self.target]

    @property
    def result(self) -> str:
        return "log_prob"

    @property
    def identity(self) -> dict[str, Any]:
        rest = {"source": self.source, "target": self.target, "alpha": self.alpha}
        return {"operation": "score", **_identity(self.models), **rest}

    def load(self, threads: int) -> Compute:
        translator = self.models.load(threads)

        def score(rows: Rows) -> tuple[Rows, Counter[str]]:
            pairs = rows.texts(self.source, self.target)
            for i, pair in enumerate(pairs):
                if pair is not None and _is_too_long(translator, pair):
                    reason = f"more than {MAX_LENGTH:,} tokens, which cannot be scored"
                    rows.bad[i], pairs[i] = Bad(reason, pair[0][:200]), None
            good = [pair for pair in pairs if pair is not None]
            sources, targets = [pair[0] for pair in good], [pair[1] for pair in good]
            results = translator.score(sources, targets, self.alpha, self.batch_size)
            for name in ("log_prob", "score"):
                found = iter([getattr(result, name) for result in results])
                values = [None if pair is None else next(found) for pair in pairs]
                rows.set_column(name, values, pa.float64())
            return rows, Counter()

        return score


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
            return kept, Counter(rule for rule in broken if rule is not None)

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


def _identity(models: Models) -> dict[str, Any]:
    return {"model": list(models.digests), "precision": models.precision}


def _is_too_long(translator: Translator, pair: tuple[str, ...]) -> bool:
    """Whether a text has more tokens than can be scored; a token is at least a byte."""
    encoders = translator.tokenizer.encode, translator.tokenizer.encode_target
    return any(
        4 * len(text) + 1 > MAX_LENGTH and len(encode([text])[0]) > MAX_LENGTH
        for encode, text in zip(encoders, pair, strict=True)
    )


@cache
def _identifier() -> Any:
    """py3langid's model of all its languages. Raises ValueError where it is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        hint = install_hint("ray")
        raise ValueError(f"languages are told apart by py3langid: {hint}") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
