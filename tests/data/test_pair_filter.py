"""The rules that drop sentence pairs."""

import re
from typing import Any

import pytest

from mt.data.preprocessing import DuplicateFilter, PairFilter
from mt.data.readers import Pair

ALL_RULES = PairFilter(max_length=6, max_ratio=2.0, identical=True, duplicates=True)


@pytest.mark.parametrize(
    ("pair", "lengths", "reason"),
    [
        (("a b", "c"), (2, 1), None),
        (("", "c"), (0, 1), "empty"),
        (("a", " \t"), (1, 0), "empty"),
        (("", ""), (0, 0), "empty"),
        (("same", "same"), (1, 1), "identical"),
        (("same ", " same"), (1, 1), "identical"),
        (("same", "Same"), (1, 1), None),
        (("a", "b"), (6, 6), None),
        (("a", "b"), (7, 6), "max_length"),
        (("a", "b"), (6, 7), "max_length"),
        (("a", "b"), (2, 4), None),
        (("a", "b"), (2, 5), "max_ratio"),
        (("a", "b"), (5, 2), "max_ratio"),
        (("a", "b"), (1, 99), "max_length"),  # the first of two reasons counts
        (("x", "y"), (1, 1), "duplicates"),
        (("x", "y "), (1, 1), None),
        (("x y", ""), (2, 0), "empty"),
    ],
)
def test_each_rule(pair: Pair, lengths: tuple[int, int], reason: str | None) -> None:
    seen = DuplicateFilter()
    assert ALL_RULES.reject_reason(("x", "y"), (1, 1), seen) is None
    assert ALL_RULES.reject_reason(pair, lengths, seen) == reason
    for off in (PairFilter(False, None, None, False, False), PairFilter(*[None] * 5)):
        assert off.reject_reason(pair, lengths, seen) is None


def test_the_defaults_drop_only_empty_and_very_long() -> None:
    rules = PairFilter()
    assert rules.reject_reason(("a", "a"), (1, 256), DuplicateFilter()) is None
    assert rules.reject_reason(("a", "b"), (1, 257), DuplicateFilter()) == "max_length"
    assert rules.reject_reason(("a", ""), (1, 0), DuplicateFilter()) == "empty"


def test_a_pair_dropped_for_another_reason_is_no_duplicate_later() -> None:
    seen = DuplicateFilter()
    assert ALL_RULES.reject_reason(("x", "y"), (9, 9), seen) == "max_length"
    assert ALL_RULES.reject_reason(("x", "y"), (1, 1), seen) is None
    assert ALL_RULES.reject_reason(("x", "y"), (1, 1), seen) == "duplicates"
    assert ALL_RULES.reject_reason(("y", "x"), (1, 1), seen) is None


def test_reasons_stand_in_the_order_of_the_rules() -> None:
    """A pair that every rule rejects counts under the first rule, then the second, and so on."""
    rules = {"empty": True, "identical": True, "max_length": 1, "max_ratio": 1, "duplicates": True}
    off = {"empty": False, "identical": False, "max_length": None, "max_ratio": None}
    order = []
    for _ in range(len(rules)):
        seen = DuplicateFilter()
        PairFilter(**{**off, "duplicates": True}).reject_reason(("", ""), (0, 9), seen)
        reason = PairFilter(**rules).reject_reason(("", ""), (0, 9), seen)
        assert reason is not None
        order.append(reason)
        rules[reason] = {**off, "duplicates": False}[reason]
    assert PairFilter(**rules).reject_reason(("", ""), (0, 9), DuplicateFilter()) is None
    assert list(PairFilter().reasons()) == order


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("max_length", 0),
        ("max_length", -3),
        ("max_length", "long"),
        ("max_length", True),
        ("max_ratio", 0.5),
        ("max_ratio", float("nan")),
        ("max_ratio", [2]),
        ("empty", "no"),
        ("identical", 1),
        ("duplicates", "false"),
    ],
)
def test_rules_of_the_wrong_kind_are_refused(rule: str, value: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{rule}={value!r}: must be")):
        PairFilter(**{rule: value})


def test_what_was_seen_stays_seen_beyond_a_merge() -> None:
    seen = DuplicateFilter()
    pairs = [(str(number), "x") for number in range(200_000)]
    assert all(seen.add(pair) for pair in pairs)
    assert len(seen.sorted) > 100_000
    assert len(seen.recent) <= 2**16
    assert not any(seen.add(pair) for pair in pairs)
    assert seen.add(("x", "0"))
