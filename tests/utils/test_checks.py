"""Every check lets right values pass and names the setting of a wrong one."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mt.utils.checks import (
    check_bool,
    check_int,
    check_number,
    check_positive,
    printable,
    short_repr,
)

Check = Callable[[str, Any], None]
UP_TO_ONE: Check = partial(check_number, least=0, most=1)
BELOW_ONE: Check = partial(check_number, least=0, below=1)
NUMBER = "must be a number "
WHOLE = "must be a whole number "
NO_NUMBERS = [math.inf, -math.inf, math.nan, 10**400, True, "1", None, []]  # no finite float


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (check_int, [1, 7, 10**400]),
        (partial(check_int, most=7), [1, 7]),
        (partial(check_int, least=0), [0]),
        (partial(check_int, optional=True), [None, 1]),
        (UP_TO_ONE, [0, 0.5, 1]),
        (BELOW_ONE, [0, 0.99]),
        (partial(check_number, least=0, optional=True), [None, 0]),
        (partial(check_number, least=-1), [-1, 1e300]),
        (check_positive, [1e-9, 3]),
        (check_bool, [True, False]),
    ],
)
def test_right_values_pass(check: Check, values: list[Any]) -> None:
    for value in values:
        check("name", value)


@pytest.mark.parametrize(
    ("check", "values", "message"),
    [
        (check_int, [0, -1, 1.0, True, "1", None], "must be a whole number of at least 1"),
        (partial(check_int, optional=True), [0, "x"], "must be null or a whole number of at"),
        (partial(check_int, least=0, most=9000), [-1, 9001, None], f"{WHOLE}from 0 to 9,000"),
        (UP_TO_ONE, [-0.1, 1.1, math.nan, True, "0", None], f"{NUMBER}from 0 to 1"),
        (BELOW_ONE, [1, -0.1, math.inf, None], f"{NUMBER}from 0 up to, not including, 1"),
        (partial(check_number, least=2), [1.9, *NO_NUMBERS], f"{NUMBER}of at least 2"),
        (partial(check_number, least=0, optional=True), [-1], "must be null or a number of"),
        (check_positive, [0, -1, *NO_NUMBERS], f"{NUMBER}above 0"),
        (check_bool, [0, 1, "true", None], "must be true or false"),
    ],
)
def test_wrong_values_are_named(check: Check, values: list[Any], message: str) -> None:
    for value in values:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            check("a.name", value)
        assert str(caught.value).startswith(f"a.name={short_repr(value)}: {message}")


@pytest.mark.parametrize(
    "value", ["x" * 10**6, list(range(10**6)), 10**400, "\x1b[31m\n", {"k": "\n"}]
)
def test_what_is_shown_of_a_value_is_short_and_one_line(value: Any) -> None:
    text = value if isinstance(value, str) else str(value)
    for shown in (short_repr(value), printable(text)):
        assert len(shown) <= 500
        assert shown.isprintable()
