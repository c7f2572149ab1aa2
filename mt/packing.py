"""Sentences one behind the other (packed) in place of a padded matrix, so that no work is padding.

Every layer but attention looks at each position alone, so that it need not know of sentences.
Attention copies its queries, keys and values anyway, to have one head's numbers side by side;
here that copy also lays them out as sentences, and the copy back leaves the padding behind.

Shapes: B sentences, T the longest one's length; n rows, of which the first ``tokens`` are the
positions of all sentences in turn, the others padding; h heads of d_k numbers each.
"""

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
    cells: Tensor  # [n] the cell of each row, counted through [B * T]; for a row of padding any
    tokens: int

    def padded(self) -> Tensor:
        """The ids as [B, T], padded behind."""
        return self.ids[self.rows]


def pack(ids: Tensor, pad_id: int = 0) -> Packed:
    """Ids [B, T], padded behind -> the same sentences packed."""
    real = (ids != pad_id).flatten()
    cells = real.nonzero()[:, 0]
    tokens = len(cells)
    padding = MULTIPLE - tokens % MULTIPLE
    rows = torch.where(real, real.cumsum(0) - 1, tokens)
    return Packed(
        ids=F.pad(ids.flatten()[cells], (0, padding), value=pad_id),
        positions=F.pad(cells % ids.shape[1], (0, padding)),
        rows=rows.view(ids.shape),
        cells=F.pad(cells, (0, padding)),
        tokens=tokens,
    )


class Heads:
    """How the heads of attention see packed sentences: laid out by split, put back by merge."""

    def __init__(self, packed: Packed, h: int) -> None:
        self.rows, self.cells, self.tokens, self.h = packed.rows, packed.cells, packed.tokens, h
        self.mask = packed.rows[:, None, None] < packed.tokens  # [B, 1, 1, T], True for a key
        self._indices = {parts: self._index(parts) for parts in (1, 2, 3)}

    def split(self, x: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        """[n, sum of ``sizes``] -> for each size, which is h * d, [B, h, T, d]."""
        parts = len(sizes)
        if len(set(sizes)) > 1:  # d_k is not d_v: not all at once
            pairs = zip(x.split(sizes, dim=1), sizes, strict=True)
            return tuple(laid_out for part, size in pairs for laid_out in self.split(part, (size,)))
        there, back = self._indices[parts]
        vectors = x.reshape(len(back), -1)
        laid_out = _Gather.apply(vectors, there, back, self.tokens * parts * self.h)
        return laid_out.view(parts, len(self.rows), self.h, self.rows.shape[1], -1).unbind()

    def merge(self, x: Tensor) -> Tensor:
        """[B, h, T, d_k] -> [n, h * d_k]."""
        there, back = self._indices[1]
        # Nothing looks at a row of padding, hence no gradient comes to a cell of it.
        return _Gather.apply(x.reshape(len(there), -1), back, there, None).view(len(self.cells), -1)

    def _index(self, parts: int) -> tuple[Tensor, Tensor]:
        """For vectors of d_k: which of [n, parts, h] goes to each of [parts, B, h, T], and back."""
        (B, T), h = self.rows.shape, self.h
        part = torch.arange(parts, device=self.rows.device)
        head = torch.arange(h, device=self.rows.device)
        there = (self.rows[:, None] * parts + part[:, None, None, None]) * h + head[:, None]
        b, t = (self.cells // T)[:, None, None], (self.cells % T)[:, None, None]
        back = ((part[:, None] * B + b) * h + head) * T + t
        return there.flatten().clone(), back.flatten().clone()  # views would be compiled anew


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
