"""What differs from the paper by a setting, each against torch's layers or a plain computation."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from model_files import shaken
from torch import Tensor, nn

from mt.data.packing import pack
from mt.inference.incremental import InferenceModel
from mt.model import checkpoint
from mt.model.layers import ACTIVATIONS
from mt.model.transformer import PAPER, Transformer

SIZES: dict[str, Any] = {"vocab_size": 40, "N": 2, "d_model": 16, "d_ff": 32, "h": 4, "P_drop": 0.1}
SOURCES = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]])
TARGETS = torch.tensor([[2, 11, 12, 13], [2, 14, 0, 0]])
VARIANTS: list[dict[str, Any]] = [
    {"norm": "pre"},
    *({"activation": name} for name in ACTIVATIONS if name != "relu"),
    {"tied_embeddings": False},
    {"scaled_scores": False},
    {"norm": "pre", "activation": "gelu", "tied_embeddings": False, "learned_positions": 9},
]


def named(variant: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in variant.items())


def test_the_defaults_are_the_papers() -> None:
    model = Transformer(**SIZES)
    assert not model.config.keys() & PAPER.keys()
    assert not [name for name in model.state_dict() if name.endswith(("_norm.weight", "output"))]
    assert model.config == Transformer(**SIZES, **PAPER).config


def oracle_layer(layer: Any, kind: type[nn.Module], activation: Any, is_pre: bool) -> Any:
    """torch's layer with the weights of ours."""
    own: Any = kind(16, 4, 32, activation=activation, batch_first=True, norm_first=is_pre).eval()
    attentions = [("self_attn", layer.self_attention)]
    if hasattr(layer, "cross_attention"):
        attentions.append(("multihead_attn", layer.cross_attention))
    for name, ours in attentions:
        theirs = getattr(own, name)
        stacks = [getattr(ours, stack).weight for stack in ours.sizes]
        theirs.in_proj_weight.data = torch.cat(stacks).detach()
        theirs.in_proj_bias.data.zero_()
        theirs.out_proj.weight.data = ours.W_O.weight.detach()
        theirs.out_proj.bias.data.zero_()
    for i, add_norm in enumerate(layer.add_norm, 1):
        getattr(own, f"norm{i}").load_state_dict(add_norm.norm.state_dict())
    own.linear1.load_state_dict(layer.feed_forward.W_1.state_dict())
    own.linear2.load_state_dict(layer.feed_forward.W_2.state_dict())
    return own


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_the_layers_are_torchs(norm: str, activation: str) -> None:
    model = shaken(Transformer(**SIZES, norm=norm, activation=activation))
    function = ACTIVATIONS[activation] or F.relu
    padding, is_pre = SOURCES == 0, norm == "pre"
    x, y = (
        math.sqrt(16) * F.embedding(ids, model.embedding.weight)
        + model.encode_positions(torch.arange(ids.shape[1]))
        for ids in (SOURCES, TARGETS)
    )
    for layer in model.encoder:
        x = oracle_layer(layer, nn.TransformerEncoderLayer, function, is_pre)(
            x, src_key_padding_mask=padding
        )
    x = model.encoder_norm(x) if is_pre else x
    causal = torch.ones(4, 4, dtype=torch.bool).triu(1)
    for layer in model.decoder:
        y = oracle_layer(layer, nn.TransformerDecoderLayer, function, is_pre)(
            y, x, tgt_mask=causal, memory_key_padding_mask=padding
        )
    y = model.decoder_norm(y) if is_pre else y
    real = TARGETS > 0
    expected = F.linear(y, model.embedding.weight)[real]
    torch.testing.assert_close(model(SOURCES, TARGETS)[real], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_a_token_at_a_time_is_the_same(variant: dict[str, Any]) -> None:
    model = shaken(Transformer(**SIZES, **variant))
    expected = model(SOURCES, TARGETS).detach()
    assert (expected - shaken(Transformer(**SIZES))(SOURCES, TARGETS)).abs().max() > 0.01
    decoder = InferenceModel(model)
    state = decoder.start(SOURCES)
    for t in range(4):
        step = decoder.step(TARGETS[:, t : t + 1], state)[:, 0]
        real = TARGETS[:, t] > 0
        torch.testing.assert_close(step[real], expected[real, t], atol=1e-5, rtol=1e-5)


def test_untied_embeddings_are_three_matrices() -> None:
    model = Transformer(**SIZES, tied_embeddings=False)
    tied = Transformer(**SIZES)
    count = [sum(p.numel() for p in m.parameters()) for m in (tied, model)]
    assert count[1] - count[0] == 2 * 40 * 16
    loss = model(SOURCES, TARGETS)[TARGETS > 0].logsumexp(dim=-1).sum()
    loss.backward()
    assert model.target_embedding is not None
    assert model.output is not None
    used = model.embedding.weight.grad, model.target_embedding.weight.grad
    assert [rows.abs().sum(dim=1).nonzero()[:, 0].tolist() for rows in used] == [
        [3, 5, 6, 7, 8, 9, 10],
        [2, 11, 12, 13, 14],
    ]
    assert model.output.weight.grad.abs().sum(dim=1).all()
    assert model.target_embedding.weight[0].abs().sum() == 0  # padding


def test_unscaled_scores_are_sqrt_d_k_times_larger() -> None:
    """The same function as with scaled scores of queries that are larger by as much."""
    model = shaken(Transformer(**SIZES, scaled_scores=False))
    scaled = Transformer(**SIZES).eval()
    scaled.load_state_dict(model.state_dict())
    assert not torch.allclose(scaled(SOURCES, TARGETS), model(SOURCES, TARGETS), atol=1e-3)
    with torch.no_grad():
        for layer in (*scaled.encoder, *scaled.decoder):
            layer.self_attention.W_QKV.weight[:16] *= math.sqrt(4)
        for layer in scaled.decoder:
            layer.cross_attention.W_Q.weight *= math.sqrt(4)
    torch.testing.assert_close(scaled(SOURCES, TARGETS), model(SOURCES, TARGETS))


# Dropout


def gradients(model: Transformer, watched: Tensor) -> Tensor:
    torch.manual_seed(3)
    (gradient,) = torch.autograd.grad(model(SOURCES, TARGETS)[TARGETS > 0].sum(), watched)
    return gradient


@pytest.mark.parametrize("name", ["P_attention", "P_inner"])
def test_dropout_acts_in_training_alone_and_keeps_the_mean(name: str) -> None:
    torch.manual_seed(0)
    plain = Transformer(**SIZES | {"P_drop": 0.0})
    model = Transformer(**SIZES | {"P_drop": 0.0}, **{name: 0.4})
    model.load_state_dict(plain.state_dict())
    expected = plain.eval()(SOURCES, TARGETS)
    torch.testing.assert_close(model.eval()(SOURCES, TARGETS), expected)
    model.train()
    assert not torch.equal(model(SOURCES, TARGETS), model(SOURCES, TARGETS))


def test_dropout_of_attention_drops_weights() -> None:
    """With values of one, a position's context is the sum of the weights that are left."""
    from mt.model.kernels import attention

    torch.manual_seed(0)
    Q, K = torch.randn(2, 3, 4, 50, 8)
    V = torch.ones(3, 4, 50, 8)
    context = attention(Q, K, V, P_drop=0.25)
    assert context.std() > 0.01
    assert context.mean() == pytest.approx(1, abs=0.01)
    uniform = attention(torch.zeros_like(Q), K, V, P_drop=0.25)  # each weight is 1/50
    counts = uniform * 50 * 0.75
    torch.testing.assert_close(counts, counts.round(), atol=1e-3, rtol=0)


def test_dropout_inside_the_feed_forward_network() -> None:
    """W_2 sees the inner activations, dropped or scaled up."""
    layer = Transformer(**SIZES | {"P_drop": 0.0}, P_inner=0.5).encoder[0].feed_forward
    seen: list[Tensor] = []
    layer.W_2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    x = torch.randn(400, 16)
    layer.train()(x)
    layer.eval()(x)
    trained, evaluated = seen
    kept = trained != 0
    torch.testing.assert_close(trained[kept], 2 * evaluated[kept])
    assert float((trained != 0).sum() / (evaluated != 0).sum()) == pytest.approx(0.5, abs=0.03)


# Refused, saved


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"norm": "rms"}, "norm='rms': must be one of post, pre"),
        ({"norm": None}, "norm=None: must be one of post, pre"),
        ({"activation": "tanh"}, "activation='tanh': must be one of relu, gelu, gelu_tanh"),
        ({"P_attention": 1}, "P_attention=1: must be"),
        ({"P_inner": -0.1}, "P_inner=-0.1: must be"),
        ({"tied_embeddings": "no"}, "tied_embeddings='no': must be true or false"),
        ({"scaled_scores": 1}, "scaled_scores=1: must be true or false"),
    ],
)
def test_what_is_no_setting_is_named(variant: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Transformer(**SIZES, **variant)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_a_model_folder_keeps_it(variant: dict[str, Any], bpe: Any, tmp_path: Any) -> None:
    sizes = SIZES | {"vocab_size": bpe.vocab_size}
    model = shaken(Transformer(**sizes, **variant))
    checkpoint.save(tmp_path / "model", model, bpe, 40, ["en", "de"], {})
    loaded = checkpoint.load(tmp_path / "model").model
    assert loaded.config == model.config
    src, tgt = pack(SOURCES), pack(TARGETS)
    torch.testing.assert_close(loaded.states(src, tgt), model.states(src, tgt))
