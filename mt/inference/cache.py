"""The keys and values of a running batch, which sentences join and leave.

Shapes: N layers, B sentences, w hypotheses of each, S source length, h heads, and ``width``, the
numbers of a key or a value of a head.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class State:
    """The caches that a decoding step needs of the steps before it.

    All hypotheses of a sentence share one cache. Each step writes w new slots, one for each
    hypothesis, and never moves them. The w hypotheses are the w queries of one attention over all
    slots, and each has a row of the mask: 0 for the slots of its own tokens, -inf for the others.
    A hypothesis that continues another copies the row of that.

    Sentences that join later see none of the earlier slots. Attention begins at the first slot of
    the oldest sentence; the slots before it are used again when the cache is full.
    """

    def __init__(self, cross: Tensor, source_lengths: list[int]) -> None:
        # The keys of all heads, then their values; there may be room for more B, S and slots.
        self._cross_cache = cross  # [N, B, S, 2h, width]
        self._self_cache = torch.empty_like(cross[:, :, :1])  # [N, B, slots, 2h, width]
        self.source_lengths = source_lengths  # eos counted
        self.past_mask: Tensor | None = None  # [B, w, slots]; None: all see every slot
        self.slots_used = 0
        self.length = 0  # steps taken
        # Of each sentence: steps taken and slots used when it joined.
        self.joined_at, self.first_slots = [0] * len(source_lengths), [0] * len(source_lengths)
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

    def advance(self, w: int, parents: Tensor | None) -> tuple[Any, Any, Any, Tensor | None]:
        """Make room for w hypotheses: by layer the new slots, all keys, all values; the mask."""
        if self.slots_used + w > self._self_cache.shape[2]:
            self._make_room(w)
        if parents is not None:
            past_mask = self._past_mask()
            sentence = torch.arange(len(parents), device=parents.device)[:, None]
            self.past_mask = past_mask[sentence, parents]
        start, self.slots_used = self.slots_used, self.slots_used + w
        self.length += 1
        seen = slice(min(self.first_slots), self.slots_used)
        mask = None
        if self.past_mask is not None:
            self.past_mask[:, :, start : self.slots_used].diagonal(dim1=1, dim2=2).zero_()
            mask = self.past_mask[:, None, :, seen]
        cache = self._self_cache[:, : len(self.joined_at)]
        new_slots = cache[:, :, start : self.slots_used].unbind()  # [B, w, 2h, width]
        keys, values = by_layer(cache[:, :, seen])
        return new_slots, keys, values, mask

    def _past_mask(self) -> Tensor:
        """The mask, which is made at the first step that needs one: all see every slot so far."""
        if self.past_mask is None:
            shape = (len(self.joined_at), 1, self._self_cache.shape[2])
            self.past_mask = self._self_cache.new_full(shape, -torch.inf)
            self.past_mask[:, :, : self.slots_used] = 0
        return self.past_mask

    def _make_room(self, w: int) -> None:
        """Move the slots that are still seen to the front, or enlarge the cache."""
        unseen, seen = min(self.first_slots), self.slots_used - min(self.first_slots)
        B, capacity = len(self.joined_at), self._self_cache.shape[2]
        old = self._self_cache
        if seen + w > unseen:  # they would overlap, and soon be too many again
            # Unused memory costs only addresses; enlarging twice costs time.
            capacity = seen + w * (3 * max(self.source_lengths) // 2 + 8)
            self._self_cache = old.new_empty(*old.shape[:2], capacity, *old.shape[3:])
        self._self_cache[:, :B, :seen] = old[:, :B, unseen : self.slots_used]
        if self.past_mask is not None:
            mask = self.past_mask[:, :, unseen : self.slots_used]
            self.past_mask = F.pad(mask, (0, capacity - seen), value=-torch.inf)
        self.slots_used = seen
        self.first_slots = [first - unseen for first in self.first_slots]

    def join(self, other: "State") -> None:
        """Add the sentences of another state, which has not taken a step yet."""
        n, B = len(self.joined_at), len(self.joined_at) + len(other.joined_at)
        S = other._cross_cache.shape[2]
        self._cross_cache = _with_room(self._cross_cache, B, S)
        self._cross_cache[:, n:B, :S] = other._cross_cache
        # What a mask hides must be finite all the same: 0 times NaN is NaN.
        self._cross_cache[:, n:B, S:] = 0
        self._self_cache = _with_room(self._self_cache, B, self._self_cache.shape[2])
        self._self_cache[:, n:B, min(self.first_slots) : self.slots_used] = 0
        if self.slots_used > 0:
            past_mask = self._past_mask()
            new_rows = past_mask.new_full((B - n, *past_mask.shape[1:]), -torch.inf)
            self.past_mask = torch.cat([past_mask, new_rows])
        self.source_lengths = self.source_lengths + other.source_lengths
        self.joined_at += [self.length] * (B - n)
        self.first_slots += [self.slots_used] * (B - n)
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
        self.past_mask = None if self.past_mask is None else self.past_mask[: len(order)]
        self.source_lengths = [self.source_lengths[i] for i in order]
        self.joined_at = [self.joined_at[i] for i in order]
        self.first_slots = [self.first_slots[i] for i in order]
        self._view_sources()


def _with_room(cache: Tensor, B: int, slots: int) -> Tensor:
    """A cache [N, >= B, >= slots, ...] that begins like the given one; what is new is not set."""
    N, rows, capacity, *rest = cache.shape
    if rows >= B and capacity >= slots:
        return cache
    shape = (N, rows if rows >= B else 2 * B, max(slots, capacity), *rest)
    larger = cache.new_empty(shape)
    larger[:, :rows, :capacity] = cache
    larger[:, :rows, capacity:] = 0
    return larger


def keys_values(cache: Tensor) -> tuple[Tensor, Tensor]:
    """[..., slots, 2h, width] -> keys and values, views of [..., h, slots, width]."""
    K, V = cache.transpose(-3, -2).chunk(2, dim=-3)
    return K, V


def by_layer(cache: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """[N, B, slots, 2h, width] -> the keys of each layer, and the values of each layer."""
    K, V = keys_values(cache)
    return K.unbind(0), V.unbind(0)
