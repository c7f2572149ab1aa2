"""The decoder-only model: torch's layers over ``source SEP target``, and a token at a time."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from model_files import shaken
from torch import Tensor, nn

from mt.data.batch_sampler import pad
from mt.data.packing import pack
from mt.inference.beam_search import DecodingBatch, score, search
from mt.inference.decoder_only import DecoderOnlyModel
from mt.inference.options import SearchOptions
from mt.inference.sentence_search import SentenceSearch
from mt.model import checkpoint
from mt.model.decoder_only import DecoderOnly, join, make_model
from mt.model.transformer import Transformer

SIZES: dict[str, Any] = {"vocab_size": 40, "N": 3, "d_model": 16, "d_ff": 32, "h": 4}
SOURCES = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0], [3, 0, 0, 0, 0]])
TARGETS = torch.tensor([[2, 11, 12], [2, 14, 0], [2, 15, 16]])
LABELS = torch.tensor([11, 12, 3, 14, 3, 15, 16, 3])
JOINED = [[5, 6, 7, 8, 3, 2, 11, 12], [9, 10, 3, 2, 14], [3, 2, 15, 16]]


@pytest.fixture(scope="module")
def model() -> DecoderOnly:
    return shaken(DecoderOnly(**SIZES), noise=0.2)


def oracle(model: DecoderOnly, ids: list[int]) -> Tensor:
    """Logits [T, V] of one sequence by torch's layers."""
    mask = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    x = math.sqrt(model.d_model) * F.embedding(torch.tensor(ids), model.embedding.weight)
    x = (x + model.encode_positions(torch.arange(len(ids))))[None]
    for layer in model.decoder:
        own: Any = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
        own.self_attn.in_proj_weight.data = layer.self_attention.W_QKV.weight.detach()
        own.self_attn.in_proj_bias.data.zero_()
        own.self_attn.out_proj.weight.data = layer.self_attention.W_O.weight.detach()
        own.self_attn.out_proj.bias.data.zero_()
        for i, add_norm in enumerate(layer.add_norm, 1):
            getattr(own, f"norm{i}").load_state_dict(add_norm.norm.state_dict())
        own.linear1.load_state_dict(layer.feed_forward.W_1.state_dict())
        own.linear2.load_state_dict(layer.feed_forward.W_2.state_dict())
        x = own(x, src_mask=mask)
    return F.linear(x[0], model.embedding.weight).detach()


def test_sources_and_targets_are_joined() -> None:
    joined = join(pack(SOURCES), pack(TARGETS))
    assert [[int(i) for i in row if i] for row in joined.packed.padded()] == JOINED
    positions = joined.packed.positions[joined.packed.rows]
    assert [row[: len(ids)].tolist() for row, ids in zip(positions, JOINED, strict=True)] == [
        list(range(len(ids))) for ids in JOINED
    ]
    assert joined.packed.tokens == sum(map(len, JOINED))
    assert joined.packed.groups == ((3, 8),)
    assert joined.packed.ids[joined.targets].tolist() == TARGETS[TARGETS > 0].tolist()
    assert joined.packed.ids[joined.sources].tolist() == SOURCES[SOURCES > 0].tolist()


def test_it_is_torchs_layers_over_one_sequence(model: DecoderOnly) -> None:
    expected = [oracle(model, ids) for ids in JOINED]
    logits = model(SOURCES, TARGETS)
    for row, ids, logits_of_all in zip(logits, TARGETS, expected, strict=True):
        T = int((ids > 0).sum())
        torch.testing.assert_close(row[:T], logits_of_all[-T:], atol=1e-5, rtol=1e-5)


def test_the_source_is_predicted_too_but_for_its_first_token(model: DecoderOnly) -> None:
    states, labels = model.states_of_both(pack(SOURCES), pack(TARGETS), LABELS)
    expected, tokens = [], []
    for ids in JOINED:  # the logits before each token of the source
        S = ids.index(3) + 1
        expected.append(oracle(model, ids)[: S - 1])
        tokens += ids[1:S]
    for ids in JOINED:  # and before each of the target
        S = ids.index(3) + 1
        expected.append(oracle(model, ids)[S:])
    torch.testing.assert_close(model.project(states), torch.cat(expected), atol=1e-5, rtol=1e-5)
    assert labels.tolist() == [*tokens, *LABELS.tolist()]


def test_gradients_reach_the_source_only_through_the_targets_loss(model: DecoderOnly) -> None:
    embedded = model.embedding.weight
    (gradient,) = torch.autograd.grad(model.states(pack(SOURCES), pack(TARGETS)).sum(), embedded)
    assert gradient[[5, 9, 11]].abs().sum(dim=1).all()
    rows = model.states(pack(SOURCES), pack(TARGETS))
    assert len(rows) == len(pack(TARGETS).ids)


