"""The chunked loss against F.cross_entropy, the written-out formula and numerical gradients."""

import math

import pytest
import torch
import torch.nn.functional as F

import mt.training.loss
from mt.training.loss import smoothed_cross_entropy

n, V, d_model = 13, 11, 6


def inputs(dtype=torch.float64):
    states = torch.randn(n, d_model, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, d_model, dtype=dtype, requires_grad=True)
    return states, weight, torch.randint(V, (n,))


def oracle(states, weight, targets, eps_ls):
    return F.cross_entropy(states @ weight.T, targets, label_smoothing=eps_ls, reduction="sum")


@pytest.fixture(params=[1, 3, 5, n, 1000], ids=lambda rows: f"{rows} rows a chunk")
def _chunks(request, monkeypatch):
    monkeypatch.setattr(mt.training.loss, "_chunk_rows", lambda weight: request.param)
    monkeypatch.setattr(mt.training.loss, "_BLOCK", 4)  # of V = 11


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("eps_ls", [0, 0.1, 0.5])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_loss_and_both_gradients_equal_pytorchs(dtype, atol, eps_ls):
    states, weight, targets = inputs(dtype)
    loss, _ = smoothed_cross_entropy(states, weight, targets, eps_ls)
    expected = oracle(states, weight, targets, eps_ls)
    gradients = torch.autograd.grad(loss, (states, weight))
    expected_gradients = torch.autograd.grad(expected, (states, weight))
    assert loss.dtype == dtype
    torch.testing.assert_close(loss, expected, atol=atol, rtol=atol)
    torch.testing.assert_close(gradients, expected_gradients, atol=atol, rtol=atol)


@pytest.mark.usefixtures("_chunks")
def test_gradients_are_those_of_finite_differences():
    states, weight, targets = inputs()
    smoothed_cross_entropy(states, weight, targets, 0.1)[0].backward()
    for x in (states, weight):
        numbers = x.detach().view(-1)  # changed in place
        for i, gradient in enumerate(x.grad.view(-1).tolist()):
            value, sums = numbers[i].item(), []
            for numbers[i] in (value + 1e-5, value - 1e-5):
                with torch.no_grad():
                    sums.append(smoothed_cross_entropy(states, weight, targets, 0.1)[0].item())
            numbers[i] = value
            assert gradient == pytest.approx((sums[0] - sums[1]) / 2e-5, abs=1e-7)


def test_loss_is_the_cross_entropy_with_the_smoothed_distribution():
    """Written out: q gives 1 - eps_ls to the target and eps_ls / V to every id, also the target.

    -sum q log p is the Kullback-Leibler divergence of p from q, plus the entropy of q.
    """
    states, weight, targets = inputs()
    loss, _ = smoothed_cross_entropy(states, weight, targets, 0.1)
    cross_entropy = divergence = entropy = 0.0
    for row, target in zip((states @ weight.T).tolist(), targets.tolist(), strict=True):
        total = sum(math.exp(logit) for logit in row)
        for i, logit in enumerate(row):
            p = math.exp(logit) / total
            q = (0.9 if i == target else 0.0) + 0.1 / V
            cross_entropy -= q * math.log(p)
            divergence += q * math.log(q / p)
            entropy -= q * math.log(q)
    assert loss.item() == pytest.approx(cross_entropy, rel=1e-12)
    assert loss.item() == pytest.approx(divergence + entropy, rel=1e-12)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("eps_ls", [0, 0.1, 0.9])
def test_second_sum_is_the_unsmoothed_likelihood_and_carries_no_gradient(eps_ls):
    states, weight, targets = inputs()
    loss, nll = smoothed_cross_entropy(states, weight, targets, eps_ls)
    expected = F.nll_loss((states @ weight.T).log_softmax(dim=-1), targets, reduction="sum")
    torch.testing.assert_close(nll, expected)
    assert loss.requires_grad
    assert not nll.requires_grad
    assert torch.isclose(loss, nll).item() == (eps_ls == 0)


def test_gradients_are_scaled_by_the_incoming_gradient():
    states, weight, targets = inputs()
    loss, _ = smoothed_cross_entropy(states, weight, targets, 0.1)
    plain = torch.autograd.grad(loss, (states, weight))
    loss, _ = smoothed_cross_entropy(states, weight, targets, 0.1)
    scaled = torch.autograd.grad(-3 * loss / n, (states, weight))
    torch.testing.assert_close(scaled, tuple(gradient * -3 / n for gradient in plain))


