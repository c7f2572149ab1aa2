"""How the heads of attention see packed sentences (``mt.data.packing``).

Shapes: as in ``mt.data.packing``.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mt.data.packing import Packed


class AttentionLayout:
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

    def to_heads(self, x: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, ...]]:
        """[n, sum of ``sizes``] -> for each group, of each size, which is h * d: [G, h, W, d]."""
        parts = len(sizes)
        if len(set(sizes)) > 1:  # d_k is not d_v: not all at once
            pairs = zip(x.split(sizes, dim=1), sizes, strict=True)
            found = [self.to_heads(part, (size,)) for part, size in pairs]
            return [tuple(each for (each,) in group) for group in zip(*found, strict=True)]
        there, back = self._indices[parts]
        vectors = x.reshape(len(back), -1)
        laid_out = _Gather.apply(vectors, there, back, self.packed.tokens * parts * self.h)
        by_group = laid_out.split([parts * size for size in self.sizes])
        return [
            group.view(parts, G, self.h, W, -1).unbind()
            for group, (G, W) in zip(by_group, self.packed.groups, strict=True)
        ]

    def from_heads(self, groups: Sequence[Tensor]) -> Tensor:
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