def test_it_has_as_many_weights_as_the_encoder_and_decoder_it_is_compared_with() -> None:
    sizes = {"vocab_size": 1000, "d_model": 64, "d_ff": 256, "h": 4}
    count = [
        sum(p.numel() for p in m.parameters())
        for m in (Transformer(N=3, **sizes), DecoderOnly(N=7, **sizes))
    ]
    assert count[1] == pytest.approx(count[0], rel=0.002)


def test_sinusoids_go_on_and_learned_positions_end() -> None:
    learned = DecoderOnly(**SIZES, learned_positions=8)
    learned(SOURCES, TARGETS)
    with pytest.raises(ValueError, match="9 positions: more than the learned_positions=8"):
        learned(SOURCES, torch.tensor([[2, 11, 12, 13]] * 3))
    # What counts is a sequence, not the longest source and the longest target.
    learned(SOURCES, torch.tensor([[2, 11, 0, 0, 0], [2, 11, 12, 0, 0], [2, 11, 12, 13, 14]]))


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(ValueError, match="architecture='gpt': must be one of encoder_decoder, dec"):
        make_model(40, "gpt")


# A token at a time


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_cache_gives_the_same_logits(norm: str) -> None:
    model = shaken(DecoderOnly(**SIZES, norm=norm), noise=0.2)
    expected = model(SOURCES, TARGETS).detach()
    decoder = DecoderOnlyModel(model)
    state = decoder.start(SOURCES)
    for t in range(3):
        step = decoder.step(TARGETS[:, t : t + 1], state)[:, 0]
        real = TARGETS[:, t] > 0
        torch.testing.assert_close(step[real], expected[real, t], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_search_in_a_batch_is_the_search_alone(model: DecoderOnly, beam_size: int) -> None:
    decoder = DecoderOnlyModel(model)
    rng = torch.Generator().manual_seed(4)
    rows = [
        [*torch.randint(4, 40, (int(n),), generator=rng).tolist(), 3]
        for n in torch.randint(0, 12, (9,), generator=rng)
    ]
    options = SearchOptions(beam_size=beam_size, n_best=beam_size, max_length=12)
    together = search(decoder, pad(rows), options)
    for row, hypotheses in zip(rows, together, strict=True):
        (alone,) = search(decoder, pad([row]), options)
        assert [h.ids for h in hypotheses] == [h.ids for h in alone]
        expected = [h.score for h in alone]
        assert [h.score for h in hypotheses] == pytest.approx(expected, abs=1e-4)
        for h in alone:
            (scored,) = score(decoder, pad([row]), [h.ids], options.alpha)
            assert scored.score == pytest.approx(h.score, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_sentences_join_a_running_batch(model: DecoderOnly, beam_size: int) -> None:
    """One that joins, with a longer or a shorter source, is translated as alone."""
    decoder = DecoderOnlyModel(model)
    options = SearchOptions(beam_size=beam_size, max_length=9)
    rows = [[5, 6, 7, 3], [8, 9, 10, 11, 12, 13, 14, 15, 3], [16, 3], [17, 18, 3]]
    batch, sentences = DecodingBatch(decoder), []
    for row in rows:
        sentence = SentenceSearch.begin(row[:-1], options)
        sentences.append(sentence)
        batch.join(pad([row]), [sentence])
        batch.step()
        batch.step()
    while batch.active:
        batch.step()
    for row, sentence in zip(rows, sentences, strict=True):
        (alone,) = search(decoder, pad([row]), options)
        assert [h.ids for h in sentence.hypotheses()] == [h.ids for h in alone]


def test_attention_to_the_source(model: DecoderOnly) -> None:
    weights = DecoderOnlyModel(model).cross_attention_weights(SOURCES, [[11, 12], [14], []])
    assert [tuple(w.shape) for w in weights] == [(3, 4, 3, 5), (3, 4, 2, 3), (3, 4, 1, 1)]
    for rows in weights:
        torch.testing.assert_close(rows.sum(dim=-1), torch.ones(rows.shape[:-1]))


def test_a_model_folder_keeps_the_architecture(model: DecoderOnly, bpe: Any, tmp_path: Any) -> None:
    model = shaken(DecoderOnly(**SIZES | {"vocab_size": bpe.vocab_size}), noise=0.2)
    checkpoint.save(tmp_path / "model", model, bpe, 40, ["en", "de"], {})
    loaded = checkpoint.load(tmp_path / "model").model
    assert isinstance(loaded, DecoderOnly)
    torch.testing.assert_close(loaded(SOURCES, TARGETS), model(SOURCES, TARGETS))
    assert "decoder-only" in (tmp_path / "model" / "README.md").read_text()
