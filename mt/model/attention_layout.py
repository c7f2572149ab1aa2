"""Packed rows -> padded sentences and heads, for attention, and back.

A group of G sentences, W the longest, becomes [G, h, W, d] for each of queries, keys and values,
with a mask for its padding; the way back drops the padding. Training on a CPU with C++ lays nothing
out (``mt.model.packed_attention``).

Shapes: as in ``mt.data.packing``; m target rows and n source rows in cross-attention; queries and
keys have d_k numbers a head, values d_v.
"""

import itertools
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from mt.data.packing import Packed
from mt.model import packed_attention
from mt.model.kernels import Gather, attention


class AttentionLayout:
    """Attention of ``h`` heads over the sentences of a packed batch, group by group.

    ``scale`` multiplies the scores; None is 1 / sqrt(d_k). ``P_drop`` is the dropout of the
    weights. ``may_stay_packed`` allows the C++, which torch.compile cannot look into.
    """

    def __init__(
        self,
        packed: Packed,
        h: int,
        d_k: int,
        scale: float | None = None,
        P_drop: float = 0.0,
        may_stay_packed: bool = True,
    ) -> None:
        self.packed, self.h, self.qk_dim = packed, h, h * d_k
        self.scale = d_k**-0.5 if scale is None else scale
        self.attention = partial(attention, scale=self.scale, P_drop=P_drop)
        ends = itertools.accumulate(G for G, _ in packed.groups)
        self._rows = [  # [G, W] for each group
            packed.rows[end - G : end, :W] for end, (G, W) in zip(ends, packed.groups, strict=True)
        ]
        self.masks = [cells[:, None, None] < packed.tokens for cells in self._rows]  # True: a key
        self._starts: Tensor | None = None  # of the sentences
        self._indices: dict[int, tuple[Tensor, Tensor]] = {}
        possible = may_stay_packed and P_drop == 0
        if possible and packed_attention.is_possible(packed.ids.device, d_k):
            self._starts = packed_attention.starts(packed)
        else:  # made now, for torch.compile
            for parts in (1, 2, 3):
                self._index(parts)

    def attend(self, QKV: Tensor, causal: bool = False) -> Tensor:
        """Self-attention of each sentence; with ``causal`` a position sees those up to it alone.

        Queries, keys and values of all heads side by side [n, h * (2 d_k + d_v)] -> [n, h * d_v].
        """
        sizes = (self.qk_dim, self.qk_dim, QKV.shape[1] - 2 * self.qk_dim)
        if (starts := self._packed_starts(QKV, sizes[2])) is not None:
            return packed_attention.attend(QKV, None, self.h, self.scale, starts, causal=causal)
        context = [
            self.attention(Q, K, V, None if causal else mask, causal)
            for (Q, K, V), mask in zip(self.to_heads(QKV, sizes), self.masks, strict=True)
        ]
        return self.from_heads(context)

    def attend_to(self, source: "AttentionLayout", Q: Tensor, KV: Tensor) -> Tensor:
        """Attention of each sentence over its source sentence.

        Queries [m, h * d_k], keys and values of the source [n, h * (d_k + d_v)] -> [m, h * d_v].
        """
        v_dim = KV.shape[1] - self.qk_dim
        starts, k_starts = self._packed_starts(Q, v_dim), source._packed_starts(KV, v_dim)
        if starts is not None and k_starts is not None and Q.dtype == KV.dtype:
            return packed_attention.attend(Q, KV, self.h, self.scale, starts, k_starts)
        queries = self.to_heads(Q, (self.qk_dim,))
        keys_values = source.to_heads(KV, (self.qk_dim, v_dim))
        context = [
            self.attention(Q, K, V, mask)
            for (Q,), (K, V), mask in zip(queries, keys_values, source.masks, strict=True)
        ]
        return self.from_heads(context)

    def to_heads(self, x: Tensor, sizes: Sequence[int]) -> list[tuple[Tensor, ...]]:
        """[n, sum of ``sizes``] -> for each group [G, h, W, size / h], one for each size."""
        parts = len(sizes)
        if len(set(sizes)) > 1:  # d_k is not d_v, so that one gather cannot move all parts
            columns = [self.to_heads(part, part.shape[1:]) for part in x.split(sizes, dim=1)]
            return [tuple(itertools.chain(*group)) for group in zip(*columns, strict=True)]
        index, inverse = self._index(parts)
        vectors = x.reshape(len(inverse), -1)
        laid_out = Gather.apply(vectors, index, inverse, self.packed.tokens * parts * self.h)
        by_group = laid_out.split([parts * G * self.h * W for G, W in self.packed.groups])
        return [
            group.view(parts, G, self.h, W, -1).unbind()
            for group, (G, W) in zip(by_group, self.packed.groups, strict=True)
        ]

    def from_heads(self, groups: Sequence[Tensor]) -> Tensor:
        """[G, h, W, d] for each group -> [n, h * d]."""
        index, inverse = self._index(1)
        vectors = torch.cat([group.reshape(-1, group.shape[-1]) for group in groups])
        # Rows of padding are never keys and never count in the loss: their gradient is zero.
        return Gather.apply(vectors, inverse, index, None).view(len(self.packed.ids), -1)

    def _packed_starts(self, x: Tensor, v_dim: int) -> Tensor | None:
        """The first row of each sentence, if the C++ takes the vectors x."""
        if self._starts is None or v_dim != self.qk_dim or len(x) != len(self.packed.ids):
            return None
        return self._starts if packed_attention.takes(x) else None

    def _index(self, parts: int) -> tuple[Tensor, Tensor]:
        """Where each head's vector of the layout comes from, and where each one goes to.

        The packed vectors are [n, parts, h], those of the layout [parts, G, h, W] for each group
        in turn.
        """
        if parts in self._indices:
            return self._indices[parts]
        device, h = self.packed.ids.device, self.h
        part = torch.arange(parts, device=device)[:, None, None, None]
        head = torch.arange(h, device=device)[:, None]
        # Of row r, the vector of part p and head k is the packed vector (r * parts + p) * h + k.
        index = torch.cat(
            [((cells[:, None] * parts + part) * h + head).flatten() for cells in self._rows]
        )  # [parts, G, h, W] of each group, by broadcasting
        # Each row of a sentence is used once, a row of padding by many cells or by none.
        inverse = torch.zeros(len(self.packed.ids) * parts * h, dtype=torch.long, device=device)
        inverse[index] = torch.arange(len(index), device=device)
        self._indices[parts] = index, inverse
        return index, inverse
