"""Published numbers, and numbers computed by hand, for the plain and for the fast Transformer."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.data.packing import pack
from mt.model import attention_layout, kernels, reference, transformer
from mt.model.attention_layout import AttentionLayout

Examples = dict[str, Any]


def assert_close(actual: Tensor, expected: Any, atol: float = 1e-5) -> None:
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


# Both models behind one signature: Q [T, d_k], K [S, d_k], V [S, d_v] -> [T, d_v].


def plain_attention(Q: Tensor, K: Tensor, V: Tensor, causal: bool = False) -> Tensor:
    mask = torch.ones(len(Q), len(K), dtype=torch.bool)
    return reference.attention(Q, K, V, mask.tril() if causal else mask)


def fast_attention(Q: Tensor, K: Tensor, V: Tensor, causal: bool = False) -> Tensor:
    return kernels.attention(Q[None, None], K[None, None], V[None, None], causal=causal)[0, 0]


def plain_encoding(T: int, d_model: int) -> Tensor:
    return reference.positional_encoding(T, d_model)


def fast_encoding(T: int, d_model: int) -> Tensor:
    return transformer.positional_encoding(torch.arange(T), d_model)


ATTENTIONS = pytest.mark.parametrize("attention", [plain_attention, fast_attention])
ENCODINGS = pytest.mark.parametrize("encoding", [plain_encoding, fast_encoding])


# 3.5 Positional encoding


@ENCODINGS
@pytest.mark.parametrize("name", ["positional_encoding_d64", "positional_encoding_d4"])
def test_positional_encoding_equals_the_published_table(
    worked_examples: Examples, name: str, encoding: Callable[..., Tensor]
) -> None:
    example = worked_examples[name]
    actual = encoding(len(example["rows"]), example["d_model"])
    columns = example.get("columns", range(example["d_model"]))
    assert_close(actual[:, list(columns)], example["rows"], atol=example["tolerance"])


@ENCODINGS
@pytest.mark.parametrize(
    ("position", "column", "expected"),
    [
        (0, 0, 0.0),
        (0, 511, 1.0),
        (1, 0, 0.841471),  # sin 1
        (1, 1, 0.540302),  # cos 1
        (3, 256, 0.029996),  # sin(3 / 10000^(256/512)) = sin 0.03
        (3, 257, 0.999550),  # cos 0.03
        (7, 128, 0.644218),  # sin(7 / 10000^(128/512)) = sin 0.7
        (7, 129, 0.764842),  # cos 0.7
    ],
)
def test_positional_encoding_by_hand(
    position: int, column: int, expected: float, encoding: Callable[..., Tensor]
) -> None:
    assert float(encoding(8, 512)[position, column]) == pytest.approx(expected, abs=1e-6)


@ENCODINGS
@pytest.mark.parametrize(
    ("position", "atol"),
    # float32 holds an angle of p radians to about p * 1e-7
    [(0, 1e-6), (1, 1e-6), (9, 1e-6), (100, 1e-5), (1_000, 1e-4), (10_000, 1e-3)],
)
@pytest.mark.parametrize("d_model", [4, 6, 512])
def test_positional_encoding_is_the_formula_at_any_position(
    position: int, atol: float, d_model: int, encoding: Callable[..., Tensor]
) -> None:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same (3.5)."""
    angles = [position / 10000 ** (two_i / d_model) for two_i in range(0, d_model, 2)]
    expected = [f(angle) for angle in angles for f in (math.sin, math.cos)]
    assert_close(encoding(position + 1, d_model)[position], expected, atol)


def test_positions_are_float32_whatever_the_default_is() -> None:
    """Lightning's bf16-true makes bfloat16 the default."""
    expected = transformer.positional_encoding(torch.arange(300), 64)
    torch.set_default_dtype(torch.bfloat16)
    try:
        positions = transformer.positional_encoding(torch.arange(300), 64)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(positions, expected)


# 3.4 and 3.5: the sum that enters the first layer


def embed(model: Any, ids: Tensor) -> Tensor:
    """Ids [T] -> [T, d_model]."""
    if isinstance(model, reference.Transformer):
        return model.embed(ids[None])[0]
    (rows,) = model.embed(pack(ids[None]))
    return rows[: len(ids)]


@pytest.mark.parametrize("kind", [reference.Transformer, transformer.Transformer])
@torch.no_grad()
def test_embedding_plus_position(worked_examples: Examples, kind: type[Any]) -> None:
    example = worked_examples["embedding_plus_position_d4"]
    embedding = torch.tensor(example["embedding"])
    model = kind(8, N=1, d_model=4, d_ff=4, h=1).eval()
    ids = torch.tensor([5, 6, 7])
    model.embedding.weight[ids] = embedding
    assert_close(embed(model, ids), example["sum"], atol=example["tolerance"])
    model.embedding.weight[ids] = embedding / 2  # which sqrt(d_model) undoes
    assert_close(embed(model, ids), example["plain_sum"], atol=example["tolerance"])


