"""A decoder-only model that reads ``source SEP target`` as one sequence, for training.

Its layers are the encoder's, with causal self-attention: a position sees the source and the target
up to itself. SEP is the eos that ends a source and the bos that begins a target. In a language
model the source is that eos alone. Attention (``mt.model.attention_layout``) knows one kind of
sequence, so ``join`` puts each source and its target into one.

Shapes: B sentences, n rows of the joined sequences, m rows of the targets, S and T lengths.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mt.data.packing import MULTIPLE, Packed
from mt.data.special_ids import PAD
from mt.model.layers import EncoderLayer, LayerShape, final_norm
from mt.model.transformer import Stacks, Transformer


class DecoderOnly(Stacks):
    """``N`` layers of causal self-attention and feed-forward. ``Stacks`` describes the arguments.

    With d_ff = 4 d_model, seven layers have the weights of three of the encoder and three of the
    decoder together.
    """

    architecture = "decoder_only"

    def __init__(self, vocab_size: int, **settings: Any) -> None:
        super().__init__(vocab_size, **settings)
        self.config |= {"architecture": self.architecture}

    def add_stacks(self, N: int, shape: LayerShape) -> None:
        self.encoder = nn.ModuleList()
        self.decoder = nn.ModuleList(EncoderLayer(shape) for _ in range(N))
        self.decoder_norm = final_norm(shape)

    def states(self, src: Packed, tgt: Packed) -> Tensor:
        joined = join(src, tgt)
        states = self.joined_states(joined.packed)
        return states.new_zeros(len(tgt.ids), self.d_model).index_copy(
            0, torch.arange(tgt.tokens, device=states.device), states[joined.targets]
        )

    def joined_states(self, packed: Packed) -> Tensor:
        """Sequences -> states [n, d_model]. Raises ValueError for one that is too long."""
        # The rows are as long as the longest source and the longest target together.
        if not self.has_positions(packed.rows.shape[1]):
            self.check_length(int(packed.positions.max()) + 1)
        layout = self.layout(packed)
        (x,) = self.embed(packed)
        x = self.dropout(x)
        for layer in self.decoder:
            x = layer(x, layout, causal=True)
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def states_of_both(self, src: Packed, tgt: Packed, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The states that predict the targets' ``labels`` and, before them, those that predict the
        sources; and all labels.

        A source's first token is not predicted: nothing stands before it. Its eos is.
        """
        joined = join(src, tgt)
        states = self.joined_states(joined.packed)
        lengths = (src.rows < src.tokens).sum(dim=1)
        sentences = torch.arange(len(lengths), device=states.device)
        kept = src.tokens - len(lengths)  # all tokens but the last of each source
        before = torch.arange(kept, device=states.device)
        before += sentences.repeat_interleave(lengths - 1, output_size=kept)
        rows = torch.cat([joined.sources[before], joined.targets])
        return states[rows], torch.cat([src.ids[before + 1], labels])


class Joined(NamedTuple):
    """Sources and targets as one sequence each, and the rows there of their tokens."""

    packed: Packed
    sources: Tensor  # [src.tokens]
    targets: Tensor  # [tgt.tokens]


def join(src: Packed, tgt: Packed) -> Joined:
    """Each source and, right after it, its target. Positions go on."""
    device = src.ids.device
    lengths = [(side.rows < side.tokens).sum(dim=1) for side in (src, tgt)]  # [B] each
    total = lengths[0] + lengths[1]
    starts = total.cumsum(dim=0) - total
    sentences = torch.arange(len(total), device=device)
    of_source, of_target = (
        sentences.repeat_interleave(side_lengths, output_size=side.tokens)
        for side_lengths, side in zip(lengths, (src, tgt), strict=True)
    )
    sources = starts[of_source] + src.positions[: src.tokens]
    after = tgt.positions[: tgt.tokens] + lengths[0][of_target]  # positions in the sequence
    targets = starts[of_target] + after
    tokens = src.tokens + tgt.tokens
    n = tokens + MULTIPLE - tokens % MULTIPLE
    ids = src.ids.new_full((n,), PAD)
    ids[sources], ids[targets] = src.ids[: src.tokens], tgt.ids[: tgt.tokens]
    positions = torch.zeros(n, dtype=src.positions.dtype, device=device)
    positions[sources], positions[targets] = src.positions[: src.tokens], after
    # The sum of the longest of each side bounds a sequence without asking the device.
    columns = torch.arange(src.rows.shape[1] + tgt.rows.shape[1], device=device)
    rows = torch.where(columns < total[:, None], starts[:, None] + columns, tokens)
    groups = tuple((G, S + T) for (G, S), (_, T) in zip(src.groups, tgt.groups, strict=True))
    return Joined(Packed(ids, positions, rows, tokens, groups), sources, targets)


def make_model(vocab_size: int, architecture: str = "encoder_decoder", **model: Any) -> Stacks:
    """A model of the architecture that is named. Raises ValueError for another one."""
    kinds = {kind.architecture: kind for kind in (Transformer, DecoderOnly)}
    if architecture not in kinds:
        raise ValueError(f"architecture={architecture!r}: must be one of {', '.join(kinds)}")
    return kinds[architecture](vocab_size=vocab_size, **model)
