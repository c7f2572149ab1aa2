"""One row of one attention head, step by step, with shapes and the paper's equations."""

from typing import Any

import torch
from torch import Tensor

from mt.inference.trace import Attention, FeedForward, Trace
from mt.inspection.arrays import encode

KINDS = ("encoder", "decoder", "cross")


def by_hand(
    trace: Trace, kind: str, layer: int, head: int, step: int, activation: str = "relu"
) -> dict[str, Any]:
    """The calculation of row ``step`` in a head of a layer, all counted from 0.

    ``kind`` is of KINDS. The encoder's rows are source tokens: where there are fewer, its last one.
    """
    attention, fed = _layer(trace, kind, layer)
    row = min(step, len(attention.x) - 1)
    scores, mask = attention.scores[head, row], attention.mask[row]
    unscaled = scores.masked_fill(~mask, -torch.inf).softmax(dim=0)
    source = "memory" if kind == "cross" else "x"
    inner = "max(0, x W_1 + b_1)" if activation == "relu" else f"{activation}(x W_1 + b_1)"
    records = {
        "x": (attention.x[row], "x, the row that asks: what the layer before gave"),
        "q": (attention.Q[head, row], f"q = x W_Q[{head + 1}]  (3.2.2)"),
        "K": (attention.K[head], f"K = {source} W_K[{head + 1}]  (3.2.2)"),
        "scores": (scores, "q K^T  (equation 1)"),
        "scaled": (attention.scaled[head, row], "q K^T / sqrt(d_k)  (equation 1)"),
        "mask": (
            mask.float(),
            "1 where the row may look, else the score becomes -infinity (3.2.3)",
        ),
        "softmax": (attention.weights[head, row], "softmax(q K^T / sqrt(d_k))  (equation 1)"),
        "unscaled_softmax": (unscaled, "softmax(q K^T), as if the scaling were left out"),
        "V": (attention.V[head], f"V = {source} W_V[{head + 1}]  (3.2.2)"),
        "context": (
            attention.weights[head, row] @ attention.V[head],
            "softmax(q K^T / sqrt(d_k)) V  (equation 1)",
        ),
        "heads_concatenated": (attention.concat[row], "Concat(head_1, ..., head_h)  (3.2.2)"),
        "after_W_O": (attention.output[row], "Concat(head_1, ..., head_h) W_O  (3.2.2)"),
        "add_norm": (attention.add_norm[row], "LayerNorm(x + Sublayer(x))  (3.1, 5.4)"),
        "feed_forward_input": (fed.x[row], "x, the row that enters the feed-forward network"),
        "feed_forward_inner": (fed.inner[row], f"{inner}  (equation 2)"),
        "feed_forward": (fed.output[row], f"{inner} W_2 + b_2  (equation 2)"),
        "feed_forward_add_norm": (fed.add_norm[row], "LayerNorm(x + FFN(x))  (3.1)"),
    }
    return {
        "kind": kind,
        "layer": layer + 1,
        "head": head + 1,
        "step": row + 1,
        **{name: _record(values, equation) for name, (values, equation) in records.items()},
    }


def _layer(trace: Trace, kind: str, layer: int) -> tuple[Attention, FeedForward]:
    if kind == "encoder":
        return trace.encoder[layer]
    self_attention, cross_attention, feed_forward = trace.decoder[layer]
    return (self_attention if kind == "decoder" else cross_attention), feed_forward


def _record(values: Tensor, equation: str) -> dict[str, Any]:
    return {"shape": list(values.shape), "equation": equation, "values": encode(values)}
