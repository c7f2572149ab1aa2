"""Glossaries: what they find in a text, which forms a term may have, and the files."""

import time
from pathlib import Path

import pytest

from mt.inference.glossary import MOST_FORMS, Glossary

LANGUAGES = ("en", "de")


@pytest.mark.parametrize(
    ("entries", "text", "expected"),
    [
        ([("contract", ["Vertrag"])], "My contract ended.", ["contract"]),
        ([("contract", ["Vertrag"])], "Contracts and contracting", ["Contracts"]),
        ([("contract", ["Vertrag"])], "CONTRACT", ["CONTRACT"]),
        ([("box", ["Kiste"])], "two boxes", ["boxes"]),
        ([("power supply", ["Netzteil"])], "Power supplies", ["Power supplies"]),
        ([("Apple", ["Apple"])], "an apple from Apple", ["Apple"]),
        ([("red card", ["rote Karte"]), ("card", ["Karte"])], "a red  card, a card",
         ["red  card", "card"]),
        ([("card", ["Karte"]), ("red card", ["rote Karte"])], "discard the cards", ["cards"]),
        ([("e-mail", ["E-Mail"])], "by e-mail.", ["e-mail"]),
        ([("is", ["ist"])], "This is his.", ["is"]),
        ([("apples", ["x"]), ("Apple", ["y"])], "Apples, Apple", ["Apples", "Apple"]),
        ([("U.S.", ["x"])], "the U.S. or U. S. A.", ["U.S."]),
        ([("A B", ["x"])], "A  B, A, B", ["A  B"]),
        ([("red", ["rot"]), ("red card game", ["x"])], "red card, red cards games", ["red", "red"]),
        ([("a b c", ["x"]), ("b", ["y"])], "a b d", ["b"]),
        ([("red card", ["x"]), ("Card Game", ["y"])], "A red Card Game", ["red Card"]),
        ([("Card", ["x"]), ("card game", ["y"])], "the Card game, a Card", ["Card game", "Card"]),
        ([("men's room", ["x"]), ("the “Cloud”", ["y"])], "a men’s room in the \"Cloud\"",
         ["men’s room", 'the "Cloud"']),
        ([("O’Brien", ["x"])], "an O'Brien", ["O'Brien"]),
        ([], "nothing", []),
    ],
)  # fmt: skip
def test_terms_of_a_text(
    entries: list[tuple[str, list[str]]], text: str, expected: list[str]
) -> None:
    assert [text[m.start : m.end] for m in Glossary(entries).find(text)] == expected


def test_a_term_is_preferred_to_the_singular_of_another() -> None:
    glossary = Glossary([("Apple", ["Apple"]), ("apples", ["Äpfel"])])
    assert [match.forms[0] for match in glossary.find("Apples of Apple")] == ["Äpfel", "Apple"]


def test_no_s_comes_after_an_s() -> None:
    forms = Glossary([("hello", ["Servus"])]).forms(("Servus",))
    assert "Servuss" not in forms
    assert "Servuses" in forms


def test_a_glossary_without_inflection_finds_and_allows_what_is_written() -> None:
    glossary = Glossary([("contract", ["der Vertrag"])], inflect=False)
    assert glossary.find("contracts") == []
    (match,) = glossary.find("the contract")
    assert match.forms == ("der Vertrag", "Der Vertrag")


@pytest.mark.parametrize(
    ("target", "allowed", "other"),
    [
        ("Vertrag", ["Vertrag", "Vertrages", "Vertrags", "Vertrage"], ["vertrag"]),
        ("Rechnung", ["Rechnungen"], ["Rechnungs-"]),
        ("rote Karte", ["roten Karte", "rote Karten", "Rote Karte", "roter Karte"], ["rot Karte"]),
        ("kündigen", ["kündigen", "Kündigen"], []),
        ("BMW", ["BMW"], ["BMWs"]),
        ("C++", ["C++"], ["C++s"]),
    ],
)
def test_forms(target: str, allowed: list[str], other: list[str]) -> None:
    forms = Glossary([]).forms((target,))
    assert forms[0] == target
    assert set(allowed) <= set(forms)
    assert not set(other) & set(forms)


def test_entries_of_one_term_are_alternatives() -> None:
    glossary = Glossary([("bill", ["Rechnung"]), ("bill", ["Gesetz", "Rechnung"])])
    assert glossary.entries["bill"].targets == ("Rechnung", "Gesetz")
    assert len(glossary) == 1


