"""The learning rate against numbers worked out by hand from equation 3."""

import pytest

from mt.training.lr_scheduler import learning_rate


@pytest.mark.parametrize(
    ("step", "d_model", "warmup_steps", "expected"),
    [
        (1, 512, 4000, 1.746928e-7),  # 1 / sqrt(512) * 1 / 4000^1.5
        (1000, 512, 4000, 1.746928e-4),
        (4000, 512, 4000, 6.987712e-4),  # the peak of base: 1 / sqrt(512 * 4000)
        (16000, 512, 4000, 3.493856e-4),  # 4 times the steps, half the rate
        (100_000, 512, 4000, 1.397542e-4),  # where base ends: 1 / sqrt(512 * 100000)
        (4000, 1024, 4000, 4.941059e-4),  # the peak of big
        (300_000, 1024, 4000, 5.705443e-5),  # where big ends
        (1, 4, 4, 0.0625),  # 1/2 * min(1, 1/8)
        (4, 4, 4, 0.25),  # 1/2 * min(1/2, 4/8)
        (100, 4, 4, 0.05),  # 1/2 * min(1/10, 100/8)
        (1, 1, 1, 1.0),
    ],
)
def test_rate_by_hand(step, d_model, warmup_steps, expected):
    assert learning_rate(step, d_model, warmup_steps) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("step", [1, 1000, 4000, 100_000])
def test_a_factor_multiplies_every_rate_and_one_changes_no_bit(step):
    rate = learning_rate(step, 512, 4000)
    assert learning_rate(step, 512, 4000, lr_factor=1.0) == rate
    assert learning_rate(step, 512, 4000, lr_factor=0.5) == rate / 2


def test_base_peaks_at_the_end_of_the_warmup_with_6_99e_4():
    rates = {step: learning_rate(step, 512, 4000) for step in range(1, 10_001)}
    assert max(rates, key=rates.get) == 4000
    assert rates[4000] == pytest.approx(6.99e-4, abs=0.005e-4)


def test_rate_rises_linearly_from_a_positive_first_step():
    first = learning_rate(1, 512, 4000)
    assert first > 0
    for step in range(1, 4001):
        assert learning_rate(step, 512, 4000) == pytest.approx(step * first, rel=1e-9)


def test_rate_falls_with_the_inverse_square_root_of_the_step():
    peak = learning_rate(4000, 512, 4000)
    for step in range(4000, 100_001, 1000):
        expected = peak * (4000 / step) ** 0.5
        assert learning_rate(step, 512, 4000) == pytest.approx(expected, rel=1e-9)
