"""Greedy search, beam search and sampling (6.1): source ids in, target ids out, token by token.

The model computes with tensors. The search keeps its hypotheses in plain Python, so that a step
reads like the algorithm.

Shapes: B sentences still active, w hypotheses of each, S source length, V vocabulary.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from mt.data.special_ids import BOS, EOS, FIRST_OUTPUT_ID, PAD
from mt.inference.options import MAX_EXTRA, SearchOptions


class SearchModel(Protocol):
    """What the search needs of a model, as ``mt.inference.incremental.InferenceModel`` has it.

    The state that ``start`` returns has a method ``select(order)``, as ``incremental.State`` has.
    """

    def start(self, src: Tensor) -> Any: ...

    def step(self, tokens: Tensor, state: Any, parents: Tensor | None = None) -> Tensor: ...


class Hypothesis(NamedTuple):
    ids: list[int]  # without bos and eos
    score: float  # log P divided by the length penalty
    log_prob: float  # natural logarithm of P(ids, eos | source)
    token_log_probs: tuple[float, ...] = ()  # log P of each token given those before it; eos last


@torch.inference_mode()
def search(
    model: SearchModel,
    src: Tensor,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Translate source ids [B, S], padded at the end: the ``n_best`` of each sentence, best first.

    An output has at most as many tokens as its input plus MAX_EXTRA (or ``max_length``), neither
    counting eos; at that length the search closes it with eos. ``prefixes`` has the ids with which
    each output must begin. A forced token costs its log P like any other.
    """
    lengths = ((src != PAD).sum(dim=1) - 1).tolist()  # the input's eos is not counted
    prefixes = prefixes or [()] * len(lengths)
    sentences = []
    for b, (length, prefix) in enumerate(zip(lengths, prefixes, strict=True)):
        limit = options.max_length
        if limit is None:
            limit = max(length + MAX_EXTRA, options.min_length)
        source = src[b, : length + 1].tolist() if options.samples else []
        sentences.append(_SentenceSearch(options, max(limit, len(prefix)), prefix, source))
    return _decode(model, src, options, sentences)


@torch.inference_mode()
def score(
    model: SearchModel, src: Tensor, outputs: Sequence[Sequence[int]], alpha: float = 0.6
) -> list[Hypothesis]:
    """Score given outputs, ids without eos, one for each source of ``src`` [B, S]."""
    options = SearchOptions(beam_size=1, alpha=alpha)
    sentences = [_SentenceSearch(options, len(output), output, []) for output in outputs]
    return [hypotheses[0] for hypotheses in _decode(model, src, options, sentences)]


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14); ``length`` counts eos."""
    return ((5.0 + length) / 6.0) ** alpha


class _Node(NamedTuple):
    """A hypothesis: one token more than its parent."""

    parent: "_Node | None"
    token: int
    log_prob: float  # of this token
    total: float  # of all tokens up to this one

    def path(self) -> "Iterator[_Node]":
        """This node and its ancestors, last token first, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def ids(self) -> list[int]:
        return [node.token for node in self.path()][::-1]


Candidate = tuple[float, int, int, float]  # total log P, row of its parent, token, log P of that


class _SentenceSearch:
    """The hypotheses of one sentence, alive and finished, each kind best first."""

    def __init__(
        self, options: SearchOptions, limit: int, prefix: Sequence[int], source: list[int]
    ) -> None:
        self.options, self.limit, self.prefix = options, limit, prefix
        self.alive = [_Node(None, BOS, 0.0, 0.0)]
        self.parents = [0]  # the row of the step before that each living hypothesis continues
        self.sample_ids = list(range(options.samples))  # which sample each living hypothesis is
        self.finished: list[tuple[float, _Node]] = []
        self.rng = np.random.default_rng([options.seed, *source]) if options.samples else None

    def uniforms(self) -> np.ndarray:
        """A number in [0, 1) for each living sample; finished samples do not change it."""
        assert self.rng is not None
        return self.rng.random(self.options.samples)[self.sample_ids]

    def forced(self, length: int) -> int | None:
        """The token that must follow the first ``length`` tokens, if any."""
        if length < len(self.prefix):
            return self.prefix[length]
        return EOS if length == self.limit else None

    def advance_beam(self, candidates: Sequence[Candidate], length: int) -> None:
        """One step of beam search, with the candidates best first.

        Living hypotheses are ranked by log P, and the k best stay alive. Finished ones are ranked
        by log P / penalty. A living hypothesis is dropped when even its log P of now, divided by
        the largest penalty that it could get, is not above the n-th best finished score. This
        changes no result, because log P only falls.
        """
        k, n_best, alpha = self.options.beam_size, self.options.n_best, self.options.alpha
        before, self.alive, self.parents = self.alive, [], []
        for total, row, token, log_prob in candidates:
            if not total > -math.inf:
                break
            node = _Node(before[row], token, log_prob, total)
            if token == EOS:
                self._finish(node, length)
            elif len(self.alive) < k:
                self.alive.append(node)
                self.parents.append(row)
        if not (self.alive or self.finished or any(math.isnan(total) for total, *_ in candidates)):
            self._finish(before[0], length)  # no token is permitted
        self.finished.sort(key=lambda pair: -pair[0])
        if len(self.finished) >= n_best:
            bar = self.finished[n_best - 1][0] * length_penalty(self.limit + 1, alpha)
            useful = sum(node.total > bar for node in self.alive)
            del self.alive[useful:], self.parents[useful:]

    def advance_samples(self, candidates: Sequence[Candidate], length: int) -> None:
        """One step of sampling, with one candidate for each living sample."""
        before, sample_ids = self.alive, self.sample_ids
        self.alive, self.parents, self.sample_ids = [], [], []
        for (total, row, token, log_prob), sample_id in zip(candidates, sample_ids, strict=True):
            if total > -math.inf and token != EOS:
                self.alive.append(_Node(before[row], token, log_prob, total))
                self.parents.append(row)
                self.sample_ids.append(sample_id)
            elif total == -math.inf:  # no token is permitted
                self._finish(before[row], length)
            else:  # eos, or the logits are not numbers
                self._finish(_Node(before[row], EOS, log_prob, total), length)
        self.finished.sort(key=lambda pair: -pair[0])

    def _finish(self, node: _Node, length: int) -> None:
        score = node.total / length_penalty(length, self.options.alpha)
        self.finished.append((score, node))

    def hypotheses(self) -> list[Hypothesis]:
        n_best = []
        for score, node in self.finished[: self.options.n_best]:
            log_probs = tuple(step.log_prob for step in node.path())[::-1]
            ids = node.ids()
            if ids[-1:] == [EOS]:  # missing where no token was permitted
                del ids[-1]
            n_best.append(Hypothesis(ids, score, node.total, log_probs))
        return n_best or [Hypothesis([], math.nan, math.nan)]  # the logits were not numbers


