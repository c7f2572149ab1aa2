"""The keys and values of a running batch, which sentences join and leave.

Shapes: N layers, B sentences, w hypotheses of each, S source length, h heads, and ``width``, the
numbers of a key or a value of a head.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Index = tuple[Any, Any]  # of the sentences and slots that a step writes


class PreparedStep(NamedTuple):
    """What a step reads and writes. Each sequence has an element for each layer."""

    caches: Sequence[Tensor]  # of each layer
    written: Index  # the part of each cache that the step writes
    keys: Sequence[Tensor]  # of each layer, those of this step among them
    values: Sequence[Tensor]
    mask: Tensor | None  # [B, 1, w, slots], or None where all see every slot


class State:
    """The caches that a decoding step needs of the steps before it.

    All hypotheses of a sentence share one cache. Each step writes w slots, one for each hypothesis,
    and never moves them. The w hypotheses are the w queries of one attention over all slots, and
    each has a row of the mask: 0 for the slots of its own tokens, -inf for the others. A hypothesis
    that continues another copies that one's row. A slot that no hypothesis of the sentence sees any
    more is written over, so that attention goes over few slots: the hypotheses of a beam differ in
    their last tokens only.
    """

    def __init__(self, cross: Tensor, source_lengths: list[int]) -> None:
        # The keys of all heads, then their values; there may be room for more B, S and slots.
        self._cross_cache = cross  # [N, B, S, 2h, width]
        self._self_cache = torch.empty_like(cross[:, :, :1])  # [N, B, slots, 2h, width]
        self.source_lengths = source_lengths  # eos counted
        self.past_mask: Tensor | None = None  # [B, w, slots]; None: all see the slots in use
        self.slots_used = 0  # the first ones; the others were never written
        self.length = 0  # steps taken
        self.joined_at = [0] * len(source_lengths)  # steps taken when each sentence joined
        self.weights: list[Tensor] | None = None  # a list collects cross-attention's weights
        self._view_sources()

    def _view_sources(self) -> None:
        B, S = len(self.source_lengths), max(self.source_lengths)
        cache = self._cross_cache[:, :B, :S]
        self.cross_by_layer = by_layer(cache)
        self.source_mask: Tensor | None = None  # [B, 1, 1, S], or None when there is no padding
        if min(self.source_lengths) < S:
            lengths = torch.tensor(self.source_lengths, device=cache.device)
            padding = torch.arange(S, device=cache.device) >= lengths[:, None]
            mask = cache.new_zeros(B, S).masked_fill_(padding, -torch.inf)
            self.source_mask = mask[:, None, None]

    def positions(self, w: int) -> int | Tensor:
        """The position of the next token, or positions [B * w] when the sentences' ages differ."""
        if self.joined_at.count(self.joined_at[0]) == len(self.joined_at):
            return self.length - self.joined_at[0]
        joined_at = torch.tensor(self.joined_at, device=self._cross_cache.device)
        return (self.length - joined_at).repeat_interleave(w)

    def advance(self, w: int, parents: Tensor | None) -> PreparedStep:
        """Prepare a step of w hypotheses."""
        B = len(self.joined_at)
        self._make_room(self.slots_used + w)
        mask: Tensor | None = None
        index: Index = slice(0, B), slice(self.slots_used, self.slots_used + w)
        used = self.slots_used + w
        if parents is not None or self.past_mask is not None:
            mask = self._past_mask()
            sentence = torch.arange(B, device=mask.device)[:, None]
            # The mask still has rows of sentences with more hypotheses that have left.
            mask = mask[:, :w] if parents is None else mask[sentence, parents]
            slots = _first_unseen(mask[:, :, :used], w)  # [B, w]
            self.past_mask = mask.scatter_(2, slots[:, :, None], 0)
            index, used = (sentence, slots), max(self.slots_used, int(slots.max()) + 1)
            mask = mask[:, None, :, :used]
        if mask is not None:  # what it hides must be finite all the same: 0 times NaN is NaN
            self._self_cache[:, :B, self.slots_used : used] = 0
        self.slots_used = used
        self.length += 1
        keys, values = by_layer(self._self_cache[:, :B, :used])
        return PreparedStep(self._self_cache.unbind(), index, keys, values, mask)

    def _past_mask(self) -> Tensor:
        """The mask, which is made at the first step that needs one: all see every slot so far."""
        if self.past_mask is None:
            shape = (len(self.joined_at), 1, self._self_cache.shape[2])
            self.past_mask = self._self_cache.new_full(shape, -torch.inf)
            self.past_mask[:, :, : self.slots_used] = 0
        return self.past_mask

    def _make_room(self, slots: int) -> None:
        capacity = self._self_cache.shape[2]
        if slots > capacity:
            # Unused memory costs only addresses; enlarging twice costs time.
            larger = max(slots, 2 * capacity, usual_length(max(self.source_lengths)))
            self._self_cache = with_room(self._self_cache, 0, larger, self.slots_used)
            if self.past_mask is not None:
                self.past_mask = F.pad(self.past_mask, (0, larger - capacity), value=-torch.inf)

    def join(self, other: "State") -> None:
        """Add the sentences of another state, which has not taken a step yet."""
        n, B = len(self.joined_at), len(self.joined_at) + len(other.joined_at)
        S = other._cross_cache.shape[2]
        capacity = self._cross_cache.shape[2]
        self._cross_cache = with_room(self._cross_cache, B, S, capacity)
        self._cross_cache[:, n:B, :S] = other._cross_cache
        self._cross_cache[:, n:B, S:] = 0  # finite, as the slots of advance
        self._cross_cache[:, :n, capacity:] = 0
        self._self_cache = with_room(self._self_cache, B, 0, self.slots_used)
        self._self_cache[:, n:B, : self.slots_used] = 0
        if self.slots_used > 0:
            past_mask = self._past_mask()
            new_rows = past_mask.new_full((B - n, *past_mask.shape[1:]), -torch.inf)
            self.past_mask = torch.cat([past_mask, new_rows])
        self.source_lengths = self.source_lengths + other.source_lengths
        self.joined_at += [self.length] * (B - n)
        self._view_sources()

    def select(self, order: list[int]) -> None:
        """Make sentence ``order[i]`` sentence i; sentences that keep their place are not copied."""
        moved = [i for i, old in enumerate(order) if i != old]
        if moved:
            device = self._self_cache.device
            to = torch.tensor(moved, device=device)
            origin = torch.tensor([order[i] for i in moved], device=device)
            for cache in (self._self_cache[:, :, : self.slots_used], self._cross_cache):
                cache[:, to] = cache[:, origin]
            if self.past_mask is not None:
                self.past_mask[to] = self.past_mask[origin]
        if self.past_mask is not None:
            self.past_mask = self.past_mask[: len(order)]
            seen = (self.past_mask == 0).any(dim=1).any(dim=0).nonzero()
            self.slots_used = int(seen[-1]) + 1 if len(seen) else 0
        self.source_lengths = [self.source_lengths[i] for i in order]
        self.joined_at = [self.joined_at[i] for i in order]
        self._view_sources()


