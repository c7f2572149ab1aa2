"""How rows are written, and the operations that need no model."""

import json
from typing import Any

import pyarrow as pa
import pytest

from mt.corpora.operations import Filter
from mt.corpora.rows import Bad, Rows


def test_a_table_keeps_its_types_and_other_columns() -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int8()), "en": ["a", "b"], "when": [None, None]})
    rows = Rows(table=table)
    rows.set_column("de", ["x", None], pa.string())
    rows.set_column("en", ["y", "z"], pa.string())
    result = rows.as_table()
    assert result.schema.types == [pa.int8(), pa.string(), pa.null(), pa.string()]
    assert result.to_pydict() == {
        "n": [1, 2], "en": ["y", "z"], "when": [None, None], "de": ["x", None]
    }  # fmt: skip


def test_lines_of_a_column() -> None:
    rows = Rows([{"de": "eins"}, {"de": None}, {}, {"de": "two\nlines"}, {"de": -1.25}])
    assert rows.as_lines("de") == b"eins\n\n\ntwo lines\n-1.2500\n"


def test_half_a_surrogate_pair_in_another_column_is_written() -> None:
    [line] = Rows([{"a": "\ud800", "b": "ü"}]).as_json().splitlines()
    assert json.loads(line) == {"a": "\ud800", "b": "ü"}


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1, "one", None, [2]], ["1", "one", None, "[2]"]),
        ([{}, None], ["{}", None]),  # no type of Parquet's
        ([2**70], ["1180591620717411303424"]),
        (["ü\ud800"], ["ü?"]),
    ],
)
def test_a_column_without_a_type_becomes_text(values: list[Any], texts: list[str]) -> None:
    assert Rows([{"n": value} for value in values]).as_table().to_pydict() == {"n": texts}


PAIRS: list[dict[str, Any]] = [
    {"en": "This is a house near the river.", "de": "Das ist ein Haus am Fluss.", "score": -0.1},
    {"en": "Yes.", "de": "Das ist ein langer Satz ohne Sinn.", "score": -0.2},
    {"en": "Das ist kein englischer Satz, oder?", "de": "Das ist ein Satz, oder nicht?"},
    {"en": "The weather is very nice today.", "de": "The weather is very nice today.", "score": -3},
    {"en": None, "de": "nichts", "score": -0.1},
    {"en": "Where is the station, please?", "de": "Wo ist bitte der Bahnhof?", "score": "high"},
    {"en": "How much does the ticket cost?", "de": "", "score": float("nan")},
]


@pytest.mark.parametrize(
    ("rules", "kept", "dropped"),
    [
        ({"min_score": -1}, [0, 1], {"min_score": 2}),
        ({"min_length": 2}, [0, 2, 3, 5], {"min_length": 2}),
        ({"max_length": 6}, [2, 3, 5, 6], {"max_length": 2}),
        ({"max_ratio": 2}, [0, 2, 3, 5], {"max_ratio": 2}),
    ],
)
@pytest.mark.parametrize("as_table", [False, True])
def test_rules(
    rules: dict[str, Any], kept: list[int], dropped: dict[str, int], as_table: bool
) -> None:
    records = [dict(record) for record in PAIRS]
    if as_table and "min_score" not in rules:  # a column of a table has one type
        rows = Rows(table=pa.Table.from_pylist([{k: r[k] for k in ("en", "de")} for r in records]))
    else:
        rows = Rows(records)
    result, counts = Filter("en", "de", **rules).load(1)(rows)
    assert result.values("en") == [PAIRS[i]["en"] for i in kept]
    assert counts == dropped
    assert sorted(result.bad) == ([2, 4, 5] if "min_score" in rules else [4])


def test_languages() -> None:
    pytest.importorskip("py3langid")
    rule = Filter("en", "de", source_language="en", target_language="de")
    result, counts = rule.load(1)(Rows([PAIRS[0], PAIRS[2], PAIRS[3]]))
    assert result.values("en") == [PAIRS[0]["en"]]
    assert counts == {"source_language": 1, "target_language": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to filter by"),
        ({"max_ratio": 2.0}, "name the column of the target too"),
        ({"min_length": -1}, "min_length=-1: must be"),
        ({"min_length": 5, "max_length": 2}, "min_length=5: must not exceed max_length=2"),
        ({"max_ratio": 0.5, "target": "de"}, "max_ratio=0.5: must be"),
        ({"source_language": "english"}, "'english': not a code that py3langid knows"),
    ],
)
def test_rules_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Filter("en", **arguments)


def test_what_is_bad_stays_known_when_rows_go() -> None:
    rows = Rows([{"en": "a"}, {}], bad={1: Bad("damaged", "x")})
    result, _ = Filter("en", min_length=1).load(1)(rows)
    assert (len(result), result.bad) == (1, {1: Bad("damaged", "x")})
