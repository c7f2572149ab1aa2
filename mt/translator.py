"""Text in, text out: a model, its tokenizer and the search behind one method."""

import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mt import checkpoint
from mt.batching import EOS, cut, pad
from mt.model import Transformer
from mt.search import Hypothesis, SearchOptions, search
from mt.tokenizer import Tokenizer

log = logging.getLogger(__name__)

MAX_TOKENS = 8192  # padded source tokens times beam size in one batch


@dataclass(frozen=True)
class Translation:
    """One source line's result. A blank source has an empty text and a score of 0."""

    source: str
    text: str
    score: float  # length-penalised log-probability; its mean over the parts of a long line
    tokens: int  # produced, eos counted
    n_best: tuple[tuple[str, float], ...]  # (text, score), best first, ``text`` among them


class Translator:
    """Translates sentences with one model.

    A sentence's result does not depend on its neighbours. A line longer than ``max_length``
    tokens, which the model never saw in training, is translated in parts cut between words, and
    a warning says so.
    """

    def __init__(
        self, model: Transformer, tokenizer: Tokenizer, max_length: int, name: str = ""
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.name = name

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "auto") -> "Translator":
        """A translator from a model folder or checkpoint; ``device`` cpu, cuda, cuda:1 or auto.

        Raises FileNotFoundError or ValueError that says what is wrong with the folder or device.
        """
        model, tokenizer, config, _ = checkpoint.load(path, pick_device(device))
        return cls(model, tokenizer, config["max_length"], name=str(path))

    def translate(
        self,
        sentences: Sequence[str],
        beam_size: int = 4,
        alpha: float = 0.6,
        n_best: int = 1,
        batch_size: int = 64,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[Translation]:
        """One Translation for each sentence, in order; ``batch_size`` counts sentences.

        ``on_progress`` is called after each batch with the number of sentences in it
        (parts of long ones; blank ones cost nothing and are not counted).

        Raises ValueError on options that make no sense.
        """
        options = SearchOptions(beam_size, alpha, n_best)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r}: must be a whole number of at least 1")
        parts: list[list[int]] = []  # source ids of every part of every line
        first: list[int] = []  # where each line's parts begin
        for line, ids in zip(sentences, self.tokenizer.encode(list(sentences)), strict=True):
            first.append(len(parts))
            parts += self._split(ids, line)
        found = self._search(parts, options, batch_size, on_progress)
        bounds = itertools.pairwise([*first, len(parts)])
        return [
            self._join(source, found[start:end])
            for source, (start, end) in zip(sentences, bounds, strict=True)
        ]

    def _split(self, ids: list[int], line: str) -> list[list[int]]:
        """No part for a blank line, one for most, several for one beyond ``max_length``."""
        if len(ids) <= self.max_length:
            return [ids] if ids else []
        pieces = self.tokenizer.pieces(ids)
        parts, start = [], 0
        while len(ids) - start > self.max_length:
            end = start + self.max_length
            words = (i for i in range(end, start, -1) if pieces[i].startswith("▁"))
            end = next(words, end)
            parts.append(ids[start:end])
            start = end
        parts.append(ids[start:])
        log.warning(
            f"a line of {len(ids)} tokens, {line.strip()[:30]!r}..., is longer than the "
            f"{self.max_length} that the model was trained on: translated in {len(parts)} parts"
        )
        return parts

    def _search(
        self,
        parts: list[list[int]],
        options: SearchOptions,
        batch_size: int,
        on_progress: Callable[[int], object] | None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for every part, computed with parts of like length together."""
        found: list[list[Hypothesis]] = [[] for _ in parts]
        for batch in self._batches(parts, options.beam_size, batch_size):
            src = pad([[*parts[i], EOS] for i in batch])
            device = self.model.embedding.weight.device
            for i, hypotheses in zip(
                batch, search(self.model, src.to(device), options), strict=True
            ):
                found[i] = hypotheses
            if on_progress is not None:
                on_progress(len(batch))
        return found

    def _batches(
        self, parts: list[list[int]], beam_size: int, batch_size: int
    ) -> Iterator[list[int]]:
        if not parts:
            return
        lengths = np.array([len(part) + 1 for part in parts])
        order = np.argsort(-lengths, kind="stable")
        ends = cut(lengths[order][:, None], max(1, MAX_TOKENS // beam_size), batch_size)
        for batch in np.split(order, ends[:-1]):
            yield batch.tolist()

    def _join(self, source: str, parts: list[list[Hypothesis]]) -> Translation:
        if not parts:
            return Translation(source, "", 0.0, 0, (("", 0.0),))
        ranks = range(min(len(part) for part in parts))
        n_best = tuple(
            (
                " ".join(self._text([part[rank].ids for part in parts])),
                sum(part[rank].score for part in parts) / len(parts),
            )
            for rank in ranks
        )
        tokens = sum(len(part[0].ids) + 1 for part in parts)
        return Translation(source, n_best[0][0], n_best[0][1], tokens, n_best)

    def _text(self, ids: list[list[int]]) -> list[str]:
        # One line in, one line out: a line break that the vocabulary may hold becomes a blank.
        return [" ".join(text.split()) for text in self.tokenizer.decode(ids)]


def pick_device(name: str) -> torch.device:
    """``auto`` is the GPU when there is one. Raises ValueError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # which `meta` cannot
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from None
    return device
