"""Greedy search, beam search and sampling (6.1): source ids in, target ids out, a token a step.

The model computes with tensors; hypotheses are kept in plain Python, where a step of the search
reads as one tells it.

Shapes: B sentences still active, w hypotheses of each, S source length, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from mt.data.special_ids import BOS, EOS, FIRST_OUTPUT_ID, PAD
from mt.inference.options import MAX_EXTRA, SearchOptions


class SearchModel(Protocol):
    """What the search asks of a model; ``mt.inference.Decoder`` is one, and says what each does.

    The state of a model has ``select(order)`` as ``mt.inference.State`` has it.
    """

    def start(self, src: Tensor) -> Any: ...

    def step(self, tokens: Tensor, state: Any, parents: Tensor | None = None) -> Tensor: ...


class Hypothesis(NamedTuple):
    ids: list[int]  # without bos and eos
    score: float  # log P over the length penalty
    log_prob: float  # natural logarithm of P(ids, eos | source)
    token_log_probs: tuple[float, ...] = ()  # log P of each token, given those before; eos last


@torch.inference_mode()
def search(
    model: SearchModel,
    src: Tensor,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Translate source ids [B, S], padded behind: for each sentence its ``n_best``, best first.

    An output has at most as many tokens as its input plus MAX_EXTRA (or ``max_length``), eos not
    counted on either side; there the hypothesis is closed with eos. ``prefixes``, one a sentence,
    are how the outputs begin. A forced token costs its log P like any other.
    """
    lengths = ((src != PAD).sum(dim=1) - 1).tolist()  # the input's eos is not counted
    prefixes = prefixes or [()] * len(lengths)
    sentences = []
    for n, (length, prefix) in enumerate(zip(lengths, prefixes, strict=True)):
        limit = options.max_length
        if limit is None:
            limit = max(length + MAX_EXTRA, options.min_length)
        source = src[n, : length + 1].tolist() if options.samples else []
        sentences.append(_Sentence(options, max(limit, len(prefix)), prefix, source))
    return _run(model, src, options, sentences)


@torch.inference_mode()
def score(
    model: SearchModel, src: Tensor, outputs: Sequence[Sequence[int]], alpha: float = 0.6
) -> list[Hypothesis]:
    """What the model says of given outputs (ids without eos), one for each source of [B, S]."""
    options = SearchOptions(beam_size=1, alpha=alpha)
    sentences = [_Sentence(options, len(output), output, []) for output in outputs]
    return [hypotheses[0] for hypotheses in _run(model, src, options, sentences)]


def length_penalty(length: int, alpha: float) -> float:
    return ((5.0 + length) / 6.0) ** alpha


