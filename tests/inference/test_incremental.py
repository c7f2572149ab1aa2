"""The InferenceModel is the Transformer of mt.model, token by token, with any neighbours."""

import math
import random

import pytest
import torch
from torch.testing import assert_close

from mt.inference.beam_search import search
from mt.inference.incremental import InferenceModel
from mt.inference.options import SearchOptions
from mt.model import reference
from mt.model.transformer import Transformer

PAD, BOS, EOS = 0, 2, 3
V = 50
TINY = {"vocab_size": V, "N": 2, "d_model": 16, "d_ff": 32, "h": 4}


# Table 3: A, B (and keys that are larger than values), C, E.
VARIATIONS = pytest.mark.parametrize(
    "changes",
    [
        {"h": 1}, {"h": 16}, {"d_k": 1}, {"d_k": 2}, {"d_k": 3}, {"d_k": 9}, {"N": 1},
        {"learned_positions": 60}, {"learned_positions": 60, "d_k": 2},
    ],
    ids=str,
)  # fmt: skip


def tiny(**changes) -> Transformer:
    """With biases and norms that are not their initial values: an omission would show."""
    torch.manual_seed(0)
    model = Transformer(**{**TINY, **changes}).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "bias" in name or "norm" in name:
                p += 0.3 * torch.randn_like(p)
    return model


def random_ids(*shape: int) -> torch.Tensor:
    return torch.randint(4, V, shape)


def padded(lengths: list[int]) -> torch.Tensor:
    rows = [torch.cat((random_ids(n - 1), torch.tensor([EOS]))) for n in lengths]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("lengths", [[5, 2, 8], [6, 6], [1]])
def test_steps_give_the_logits_of_the_plain_model(lengths):
    model = tiny()
    decoder = InferenceModel(model)
    src, tgt = padded(lengths), random_ids(len(lengths), 60)  # the cache grows, twice
    expected = reference.from_fast(model)(src, tgt)
    assert_close(model(src, tgt), expected, atol=1e-5, rtol=1e-5)
    state = decoder.start(src)
    for t in range(60):
        logits = decoder.step(tgt[:, t : t + 1], state)
        assert logits.dtype == torch.float32
        assert_close(logits[:, 0], expected[:, t], atol=2e-5, rtol=1e-5)


