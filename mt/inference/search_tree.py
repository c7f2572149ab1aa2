"""Beam search that keeps what it considered: each step's candidates, and what became of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from mt.data.special_ids import BOS, EOS
from mt.inference.beam_search import DecodingBatch, SearchModel
from mt.inference.options import SearchOptions
from mt.inference.sentence_search import Candidate, Hypothesis, SentenceSearch, length_penalty


@dataclass
class Node:
    """A token that the search considered, after the tokens of its ancestors."""

    parent: int | None  # its index in the tree; None: bos
    step: int  # tokens up to this one
    token: int
    log_prob: float  # of this token given those before it
    total: float  # of all tokens up to this one
    state: str  # alive: the search went on from it; finished; pruned
    why: str = ""  # it was pruned
    penalty: float | None = None  # of what is finished, with the score: total / penalty
    score: float | None = None


class SearchTree(NamedTuple):
    nodes: list[Node]  # the first is bos; each comes after its parent
    n_best: list[int]  # the last node of each of the ``hypotheses``
    hypotheses: list[Hypothesis]  # what the search returns, best first


def record(
    model: SearchModel,
    src: torch.Tensor,
    options: SearchOptions,
    prefix: Sequence[int] = (),
) -> SearchTree:
    """Search as ``mt.inference.beam_search.search`` does, for one source [1, S] that ends in eos.

    Raises ValueError for samples and alternatives, which do not compete with each other.
    """
    if not options.is_beam_search:
        raise ValueError("only beam search makes a tree: leave out samples and alternatives")
    search = _RecordedSearch.begin(src[0, :-1].tolist(), options, prefix)
    assert isinstance(search, _RecordedSearch)
    batch = DecodingBatch(model)
    batch.join(src, [search])
    while batch.active:
        batch.step()
    n_best = [index for _, index in search.finished_nodes[: options.n_best]]
    return SearchTree(search.nodes, n_best, search.hypotheses())


class _RecordedSearch(SentenceSearch):
    """A SentenceSearch that notes a node for each candidate. It decides nothing itself."""

    def __init__(
        self, options: SearchOptions, limit: int, prefix: Sequence[int], source: list[int]
    ) -> None:
        super().__init__(options, limit, prefix, source)
        self.nodes = [Node(None, 0, BOS, 0.0, 0.0, "alive")]
        self.living = [0]  # the node of each living hypothesis
        # Score and node, in the order of ``finished``
        self.finished_nodes: list[tuple[float, int]] = []

    def advance(self, candidates: Sequence[Candidate]) -> None:
        before, num_finished = self.living, len(self.finished)
        super().advance(candidates)
        rows = zip(self.parents, self.alive, strict=True)
        places = {(row, node.token): i for i, (row, node) in enumerate(rows)}
        self.living = [0] * len(places)
        continued, num_active = set(), 0
        for total, row, token, log_prob in candidates:
            if not total > -math.inf:
                break
            node = Node(before[row], self.length, token, log_prob, total, "alive")
            self.nodes.append(node)
            continued.add(row)
            num_active += token != EOS
            if token == EOS:
                self._end(len(self.nodes) - 1)
            elif (row, token) in places:
                self.living[places[row, token]] = len(self.nodes) - 1
            else:
                node.state, node.why = "pruned", self._why(node, num_active)
        for row, index in enumerate(before):
            if row not in continued:
                self.nodes[index].state = "pruned"
                self.nodes[index].why = "no continuation of it is among the best candidates"
        if len(self.finished) > num_finished and not continued:  # no token was permitted
            self._end(before[0])
        self.finished_nodes.sort(key=lambda pair: -pair[0])

    def _end(self, index: int) -> None:
        node = self.nodes[index]
        node.state, node.why = "finished", ""
        node.penalty = length_penalty(self.length, self.options.alpha)
        node.score = node.total / node.penalty
        self.finished_nodes.append((node.score, index))

    def _why(self, node: Node, rank: int) -> str:
        """Why a node is not alive that is the ``rank``-th of those without eos."""
        k, n_best = self.options.beam_size, self.options.n_best
        if rank > k:
            return f"it is not among the {k} best that go on" if k > 1 else "another is better"
        best = node.total / length_penalty(self.limit + 1, self.options.alpha)
        bar = self.finished[n_best - 1][0]
        return f"it can reach {best:.4f} at most, and a finished one has {bar:.4f}"
