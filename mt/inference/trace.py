"""Keeps what the model computes for one sentence: every attention, every intermediate result.

``trace`` runs an InferenceModel with its own weights and operations, in plain order and for all
positions of the target at once. Translating does not need it.

Shapes: S source tokens and T target tokens, eos counted in both; h heads; V vocabulary; N layers.
A row is a position. Row t of the decoder reads target token t - 1 (row 0 reads bos) and predicts
token t.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mt.data.special_ids import BOS
from mt.inference.incremental import InferenceAttention, InferenceFeedForward, InferenceModel


class Attention(NamedTuple):
    """Multi-head attention and its Add & Norm (3.2.2, 3.1): n rows look at m rows."""

    x: Tensor  # [n, d_model], what the queries are made of
    Q: Tensor  # [h, n, d_k]
    K: Tensor  # [h, m, d_k]
    V: Tensor  # [h, m, d_v]
    scores: Tensor  # [h, n, m], Q K^T
    scaled: Tensor  # [h, n, m], Q K^T / sqrt(d_k)
    mask: Tensor  # [n, m], True where a row may look
    weights: Tensor  # [h, n, m], the softmax
    concat: Tensor  # [n, h * d_v], the weighted values of all heads
    output: Tensor  # [n, d_model], times W_O
    add_norm: Tensor  # [n, d_model]


class FeedForward(NamedTuple):
    """The feed-forward network (equation 2) and its Add & Norm."""

    x: Tensor  # [n, d_model]
    inner: Tensor  # [n, d_ff], after the activation
    output: Tensor  # [n, d_model], times W_2
    add_norm: Tensor  # [n, d_model]


class Trace(NamedTuple):
    """What a model computes for a source and a target; all in float32 on the CPU."""

    source_embedding: Tensor  # [S, d_model], times sqrt(d_model), before the positions are added
    target_embedding: Tensor  # [T, d_model], of bos and the target without eos
    encoder: list[tuple[Attention, FeedForward]]  # a pair for each layer
    decoder: list[tuple[Attention, Attention, FeedForward]]  # itself, the source, feed-forward
    logits: Tensor  # [T, V]

    @property
    def weights(self) -> dict[str, Tensor]:
        """The attention of all layers: encoder [N, h, S, S], decoder [.. T, T], cross [.. T, S]."""
        return {
            "encoder": torch.stack([attention.weights for attention, _ in self.encoder]),
            "decoder": torch.stack([attention.weights for attention, _, _ in self.decoder]),
            "cross": torch.stack([cross.weights for _, cross, _ in self.decoder]),
        }


@torch.no_grad()
def trace(model: InferenceModel, source: list[int], target: list[int]) -> Trace:
    """Follow a source and a target through the model. The ids of both end in eos."""
    inputs = [BOS, *target[:-1]]
    S, T = len(source), len(inputs)
    everything = torch.ones(S, S, dtype=torch.bool, device=model.device)
    encoder, decoder = [], []
    x = _embed(model, model.embedding, source)
    for layer in model.encoder:
        attention = _attend(layer.self_attention, x, None, everything)
        fed = _feed_forward(layer.feed_forward, attention.add_norm)
        encoder.append((attention, fed))
        x = fed.add_norm
    memory, x = x, _embed(model, model.target_embedding, inputs)
    causal = torch.ones(T, T, dtype=torch.bool, device=model.device).tril()
    whole_source = everything[:1].expand(T, -1)
    for decoder_layer in model.decoder:
        attention = _attend(decoder_layer.self_attention, x, None, causal)
        cross = _attend(decoder_layer.cross_attention, attention.add_norm, memory, whole_source)
        fed = _feed_forward(decoder_layer.feed_forward, cross.add_norm)
        decoder.append((attention, cross, fed))
        x = fed.add_norm
    logits = model.vocabulary(x)
    return Trace(
        _embedding(model, model.embedding, source),
        _embedding(model, model.target_embedding, inputs),
        [(_on_cpu(attention), _on_cpu(fed)) for attention, fed in encoder],
        [(_on_cpu(attention), _on_cpu(cross), _on_cpu(fed)) for attention, cross, fed in decoder],
        logits.float().cpu(),
    )


def _attend(
    attention: InferenceAttention, x: Tensor, memory: Tensor | None, mask: Tensor
) -> Attention:
    """Equation 1 step by step; ``memory`` None is self-attention."""
    if memory is None:
        Q, new = attention.project(x, 1)
    else:
        Q, new = attention.query(x, 1), attention.keys_values(memory, 1)
    Q, (K, V) = Q[0], new[0].transpose(0, 1).chunk(2)
    scores = Q @ K.transpose(1, 2)
    scaled = scores * attention.scale
    weights = scaled.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    heads = (weights @ V).transpose(0, 1).flatten(1)  # [n, h * width]
    output = attention.W_O(heads)
    add_norm = attention.norm(attention.W_O.add_residual(heads, x))
    # Where d_k and d_v differ, zeros fill up the smaller one.
    d_k, d_v = attention.d_k, x.shape[1] // attention.h
    concat = heads.unflatten(1, (attention.h, -1))[..., :d_v].flatten(1)
    Q, K, V = Q[..., :d_k], K[..., :d_k], V[..., :d_v]
    return Attention(x, Q, K, V, scores, scaled, mask, weights, concat, output, add_norm)


def _feed_forward(layer: InferenceFeedForward, x: Tensor) -> FeedForward:
    inner = layer.inner(x)
    return FeedForward(x, inner, layer.W_2(inner), layer(x))


def _embedding(model: InferenceModel, table: Tensor, ids: list[int]) -> Tensor:
    return table[ids].float().cpu() * model.d_model**0.5


def _embed(model: InferenceModel, table: Tensor, ids: list[int]) -> Tensor:
    return model.embed(torch.tensor([ids], device=model.device), 0, table)


def _on_cpu(record: Any) -> Any:
    return type(record)(*(x.cpu() if x.dtype == torch.bool else x.float().cpu() for x in record))
