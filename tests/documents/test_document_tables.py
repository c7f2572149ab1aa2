"""Tables and records: the columns that are named are translated, all other bytes stay."""

from functools import partial

import pytest
from text_document_checks import check_hostile, fuzz, shouted, texts

from mt.documents.document import DocumentError
from mt.documents.formats import read_document
from mt.documents.tables import read_csv, read_jsonl

CSV_BITS = [",", ";", "\t", '"', '""', "\n", "word", "Text x", "\r\n", "<b>", "\r", "\0", "é", " "]
ROWS = ["1,a b,x\n", '2,"a, ""b""",\n', ',"a\nb",\r\n', "\n", "3\n", "4,<b>a</b> c,d\n"]
JSON_BITS = ["{", "}", '"', "en", '"en":', ' "x"', ",", "\n", "[", "]", "\\u", "\\ud800", "1e999",
             "null", "\0", "\\n"]  # fmt: skip
RECORDS = [
    '{"en": "a b", "n": [1, {"x": null}]}\n', '{"en":["x y","<b>z</b> \\u00e9\\nq"],"b":1}\n', "\n",
    '{"en": null}\r\n', '{"de": "x", "en": "a\\ud800 b"}\n', "{}\n", '{"en":[]}\n',
    '{"en":[1,"x"]}\n', ' { "en" : "é" , "x" : "en" } \n',
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "columns", "rendered"),
    [
        ("id,en\n1,a\n", ["en"], "id,en\n1,A\n"),
        ("id;en\r\n1;a\r\n", ["en"], "id;en\r\n1;A\r\n"),
        ("id\ten\n1\ta, b\n", ["en"], "id\ten\n1\tA, B\n"),
        ('"id","en"\n"1","a ""b"""\n', ["en"], '"id","en"\n"1","A ""B"""\n'),
        ('en,x\n"a, b",c\nd,"e"', ["en", "x"], 'en,x\n"A, B",C\nD,"E"'),
        ("\ufeffen,x\na,b\n\n\nc\n", ["en"], "\ufeffen,x\nA,b\n\n\nC\n"),
        ("en,x\n12,b\n,\n", ["en"], "en,x\n12,b\n,\n"),
        ('en\tx\nsay "a"\tb\n"a" b\tc\n', ["en"], 'en\tx\nSAY "A"\tb\n"""A"" B"\tc\n'),
        ('en,x\n"a\nb\n\nc",d\n', ["en"], 'en,x\n"A\nB\n\nC",d\n'),
        ("en,de\na,b\nc\n", ["en=de"], "en,de\na,A\nc,C\n"),
        ('en,x\na,b\n"c",\n\n', ["en=de"], 'en,x,de\na,b,A\n"c",,"C"\n\n'),
        ("en,x\na,b\n,c\n12,d", ["en=de"], "en,x,de\na,b,A\n,c,\n12,d,12"),
        ("en,x\na,b\n", ["en=de", "x", "en"], "en,x,de\nA,B,A\n"),
        ("a=b,x\na,b\n", ["a=b"], "a=b,x\nA,b\n"),
        ('"my, en";x\na;b\n', ["my, en"], '"my, en";x\nA;b\n'),
        ("en,x\na <b>c</b>,d\n", ["en"], "en,x\nA <b>C</b>,d\n"),
        ("en\na\nb\n", ["en"], "en\nA\nB\n"),
        (",en\n1,a\n", ["en"], ",en\n1,A\n"),
        ("id|en\n1|a, b\n", ["en"], "id|en\n1|A, B\n"),
        ("sep=;\r\nid;en\r\n1;a, b\r\n", ["en"], "sep=;\r\nid;en\r\n1;A, B\r\n"),
        ("sep=,\nsep=;,x\na,b\n", ["x"], "sep=,\nsep=;,x\na,B\n"),
    ],
)
def test_columns_are_translated(source: str, columns: list[str], rendered: str) -> None:
    document = read_csv(source.encode(), columns)
    if not any("=" in column and column not in source for column in columns):
        assert document.render(document.segments) == source.encode()
    assert shouted(document) == rendered


