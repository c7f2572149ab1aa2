"""The layers of ``mt.model.transformer``: attention, feed-forward, Add & Norm (3.1 to 3.3).

Shapes: as there.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from mt.model.attention_layout import AttentionLayout
from mt.model.dropout import Dropout, dropout

NORMS = ("post", "pre")


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "relu": None,  # which has a kernel of its own in many places
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "swish": F.silu,  # Marian's name of it
}


class LayerShape(NamedTuple):
    """The arguments of ``Stacks`` that a layer needs; ``qk_dim`` None is d_model."""

    d_model: int
    d_ff: int
    P_drop: float
    qk_dim: int | None = None
    norm: str = "post"
    activation: str = "relu"
    P_inner: float = 0.0


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each inside Add & Norm (3.1).

    A decoder-only model consists of these layers too, with ``causal`` self-attention.
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.d_model, shape.qk_dim)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ff, shape.activation, shape.P_inner)
        self.add_norm = nn.ModuleList(AddNorm(shape) for _ in range(2))

    def forward(self, x: Tensor, source: AttentionLayout, causal: bool = False) -> Tensor:
        x = self.add_norm[0](x, lambda x: self.self_attention(x, source, causal))
        return self.add_norm[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, feed-forward, each in Add & Norm (3.1)."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.d_model, shape.qk_dim)
        self.cross_attention = CrossAttention(shape.d_model, shape.qk_dim)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ff, shape.activation, shape.P_inner)
        self.add_norm = nn.ModuleList(AddNorm(shape) for _ in range(3))

    def forward(
        self, y: Tensor, memory: Tensor, source: AttentionLayout, target: AttentionLayout
    ) -> Tensor:
        y = self.add_norm[0](y, lambda y: self.self_attention(y, target, causal=True))
        y = self.add_norm[1](y, lambda y: self.cross_attention(y, memory, source, target))
        return self.add_norm[2](y, self.feed_forward)


class AddNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): normalised after the residual, post-LN (3.1, 5.4).

    Pre-LN is x + Dropout(Sublayer(LayerNorm(x))). The sublayer is given as a function, since the
    norm stands before or after it.
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.d_model)
        self.dropout = Dropout(shape.P_drop)
        self.is_pre = shape.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.is_pre:
            return self.dropout(sublayer(self.norm(x)), residual=x)
        return self.norm(self.dropout(sublayer(x), residual=x))


def final_norm(shape: LayerShape) -> nn.LayerNorm | None:
    """Pre-LN normalises the sum of all layers once, at the end."""
    return nn.LayerNorm(shape.d_model) if shape.norm == "pre" else None


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
    """max(0, x W_1 + b_1) W_2 + b_2 at every position (3.3, equation 2), or another activation."""

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "relu", P_inner: float = 0.0
    ) -> None:
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]
        self.P_inner = P_inner

    def reset_parameters(self) -> None:
        for linear in (self.W_1, self.W_2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.W_1(x)
        # In place: nobody else needs what is below zero.
        inner = F.relu(inner, inplace=True) if self.activation is None else self.activation(inner)
        return self.W_2(dropout(inner, self.P_inner if self.training else 0.0))
