"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017): read this file first.

It follows the paper section by section and uses its notation; no line is here for speed.
``mt.model.transformer`` computes the same function faster. Most names are the same there, but
``SelfAttention`` and ``CrossAttention`` replace ``MultiHeadAttention``, and W_QKV stacks W_Q, W_K
and W_V of all heads. Tests compare outputs, loss, gradients and decoding.

Shapes: B sentences, S tokens in the longest source, T in the longest target, V in the vocabulary;
h heads; queries and keys have d_k numbers, values d_v = d_model / h. In attention T queries look
at S keys. Shorter sentences end in padding. A mask is True where a query may look at a key.
"""

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn

from mt.data.special_ids import BOS, EOS, FIRST_OUTPUT_ID, PAD

# 3.1 Encoder and decoder stacks


class Transformer(nn.Module):
    """The encoder and the decoder of figure 1."""

    def __init__(
        self,
        vocab_size: int,
        N: int = 6,
        d_model: int = 512,
        d_ff: int = 2048,
        h: int = 8,
        P_drop: float = 0.1,
        d_k: int | None = None,  # None: d_model / h
        learned_positions: int | None = None,  # None: sinusoids; otherwise table 3, row (E)
    ) -> None:
        super().__init__()
        sizes = (d_model, d_ff, h, d_k or d_model // h, P_drop)
        self.embedding = Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(learned_positions, d_model) if learned_positions else None
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(N))
        self.dropout = nn.Dropout(P_drop)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Source ids [B, S], target ids shifted right [B, T] -> logits [B, T, V].

        Shifted right: after BOS, so that the logits of a position are for the next target id.
        """
        return self.decode(tgt, self.encode(src), src)

    def encode(self, src: Tensor) -> Tensor:
        """Source ids [B, S] -> memory, the encoder's output [B, S, d_model]."""
        x = self.embed(src)
        for layer in self.encoder:
            x = layer(x, padding_mask(src))
        return x

    def decode(self, tgt: Tensor, memory: Tensor, src: Tensor) -> Tensor:
        """Target ids [B, T], memory [B, S, d_model] of source ids [B, S] -> logits [B, T, V]."""
        y = self.embed(tgt)
        for layer in self.decoder:
            y = layer(y, causal_mask(tgt), memory, padding_mask(src))
        return self.embedding.project(y)

    def embed(self, ids: Tensor) -> Tensor:
        """Ids [B, T] or [B, S] -> embeddings plus positions (3.4, 3.5), dropout (5.4)."""
        x, T = self.embedding(ids), ids.shape[1]
        if self.positions is None:
            return self.dropout(x + positional_encoding(T, x.shape[-1]).to(x))
        return self.dropout(x + self.positions.weight[:T])


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each followed by Add & Norm."""

    def __init__(self, d_model: int, d_ff: int, h: int, d_k: int, P_drop: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, h, d_k)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.add_norm[0](x, self.self_attention(x, x, x, mask))
        return self.add_norm[1](x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, then attention over the memory, then feed-forward."""

    def __init__(self, d_model: int, d_ff: int, h: int, d_k: int, P_drop: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, h, d_k)
        self.cross_attention = MultiHeadAttention(d_model, h, d_k)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(3))

    def forward(self, y: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        y = self.add_norm[0](y, self.self_attention(y, y, y, mask))
        y = self.add_norm[1](y, self.cross_attention(y, memory, memory, memory_mask))
        return self.add_norm[2](y, self.feed_forward(y))


class AddNorm(nn.Module):
    """LayerNorm(x + Sublayer(x)), with dropout on the sublayer's output before the sum (5.4)."""

    def __init__(self, d_model: int, P_drop: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(P_drop)

    def forward(self, x: Tensor, sublayer: Tensor) -> Tensor:
        return self.norm(x + self.dropout(sublayer))


def padding_mask(ids: Tensor) -> Tensor:
    """Ids [B, S] -> [B, 1, 1, S]: no head and no query looks at padding."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(ids: Tensor) -> Tensor:
    """Ids [B, T] -> [T, T]: position i looks only at positions up to i; padding comes after."""
    T = ids.shape[1]
    return torch.ones(T, T, dtype=torch.bool, device=ids.device).tril()


# 3.2.1 Scaled dot-product attention


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, equation 1.

    Q [..., T, d_k], K [..., S, d_k], V [..., S, d_v], mask -> [..., T, d_v].
    Both masks, [B, 1, 1, S] and [T, T], broadcast to the scores [B, h, T, S].
    """
    d_k = Q.shape[-1]
    scores = Q @ K.transpose(-2, -1) / math.sqrt(d_k)  # [..., T, S]
    scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)  # each row sums to 1
    return weights @ V


# 3.2.2 Multi-head attention


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O.

    Here head_i = Attention(Q W_Q[i], K W_K[i], V W_V[i]).
    """

    def __init__(self, d_model: int, h: int, d_k: int) -> None:
        super().__init__()
        d_v, std = d_model // h, d_model**-0.5
        self.W_Q = nn.Parameter(std * torch.randn(h, d_model, d_k))
        self.W_K = nn.Parameter(std * torch.randn(h, d_model, d_k))
        self.W_V = nn.Parameter(std * torch.randn(h, d_model, d_v))
        self.W_O = nn.Linear(h * d_v, d_model, bias=False)

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        """Q [B, T, d_model], K and V [B, S, d_model] -> [B, T, d_model]."""
        Q = Q[:, None] @ self.W_Q  # [B, 1, T, d_model] @ [h, d_model, d_k] -> [B, h, T, d_k]
        K = K[:, None] @ self.W_K  # [B, h, S, d_k]
        V = V[:, None] @ self.W_V  # [B, h, S, d_v]
        heads = attention(Q, K, V, mask)  # [B, h, T, d_v]
        concat = heads.transpose(1, 2).flatten(2)  # [B, T, h, d_v] -> [B, T, h * d_v]
        return self.W_O(concat)


# 3.3 Position-wise feed-forward networks


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, equation 2: the same at every position."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)  # and its bias b_1
        self.W_2 = nn.Linear(d_ff, d_model)  # and its bias b_2

    def forward(self, x: Tensor) -> Tensor:
        inner = self.W_1(x).clamp(min=0)  # [B, T, d_ff]
        return self.W_2(inner)  # [B, T, d_model]


# 3.4 Embeddings and softmax


class Embedding(nn.Module):
    """One matrix embeds the source and the target, and makes the logits before the softmax."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(d_model**-0.5 * torch.randn(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        """Ids [B, T] -> [B, T, d_model]."""
        return self.weight[ids] * math.sqrt(self.weight.shape[1])

    def project(self, y: Tensor) -> Tensor:
        """The decoder's output [B, T, d_model] -> logits [B, T, V]."""
        return y @ self.weight.T


# 3.5 Positional encoding


def positional_encoding(T: int, d_model: int) -> Tensor:
    """Positions 0 to T - 1 -> PE [T, d_model].

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(the same angle).
    """
    pos = torch.arange(T)[:, None]  # [T, 1]
    two_i = torch.arange(0, d_model, 2)  # [d_model / 2]
    angle = pos / 10000 ** (two_i / d_model)  # [T, d_model / 2]
    PE = torch.empty(T, d_model)
    PE[:, 0::2] = angle.sin()
    PE[:, 1::2] = angle.cos()
    return PE


# 5.4 Label smoothing


def label_smoothed_loss(logits: Tensor, labels: Tensor, eps_ls: float = 0.1) -> Tensor:
    """Logits [B, T, V], labels [B, T] -> cross-entropy in nats, the mean over all real labels.

    The model should predict q = (1 - eps_ls) one_hot(label) + eps_ls / V (Szegedy et al. 2016).
    """
    log_P, V = logits.log_softmax(dim=-1), logits.shape[-1]
    one_hot = nn.functional.one_hot(labels, V).to(log_P)  # [B, T, V]
    q = (1 - eps_ls) * one_hot + eps_ls / V  # [B, T, V]
    loss = -(q * log_P).sum(dim=-1)  # [B, T]
    return loss[labels != PAD].mean()


# Greedy decoding: the most probable token at every step (section 6.1 has beam search instead)


@torch.no_grad()
def greedy_decode(model: Transformer, src: Tensor, max_length: int) -> Tensor:
    """Source ids [B, S], each sentence ending in eos -> output ids [B, T], T <= max_length.

    Each step computes the whole prefix again. An output ends in eos, after which padding follows.
    """
    memory = model.encode(src)
    tgt = torch.full((len(src), 1), BOS, device=src.device)
    finished = torch.zeros(len(src), dtype=torch.bool, device=src.device)
    while tgt.shape[1] <= max_length and not finished.all():
        logits = model.decode(tgt, memory, src)[:, -1]  # [B, V], of the next token
        logits[:, :FIRST_OUTPUT_ID] = -math.inf  # pad, unk and bos are not for outputs
        token = logits.argmax(dim=-1).masked_fill(finished, PAD)  # [B]
        tgt = torch.cat((tgt, token[:, None]), dim=1)
        finished = finished | (token == EOS)
    return tgt[:, 1:]


# The weights of the fast model


def from_fast(fast: Any) -> Transformer:
    """A copy of a ``mt.model.transformer.Transformer``, in training mode if ``fast`` is.

    ValueError for a variant that the paper does not have, such as pre-LN.
    """
    variants = fast.config.keys() - inspect.signature(Transformer).parameters
    if variants:
        raise ValueError(f"not the paper's Transformer: it has {', '.join(sorted(variants))}")
    model = Transformer(**fast.config)
    model.load_state_dict(unstack(fast.state_dict(), fast.config))
    return model.to(fast.embedding.weight).train(fast.training)


def unstack(weights: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """Weights of the fast model by name, or their gradients -> those of the model above.

    The fast model stacks the transposed W_Q, W_K and W_V of all heads in one W_QKV or W_KV.
    """
    h, d_k, d_model = config["h"], config["d_k"], config["d_model"]
    sizes = {"Q": h * d_k, "K": h * d_k, "V": d_model}
    unstacked = {}
    for name, weight in weights.items():
        path, _, letters = name.removesuffix(".weight").rpartition("W_")
        if letters in ("QKV", "Q", "KV"):  # [sum of sizes, d_model]
            parts = weight.split([sizes[letter] for letter in letters])
            for letter, part in zip(letters, parts, strict=True):
                unstacked[f"{path}W_{letter}"] = part.unflatten(0, (h, -1)).transpose(1, 2)
        else:
            unstacked[name] = weight
    return unstacked
