"""What the HTTP interfaces ask of whatever translates, and what they get.

``mt.serving.continuous_batching.ContinuousBatching`` is the engine of ``mt.serve``. Others with the
same methods can take its place, as the benchmark's do.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mt.documents.document import Segment
from mt.documents.tags import with_tags
from mt.inference.options import SearchOptions
from mt.inference.terms import TermRules
from mt.inference.translation import Translation
from mt.inference.translator import Translator

OnPartial = Callable[[int, str], object]  # number of the text, its translation up to now


class Overloaded(Exception):
    """The queue is full: come again after ``retry_after`` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many requests are waiting: try again in {retry_after} s")
        self.retry_after = retry_after


class DeadlineExceeded(Exception):
    """A request took longer than the server allows."""


@dataclass(frozen=True)
class Job:
    """Texts of one request, which are translated alike.

    A text may have several lines. With ``split`` each line is split into its sentences.
    ``prefixes``, one for each text or none at all, are the texts with which translations begin;
    ``terms`` are what translations must and must not contain.
    ``on_partial`` is called in the event loop as a text grows.
    """

    texts: Sequence[str]
    options: SearchOptions
    split: bool = True
    prefixes: Sequence[str] = ()
    terms: TermRules | None = None
    on_partial: OnPartial | None = None


@dataclass(frozen=True)
class TextTranslation:
    """The translation of a text: ``lines`` has those of its lines, between ``breaks``."""

    lines: tuple[Translation, ...]
    breaks: tuple[str, ...]  # the line breaks, one fewer than lines

    @property
    def n_best(self) -> tuple[tuple[str, float], ...]:
        """(text, score), best first. A line with fewer alternatives repeats its last one."""
        most = max(len(line.n_best) for line in self.lines)
        return tuple(self._alternative(i) for i in range(most))

    @property
    def text(self) -> str:
        return self.n_best[0][0]

    @property
    def confidence(self) -> float:
        """How good the translation probably is, from 0 to 1: of several lines the least."""
        return min(line.confidence for line in self.lines)

    @classmethod
    def joined(cls, pieces: Sequence["TextTranslation"]) -> "TextTranslation":
        """The translation of a text that was translated in pieces, in one line."""
        lines = tuple(line for piece in pieces for line in piece.lines)
        return cls(lines, (" ",) * (len(lines) - 1))

    def with_tags(self, segment: Segment) -> Segment:
        """The translation of a segment, with its tags; raises as ``tags.with_tags`` does."""
        return with_tags(segment, self.text, [part for line in self.lines for part in line.parts])

    @property
    def tokens(self) -> int:
        return sum(line.tokens for line in self.lines)

    def _alternative(self, i: int) -> tuple[str, float]:
        chosen = [line.n_best[min(i, len(line.n_best) - 1)] for line in self.lines]
        breaks = (*self.breaks, "")
        text = "".join(
            itertools.chain.from_iterable(zip((t for t, _ in chosen), breaks, strict=True))
        )
        scores = [s for (_, s), line in zip(chosen, self.lines, strict=True) if line.parts]
        return text, sum(scores) / len(scores) if scores else 0.0


class Engine(Protocol):
    """Translates the jobs of many requests."""

    translator: Translator

    def start(self) -> None:
        """Begin to work; called in the event loop."""

    async def stop(self) -> None:
        """Finish what is accepted, then end."""

    async def translate(self, job: Job, timeout: float) -> list[TextTranslation]:
        """The translations of the job's texts, in order.

        Raises Overloaded when the queue is full, DeadlineExceeded after ``timeout`` seconds, and
        ValueError for options that do not go together. When the awaiting task is cancelled, its
        work is dropped.
        """