def decoded(decoder: InferenceModel, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
    state = decoder.start(src)
    steps = range(tgt.shape[1])
    return torch.cat([decoder.step(tgt[:, t : t + 1], state) for t in steps], dim=1)


@VARIATIONS
def test_steps_of_a_variation_give_the_logits_of_the_plain_model(changes):
    model = tiny(**changes)
    src, tgt = padded([5, 2, 8]), random_ids(3, 60)
    expected = reference.from_fast(model)(src, tgt)
    assert_close(decoded(InferenceModel(model), src, tgt), expected, atol=2e-5, rtol=1e-5)


@VARIATIONS
def test_greedy_search_finds_the_tokens_of_the_plain_model(changes):
    """Cached decoding against the plain model, which computes the whole prefix at each step."""
    model = tiny(**changes)
    model.decoder[-1].add_norm[-1].norm.weight[::2] *= -1  # so that it does not repeat its input
    model.embedding.weight[EOS] *= 1.5  # so that some outputs end before the limit
    src = padded(list(range(1, 21)))
    greedy = search(InferenceModel(model), src, SearchOptions(1, max_length=12))
    plain = reference.greedy_decode(reference.from_fast(model), src, max_length=12)
    assert len({tuple(hypothesis.ids) for (hypothesis,) in greedy}) > 1
    for (hypothesis,), output in zip(greedy, plain.tolist(), strict=True):
        end = output.index(EOS) if EOS in output else len(output)
        assert hypothesis.ids == output[:end]


@VARIATIONS
@pytest.mark.parametrize(("precision", "most"), [("bfloat16", 0.05), ("int8", 0.1)])
def test_other_precisions_of_a_variation_are_near(precision, most, changes):
    model = tiny(d_model=64, d_ff=128, **changes)
    src, tgt = padded([9, 4, 7]), random_ids(3, 12)
    exact, logits = model(src, tgt), decoded(InferenceModel(model, precision), src, tgt)
    error = float((logits - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt())
    assert 1e-5 < error < most


def test_positions_after_the_last_learned_one_are_like_the_last():
    model, longer = tiny(learned_positions=6), tiny(learned_positions=300)
    longer.load_state_dict(model.state_dict() | {"positions.weight": longer.positions.weight})
    longer.positions.weight[:] = model.positions.weight[torch.arange(300).clamp(max=5)]
    src, tgt = padded([9, 4]), random_ids(2, 250)  # the table grows
    assert_close(decoded(InferenceModel(model), src, tgt), longer(src, tgt), atol=2e-5, rtol=1e-5)


def test_double_precision_of_the_model_is_met_to_1e_5():
    model = tiny(d_model=64, d_ff=128, N=3)
    decoder = InferenceModel(model)
    src, tgt = padded([9, 4]), random_ids(2, 12)
    state = decoder.start(src)
    logits = torch.cat([decoder.step(tgt[:, t : t + 1], state) for t in range(12)], dim=1)
    exact = model.double()(src, tgt)
    assert float((logits - exact).abs().max() / exact.abs().max()) < 1e-5


@pytest.mark.parametrize(
    ("seed", "changes"),
    [*((seed, {}) for seed in range(4)), (4, {"d_k": 2, "learned_positions": 30})],
)
def test_hypotheses_come_go_and_change_places(seed, changes):
    """A random walk: at every step as many hypotheses as one likes, each of any parent."""
    rng = random.Random(seed)
    model = tiny(**changes)
    decoder = InferenceModel(model)
    src = padded([5, 2, 8, 3, 6])
    state = decoder.start(src)
    prefixes = [[[BOS]] for _ in src]
    parents = None
    for _ in range(25):
        w = len(prefixes[0])
        last = torch.tensor([[prefix[-1] for prefix in rows] for rows in prefixes])
        logits = decoder.step(last, state, parents)
        for b, rows in enumerate(prefixes):
            source = src[b : b + 1].expand(w, -1)
            assert_close(logits[b], model(source, torch.tensor(rows))[:, -1], atol=2e-5, rtol=1e-5)
        if len(src) > 1 and rng.random() < 0.3:
            order = rng.sample(range(len(src)), rng.randint(1, len(src) - 1))
            state.select(order)
            src, prefixes = src[order], [prefixes[i] for i in order]
        wider = rng.choice([1, 2, 3, 5])
        parents = torch.tensor([[rng.randrange(w) for _ in range(wider)] for _ in prefixes])
        prefixes = [
            [[*rows[i], rng.randrange(4, V)] for i in chosen]
            for rows, chosen in zip(prefixes, parents.tolist(), strict=True)
        ]


@pytest.mark.parametrize(
    ("seed", "widths", "changes"),
    [
        *((seed, (1, 2, 3, 5), {}) for seed in range(4)),
        (4, (1,), {}),  # greedy search needs no parents, and no mask until somebody joins
        (5, (1, 4), {"d_k": 2, "learned_positions": 30}),
    ],
)
def test_sentences_join_and_leave(seed, widths, changes):
    """Each sentence is computed as if it were alone, whenever it joins; slots are used again."""
    rng = random.Random(seed)
    model = tiny(**changes)
    decoder = InferenceModel(model)
    sources = [padded([6])]
    state = decoder.start(sources[0])
    prefixes, parents, most_slots = [[[BOS]]], None, 0
    for step in range(70):
        w = len(prefixes[0])
        last = torch.tensor([[prefix[-1] for prefix in rows] for rows in prefixes])
        logits = decoder.step(last, state, parents)
        most_slots = max(most_slots, state.slots_used)
        if step % 3 == 0:
            for source, rows, own in zip(sources, prefixes, logits, strict=True):
                wanted = model(source.expand(w, -1), torch.tensor(rows))[:, -1]
                assert_close(own, wanted, atol=2e-5, rtol=1e-5)
        if len(sources) > 1 and (rng.random() < 0.3 or len(prefixes[0][0]) > 25):
            order = rng.sample(range(1, len(sources)), rng.randint(1, len(sources) - 1))
            state.select(order)
            sources, prefixes = [sources[i] for i in order], [prefixes[i] for i in order]
        wider = rng.choice(widths)
        parents = torch.tensor([[rng.randrange(w) for _ in range(wider)] for _ in prefixes])
        prefixes = [
            [[*rows[i], rng.randrange(4, V)] for i in chosen]
            for rows, chosen in zip(prefixes, parents.tolist(), strict=True)
        ]
        if len(sources) < 2 or rng.random() < 0.3:
            joining = [padded([rng.randint(1, 12)]) for _ in range(rng.randint(1, 3))]
            for source in joining:
                state.join(decoder.start(source))
            sources += joining
            prefixes += [[[BOS]] * wider for _ in joining]
            parents = torch.cat([parents, torch.zeros(len(joining), wider, dtype=torch.long)])
        parents = None if widths == (1,) else parents
    assert most_slots < 70 * max(widths)


def test_a_sentence_joins_behind_a_long_one():
    """Attention goes through its keys in blocks, and whole blocks are hidden from the new one."""
    model = tiny()
    decoder = InferenceModel(model)
    old, new = padded([9]), padded([4])
    state = decoder.start(old)
    decoder.step(torch.full((1, 1), BOS), state)
    for step in range(300):
        parents = torch.arange(4)[None] if step else torch.zeros(1, 4, dtype=torch.long)
        decoder.step(torch.full((1, 4), 7), state, parents)
    state.join(decoder.start(new))
    logits = decoder.step(torch.full((2, 4), BOS), state, torch.zeros(2, 4, dtype=torch.long))
    assert_close(logits[1, 0], model(new, torch.tensor([[BOS]]))[0, -1], atol=2e-5, rtol=1e-5)


def test_sentences_that_stay_where_they_are_are_not_copied():
    state = InferenceModel(tiny()).start(padded([5, 2, 8, 3]))
    cache = state._cross_cache
    before = cache.clone()
    state.select([0, 3, 2])
    assert state._cross_cache is cache
    assert torch.equal(cache[:, :3], before[:, [0, 3, 2]])
    assert state.cross_by_layer[0][0].data_ptr() == cache.data_ptr()


def test_the_cache_is_not_moved_when_hypotheses_change_places():
    """Only slots that nobody sees any more are written over."""
    decoder = InferenceModel(tiny())
    state = decoder.start(padded([5, 2]))
    decoder.step(torch.full((2, 1), BOS), state)
    decoder.step(random_ids(2, 3), state, torch.zeros(2, 3, dtype=torch.long))
    before = state._self_cache[:, :, : state.slots_used].clone()
    decoder.step(random_ids(2, 3), state, torch.tensor([[2, 0, 0], [1, 1, 2]]))
    unchanged = (state._self_cache[:, :, :4] == before).all(dim=(0, 3, 4))
    assert unchanged.tolist() == [[True, True, False, True], [True, False, True, True]]
    assert state.slots_used == 6  # of 7 that were written


def test_a_beam_needs_little_more_than_its_one_past():
    decoder = InferenceModel(tiny())
    state = decoder.start(padded([8]))
    decoder.step(torch.full((1, 1), BOS), state)
    parents = torch.zeros(1, 4, dtype=torch.long)
    for _ in range(50):
        decoder.step(random_ids(1, 4), state, parents)
    assert state.slots_used <= 50 + 2 * 4


@pytest.mark.parametrize("beam_size", [1, 4])
def test_sentences_are_translated_alike_alone_and_in_batches(beam_size):
    torch.manual_seed(0)
    model = Transformer(V, N=2, d_model=32, d_ff=64, h=4).eval()
    for layer in model.decoder:
        layer.cross_attention.W_O.weight *= 5  # so that sources make a difference
    rng = random.Random(0)
    lengths = [rng.randint(1, 20) for _ in range(120)]
    decoder = InferenceModel(model)
    options = SearchOptions(beam_size, max_length=16, no_repeat_ngram=1)  # they would mumble
    sources = [padded([n]) for n in lengths]
    one_by_one = [search(decoder, source, options)[0][0] for source in sources]
    together = []
    for start in range(0, 120, 64):
        rows = [source[0] for source in sources[start : start + 64]]
        src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        together += [hypotheses[0] for hypotheses in search(decoder, src, options)]
    assert len({tuple(h.ids) for h in together}) > 60
    assert len({len(h.ids) for h in together}) > 5
    for a, b in zip(one_by_one, together, strict=True):
        assert a.ids == b.ids
        assert a.score == pytest.approx(b.score, abs=1e-4)


def test_a_source_of_3000_tokens_and_an_output_of_as_many():
    model = tiny(N=1, d_model=8, d_ff=8, h=1)
    (hypotheses,) = search(
        InferenceModel(model), padded([3000]), SearchOptions(2, min_length=600, max_length=600)
    )
    assert len(hypotheses[0].ids) == 600
    assert math.isfinite(hypotheses[0].score)


# Attention


@pytest.mark.parametrize("d_k", [None, 2, 7])
def test_attention_is_that_of_the_plain_model(monkeypatch, d_k):
    model = tiny(d_k=d_k)
    src = padded([5, 2, 8])
    outputs = [[7, 8, 9], [], [10, 11, 12, 13, 14]]
    sentences = InferenceModel(model).cross_attention_weights(src, outputs)

    attention, recorded = reference.attention, []

    def recording(Q, K, V, mask):
        recorded.append(attention(Q, K, torch.eye(K.shape[2]), mask))  # values 1: the weights
        return attention(Q, K, V, mask)

    monkeypatch.setattr(reference, "attention", recording)
    plain = reference.from_fast(model)
    for b, (ids, weights) in enumerate(zip(outputs, sentences, strict=True)):
        source = src[b : b + 1, : int((src[b] != PAD).sum())]
        recorded.clear()
        plain(source, torch.tensor([[BOS, *ids]]))
        decoder = recorded[len(model.encoder) :]
        expected = torch.stack([w[0] for w in decoder[1::2]])  # self- and cross-attention in turn
        assert weights.shape == (2, 4, len(ids) + 1, source.shape[1])
        assert_close(weights, expected, atol=1e-5, rtol=1e-5)
        assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))