@pytest.mark.parametrize(
    ("source", "columns", "rendered"),
    [
        ('{"id":1,"en":"a"}\n', ["en"], '{"id":1,"en":"A"}\n'),
        ('{"en": "a"}\r\n\r\n{"x": "b"}', ["en"], '{"en": "A"}\r\n\r\n{"x": "b"}'),
        ('{"en": ["a", "b c" ], "x": {"en": "d"}}\n', ["en"],
         '{"en": ["A", "B C" ], "x": {"en": "d"}}\n'),
        ('{"en": null}\n{"en": 1}\n{"en": [1, "a"]}\n{"en": "a"}\n', ["en"],
         '{"en": null}\n{"en": 1}\n{"en": [1, "a"]}\n{"en": "A"}\n'),
        ('{"en": "a\\nb \\"c\\""}', ["en"], '{"en": "A\\nB \\"C\\""}'),
        ('{"en": "\\u00e9"}', ["en"], '{"en": "\\u00c9"}'),
        ('{"en": "é\\u00e9"}', ["en"], '{"en": "ÉÉ"}'),
        ('{"en": "a\\ud800"}', ["en"], '{"en": "A\\ud800"}'),
        ('{"en": "a", "x": 12345678901234567890e9}', ["en"],
         '{"en": "A", "x": 12345678901234567890e9}'),
        ('{"en": "a"}\n', ["en=de"], '{"en": "a", "de": "A"}\n'),
        ('{"en":["a","b"]}\n', ["en=de"], '{"en":["a","b"],"de":["A","B"]}\n'),
        ('{"de": 1, "en": "a"}\n{"de":2}\n', ["en=de"], '{"de": "A", "en": "a"}\n{"de":2}\n'),
        ('{"en": "a", "x": "b"}', ["en=de", "x=de2", "x"],
         '{"en": "a", "x": "B", "de": "A", "de2": "B"}'),
        ('{"en": ["a"], "x": 1 }', ["en=de"], '{"en": ["a"], "x": 1, "de": ["A"] }'),
        ('{"en": [], "x": "b"}', ["en=x"], '{"en": [], "x": "b"}'),
    ],
)  # fmt: skip
def test_keys_are_translated(source: str, columns: list[str], rendered: str) -> None:
    document = read_jsonl(source.encode(), columns)
    if not any("=" in column for column in columns):
        assert document.render(document.segments) == source.encode()
    assert shouted(document) == rendered


def test_a_tsv_of_one_column_may_have_commas() -> None:
    data = b"en\nHello, world. Tom; now\nBye\n"
    document = read_document("a.tsv", data, ["en=de"])
    assert [segment.text for segment in document.segments] == ["Hello, world. Tom; now", "Bye"]
    assert document.render(document.segments).startswith(b"en\tde\nHello, world. Tom; now\tHello")


