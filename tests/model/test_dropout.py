"""Dropout with numbers of 16 bits: its share, its scale, its gradient, and that it repeats."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from mt.model.dropout import Dropout, draw_keep_mask, dropout


@pytest.fixture(params=["C++", "PyTorch"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What draws: ``library`` gives the C++ or, as where it is missing, nothing."""
    if request.param == "PyTorch":
        monkeypatch.setattr("mt.model.dropout.library", lambda: None)
    else:
        request.getfixturevalue("training_library")
    return request.param


def kept(shape: tuple[int, ...], P_drop: float) -> torch.Tensor:
    return dropout(torch.ones(shape), P_drop) != 0


@pytest.mark.parametrize("P_drop", [0.1, 0.3, 0.5, 0.9, 1e-4])
@pytest.mark.usefixtures("either")
def test_the_share_dropped_is_the_asked_one(P_drop: float) -> None:
    torch.manual_seed(0)
    n = 2_000_000
    numbers = dropout(torch.ones(n), P_drop)
    dropped, scale = 1 - (numbers != 0).double().mean().item(), numbers.max().item()
    assert dropped == pytest.approx(P_drop, abs=5 * (P_drop * (1 - P_drop) / n) ** 0.5 + 2**-17)
    assert scale == pytest.approx(1 / (1 - P_drop), rel=2**-16 / (1 - P_drop))


