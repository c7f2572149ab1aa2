"""scripts/bundled_model/ding.py: a dictionary's entries as sentences and phrases."""

from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import load_script

ENTRIES = """\
# Version :: 1.9
Bank {f} [fin.] | Banken {pl} | Ich gehe zur Bank. :: bank | banks | I’m going to the bank.
Apfel {m} :: apple
Gartenzaun {m} :: garden fence
Rotbauchadler {m} [ornith.] | Der Adler frisst. :: garden apple | The eagle eats.
jdn. täuschen; jdn. bluffen {vt} | täuschend | er/sie rät :: to bluff sb. | bluffing | he/she bluffs
Sessel {m} [Ös., Schw.]; Stuhl {m} :: garden chair
Ufer {n} :: bank; garden bank
Das kostet viel / wenig. :: It costs a lot / little.
Er (der Gast) hat Hunger/Durst. :: He is hungry/thirsty.
"""
MORE = """\
Gartenzaun {m} :: the garden fence
Alter {m} :: elder
kein Trennzeichen
Ich glaube es. :: I think so.
"""


@pytest.fixture
def ding(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "ding")


@pytest.fixture
def known(ding: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A phrasebook in which few words are common."""
    words = "bank banks garden fence chair apple the a an to bluff somebody he bluffs"
    load = lambda split, parts: [(words, "")] * 2 if parts == ("situations",) else []  # noqa: E731
    monkeypatch.setattr(ding.phrasebook, "load", load)
    monkeypatch.setattr(ding, "COMMON", 2)


def run(ding: ModuleType, folder: Path, text: str) -> list[tuple[str, str, str]]:
    (folder / "de-en").write_text(text, "utf-8")
    assert ding.main([str(folder / "de-en"), "--output", str(folder / "out")]) == 0
    columns = [(folder / f"out.{name}").read_text("utf-8") for name in ("domain", "en", "de")]
    return list(zip(*(column.splitlines() for column in columns), strict=True))


@pytest.mark.usefixtures("known")
def test_entries_become_sentences_and_phrases(ding: ModuleType, tmp_path: Path) -> None:
    rows = run(ding, tmp_path, ENTRIES + MORE)
    assert [row[1:] for row in rows if row[0] == "ding-sentences"] == [
        ("I'm going to the bank.", "Ich gehe zur Bank."),
        ("The eagle eats.", "Der Adler frisst."),
        ("He is hungry.", "Er hat Hunger."),
        ("I think so.", "Ich glaube es."),
    ]
    assert [row[1:] for row in rows if row[0] == "ding-phrases"] == [
        ("banks", "Banken"),
        ("the apple", "der Apfel"),
        ("the garden fence", "der Gartenzaun"),
        ("to bluff somebody", "jemanden täuschen"),
        ("he bluffs", "er rät"),
        ("the garden chair", "der Stuhl"),
        ("the garden bank", "das Ufer"),
    ]


@pytest.mark.usefixtures("known")
def test_a_word_with_two_translations_is_left_out(ding: ModuleType, tmp_path: Path) -> None:
    """ "the bank" may be a Bank or an Ufer."""
    rows = run(ding, tmp_path, "Bank {f} :: bank\nX {n} :: garden\nUfer {n} :: bank\n")
    assert ("ding-phrases", "the garden", "das X") in rows
    assert not any("bank" in english for _, english, _ in rows)


def test_what_is_no_dictionary_is_told_of(
    ding: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "de-en"
    file.write_text("nothing\n")
    assert ding.main([str(file), "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"ding: error: {file}: no entry GERMAN :: ENGLISH\n"
    assert [path.name for path in tmp_path.iterdir()] == ["de-en"]
