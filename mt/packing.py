"""Sentences one behind the other (packed) in place of a padded matrix, so that no work is padding.

Every layer but attention looks at each position alone, so that it need not know of sentences.
Attention copies its queries, keys and values anyway, to have one head's numbers side by side;
here that copy also lays them out as sentences, and the copy back leaves the padding behind. A batch
may hold short and long sentences: it is laid out in groups, each as wide as its own longest one.

Shapes: B sentences, T the longest one's length; n rows, of which the first ``tokens`` are the
positions of all sentences in turn, the others padding; h heads of d_k numbers each; G a group's
sentences, W their longest one's length.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# n is a multiple of this, so that matrices come in few sizes: oneDNN and torch.compile make code
# for each. There is always a row of padding.
MULTIPLE = 64


class Packed(NamedTuple):
    """The ids of sentences, and which row each cell of a padded [B, T] would be."""

    ids: Tensor  # [n]
    positions: Tensor  # [n] of each in its sentence, from 0
    rows: Tensor  # [B, T] the row of each cell; for a cell of padding the first row of it
    tokens: int
    groups: tuple[tuple[int, int], ...]  # (G, W) of each; the sentences of a group are neighbours

    def padded(self) -> Tensor:
        """The ids as [B, T], padded behind."""
        return self.ids[self.rows]


def pack(ids: Tensor, pad_id: int = 0, groups: Sequence[tuple[int, int]] | None = None) -> Packed:
    """Ids [B, T], padded behind -> the same sentences packed; None: they are one group."""
    real = (ids != pad_id).flatten()
    cells = real.nonzero()[:, 0]
    tokens = len(cells)
    padding = MULTIPLE - tokens % MULTIPLE
    rows = torch.where(real, real.cumsum(0) - 1, tokens)
    return Packed(
        ids=F.pad(ids.flatten()[cells], (0, padding), value=pad_id),
        positions=F.pad(cells % ids.shape[1], (0, padding)),
        rows=rows.view(ids.shape),
        tokens=tokens,
        groups=((ids.shape[0], ids.shape[1]),) if groups is None else tuple(groups),
    )


class Heads:
    """How the heads of attention see packed sentences: laid out by split, put back by merge."""

    def __init__(self, packed: Packed, h: int) -> None:
        self.packed, self.h = packed, h
        ends = list(itertools.accumulate(G for G, _ in packed.groups))
        rows = [
            packed.rows[end - G : end, :W] for end, (G, W) in zip(ends, packed.groups, strict=True)
        ]  # [G, W] each
        self.masks = [each[:, None, None] < packed.tokens for each in rows]  # True for a key
        self.sizes = [each.numel() * h for each in rows]  # of each group, in vectors
        self._indices = {parts: self._index(rows, parts) for parts in (1, 2, 3)}

    def split(self, x: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, ...]]:
        """[n, sum of ``sizes``] -> for each group, of each size, which is h * d: [G, h, W, d]."""
        parts = len(sizes)
        if len(set(sizes)) > 1:  # d_k is not d_v: not all at once
            pairs = zip(x.split(sizes, dim=1), sizes, strict=True)
            found = [self.split(part, (size,)) for part, size in pairs]
            return [tuple(each for (each,) in group) for group in zip(*found, strict=True)]
        there, back = self._indices[parts]
        vectors = x.reshape(len(back), -1)
        laid_out = _Gather.apply(vectors, there, back, self.packed.tokens * parts * self.h)
        by_group = laid_out.split([parts * size for size in self.sizes])
        return [
            group.view(parts, G, self.h, W, -1).unbind()
            for group, (G, W) in zip(by_group, self.packed.groups, strict=True)
        ]

    def merge(self, groups: Sequence[Tensor]) -> Tensor:
        """Of each group [G, h, W, d_k] -> [n, h * d_k]."""
        there, back = self._indices[1]
        x = torch.cat([group.reshape(-1, group.shape[-1]) for group in groups])
        # Nothing looks at a row of padding, hence no gradient comes to a cell of it.
        return _Gather.apply(x, back, there, None).view(len(self.packed.ids), -1)

    def _index(self, rows: list[Tensor], parts: int) -> tuple[Tensor, Tensor]:
        """For vectors of d_k: which of [n, parts, h] goes to each of a group's [parts, G, h, W],
        group behind group, and back."""
        device, h = rows[0].device, self.h
        part = torch.arange(parts, device=device)[:, None, None, None]
        head = torch.arange(h, device=device)[:, None]
        there = torch.cat([((each[:, None] * parts + part) * h + head).flatten() for each in rows])
        # Every row of a sentence is looked at once, those of padding by many or by none.
        back = torch.zeros(len(self.packed.ids) * parts * h, dtype=torch.long, device=device)
        back[there] = torch.arange(len(there), device=device)
        return there, back


class _Gather(torch.autograd.Function):
    """x[index], where each row that counts is taken once: the gradient is gathered in turn.

    ``inverse`` says where each row of x went to; rows from ``real`` on went nowhere.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, real: int | None) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.real = real
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        grad = grad.index_select(0, inverse)
        if ctx.real is not None:
            grad[ctx.real :] = 0
        return grad, None, None, None