def _decode(
    model: SearchModel, src: Tensor, options: SearchOptions, sentences: list[_SentenceSearch]
) -> list[list[Hypothesis]]:
    """Decode a batch until every sentence is finished; finished sentences leave the batch."""
    if options.samples:
        find_candidates, advance = _sample_candidates, _SentenceSearch.advance_samples
    else:
        find_candidates, advance = _beam_candidates, _SentenceSearch.advance_beam
    with torch.autocast(src.device.type, enabled=False):  # an InferenceModel has its own precision
        active, parents, length = list(sentences), None, 0
        state: Any = model.start(src) if active else None
        while active:
            width = max(len(sentence.alive) for sentence in active)
            tokens = _table([[node.token for node in s.alive] for s in active], width, src.device)
            if options.width > 1 and length > 0:
                parents = _table([sentence.parents for sentence in active], width, src.device)
            logits = model.step(tokens, state, parents)
            candidates = find_candidates(logits, active, options, length)
            length += 1
            for sentence, sentence_candidates in zip(active, candidates, strict=True):
                advance(sentence, sentence_candidates, length)
            if not all(sentence.alive for sentence in active):
                order = _close_gaps([not sentence.alive for sentence in active])
                active = [active[i] for i in order]
                if active:
                    state.select(order)
    return [sentence.hypotheses() for sentence in sentences]


def _beam_candidates(
    logits: Tensor, active: list[_SentenceSearch], options: SearchOptions, length: int
) -> list[list[Candidate]]:
    """The 2k best candidates of each sentence, as in tensor2tensor: at least k do not end."""
    keep = 1 if options.beam_size == 1 else 2 * options.beam_size
    B, w, V = logits.shape
    top, tokens = _top_k(_constrained_log_probs(logits, active, options, length), min(keep, V))
    log_probs, ids = top.cpu().numpy(), tokens.cpu().numpy()  # [B, w, keep]
    empty_rows = [-math.inf] * w
    before = [[node.total for node in s.alive] + empty_rows[len(s.alive) :] for s in active]
    totals = (log_probs + np.array(before)[:, :, None]).reshape(B, -1)
    rows = np.zeros((B, 1), dtype=np.int64)
    if totals.shape[1] > 1:  # not greedy
        order = np.argsort(-totals, axis=1, kind="stable")[:, :keep]
        b, rows = np.arange(B)[:, None], order // (totals.shape[1] // w)
        totals, ids, log_probs = (x.reshape(B, -1)[b, order] for x in (totals, ids, log_probs))
    columns = [x.reshape(B, -1).tolist() for x in (totals, rows, ids, log_probs)]
    return [list(zip(*sentence, strict=True)) for sentence in zip(*columns, strict=True)]