def test_every_number_of_the_sixteen_bits_is_as_likely_and_decides_as_it_should(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All 2^16 numbers once: exactly those below the threshold are dropped, and the scale makes
    the sum whole again."""
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16)

    def random_(self: torch.Tensor, *_: object) -> torch.Tensor:
        return self.copy_(numbers.view(torch.int64))

    monkeypatch.setattr(torch.Tensor, "random_", random_)
    keep, scale = draw_keep_mask(torch.Size((2**16,)), 0.1)
    assert int((~keep).sum()) == 6554  # 0.1 * 65,536 = 6,553.6
    assert not keep[:6554].any()
    assert keep.sum().item() * scale == pytest.approx(2**16, rel=1e-12)


@pytest.mark.usefixtures("either")
def test_nearly_all_can_be_dropped() -> None:
    numbers = dropout(torch.ones(500_000), 1 - 1e-9)
    assert numbers.max() == 2**16
    assert (numbers != 0).sum() < 40


@pytest.mark.usefixtures("either")
def test_neighbours_rows_and_calls_are_independent() -> None:
    torch.manual_seed(0)
    drops = [1.0 - kept((500, 1001), 0.2).double() for _ in range(2)]
    (first, second), n = drops, 500 * 1001
    pairs = [
        (first, second),
        *((first.flatten()[k:], first.flatten()[:-k]) for k in (1, 2, 3, 4, 15, 16, 17, 32, 1001)),
    ]
    for x, y in pairs:
        both = (x * y).mean().item()
        assert both == pytest.approx(0.04, abs=5 * (0.04 * 0.96 / n) ** 0.5)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (1,), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_kept_is_scaled_and_the_gradient_takes_the_same_way(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.full(shape, 3.0, dtype=dtype, requires_grad=True)
    y = Dropout(0.5).train()(x)
    assert y.dtype == dtype
    assert set(y.flatten().tolist()) <= {0.0, 6.0}
    y.sum().backward()
    assert torch.equal(x.grad * 3, y)


@pytest.mark.usefixtures("either")
def test_a_residual_is_added_untouched_and_has_the_whole_gradient() -> None:
    x = torch.randn(40, 30, requires_grad=True)
    residual = torch.randn(40, 30, requires_grad=True)
    torch.manual_seed(3)
    y = Dropout(0.25).train()(x, residual)
    torch.manual_seed(3)
    torch.testing.assert_close(y, residual + Dropout(0.25).train()(x))
    factors = torch.randn(40, 30)
    y.backward(factors)
    assert torch.equal(residual.grad, factors)
    keep = x.grad != 0
    torch.testing.assert_close(x.grad[keep], factors[keep] / 0.75, rtol=1e-4, atol=0)
    assert 0.6 < keep.float().mean() < 0.9


@pytest.mark.usefixtures("either")
def test_a_bfloat16_sublayer_is_added_in_the_residuals_float32() -> None:
    x = torch.ones(1000, dtype=torch.bfloat16, requires_grad=True)
    residual = torch.full((1000,), 1e-3)
    y = Dropout(0.5).train()(x, residual)
    assert y.dtype == torch.float32
    assert set(y.tolist()) == {torch.tensor(1e-3).item(), torch.tensor(2 + 1e-3).item()}
    y.sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_gradients_are_those_of_finite_differences() -> None:
    def fixed(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return Dropout(0.3).train()(x, residual)

    inputs = [torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(fixed, inputs)


@pytest.mark.usefixtures("either")
def test_a_seed_repeats_it_and_the_next_call_differs() -> None:
    dropout, x = Dropout(0.5).train(), torch.ones(1000)
    torch.manual_seed(7)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(7)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dropout", [Dropout(0.5).eval(), Dropout(0).train()], ids=["eval", "zero"])
def test_without_training_or_without_a_share_nothing_is_dropped_or_drawn(dropout: Dropout) -> None:
    x, residual = torch.randn(9), torch.randn(9)
    state = torch.get_rng_state()
    assert torch.equal(dropout(x), x)
    assert torch.equal(dropout(x, residual), residual + x)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("either")
def test_nn_dropout_is_met_in_mean_and_deviation() -> None:
    torch.manual_seed(0)
    x = torch.randn(1000, 1000)
    own, pytorchs = Dropout(0.1).train()(x), nn.Dropout(0.1).train()(x)
    assert own.mean().item() == pytest.approx(pytorchs.mean().item(), abs=0.005)
    assert own.std().item() == pytest.approx(pytorchs.std().item(), rel=0.005)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_not_contiguous_is_dropped_in_its_own_order(dtype: torch.dtype) -> None:
    x = torch.arange(1.0, 13).view(3, 4).to(dtype).T.requires_grad_()
    residual, gradient = 100 * torch.randn(3, 4).T, torch.randn(3, 4).T
    torch.manual_seed(1)
    y = dropout(x, 0.5, residual)
    torch.manual_seed(1)
    z = dropout(x.contiguous(), 0.5, residual.contiguous())
    assert torch.equal(y, z)
    (of_y,) = torch.autograd.grad(y, x, gradient)
    (of_z,) = torch.autograd.grad(z, x, gradient.contiguous())
    assert torch.equal(of_y, of_z)


@pytest.mark.usefixtures("either")
def test_a_residual_of_another_shape_or_type_is_added_as_pytorch_does() -> None:
    x = torch.ones(4, 3, requires_grad=True)
    assert set(dropout(x, 0.5, torch.tensor([10.0, 20, 30])).flatten().tolist()) <= {
        10.0, 20, 30, 12, 22, 32
    }  # fmt: skip
    half = torch.full((4, 3), 4.0, dtype=torch.bfloat16)
    y = dropout(x.bfloat16(), 0.5, half)
    assert y.dtype == torch.bfloat16
    assert set(y.flatten().tolist()) <= {4.0, 6.0}


@pytest.mark.usefixtures("training_library")
def test_each_seed_draws_others_and_threads_change_nothing() -> None:
    """Of 2,000 calls, each with a seed of its own, an element is dropped in a fifth."""
    torch.manual_seed(0)
    drops = torch.stack([1 - kept((300,), 0.2).double() for _ in range(2000)])
    deviation = (0.2 * 0.8 / 2000) ** 0.5
    assert (drops.mean(0) - 0.2).abs().max() < 5 * deviation
    correlated = torch.corrcoef(drops.T)[~torch.eye(300, dtype=torch.bool)]
    assert correlated.abs().max() < 6 / 2000**0.5
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            torch.manual_seed(0)
            results.append(kept((1000, 100), 0.2))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_avx2_and_avx512_drop_the_same(each_instruction_set: Iterator[None]) -> None:
    x, results = torch.randn(70, 33), []
    for _ in each_instruction_set:
        torch.manual_seed(0)
        results.append((dropout(x, 0.1), dropout(x.bfloat16(), 0.3, x)))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
