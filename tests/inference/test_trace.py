"""The trace has the numbers of the model that translates, and those of the plain Transformer."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.data.special_ids import BOS, EOS
from mt.inference.incremental import InferenceModel
from mt.inference.options import PRECISIONS
from mt.inference.trace import Trace, trace
from mt.model import reference
from mt.model.marian import MarianTransformer
from mt.model.transformer import Transformer

V = 60
SOURCE = [*(5, 17, 9, 33, 58, 4, 21), EOS]
TARGET = [*(7, 7, 41, 12), EOS]
SIZES: dict[str, dict[str, Any]] = {
    "sinusoids": {},
    "learned positions": {"learned_positions": 20},
    "narrow keys": {"d_k": 4},
    "wide keys": {"d_k": 16},
}


def make(**sizes: Any) -> Transformer:
    torch.manual_seed(3)
    return Transformer(V, N=3, d_model=32, d_ff=48, h=4, **sizes).eval()


def marian() -> Transformer:
    torch.manual_seed(3)
    sizes = {"N": 2, "d_model": 32, "d_ff": 48, "h": 4}
    model = MarianTransformer("swish", vocab_size=V, **sizes).eval()
    for parameter in model.parameters():  # biases too
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def logits_of_steps(model: InferenceModel) -> Tensor:
    """What the search sees: a token at a time, from the cache."""
    state = model.start(torch.tensor([SOURCE]))
    inputs = [BOS, *TARGET[:-1]]
    return torch.cat([model.step(torch.tensor([[token]]), state)[0] for token in inputs])


@pytest.mark.parametrize("name", [*SIZES, "marian"])
def test_logits_are_those_of_the_search(name: str) -> None:
    model = InferenceModel(marian() if name == "marian" else make(**SIZES[name]))
    model_trace = trace(model, SOURCE, TARGET)
    assert model_trace.logits.shape == (len(TARGET), V)
    assert model_trace.logits.sub(logits_of_steps(model)).abs().max() < 1e-5


@pytest.mark.parametrize("precision", PRECISIONS)
def test_logits_are_those_of_the_search_in_each_precision(precision: str) -> None:
    model = InferenceModel(make(), precision)
    difference = trace(model, SOURCE, TARGET).logits - logits_of_steps(model)
    # int8 rounds activations between the extremes of a whole matrix: all steps or one.
    assert difference.abs().max() < {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.2}[precision]


@pytest.mark.parametrize("name", [*SIZES, "marian"])
def test_cross_attention_is_that_of_the_translator(name: str) -> None:
    model = InferenceModel(marian() if name == "marian" else make(**SIZES[name]))
    weights = trace(model, SOURCE, TARGET).weights["cross"]
    [kept] = model.cross_attention_weights(torch.tensor([SOURCE]), [TARGET[:-1]])
    assert weights.sub(kept).abs().max() < 1e-6


@torch.no_grad()
def plain_weights(model: reference.Transformer) -> tuple[dict[str, list[Tensor]], Tensor]:
    """The attention weights of each layer and the logits, in the lines of the paper."""
    kept: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

    def attend(kind: str, layer: Any, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        heads = []
        for W_Q, W_K, W_V in zip(layer.W_Q, layer.W_K, layer.W_V, strict=True):
            scores = (x @ W_Q) @ (memory @ W_K).T / math.sqrt(W_Q.shape[1])
            weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
            heads.append((weights, weights @ (memory @ W_V)))
        kept[kind].append(torch.stack([weights for weights, _ in heads]))
        return layer.W_O(torch.cat([values for _, values in heads], dim=-1))

    source, inputs = torch.tensor(SOURCE), torch.tensor([BOS, *TARGET[:-1]])
    x, y = model.embed(source[None])[0], model.embed(inputs[None])[0]
    S, T = len(source), len(inputs)
    everything, causal = torch.ones(T, S) > 0, torch.ones(T, T).tril() > 0
    for layer in model.encoder:
        own = attend("encoder", layer.self_attention, x, x, torch.ones(S, S) > 0)
        x = layer.add_norm[0](x, own)
        x = layer.add_norm[1](x, layer.feed_forward(x))
    for layer in model.decoder:
        y = layer.add_norm[0](y, attend("decoder", layer.self_attention, y, y, causal))
        y = layer.add_norm[1](y, attend("cross", layer.cross_attention, y, x, everything))
        y = layer.add_norm[2](y, layer.feed_forward(y))
    return kept, model.embedding.project(y)


@pytest.mark.parametrize("name", SIZES)
def test_attention_is_that_of_a_plain_computation(name: str) -> None:
    fast = make(**SIZES[name])
    model_trace = trace(InferenceModel(fast), SOURCE, TARGET)
    plain, logits = plain_weights(reference.from_fast(fast))
    S, T = len(SOURCE), len(TARGET)
    shapes = {"encoder": (3, 4, S, S), "decoder": (3, 4, T, T), "cross": (3, 4, T, S)}
    for kind, weights in model_trace.weights.items():
        assert weights.shape == shapes[kind]
        assert weights.sub(torch.stack(plain[kind])).abs().max() < 1e-6
        assert weights.sum(dim=-1).sub(1).abs().max() < 1e-6
    assert model_trace.weights["decoder"].triu(1).abs().max() == 0
    assert model_trace.logits.sub(logits).abs().max() < 1e-5
    # And the plain lines are those of the reference.
    model = reference.from_fast(fast)
    whole = model(torch.tensor([SOURCE]), torch.tensor([[BOS, *TARGET[:-1]]]))
    assert logits.sub(whole[0]).abs().max() < 1e-5


@pytest.mark.parametrize("name", [*SIZES, "marian"])
def test_each_result_follows_from_those_before(name: str) -> None:
    model = marian() if name == "marian" else make(**SIZES[name])
    model_trace: Trace = trace(InferenceModel(model), SOURCE, TARGET)
    d_k, d_v = model.d_k, model.d_model // model.h
    records = [(x, *layer) for x, layer in zip(model.encoder, model_trace.encoder, strict=True)]
    records += [(x, *layer) for x, layer in zip(model.decoder, model_trace.decoder, strict=True)]
    for layer, *attentions, fed in records:
        previous = None
        for norm, attention in zip(layer.add_norm, attentions, strict=False):
            assert attention.Q.shape[2] == attention.K.shape[2] == d_k
            assert attention.V.shape[2] == d_v
            close(attention.scores, attention.Q @ attention.K.transpose(1, 2))
            close(attention.scaled, attention.scores / math.sqrt(d_k))
            masked = attention.scaled.masked_fill(~attention.mask, -math.inf)
            close(attention.weights, masked.softmax(dim=-1))
            heads = attention.weights @ attention.V
            close(attention.concat, heads.transpose(0, 1).flatten(1))
            close(attention.add_norm, norm.norm(attention.x + attention.output))
            assert previous is None or torch.equal(attention.x, previous)
            previous = attention.add_norm
        assert torch.equal(fed.x, previous)
        close(fed.output, layer.feed_forward(fed.x))
        close(fed.output, layer.feed_forward.W_2(fed.inner))
        close(fed.add_norm, layer.add_norm[-1].norm(fed.x + fed.output))
    close(model_trace.source_embedding, model.embedding(torch.tensor(SOURCE)) * math.sqrt(32))
    positions = model.encode_positions(torch.arange(len(SOURCE)))
    close(model_trace.encoder[0][0].x, model_trace.source_embedding + positions)


def close(one: Tensor, other: Tensor) -> None:
    assert one.shape == other.shape
    assert one.sub(other).abs().max() < 1e-5
