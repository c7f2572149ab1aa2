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

from mt.data.packing import Packed, pack
from mt.data.special_ids import BOS, EOS, PAD


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


GROUPS = 8  # in a batch at most: torch.compile makes code for each number of them


def group(lengths: np.ndarray) -> list[list[tuple[int, int]]]:
    """Neighbours of like length: for each side the number and the longest length of each group.

    ``lengths`` [B, sides], the longest pair first. A group ends where its padding, by the longer
    sides, would exceed a 64th of the batch, or as much more as keeps the groups to ``GROUPS``:
    about a sixth of the positions that attention lays out is padding.
    """
    longest = lengths.max(axis=1).tolist()
    room = sum(longest) / 64
    while len(starts := _starts(longest, room)) > GROUPS:
        room *= 1.2
    parts = np.split(lengths, starts[1:])
    widths = np.array([part.max(axis=0) for part in parts])
    return [
        [(len(part), int(width)) for part, width in zip(parts, side, strict=True)]
        for side in widths.T
    ]


def _starts(longest: list[int], room: float) -> list[int]:
    """Where groups begin, each of at most ``room`` cells of padding."""
    starts, padding = [0], 0
    for i, length in enumerate(longest):
        padding += longest[starts[-1]] - length
        if padding > room:
            starts.append(i)
            padding = 0
    return starts


def pad(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    """Rows of ids -> [B, longest], padded behind."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def token_budget_splits(
    lengths: np.ndarray, max_tokens: int, max_sentences: int | None = None
) -> list[int]:
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


def num_stratified_batches(lengths: np.ndarray, max_tokens: int, others: int, ranks: int) -> int:
    """Into how many batches, here called hands, to deal pairs out.

    ``lengths`` [pairs, sides] in the order of dealing. Of every N neighbours each of N hands gets
    one, and whichever it gets, it stays within ``max_tokens`` on every side. With ``others``,
    batches not dealt, they are equally many for each rank, unless the pairs are too few for that.
    """
    hands = 1
    while hands < len(lengths):
        hands += -(hands + others) % ranks
        rounds = np.pad(lengths, ((0, -len(lengths) % hands), (0, 0)))
        most = int(rounds.reshape(-1, hands, lengths.shape[1]).max(axis=1).sum(axis=0).max())
        if most <= max_tokens:
            break
        hands = math.ceil(hands * most / max_tokens)
    return min(hands, len(lengths))


class TokenBudgetSampler(Sampler[list[int]]):
    """Batches of pairs within a budget of tokens a side, for one rank.

    The pairs are dealt out as cards are: sorted by length, of every N neighbours, N being the
    number of batches, each batch gets one, drawn anew every epoch. So all batches hold the lengths
    of the corpus and nearly equally many tokens. (The paper's are of about one length each, 5.1;
    mixed ones learn small data in fewer updates.) Pairs longer than an eighth of the
    budget would leave the other batches unfilled: they are in batches with neighbours
    (``token_budget_splits``).

    An epoch's batches follow from (seed, epoch) alone; each rank has equally many. Each iteration
    is the next epoch; ``skip`` makes a resumed run go on behind the batches it has seen.

    src_lengths, tgt_lengths: [pairs] tokens, special ids included. Without ``shuffle`` all are in
    batches with neighbours, ranks may differ by a batch, and every epoch is the same.
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
        # By the longer side, and within it by the difference of the two, up and down in turn.
        longer = lengths.max(axis=1)
        difference = (lengths[:, 0] - lengths[:, 1]) * (2 * (longer % 2) - 1)
        self.sorted = np.lexsort((difference, -longer)).astype(np.int32)
        lengths = lengths[self.sorted]
        if len(lengths) < world_size:
            raise ValueError(
                f"{len(lengths):,} pairs are too few for {world_size} devices: "
                "each must have one at least"
            )
        self.num_long = int((longer * 8 > max_tokens).sum()) if shuffle else len(lengths)
        self.ends = token_budget_splits(
            lengths[: self.num_long], max_tokens, max_sentences=len(lengths) // world_size
        )
        self.hands = 0
        if shuffle:
            dealt = lengths[self.num_long :]
            self.hands = num_stratified_batches(dealt, max_tokens, len(self.ends), world_size)
        self.batches = len(self.ends) + self.hands
        self.mean_tokens = float(lengths.sum(axis=0).max()) / self.batches  # of the larger side

    def __len__(self) -> int:
        """Batches an epoch on this rank; shuffled, the same on every rank."""
        if self.shuffle:
            return self.batches // self.world_size
        return len(range(self.rank, self.batches, self.world_size))

    @property
    def dropped_batches(self) -> int:
        """Batches that sit an epoch out, other ones every epoch, so that ranks have equally many:
        fewer than ranks, and none unless nearly all pairs are long for the budget."""
        return self.batches % self.world_size if self.shuffle else 0

    def skip(self, batches: int) -> None:
        """Start behind the first ``batches`` of this rank, counted over all epochs."""
        self.epoch, self.start = divmod(batches, len(self))

    def plan(self, epoch: int) -> list[np.ndarray]:
        """This rank's batches in ``epoch``, each an array of pair numbers."""
        batches = np.split(self.sorted[: self.num_long], self.ends)[
            :-1
        ]  # behind the last end: none
        if not self.shuffle:
            return batches[self.rank :: self.world_size]
        rng = np.random.default_rng((self.seed, epoch))
        dealt = self.sorted[self.num_long :]
        hands = np.full((self.hands, math.ceil(len(dealt) / max(1, self.hands))), -1, np.int32)
        for i in range(hands.shape[1]):
            cards = dealt[i * self.hands :][: self.hands]
            hands[rng.permutation(self.hands)[: len(cards)], i] = cards
        batches += [hand[hand >= 0] for hand in hands]  # the last round may not go round
        turn = rng.permutation(self.batches)[: len(self) * self.world_size]
        # In another order each time: what is drawn for a batch follows from its numbers in order.
        return [rng.permutation(batches[i]) for i in turn[self.rank :: self.world_size]]

    def __iter__(self) -> Iterator[list[int]]:
        batches = self.plan(self.epoch)[self.start :]
        self.epoch, self.start = self.epoch + 1, 0
        for batch in batches:
            yield batch.tolist()
