"""Expressions: the inflection of their phrases, and the sentences around them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mt.data import phrasebook
from mt.data.phrasebook import expressions, grammar
from mt.data.phrasebook.clauses import Clause
from mt.data.phrasebook.people import HE, ME, PRONOUNS, SHE, THEY, WE, YOU
from mt.data.phrasebook.verb_phrases import VerbPhrase, action
from mt.data.phrasebook.words import Pair, Person, rows

RUBBISH = ("take out the rubbish", "den Müll raus|bringen")
CAR = ("take {own} car to the garage", "{mein:n acc} Auto in die Werkstatt bringen")
REPAIR = ("have the brakes checked", "die Bremsen überprüfen lassen/lassen")
MUGGED = ("get mugged", "überfallen werden/worden")
ANKLE = ("sprain {own} ankle", "{sich:dat} den Knöchel verstauchen")
LIFT = ("give {who} a hand", "{who:dat} zur Hand gehen")
SELF = ("look after {self}", "auf {sich:acc} auf|passen")
TRY = ("try again", "es noch einmal versuchen")
LATE = ("be late", "spät dran sein")
CLOCK = Person("sie", "the clock", "die Uhr")

SENTENCES = [
    (RUBBISH, WE, "{c:past not}.", "{c:past not}.", "We did not take out the rubbish.",
     "Wir haben den Müll nicht rausgebracht."),
    (("stay up all night", "die ganze Nacht wach bleiben"), YOU, "Don't {c:base}!",
     "{c:imp not}!", "Don't stay up all night!", "Bleib nicht die ganze Nacht wach!"),
    (("view a flat", "eine Wohnung besichtigen"), YOU, "Please {c:base}.", "Bitte {c:imp}.",
     "Please view a flat.", "Bitte besichtige eine Wohnung."),
    (RUBBISH, YOU, "{c:base}!", "{c:imp}!", "Take out the rubbish!", "Bring den Müll raus!"),
    (RUBBISH, ME, "If I had known, I would have {c:participle}.",
     "Wenn ich das gewusst hätte, {c:unreal v1}.",
     "If I had known, I would have taken out the rubbish.",
     "Wenn ich das gewusst hätte, hätte ich den Müll rausgebracht."),
    (CAR, SHE, "{c:past not}.", "{c:past not}.", "She did not take her car to the garage.",
     "Sie hat ihr Auto nicht in die Werkstatt gebracht."),
    (CAR, WE, "{c:will}.", "{c:will}.", "We will take our car to the garage.",
     "Wir werden unser Auto in die Werkstatt bringen."),
    (REPAIR, HE, "{c:past}.", "{c:past}.", "He had the brakes checked.",
     "Er hat die Bremsen überprüfen lassen."),
    (MUGGED, ME, "{c:past}.", "{c:perfect}.", "I got mugged.", "Ich bin überfallen worden."),
    (MUGGED, HE, "After he had {c:participle}, he left.",
     "Nachdem {c:pluperfect vl pro}, ging er.", "After he had got mugged, he left.",
     "Nachdem er überfallen worden war, ging er."),
    (ANKLE, ME, "{c:past}.", "{c:past}.", "I sprained my ankle.",
     "Ich habe mir den Knöchel verstaucht."),
    (ANKLE, SHE, "I know that {c:past}.", "Ich weiß, dass {c:past vl}.",
     "I know that she sprained her ankle.", "Ich weiß, dass sie sich den Knöchel verstaucht hat."),
    (LIFT, ME, "{c:past}.", "{c:past}.", "I gave him a hand.", "Ich bin ihm zur Hand gegangen."),
    (SELF, HE, "{c:must}.", "{c:must}.", "He has to look after himself.",
     "Er muss auf sich aufpassen."),
    (TRY, THEY, "{c:past}.", "{c:past}.", "They tried again.",
     "Sie haben es noch einmal versucht."),
    (LATE, HE, "{c:perfect}.", "{c:perfect}.", "He has been late.", "Er ist spät dran gewesen."),
    (("stop", "stehen bleiben"), CLOCK, "Why {c:past ask}?", "Warum {c:past v1}?",
     "Why did the clock stop?", "Warum ist die Uhr stehen geblieben?"),
]  # fmt: skip


@pytest.mark.parametrize("row", SENTENCES, ids=lambda row: row[4])
def test_sentence(row: tuple[tuple[str, str], Person, str, str, str, str]) -> None:
    phrase, subject, source, target, english, german = row
    parsed = action(*phrase, "deliberate")
    slots = tuple((name, PRONOUNS[2]) for name, _ in parsed.slots)
    chosen = {"c": Clause(subject, VerbPhrase(parsed, slots))}
    assert grammar.finish(grammar.fill(source, chosen, "english"), chosen, 0) == english
    assert grammar.finish(grammar.fill(target, chosen, "german"), chosen, 1) == german


def test_not_yet() -> None:
    phrase = VerbPhrase(action(*RUBBISH, "deliberate"))
    clause = Clause(ME, phrase, Pair("", "noch"))
    assert clause.english("perfect not") == "I have not taken out the rubbish"
    assert clause.german("perfect not") == "ich habe den Müll noch nicht rausgebracht"


@pytest.mark.parametrize(
    ("german", "is_negated"),
    [
        ("Zeit haben", False),
        ("{who:dat} Geld leihen", False),
        ("gute Laune haben", False),
        ("keine Milch mehr haben", False),
        ("{sich:acc} ein bisschen hin|legen", False),
        ("es eilig haben", False),
        ("noch gelten", False),
        ("es noch einmal versuchen", False),
        ("den Müll raus|bringen", True),
        ("einen Termin vereinbaren", True),
        ("auf die Uhr schauen", True),
        ("{sich:dat} die Haare waschen", True),
        ("früh auf|stehen", True),
    ],
)
def test_what_is_not_negated_like_others(german: str, is_negated: bool) -> None:
    frame = expressions.Frame("d", "{c:past not}.", "{c:past not}.")
    assert expressions.fits(frame, "d", action("do", german, "deliberate"), None) == is_negated


def test_frames_without_a_subject_have_no_phrases_that_refer_to_it() -> None:
    frame = expressions.Frame("d", "It's time to {c:base}.", "Es ist Zeit, {c:zu}.", ())
    rng = random.Random(0)
    assert frame.clause(VerbPhrase(action(*CAR, "deliberate")), None, rng) is None
    refund = action("ask for a refund", "{mein:n acc} Geld zurück|verlangen", "deliberate")
    assert frame.clause(VerbPhrase(refund), None, rng) is None
    assert frame.clause(VerbPhrase(action(*RUBBISH, "deliberate")), None, rng) is not None


def test_several_people_have_not_one_car_each() -> None:
    frame = expressions.Frame("d", "{c:past}.", "{c:past}.", (WE, THEY))
    assert frame.clause(VerbPhrase(action(*CAR, "deliberate")), None, random.Random(0)) is None


def test_the_tables_are_well_formed() -> None:
    table = rows("expressions", 3)
    assert len(table) > 1900
    assert {kind for *_, kind in table} == {"deliberate", "luck", "event", "state"}
    happenings = rows("happenings", 5)
    assert {kind for *_, kind in happenings} == {"event", "state", "event plural", "state plural"}
    names = [row[0] for row in table] + [f"{row[0]} {row[2]}" for row in happenings]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_all_pairs() -> None:
    pairs = list(expressions.expand())
    expressions.expand.cache_clear()
    assert pairs == list(expressions.expand())
    assert len(set(pairs)) == len(pairs) > 30_000
    for english, german in pairs:
        for side in (english, german):
            assert not set("{}|/@#") & set(side), side
            assert side == " ".join(side.split()), side
            assert side[0].isupper(), side
            assert side[-1] in ".?!", side
        assert english[-1] == german[-1], (english, german)
        assert not german.startswith("Lass uns es "), german


def test_every_frame_is_used() -> None:
    table = list(expressions.phrases())
    for frame in expressions.frames():
        assert any(expressions.fits(frame, k, phrase, who) for k, who, phrase in table), frame


@pytest.mark.parametrize(
    ("german", "is_last"),
    [
        ("das Auto reparieren lassen/lassen", False),
        ("schwimmen können/können", False),
        ("den Termin vergessen", True),
        ("die Tür offen lassen/gelassen", True),
    ],
)
def test_two_infinitives_have_an_order_of_their_own(german: str, is_last: bool) -> None:
    frame = expressions.Frame("e", "I know that {c:past}.", "Ich weiß, dass {c:past vl}.")
    assert expressions.fits(frame, "e", action("do", german, "event"), None) == is_last


def test_no_sentence_is_in_two_splits() -> None:
    splits = {name: phrasebook.load(name, ["expressions"]) for name in phrasebook.SPLITS}
    assert all(0.01 < len(splits[n]) / len(splits["train"]) < 0.03 for n in ("validation", "test"))
    for side in (0, 1):
        train, validation, test = ({pair[side] for pair in pairs} for pairs in splits.values())
        assert not train & validation
        assert not train & test
        assert not validation & test
