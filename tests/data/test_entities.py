"""Sentences with values: their forms in German, the splits, other pairs made of given ones."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from itertools import combinations, islice

import pytest

from mt.data import phrasebook
from mt.data.phrasebook import entities, entity_codes, variants
from mt.data.phrasebook.entity_times import clock, date, ordinal
from mt.data.phrasebook.entity_values import Values, number, quantity

SPLITS = phrasebook.SPLITS
KINDS = sorted(
    {
        kind
        for split in SPLITS
        for carrier in entities.carriers(split)
        for kind in entities.SLOT.findall(carrier[0])
    }
)

# --- Values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("7", ("7", "sieben")),
        ("13", ("13",)),
        ("1250", ("1250", "1.250")),
        ("1,250", ("1.250", "1 250", "1250")),
        ("1,250.50", ("1.250,50", "1 250,50", "1250,50")),
        ("1,250,500", ("1.250.500", "1 250 500")),
        ("0.75", ("0,75",)),
    ],
)
def test_a_number_in_german(english: str, german: tuple[str, ...]) -> None:
    assert number(english) == german


@pytest.mark.parametrize(
    ("time", "usual", "right", "wrong"),
    [
        ((8, 15), "8:15 Uhr", ["08:15", "8.15 Uhr", "8 Uhr 15"], ["8.15", "20:15 Uhr"]),
        ((8, 0), "8 Uhr", ["8:00 Uhr", "8 Uhr morgens", "acht Uhr"], ["8 Uhr abends", "8"]),
        ((15, 0), "15 Uhr", ["15:00 Uhr", "3 Uhr nachmittags"], ["3 Uhr", "3 Uhr morgens"]),
        ((20, 5), "20:05 Uhr", ["8:05 Uhr abends", "20.05 Uhr"], ["8:05 Uhr", "20:5 Uhr"]),
        ((0, 0), "0 Uhr", ["Mitternacht", "00:00 Uhr", "12 Uhr nachts"], ["12 Uhr mittags"]),
        ((12, 0), "12 Uhr", ["12:00 Uhr", "12 Uhr mittags"], ["0 Uhr", "12 Uhr nachts"]),
    ],
)
def test_a_time_in_german(
    time: tuple[int, int], usual: str, right: list[str], wrong: list[str]
) -> None:
    forms = clock(*time, halves=True)
    assert forms[0] == usual
    assert set(right) <= set(forms)
    assert not set(wrong) & set(forms)


def test_a_date_in_german() -> None:
    assert date(3, 3, "1987")[0] == "3. März 1987"
    assert {"3.3.1987", "03.03.1987"} <= set(date(3, 3, "1987"))
    assert date(24, 12)[0] == "24. Dezember"
    assert "24.12." in date(24, 12)


def test_a_unit_may_be_spelt_out() -> None:
    assert quantity("2.5", ("kg", "kg", "Kilo")).german == ("2,5 kg", "2,5 Kilo")


@pytest.mark.parametrize(
    ("value", "english"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (12, "12th"), (22, "22nd")]
)
def test_an_english_ordinal(value: int, english: str) -> None:
    assert ordinal(value) == english


@pytest.mark.parametrize(
    ("kind", "english", "usual", "also"),
    [
        ("price", r"\$(\d+)\.50", r"\g<1>,50 $", r"\g<1>,50 Dollar"),
        ("price", r"€([2-9]),(\d\d\d)", r"\1.\2 €", r"\1\2 Euro"),
        ("price", r"€(\d\d\d) million", r"\1 Millionen Euro", r"\1 Mio. €"),
        ("price", r"CHF (\d\d\d)", r"\1 CHF", r"CHF \1"),
        ("price", r"(\d\d\d) cents", r"\1 Cent", r"\1 Cent"),
        ("percent", r"(\d\d)%", r"\1 %", r"\1%"),
        ("percent", r"(\d\d)\.(\d) percent", r"\1,\2 Prozent", r"\1,\2 %"),
        ("temperature", r"(\d\d)°C", r"\1 °C", r"\1 Grad"),
        ("temperature", r"-(\d\d) °C", r"-\1 °C", r"minus \1 Grad"),
        ("temperature", r"(\d\d) degrees Fahrenheit", r"\1 Grad Fahrenheit", r"\1 °F"),
        ("big", r"(\d\d\d) billion", r"\1 Milliarden", r"\1 Mrd."),
        ("date", r"July (\d\d), (\d{4})", r"\1. Juli \2", r"\1.7.\2"),
        ("date", r"the (\d\d)th of May (\d{4})", r"\1. Mai \2", r"\1.05.\2"),
        ("daymonth", r"(\d\d)th March", r"\1. März", r"\1.3."),
        ("weekdate", r"Monday, (\d\d) March", r"Montag, dem \1. März", r"Montag, den \1. März"),
        ("numdate", r"(\d\d)/03/(\d{4})", r"\1.03.\2", r"\1. März \2"),
        ("numdate", r"3/(\d\d)/(\d{4})", r"\1.03.\2", r"\1.3.\2"),
        ("iso", r"(\d{4})-11-(\d\d)", r"\1-11-\2", r"\2. November \1"),
        ("decade", r"19(\d)0s", r"19\g<1>0er-Jahren", r"\g<1>0er-Jahren"),
        ("hours", r"9 am to 5 pm", r"9 bis 17 Uhr", r"9:00 Uhr bis 17:00 Uhr"),
        ("hours", r"8:30 to 16:00", r"8:30 bis 16 Uhr", r"8:30–16 Uhr"),
        ("oclock", r"1 o'clock", r"1 Uhr", r"ein Uhr"),
        ("durationdat", r"(\d\d) days", r"\1 Tagen", r"\1 Tagen"),
        ("duration", r"3 hours", r"3 Stunden", r"drei Stunden"),
        ("ordinal", r"3rd", r"3.", r"dritten"),
        ("floor", r"ground floor", r"Erdgeschoss", r"EG"),
        ("floor", r"first floor", r"ersten Stock", r"1. Etage"),
        ("titled", r"Mr\.? (\w+)", r"Herr \1", r"Herr \1"),
        ("titledobj", r"Mr\.? (\w+)", r"Herrn \1", r"Herrn \1"),
        ("titledobj", r"Mrs (\w+)", r"Frau \1", r"Frau \1"),
        ("city", r"Cologne", r"Köln", r"Kölner"),
        ("score", r"(\d)-(\d)", r"\1:\2", r"\1 : \2"),
        ("pages", r"(\d+)-(\d+)", r"\1–\2", r"\1 bis \2"),
        ("chemical", r"([A-Z]\w*)2", r"\g<1>2", r"\1₂"),
        ("weekdays", r"Mondays", r"Montags", r"jeden Montag"),
        ("length", r"(\d\d) miles", r"\1 Meilen", r"\1 Meilen"),
    ],
)
def test_a_value_in_german(kind: str, english: str, usual: str, also: str) -> None:
    values = Values(random.Random(1), "train")
    drawn = (getattr(values, kind)() for _ in range(20_000))
    value = next(value for value in drawn if re.fullmatch(english, value.english))
    assert value.german[0] == re.sub(english, usual, value.english)
    if "₂" not in also or value.german[1].count("2") == 0:
        assert re.sub(english, also, value.english) in value.german


@pytest.mark.parametrize(
    "kind",
    ["email", "url", "file", "path", "code", "order", "phone", "iban", "ip", "plate", "foreign"],
)
def test_a_code_stays_as_it_is(kind: str) -> None:
    values = Values(random.Random(1), "test")
    for _ in range(100):
        value = getattr(values, kind)()
        assert value.german == (value.english,)
        assert entity_codes.split_of(value.english) == "test"


def test_names_of_the_splits_differ_to_the_last_word() -> None:
    drawn = {}
    for split in SPLITS:
        values = Values(random.Random(1), split)
        full = (values.full().english.replace("-", " ") for _ in range(3000))
        # An initial, and the small words and syllables of many names, belong to nobody.
        drawn[split] = {word for name in full for word in name.split() if len(word) > 4}
    assert not drawn["train"] & drawn["test"]
    assert not drawn["train"] & drawn["validation"]
    assert not drawn["validation"] & drawn["test"]


# --- Carriers -------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["carriers", "openings", "closings"])
def test_both_sides_of_a_carrier_have_the_same_slots(table: str) -> None:
    for english, german, *split in entities.rows(table):
        slots = [set(re.findall(r"\{.*?\}", side)) for side in (english, german)]
        assert slots[0] == slots[1], english
        assert not set(split) - {"validation", "test"}
        assert '"' not in german  # Germans write „“


def test_carriers_are_many_and_a_tenth_is_for_tests() -> None:
    counts = {split: len(entities.carriers(split)) for split in SPLITS}
    assert sum(counts.values()) >= 400
    assert 0.08 < counts["test"] / sum(counts.values()) < 0.12
    assert counts["validation"] >= 15


def test_no_carrier_is_in_two_splits() -> None:
    for one, other in combinations(SPLITS, 2):
        assert not set(entities.carriers(one)) & set(entities.carriers(other))


@pytest.mark.parametrize("kind", KINDS)
def test_every_slot_is_a_kind_of_value(kind: str) -> None:
    value = getattr(Values(random.Random(1), "test"), kind)()
    assert value.english
    assert all(value.german)


# --- Splits ---------------------------------------------------------------------------------


def test_the_splits_have_their_size_and_no_pair_twice() -> None:
    pairs = {split: entities.load(split) for split in SPLITS}
    sizes = {split: len(own) for split, own in pairs.items()}
    assert 80_000 < sizes["train"] < 90_000
    assert (sizes["validation"], sizes["test"]) == (500, 1000)
    assert {split: len(set(own)) for split, own in pairs.items()} == sizes


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_sentences_do_not_depend_on_the_hash_seed(seed: str) -> None:
    code = (
        "from mt.data.phrasebook.entities import examples;"
        "print([(e.english, e.german) for s in ('train', 'test') for e in examples(s, 300)])"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
    printed = subprocess.run(command, capture_output=True, env=environment, check=True).stdout
    here = [
        (example.english, example.german)
        for split in ("train", "test")
        for example in entities.examples(split, 300)
    ]
    assert printed.decode().strip() == str(here)


def test_half_of_the_held_out_sentences_have_carriers_of_their_own() -> None:
    examples = list(entities.examples("test", 400))
    assert sum(example.seen for example in examples) == 200
    known = [re.compile(template(english)) for english, _ in entities.carriers("train")]
    for example in examples[:200]:
        if not example.seen and len(example.english) < 60:
            assert not any(pattern.fullmatch(example.english) for pattern in known)


def template(carrier: str) -> str:
    """A regular expression for a carrier; alone, a slot would fit all."""
    literal = [re.escape(part) for part in re.split(r"\{\w+\}", carrier)]
    return r"\S+".join(literal) if any(map(str.strip, literal)) else r"(?!)"


def test_no_held_out_value_is_in_training() -> None:
    finder = entities.Finder(entities.held_out_values())
    known = [side for pair in entities.load("train") for side in pair]
    assert not [side for side in known if finder.finds(side)]
    finds = [finder.finds(example.english) for example in entities.examples("test", 200)]
    assert sum(finds) > 150  # others have short or common values only


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ask Ottilie.", True),
        ("Ottilies Buch", False),
        ("2 Baker Street 7", False),
        ("at 12 Baker Street, please", True),
        ("112 Baker Street", False),
    ],
)
def test_a_finder_finds_whole_values(text: str, expected: bool) -> None:
    assert entities.Finder(["Ottilie", "12 Baker Street", "abc"]).finds(text) == expected


def test_the_sentences_keep_their_entities() -> None:
    for example in islice(entities.examples("train"), 2000):
        for entity in example.entities:
            assert entity.english.rstrip(".") in example.english
            assert entity.german[0] in example.german


# --- Variants -------------------------------------------------------------------------------


def test_tom_and_mary_have_other_names() -> None:
    pairs = [
        ("Tom likes Mary.", "Tom mag Maria."),
        ("Tom's car is red.", "Toms Auto ist rot."),
        ("Is Tom there?", "Ist er da?"),
        ("It is late.", "Es ist spät."),
    ]
    [(english, german)] = variants.rename(pairs, 9, seed=1)
    assert re.fullmatch(r"(?!Tom\b).+ likes (?!Mary\b).+\.", english)
    assert german == english.replace("likes", "mag")
    assert variants.rename(pairs * 9, 3, seed=1) == variants.rename(pairs * 9, 3, seed=1)
    assert len(variants.rename(pairs * 9, 3, seed=1)) == 3


def test_sentences_in_a_line() -> None:
    pairs = [(f"Sentence {i}.", f"Satz {i}.") for i in range(9)] + [("a fragment", "ein Stück")]
    lines = variants.join(pairs, 20, seed=1)
    assert len(lines) == 20
    for english, german in lines:
        assert german == english.replace("Sentence", "Satz")
        assert 2 <= english.count(".") <= 4
    assert variants.join(pairs[:2], 5, seed=1) == []


@pytest.mark.parametrize(
    ("english", "german", "changed"),
    [
        ("Is Mr Weber there?", "Ist Herr Weber da?", r"Is Mr (.+) there\?"),
        ("Ask Anna Weber.", "Frag Anna Weber.", r"Ask (.+)\."),
        ("Room 214 is free.", "Zimmer 214 ist frei.", r"Room (\d{3}) is free\."),
        ("It costs $45.50.", "Es kostet 45,50 Dollar.", r"It costs \$(\d\d\.\d\d)\."),
        ("I have 1,500 books.", "Ich habe 1.500 Bücher.", r"I have (\d,\d{3}) books\."),
        ("Come on Monday.", "Komm am Montag.", r"Come on (\w+)\."),
        ("It starts at 3 pm.", "Es beginnt um 15 Uhr.", r"It starts at (.+)\."),
        ("He died on 3 March 1987.", "Er starb am 3. März 1987.", r"He died on (.+)\."),
        ("I live in Graz.", "Ich wohne in Graz.", r"I live in (.+)\."),
    ],
)
def test_an_entity_of_both_sides_changes(english: str, german: str, changed: str) -> None:
    pairs = variants.substitute([(english, german)], 5, seed=1)
    assert len(pairs) == 5
    for new_english, new_german in pairs:
        match = re.fullmatch(changed, new_english)
        assert match, new_english
        assert (new_english, new_german) != (english, german)
        assert not set(re.findall(r"Weber|Anna|214|Graz", german)) & set(new_german.split())


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("Anna's brother is 30 years old.", "Annas Bruder ist dreißig Jahre alt."),
        ("I have 1 book.", "Ich habe 1 Buch."),
        ("We have no time on Mondays.", "Montags haben wir keine Zeit."),
        ("It is 3 pm.", "Es ist drei Uhr nachmittags."),
        ("a 30-year-old man", "ein 30-jähriger Mann"),
        ("Call 911!", "Rufen Sie die 112!"),
        ("He came 3rd.", "Er wurde 3."),
        ("on 3 March and 4 May", "am 3. März und am 4. Mai"),
        ("at 8:15 or 9:15", "um 8:15 Uhr oder 9:15 Uhr"),
    ],
)
def test_what_is_not_plainly_the_same_stays(english: str, german: str) -> None:
    assert variants.substitute([(english, german)], 5, seed=1) == []
