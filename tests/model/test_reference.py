"""The plain Transformer is the oracle of the fast one: same weights, same numbers."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from model_files import shaken
from torch import Tensor, nn

from mt.data.packing import Packed, pack
from mt.data.special_ids import BOS, EOS, PAD
from mt.model import reference, transformer
from mt.model.dropout import Dropout
from mt.training.loss import smoothed_cross_entropy

V = 40
TINY: dict[str, Any] = {"vocab_size": V, "N": 2, "d_model": 16, "d_ff": 32, "h": 4}
VARIATIONS = pytest.mark.parametrize(
    "changes",
    [
        {}, {"h": 1}, {"N": 3, "d_ff": 20}, {"d_k": 2}, {"d_k": 7}, {"learned_positions": 12},
        {"d_k": 3, "learned_positions": 12},
    ],
    ids=str,
)  # fmt: skip
LENGTHS = [(9, 12), (9, 7), (4, 5), (1, 1), (2, 8)]  # of source and target


def fast_model(**changes: Any) -> transformer.Transformer:
    return shaken(transformer.Transformer(**{**TINY, "P_drop": 0.0, **changes})).train()


def padded(lengths: list[int]) -> Tensor:
    rows = [torch.randint(4, V, (n,)) for n in lengths]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


@pytest.fixture
def src() -> Tensor:
    return padded([S for S, _ in LENGTHS])


@pytest.fixture
def tgt() -> Tensor:
    return padded([T for _, T in LENGTHS])


def packed(ids: Tensor) -> Packed:
    """In two groups, each as wide as its longest sentence."""
    lengths = (ids != PAD).sum(dim=1).tolist()
    return pack(ids, [(2, max(lengths[:2])), (len(ids) - 2, max(lengths[2:]))])


@VARIATIONS
@torch.no_grad()
def test_the_fast_model_has_the_outputs_of_the_plain_one(
    changes: dict[str, Any], src: Tensor, tgt: Tensor
) -> None:
    fast = fast_model(**changes).eval()
    plain = reference.from_fast(fast)
    expected, real = plain(src, tgt), tgt != PAD
    assert expected.shape == (*tgt.shape, V)
    torch.testing.assert_close(fast(src, tgt)[real], expected[real], atol=1e-5, rtol=1e-5)
    target = packed(tgt)
    in_groups = fast.project(fast.states(packed(src), target)[: target.tokens])
    torch.testing.assert_close(in_groups, expected[real], atol=1e-5, rtol=1e-5)


def losses_and_gradients(
    fast: transformer.Transformer, plain: reference.Transformer, src: Tensor, tgt: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Of the mean loss of a token, each by its own model; the gradients by the plain names."""
    labels = padded((tgt != PAD).sum(dim=1).tolist())
    expected = reference.label_smoothed_loss(plain(src, tgt), labels, eps_ls=0.1)
    target = packed(tgt)
    states = fast.states(packed(src), target)
    total, _ = smoothed_cross_entropy(states, fast.embedding.weight, labels[labels != PAD], 0.1)
    loss = total / target.tokens
    gradients = []
    for model, value in ((fast, loss), (plain, expected)):
        model.zero_grad()
        value.backward()
        named = model.named_parameters()
        gradients.append({name: p.grad for name, p in named if p.grad is not None})
        assert len(gradients[-1]) == len(list(model.parameters()))
    return (loss, expected), (reference.unstack(gradients[0], fast.config), gradients[1])


@VARIATIONS
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.float64, 1e-8)])
def test_the_fast_model_has_the_loss_and_the_gradients_of_the_plain_one(
    changes: dict[str, Any], dtype: torch.dtype, atol: float, src: Tensor, tgt: Tensor
) -> None:
    fast = fast_model(**changes).to(dtype)
    plain = reference.from_fast(fast)
    if "learned_positions" not in changes:
        atol = max(atol, 1e-6)  # sinusoids are of float32 precision in both models
    (loss, expected_loss), (gradients, expected) = losses_and_gradients(fast, plain, src, tgt)
    torch.testing.assert_close(loss, expected_loss, atol=atol, rtol=0)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, atol=atol, rtol=0)


