"""The sentences of a batch one after the other (packed), so that no work is spent on padding.

Every sublayer but attention works on each position alone and need not know of sentences. Attention
by PyTorch needs a copy of its queries, keys and values, to have the numbers of one head side by
side: this copy (``mt.model.attention_layout``) also lays them out as sentences, and the copy back
drops the padding. A batch of short and long sentences is laid out in groups, each as wide as its
longest.

Shapes: B sentences, T the length of the longest; n rows, the first ``tokens`` of which are the
positions of all sentences in turn, the others padding; G sentences in a group, W the length of
the group's longest.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.data.special_ids import PAD

# n is a multiple of this, so that matrices come in few sizes: oneDNN and torch.compile make code
# for each. At least one row is padding.
MULTIPLE = 64


class Packed(NamedTuple):
    """The ids of sentences, and the row in which each cell of a padded [B, T] stands."""

    ids: Tensor  # [n]
    positions: Tensor  # [n] in the sentence, from 0
    rows: Tensor  # [B, T] the row of each cell; for cells of padding the first row of padding
    tokens: int
    groups: tuple[tuple[int, int], ...]  # (G, W); the sentences of a group are neighbours

    def padded(self) -> Tensor:
        """The ids as [B, T], padded at the end."""
        return self.ids[self.rows]


def pack(ids: Tensor, groups: Sequence[tuple[int, int]] | None = None) -> Packed:
    """Ids [B, T], padded at the end -> the same sentences packed; by default all form one group.

    [[5, 6, 3], [7, 3, pad]] has the ids [5, 6, 3, 7, 3, pad, ...], the positions
    [0, 1, 2, 0, 1, 0, ...], the rows [[0, 1, 2], [3, 4, 5]] and 5 tokens.
    """
    real = (ids != PAD).flatten()
    cells = real.nonzero()[:, 0]
    tokens = len(cells)
    padding = MULTIPLE - tokens % MULTIPLE
    rows = torch.where(real, real.cumsum(0) - 1, tokens)
    return Packed(
        ids=F.pad(ids.flatten()[cells], (0, padding), value=PAD),
        positions=F.pad(cells % ids.shape[1], (0, padding)),
        rows=rows.view(ids.shape),
        tokens=tokens,
        groups=((ids.shape[0], ids.shape[1]),) if groups is None else tuple(groups),
    )
