"""Batches by token budget: which sentences go together, in what order, and as which tensors.

Shapes: B sentences; lengths are tokens, special ids included.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from mt.data.packing import Packed, pack
from mt.data.special_ids import BOS, EOS, PAD
from mt.utils.checks import check_int

MAX_GROUPS = 8  # in a batch: torch.compile makes code for each number of groups


class Batch(NamedTuple):
    """Sentence pairs as the training step wants them."""

    src: Packed  # each sentence ends in eos
    tgt: Packed  # shifted right: each sentence begins with bos
    labels: Tensor  # [tgt.tokens] the ids to predict, each sentence ends in eos


def collate(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Batch:
    """Ids of B pairs, without special ids -> one Batch, the longest pairs first."""
    lengths = np.array([(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]) + 1
    order = np.argsort(-lengths.max(axis=1), kind="stable")
    sources, targets = ([side[i] for i in order] for side in (sources, targets))
    src_groups, tgt_groups = group(lengths[order])
    labels = np.concatenate([np.append(target, EOS) for target in targets], dtype=np.int64)
    src = pack(pad([np.append(source, EOS) for source in sources]), src_groups)
    tgt = pack(pad([np.append(BOS, target) for target in targets]), tgt_groups)
    assert tgt.tokens == len(labels), "an id of padding within a sentence"
    return Batch(src, tgt, torch.from_numpy(labels))


def group(lengths: np.ndarray) -> list[list[tuple[int, int]]]:
    """Group neighbours of similar length: (sentences, longest length) of each group, by side.

    ``lengths`` [B, sides], the longest pair first. The length of a pair is that of its longer
    side. A new group begins where the padding would exceed a 64th of the batch, or more where that
    makes more than MAX_GROUPS groups. About a sixth of what attention lays out is padding.
    """
    longest = lengths.max(axis=1).tolist()
    max_padding = sum(longest) / 64
    while len(starts := _group_starts(longest, max_padding)) > MAX_GROUPS:
        max_padding *= 1.2
    groups = np.split(lengths, starts[1:])
    widths = np.array([rows.max(axis=0) for rows in groups])  # [groups, sides]
    sizes = list(map(len, groups))
    return [list(zip(sizes, side.tolist(), strict=True)) for side in widths.T]


def _group_starts(longest: list[int], max_padding: float) -> list[int]:
    """Where groups begin when each has at most ``max_padding`` positions of padding."""
    starts, padding = [0], 0
    for i, length in enumerate(longest):
        padding += longest[starts[-1]] - length
        if padding > max_padding:
            starts.append(i)
            padding = 0
    return starts


def pad(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    """B rows of ids -> [B, longest], with padding at the end of each row."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def token_budget_splits(
    lengths: np.ndarray, max_tokens: int, max_sentences: int | None = None
) -> list[int]:
    """Where each batch ends when batches take the pairs in the given order.

    ``lengths`` [pairs, sides]. A batch is as many pairs as fit: pairs times longest stays within
    ``max_tokens`` on every side. A pair longer than that is a batch of its own.
    """
    longest = lengths.max(axis=1)
    ends: list[int] = []
    start = 0
    while start < len(lengths):
        most = max(1, max_tokens // int(longest[start]))
        if max_sentences is not None:
            most = min(most, max_sentences)
        padded = np.maximum.accumulate(longest[start : start + most])
        fits = padded * np.arange(1, len(padded) + 1) <= max_tokens  # true, then false
        start += max(1, int(fits.sum()))
        ends.append(start)
    return ends


def num_stratified_batches(
    lengths: np.ndarray, max_tokens: int, other_batches: int, world_size: int
) -> int:
    """The number N of length-stratified batches that pairs make (see ``TokenBudgetSampler``).

    ``lengths`` [pairs, sides], sorted. It is about the smallest number with which even a batch of
    the longest pair of every stratum stays within ``max_tokens``. With ``other_batches`` it divides
    evenly among the ranks, unless there are too few pairs for that.
    """
    batches = 1
    while batches < len(lengths):
        batches += -(batches + other_batches) % world_size
        strata = np.pad(lengths, ((0, -len(lengths) % batches), (0, 0)))
        strata = strata.reshape(-1, batches, lengths.shape[1])
        most_tokens = int(strata.max(axis=1).sum(axis=0).max())
        if most_tokens <= max_tokens:
            break
        batches = math.ceil(batches * most_tokens / max_tokens)
    return min(batches, len(lengths))


class Draw(NamedTuple):
    """The pair numbers of a batch in an epoch."""

    epoch: int
    indices: list[int]


class TokenBudgetSampler(Sampler[Draw]):
    """Batches of pairs within a budget of tokens a side, for one rank.

    Batches are length-stratified: every batch holds short, middling and long pairs in the same
    proportion. To make N batches, the sampler sorts the pairs by length and cuts the sorted list
    into strata of N neighbours, which are about equally long. Each batch gets one random pair of
    each stratum, drawn again every epoch. All batches thus have the corpus's lengths and nearly
    equally many tokens. (The paper's batches each hold pairs of one approximate length, section
    5.1; stratified ones learn small data in fewer updates.)

    A pair longer than an eighth of the budget would leave the other batches of its stratum
    unfilled. Such long pairs share batches with pairs of their own length
    (``token_budget_splits``).

    An epoch's batches follow from (seed, epoch) alone; each rank has equally many. Each iteration
    is the next epoch; ``skip`` makes a resumed run continue after the batches that it has seen.

    src_lengths, tgt_lengths: [pairs] tokens, special ids included. Without ``shuffle`` all pairs
    share batches with pairs of their own length, ranks may differ by a batch, and every epoch is
    the same. Raises ValueError when there are fewer pairs than ranks.
    """

    def __init__(
        self,
        src_lengths: np.ndarray,
        tgt_lengths: np.ndarray,
        max_tokens: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        shuffle: bool = True,
    ) -> None:
        check_int("max_tokens", max_tokens)
        lengths = np.stack((src_lengths, tgt_lengths), axis=1, dtype=np.int32)
        self.seed, self.rank, self.world_size, self.shuffle = seed, rank, world_size, shuffle
        self.epoch, self.start = 0, 0
        # By the longer side, and within it by the difference of the two, up and down in turn.
        longer = lengths.max(axis=1)
        difference = (lengths[:, 0] - lengths[:, 1]) * (2 * (longer % 2) - 1)
        self.sorted = np.lexsort((difference, -longer)).astype(np.int32)
        lengths = lengths[self.sorted]
        if len(lengths) < world_size:
            raise ValueError(
                f"{len(lengths):,} pairs are too few for {world_size} devices: "
                "each device needs at least one"
            )
        self.num_oversize = int((longer > max_tokens).sum())  # pairs, each a batch of its own
        self.num_long = int((longer * 8 > max_tokens).sum()) if shuffle else len(lengths)
        self.long_ends = token_budget_splits(
            lengths[: self.num_long], max_tokens, max_sentences=len(lengths) // world_size
        )
        self.num_stratified = num_stratified_batches(
            lengths[self.num_long :], max_tokens, len(self.long_ends), world_size
        )
        self.num_batches = len(self.long_ends) + self.num_stratified
        self.mean_tokens = float(lengths.sum(axis=0).max()) / self.num_batches  # of the larger side

    def __len__(self) -> int:
        """Batches an epoch on this rank; shuffled, the same on every rank."""
        if self.shuffle:
            return self.num_batches // self.world_size
        return len(range(self.rank, self.num_batches, self.world_size))

    @property
    def dropped_batches(self) -> int:
        """Batches that each epoch leaves out, so that all ranks have equally many.

        They differ from epoch to epoch. They are fewer than the ranks, and none unless nearly all
        pairs are long for the budget.
        """
        return self.num_batches % self.world_size if self.shuffle else 0

    def skip(self, batches: int) -> None:
        """Start after the first ``batches`` of this rank, counted over all epochs."""
        self.epoch, self.start = divmod(batches, len(self))

    def plan(self, epoch: int) -> list[np.ndarray]:
        """This rank's batches in ``epoch``, each an array of pair numbers."""
        batches = np.split(self.sorted[: self.num_long], self.long_ends)[:-1]  # the last is empty
        if not self.shuffle:
            return batches[self.rank :: self.world_size]
        rng = np.random.default_rng((self.seed, epoch))
        batches += self._stratified_batches(rng)
        order = rng.permutation(self.num_batches)[: len(self) * self.world_size]
        # Shuffled inside too: what is drawn for a batch follows from its numbers in their order.
        return [rng.permutation(batches[i]) for i in order[self.rank :: self.world_size]]

    def _stratified_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        pairs, batches = self.sorted[self.num_long :], self.num_stratified
        strata = math.ceil(len(pairs) / max(1, batches))
        table = np.full((batches, strata), -1, np.int32)  # the pair of each batch and stratum
        for i in range(strata):
            stratum = pairs[i * batches :][:batches]
            table[rng.permutation(batches)[: len(stratum)], i] = stratum
        return [row[row >= 0] for row in table]  # the last stratum may have fewer pairs

    def __iter__(self) -> Iterator[Draw]:
        epoch, batches = self.epoch, self.plan(self.epoch)[self.start :]
        self.epoch, self.start = self.epoch + 1, 0
        for batch in batches:
            yield Draw(epoch, batch.tolist())
