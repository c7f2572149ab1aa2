"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017), section 3, top to bottom.

The positions of a batch lie one behind the other, without padding (``mt.data.packing``); attention
alone has them laid out as sentences.

Shapes: B sentences, S source length, T target length, n source rows, m target rows, V vocabulary,
h heads, d_v = d_model / h, and d_k, which is d_v unless told otherwise.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.data.packing import Packed, pack
from mt.model.attention_layout import AttentionLayout
from mt.model.dropout import Dropout


class Transformer(nn.Module):
    """Encoder, decoder and the one matrix they share (3.1, 3.4, figure 1).

    This is the view of training: all target positions at once. ``mt.inference`` computes the same
    function a token at a time.

    ``d_k`` None is d_model / h; ``learned_positions`` is how many of them are learned, None for
    sinusoids, which have no end. Raises ValueError when a number is not one the paper's
    architecture allows.
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
        _check(vocab_size=vocab_size, N=N, d_model=d_model, d_ff=d_ff, h=h, P_drop=P_drop)
        d_k = d_model // h if d_k is None else d_k
        _check_size("d_k", d_k)
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
        self.d_model, self.h, self.pad_id = d_model, h, pad_id
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.dropout = Dropout(P_drop)
        layer = d_model, d_ff, P_drop, h * d_k
        self.encoder = nn.ModuleList(EncoderLayer(*layer) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(*layer) for _ in range(N))
        self.positions: nn.Embedding | None = None
        if learned_positions is not None:  # for both sides, as the sinusoids are (table 3, row E)
            _check_size("learned_positions", learned_positions)
            self.positions = nn.Embedding(learned_positions, d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; the paper is silent, so as fairseq does (tensor2tensor is much alike).

        The embedding comes from N(0, 1/sqrt(d_model)), so that the logits of 3.4 start near unit
        variance, and so do learned positions; the padding row is zero; matrices are Xavier-uniform,
        W_Q, W_K and W_V with a gain of 1/sqrt(2), and biases zero.
        """
        for name, module in self.named_modules():
            if isinstance(module, SelfAttention | CrossAttention):
                for stacked, sizes in module.sizes.items():
                    for W in getattr(module, stacked).weight.split(sizes):
                        nn.init.xavier_uniform_(W, gain=2**-0.5)
            elif isinstance(module, nn.Linear):
                if not name.endswith(("W_QKV", "W_Q", "W_KV")):
                    nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.d_model**-0.5)
        with torch.no_grad():
            self.embedding.weight[self.pad_id].zero_()
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=self.d_model**-0.5)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Source ids [B, S], target ids shifted right [B, T] -> logits [B, T, V].

        Both are padded behind; the logits there mean nothing, and no gradient may come from them.
        """
        target = pack(tgt, self.pad_id)
        return self.project(self.states(pack(src, self.pad_id), target))[target.rows]

    def states(self, src: Packed, tgt: Packed) -> Tensor:
        """Source ids, target ids shifted right -> the decoder's states [m, d_model].

        A source sentence ends in eos. Position i of a target sees those up to i alone (3.1). Rows
        from ``tgt.tokens`` on are padding. Raises ValueError for a sentence longer than the
        positions that are learned.
        """
        longest = max(src.rows.shape[1], tgt.rows.shape[1])
        if self.positions is not None and longest > self.positions.num_embeddings:
            raise ValueError(
                f"a sentence of {longest} positions: more than the "
                f"learned_positions={self.positions.num_embeddings} of the model"
            )
        source, target = AttentionLayout(src, self.h), AttentionLayout(tgt, self.h)
        # One look-up for both sides, because its gradient is as large as the matrix.
        embedded = self.embedding(torch.cat((src.ids, tgt.ids)))
        x, y = embedded.split((len(src.ids), len(tgt.ids)))
        memory = self.encode(self.embed(x, src.positions), source)
        return self.decode(self.embed(y, tgt.positions), memory, source, target)

    def embed(self, embedded: Tensor, positions: Tensor) -> Tensor:
        """Rows of the embedding matrix [n, d_model], positions [n] -> [n, d_model]: the rows times
        sqrt(d_model), plus positional encodings (3.4, 3.5), then dropout (5.4)."""
        if self.positions is None:
            encoding = positional_encoding(positions, self.d_model).to(embedded.dtype)
        else:
            encoding = self.positions(positions)
        return self.dropout(encoding.add(embedded, alpha=math.sqrt(self.d_model)))

    def encode(self, x: Tensor, source: AttentionLayout) -> Tensor:
        """Embedded source [n, d_model] -> memory [n, d_model] (3.1)."""
        for layer in self.encoder:
            x = layer(x, source)
        return x

    def decode(
        self, y: Tensor, memory: Tensor, source: AttentionLayout, target: AttentionLayout
    ) -> Tensor:
        """Embedded target [m, d_model], memory [n, d_model] -> states [m, d_model] (3.1)."""
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


def attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Scaled dot-product attention, softmax(Q K^T / sqrt(d_k)) V (3.2.1, equation 1).

    Q [B, h, T, d_k], K [B, h, S, d_k], V [B, h, S, d_v] -> [B, h, T, d_v]. ``mask`` is True
    where a query may look at a key, ``causal`` lets query i look at keys 0..i.
    """
    if Q.device.type != "cpu":
        return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, is_causal=causal)
    # In three steps: on a CPU the fused kernel is slower, in bfloat16 ten times. In float32 at
    # least: bfloat16 gains nothing here, where oneDNN makes code for every new T and S.
    given, dtype = Q.dtype, torch.promote_types(Q.dtype, torch.float32)
    (B, h, T, d_k), S = Q.shape, K.shape[2]
    if causal:
        mask = torch.ones(1, T, S, dtype=torch.bool).tril()
    elif mask is not None:
        mask = mask.expand(B, h, -1, S).flatten(0, 1)
    else:
        mask = torch.ones(1, 1, 1, dtype=torch.bool)
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, -math.inf)
    Q, K, V = (x.flatten(0, 1).to(dtype) for x in (Q, K, V))
    with torch.autocast("cpu", enabled=False):
        scores = torch.baddbmm(bias, Q, K.transpose(1, 2), alpha=d_k**-0.5)
        return torch.bmm(scores.softmax(dim=-1), V).view(B, h, T, -1).to(given)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself (3.2.2, 3.2.3).

    W_Q, W_K and W_V of all heads are stacked in one matrix, so that one product makes them all.
    ``qk_dim`` is h * d_k; None: d_model, which is h * d_v.
    """

    def __init__(self, d_model: int, qk_dim: int | None = None) -> None:
        super().__init__()
        qk_dim = qk_dim or d_model
        self.sizes = {"W_QKV": (qk_dim, qk_dim, d_model)}  # of what is stacked
        self.W_QKV = nn.Linear(d_model, 2 * qk_dim + d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, heads: AttentionLayout, causal: bool = False) -> Tensor:
        """x [n, d_model] -> [n, d_model]; without ``causal`` a position sees its whole sentence."""
        groups = heads.to_heads(self.W_QKV(x), self.sizes["W_QKV"])
        context = [
            attention(Q, K, V, None if causal else mask, causal)
            for (Q, K, V), mask in zip(groups, heads.masks, strict=True)
        ]
        return self.W_O(heads.from_heads(context))


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the encoder's output (3.2.3)."""

    def __init__(self, d_model: int, qk_dim: int | None = None) -> None:
        super().__init__()
        qk_dim = qk_dim or d_model
        self.sizes = {"W_Q": (qk_dim,), "W_KV": (qk_dim, d_model)}
        self.W_Q = nn.Linear(d_model, qk_dim, bias=False)
        self.W_KV = nn.Linear(d_model, qk_dim + d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self, y: Tensor, memory: Tensor, source: AttentionLayout, target: AttentionLayout
    ) -> Tensor:
        """y [m, d_model], memory [n, d_model] -> [m, d_model]."""
        queries = target.to_heads(self.W_Q(y), self.sizes["W_Q"])
        groups = source.to_heads(self.W_KV(memory), self.sizes["W_KV"])
        context = [
            attention(Q, K, V, mask)
            for (Q,), (K, V), mask in zip(queries, groups, source.masks, strict=True)
        ]
        return self.W_O(target.from_heads(context))


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 at every position (3.3, equation 2)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(F.relu(self.W_1(x), inplace=True))


def positional_encoding(positions: Tensor, d_model: int) -> Tensor:
    """Positions [T], from 0 -> float32 [T, d_model], sine in even and cosine in odd columns (3.5).

    Computed for the positions asked for, so that no length is too long.
    """
    two_i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[:, None] * torch.exp(two_i * (-math.log(10000.0) / d_model))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def _check(P_drop: float, **sizes: int) -> None:
    for name, value in sizes.items():
        _check_size(name, value)
    if not isinstance(P_drop, int | float) or not 0 <= P_drop < 1:
        raise ValueError(f"P_drop={P_drop!r}: must be a number from 0 up to, not including, 1")
    if sizes["d_model"] % 2:
        raise ValueError(f"d_model={sizes['d_model']}: must be even, for pairs of sine and cosine")
    if sizes["d_model"] % sizes["h"]:
        raise ValueError(f"h={sizes['h']}: must divide d_model={sizes['d_model']}")


def _check_size(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")
