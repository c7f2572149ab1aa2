"""What may come next: the best or the drawn next tokens of each sentence, under its constraints.

Shapes: as in ``mt.inference.beam_search``; each function serves sentences of the same options.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mt.data.special_ids import EOS, FIRST_OUTPUT_ID
from mt.inference.options import SearchOptions
from mt.inference.required_tokens import RequiredTokens
from mt.inference.sentence_search import Candidate, ConstrainedSearch, SentenceSearch

BestTokens = Callable[[Tensor, int, list[bool]], tuple[np.ndarray, np.ndarray]]
"""(logits [B, w, V], k, which sentences must not end) -> log P and ids of the k best [B, w, k]."""


def find_candidates(
    logits: Tensor, active: list[SentenceSearch], best_tokens: BestTokens | None = None
) -> list[list[Candidate]]:
    """The candidates of each sentence from the logits [B, w, V] of its hypotheses, best first.

    ``best_tokens`` serves the sentences where nothing but a least length constrains the tokens; it
    may destroy the logits.
    """
    groups: dict[tuple[int, bool], list[int]] = {}
    for b, sentence in enumerate(active):
        is_free = best_tokens is not None and _is_free(sentence)
        groups.setdefault((id(sentence.options), is_free), []).append(b)
    if len(groups) == 1:
        [(_, is_free)] = groups
        return _find_alike(logits, active, best_tokens if is_free else None)
    candidates: list[list[Candidate]] = [[] for _ in active]
    for (_, is_free), rows in groups.items():
        alike = [active[b] for b in rows]
        width = max(len(sentence.alive) for sentence in alike)
        candidates_of_rows = _find_alike(
            logits[rows, :width], alike, best_tokens if is_free else None
        )
        for b, sentence_candidates in zip(rows, candidates_of_rows, strict=True):
            candidates[b] = sentence_candidates
    return candidates


def _is_free(sentence: SentenceSearch) -> bool:
    """Whether nothing but a least length constrains the next token of a beam search."""
    options = sentence.options
    return (
        options.is_beam_search
        and options.repetition_penalty == 1
        and not options.no_repeat_ngram
        and sentence.forced() is None
        and not isinstance(sentence, ConstrainedSearch)
    )


def _find_alike(
    logits: Tensor, active: list[SentenceSearch], best_tokens: BestTokens | None
) -> list[list[Candidate]]:
    options = active[0].options
    # The 2k best candidates of each sentence, as in tensor2tensor: at least k do not end.
    keep = 1 if options.beam_size == 1 else 2 * options.beam_size
    k = min(keep, logits.shape[2])
    if best_tokens is not None:
        short = [sentence.length < options.min_length for sentence in active]
        return _beam_candidates(*best_tokens(logits, k, short), active, keep)
    required = RequiredTokens.of(active)
    log_probs = _constrained_log_probs(logits, active, options, required)
    if not options.is_beam_search:
        return _independent_candidates(log_probs, active, options)
    top, tokens = _top_k(log_probs, k)
    ids = tokens.cpu().numpy()
    candidates = _beam_candidates(top.cpu().numpy(), ids, active, keep)
    return candidates if required is None else required.add_to(candidates, log_probs, ids)


def _beam_candidates(
    top_log_probs: np.ndarray, ids: np.ndarray, active: list[SentenceSearch], keep: int
) -> list[list[Candidate]]:
    """The ``keep`` best candidates of each sentence, of the best [B, w, k] of its hypotheses."""
    B, w, _ = ids.shape
    empty_rows = [-math.inf] * w
    before = [[node.total for node in s.alive] + empty_rows[len(s.alive) :] for s in active]
    totals = (top_log_probs + np.array(before)[:, :, None]).reshape(B, -1)
    rows = np.zeros((B, 1), dtype=np.int64)
    if totals.shape[1] > 1:  # not greedy
        order = np.argsort(-totals, axis=1, kind="stable")[:, :keep]
        sentences, rows = np.arange(B)[:, None], order // (totals.shape[1] // w)
        totals, ids, top_log_probs = (
            x.reshape(B, -1)[sentences, order] for x in (totals, ids, top_log_probs)
        )
    columns = [x.reshape(B, -1).tolist() for x in (totals, rows, ids, top_log_probs)]
    candidates = [list(zip(*sentence, strict=True)) for sentence in zip(*columns, strict=True)]
    return candidates


def _independent_candidates(
    log_probs: Tensor, active: list[SentenceSearch], options: SearchOptions
) -> list[list[Candidate]]:
    """One candidate for each living hypothesis, which knows nothing of the others."""
    counts = [len(sentence.numbers) for sentence in active]
    b = np.repeat(np.arange(len(active)), counts)
    # All hypotheses begin in the only row of the first step.
    rows = [
        row for s in active for row in (range(len(s.numbers)) if s.length else [0] * options.width)
    ]
    own_log_probs = log_probs[b, rows]  # [hypotheses, V]
    if options.samples:
        # What a sentence draws does not depend on the batch.
        uniforms = torch.from_numpy(np.concatenate([sentence.uniforms() for sentence in active]))
        tokens = _sample_token(own_log_probs, uniforms.to(own_log_probs.device), options)
    else:
        ranks = [rank for sentence in active for rank in sentence.ranks()]
        top = own_log_probs.topk(min(max(ranks) + 1, own_log_probs.shape[1])).indices
        index = torch.tensor(ranks, device=top.device)[:, None].clamp(max=top.shape[1] - 1)
        tokens = top.gather(1, index)[:, 0]
    token_log_probs = own_log_probs.gather(1, tokens[:, None])[:, 0].tolist()
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
    logits: Tensor,
    active: list[SentenceSearch],
    options: SearchOptions,
    required: RequiredTokens | None,
) -> Tensor:
    """Logits [B, w, V] -> log P, -inf for tokens that must not come next."""
    if options.repetition_penalty != 1:
        _penalise_repetition(logits, active, options.repetition_penalty)
    log_probs = logits.log_softmax(dim=2)
    forced = [(b, sentence.forced()) for b, sentence in enumerate(active)]
    forced = [(b, token) for b, token in forced if token is not None]
    if forced:
        forced_rows, tokens = np.array(forced).T
        forced_log_probs = log_probs[forced_rows, :, tokens]
    if required is not None:
        required.read(log_probs)
    log_probs[:, :, :FIRST_OUTPUT_ID] = -torch.inf
    if options.min_length:
        short = [b for b, sentence in enumerate(active) if sentence.length < options.min_length]
        log_probs[short if len(short) < len(active) else slice(None), :, EOS] = -torch.inf
    if options.no_repeat_ngram:
        _forbid_repeated_ngrams(log_probs, active, options.no_repeat_ngram)
    if required is not None:
        required.constrain(log_probs)
    if forced:  # a forced token overrides the other constraints
        log_probs[forced_rows] = -torch.inf
        log_probs[forced_rows, :, tokens] = forced_log_probs
    return log_probs


def _penalise_repetition(logits: Tensor, active: list[SentenceSearch], penalty: float) -> None:
    """Make the tokens of each hypothesis less likely to come again (Keskar et al. 2019)."""
    index = _token_index(active, set)
    used = logits[index]
    logits[index] = torch.where(used > 0, used / penalty, used * penalty)


def _forbid_repeated_ngrams(log_probs: Tensor, active: list[SentenceSearch], n: int) -> None:
    log_probs[_token_index(active, partial(_repeating_tokens, n=n))] = -torch.inf


def _token_index(
    active: list[SentenceSearch], select_tokens: Callable[[list[int]], set[int]]
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
    if k == 1 and log_probs.device.type == "cpu":  # PyTorch's own is not vectorised
        index = torch.from_numpy(log_probs.numpy().argmax(axis=2, keepdims=True))
        return log_probs.gather(2, index), index
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