def test_each_line_of_a_cell_is_a_segment() -> None:
    assert texts(read_csv(b'en\n"One\r\ntwo"\n', ["en"])) == ["One", "two"]
    assert texts(read_jsonl(b'{"en": ["One\\ntwo", "x"]}', ["en"])) == ["One", "two", "x"]


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (read_csv, b"", 'has no column "en": it has none'),
        (read_csv, b"id,de\n", 'has no column "en": it has "id", "de"'),
        (read_csv, b"id;de\n", 'has no column "en": it has "id", "de"'),
        (
            read_csv,
            b"".join(b"c%d," % n for n in range(50)),
            r'has no column "en": it has ("c\d+", ){20}\.\.\.',
        ),
        (read_csv, b"en\n\xfc\n", "is not valid UTF-8"),
        (partial(read_csv, columns=["en=de"]), b"en\na\nb,c\n", "has 2 cells in row 3 and 1 names"),
        (partial(read_csv, columns=["en="]), b"en\na\n", '"en=" names no column for the trans'),
        (partial(read_csv, columns=["en=id"]), b"id,en,id\n1,a,b\n", 'several columns "id"'),
        (read_csv, b"id,en,en\n1,a,b\n", 'has several columns "en": give them other names'),
        (
            partial(read_csv, columns=["en=de", "id=de"]),
            b"id,en\n1,a\n",
            '"de": two columns cannot be translated to one',
        ),
        (
            partial(read_jsonl, columns=["en", "id=en"]),
            b'{"en": "a", "id": "b"}\n',
            '"en": two columns cannot be translated to one',
        ),
        (read_jsonl, b"", 'has no column "en": it has none'),
        (read_jsonl, b'{"a": 1}\n{"b": 2}\n', 'has no column "en": it has "a", "b"'),
        (read_jsonl, b'{"en": "a"}\n[1]\n', "line 2 is no JSON object"),
        (read_jsonl, b'{"en": "a"', "line 1 is no JSON object"),
        (read_jsonl, b'{"en": "a",}', "line 1 is no JSON object"),
        (read_jsonl, b'{"en": "a"} x', "line 1 is no JSON object"),
        (read_jsonl, b"\xff", "is not valid UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused(read, data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read(data) if isinstance(read, partial) else read(data, ["en"])


NONE = '{} of {} rows have no text in "en" to translate'
FILLED = '{} of {} rows have a text in "{}": it is replaced'
ROWS_OF_JSON = b"""{"en": "a", "de": [ ]}
{"en": 5}
{"de": "x"}
{"en": ["b"], "de": "y"}
{"en": " ", "de": "z"}
"""
ROWS_OF_CSV = b"en;de\na;x\n;x\nb;\n\nc;y\n"
LONG = "1 of 2 rows have more cells than names: put a text with ',' in it in quotation marks"

UNCLOSED = (
    "1 of 3 rows have a cell that begins with a quotation mark and does not end with one: it is "
    "taken as text"
)


@pytest.mark.parametrize(
    ("read", "data", "columns", "remarks"),
    [
        (read_jsonl, ROWS_OF_JSON, "en", [NONE.format(3, 5)]),
        (read_jsonl, ROWS_OF_JSON, "en=de", [NONE.format(3, 5), FILLED.format(1, 5, "de")]),
        (read_jsonl, ROWS_OF_JSON, "en=de en=fr", [NONE.format(3, 5), FILLED.format(1, 5, "de")]),
        (read_jsonl, b'{"en": "a"}', "en=de", []),
        (read_csv, ROWS_OF_CSV, "en", [NONE.format(1, 4)]),
        (read_csv, ROWS_OF_CSV, "en=de", [NONE.format(1, 4), FILLED.format(2, 4, "de")]),
        (read_csv, ROWS_OF_CSV, "en=fr en=it", [NONE.format(1, 4)]),
        (read_csv, b"a,en\n1,b\n2\n3\n4,c\n", "en", [NONE.format(2, 4)]),
        (read_csv, b"a,en\n1,b,\n2,c, d\n", "en", [LONG]),
        (read_csv, b'a,en\n1,"b\n2,c\n3,"d"\n', "en", [UNCLOSED]),
    ],
)
def test_what_a_user_may_not_expect_is_remarked(
    read, data: bytes, columns: str, remarks: list[str]
) -> None:
    assert read(data, columns.split()).remarks == remarks


def test_nothing_replaces_a_text_by_nothing() -> None:
    for read, data in ((read_jsonl, b'{"en": "", "de": "kept"}'), (read_csv, b"en,de\n,kept\n")):
        document = read(data, ["en=de"])
        assert document.render(document.segments) == data


@pytest.mark.slow
def test_short_rows_of_a_wide_table_are_soon_read() -> None:
    table = b"en" + b",x" * 60_000 + b"\na" * 60_000
    check_hostile(partial(read_csv, columns=["en"]), table)


@pytest.mark.parametrize("columns", [["en"], ["en=de"]])
def test_any_input_keeps_its_bytes(columns: list[str]) -> None:
    keeps = columns == ["en"]
    fuzz(partial(read_csv, columns=columns), ROWS, CSV_BITS, keeps, start="id,en,x\n")
    fuzz(partial(read_jsonl, columns=columns), RECORDS, JSON_BITS, keeps, start='{"en": "a"}\n')


@pytest.mark.parametrize(
    "unit", ['"', "a,", 'a""', '"a,', "\n", "a\n", '"\n', ' "', 'a,"x""', '""', ",", "<a", "\0"]
)
def test_hostile_tables_end_soon(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    check_hostile(partial(read_csv, columns=["en=de"]), f"en\n{text}".encode())
    check_hostile(partial(read_csv, columns=["en"]), text.encode())


@pytest.mark.parametrize(
    "unit", ["[", '{"a":', '{"en":"a"}\n', '{"en":[', '"', "\\", "9", "{", " ", ",", '"a",', "<a"]
)
def test_hostile_records_end_soon(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    for data in (text, f'{{"en":{text}', f'{{"en":"{text}"}}', f'{{"en":[{text}"a"]}}'):
        check_hostile(partial(read_jsonl, columns=["en"]), data.encode())


def test_many_columns_of_a_wide_table_are_soon_read() -> None:
    names = [f"n{i}" for i in range(200)]
    table = "," * 100_000 + ",".join(names) + "\n1\n"
    check_hostile(partial(read_csv, columns=names), table.encode())


@pytest.mark.parametrize("depth", range(900, 1000))
def test_deep_lists_are_read_or_refused(depth: int) -> None:
    record = '{"a": ' + "[" * depth + "]" * depth + ', "b": "Hello"}'
    try:
        document = read_jsonl(record.encode(), ["a", "b"])
    except DocumentError:
        return
    assert document.segments[0].text == "Hello"
