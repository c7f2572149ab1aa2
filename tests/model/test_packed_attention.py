"""Attention of packed sentences in C++, beside the same by PyTorch over padded ones."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.data.packing import Packed, pack
from mt.model.attention_layout import AttentionLayout

pytestmark = pytest.mark.usefixtures("training_library")


def sentences(*lengths: int) -> Packed:
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = 5
    return pack(ids)


def vectors(packed: Packed, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(len(packed.ids), width).to(dtype).requires_grad_()


def both_ways(packed: Packed, h: int, d_k: int, scale: float | None = None) -> list[Any]:
    """Layouts for the C++ and for PyTorch."""
    layouts = [AttentionLayout(packed, h, d_k, scale, may_stay_packed=cpp) for cpp in (True, False)]
    assert [layout._starts is not None for layout in layouts] == [True, False]
    return layouts


# 64 queries are taken at a time, 16 keys, and 6 rows of a product.
LENGTHS = [(1,), (7, 1, 16, 6), (17, 33, 48, 2), (64, 65, 3), (129, 150)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("h", "d_k"), [(1, 16), (4, 64), (3, 48)])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_self_attention_and_its_gradient_are_pytorchs(
    lengths: tuple[int, ...], causal: bool, h: int, d_k: int, dtype: torch.dtype, atol: float
) -> None:
    torch.manual_seed(0)
    packed = sentences(*lengths)
    n = packed.tokens
    QKV = vectors(packed, 3 * h * d_k, dtype)
    factors = torch.randn(len(packed.ids), h * d_k).to(dtype)
    factors[n:] = 0  # PyTorch would give padding a gradient
    results = []
    for layout in both_ways(packed, h, d_k):
        context = layout.attend(QKV, causal=causal)
        assert context.dtype == dtype
        results.append((context, *torch.autograd.grad(context, QKV, factors)))
    (context, gradient), (expected, expected_gradient) = results
    assert "PackedAttention" in str(context.grad_fn)
    assert "PackedAttention" not in str(expected.grad_fn)
    torch.testing.assert_close(context[:n], expected[:n], atol=atol, rtol=atol)
    torch.testing.assert_close(gradient, expected_gradient, atol=2 * atol, rtol=atol)
    assert not context[n:].any()
    assert not gradient[n:].any()


@pytest.mark.parametrize("lengths", LENGTHS[1:], ids=str)
def test_attention_to_a_source_and_its_gradients_are_pytorchs(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    h, d_k = 2, 32
    target, source = sentences(*lengths), sentences(*reversed(lengths))
    inputs = vectors(target, h * d_k), vectors(source, 2 * h * d_k)
    factors = torch.randn(len(target.ids), h * d_k)
    factors[target.tokens :] = 0
    results = []
    layouts = zip(both_ways(target, h, d_k, 0.3), both_ways(source, h, d_k), strict=True)
    for of_target, of_source in layouts:
        context = of_target.attend_to(of_source, *inputs)
        gradients = torch.autograd.grad(context, inputs, factors)
        results.append((context[: target.tokens], *gradients))
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, atol=2e-5, rtol=1e-5)


def test_rows_of_padding_are_zeros_and_threads_change_nothing() -> None:
    packed = sentences(20, 70, 5)
    layout, QKV = AttentionLayout(packed, 4, 16), vectors(packed, 3 * 64)
    results, threads = [], torch.get_num_threads()
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            context = layout.attend(QKV)
            results.append((context, *torch.autograd.grad(context, QKV, torch.ones_like(context))))
    finally:
        torch.set_num_threads(threads)
    for result in results[0]:
        assert not result[packed.tokens :].any()
    for context, gradient in results[1:]:
        assert torch.equal(context, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_a_number_that_is_none_stays_one() -> None:
    packed = sentences(3, 4)
    QKV = torch.zeros(len(packed.ids), 48)
    QKV[1] = torch.nan
    context = AttentionLayout(packed, 1, 16).attend(QKV.requires_grad_())
    assert context[:3].isnan().all()
    assert not context[3:].isnan().any()


def test_what_the_library_does_not_take_is_left_to_pytorch() -> None:
    packed = sentences(3, 4)
    double = vectors(packed, 48, torch.float64)
    context, other = (layout.attend(double) for layout in both_ways(packed, 1, 16))
    assert torch.equal(context, other)
    assert AttentionLayout(packed, 1, 24)._starts is None  # no multiple of 16
    assert AttentionLayout(packed, 1, 16, P_drop=0.1)._starts is None
    other_width = vectors(packed, 16 + 16 + 32)  # values have 32 numbers
    assert AttentionLayout(packed, 1, 16).attend(other_width).shape == (len(packed.ids), 32)
    with torch.no_grad():
        assert AttentionLayout(packed, 1, 16)._starts is None


def test_a_source_that_needs_no_gradient_is_left_to_pytorch() -> None:
    target, source = sentences(3, 4), sentences(5, 2)
    Q, KV = vectors(target, 16), vectors(source, 32).detach()
    expected, context = (
        AttentionLayout(target, 1, 16).attend_to(of_source, Q, KV)
        for of_source in both_ways(source, 1, 16)
    )
    assert torch.equal(context, expected)


def test_avx2_and_avx512_give_the_same_bits(each_instruction_set: Iterator[None]) -> None:
    torch.manual_seed(0)
    packed = sentences(20, 70, 5)
    inputs = [vectors(packed, 3 * 48, dtype) for dtype in (torch.float32, torch.bfloat16)]
    results = []
    for _ in each_instruction_set:
        for QKV in inputs:
            context = AttentionLayout(packed, 1, 48).attend(QKV, causal=True)
            results += [context, *torch.autograd.grad(context.square().sum(), QKV)]
    for one, other in zip(results[:4], results[4:], strict=True):
        assert torch.equal(one, other)
