"""Matrix products in three precisions against the plain formula."""

import logging

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from mt.inference.linear import BlockedLinear, DenseLinear, Int8Linear, can_block, linear_ops
from mt.inference.native.linear import NativeLinear
from mt.utils import torch_private

CPU = torch.device("cpu")
blocks, blocks_of_bfloat16 = (
    pytest.mark.skipif(not can_block(CPU, dtype), reason=f"no oneDNN here for {dtype}")
    for dtype in (torch.float32, torch.bfloat16)
)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (DenseLinear, 1e-5),
        pytest.param(BlockedLinear, 1e-5, marks=blocks),
        (NativeLinear, 1e-5),
        (Int8Linear, 0.03),
    ],
)
def test_a_product_is_the_formula(kind, error, biased, rows, request):
    if kind is NativeLinear:
        request.getfixturevalue("native_library")
    torch.manual_seed(rows)
    W, x, residual = torch.randn(24, 16), torch.randn(rows, 16), torch.randn(rows, 24)
    b = torch.randn(24) if biased else None
    op = kind(W, b)
    y = x @ W.T
    shifted = y if b is None else y + b
    residual_before = residual.clone()

    def near(product, expected):
        assert product.dtype == torch.float32
        assert float((product - expected).abs().max()) < error * float(expected.abs().max())

    if b is None:
        near(op(x), y)
    near(op.relu(x), shifted.relu())
    near(op.add_residual(x, residual), shifted + residual)
    assert torch.equal(residual, residual_before), "the residual was changed"


@blocks_of_bfloat16
@pytest.mark.parametrize("rows", [1, 5, 200])
def test_blocked_bfloat16_is_dense_bfloat16(rows):
    W, b = torch.randn(40, 32).bfloat16(), torch.randn(40).bfloat16()
    x, residual = torch.randn(rows, 32).bfloat16(), torch.randn(rows, 40).bfloat16()
    dense, blocked = DenseLinear(W, b), BlockedLinear(W, b)
    for product, expected in (
        (blocked.relu(x), dense.relu(x)),
        (blocked.add_residual(x, residual), dense.add_residual(x, residual)),
        (BlockedLinear(W)(x), DenseLinear(W)(x)),
    ):
        assert product.dtype == torch.bfloat16
        assert_close(product, expected, atol=0.1, rtol=0.02)


def test_quantized_outputs_have_scales_of_their_own():
    """A row of large weights must not cost the small ones their digits."""
    W = torch.randn(8, 16) * torch.logspace(-4, 2, 8)[:, None]
    x = torch.randn(50, 16)
    error = (Int8Linear(W)(x) - x @ W.T).abs().amax(dim=0)
    assert bool((error < 0.05 * (x @ W.T).abs().amax(dim=0)).all())


def test_a_matrix_of_zeros_is_no_problem():
    assert torch.equal(Int8Linear(torch.zeros(4, 8))(torch.randn(2, 8)), torch.zeros(2, 4))


@pytest.mark.filterwarnings("error")
def test_no_warning_reaches_the_user():
    Int8Linear(torch.randn(4, 8), torch.randn(4))


@pytest.mark.parametrize(
    ("precision", "kinds", "dtype"),
    [
        ("float32", (DenseLinear,), torch.float32),
        ("bfloat16", (BlockedLinear, DenseLinear), torch.bfloat16),
        ("int8", (Int8Linear, NativeLinear), torch.float32),
    ],
)
def test_each_precision_has_its_kind_of_op(precision, kinds, dtype):
    make, op_dtype = linear_ops(precision, CPU)
    assert isinstance(make(torch.randn(4, 8)), kinds)
    assert op_dtype == dtype


def test_bfloat16_without_instructions_is_dense_and_warns(monkeypatch, caplog):
    monkeypatch.setattr(torch_private, "can_multiply_bfloat16", lambda: False)
    with caplog.at_level(logging.WARNING):
        make, dtype = linear_ops("bfloat16", CPU)
    assert isinstance(make(torch.randn(4, 8)), DenseLinear)
    assert dtype == torch.bfloat16
    assert "takes many times longer than float32 here" in caplog.text


quantize = torch.quantize_per_tensor_dynamic


@pytest.mark.filterwarnings("ignore:.*quantiz:UserWarning")
@pytest.mark.parametrize("shape", [(1, 4), (24, 16), (64, 20), (100, 64), (192, 128)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_native_product_rounds_each_row_as_pytorch_does(native_library, biased, shape):
    W, x = torch.randn(shape), torch.randn(14, shape[1]) * torch.logspace(-1, 3, 14)[:, None]
    b = torch.randn(shape[0]) if biased else None
    residual = torch.randn(14, shape[0])
    x[3] = 0
    x[4] = x[4].abs()
    native = NativeLinear(W, b, int8=True)
    scales = W.abs().amax(dim=1, keepdim=True) / 127
    W_rounded = (W / scales).round().double() * scales
    x_rounded = torch.stack([quantize(row, torch.quint8, False).dequantize() for row in x])
    exact = F.linear(x_rounded.double(), W_rounded, None if b is None else b.double()).float()
    size = 1 + exact.abs().amax(dim=1, keepdim=True)
    for product, expected in (
        (native(x), exact),
        (native(x.t().contiguous().t()), exact),
        (native.relu(x), exact.relu()),
        (native.add_residual(x, residual), exact + residual),
    ):
        assert_close(product / size, expected / size, atol=1e-6, rtol=0)
    for rows in (1, 2, 3, 4, 5, 6, 13):  # as many at once, to the last bit
        assert torch.equal(native(x[:rows]), native(x)[:rows])


def test_a_native_product_hides_no_nan(native_library):
    x = torch.randn(4, 16)
    x[1, 3], x[2, 5] = torch.nan, torch.inf
    y = NativeLinear(torch.randn(8, 16), int8=True).relu(x)
    assert y.isnan().all(dim=1).tolist() == [False, True, True, False]
    x[2, 5] = 0
    y = NativeLinear(torch.randn(8, 16)).relu(x)
    assert y.isnan().all(dim=1).tolist() == [False, True, False, False]


@pytest.mark.parametrize("shape", [(1, 3), (24, 16), (100, 50), (192, 70), (64, 3000)])
def test_a_native_product_of_floats_adds_up_in_order(native_library, shape):
    """From the first input to the last, each product exact; then the bias, then the residual."""
    W, b = torch.randn(shape), torch.randn(shape[0])
    native = NativeLinear(W, b)
    x, residual = torch.randn(100, shape[1]), torch.randn(100, shape[0])
    sums = torch.zeros(100, shape[0])
    for weights, inputs in zip(W.t().double(), x.t().double(), strict=True):
        sums = (inputs[:, None] * weights + sums).float()  # float64 holds the product exactly
    y = sums + b
    assert_close(native(x), y, atol=1e-6, rtol=1e-6)  # float64 rounds some sums twice
    assert_close(native.relu(x), y.relu(), atol=1e-6, rtol=1e-6)
    assert_close(native.add_residual(x, residual), y + residual, atol=1e-6, rtol=1e-6)
    for rows in range(1, 14):  # as many at once, to the last bit
        assert torch.equal(native(x[:rows]), native(x)[:rows])
        assert torch.equal(native(x[-rows:]), native(x)[-rows:])


def test_an_accelerator_has_dense_ops():
    make, _ = linear_ops("bfloat16", torch.device("meta"))
    assert isinstance(make(torch.empty(4, 8, device="meta")), DenseLinear)
