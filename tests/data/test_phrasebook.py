"""The built-in corpus: clauses, sentences, splits."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from functools import cache

import pytest

from mt.data import phrasebook
from mt.data.phrasebook import english as en
from mt.data.phrasebook import grammar, templates
from mt.data.phrasebook.clauses import Clause
from mt.data.phrasebook.people import FORMAL, MALE_KIN, ME, WE, YOU, YOU_ALL
from mt.data.phrasebook.verb_phrases import VerbPhrase, actions, bindings
from mt.data.phrasebook.words import NounPhrase, Pair, Person, adjectives, nouns

# --- Clauses --------------------------------------------------------------------------------


@cache
def phrase(text: str) -> VerbPhrase:
    """The verb phrase that reads like this in English with the subject "I"."""
    for action in actions():
        if action.english_verb == text.split()[0]:
            for bound in bindings(action):
                if f"{action.english_verb} {bound.english_rest(ME)}".strip() == text:
                    return bound
    raise KeyError(text)


BROTHER = next(person for person in MALE_KIN if person.source == "my brother")
KIDS = next(person for person in YOU_ALL if person.vocative[0])
SIR = next(person for person in FORMAL if person.vocative[0] == "sir")
WEBER = next(person for person in FORMAL if "Weber" in person.vocative[0])
TOMORROW, OFTEN = Pair("tomorrow", "morgen"), Pair("often", "oft")

CLAUSES = [
    # English verb phrase, subject, pattern, expected sentence on both sides
    ("go to the lake", WE, "Tomorrow {c:progressive}.", "Morgen {c:present v1}.",
     "Tomorrow we are going to the lake.", "Morgen fahren wir an den See."),
    ("get up early", ME, "{c:must}.", "{c:must}.",
     "I have to get up early.", "Ich muss früh aufstehen."),
    ("get up early", BROTHER, "I know that {c:past}.", "Ich weiß, dass {c:past vl}.",
     "I know that my brother got up early.", "Ich weiß, dass mein Bruder früh aufgestanden ist."),
    ("call my mother", BROTHER, "{c:progressive}.", "{c:present}.",
     "My brother is calling his mother.", "Mein Bruder ruft seine Mutter an."),
    ("call my mother", BROTHER, "Do you know if {c:progressive}?", "Weißt du, ob {c:present vl}?",
     "Do you know if my brother is calling his mother?",
     "Weißt du, ob mein Bruder seine Mutter anruft?"),
    ("call my mother", YOU, "{c:past ask}?", "{c:past v1}?",
     "Did you call your mother?", "Hast du deine Mutter angerufen?"),
    ("call my mother", WEBER, "{c:past ask}?", "{c:past v1}?",
     "Did you call your mother, Mr. Weber?", "Haben Sie Ihre Mutter angerufen, Herr Weber?"),
    ("call my mother", ME, "{c:past not}.", "{c:past not}.",
     "I didn't call my mother.", "Ich habe meine Mutter nicht angerufen."),
    ("call my mother", ME, "{c:who} {c/have} no time to {c:base}.",
     "{c:who} {c/haben} keine Zeit, {c:zu}.",
     "I have no time to call my mother.", "Ich habe keine Zeit, meine Mutter anzurufen."),
    ("buy a car", ME, "{c:progressive not}.", "{c:present not}.",
     "I'm not buying a car.", "Ich kaufe kein Auto."),
    ("drink coffee", ME, "{c:present not}.", "{c:present not}.",
     "I don't drink coffee.", "Ich trinke keinen Kaffee."),
    ("drink coffee", ME, "{c:like not}.", "{c:like not gern}.",
     "I don't like drinking coffee.", "Ich trinke nicht gern Kaffee."),
    ("play football", YOU, "{c:like ask}?", "{c:like v1 gern}?",
     "Do you like playing football?", "Spielst du gern Fußball?"),
    ("help my father", BROTHER, "{c:would}.", "{c:would}.",
     "My brother would like to help his father.", "Mein Bruder möchte seinem Vater helfen."),
    ("help me", BROTHER, "Tomorrow {c:will}.", "Morgen {c:will v1}.",
     "Tomorrow my brother will help me.", "Morgen wird mir mein Bruder helfen."),
    ("write my sister a letter", ME, "{c:progressive}.", "{c:present}.",
     "I am writing my sister a letter.", "Ich schreibe meiner Schwester einen Brief."),
    ("wash my hands", ME, "{c:past}.", "{c:past}.",
     "I washed my hands.", "Ich habe mir die Hände gewaschen."),
    ("sit down", KIDS, "{c:base}!", "{c:imp}!", "Sit down, kids!", "Setzt euch, Kinder!"),
    ("open the door", YOU, "{c:base}!", "{c:imp}!", "Open the door!", "Mach die Tür auf!"),
    ("open the door", WEBER, "Please {c:base}.", "Bitte {c:imp}.",
     "Please open the door, Mr. Weber.", "Bitte machen Sie die Tür auf, Herr Weber."),
    ("close the window", YOU, "Do not {c:base}!", "{c:imp not}!",
     "Don't close the window!", "Mach das Fenster nicht zu!"),
    ("be tired", ME, "{c:past}.", "{c:past}.", "I was tired.", "Ich war müde."),
    ("have a cold", YOU, "{c:present ask}?", "{c:present v1}?",
     "Do you have a cold?", "Hast du eine Erkältung?"),
    ("have a cold", ME, "{c:present not}.", "{c:present not}.",
     "I don't have a cold.", "Ich habe keine Erkältung."),
    ("be hungry", ME, "{c:present not}.", "{c:present not}.",
     "I'm not hungry.", "Ich habe keinen Hunger."),
    ("go to the cinema", YOU_ALL[0], "{c:want ask}?", "{c:want v1}?",
     "Do you two want to go to the cinema?", "Wollt ihr beide ins Kino gehen?"),
    ("rest", BROTHER, "If it rains, {c:will}.", "Wenn es regnet, {c:present v1}.",
     "If it rains, my brother will rest.", "Wenn es regnet, ruht sich mein Bruder aus."),
    ("learn German", ME, "{c:been} for two years.", "{c:present}.",
     "I have been learning German for two years.", "Ich lerne Deutsch."),
    ("wait for me", BROTHER, "{c:failed not}.", "{c:failed not}.",
     "My brother couldn't wait for me.", "Mein Bruder konnte nicht auf mich warten."),
    ("wait for me", BROTHER, "{c:could}.", "{c:could}.",
     "My brother could wait for me.", "Mein Bruder könnte auf mich warten."),
    ("sit down", SIR, "Could you please {c:base}?", "Könnten Sie {c:inf bitte}?",
     "Could you please sit down, sir?", "Könnten Sie sich bitte setzen?"),
    ("help me", WEBER, "Could you please {c:base}?", "Könnten Sie {c:inf bitte}?",
     "Could you please help me, Mr. Weber?", "Könnten Sie mir bitte helfen, Herr Weber?"),
    ("open the door", SIR, "{c:base}!", "{c:imp}!",
     "Open the door, sir!", "Machen Sie die Tür auf!"),
    ("listen to the radio", ME, "{c:progressive not}.", "{c:present not}.",
     "I'm not listening to the radio.", "Ich höre kein Radio."),
    ("learn German", ME, "{c:present not}.", "{c:present not}.",
     "I don't learn German.", "Ich lerne kein Deutsch."),
    ("play the piano", ME, "{c:can not}.", "{c:can not}.",
     "I can't play the piano.", "Ich kann nicht Klavier spielen."),
    ("pay the bill", ME, "{c:past not}.", "{c:past not}.",
     "I didn't pay the bill.", "Ich habe die Rechnung nicht bezahlt."),
    ("wash my hands", ME, "{c:past not}.", "{c:past not}.",
     "I didn't wash my hands.", "Ich habe mir nicht die Hände gewaschen."),
    ("play chess", ME, "{c:present}.", "{c:present}.", "I play chess.", "Ich spiele Schach."),
    ("call her", BROTHER, "Tomorrow {c:will}.", "Morgen {c:will v1}.",
     "Tomorrow my brother will call her.", "Morgen wird mein Bruder sie anrufen."),
    ("pick me up from the airport", BROTHER, "{c:past}.", "{c:past}.",
     "My brother picked me up from the airport.",
     "Mein Bruder hat mich vom Flughafen abgeholt."),
    ("feed the dog", BROTHER, "{c:past}.", "{c:past}.",
     "My brother fed the dog.", "Mein Bruder hat den Hund gefüttert."),
    ("put on my hat", BROTHER, "{c:present}.", "{c:present}.",
     "My brother puts on his hat.", "Mein Bruder setzt seinen Hut auf."),
    ("take off the cap", YOU, "{c:base}!", "{c:imp}!", "Take off the cap!", "Nimm die Mütze ab!"),
]  # fmt: skip


@pytest.mark.parametrize("row", CLAUSES, ids=lambda row: row[4])
def test_clause(row: tuple[str, Person, str, str, str, str]) -> None:
    text, subject, source, target, english, german = row
    chosen = {"c": Clause(subject, phrase(text))}
    rendered = en.contract_negatives(grammar.fill(source, chosen, "english"))
    assert grammar.finish(rendered, chosen, 0) == english
    assert grammar.finish(grammar.fill(target, chosen, "german"), chosen, 1) == german


def test_time_and_adverb_in_the_middle_field() -> None:
    going = Clause(ME, phrase("go to the cinema"), TOMORROW)
    assert going.german("present") == "ich gehe morgen ins Kino"
    calling = Clause(ME, phrase("call me"), TOMORROW)
    assert Clause(BROTHER, calling.phrase, TOMORROW).german("present vl") == (
        "mich mein Bruder morgen anruft"
    )
    playing = Clause(BROTHER, phrase("play football"), None, OFTEN)
    assert playing.english("present") == "my brother often plays football"
    assert playing.german("present") == "mein Bruder spielt oft Fußball"


def test_negation_puts_definite_objects_before_the_time() -> None:
    clause = Clause(ME, phrase("call my mother"), TOMORROW)
    assert clause.german("present not") == "ich rufe meine Mutter morgen nicht an"


def test_noun_phrases() -> None:
    def say(noun: str, spec: str, adjective: str = "") -> str:
        entry = next(n for n in nouns("") if n.source == noun)
        described = next((a for a in adjectives() if a.source == adjective), None)
        return NounPhrase(entry, "the", described).german(spec)

    assert say("key", "my acc") == "meinen Schlüssel"
    assert say("neighbour", "your dat") == "deinem Nachbarn"
    assert say("colleague", "my gen") == "meines Kollegen"
    assert say("child", "the plural dat") == "den Kindern"
    assert say("book", "a acc", "interesting") == "ein interessantes Buch"
    assert say("coffee", "bare acc", "hot") == "heißen Kaffee"
    assert say("trousers", "a dat", "dark") == "einer dunklen Hose"
    assert say("apple", "plural dat", "ripe") == "reifen Äpfeln"


# --- Corpus ---------------------------------------------------------------------------------

EXPECTED = [
    ("What is your favourite colour?", "Was ist deine Lieblingsfarbe?"),
    ("How do I get to the station?", "Wie komme ich zum Bahnhof?"),
    ("How do I get to the pharmacy?", "Wie komme ich zur Apotheke?"),
    ("There is no church in the village.", "Im Dorf gibt es keine Kirche."),
    ("How much do the trousers cost?", "Wie viel kostet die Hose?"),
    ("Today is Wednesday.", "Heute ist Mittwoch."),
    ("How are you?", "Wie geht es dir?"),
    ("How is your neighbour?", "Wie geht es deinem Nachbarn?"),
    ("My head hurts.", "Mein Kopf tut weh."),
    ("The present is for my brother.", "Das Geschenk ist für meinen Bruder."),
    ("This is a letter from my parents.", "Das ist ein Brief von meinen Eltern."),
    ("I live with my sister.", "Ich wohne bei meiner Schwester."),
    ("Do you come from Switzerland?", "Kommst du aus der Schweiz?"),
    ("Can you swim?", "Kannst du schwimmen?"),
    ("Would you like a cup of tea?", "Möchtest du eine Tasse Tee?"),
    ("My knees hurt.", "Meine Knie tun weh."),
    ("The man who lives next door is my uncle.", "Der Mann, der nebenan wohnt, ist mein Onkel."),
    ("Who can play chess?", "Wer kann Schach spielen?"),
]


@pytest.mark.parametrize("pair", EXPECTED, ids=lambda pair: pair[0])
def test_expected_sentence_is_in_the_corpus(pair: tuple[str, str]) -> None:
    assert dict(phrasebook.expand()).get(pair[0]) == pair[1]


@pytest.mark.parametrize(
    ("source", "target"),
    [("It is half past seven.", "Es ist halb acht."), ("It is one o'clock.", "Es ist ein Uhr."),
     ("It is quarter to one.", "Es ist Viertel vor eins.")],
)  # fmt: skip
def test_clock(source: str, target: str) -> None:
    corpus = dict(phrasebook.expand())
    assert target in (corpus.get(source), corpus.get(source.replace("It is", "It's")))


def test_size() -> None:
    pairs = phrasebook.expand()
    assert 45_000 <= len(pairs) <= 65_000
    assert len(set(pairs)) == len(pairs)
    words = [len(english.split()) for english, _ in pairs]
    assert 5 < sum(words) / len(words) < 9
    assert len(templates.templates()) >= 60


def test_every_template_contributes_and_none_dominates() -> None:
    for template in templates.templates():
        size = sum(1 for _ in template.sentences())
        assert 1 <= size <= 1_500, template.english


def test_one_translation_for_each_english_sentence() -> None:
    seen: dict[str, str] = {}
    for english, german in phrasebook.expand():
        assert seen.setdefault(phrasebook.normalise(english), german) == german


def test_phrases() -> None:
    pairs = phrasebook.phrases()
    assert len(pairs) >= 1_500
    assert all(english and german for english, german in pairs)


def test_grammar_sentences_are_well_formed() -> None:
    for pair in phrasebook.expand():
        for text in pair:
            assert text == text.strip()
            assert "  " not in text
            assert not re.search(r"[{}|#<>_]", text), text
            assert not re.search(r"\s[.,?!]|,[^ ]|\.\.", text), text
            assert text[0].isupper(), text
            assert text[-1] in ".?!", text
        assert pair[0][-1] == pair[1][-1], pair


def test_common_mistakes_do_not_occur() -> None:
    corpus = phrasebook.expand()
    wrong_german = re.compile(
        r"\b(zu dem|in das|in dem|an dem|bei dem|von dem|nicht eine?[nmr]? [A-ZÄÖÜ]\w+|ein die|"
        r"sich sich|bitte (?:sich|mich|uns|mir|ihn|sie|ihr|ihnen)|spil\w+|mein Herr|gnädige Frau|"
        r"(?:Hut|Mütze|Hüte|Mützen) (?:aus|an)\w+|nicht Radio|"
        r"ich (?:bist|hast|kannst)|du (?:bin|habe|kann)|der der|einen Auto|eine Tisch)\b"
    )
    wrong_english = re.compile(
        r"\b(a [aeio]\w+|an [bcdfgjklmnpqrstvwxyz]\w+|I is|he are|is not|do not|to to|"
        r"up (?:me|him|her|us|them|you)|feeded)\b"
    )
    for english, german in corpus:
        assert not wrong_german.search(german), german
        assert not wrong_english.search(english), english


# --- Splits ---------------------------------------------------------------------------------


def test_splits_are_disjoint_on_both_sides() -> None:
    sentences = [
        [{phrasebook.normalise(pair[side]) for pair in phrasebook.load(name)} for side in (0, 1)]
        for name in phrasebook.SPLITS
    ]
    for i, first in enumerate(sentences):
        for second in sentences[i + 1 :]:
            assert not first[0] & second[0]
            assert not first[1] & second[1]


def test_splits_hold_everything_once() -> None:
    together = [pair for name in phrasebook.SPLITS for pair in phrasebook.load(name)]
    assert len(together) == len(set(together))
    assert set(together) == set(phrasebook.expand()) | set(phrasebook.phrases())
    for name in ("validation", "test"):
        assert 700 <= len(phrasebook.load(name)) <= 1_500
        assert set(phrasebook.load(name)) & set(phrasebook.phrases())


def test_components_join_pairs_that_share_a_sentence() -> None:
    pairs = [("A.", "B."), ("a.", "C."), ("D.", "c."), ("E.", "F.")]
    assert sorted(map(len, phrasebook.components(pairs))) == [1, 3]


def test_components_stay_small() -> None:
    pairs = list(dict.fromkeys(phrasebook.phrases() + phrasebook.expand()))
    assert max(map(len, phrasebook.components(pairs))) <= 6


def test_showcase_is_in_train() -> None:
    train = {english for english, _ in phrasebook.load("train")}
    known = {english for english, _ in phrasebook.phrases() + phrasebook.expand()}
    assert "Where do you live?" in phrasebook.SHOWCASE
    assert known & set(phrasebook.SHOWCASE) <= train
    assert phrasebook.choose([("Where do you live?", "Wo wohnst du?")]) == "train"


def test_unknown_split_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="train, validation, test"):
        phrasebook.load("dev")


@pytest.mark.slow
def test_deterministic_across_processes() -> None:
    code = (
        "import hashlib; from mt.data import phrasebook as p; "
        "text = repr([p.load(name) for name in p.SPLITS]); "
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    here = hashlib.sha256(repr([phrasebook.load(name) for name in phrasebook.SPLITS]).encode())
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert there.stdout.strip() == here.hexdigest()
