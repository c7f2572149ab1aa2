"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017), section 3, for training.

``mt.model.reference`` is the same function in plain lines: read that first. Here the sentences of
a batch lie one after the other without padding (``mt.data.packing``); attention alone lays them
out as sentences (``mt.model.attention_layout``).

Shapes: B sentences, S source length, T target length, n source rows, m target rows, V vocabulary,
h heads, d_v = d_model / h, d_k, and qk_dim = h * d_k.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.data.packing import Packed, pack
from mt.model.attention_layout import AttentionLayout
from mt.model.dropout import Dropout
from mt.utils.checks import check_int, check_number

# A product of two widths fits in an integer, and a thousand layers are made in a second.
MOST_LAYERS, MOST_WIDTH = 1000, 2**24


class Transformer(nn.Module):
    """Encoder, decoder and the one matrix they share (3.1, 3.4, figure 1).

    It computes all target positions at once, as training does. ``mt.inference.incremental``
    computes the same function a token at a time.

    ``d_k`` None is d_model / h. ``learned_positions`` is the number of learned positions; None
    means sinusoids, which have no end. Raises ValueError for a number that the paper's
    architecture does not allow.
    """

    def __init__(
        self,
        vocab_size: int,
        N: int = 6,
        d_model: int = 512,
        d_ff: int = 2048,
        h: int = 8,
        P_drop: float = 0.1,
        d_k: int | None = None,
        learned_positions: int | None = None,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        _check(P_drop, vocab_size=vocab_size, N=N, d_model=d_model, d_ff=d_ff, h=h)
        d_k = d_model // h if d_k is None else d_k
        check_int("d_k", d_k, most=MOST_WIDTH)
        check_int("qk_dim", h * d_k, most=MOST_WIDTH)
        check_int("learned_positions", learned_positions, most=MOST_WIDTH, optional=True)
        check_int("pad_id", pad_id, least=0, most=vocab_size - 1)
        self.config = {
            "vocab_size": vocab_size,
            "N": N,
            "d_model": d_model,
            "d_ff": d_ff,
            "h": h,
            "P_drop": P_drop,
            "d_k": d_k,
            "learned_positions": learned_positions,
        }
        self.d_model, self.h, self.d_k, self.pad_id = d_model, h, d_k, pad_id
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.dropout = Dropout(P_drop)
        sizes = d_model, d_ff, P_drop, h * d_k
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(N))
        self.positions: nn.Embedding | None = None
        if learned_positions is not None:  # for both sides, as the sinusoids are (table 3, row E)
            self.positions = nn.Embedding(learned_positions, d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as fairseq does (tensor2tensor is similar): the paper does not say how.

        Embeddings and learned positions come from N(0, 1/sqrt(d_model)), so that the logits of 3.4
        start near unit variance; the row of padding is zero. Matrices are Xavier-uniform, those
        that make queries, keys and values with a gain of 1/sqrt(2). Biases are zero.
        """
        for module in self.modules():
            if isinstance(module, SelfAttention | CrossAttention | FeedForward):
                module.reset_parameters()
        nn.init.normal_(self.embedding.weight, std=self.d_model**-0.5)
        with torch.no_grad():
            self.embedding.weight[self.pad_id].zero_()
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=self.d_model**-0.5)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Source ids [B, S], target ids shifted right [B, T] -> logits [B, T, V].

        Both are padded at the end. Logits of padding mean nothing: take no gradient from them.
        """
        target = pack(tgt, self.pad_id)
        logits = self.project(self.states(pack(src, self.pad_id), target))  # [m, V]
        return logits[target.rows]  # unpacked

    def states(self, src: Packed, tgt: Packed) -> Tensor:
        """Source ids, target ids shifted right -> the decoder's states [m, d_model].

        A source sentence ends in eos. Position i of a target sees the positions up to i (3.1).
        Rows from ``tgt.tokens`` on are padding. Raises ValueError for a sentence longer than the
        learned positions.
        """
        longest = max(src.rows.shape[1], tgt.rows.shape[1])
        if self.positions is not None and longest > self.positions.num_embeddings:
            raise ValueError(
                f"a sentence of {longest} positions: more than the "
                f"learned_positions={self.positions.num_embeddings} of the model"
            )
        source, target = (AttentionLayout(side, self.h, self.d_k) for side in (src, tgt))
        x, y = self.embed(src, tgt)
        return self.decode(y, self.encode(x, source), source, target)

    def embed(self, *sides: Packed) -> list[Tensor]:
        """The ids and positions of each side -> [n, d_model] for each: the embedding of an id times
        sqrt(d_model), plus the encoding of its position (3.4, 3.5)."""
        # One look-up serves all sides: its gradient is as large as the matrix.
        rows = self.embedding(torch.cat([side.ids for side in sides]))
        by_side = rows.split([len(side.ids) for side in sides])
        encodings = [self.encode_positions(side.positions).to(rows.dtype) for side in sides]
        scale = math.sqrt(self.d_model)
        return [PE.add(x, alpha=scale) for PE, x in zip(encodings, by_side, strict=True)]

    def encode_positions(self, positions: Tensor) -> Tensor:
        """Positions [n], from 0 -> [n, d_model]: sinusoids or learned (3.5)."""
        if self.positions is None:
            return positional_encoding(positions, self.d_model)
        return self.positions(positions)

    def encode(self, x: Tensor, source: AttentionLayout) -> Tensor:
        """Embedded source [n, d_model] -> memory [n, d_model] (3.1), dropout first (5.4)."""
        x = self.dropout(x)
        for layer in self.encoder:
            x = layer(x, source)
        return x

    def decode(
        self, y: Tensor, memory: Tensor, source: AttentionLayout, target: AttentionLayout
    ) -> Tensor:
        """Embedded target [m, d_model], memory [n, d_model] -> states [m, d_model] (3.1, 5.4)."""
        y = self.dropout(y)
        for layer in self.decoder:
            y = layer(y, memory, source, target)
        return y

    def project(self, states: Tensor) -> Tensor:
        """States [..., d_model] -> logits [..., V], by the embedding matrix (3.4)."""
        return F.linear(states, self.embedding.weight)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each inside Add & Norm (3.1)."""

    def __init__(self, d_model: int, d_ff: int, P_drop: float, qk_dim: int | None = None) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, qk_dim)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(2))

    def forward(self, x: Tensor, source: AttentionLayout) -> Tensor:
        x = self.add_norm[0](x, self.self_attention(x, source))
        return self.add_norm[1](x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, feed-forward, each in Add & Norm (3.1)."""

    def __init__(self, d_model: int, d_ff: int, P_drop: float, qk_dim: int | None = None) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, qk_dim)
        self.cross_attention = CrossAttention(d_model, qk_dim)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(3))

    def forward(
        self, y: Tensor, memory: Tensor, source: AttentionLayout, target: AttentionLayout
    ) -> Tensor:
        y = self.add_norm[0](y, self.self_attention(y, target, causal=True))
        y = self.add_norm[1](y, self.cross_attention(y, memory, source, target))
        return self.add_norm[2](y, self.feed_forward(y))


class AddNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): normalised after the residual, post-LN (3.1, 5.4)."""

    def __init__(self, d_model: int, P_drop: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(P_drop)

    def forward(self, x: Tensor, sublayer: Tensor) -> Tensor:
        return self.norm(self.dropout(sublayer, residual=x))


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself (3.2.2, 3.2.3).

    W_QKV stacks W_Q, W_K and W_V of all heads: one product makes all queries, keys and values.
    ``layout.attend`` splits them into sentences and heads, computes equation 1 for each head, and
    puts the heads side by side again (Concat). ``qk_dim`` None is d_model.
    """

    def __init__(self, d_model: int, qk_dim: int | None = None) -> None:
        super().__init__()
        qk_dim = qk_dim or d_model
        self.sizes = {"W_QKV": (qk_dim, qk_dim, d_model)}  # rows of each stacked matrix
        self.W_QKV = nn.Linear(d_model, 2 * qk_dim + d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def reset_parameters(self) -> None:
        _draw_stacked(self.W_QKV, self.sizes["W_QKV"])
        nn.init.xavier_uniform_(self.W_O.weight)

    def forward(self, x: Tensor, layout: AttentionLayout, causal: bool = False) -> Tensor:
        """x [n, d_model] -> [n, d_model]; without ``causal`` a position sees its whole sentence."""
        return self.W_O(layout.attend(self.W_QKV(x), causal=causal))


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the encoder's output (3.2.3)."""

    def __init__(self, d_model: int, qk_dim: int | None = None) -> None:
        super().__init__()
        qk_dim = qk_dim or d_model
        self.sizes = {"W_Q": (qk_dim,), "W_KV": (qk_dim, d_model)}
        self.W_Q = nn.Linear(d_model, qk_dim, bias=False)
        self.W_KV = nn.Linear(d_model, qk_dim + d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def reset_parameters(self) -> None:
        _draw_stacked(self.W_Q, self.sizes["W_Q"])
        _draw_stacked(self.W_KV, self.sizes["W_KV"])
        nn.init.xavier_uniform_(self.W_O.weight)

    def forward(
        self, y: Tensor, memory: Tensor, source: AttentionLayout, target: AttentionLayout
    ) -> Tensor:
        """y [m, d_model], memory [n, d_model] -> [m, d_model]."""
        return self.W_O(target.attend_to(source, self.W_Q(y), self.W_KV(memory)))


def _draw_stacked(stacked: nn.Linear, sizes: tuple[int, ...]) -> None:
    for W in stacked.weight.split(sizes):
        nn.init.xavier_uniform_(W, gain=2**-0.5)


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 at every position (3.3, equation 2)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def reset_parameters(self) -> None:
        for linear in (self.W_1, self.W_2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(F.relu(self.W_1(x), inplace=True))


def positional_encoding(positions: Tensor, d_model: int) -> Tensor:
    """Positions [T], from 0 -> float32 [T, d_model], sine in even and cosine in odd columns (3.5).

    They are computed for the positions asked for, so that no length is too long.
    """
    two_i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[:, None] * torch.exp(two_i * (-math.log(10000.0) / d_model))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def _check(P_drop: float, **sizes: int) -> None:
    for name, size in sizes.items():
        check_int(name, size, most=MOST_LAYERS if name == "N" else MOST_WIDTH)
    check_number("P_drop", P_drop, 0, below=1)
    if sizes["d_model"] % 2:
        raise ValueError(f"d_model={sizes['d_model']}: must be even, for pairs of sine and cosine")
    if sizes["d_model"] % sizes["h"]:
        raise ValueError(f"h={sizes['h']}: must divide d_model={sizes['d_model']}")