def test_gradients_flow_through_the_states_and_add_up_in_a_shared_weight():
    _, weight, targets = inputs()
    ids = torch.randint(V, (n,))
    loss, _ = smoothed_cross_entropy(weight[ids].tanh(), weight, targets, 0.1)
    expected = oracle(weight[ids].tanh(), weight, targets, 0.1)
    (gradient,), (expected_gradient,) = (
        torch.autograd.grad(value, weight) for value in (loss, expected)
    )
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("frozen", [0, 1], ids=["states", "weight"])
def test_one_input_may_need_no_gradient(frozen):
    *both, targets = inputs()
    both[frozen].requires_grad_(False)
    smoothed_cross_entropy(*both, targets, 0.1)[0].backward()
    expected = torch.autograd.grad(oracle(*both, targets, 0.1), both[1 - frozen])
    assert both[frozen].grad is None
    torch.testing.assert_close(both[1 - frozen].grad, *expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_sums_are_the_same_without_gradients(mode):
    states, weight, targets = inputs()
    with_gradients = smoothed_cross_entropy(states, weight, targets, 0.1)
    with mode():
        without = smoothed_cross_entropy(states, weight, targets, 0.1)
    assert not without[0].requires_grad
    assert [x.item() for x in without] == [x.item() for x in with_gradients]


@pytest.mark.usefixtures("_chunks")
def test_bfloat16_products_stay_near_the_float32_loss():
    """bfloat16 keeps 8 bits, about 0.4 %: of the inputs, hence 2 % of the largest gradient."""
    states, weight, targets = inputs(torch.float32)
    expected = oracle(states, weight, targets, 0.1)
    expected_gradients = torch.autograd.grad(expected, (states, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, nll = smoothed_cross_entropy(states, weight, targets, 0.1)
    gradients = torch.autograd.grad(loss, (states, weight))
    assert loss.dtype == nll.dtype == torch.float32
    assert loss.item() != expected.item()  # the products really were in bfloat16
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == torch.float32
        assert (gradient - wanted).abs().max() < 0.02 * wanted.abs().max()


@pytest.mark.usefixtures("_chunks")
def test_rows_of_padding_do_not_count():
    states, weight, targets = inputs()
    sums = smoothed_cross_entropy(states, weight, targets[:-4], 0.1)
    expected = smoothed_cross_entropy(states[:-4], weight, targets[:-4], 0.1)
    torch.testing.assert_close(sums, expected)
    gradients = torch.autograd.grad(sums[0], (states, weight))
    torch.testing.assert_close(gradients, torch.autograd.grad(expected[0], (states, weight)))
    assert not gradients[0][-4:].any()


def test_gradients_can_be_taken_once_only():
    """They are not copied: a second backward would silently give wrong ones."""
    loss, _ = smoothed_cross_entropy(*inputs(), 0.1)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        loss.backward()


def test_a_chunk_of_logits_is_half_as_large_as_the_weight_or_of_256_rows():
    assert mt.training.loss._chunk_rows(torch.empty(37_000, 1024)) == 512
    assert mt.training.loss._chunk_rows(torch.empty(V, d_model)) == 256
    assert mt.training.loss._chunk_rows(torch.empty(37_000, 512, device="meta")) == 2**27 // 37_000


def test_nothing_to_predict_is_a_loss_of_zero():
    states, weight, _ = inputs()
    none = torch.empty(0, dtype=torch.long)
    loss, nll = smoothed_cross_entropy(states[:0], weight, none, 0.1)
    loss.backward()
    assert (loss.item(), nll.item()) == (0, 0)
    assert not weight.grad.any()


@pytest.mark.parametrize("eps_ls", [-0.1, 1, 1.5, math.nan, "0.1", None])
def test_a_bad_eps_ls_is_named(eps_ls):
    with pytest.raises(ValueError, match=f"^eps_ls={eps_ls!r}: must"):
        smoothed_cross_entropy(*inputs(), eps_ls)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_only_when_needed(mode, monkeypatch):
    def scatter_add_(*_):
        raise RuntimeError("a gradient is computed")

    monkeypatch.setattr(torch.Tensor, "scatter_add_", scatter_add_, raising=False)
    with mode():
        smoothed_cross_entropy(*inputs(), 0.1)
    with pytest.raises(RuntimeError, match="a gradient is computed"):
        smoothed_cross_entropy(*inputs(), 0.1)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_a_real_vocabulary(device, dtype, tolerance):
    """A vocabulary of 32,000 uses different kernels than one of eleven."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    states, weight = (
        (scale * torch.randn(size, 16, device=device)).to(dtype).requires_grad_()
        for size, scale in ((20, 1.0), (32_000, 0.25))
    )
    targets = torch.randint(32_000, (17,), device=device)
    loss, _ = smoothed_cross_entropy(states, weight, targets, 0.1)
    expected = oracle(states[:17].float(), weight.float(), targets, 0.1)
    rtol = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(loss, expected, rtol=rtol, atol=0)
    gradients = torch.autograd.grad(loss, (states, weight))
    expected_gradients = torch.autograd.grad(expected, (states, weight))
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        error = (gradient.float() - wanted.float()).abs().max()
        assert error < tolerance * wanted.float().abs().max()