# Weights


def test_the_weights_of_float32_are_the_models_own():
    """Memory holds no second copy of a model, but for the blocked vocabulary."""
    model = tiny()
    decoder = InferenceModel(model)
    own = {p.data_ptr() for p in model.parameters()}
    layer = decoder.decoder[0]
    for op in (layer.self_attention.W_QKV, layer.cross_attention.W_O, layer.feed_forward.W_1):
        assert op.W.data_ptr() in own


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_model_trained_in_another_type_is_translated_with(dtype, precision):
    model = tiny().to(dtype)
    src = padded([5, 2])
    logits = InferenceModel(model, precision).step(
        torch.full((2, 1), BOS), InferenceModel(model, precision).start(src)
    )
    assert logits.dtype == torch.float32
    assert_close(
        logits[:, 0].to(dtype), model(src, torch.full((2, 1), BOS))[:, 0], atol=0.5, rtol=0.1
    )


@pytest.mark.parametrize(("precision", "most"), [("bfloat16", 0.05), ("int8", 0.1)])
def test_other_precisions_are_near(precision, most):
    model = tiny(d_model=64, d_ff=128)
    src, tgt = padded([9, 4, 7]), random_ids(3, 12)
    exact = model(src, tgt)
    decoder = InferenceModel(model, precision)
    state = decoder.start(src)
    logits = torch.cat([decoder.step(tgt[:, t : t + 1], state) for t in range(12)], dim=1)
    assert logits.dtype == torch.float32
    error = float((logits - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt())
    assert 1e-5 < error < most


@pytest.mark.parametrize("precision", ["float16", "", None, "int4"])
def test_an_unknown_precision_is_named(precision):
    with pytest.raises(ValueError, match="must be one of float32, bfloat16, int8"):
        InferenceModel(tiny(), precision)


def test_int8_is_refused_away_from_the_cpu():
    with torch.device("meta"):
        model = Transformer(**TINY)
    with pytest.raises(ValueError, match="int8' is for the CPU, not for meta"):
        InferenceModel(model, "int8")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_gpu_translates_as_the_cpu_does(precision, beam_size):
    model = tiny(d_model=32, d_ff=64)
    src = padded([random.Random(n).randint(1, 20) for n in range(64)])
    options = SearchOptions(beam_size, max_length=16)
    here = search(InferenceModel(model, precision), src, options)
    there = search(InferenceModel(model.cuda(), precision), src.cuda(), options)
    same = [a[0].ids == b[0].ids for a, b in zip(here, there, strict=True)]
    assert sum(same) >= (64 if precision == "float32" else 40)