def _first_unseen(mask: Tensor, w: int) -> Tensor:
    """The first w slots [B, w] of each sentence that none of its hypotheses [B, w, slots] sees."""
    slots = mask.shape[2]
    descending = torch.arange(slots, 0, -1, device=mask.device)
    seen = (mask == 0).any(dim=1)
    return torch.where(seen, -1, descending).topk(w).indices


def usual_length(S: int) -> int:
    """Tokens that most outputs do not exceed, of a source of S tokens."""
    return 3 * S // 2 + 8


def with_room(cache: Tensor, B: int, slots: int, used: int) -> Tensor:
    """A cache [N, >= B, >= slots, ...] with the first ``used`` slots of the given one."""
    N, rows, capacity, *rest = cache.shape
    if rows >= B and capacity >= slots:
        return cache
    shape = (N, rows if rows >= B else 2 * B, max(slots, capacity), *rest)
    larger = cache.new_empty(shape)
    larger[:, :rows, :used] = cache[:, :, :used]
    return larger


def keys_values(cache: Tensor) -> tuple[Tensor, Tensor]:
    """[..., slots, 2h, width] -> keys and values, views of [..., h, slots, width]."""
    K, V = cache.transpose(-3, -2).chunk(2, dim=-3)
    return K, V


def by_layer(cache: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """[N, B, slots, 2h, width] -> the keys of each layer, and the values of each layer."""
    K, V = keys_values(cache)
    return K.unbind(0), V.unbind(0)