class _Node(NamedTuple):
    """A hypothesis: one token more than its parent."""

    parent: "_Node | None"
    token: int
    log_prob: float  # of this token
    total: float  # of all

    def chain(self) -> "Iterator[_Node]":
        """This node and those before it, last first, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def ids(self) -> list[int]:
        return [node.token for node in self.chain()][::-1]


class _Sentence:
    """The hypotheses of one sentence: those that go on and those that have ended, best first."""

    def __init__(
        self, options: SearchOptions, limit: int, prefix: Sequence[int], source: list[int]
    ) -> None:
        self.options, self.limit, self.prefix = options, limit, prefix
        self.alive = [_Node(None, BOS, 0.0, 0.0)]
        self.parents = [0]  # which row of the step before each of them continues
        self.numbers = list(range(options.samples))  # which sample each of them is
        self.finished: list[tuple[float, _Node]] = []
        self.rng = np.random.default_rng([options.seed, *source]) if options.samples else None

    def uniforms(self) -> np.ndarray:
        """A number in [0, 1) for every sample that goes on, the same whatever the others do."""
        assert self.rng is not None
        return self.rng.random(self.options.samples)[self.numbers]

    def forced(self, length: int) -> int | None:
        """The token that must come behind ``length`` others, if any."""
        if length < len(self.prefix):
            return self.prefix[length]
        return EOS if length == self.limit else None

    def advance_beam(
        self, candidates: Sequence[tuple[float, int, int, float]], length: int
    ) -> None:
        """One step of beam search: candidates are (total, row, token, log P), best first.

        The k best that do not end go on; those that end compete by their final score. A hypothesis
        that can no more be among the n best is given up: log P only falls, and the penalty of the
        longest possible output is the kindest. All that would come of it lie behind it, so that
        giving it up changes no result.
        """
        k, n_best, alpha = self.options.beam_size, self.options.n_best, self.options.alpha
        before, self.alive, self.parents = self.alive, [], []
        for total, row, token, log_prob in candidates:
            if not total > -math.inf:
                break
            node = _Node(before[row], token, log_prob, total)
            if token == EOS:
                self.finished.append((total / length_penalty(length, alpha), node))
            elif len(self.alive) < k:
                self.alive.append(node)
                self.parents.append(row)
        stuck = (
            not self.alive and not self.finished
        )  # nothing is permitted, or they are not numbers
        if stuck and not any(math.isnan(total) for total, *_ in candidates):
            self.finished.append((before[0].total / length_penalty(length, alpha), before[0]))
        self.finished.sort(key=lambda pair: -pair[0])
        if len(self.finished) >= n_best:
            bar = self.finished[n_best - 1][0] * length_penalty(self.limit + 1, alpha)
            useful = sum(node.total > bar for node in self.alive)
            del self.alive[useful:], self.parents[useful:]

    def advance_samples(
        self, candidates: Sequence[tuple[float, int, int, float]], length: int
    ) -> None:
        """One step of sampling: one candidate for every sample that goes on."""
        before, numbers = self.alive, self.numbers
        self.alive, self.parents, self.numbers = [], [], []
        for (total, row, token, log_prob), number in zip(candidates, numbers, strict=True):
            if total > -math.inf and token != EOS:
                self.alive.append(_Node(before[row], token, log_prob, total))
                self.parents.append(row)
                self.numbers.append(number)
            else:
                node = (
                    before[row] if total == -math.inf else _Node(before[row], EOS, log_prob, total)
                )
                self.finished.append(
                    (node.total / length_penalty(length, self.options.alpha), node)
                )
        self.finished.sort(key=lambda pair: -pair[0])

    def hypotheses(self) -> list[Hypothesis]:
        found = []
        for value, node in self.finished[: self.options.n_best]:
            log_probs = tuple(n.log_prob for n in node.chain())[::-1]
            ids = node.ids()
            if ids[-1:] == [EOS]:  # else it was stuck
                del ids[-1]
            found.append(Hypothesis(ids, value, node.total, log_probs))
        return found or [Hypothesis([], math.nan, math.nan)]  # the logits were not numbers


def _run(
    model: SearchModel, src: Tensor, options: SearchOptions, sentences: list[_Sentence]
) -> list[list[Hypothesis]]:
    """All sentences to their ends; those that are done leave the batch."""
    with torch.autocast(src.device.type, enabled=False):  # a Decoder has its own precision
        active, parents, length = list(sentences), None, 0
        state: Any = model.start(src) if active else None
        while active:
            width = max(len(sentence.alive) for sentence in active)
            tokens = _table([[node.token for node in s.alive] for s in active], width, src.device)
            if options.width > 1 and length > 0:
                parents = _table([sentence.parents for sentence in active], width, src.device)
            logits = model.step(tokens, state, parents)
            candidates = _sample_candidates if options.samples else _beam_candidates
            totals, rows, ids, log_probs = candidates(logits, active, options, length)
            length += 1
            for sentence, *columns in zip(active, totals, rows, ids, log_probs, strict=True):
                step = sentence.advance_samples if options.samples else sentence.advance_beam
                step(list(zip(*columns, strict=True)), length)
            if not all(sentence.alive for sentence in active):
                order = _close_gaps([not sentence.alive for sentence in active])
                active = [active[i] for i in order]
                if active:
                    state.select(order)
    return [sentence.hypotheses() for sentence in sentences]


Candidates = tuple[list[list[Any]], ...]  # totals, rows, tokens and log P, a list a sentence


def _beam_candidates(
    logits: Tensor, active: list[_Sentence], options: SearchOptions, length: int
) -> Candidates:
    """The 2k best ways on of each sentence, as in tensor2tensor: k of them at least do not end."""
    keep = 1 if options.beam_size == 1 else 2 * options.beam_size
    B, w, V = logits.shape
    top, tokens = _top(_constrained_log_probs(logits, active, options, length), min(keep, V))
    log_probs, ids = top.cpu().numpy(), tokens.cpu().numpy()  # [B, w, keep]
    rest = [-math.inf] * w
    before = np.array([[node.total for node in s.alive] + rest[len(s.alive) :] for s in active])
    before = before[:, :, None]
    sums = (log_probs + before).reshape(B, -1)
    if sums.shape[1] == 1:  # greedy
        return sums.tolist(), [[0]] * B, ids[:, 0].tolist(), log_probs[:, 0].tolist()
    order = np.argsort(-sums, axis=1, kind="stable")[:, :keep]
    every = np.arange(B)[:, None]
    log_probs, ids = log_probs.reshape(B, -1)[every, order], ids.reshape(B, -1)[every, order]
    rows = order // (sums.shape[1] // w)
    return sums[every, order].tolist(), rows.tolist(), ids.tolist(), log_probs.tolist()


def _sample_candidates(
    logits: Tensor, active: list[_Sentence], options: SearchOptions, length: int
) -> Candidates:
    """One way on for every sample. A sentence draws alike whatever its company."""
    every = _constrained_log_probs(logits, active, options, length)
    counts = [len(sentence.numbers) for sentence in active]
    b = np.repeat(np.arange(len(active)), counts)
    rows = [[0] * n if length == 0 else list(range(n)) for n in counts]
    r = np.concatenate(rows)
    uniforms = [sentence.uniforms() for sentence in active]
    drawn = every[b, r]  # [draws, V]
    tokens = _sample_token(
        drawn, torch.from_numpy(np.concatenate(uniforms)).to(drawn.device), options
    )
    log_probs = drawn.gather(1, tokens[:, None])[:, 0].tolist()
    before = [s.alive[row].total for s, own in zip(active, rows, strict=True) for row in own]
    totals = [a + b for a, b in zip(before, log_probs, strict=True)]
    ends = np.cumsum(counts).tolist()
    slices = list(zip([0, *ends], ends, strict=False))
    columns = (totals, tokens.tolist(), log_probs)
    totals, ids, log_probs = ([column[i:j] for i, j in slices] for column in columns)
    return totals, rows, ids, log_probs


def _sample_token(logits: Tensor, uniforms: Tensor, options: SearchOptions) -> Tensor:
    """Logits or log P [n, V] and uniforms [n], uniform in [0, 1) -> drawn ids [n]."""
    logits, ids = logits / options.temperature, None
    if options.top_k or options.top_p < 1:
        V = logits.shape[1]
        logits, ids = logits.topk(min(options.top_k or V, V))
    p = logits.double().softmax(dim=-1)
    if options.top_p < 1:
        p[p.cumsum(dim=-1) - p >= options.top_p] = 0
    sums = p.cumsum(dim=-1)
    index = torch.searchsorted(sums, uniforms[:, None] * sums[:, -1:], right=True)
    index = index.clamp(max=sums.shape[1] - 1)
    return (index if ids is None else ids.gather(1, index))[:, 0]


def _constrained_log_probs(
    logits: Tensor, active: list[_Sentence], options: SearchOptions, length: int
) -> Tensor:
    """Logits [B, w, V] -> log P, -inf for what may not come."""
    if options.repetition_penalty != 1:
        used = [
            (b, row, token)
            for b, sentence in enumerate(active)
            for row, node in enumerate(sentence.alive)
            for token in set(node.ids())
        ]
        if used:
            where = tuple(np.array(used).T)
            said, penalty = logits[where], options.repetition_penalty
            logits[where] = torch.where(said > 0, said / penalty, said * penalty)
    log_probs = logits.log_softmax(dim=2)
    forced = [(b, sentence.forced(length)) for b, sentence in enumerate(active)]
    forced = [(b, token) for b, token in forced if token is not None]
    if forced:
        where, token = np.array(forced).T
        said = log_probs[where, :, token]
    log_probs[:, :, :FIRST_OUTPUT_ID] = -torch.inf
    if length < options.min_length:
        log_probs[:, :, EOS] = -torch.inf
    if options.no_repeat_ngram:
        again = [
            (b, row, token)
            for b, sentence in enumerate(active)
            for row, node in enumerate(sentence.alive)
            for token in _repeating(node.ids(), options.no_repeat_ngram)
        ]
        if again:
            log_probs[tuple(np.array(again).T)] = -torch.inf
    if forced:
        log_probs[where] = -torch.inf
        log_probs[where, :, token] = said
    return log_probs


def _repeating(ids: list[int], n: int) -> set[int]:
    """Tokens that would make the last n the same as n before."""
    end = ids[len(ids) - n + 1 :]
    return {ids[i + n - 1] for i in range(len(ids) - n + 1) if ids[i : i + n - 1] == end}


def _top(logits: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The largest ``keep`` of [B, w, V] and where they are, largest first: ``topk``, but sooner.

    Of many numbers, folded into columns of 16, the columns that hold the largest come first.
    """
    if keep == 1:
        values, index = logits.max(dim=2, keepdim=True)
        return values, index
    B, w, V = logits.shape
    folds = math.gcd(V, 16)
    columns = V // folds
    if columns <= keep or logits.numel() < 2**16:
        values, index = logits.topk(keep)
        return values, index
    folded = logits.view(B, w, folds, columns)
    column = folded.amax(dim=2).topk(keep).indices  # [B, w, keep]
    few = folded.gather(3, column[:, :, None].expand(-1, -1, folds, -1)).flatten(2)
    values, index = few.topk(keep)
    return values, index // keep * columns + column.gather(2, index % keep)


def _table(rows: list[list[int]], width: int, device: torch.device) -> Tensor:
    return torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)


def _close_gaps(done: list[bool]) -> list[int]:
    """Which sentence comes to each place, so that few move: the last ones fill the gaps."""
    left = done.count(False)
    last = (i for i in range(left, len(done)) if not done[i])
    return [next(last) if done[i] else i for i in range(left)]
