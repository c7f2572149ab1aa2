"""Translations and scores by models."""

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from mt.corpora.operations import Compute, Operation
from mt.corpora.rows import Bad, Rows
from mt.inference.inputs import encode_chunks
from mt.inference.options import MAX_LENGTH, SearchOptions, load_search_defaults
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.model_path import find_models, resolve_model_path
from mt.utils.checks import check_int


@dataclass(frozen=True)
class Models:
    """The models of an operation: names, which each machine resolves, and hashes of their files.

    ``find`` makes them. Machines that have other files under these names are refused.
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
        paths = find_models("mt.corpus", names)
        bundled = checkpoint.BUNDLED_MODEL  # it may lie elsewhere on another machine
        stored = tuple(None if path == bundled else str(path.resolve()) for path in paths)
        return cls(stored, tuple(map(_digest, paths)), device, precision)

    @property
    def search_defaults(self) -> SearchOptions:
        return load_search_defaults(resolve_model_path(self.names[0]))

    @property
    def identity(self) -> dict[str, Any]:
        """What the results of the models depend on, in JSON's types."""
        return {"model": list(self.digests), "precision": self.precision, "device": self.device}

    def load(self, threads: int) -> Translator:
        """The translator. Raises ValueError if a model is another one on this machine."""
        paths: list[Path] = [resolve_model_path(name) for name in self.names]
        for path, digest in zip(paths, self.digests, strict=True):
            if _digest(path) != digest:
                raise ValueError(f"{path}: another model than where the run was started")
        torch.set_num_threads(threads)
        return Translator.load(paths, self.device, self.precision)


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
        return {
            "operation": "translate", **self.models.identity, "batch_size": self.batch_size,
            "source": self.source, "target": self.target, "split": self.split,
            **asdict(self.options),
        }  # fmt: skip

    def load(self, threads: int) -> Compute:
        translator = self.models.load(threads)

        def translate(rows: Rows) -> tuple[Rows, Counter[str]]:
            texts = rows.texts(self.source)
            good = [text[0] for text in texts if text is not None]
            results = translator.translate(
                good, self.options, split=self.split, batch_size=self.batch_size
            )
            translations = iter([result.text for result in results])
            values = [None if text is None else next(translations) for text in texts]
            rows.set_column(self.target, values, pa.string())
            return rows, Counter()

        return translate


@dataclass(frozen=True)
class ScorePairs(Operation):
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
        return {
            "operation": "score", **self.models.identity, "batch_size": self.batch_size,
            "source": self.source, "target": self.target, "alpha": self.alpha,
        }  # fmt: skip

    def load(self, threads: int) -> Compute:
        translator = self.models.load(threads)
        encoders = translator.tokenizer.encode, translator.tokenizer.encode_target

        def score(rows: Rows) -> tuple[Rows, Counter[str]]:
            pairs = rows.texts(self.source, self.target)
            for encode, side in zip(encoders, (0, 1), strict=True):
                texts = ["" if pair is None else pair[side] for pair in pairs]
                for i, chunks in enumerate(encode_chunks(encode, texts)):
                    if sum(map(len, chunks)) > MAX_LENGTH:
                        reason = f"more than {MAX_LENGTH:,} tokens, which cannot be scored"
                        rows.bad[i], pairs[i] = Bad(reason, texts[i][:200]), None
            good = [pair for pair in pairs if pair is not None]
            sources, targets = [pair[0] for pair in good], [pair[1] for pair in good]
            results = translator.score(sources, targets, self.alpha, self.batch_size)
            for name in ("log_prob", "score"):
                scores = iter([getattr(result, name) for result in results])
                values = [None if pair is None else next(scores) for pair in pairs]
                rows.set_column(name, values, pa.float64())
            return rows, Counter()

        return score


def _digest(path: Path) -> str:
    """One hash of all files that a model is loaded from."""
    tokenizer = path.parent.parent / "tokenizer.model"  # of a training checkpoint
    files = [path / name for name in checkpoint.FILES] if path.is_dir() else [path, tokenizer]
    return hashlib.sha256("".join(map(checkpoint.digest, files)).encode()).hexdigest()
