"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017), section 3, top to bottom.

Shapes: B sentences, S source length, T target length, V vocabulary, h heads, d_k = d_model / h.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Transformer(nn.Module):
    """Encoder, decoder and the one matrix they share (3.1, 3.4, figure 1).

    This is the view of training: all target positions at once. ``mt.inference`` computes the same
    function a token at a time.

    Raises ValueError when a number is not one the paper's architecture allows.
    """

    def __init__(
        self,
        vocab_size: int,
        N: int = 6,
        d_model: int = 512,
        d_ff: int = 2048,
        h: int = 8,
        P_drop: float = 0.1,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        _check(vocab_size=vocab_size, N=N, d_model=d_model, d_ff=d_ff, h=h, P_drop=P_drop)
        self.config = {
            "vocab_size": vocab_size,
            "N": N,
            "d_model": d_model,
            "d_ff": d_ff,
            "h": h,
            "P_drop": P_drop,
        }
        self.d_model = d_model
        self.pad_id = pad_id
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.dropout = nn.Dropout(P_drop)
        self.encoder = nn.ModuleList(EncoderLayer(d_model, d_ff, h, P_drop) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(d_model, d_ff, h, P_drop) for _ in range(N))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; the paper is silent, so as fairseq does (tensor2tensor is much alike).

        The embedding comes from N(0, 1/sqrt(d_model)), so that the logits of 3.4 start near unit
        variance; the padding row is zero; matrices are Xavier-uniform, W_Q, W_K and W_V with a
        gain of 1/sqrt(2), and biases zero.
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                if name.endswith(("W_QKV", "W_Q", "W_KV")):
                    for W in module.weight.split(self.d_model):
                        nn.init.xavier_uniform_(W, gain=2**-0.5)
                else:
                    nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.d_model**-0.5)
        with torch.no_grad():
            self.embedding.weight[self.pad_id].zero_()

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Source ids [B, S], target ids shifted right [B, T] -> logits [B, T, V]."""
        return self.project(self.decode(tgt, self.encode(src), src))

    def encode(self, src: Tensor) -> Tensor:
        """Source ids [B, S], ending in eos and padded behind -> memory [B, S, d_model] (3.1)."""
        mask = self._source_mask(src)
        x = self._embed(src)
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def decode(self, tgt: Tensor, memory: Tensor, src: Tensor) -> Tensor:
        """Target ids [B, T], memory [B, S, d_model], source ids [B, S] -> states [B, T, d_model].

        Position i sees targets up to i alone (3.1). Padding behind a target needs no mask: no
        real position looks ahead to it.
        """
        source_mask = self._source_mask(src)
        x = self._embed(tgt)
        for layer in self.decoder:
            x = layer(x, memory, source_mask)
        return x

    def project(self, states: Tensor) -> Tensor:
        """States [..., d_model] -> logits [..., V], by the embedding matrix (3.4)."""
        return F.linear(states, self.embedding.weight)

    def _source_mask(self, src: Tensor) -> Tensor:
        return (src != self.pad_id)[:, None, None, :]  # [B, 1, 1, S], True where a key counts

    def _embed(self, ids: Tensor) -> Tensor:
        """3.4 and 3.5: embeddings times sqrt(d_model), plus positions, then dropout (5.4)."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.embedding(ids) * math.sqrt(self.d_model)
        return self.dropout(x + positional_encoding(positions, self.d_model).to(x.dtype))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each inside Add & Norm (3.1)."""

    def __init__(self, d_model: int, d_ff: int, h: int, P_drop: float) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(2))

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        x = self.add_norm[0](x, self.self_attention(x, mask=source_mask))
        return self.add_norm[1](x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, feed-forward, each in Add & Norm (3.1)."""

    def __init__(self, d_model: int, d_ff: int, h: int, P_drop: float) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, h)
        self.cross_attention = CrossAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        x = self.add_norm[0](x, self.self_attention(x, causal=True))
        x = self.add_norm[1](x, self.cross_attention(x, memory, source_mask))
        return self.add_norm[2](x, self.feed_forward(x))


class AddNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): normalised after the residual, post-LN (3.1, 5.4)."""

    def __init__(self, d_model: int, P_drop: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(P_drop)

    def forward(self, x: Tensor, sublayer: Tensor) -> Tensor:
        return self.norm(x + self.dropout(sublayer))


def attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Scaled dot-product attention, softmax(Q K^T / sqrt(d_k)) V (3.2.1, equation 1).

    Q [B, h, T, d_k], K and V [B, h, S, d_k] -> [B, h, T, d_k]. ``mask`` is True where a query may
    look at a key, ``causal`` lets query i look at keys 0..i.
    """
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, is_causal=causal)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself (3.2.2, 3.2.3).

    W_Q, W_K and W_V of all heads are stacked in one matrix, so that one product makes them all.
    """

    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        self.h = h
        self.W_QKV = nn.Linear(d_model, 3 * d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        Q, K, V = (_split_heads(part, self.h) for part in self.W_QKV(x).chunk(3, dim=-1))
        return self.W_O(_merge_heads(attention(Q, K, V, mask, causal)))


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the encoder's output (3.2.3)."""

    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        self.h = h
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_KV = nn.Linear(d_model, 2 * d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """x [B, T, d_model], memory [B, S, d_model] -> [B, T, d_model]."""
        Q = _split_heads(self.W_Q(x), self.h)
        K, V = (_split_heads(part, self.h) for part in self.W_KV(memory).chunk(2, dim=-1))
        return self.W_O(_merge_heads(attention(Q, K, V, source_mask)))


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 at every position (3.3, equation 2)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(F.relu(self.W_1(x)))


def positional_encoding(positions: Tensor, d_model: int) -> Tensor:
    """Positions [T], from 0 -> float32 [T, d_model], sine in even and cosine in odd columns (3.5).

    Computed for the positions asked for, so that no length is too long.
    """
    two_i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[:, None] * torch.exp(two_i * (-math.log(10000.0) / d_model))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def _split_heads(x: Tensor, h: int) -> Tensor:
    B, T, d_model = x.shape
    return x.view(B, T, h, d_model // h).transpose(1, 2)  # [B, h, T, d_k]


def _merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # [B, T, d_model]


def _check(P_drop: float, **sizes: int) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")
    if not isinstance(P_drop, int | float) or not 0 <= P_drop < 1:
        raise ValueError(f"P_drop={P_drop!r}: must be a number from 0 up to, not including, 1")
    if sizes["d_model"] % 2:
        raise ValueError(f"d_model={sizes['d_model']}: must be even, for pairs of sine and cosine")
    if sizes["d_model"] % sizes["h"]:
        raise ValueError(f"h={sizes['h']}: must divide d_model={sizes['d_model']}")
