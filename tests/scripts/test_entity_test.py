"""The check of entities in translations, with given translations; and a run with a small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from script_helpers import load_script

from mt.data.phrasebook import entities
from mt.data.phrasebook.entities import Entity, Example
from mt.data.phrasebook.entity_times import clock, date
from mt.data.phrasebook.entity_values import number

PRICE = ("1.250,50 $", "1250,50 $", "1.250,50 Dollar", "1.250,50$")
PERCENT = ("12 %", "12%", "12 Prozent")
URL = "https://example.de/shop?id=7"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load_script(monkeypatch, "entity_test")


@pytest.mark.parametrize(
    ("forms", "translation"),
    [
        (("Ravi", "Ravis"), "Das ist Ravis Buch."),
        (PRICE, "Es kostet 1.250,50\u00a0$."),
        (PRICE, "Es kostet 1250,50 $ im Monat."),
        (PERCENT, "Um 12\u202f% gestiegen"),
        (PERCENT, "12% mehr"),
        (date(3, 3, "1987"), "Am 03.03.1987 geboren"),
        (date(3, 3), "Bis zum 3. März."),
        (clock(8, 15), "Um 8.15 Uhr geht es los."),
        (clock(15, 0, halves=True), "Um 3 Uhr nachmittags."),
        (clock(8, 0, halves=True), "Um 8 Uhr morgens."),
        (("3",), "Von Gleis 3."),
        (("B17",), "Zum Gate B17, bitte."),
        ((URL,), f"Siehe {URL}."),
        (("www.example.de",), "Besuchen Sie www.example.de!"),
        (("+49 30 123456",), "Tel.: +49 30 123456"),
        (("AB-12",), "Das AB-12-Modell"),
        (("😀😀",), "Danke😀😀"),
        (("東京",), "Das heißt „東京“."),
        (("5 °C", "5°C"), "Es sind 5 °C."),
        (("-5 °C", "minus 5 °C"), "Bei minus 5 °C"),
        (("C:\\Data\\a.txt",), "In C:\\Data\\a.txt."),
        (("3.", "dritten"), "im 3. Stock"),
    ],
)
def test_a_right_form_is_found(script: Any, forms: tuple[str, ...], translation: str) -> None:
    assert script.missing([Entity("", "", forms, True)], translation) == set()


@pytest.mark.parametrize(
    ("forms", "translation"),
    [
        (("Ravi", "Ravis"), "Das ist Ravin."),
        (PRICE, "Es kostet $1,250.50."),
        (PRICE, "Es kostet 250,50 $."),
        (number("12"), "Es sind 1,12 oder 12,5 oder 112."),
        (number("12"), "Es sind 12.000."),
        (number("1,250"), "Es sind 1.250.000."),
        (PERCENT, "Um 112 % gestiegen"),
        (date(3, 3, "1987"), "Am 13. März 1987"),
        (date(3, 3, "1987"), "Am 3. März 198"),
        (clock(8, 0, halves=True), "Um 8 Uhr abends."),
        (clock(8, 0, halves=True), "Um 18 Uhr."),
        (clock(8, 15), "Um 18:15 Uhr"),
        (("5 °C", "5°C"), "Es sind -5 °C."),
        (("5 °C", "5°C"), "Es sind minus 5 °C."),
        (("B17",), "Zum Gate B1 7"),
        ((URL,), f"Siehe {URL}8."),
        (("www.example.de",), "Siehe www.example.de/shop."),
        (("a@b.de",), "An aa@b.de"),
        (("a.tar",), "In a.tar.gz"),
        (("😀",), "Danke 😀😀"),
        (("12",), ""),
    ],
)
def test_a_wrong_form_is_not_right(script: Any, forms: tuple[str, ...], translation: str) -> None:
    assert script.missing([Entity("", "", forms, True)], translation) == {0}


@pytest.mark.parametrize(
    ("values", "translation", "wrong"),
    [
        ([("12",), ("12",)], "12 und 12", set()),
        ([("12",), ("12",)], "12 und 13", {1}),
        ([("12",), PERCENT], "12 % von 12", set()),
        ([("12",), PERCENT], "12 %", {0}),
        ([("Anna",), ("Anna Kaya",)], "Anna Kaya und Anna", set()),
        ([("Anna",), ("Anna Kaya",)], "Anna Kaya", {0}),
    ],
)
def test_each_entity_needs_its_own_place(
    script: Any, values: list[tuple[str, ...]], translation: str, wrong: set[int]
) -> None:
    assert script.missing([Entity("", "", v, True) for v in values], translation) == wrong


def test_the_references_are_right(script: Any) -> None:
    for split in ("test", "validation"):
        for example in entities.examples(split, 300):
            assert script.missing(example.entities, example.german) == set(), example


def test_the_table_counts_entities(script: Any) -> None:
    examples = [
        Example("Ask Ravi at 8.", "", (Entity("name", "Ravi", ("Ravi",), True),), True),
        Example(
            "On Monday, Jun", "",
            (Entity("day", "Monday", ("Montag",), False), Entity("name", "Jun", ("Jun",), True)),
            False,
        ),
    ]  # fmt: skip
    results = [script.check(e, t) for e, t in zip(examples, ["Ravi?", "Montag, Jan"], strict=True)]
    rows = {
        cells[0]: cells[1:]
        for line in script.table(results).splitlines()
        if (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }
    assert rows["name"] == ["2", "1", "50.0"]
    assert rows["day"] == ["1", "1", "100.0"]
    assert rows["all"] == ["3", "2", "66.7"]
    assert rows["all, values that training lacks"] == ["2", "1", "50.0"]
    assert rows["all, sentences that training has with other values"] == ["1", "1", "100.0"]
    assert rows["all, sentences that training lacks"] == ["2", "1", "50.0"]
    assert script.failures(results) == "On Monday, Jun\n  Montag, Jan\n  lacks Jun"


def test_a_run_writes_the_sentences(script: Any, tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "entities.json"
    assert script.main(["mt/everyday", "--count", "2", "--output", str(output)]) == 0
    [results] = json.loads(output.read_text("utf-8"))["results"].values()
    assert len(results) == 2
    assert {"source", "reference", "translation", "seen", "entities"} == set(results[0])
    assert "| all " in capsys.readouterr().out
    arguments = ["mt/everyday", "--count", "2", "--split", "validation", "--output", str(output)]
    assert script.main(arguments) == 0
    [others] = json.loads(output.read_text("utf-8"))["results"].values()
    assert {row["source"] for row in others}.isdisjoint(row["source"] for row in results)


def test_mistakes_of_the_user_are_one_line(script: Any, capsys: Any) -> None:
    assert script.main(["mt/everyday", "--count", "0"]) == 2
    assert script.main(["no/such/model/here", "--output", "no/such/folder/x.json"]) == 2
    assert script.main(["no/such/model/here"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": error: ")[0] for line in lines] == ["entity_test"] * 3
    assert lines[1].endswith("x.json: there is no folder " + str(Path("no/such/folder").resolve()))
