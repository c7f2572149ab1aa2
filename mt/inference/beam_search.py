"""Greedy search, beam search and sampling (6.1): source ids in, target ids out, token by token.

The model computes with tensors. The search keeps its hypotheses in plain Python, so that a step
reads like the algorithm.

Shapes: B sentences still active, w hypotheses of each, S source length, V vocabulary.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from mt.data.special_ids import PAD
from mt.inference.candidates import find_candidates
from mt.inference.constraints import Constraints
from mt.inference.options import SearchOptions
from mt.inference.sentence_search import Hypothesis, SentenceSearch


class SearchModel(Protocol):
    """What the search needs of a model, as ``mt.inference.incremental.InferenceModel`` has it.

    The state that ``start`` returns has the methods ``select(order)`` and, where sentences join a
    running batch, ``join(other)`` of ``mt.inference.cache.State``. A model may have a function
    ``best_tokens`` of its own (``mt.inference.candidates``).
    """

    def start(self, src: Tensor) -> Any: ...

    def step(self, tokens: Tensor, state: Any, parents: Tensor | None = None) -> Tensor: ...


@torch.inference_mode()
def search(
    model: SearchModel,
    src: Tensor,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[Constraints | None] | None = None,
) -> list[list[Hypothesis]]:
    """Translate source ids [B, S], padded at the end: the ``n_best`` of each sentence, best first.

    An output has at most as many tokens as its input plus MAX_EXTRA (or ``max_length``), neither
    counting eos; at that length the search closes it with eos. ``prefixes`` has the ids with which
    each output must begin, ``constraints`` what it must and must not contain. A forced token costs
    its log P like any other.
    """
    lengths = (src != PAD).sum(dim=1).tolist()
    rows = [row[:length] for row, length in zip(src.tolist(), lengths, strict=True)]
    prefixes = prefixes or [()] * len(rows)
    constraints = constraints or [None] * len(rows)
    sentences = [
        SentenceSearch.begin(ids[:-1], options, prefix, sentence_constraints)
        for ids, prefix, sentence_constraints in zip(rows, prefixes, constraints, strict=True)
    ]
    return _decode(model, src, sentences)


@torch.inference_mode()
def score(
    model: SearchModel, src: Tensor, outputs: Sequence[Sequence[int]], alpha: float = 0.6
) -> list[Hypothesis]:
    """Score given outputs, ids without eos, one for each source of ``src`` [B, S]."""
    options = SearchOptions(beam_size=1, alpha=alpha)
    sentences = [SentenceSearch(options, len(output), output, []) for output in outputs]
    return [hypotheses[0] for hypotheses in _decode(model, src, sentences)]


class DecodingBatch:
    """Sentences that are decoded together, each of its own age and with its own options.

    Others may join between two steps; those that are finished leave.
    """

    def __init__(self, model: SearchModel) -> None:
        self.model = model
        self.active: list[SentenceSearch] = []
        self._state: Any = None
        self._device = torch.device("cpu")

    @torch.inference_mode()
    def join(self, src: Tensor, sentences: Sequence[SentenceSearch]) -> None:
        """Add the searches of the sources [B, S], which end in eos, then padding."""
        self._device = src.device
        with _own_precision(src.device):
            state = self.model.start(src)
            if self.active:
                self._state.join(state)
            else:
                self._state = state
        self.active += sentences

    @torch.inference_mode()
    def step(self) -> None:
        """Give each hypothesis its next token; the sentences that finish leave the batch."""
        active, device = self.active, self._device
        width = max(len(sentence.alive) for sentence in active)
        tokens = _table([[node.token for node in s.alive] for s in active], width, device)
        parents = None
        # Before its first step, and in greedy search, a hypothesis has itself to continue.
        if any(s.options.width > 1 for s in active) and any(s.length for s in active):
            parents = _table([sentence.parents for sentence in active], width, device)
        with _own_precision(device):
            logits = self.model.step(tokens, self._state, parents)
        candidates = find_candidates(logits, active, getattr(self.model, "best_tokens", None))
        for sentence, sentence_candidates in zip(active, candidates, strict=True):
            sentence.advance(sentence_candidates)
        self._keep([bool(sentence.alive) for sentence in active])

    @torch.inference_mode()
    def remove(self, sentences: Collection[SentenceSearch]) -> None:
        """Drop sentences that nobody waits for any more."""
        self._keep([sentence not in sentences for sentence in self.active])

    def _keep(self, kept: list[bool]) -> None:
        if all(kept):
            return
        order = _close_gaps([not keep for keep in kept])
        self.active = [self.active[i] for i in order]
        if self.active:
            self._state.select(order)
        else:
            self._state = None  # its memory may be large


def _own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """No autocast, which takes time even to turn off: an InferenceModel has a precision."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def _decode(
    model: SearchModel, src: Tensor, sentences: list[SentenceSearch]
) -> list[list[Hypothesis]]:
    """Decode a batch until every sentence is finished."""
    batch = DecodingBatch(model)
    if sentences:
        batch.join(src, sentences)
    while batch.active:
        batch.step()
    return [sentence.hypotheses() for sentence in sentences]


def _table(rows: list[list[int]], width: int, device: torch.device) -> Tensor:
    return torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)


def _close_gaps(finished: list[bool]) -> list[int]:
    """Which sentence takes each place, so that few move: the last ones fill the gaps."""
    remaining = finished.count(False)
    last = (i for i in range(remaining, len(finished)) if not finished[i])
    return [next(last) if finished[i] else i for i in range(remaining)]