def _sample_candidates(
    logits: Tensor, active: list[_SentenceSearch], options: SearchOptions, length: int
) -> list[list[Candidate]]:
    """One candidate for each living sample. What a sentence draws does not depend on the batch."""
    counts = [len(sentence.sample_ids) for sentence in active]
    rows = [row for n in counts for row in (range(n) if length > 0 else [0] * n)]
    b = np.repeat(np.arange(len(active)), counts)
    uniforms = torch.from_numpy(np.concatenate([sentence.uniforms() for sentence in active]))
    log_probs = _constrained_log_probs(logits, active, options, length)[b, rows]  # [samples, V]
    tokens = _sample_token(log_probs, uniforms.to(log_probs.device), options)
    token_log_probs = log_probs.gather(1, tokens[:, None])[:, 0].tolist()
    before = [active[i].alive[row].total for i, row in zip(b, rows, strict=True)]
    totals = [total + log_prob for total, log_prob in zip(before, token_log_probs, strict=True)]
    candidates = list(zip(totals, rows, tokens.tolist(), token_log_probs, strict=True))
    bounds = itertools.pairwise([0, *np.cumsum(counts).tolist()])
    return [candidates[start:end] for start, end in bounds]


def _sample_token(logits: Tensor, uniforms: Tensor, options: SearchOptions) -> Tensor:
    """Logits or log P [n, V] and numbers [n] uniform in [0, 1) -> sampled ids [n]."""
    logits, ids = logits / options.temperature, None
    if options.top_k or options.top_p < 1:
        V = logits.shape[1]
        logits, ids = logits.topk(min(options.top_k or V, V))
    probs = logits.double().softmax(dim=-1)
    if options.top_p < 1:
        probs[probs.cumsum(dim=-1) - probs >= options.top_p] = 0
    cumulative = probs.cumsum(dim=-1)
    index = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    index = index.clamp(max=cumulative.shape[1] - 1)
    return (index if ids is None else ids.gather(1, index))[:, 0]


def _constrained_log_probs(
    logits: Tensor, active: list[_SentenceSearch], options: SearchOptions, length: int
) -> Tensor:
    """Logits [B, w, V] -> log P, -inf for tokens that must not come next."""
    if options.repetition_penalty != 1:
        _penalise_repetition(logits, active, options.repetition_penalty)
    log_probs = logits.log_softmax(dim=2)
    forced = [(b, sentence.forced(length)) for b, sentence in enumerate(active)]
    forced = [(b, token) for b, token in forced if token is not None]
    if forced:
        forced_rows, tokens = np.array(forced).T
        forced_log_probs = log_probs[forced_rows, :, tokens]
    log_probs[:, :, :FIRST_OUTPUT_ID] = -torch.inf
    if length < options.min_length:
        log_probs[:, :, EOS] = -torch.inf
    if options.no_repeat_ngram:
        _forbid_repeated_ngrams(log_probs, active, options.no_repeat_ngram)
    if forced:  # a forced token overrides the other constraints
        log_probs[forced_rows] = -torch.inf
        log_probs[forced_rows, :, tokens] = forced_log_probs
    return log_probs


def _penalise_repetition(logits: Tensor, active: list[_SentenceSearch], penalty: float) -> None:
    """Make the tokens of each hypothesis less likely to come again (Keskar et al. 2019)."""
    index = _token_index(active, set)
    used = logits[index]
    logits[index] = torch.where(used > 0, used / penalty, used * penalty)


def _forbid_repeated_ngrams(log_probs: Tensor, active: list[_SentenceSearch], n: int) -> None:
    log_probs[_token_index(active, partial(_repeating_tokens, n=n))] = -torch.inf


def _token_index(
    active: list[_SentenceSearch], select_tokens: Callable[[list[int]], set[int]]
) -> tuple[np.ndarray, ...]:
    """The index into [B, w, V] of the tokens selected for each hypothesis by its ids."""
    index = [
        (b, row, token)
        for b, sentence in enumerate(active)
        for row, node in enumerate(sentence.alive)
        for token in select_tokens(node.ids())
    ]
    return tuple(np.array(index, dtype=np.int64).reshape(-1, 3).T)


def _repeating_tokens(ids: list[int], n: int) -> set[int]:
    """The tokens after which the last n ids would repeat n earlier ones."""
    end = ids[len(ids) - n + 1 :]
    return {ids[i + n - 1] for i in range(len(ids) - n + 1) if ids[i : i + n - 1] == end}


def _top_k(log_probs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of [B, w, V] and their indices, largest first: faster than ``topk`` alone.

    Folds V into columns of 16 numbers and searches only the k columns with the largest maxima.
    """
    if k == 1:
        values, index = log_probs.max(dim=2, keepdim=True)
        return values, index
    B, w, V = log_probs.shape
    folds = math.gcd(V, 16)
    columns = V // folds
    if columns <= k or log_probs.numel() < 2**16:
        values, index = log_probs.topk(k)
        return values, index
    folded = log_probs.view(B, w, folds, columns)
    column = folded.amax(dim=2).topk(k).indices  # [B, w, k]
    candidates = folded.gather(3, column[:, :, None].expand(-1, -1, folds, -1)).flatten(2)
    values, index = candidates.topk(k)
    return values, index // k * columns + column.gather(2, index % k)


def _table(rows: list[list[int]], width: int, device: torch.device) -> Tensor:
    return torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)


def _close_gaps(finished: list[bool]) -> list[int]:
    """Which sentence takes each place, so that few move: the last ones fill the gaps."""
    remaining = finished.count(False)
    last = (i for i in range(remaining, len(finished)) if not finished[i])
    return [next(last) if finished[i] else i for i in range(remaining)]
