"""The loss in C++ against PyTorch's, on the same logits."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.training import loss as losses

EPS_LS = 0.1


pytestmark = pytest.mark.usefixtures("training_library")


def by_pytorch(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(losses, "library", lambda: None)
        return losses._losses(*arguments)


@pytest.mark.parametrize("eps_ls", [0.0, EPS_LS])
@pytest.mark.parametrize("V", [1, 15, 16, 1000, 4001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_pytorchs(
    dtype: torch.dtype, V: int, eps_ls: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 gradients are rounded alike, but for numbers in the middle of two."""
    logits = (5 * torch.randn(9, V)).to(dtype)
    targets = torch.randint(V, (7,))
    expected, *expected_sums = by_pytorch(monkeypatch, logits.clone(), targets, eps_ls, True)
    gradient, *sums = losses._losses(logits, targets, eps_ls, True)
    assert gradient is logits
    torch.testing.assert_close(sums, expected_sums)
    tolerance = {"rtol": 2**-7, "atol": 1e-6} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(gradient, expected, **tolerance)
    assert (gradient.float() - expected.float()).abs().mean() < 1e-5
    assert not gradient[7:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_and_other_rows_change_nothing(dtype: torch.dtype) -> None:
    logits, targets = torch.randn(40, 333).to(dtype), torch.randint(333, (40,))
    wanted, *sums = losses._losses(logits.clone(), targets, EPS_LS, True)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        gradient, *again = losses._losses(logits.clone(), targets, EPS_LS, True)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(gradient, wanted)
    assert again == sums
    alone, *_ = losses._losses(logits[5:6].clone(), targets[5:6], EPS_LS, True)
    assert torch.equal(alone, wanted[5:6])


def test_without_gradient_the_logits_stay() -> None:
    logits, targets = torch.randn(4, 33), torch.randint(33, (4,))
    kept, *sums = losses._losses(logits.clone(), targets, EPS_LS, False)
    assert torch.equal(kept, logits)
    assert sums == list(losses._losses(logits, targets, EPS_LS, True)[1:])


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_not_finite_shows(number: float) -> None:
    logits = torch.zeros(2, 40)
    logits[1, 37] = number
    gradient, loss, nll = losses._losses(logits, torch.tensor([3, 4]), EPS_LS, True)
    assert math.isnan(loss)
    assert math.isnan(nll)
    assert gradient[0].isfinite().all()
    assert gradient[1].isnan().any()


def test_great_logits_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.tensor([[1e4, 0, -1e4], [300.0, 300, 299]])
    targets = torch.tensor([2, 1])
    expected = by_pytorch(monkeypatch, logits.clone(), targets, EPS_LS, True)
    torch.testing.assert_close(losses._losses(logits, targets, EPS_LS, True), expected)


@pytest.mark.parametrize("target", [-1, 8])
def test_a_target_is_an_id(target: int) -> None:
    with pytest.raises(IndexError, match="not an id of the vocabulary of 8"):
        losses._losses(torch.zeros(2, 8), torch.tensor([0, target]), EPS_LS, True)


def test_sums_are_float32_whatever_the_default_is() -> None:
    """Lightning's bf16-true makes bfloat16 the default, half of what the C++ writes."""
    logits, targets = torch.randn(40, 333).to(torch.bfloat16), torch.randint(333, (40,))
    wanted = losses._losses(logits.clone(), targets, EPS_LS, True)
    torch.set_default_dtype(torch.bfloat16)
    try:
        results = losses._losses(logits.clone(), targets, EPS_LS, True)
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(wanted, results, strict=True):
        assert torch.equal(one, other)
