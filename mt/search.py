"""Greedy and beam search (6.1): source ids in, target ids out, one token a step with the cache.

Shapes: B sentences, S source length, k beam size, R = B * k rows, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

PAD, UNK, BOS, EOS = 0, 1, 2, 3  # as in mt.tokenizer
NEVER = [PAD, UNK, BOS]  # these ids never stand in a translation
MAX_EXTRA = 50  # an output is at most this many tokens longer than its input (6.1)


class Model(Protocol):
    """What the search asks of a model; ``mt.model.Transformer`` is one, and says what each does.

    The state of a model has ``select(rows, sentences)`` as ``mt.model.DecoderState`` has it.
    """

    def start(self, src: Tensor) -> Any: ...

    def step(self, tokens: Tensor, state: Any) -> Tensor: ...


@dataclass(frozen=True)
class SearchOptions:
    """How to search. ``beam_size`` 1 is greedy; the paper's is 4 with ``alpha`` 0.6.

    A hypothesis is scored by log P / ((5 + length) / 6) ** alpha, eos counted in its length
    (Wu et al. 2016, equation 14). Raises ValueError on a value that makes no sense.
    """

    beam_size: int = 4
    alpha: float = 0.6
    n_best: int = 1

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")
        if not isinstance(self.alpha, int | float) or not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha={self.alpha!r}: must be a number of at least 0")
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best={self.n_best}: must not exceed beam_size={self.beam_size}")


class Hypothesis(NamedTuple):
    ids: list[int]  # without bos and eos
    score: float  # log P over the length penalty
    log_prob: float  # natural logarithm of P(ids, eos | source)


@torch.inference_mode()
def search(model: Model, src: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Translate source ids [B, S], padded behind: for each sentence its ``n_best``, best first.

    An output has at most as many tokens as its input plus MAX_EXTRA, eos not counted on either
    side; there the hypothesis is closed with eos.
    """
    if options.beam_size == 1:
        return _greedy(model, src, options.alpha)
    return _beam(model, src, options)


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    return ((5.0 + torch.as_tensor(length)) / 6.0) ** alpha


def _max_lengths(src: Tensor) -> Tensor:
    return (src != PAD).sum(dim=1) - 1 + MAX_EXTRA  # [B]; the input's eos is not counted


def _log_probs(logits: Tensor, at_limit: Tensor) -> Tensor:
    """Logits [B, k, V] -> float32 log-probabilities; only eos stays where ``at_limit`` [B]."""
    log_probs = logits.float().log_softmax(dim=-1)
    log_probs[..., NEVER] = -torch.inf
    if at_limit.any():
        eos = log_probs[..., EOS].clone()
        log_probs.masked_fill_(at_limit[:, None, None], -torch.inf)
        log_probs[..., EOS] = eos
    return log_probs


def _greedy(model: Model, src: Tensor, alpha: float) -> list[list[Hypothesis]]:
    """The likeliest token at every step, until it is eos."""
    state = model.start(src)
    limits = _max_lengths(src)
    sentences = torch.arange(len(src), device=src.device)  # which sentence each row is
    tokens = torch.full_like(sentences, BOS)
    total = torch.zeros(len(src), device=src.device)
    outputs: list[list[int]] = [[] for _ in range(len(src))]
    log_prob = [0.0] * len(src)
    length = 0
    while len(sentences):
        log_probs = _log_probs(model.step(tokens, state)[:, None], limits == length)[:, 0]
        best, tokens = log_probs.max(dim=-1)
        total += best
        for sentence, token, value in zip(
            sentences.tolist(), tokens.tolist(), total.tolist(), strict=True
        ):
            log_prob[sentence] = value
            if token != EOS:
                outputs[sentence].append(token)
        length += 1
        going = (tokens != EOS).nonzero()[:, 0]
        if len(going) < len(sentences):
            state.select(going, going)
            sentences, tokens, total, limits = (
                x[going] for x in (sentences, tokens, total, limits)
            )
    return [
        [Hypothesis(ids, value / float(length_penalty(len(ids) + 1, alpha)), value)]
        for ids, value in zip(outputs, log_prob, strict=True)
    ]


def _beam(model: Model, src: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Beam search over 2k candidates a step, as in tensor2tensor.

    The k best that do not end go on; any that end compete for k places by their final score. A
    sentence is finished when no going hypothesis can still beat its worst wanted one: log P only
    falls, and the penalty of the longest possible output is the kindest.
    """
    k, alpha = options.beam_size, options.alpha
    B, device = len(src), src.device
    state = model.start(src)
    state.select(torch.arange(B, device=device).repeat_interleave(k))
    limits = _max_lengths(src)
    sentences = torch.arange(B, device=device)
    ids = torch.full((B, k, 1), BOS, device=device)
    alive = torch.full((B, k), -torch.inf, device=device)
    alive[:, 0] = 0.0  # the k rows start equal: one of them counts
    ended_ids = ids
    ended_score = torch.full((B, k), -torch.inf, device=device)
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    length = 0
    while len(sentences):
        B = len(sentences)
        logits = model.step(ids[:, :, -1].flatten(), state).view(B, k, -1)
        V = logits.shape[-1]
        totals = alive[:, :, None] + _log_probs(logits, limits == length)
        values, index = totals.flatten(1).topk(min(2 * k, k * V))  # [B, 2k]
        parent, token = index // V, index % V
        length += 1
        grown = torch.cat((_rows(ids, parent), token[:, :, None]), dim=2)  # [B, 2k, length + 1]
        ends = token == EOS

        scores = (values / length_penalty(length, alpha)).masked_fill(~ends, -torch.inf)
        scores = torch.cat((ended_score, scores), dim=1)
        unended = torch.full_like(ended_ids[:, :, :1], PAD)
        candidates = torch.cat((torch.cat((ended_ids, unended), dim=2), grown), dim=1)
        ended_score, chosen = scores.topk(k)
        ended_ids = _rows(candidates, chosen)

        alive, chosen = values.masked_fill(ends, -torch.inf).topk(k)
        ids = _rows(grown, chosen)
        parent = parent.gather(1, chosen)

        attainable = alive[:, 0] / length_penalty(limits + 1, alpha)
        done = (ended_score[:, options.n_best - 1] >= attainable) | (limits < length)
        rows = parent + torch.arange(B, device=device)[:, None] * k
        if done.any():
            for b in done.nonzero()[:, 0].tolist():
                results[int(sentences[b])] = [
                    _hypothesis(ended_ids[b, i], ended_score[b, i], alpha)
                    for i in range(options.n_best)
                    if ended_score[b, i] > -torch.inf
                ] or [Hypothesis([], math.nan, math.nan)]  # the logits were not numbers
            going = (~done).nonzero()[:, 0]
            state.select(rows[going].flatten(), going)
            sentences, limits, ids, alive, ended_ids, ended_score = (
                x[going] for x in (sentences, limits, ids, alive, ended_ids, ended_score)
            )
        else:
            state.select(rows.flatten())
    return results


def _rows(ids: Tensor, index: Tensor) -> Tensor:
    """ids [B, m, length], index [B, j] -> [B, j, length]."""
    return ids.gather(1, index[:, :, None].expand(-1, -1, ids.shape[2]))


def _hypothesis(ids: Tensor, score: Tensor, alpha: float) -> Hypothesis:
    inner = ids.tolist()[1:]  # bos goes
    inner = inner[: inner.index(EOS)]
    penalty = float(length_penalty(len(inner) + 1, alpha))
    return Hypothesis(inner, float(score), float(score) * penalty)
