"""The hypotheses of one sentence: which stay alive, which are finished, and their scores."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mt.data.special_ids import BOS, EOS
from mt.inference.constraints import Constraints, ConstraintState
from mt.inference.options import MAX_EXTRA, SearchOptions

Candidate = tuple[float, int, int, float]  # total log P, row of its parent, token, log P of that


class Hypothesis(NamedTuple):
    ids: list[int]  # without bos and eos
    score: float  # log P divided by the length penalty
    log_prob: float  # natural logarithm of P(ids, eos | source)
    token_log_probs: tuple[float, ...] = ()  # log P of each token given those before it; eos last


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


class SentenceSearch:
    """The hypotheses of one sentence, alive and finished, each kind best first.

    ``source`` are the ids that choose its random numbers, ``limit`` is the most tokens that an
    output may have, without eos.
    """

    def __init__(
        self, options: SearchOptions, limit: int, prefix: Sequence[int], source: list[int]
    ) -> None:
        self.options, self.limit, self.prefix = options, limit, prefix
        self.length = 0  # steps taken: tokens of each living hypothesis
        self.alive = [_Node(None, BOS, 0.0, 0.0)]
        self.parents = [0]  # the row of the step before that each living hypothesis continues
        # Which sample, or which alternative, each living hypothesis is; none in beam search.
        self.numbers = list(range(options.samples or options.alternatives))
        self.finished: list[tuple[float, _Node]] = []
        self.rng = np.random.default_rng([options.seed, *source]) if options.samples else None
        self.largest_penalty = length_penalty(limit + 1, options.alpha)  # that a score can have

    @classmethod
    def begin(
        cls,
        source: list[int],
        options: SearchOptions,
        prefix: Sequence[int] = (),
        constraints: Constraints | None = None,
    ) -> "SentenceSearch":
        """The search for a translation of ``source``, ids without eos, as ``search`` describes."""
        limit = options.max_length
        if limit is None:
            limit = max(len(source) + MAX_EXTRA, options.min_length)
        if constraints is None:
            return cls(options, max(limit, len(prefix)), prefix, [*source, EOS])
        options.check_terms()
        if options.max_length is None:  # a hypothesis that lacks a term would use all of it
            usual = 2 * len(source) + 10 + constraints.fewest_tokens
            limit = max(min(limit, usual), options.min_length)
        limit = max(limit, len(prefix) + constraints.fewest_after(prefix))
        return ConstrainedSearch(_widened(options), limit, prefix, [*source, EOS], constraints)

    def uniforms(self) -> np.ndarray:
        """A number in [0, 1) for each living sample; finished samples do not change it."""
        assert self.rng is not None
        return self.rng.random(self.options.samples)[self.numbers]

    def ranks(self) -> list[int]:
        """The rank of the next token of each living alternative: they differ where they part."""
        parting = self.length == len(self.prefix) and self.forced() is None
        return self.numbers if parting else [0] * len(self.numbers)

    def forced(self) -> int | None:
        """The token that must come next, if any."""
        if self.length < len(self.prefix):
            return self.prefix[self.length]
        return EOS if self.length == self.limit else None

    def advance(self, candidates: Sequence[Candidate]) -> None:
        """Take a step with the candidates for it, best first."""
        self.length += 1
        if self.options.is_beam_search:
            self._advance_beam(candidates)
        else:
            self._advance_independent(candidates)

    def _advance_beam(self, candidates: Sequence[Candidate]) -> None:
        """One step of beam search.

        Living hypotheses are ranked by log P, and the k best stay alive. Finished ones are ranked
        by log P / penalty. A living hypothesis is dropped when it cannot score above the n-th best
        finished one any more. This changes no result.
        """
        k, n_best = self.options.beam_size, self.options.n_best
        before, self.alive, self.parents = self.alive, [], []
        for total, row, token, log_prob in candidates:
            if not total > -math.inf:
                break
            node = _Node(before[row], token, log_prob, total)
            if token == EOS:
                self._finish(node)
            elif len(self.alive) < k:
                self.alive.append(node)
                self.parents.append(row)
        if not (self.alive or self.finished or any(math.isnan(total) for total, *_ in candidates)):
            self._finish(before[0])  # no token is permitted
        self.finished.sort(key=lambda pair: -pair[0])
        if len(self.finished) >= n_best:
            bar = self.finished[n_best - 1][0]
            useful = [self._can_exceed(bar, node) for node in self.alive]
            self.alive = list(itertools.compress(self.alive, useful))
            self.parents = list(itertools.compress(self.parents, useful))

    def _can_exceed(self, score: float, node: _Node) -> bool:
        """Whether a living hypothesis can get more than a score: log P only falls."""
        return node.total / self.largest_penalty > score

    def _advance_independent(self, candidates: Sequence[Candidate]) -> None:
        """One step of samples or alternatives, with one candidate for each that is alive."""
        before, numbers = self.alive, self.numbers
        self.alive, self.parents, self.numbers = [], [], []
        for (total, row, token, log_prob), number in zip(candidates, numbers, strict=True):
            if total > -math.inf and token != EOS:
                self.alive.append(_Node(before[row], token, log_prob, total))
                self.parents.append(row)
                self.numbers.append(number)
            elif total == -math.inf:  # no token is permitted
                parting = self.options.alternatives and self.length == len(self.prefix) + 1
                if number == 0 or not parting:  # otherwise there are not so many alternatives
                    self._finish(before[row])
            else:  # eos, or the logits are not numbers
                self._finish(_Node(before[row], EOS, log_prob, total))
        self.finished.sort(key=lambda pair: -pair[0])

    def _finish(self, node: _Node) -> None:
        score = node.total / length_penalty(self.length, self.options.alpha)
        self.finished.append((score, node))

    def best_ids(self) -> list[int]:
        """The ids of the best hypothesis up to now, finished or not."""
        nodes = [node for _, node in self.finished[:1]] or self.alive[:1]
        return [token for token in nodes[0].ids() if token != EOS]

    def hypotheses(self) -> list[Hypothesis]:
        n_best = []
        for score, node in self.finished[: self.options.n_best]:
            log_probs = tuple(step.log_prob for step in node.path())[::-1]
            ids = node.ids()
            if ids[-1:] == [EOS]:  # missing where no token was permitted
                del ids[-1]
            n_best.append(Hypothesis(ids, score, node.total, log_probs))
        return n_best or [Hypothesis([], math.nan, math.nan)]  # the logits were not numbers


WIDER, LEAST_BEAM = 1.5, 4  # a beam with constraints: relative to the one without, and at least


@lru_cache(maxsize=4096)
def _widened(options: SearchOptions) -> SearchOptions:
    """The options with a wider beam: hypotheses with and without the terms share it."""
    return replace(options, beam_size=max(round(WIDER * options.beam_size), LEAST_BEAM))


class ConstrainedSearch(SentenceSearch):
    """The hypotheses of a sentence whose translation has constraints.

    The beam is divided among banks of hypotheses that have as many terms. Two costs are not what
    they are in other searches, because all hypotheses have to pay for the terms. In a score, the
    log P of the terms is divided by the penalty of the source's length: else a long hypothesis
    would dilute it. And what a form costs after its first token does not count until it is whole:
    else those which are about to begin it would push out those which have paid.
    """

    def __init__(
        self,
        options: SearchOptions,
        limit: int,
        prefix: Sequence[int],
        source: list[int],
        constraints: Constraints,
    ) -> None:
        super().__init__(options, limit, prefix, source)
        self.constraints = constraints
        self.source_penalty = length_penalty(len(source), options.alpha)
        self.largest_penalty = max(self.largest_penalty, self.source_penalty)
        # Of each living hypothesis:
        self.states = [constraints.start]
        self.texts = [""]  # the end of what it says, if phrases are forbidden
        self.paid = [0.0]  # log P of the form that has begun, without its first token
        self.would_end = [False]  # whether eos is the likeliest next token

    def _advance_beam(self, candidates: Sequence[Candidate]) -> None:
        possible = [c for c in candidates if c[0] > -math.inf]
        before, would_end = self.states, self.would_end
        states = [before[row].advance(token, would_end[row]) for _, row, token, _ in possible]
        paid = [
            self.paid[row] + log_prob
            if state.has_begun and state.depth == before[row].depth + 1 > 1
            else 0.0
            for (_, row, _, log_prob), state in zip(possible, states, strict=True)
        ]
        kept = self._share_beam(possible, states, paid)
        super()._advance_beam([possible[i] for i in kept] or candidates)
        index = {(row, token): i for i, (_, row, token, _) in enumerate(possible)}
        rows = zip(self.parents, self.alive, strict=True)
        alive = [index[row, node.token] for row, node in rows]
        self.states, self.paid = [states[i] for i in alive], [paid[i] for i in alive]
        self.would_end = [False] * len(alive)
        if self.constraints.has_forbidden:
            extend = self.constraints.extend_text
            self.texts = [extend(self.texts[possible[i][1]], possible[i][2]) for i in alive]

    def _share_beam(
        self,
        candidates: Sequence[Candidate],
        states: Sequence[ConstraintState],
        paid: Sequence[float],
    ) -> list[int]:
        """Which candidates go on or end, best first.

        Every bank gets an equal share of the beam, those with the most terms first. What is left
        goes to the best.
        """
        k = self.options.beam_size
        unfinished = [i for i, (_, _, token, _) in enumerate(candidates) if token != EOS]
        banks: dict[tuple[int, bool], list[int]] = {}
        for i in sorted(unfinished, key=lambda i: paid[i] - candidates[i][0]):
            bank = states[i].met.bit_count(), states[i].has_begun
            banks.setdefault(bank, []).append(i)
        share = max(1, k // max(1, len(banks)))
        first = [i for bank in sorted(banks, reverse=True) for i in banks[bank][:share]][:k]
        chosen = set(first)
        chosen.update([i for i in unfinished if i not in chosen][: k - len(chosen)])
        return [i for i, c in enumerate(candidates) if i in chosen or c[2] == EOS]

    def begins(self, row: int) -> list[int]:
        """The tokens with which a term must begin now, unless it has begun already."""
        if self.constraints.begin is None:
            return []
        term, position = self.constraints.begin
        state = self.states[row]
        is_due = position == self.length and not (state.met >> term & 1 or state.has_begun)
        return self.constraints.first_tokens(term) if is_due else []

    def banned_tokens(self, row: int) -> list[int]:
        """The tokens after which a banned word would be there, or a term just before its place."""
        tokens = []
        if self.constraints.begin is not None and self.constraints.begin[1] == self.length + 1:
            tokens += self.constraints.first_tokens(self.constraints.begin[0])
        for *word, last in self.constraints.banned:
            path = itertools.islice(self.alive[row].path(), len(word))
            if [node.token for node in path] == word[::-1]:
                tokens.append(last)
        return tokens

    def _finish(self, node: _Node) -> None:
        score = self._score(node, length_penalty(self.length, self.options.alpha))
        self.finished.append((score, node))

    def _can_exceed(self, score: float, node: _Node) -> bool:
        can_exceed = super()._can_exceed(score, node)
        return can_exceed and self._score(node, self.largest_penalty, goes_on=True) > score

    def _score(self, node: _Node, penalty: float, goes_on: bool = False) -> float:
        """``penalty`` is that of the log P of all tokens but those of the terms."""
        path = list(node.path())[::-1]
        ids = [step.token for step in path if step.token != EOS]
        places = self.constraints.places(ids, goes_on)
        of_terms = sum(step.log_prob for place in places for step in path[place.start : place.end])
        return (node.total - of_terms) / penalty + of_terms / self.source_penalty