TBX = """<?xml version="1.0"?><martif type="TBX"><text><body>
<termEntry><langSet xml:lang="en"><tig><term>invoice</term></tig></langSet>
<langSet xml:lang="de-DE"><tig><term>Rechnung</term></tig><tig><term>Faktura</term></tig></langSet>
</termEntry><termEntry><langSet xml:lang="en"><tig><term>only here</term></tig></langSet>
</termEntry></body></text></martif>"""
TBX3 = """<tbx xmlns="urn:iso:std:iso:30042:ed-2"><text><body><conceptEntry id="c1">
<langSec xml:lang="en"><termSec><term>house</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Haus</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "bill\tRechnung|Gesetz\n\n# a remark\ntax\tSteuer\r\n",
         {"bill": ("Rechnung", "Gesetz"), "tax": ("Steuer",)}),
        ("a.txt", "\ufeffbill\tRechnung", {"bill": ("Rechnung",)}),
        ("a.tsv", "#MeToo\tMeToo-Bewegung\n#remark\n#\n# one\ttwo\nbill\tRechnung\u2028neu\n",
         {"#MeToo": ("MeToo-Bewegung",), "bill": ("Rechnung neu",)}),
        ("a.tsv", "# of the house\nEnglish\tGerman\nbill\tRechnung\nen\tde\n",
         {"bill": ("Rechnung",), "en": ("de",)}),
        ("a.tsv", "English\tEnglisch\n", {"English": ("Englisch",)}),
        ("a.csv", 'bill,Rechnung\n"a, b","c, d"\n', {"bill": ("Rechnung",), "a, b": ("c, d",)}),
        ("a.csv", "bill,Rechnung,en,de\nbill,facture,en,fr\ntax,Steuer,EN-US,DE\n",
         {"bill": ("Rechnung",), "tax": ("Steuer",)}),
        ("a.csv", "Source,Target\nbill,Rechnung\n", {"bill": ("Rechnung",)}),
        ("a.csv", '\nSource;Target\nbill;Rechnung\n"a, b";c\n',
         {"bill": ("Rechnung",), "a, b": ("c",)}),
        ("a.csv", '"a, b";c\n', {"a, b": ("c",)}),
        ("a.csv", "Dear Sir, dear Madam;Hallo\nbill;Rechnung\n",
         {"Dear Sir, dear Madam": ("Hallo",), "bill": ("Rechnung",)}),
        ("a.csv", "Source;Target;;\nbill;Rechnung;;\n", {"bill": ("Rechnung",)}),
        ("a.tsv", "bill\tRechnung\t \t\n", {"bill": ("Rechnung",)}),
        ("a.csv", "en,de\nbill,Rechnung\n", {"bill": ("Rechnung",)}),
        ("a.tbx", TBX, {"invoice": ("Rechnung", "Faktura")}),
        ("a.tbx", TBX3, {"house": ("Haus",)}),
    ],
)  # fmt: skip
def test_files(
    tmp_path: Path, name: str, content: str, expected: dict[str, tuple[str, ...]]
) -> None:
    (tmp_path / name).write_text(content, "utf-8", newline="")
    glossary = Glossary.load(tmp_path / name, LANGUAGES)
    assert {e.source: e.targets for e in glossary.entries.values()} == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"one\tein\ntwo zwei\n", "a.tsv: line 2: must be a term, a tab"),
        ("a.tsv", b"one\tein\tun\n", "line 1: has 3 cells, but must be a term, a tab"),
        ("a.tsv", b"one\t |\n", "line 1"),
        ("a.tsv", b"\xff\xfe\x00", "a.tsv: not UTF-8 text"),
        ("a.csv", b"one\n", "row 1: must be a term, a comma"),
        ("a.csv", b"one;eins;Zahl\n", "row 1: has 3 cells, but must be a term, a comma"),
        ("a.csv", b"one,eins,Zahl\n", "row 1: has 3 cells, but must be a term, a comma"),
        ("a.csv", b"one, big;eins\n", "commas and semicolons both make two columns"),
        ("a.tsv", b"German\tEnglish\nein\tone\n", "German, English: the source must come first"),
        ("a.csv", b"de,en\nein,one\n", "de, en: the source must come first"),
        ("a.csv", b'"one,two\n', "not comma-separated values"),
        ("a.tbx", b"<tbx>", "a.tbx: not XML"),
        ("a.tbx", b"", "not XML"),
        ("a.tbx", b'<!DOCTYPE a [<!ENTITY x "' + b"y" * 1000 + b'"><!ENTITY z "' + b"&x;" * 9000
         + b'"><!ENTITY w "' + b"&z;" * 9000 + b'">]><a>&w;</a>', "not XML"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Glossary.load(tmp_path / name, LANGUAGES)


def test_a_blank_term_is_refused() -> None:
    for entries in ([("x", [])], [("x", [" "])], {"x": ""}):
        with pytest.raises(ValueError, match="x: a term must have a translation"):
            Glossary(entries)
    with pytest.raises(ValueError, match="a term to be translated is blank"):
        Glossary([("", ["x"])])


def test_entries_may_be_a_dictionary_and_a_translation_a_string() -> None:
    pairs = [("house", ["Haus"]), ("dog", ["Hund", "Köter"])]
    assert Glossary({"house": "Haus", "dog": ["Hund", "Köter"]}).entries == Glossary(pairs).entries
    assert Glossary([("house", "Haus")]).entries["house"].targets == ("Haus",)


def test_a_very_long_term_is_refused_and_few_forms_are_made_of_many_targets() -> None:
    for entry in (("x" * 501, ["y"]), ("x", ["y", "z" * 501])):
        with pytest.raises(ValueError, match=r"x: a term has at most 500 characters|xxx\.\.\.: a"):
            Glossary([entry])
    many = tuple(f"Wort{i}" for i in range(20_000))
    start = time.process_time()
    assert Glossary([("word", many)]).forms(many) == many[:MOST_FORMS]
    assert time.process_time() - start < 0.5


def test_long_terms_that_begin_alike_take_no_time() -> None:
    glossary = Glossary([("a " * n + "b", ["x"]) for n in range(1, 138)])
    start = time.process_time()
    assert glossary.find("a " * 10_000) == []
    assert time.process_time() - start < 1.5
