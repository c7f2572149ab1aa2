"""Batches by token budget: which sentences go together, in what order, and as which tensors.

Shapes: B sentences.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from mt.packing import Packed, pack

PAD, BOS, EOS = 0, 2, 3  # as in mt.tokenizer


class Batch(NamedTuple):
    """Sentence pairs as the training step wants them."""

    src: Packed  # each sentence ending in eos
    tgt: Packed  # shifted right, each sentence beginning with bos
    labels: Tensor  # [tgt.tokens] the ids to predict, each sentence ending in eos


def collate(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Batch:
    """Ids of B pairs, without special ids -> one Batch, the longest pairs first."""
    lengths = np.array([(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]) + 1
    order = np.argsort(-lengths.max(axis=1), kind="stable")
    sources, targets = ([side[i] for i in order] for side in (sources, targets))
    groups = group(lengths[order])
    labels = np.concatenate([np.append(target, EOS) for target in targets], dtype=np.int64)
    src = pack(pad([np.append(source, EOS) for source in sources]), PAD, groups[0])
    tgt = pack(pad([np.append(BOS, target) for target in targets]), PAD, groups[1])
    assert tgt.tokens == len(labels), "an id of padding within a sentence"
    return Batch(src, tgt, torch.from_numpy(labels))


def group(lengths: np.ndarray) -> list[list[tuple[int, int]]]:
    """Neighbours of like length: for each side the number and the longest length of each group.

    ``lengths`` [B, sides], the longest pair first. A group's longest pair is at most a quarter
    longer than its shortest, which keeps attention's padding small and the groups few.
    """
    longest = lengths.max(axis=1)
    starts = [0]
    for i, length in enumerate(longest):
        if length * 1.25 < longest[starts[-1]]:
            starts.append(i)
    parts = np.split(lengths, starts[1:])
    widths = np.array([part.max(axis=0) for part in parts])
    return [
        [(len(part), int(width)) for part, width in zip(parts, side, strict=True)]
        for side in widths.T
    ]


def pad(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    """Rows of ids -> [B, longest], padded behind."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def cut(lengths: np.ndarray, max_tokens: int, max_sentences: int | None = None) -> list[int]:
    """Where to end each batch when pairs are taken in the order given.

    ``lengths`` [pairs, sides] counts tokens, special ids included. A batch is as many pairs as
    fit: pairs times longest stays within ``max_tokens`` on every side. A pair longer than that
    is a batch of its own. Returns the batches' ends, the last one ``len(lengths)``.
    """
    longest = lengths.max(axis=1)
    ends: list[int] = []
    start = 0
    while start < len(lengths):
        room = max(1, max_tokens // int(longest[start]))
        if max_sentences is not None:
            room = min(room, max_sentences)
        padded = np.maximum.accumulate(longest[start : start + room])
        fits = padded * np.arange(1, len(padded) + 1) <= max_tokens  # true, then false
        start += max(1, int(fits.sum()))
        ends.append(start)
    return ends


MIXED = 8  # bundles in a batch


class TokenBudgetSampler(Sampler[list[int]]):
    """Batches of pairs within a budget of padded tokens a side, for one rank.

    Pairs of like length make a bundle, of up to an ``MIXED``-th of the budget; a batch is a number
    of bundles of any lengths: its gradient is then of the corpus, not of one length, and small
    data are learned in fewer steps. Bundles are dealt out anew every epoch.

    An epoch's batches follow from (seed, epoch) alone. They are dealt out to the ranks in turn,
    equally many to each; where a budget holds one bundle only, a few may be left over, fewer than
    one a rank, which sit the epoch out, other ones every epoch. Each iteration is the next epoch;
    ``skip`` makes a resumed run go on behind the batches it has seen.

    src_lengths, tgt_lengths: [pairs] tokens, special ids included. Without ``shuffle`` a batch is
    one bundle, and every epoch the same.
    Raises ValueError when there are fewer pairs than ranks.
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
        if type(max_tokens) is not int or max_tokens < 1:
            raise ValueError(f"max_tokens={max_tokens!r}: must be a whole number of at least 1")
        lengths = np.stack((src_lengths, tgt_lengths), axis=1, dtype=np.int32)
        self.seed, self.rank, self.world_size, self.shuffle = seed, rank, world_size, shuffle
        self.epoch, self.start = 0, 0
        if len(lengths) < world_size:
            raise ValueError(
                f"{len(lengths):,} pairs are too few for {world_size} devices: "
                "each must have one at least"
            )
        # By the longer side, and within it by the difference of the two, up and down in turn.
        longer = lengths.max(axis=1)
        difference = (lengths[:, 0] - lengths[:, 1]) * (2 * (longer % 2) - 1)
        self.sorted = np.lexsort((difference, longer)).astype(np.int32)
        lengths = lengths[self.sorted]
        # No bundle may be beyond its part of the budget, however long the longest pair.
        mixed = max(1, min(MIXED, max_tokens // int(longer.max()))) if shuffle else 1
        # Shuffling only permutes pairs of equal lengths, so the cuts are every epoch's. However
        # few the pairs, every rank must get a batch.
        most = max(1, len(lengths) // world_size)
        self.ends = cut(lengths, max_tokens // mixed, max_sentences=most)
        bundles = self.batches = len(self.ends)
        if shuffle:  # as many batches on every rank, while there are bundles for it
            self.batches = min(bundles, math.ceil(bundles / mixed / world_size) * world_size)
        changes = (lengths[1:] != lengths[:-1]).any(axis=1)
        self.groups = np.insert(np.cumsum(changes, dtype=np.int32), 0, 0)  # of equal lengths

    def __len__(self) -> int:
        """Batches an epoch on this rank, the same on every rank."""
        if self.shuffle:
            return self.batches // self.world_size
        return len(range(self.rank, self.batches, self.world_size))

    @property
    def left_over(self) -> int:
        """Batches that sit an epoch out so that all ranks have equally many."""
        return self.batches % self.world_size if self.shuffle else 0

    def skip(self, batches: int) -> None:
        """Start behind the first ``batches`` of this rank, counted over all epochs."""
        self.epoch, self.start = divmod(batches, len(self))

    def plan(self, epoch: int) -> list[np.ndarray]:
        """This rank's batches in ``epoch``, each an array of pair numbers."""
        rng = np.random.default_rng((self.seed, epoch))
        bundles = np.split(self._order(rng), self.ends[:-1])
        if not self.shuffle:
            return bundles[self.rank :: self.world_size]
        dealt = np.array_split(rng.permutation(len(bundles)), self.batches)
        turn = rng.permutation(self.batches)  # array_split puts the larger ones first
        mine = turn[self.rank :: self.world_size][: len(self)]
        return [np.concatenate([bundles[i] for i in dealt[batch]]) for batch in mine]

    def __iter__(self) -> Iterator[list[int]]:
        batches = self.plan(self.epoch)[self.start :]
        self.epoch, self.start = self.epoch + 1, 0
        for batch in batches:
            yield batch.tolist()

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        """All pairs sorted, those of equal lengths shuffled."""
        if not self.shuffle:
            return self.sorted
        pairs = len(self.sorted)
        # Keys that all differ: every machine sorts them alike.
        keys = self.groups * np.int64(pairs)
        keys += rng.permutation(pairs)
        return self.sorted[np.argsort(keys)]
