"""The Transformer against PyTorch's own layers and the paper's claims."""

import math

import pytest
import torch
from model_files import shaken
from torch import nn

from mt.data.packing import Packed, pack
from mt.model import reference
from mt.model.attention_layout import AttentionLayout
from mt.model.dropout import Dropout
from mt.model.layers import (
    AddNorm,
    CrossAttention,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerShape,
    SelfAttention,
)
from mt.model.transformer import Transformer

PAD, BOS = 0, 2
V = 40  # unlike any other size of the tiny model
TINY = {"vocab_size": V, "N": 2, "d_model": 16, "d_ff": 32, "h": 4, "P_drop": 0.1}


def tiny(**changes):
    return shaken(Transformer(**{**TINY, **changes}))


def random_ids(*shape):
    return torch.randint(4, V, shape)


def padded(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def rows_of(x: torch.Tensor, packed: Packed) -> torch.Tensor:
    """[B, T, ...] -> [n, ...]; rows after the last sentence do not matter."""
    rows = x.new_zeros((len(packed.ids), *x.shape[2:]))
    rows[packed.rows] = x
    return rows


def layout_of(packed: Packed, d_model: int, h: int) -> AttentionLayout:
    """For keys as large as values."""
    return AttentionLayout(packed, h, d_model // h)


def encode(model, ids):
    """Source ids [B, S] -> memory [B, S, d_model]."""
    source = pack(ids)
    (x,) = model.embed(source)
    return model.encode(x, AttentionLayout(source, model.h, model.d_k))[source.rows]


def assert_close(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


# The oracle: PyTorch's own layers with the weights of a layer of this project.


def fill(oracle_attention, W_QKV, W_O):
    oracle_attention.in_proj_weight.copy_(W_QKV)
    oracle_attention.out_proj.weight.copy_(W_O)
    oracle_attention.in_proj_bias.zero_()  # the paper's projections have no biases
    oracle_attention.out_proj.bias.zero_()


def fill_rest(oracle, layer):
    oracle.linear1.load_state_dict(layer.feed_forward.W_1.state_dict())
    oracle.linear2.load_state_dict(layer.feed_forward.W_2.state_dict())
    for i, add_norm in enumerate(layer.add_norm, 1):
        getattr(oracle, f"norm{i}").load_state_dict(add_norm.norm.state_dict())


@torch.no_grad()
def encoder_oracle(layer, d_model, d_ff, h):
    oracle = nn.TransformerEncoderLayer(d_model, h, d_ff, batch_first=True).eval()
    fill(oracle.self_attn, layer.self_attention.W_QKV.weight, layer.self_attention.W_O.weight)
    fill_rest(oracle, layer)
    return oracle


@torch.no_grad()
def decoder_oracle(layer, d_model, d_ff, h):
    oracle = nn.TransformerDecoderLayer(d_model, h, d_ff, batch_first=True).eval()
    fill(oracle.self_attn, layer.self_attention.W_QKV.weight, layer.self_attention.W_O.weight)
    cross = layer.cross_attention
    fill(oracle.multihead_attn, torch.cat((cross.W_Q.weight, cross.W_KV.weight)), cross.W_O.weight)
    fill_rest(oracle, layer)
    return oracle


SIZES = pytest.mark.parametrize(
    ("seed", "d_model", "d_ff", "h"),
    [(0, 16, 32, 1), (1, 16, 64, 4), (2, 32, 24, 8), (3, 48, 96, 3)],
)


@SIZES
def test_encoder_layer_equals_pytorchs(seed, d_model, d_ff, h):
    torch.manual_seed(seed)
    layer = shaken(EncoderLayer(LayerShape(d_model, d_ff, P_drop=0.1)))
    x = torch.randn(3, 7, d_model)
    real = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    source = pack(real.long())
    oracle = encoder_oracle(layer, d_model, d_ff, h)
    assert_close(
        layer(rows_of(x, source), layout_of(source, d_model, h))[source.rows][real],
        oracle(x, src_key_padding_mask=~real)[real],
    )


@SIZES
def test_decoder_layer_equals_pytorchs(seed, d_model, d_ff, h):
    torch.manual_seed(seed)
    layer = shaken(DecoderLayer(LayerShape(d_model, d_ff, P_drop=0.1)))
    x, memory = torch.randn(3, 5, d_model), torch.randn(3, 7, d_model)
    real = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    source, target = pack(real.long()), pack(torch.ones(3, 5, dtype=torch.long))
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    oracle = decoder_oracle(layer, d_model, d_ff, h)
    rows = rows_of(x, target), rows_of(memory, source)
    layouts = [layout_of(side, d_model, h) for side in (source, target)]
    assert_close(
        layer(*rows, *layouts)[target.rows],
        oracle(x, memory, tgt_mask=future, memory_key_padding_mask=~real),
    )


def test_the_whole_model_is_a_stack_of_such_layers_between_one_matrix():
    model = tiny(N=3)
    src = padded([random_ids(n) for n in (6, 2)])
    tgt = random_ids(2, 5)
    E = model.embedding.weight
    sizes = (TINY["d_model"], TINY["d_ff"], TINY["h"])

    def embed(ids):
        return E[ids] * 4 + reference.positional_encoding(ids.shape[1], 16)  # 4 = sqrt(16)

    memory, x = embed(src), embed(tgt)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for layer in model.encoder:
        memory = encoder_oracle(layer, *sizes)(memory, src_key_padding_mask=src == PAD)
    for layer in model.decoder:
        oracle = decoder_oracle(layer, *sizes)
        x = oracle(x, memory, tgt_mask=future, memory_key_padding_mask=src == PAD)
    assert_close(model(src, tgt), x @ E.T)


def test_a_model_of_bfloat16_weights_trains_without_autocast():
    model = tiny().bfloat16().train()
    logits = model(random_ids(2, 6), random_ids(2, 5))
    assert logits.dtype == torch.bfloat16
    logits.float().logsumexp(-1).sum().backward()
    assert all(p.grad.dtype == torch.bfloat16 for p in model.parameters())


# What a position may see.


@torch.no_grad()
def test_a_target_token_changes_no_earlier_logits_bit_for_bit():
    model = tiny()
    src, tgt = padded([random_ids(6), random_ids(3)]), random_ids(2, 9)
    before = model(src, tgt)
    for i in range(9):
        changed = tgt.clone()
        changed[:, i] = (tgt[:, i] - 4 + 1) % (V - 4) + 4  # another real token
        after = model(src, changed)
        assert torch.equal(after[:, :i], before[:, :i])
        assert (after[:, i:] != before[:, i:]).any(dim=-1).all()


@torch.no_grad()
def test_padding_changes_nothing():
    model = tiny()
    sources = [random_ids(n) for n in (1, 4, 9, 6)]
    targets = [random_ids(n) for n in (8, 1, 3, 5)]
    together = model(padded(sources), padded(targets))
    for source, target, logits in zip(sources, targets, together, strict=True):
        assert_close(logits[: len(target)], model(source[None], target[None])[0])


@torch.no_grad()
def test_a_source_of_3000_tokens_goes_through():
    model = tiny(N=1, d_model=8, d_ff=8, h=1)
    src = random_ids(1, 3000)
    logits = model(src, random_ids(1, 2))
    assert logits.isfinite().all()
    changed = src.clone()
    changed[0, -1] = 4 if src[0, -1] != 4 else 5
    assert not torch.equal(encode(model, changed)[0, -1], encode(model, src)[0, -1])


# Sizes and the shared matrix.


# Table 3's column, in millions. It is that of a vocabulary of about 41,100 pieces, but for big,
# which is that of about 36,000; no single vocabulary gives all of it, 37,000 (5.1) only big's
# within a million.
TABLE_3 = [
    ("base", {}, 65),
    ("B", {"d_k": 16}, 58),
    ("B", {"d_k": 32}, 60),
    ("C", {"N": 2}, 36),
    ("C", {"N": 4}, 50),
    ("C", {"N": 8}, 80),
    ("C", {"d_model": 256}, 28),
    ("C", {"d_model": 1024}, 168),
    ("C", {"d_ff": 1024}, 53),
    ("C", {"d_ff": 4096}, 90),
]
BIG = {"d_model": 1024, "d_ff": 4096, "h": 16}


def millions(vocab_size, **changes):
    with torch.device("meta"):  # shapes without numbers
        model = Transformer(vocab_size, **changes)
    return sum(p.numel() for p in model.parameters()) / 1e6


@pytest.mark.parametrize(("row", "changes", "paper"), TABLE_3)
def test_parameters_of_table_3_are_the_papers_to_the_million(row, changes, paper):
    assert round(millions(41_100, **changes)) == paper
    # With 37,000 pieces what is missing are 4,100 rows of the one matrix.
    missing = 4100 * changes.get("d_model", 512) / 1e6
    assert millions(37_000, **changes) == pytest.approx(millions(41_100, **changes) - missing)


def test_parameters_of_big_are_the_papers_with_a_smaller_vocabulary():
    assert round(millions(36_000, **BIG)) == 213
    assert round(millions(37_000, **BIG)) == 214
    assert round(millions(41_100, **BIG)) == 218


def test_heads_cost_nothing_and_learned_positions_their_table():
    for h in (1, 4, 16, 32):
        assert millions(37_000, h=h) == millions(37_000)
    learned = millions(37_000, learned_positions=512)
    assert learned == pytest.approx(millions(37_000) + 512 * 512 / 1e6)


@pytest.mark.parametrize(
    ("d_model", "d_ff", "h", "paper"),
    [(512, 2048, 8, 65e6), (1024, 4096, 16, 213e6)],
    ids=["base", "big"],
)
def test_parameters_are_the_papers(d_model, d_ff, h, paper):
    with torch.device("meta"):  # shapes without numbers
        model = Transformer(37_000, N=6, d_model=d_model, d_ff=d_ff, h=h)
    embedding = 37_000 * d_model  # 3.4, once for its three uses
    W_QKVO = 4 * d_model * d_model  # 3.2.2, all heads together, no biases
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model  # 3.3, with biases
    layer_norm = 2 * d_model  # gain and bias
    encoder_layer = W_QKVO + feed_forward + 2 * layer_norm
    decoder_layer = 2 * W_QKVO + feed_forward + 3 * layer_norm
    count = sum(p.numel() for p in model.parameters())
    assert count == embedding + 6 * (encoder_layer + decoder_layer)
    assert count == pytest.approx(paper, rel=0.04)


def test_one_matrix_is_all_that_knows_the_vocabulary():
    shapes = [p.shape for p in tiny().parameters() if V in p.shape]
    assert shapes == [(V, TINY["d_model"])]


def test_gradients_reach_the_shared_matrix_from_all_three_uses():
    model = tiny()
    in_source, in_target, predicted, unused = 5, 6, 7, 8
    src, tgt = torch.tensor([[in_source]]), torch.tensor([[in_target]])
    model(src, tgt)[..., predicted].sum().backward()
    reached = model.embedding.weight.grad.norm(dim=1) > 1e-6
    assert reached.nonzero()[:, 0].tolist() == [in_source, in_target, predicted]
    assert not reached[unused]


def test_embeddings_are_scaled_by_sqrt_d_model_and_logits_are_not():
    model = tiny()
    model.encoder = nn.ModuleList()  # what remains of encode is the embedding
    ids, E = random_ids(2, 5), model.embedding.weight
    assert_close(encode(model, ids), E[ids] * 16**0.5 + reference.positional_encoding(5, 16))
    states = torch.randn(2, 5, 16)
    assert_close(model.project(states), states @ E.T)


def test_each_side_is_embedded_as_alone_and_into_memory_of_its_own():
    model = tiny()
    src, tgt = pack(random_ids(2, 6)), pack(random_ids(3, 50))
    together = model.embed(src, tgt)
    for x, side in zip(together, (src, tgt), strict=True):
        assert torch.equal(x, model.embed(side)[0])
        # torch.compile would make other code for a view
        assert x.untyped_storage().nbytes() == x.nbytes


# Normalisation and dropout.


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_layers_end_in_their_own_layer_norm_and_no_other_follows(side):
    model = Transformer(**TINY).eval()
    src, tgt = random_ids(2, 6), random_ids(2, 5)

    def output():
        if side == "encoder":
            return encode(model, src)
        return model.states(pack(src), pack(tgt))[:10].view(2, 5, -1)

    x = output()  # post-LN: mean 0 and variance 1 at every position, by the default gain and bias
    assert_close(x.mean(dim=-1), torch.zeros(x.shape[:2]))
    assert_close(x.var(dim=-1, correction=0), torch.ones(x.shape[:2]), atol=1e-3)

    last = getattr(model, side)[-1].add_norm[-1].norm
    nn.init.constant_(last.weight, 3.0)
    nn.init.constant_(last.bias, 2.0)
    assert_close(output(), 3 * x + 2)  # a final LayerNorm would undo this


def test_layer_norms_are_two_an_encoder_layer_and_three_a_decoder_layer():
    assert sum(isinstance(m, nn.LayerNorm) for m in tiny(N=4).modules()) == 4 * (2 + 3)


def test_dropout_stands_after_each_sublayer_and_after_the_embedding_only():
    model = tiny(N=4, P_drop=0.25)
    dropouts = {name: m.P_drop for name, m in model.named_modules() if isinstance(m, Dropout)}
    assert not any(isinstance(m, nn.Dropout) for m in model.modules())
    expected = {"dropout"}
    expected |= {f"encoder.{n}.add_norm.{i}.dropout" for n in range(4) for i in range(2)}
    expected |= {f"decoder.{n}.add_norm.{i}.dropout" for n in range(4) for i in range(3)}
    assert dropouts == dict.fromkeys(expected, 0.25)


def test_attention_weights_and_feed_forward_have_no_dropout():
    model = tiny(P_drop=0.5).train()
    sentences = pack(random_ids(2, 6))
    layout = layout_of(sentences, TINY["d_model"], TINY["h"])
    x = torch.randn(len(sentences.ids), TINY["d_model"])
    layer = model.decoder[0]
    sublayers = {
        SelfAttention: lambda: layer.self_attention(x, layout, causal=True),
        CrossAttention: lambda: layer.cross_attention(x, x, layout, layout),
        FeedForward: lambda: layer.feed_forward(x),
    }
    for kind, run in sublayers.items():
        assert torch.equal(run(), run()), kind
    ids = random_ids(2, 6)
    assert not torch.equal(model(ids, ids), model(ids, ids))  # the model as a whole does drop


def test_dropout_takes_from_the_sublayer_not_from_the_residual():
    add_norm = AddNorm(LayerShape(d_model=1000, d_ff=1, P_drop=0.3)).train()
    add_norm.norm = nn.Identity()
    x, sublayer = torch.randn(1000), torch.ones(1000)
    added = add_norm(x, lambda _: sublayer) - x
    dropped = added.abs() < 1e-5
    assert_close(added[~dropped], torch.full_like(added[~dropped], 1 / 0.7))
    assert dropped.float().mean().item() == pytest.approx(0.3, abs=0.05)


def test_dropout_of_the_embedding_takes_from_its_sum_with_the_positions():
    model = tiny(P_drop=0.5)
    model.encoder = nn.ModuleList()
    ids = random_ids(4, 50)
    whole = encode(model, ids)
    dropped = encode(model.train(), ids)
    assert_close(torch.where(dropped == 0, 0.0, 2 * whole), dropped)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)


# Keys of another size than values, learned positions (table 3, B and E).


@pytest.mark.parametrize("d_k", [1, 3, 4, 7])
@torch.no_grad()
def test_attention_with_keys_of_any_size_is_the_papers_formula(d_k):
    """Concat(head_1, ..., head_h) W_O, each head by equation 1 with its part of W_Q, W_K, W_V."""
    h, d_model = 4, 16
    sizes = {"h": h, "d_k": d_k, "d_model": d_model}
    own, cross = SelfAttention(d_model, h * d_k), CrossAttention(d_model, h * d_k)
    plain = []
    for layer in (own, cross):
        plain.append(reference.MultiHeadAttention(d_model, h, d_k))
        plain[-1].load_state_dict(reference.unstack(layer.state_dict(), sizes))
    src, tgt = pack(torch.ones(1, 6, dtype=torch.long)), pack(torch.ones(1, 5, dtype=torch.long))
    memory, y = torch.randn(len(src.ids), d_model), torch.randn(len(tgt.ids), d_model)
    source, target = AttentionLayout(src, h, d_k), AttentionLayout(tgt, h, d_k)
    x, queries = memory[None, :6], y[None, :5]
    causal, whole = torch.ones(5, 5, dtype=torch.bool).tril(), torch.ones(5, 6, dtype=torch.bool)
    expected = plain[0](queries, queries, queries, causal)[0]
    assert_close(own(y, target, causal=True)[:5], expected)
    assert_close(cross(y, memory, source, target)[:5], plain[1](queries, x, x, whole)[0])


def test_matrices_of_small_keys_start_as_their_own_shapes_ask():
    model = Transformer(V, N=1, d_model=64, d_ff=64, h=2, d_k=8)
    for W in model.encoder[0].self_attention.W_QKV.weight.split((16, 16, 64)):
        assert W.abs().max().item() == pytest.approx((6 / sum(W.shape) / 2) ** 0.5, rel=0.02)


def test_learned_positions_stand_in_the_place_of_the_sinusoids():
    model = tiny(learned_positions=5)
    model.encoder = nn.ModuleList()
    ids = random_ids(2, 5)
    expected = model.embedding.weight[ids] * 4 + model.positions.weight  # 4 is sqrt(d_model)
    assert_close(encode(model, ids), expected)
    assert Transformer(V, learned_positions=900).positions.weight.std().item() == pytest.approx(
        512**-0.5, rel=0.02
    )


def test_gradients_reach_learned_positions_from_both_sides_and_none_from_padding():
    model = tiny(learned_positions=9)
    src, tgt = padded([random_ids(6), random_ids(2)]), padded([random_ids(3), random_ids(1)])
    target = pack(tgt)
    model.states(pack(src), target)[: target.tokens].square().sum().backward()
    reached = model.positions.weight.grad.norm(dim=1) > 0
    assert reached.tolist() == [True] * 6 + [False] * 3


@pytest.mark.parametrize(("S", "T"), [(6, 2), (2, 6)])
def test_a_sentence_beyond_the_learned_positions_is_refused(S, T):
    model = tiny(learned_positions=5)
    model(random_ids(1, 5), random_ids(1, 5))
    with pytest.raises(ValueError, match=r"a sentence of 6 positions: .* learned_positions=5"):
        model(random_ids(1, S), random_ids(1, T))


# Initialisation and bad numbers.


def test_embeddings_start_with_deviation_d_model_to_minus_one_half_and_a_zero_pad_row():
    model = Transformer(2000, N=1, d_model=64, d_ff=64, h=2)
    E = model.embedding.weight.detach()
    assert not E[PAD].any()
    rest = E[1:]
    assert rest.std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert rest.mean().item() == pytest.approx(0, abs=0.002)
    logits = model.project(torch.randn(100, 64))  # states of unit variance, as LayerNorm makes
    assert logits.std().item() == pytest.approx(1, rel=0.05)


def test_matrices_start_xavier_uniform_and_biases_at_zero():
    model = Transformer(V, N=1, d_model=64, d_ff=256, h=2)
    linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    assert len(linears) == (2 + 2) + (2 + 3 + 2)
    for name, linear in linears.items():
        to_heads = name.rsplit(".", 1)[-1] in ("W_QKV", "W_Q", "W_KV")
        for W in linear.weight.split(64) if to_heads else [linear.weight]:
            bound = math.sqrt(6 / sum(W.shape)) * (0.5**0.5 if to_heads else 1)
            largest = W.abs().max().item()
            assert largest == pytest.approx(bound, rel=0.01)
            assert largest <= bound
            assert W.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert linear.bias is None or not linear.bias.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocab_size", 0),
        ("vocab_size", None),
        ("N", "six"),
        ("N", True),
        ("N", 0),
        ("N", 6.0),
        ("d_model", 15),  # no pairs of sine and cosine
        ("d_model", -16),
        ("d_ff", 0),
        ("d_ff", "2048"),
        ("h", 0),
        ("h", 3),  # does not divide 16
        ("h", 32),
        ("d_k", 0),
        ("d_k", "16"),
        ("d_k", 2.5),
        ("d_k", True),
        ("learned_positions", 0),
        ("learned_positions", "many"),
        ("learned_positions", True),
        ("P_drop", 1),
        ("P_drop", 1.5),
        ("P_drop", -0.1),
        ("P_drop", math.nan),
        ("P_drop", "0.1"),
        ("P_drop", None),
    ],
)
def test_a_bad_number_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value!r}: must"):
        Transformer(**{**TINY, name: value})


@pytest.mark.parametrize("changes", [{}, {"d_k": 2}, {"learned_positions": 9}])
def test_the_config_rebuilds_the_model(changes):
    model = tiny(**changes)
    assert model.config == {**TINY, "d_k": 4, "learned_positions": None, **changes}
    again = Transformer(**model.config)
    again.load_state_dict(model.state_dict())
    src, tgt = random_ids(2, 6), random_ids(2, 5)
    assert torch.equal(again.eval()(src, tgt), model(src, tgt))