# 3.2.1 Attention


@ATTENTIONS
def test_attention_equals_the_published_calculation(
    worked_examples: Examples, attention: Callable[..., Tensor]
) -> None:
    example = worked_examples["attention_d3"]
    x, W_Q, W_K, W_V = (torch.tensor(example[name]) for name in ("x", "W_Q", "W_K", "W_V"))
    Q, K, V = (x @ W.T for W in (W_Q, W_K, W_V))  # q = W_Q @ x for each token's column x
    computed = {"Q": Q, "K": K, "V": V, "scores": Q @ K.T / 3**0.5}
    computed |= {"weights": attention(Q, K, torch.eye(3)), "output": attention(Q, K, V)}
    for name, value in computed.items():
        assert_close(value, example[name], atol=example["tolerance"])


@torch.no_grad()
def test_attention_layers_put_the_published_pieces_together(worked_examples: Examples) -> None:
    example = worked_examples["attention_d3"]
    x, *matrices = (torch.tensor(example[name]) for name in ("x", "W_Q", "W_K", "W_V"))
    plain = reference.MultiHeadAttention(d_model=3, h=1, d_k=3)
    for W, published in zip((plain.W_Q, plain.W_K, plain.W_V), matrices, strict=True):
        W[0] = published.T
    plain.W_O.weight.copy_(torch.eye(3))
    output = plain(x[None], x[None], x[None], torch.ones(3, 3, dtype=torch.bool))[0]
    assert_close(output, example["output"], atol=example["tolerance"])

    fast = transformer.SelfAttention(d_model=3)
    fast.W_QKV.weight.copy_(torch.cat(matrices))
    fast.W_O.weight.copy_(torch.eye(3))
    packed = pack(torch.ones(1, 3, dtype=torch.long))
    rows = torch.zeros(len(packed.ids), 3)
    rows[:3] = x
    output = fast(rows, AttentionLayout(packed, h=1, d_k=3))[:3]
    assert_close(output, example["output"], atol=example["tolerance"])


@ATTENTIONS
@pytest.mark.parametrize("name", ["masked_softmax_d3", "masked_softmax_equal_scores"])
def test_the_causal_mask_and_the_softmax_rows_it_leaves(
    worked_examples: Examples, name: str, attention: Callable[..., Tensor]
) -> None:
    example = worked_examples[name]
    scores, V = torch.tensor(example["scores"]), torch.tensor(example["V"], dtype=torch.float32)
    n = len(scores)
    Q, K = scores * n**0.5, torch.eye(n)  # so that Q K^T / sqrt(d_k) are the scores
    weights = attention(Q, K, torch.eye(n), causal=True)
    assert_close(weights, example["weights"], atol=example["tolerance"])
    assert not weights.triu(1).any()
    assert_close(weights.sum(dim=1), torch.ones(n), atol=1e-6)
    assert_close(attention(Q, K, V, causal=True), example["output"], atol=example["tolerance"])


@ATTENTIONS
@pytest.mark.parametrize(
    ("Q", "K", "V", "expected"),
    [
        # q1.k / sqrt(4) = ln 3 and 0, so weights 3/4 and 1/4; q2 sees both alike
        (
            [[2 * math.log(3), 0, 0, 0], [0, 0, 5, 0]],
            [[1, 0, 0, 0], [0, 1, 0, 0]],
            [[4, 0, 8, 1], [0, 8, 0, 1]],
            [[3, 2, 6, 1], [2, 4, 4, 1]],
        ),
        # scores (0.212132, -0.353553) and (0.601041, 0.176777)
        (
            [[0.5, -0.25], [1.0, 0.75]],
            [[0.7, 0.2], [-0.5, 1.0]],
            [[1.0, 2.0], [3.0, -1.0]],
            [[1.724466, 0.913301], [1.790994, 0.813509]],
        ),
    ],
)
def test_attention_of_two_tokens_by_hand(
    Q: Any, K: Any, V: Any, expected: Any, attention: Callable[..., Tensor]
) -> None:
    in_plain_python = []
    for q in Q:
        scores = [sum(a * b for a, b in zip(q, k, strict=True)) / len(q) ** 0.5 for k in K]
        exps = [math.exp(score) for score in scores]
        columns = zip(*V, strict=True)
        output = [sum(e * v for e, v in zip(exps, column, strict=True)) for column in columns]
        in_plain_python.append([number / sum(exps) for number in output])
    assert_close(torch.tensor(in_plain_python), expected)
    assert_close(attention(*(torch.tensor(matrix) * 1.0 for matrix in (Q, K, V))), expected)


# The chain of shapes of the base model


B, S, T = 3, 7, 5


