"""Hypothesis strategies: valid content with random damage, and values that nobody expects."""

import json
from typing import Any

from hypothesis import strategies as st

ODD_TEXTS = ["", " ", "\0", "\n", "\r", "\u2028", "\ufeff", "\x1b[31m", "ß", "汉", "😀", "\ud800"]
TEXT = st.text(max_size=20) | st.sampled_from(ODD_TEXTS)
# Text that UTF-8 can hold, in one line as a file's lines end.
LINE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=60
) | st.sampled_from(["", " ", "The bear hears the door.", "x" * 300, "a b " * 40, "\0", "\u2028"])
NUMBERS = st.integers() | st.sampled_from(
    [-1, 0, 1, 2, 3, 7, 2**15, 2**31, 2**63, 2**64, 10**18, 10**400, 1e300, -0.0, 0.5, 1e-300]
) | st.floats()  # fmt: skip
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Some bytes replaced, removed or added, or the end cut off."""
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(result)))
        removed = draw(st.sampled_from([0, 1, 1, 1, 4, 100, 10**9]))
        result[position : position + removed] = draw(st.binary(max_size=8))
    return bytes(result)


@st.composite
def damaged_json(draw: st.DrawFn, value: Any) -> str:
    """A JSON document with other values, without some, with more, or damaged as text."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 3))):
        value = _changed(draw, value)
    text = json.dumps(value)
    if draw(st.integers(0, 9)) == 0:
        text = draw(damaged_bytes(text.encode())).decode("utf-8", "replace")
    return text


def _changed(draw: st.DrawFn, value: Any) -> Any:
    """The value with one change somewhere inside it."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
        if isinstance(value, dict) and draw(st.booleans()):
            return {**value, draw(TEXT): draw(VALUES)}
        return draw(VALUES)
    if isinstance(value, dict):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 5)) == 0:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: _changed(draw, value[key])}
    position = draw(st.integers(0, len(value) - 1))
    return [_changed(draw, v) if i == position else v for i, v in enumerate(value)]
