"""Sentences one behind the other (packed) in place of a padded matrix, so that no work is padding.

Every layer but attention looks at each position alone, so that it need not know of sentences.
Attention copies its queries, keys and values anyway, to have one head's numbers side by side;
here that copy also lays them out as sentences, and the copy back leaves the padding behind. A batch
may hold short and long sentences: it is laid out in groups, each as wide as its own longest one.

Shapes: B sentences, T the longest one's length; n rows, of which the first ``tokens`` are the
positions of all sentences in turn, the others padding; h heads of d_k numbers each; G a group's
sentences, W their longest one's length.
"""

from collections.abc import Sequence
from typing import NamedTuple

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