def shapes_of(example: Examples, side: str) -> dict[str, tuple[int, ...]]:
    sizes = {"B": B, "S": S, "T": T}
    return {
        name: tuple(sizes.get(size, size) for size in shape)
        for name, shape in example[side].items()
    }


class Recorder:
    """Collects the shapes of what passes through functions and modules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shapes: dict[str, list[tuple[int, ...]]] = {}
        self.monkeypatch = monkeypatch

    def add(self, name: str, value: Tensor) -> None:
        self.shapes.setdefault(name, []).append(tuple(value.shape))

    def watch_attention(self, module: Any) -> None:
        """Q, K, V, scores (from the softmax) and context, as ``module.attention`` sees them."""
        attention, softmax = module.attention, Tensor.softmax

        def watched(Q: Tensor, K: Tensor, V: Tensor, *mask: Any, **settings: Any) -> Tensor:
            context = attention(Q, K, V, *mask, **settings)
            for name, value in {"Q": Q, "K": K, "V": V, "context": context}.items():
                self.add(name, value)
            return context

        def watched_softmax(scores: Tensor, dim: int) -> Tensor:
            self.add("scores", scores)
            return softmax(scores, dim)

        self.monkeypatch.setattr(module, "attention", watched)
        self.monkeypatch.setattr(Tensor, "softmax", watched_softmax)

    def watch(self, module: torch.nn.Module, input_name: str | None, output_name: str) -> None:
        def hook(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if input_name is not None:
                self.add(input_name, inputs[0])
            self.add(output_name, output)

        module.register_forward_hook(hook)


def test_the_shapes_of_the_base_model_are_the_published_ones(
    worked_examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = worked_examples["shapes_base"]
    encoder, decoder = shapes_of(example, "encoder"), shapes_of(example, "decoder")
    with torch.device("meta"):  # shapes without numbers
        model = reference.Transformer(**example["config"])
        src, tgt = torch.ones(B, S, dtype=torch.long), torch.ones(B, T, dtype=torch.long)
    recorder = Recorder(monkeypatch)
    recorder.watch_attention(reference)
    recorder.watch(model.embedding, "ids", "embedded")
    for layer in (*model.encoder, *model.decoder):
        recorder.watch(layer.feed_forward.W_1, None, "inner")
        for name in ("self_attention", "cross_attention"):
            if hasattr(layer, name):
                recorder.watch(getattr(layer, name).W_O, "concat", "attended")
    memory = model.encode(src)
    assert tuple(memory.shape) == encoder["memory"]
    times = {"ids": 1, "embedded": 1}
    N = example["config"]["N"]
    assert recorder.shapes == {
        name: [encoder[name]] * times.get(name, N) for name in encoder if name != "memory"
    }
    recorder.shapes.clear()
    recorder.watch(model.decoder[-1], None, "states")
    logits = model.decode(tgt, memory, src)
    assert tuple(logits.shape) == decoder["logits"]
    assert recorder.shapes.pop("scores") == [decoder["self_scores"], decoder["cross_scores"]] * N
    for name in ("Q", "K", "V"):
        del recorder.shapes[name]  # the shapes of the scores follow from theirs
    times |= {"states": 1, "inner": N, "context": 2 * N, "concat": 2 * N, "attended": 2 * N}
    assert recorder.shapes == {name: [decoder[name]] * times[name] for name in recorder.shapes}
    assert recorder.shapes.keys() == times.keys()


@torch.no_grad()
def test_the_fast_model_has_the_published_shapes_with_its_positions_in_rows(
    worked_examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = worked_examples["shapes_base"]
    encoder, decoder = shapes_of(example, "encoder"), shapes_of(example, "decoder")
    model = transformer.Transformer(**{**example["config"], "N": 1, "vocab_size": 37})
    src, tgt = torch.full((B, S), 5), torch.full((B, T), 5)
    recorder = Recorder(monkeypatch)
    recorder.watch_attention(attention_layout)
    recorder.watch(model.encoder[0].feed_forward.W_1, None, "inner")
    recorder.watch(model.encoder[0], None, "memory")
    logits = model(src, tgt)
    assert tuple(logits.shape) == (*decoder["logits"][:2], 37)
    queries = [encoder["Q"], (B, 8, T, 64), (B, 8, T, 64)]
    assert recorder.shapes["Q"] == recorder.shapes["context"] == queries
    keys = [encoder["K"], (B, 8, T, 64), (B, 8, S, 64)]
    assert recorder.shapes["K"] == recorder.shapes["V"] == keys
    scores = [encoder["scores"], decoder["self_scores"], decoder["cross_scores"]]
    # B * S positions fill up to 64 rows; the B sentences of all heads are one batch of products.
    assert recorder.shapes["scores"] == [(B * 8, *shape[2:]) for shape in scores]
    assert recorder.shapes["inner"] == [(64, encoder["inner"][2])]
    assert recorder.shapes["memory"] == [(64, encoder["memory"][2])]