def test_both_models_stay_equal_while_they_learn(src: Tensor, tgt: Tensor) -> None:
    fast = fast_model(d_k=3, learned_positions=12).double()
    plain = reference.from_fast(fast)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in (fast, plain)]
    losses = []
    for _ in range(10):
        (loss, expected), _ = losses_and_gradients(fast, plain, src, tgt)
        torch.testing.assert_close(loss, expected, atol=1e-8, rtol=0)
        losses.append(float(loss.detach()))
        for optimizer in optimizers:
            optimizer.step()
    weights = reference.unstack(fast.state_dict(), fast.config)
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(weights[name], weight, atol=1e-8, rtol=0)
    assert losses[-1] < losses[0]


def test_dropout_stands_in_the_same_places_in_both_models() -> None:
    fast = fast_model(N=3, P_drop=0.25)
    plain = reference.from_fast(fast)
    places = {name: m.P_drop for name, m in fast.named_modules() if isinstance(m, Dropout)}
    assert {n: m.p for n, m in plain.named_modules() if isinstance(m, nn.Dropout)} == places
    assert len(places) == 1 + 3 * (2 + 3)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_copy_has_the_mode_and_the_type_of_the_fast_model(
    training: bool, dtype: torch.dtype, src: Tensor, tgt: Tensor
) -> None:
    fast = fast_model(P_drop=0.5).to(dtype).train(training)
    plain = reference.from_fast(fast)
    assert plain.training == training
    assert plain(src, tgt).dtype == dtype
    assert torch.equal(plain(src, tgt), plain(src, tgt)) != training  # dropout
    counts = [sum(p.numel() for p in model.parameters()) for model in (fast, plain)]
    assert counts[0] == counts[1]
    with torch.no_grad():
        plain.decoder[0].cross_attention.W_K.zero_()
    assert fast.decoder[0].cross_attention.W_KV.weight.count_nonzero() == 2 * 16 * 16  # a copy


@pytest.mark.parametrize("eps_ls", [0.0, 0.1, 0.7])
def test_the_loss_is_pytorchs_label_smoothing_over_real_labels(eps_ls: float, tgt: Tensor) -> None:
    logits = torch.randn(*tgt.shape, V)
    expected = F.cross_entropy(
        logits.flatten(0, 1), tgt.flatten(), ignore_index=PAD, label_smoothing=eps_ls
    )
    torch.testing.assert_close(reference.label_smoothed_loss(logits, tgt, eps_ls), expected)


def test_logits_of_a_new_model_have_about_unit_variance(src: Tensor, tgt: Tensor) -> None:
    model = reference.Transformer(V, N=2, d_model=64, d_ff=128, h=4).eval()
    assert 0.5 < float(model(src, tgt).detach().std()) < 2


def test_greedy_decoding_chooses_the_most_probable_token_of_each_prefix() -> None:
    plain = reference.from_fast(fast_model().eval())
    with torch.no_grad():
        plain.embedding.weight[EOS] *= 2  # so that outputs end before the limit
    src = torch.cat((padded([5, 3, 8, 2]), torch.full((4, 1), PAD)), dim=1)
    src[range(4), (src != PAD).sum(dim=1)] = EOS
    outputs = reference.greedy_decode(plain, src, max_length=9)
    assert outputs.shape[1] <= 9
    for source, output in zip(src, outputs.tolist(), strict=True):
        ids = list(itertools.takewhile(lambda token: token != PAD, output))
        assert set(output[len(ids) :]) <= {PAD}
        assert EOS not in ids[:-1]
        assert len(ids) == 9 or ids[-1] == EOS
        logits = plain(source[source != PAD][None], torch.tensor([[BOS, *ids[:-1]]]))[0]
        assert (logits[:, EOS:].argmax(dim=1) + EOS).tolist() == ids


def test_a_variant_is_not_the_papers_model() -> None:
    with pytest.raises(ValueError, match="it has norm"):
        reference.from_fast(fast_model(norm="pre"))
