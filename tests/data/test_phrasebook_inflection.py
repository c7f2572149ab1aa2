"""The phrasebook's inflection of German and English words, and its numbers."""

from __future__ import annotations

import pytest

from mt.data.phrasebook import english as en
from mt.data.phrasebook import morphology as de
from mt.data.phrasebook.words import adjectives, english_past, verb

ADJECTIVES = {
    # kind of article: for each gender, the phrases in nominative, accusative, dative, genitive
    "der": {
        "m": "der alte, den alten, dem alten, des alten",
        "f": "die alte, die alte, der alten, der alten",
        "n": "das alte, das alte, dem alten, des alten",
        "p": "die alten, die alten, den alten, der alten",
    },
    "ein": {
        "m": "ein alter, einen alten, einem alten, eines alten",
        "f": "eine alte, eine alte, einer alten, einer alten",
        "n": "ein altes, ein altes, einem alten, eines alten",
        "p": "alte, alte, alten, alter",
    },
    "kein": {
        "m": "kein alter, keinen alten, keinem alten, keines alten",
        "f": "keine alte, keine alte, keiner alten, keiner alten",
        "n": "kein altes, kein altes, keinem alten, keines alten",
        "p": "keine alten, keine alten, keinen alten, keiner alten",
    },
    "euer": {
        "m": "euer alter, euren alten, eurem alten, eures alten",
        "f": "eure alte, eure alte, eurer alten, eurer alten",
        "n": "euer altes, euer altes, eurem alten, eures alten",
        "p": "eure alten, eure alten, euren alten, eurer alten",
    },
    "": {
        "m": "alter, alten, altem, alten",
        "f": "alte, alte, alter, alter",
        "n": "altes, altes, altem, alten",
        "p": "alte, alte, alten, alter",
    },
}


@pytest.mark.parametrize("word", ADJECTIVES)
@pytest.mark.parametrize("gender", ["m", "f", "n", "p"])
def test_article_and_adjective(word: str, gender: str) -> None:
    forms = [
        f"{de.article(word, gender, case)} {de.adjective('alt', word, gender, case)}".strip()
        for case in de.CASES
    ]
    assert ", ".join(forms) == ADJECTIVES[word][gender]


@pytest.mark.parametrize(
    ("base", "form"),
    [("teuer", "teures"), ("dunkel", "dunkles"), ("hoch", "hohes"), ("müde", "müdes"),
     ("sauber", "sauberes"), ("neu", "neues")],
)  # fmt: skip
def test_adjective_stem(base: str, form: str) -> None:
    assert de.adjective(base, "ein", "n", "acc") == form


CONJUGATIONS = {
    "sein": "bin bist ist sind seid sind",
    "haben": "habe hast hat haben habt haben",
    "werden": "werde wirst wird werden werdet werden",
    "können": "kann kannst kann können könnt können",
    "möchten": "möchte möchtest möchte möchten möchtet möchten",
    "wissen": "weiß weißt weiß wissen wisst wissen",
    "fahren": "fahre fährst fährt fahren fahrt fahren",
    "lesen": "lese liest liest lesen lest lesen",
    "nehmen": "nehme nimmst nimmt nehmen nehmt nehmen",
    "essen": "esse isst isst essen esst essen",
    "geben": "gebe gibst gibt geben gebt geben",
    "schlafen": "schlafe schläfst schläft schlafen schlaft schlafen",
    "waschen": "wasche wäschst wäscht waschen wascht waschen",
    "arbeiten": "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten",
    "reden": "rede redest redet reden redet reden",
    "finden": "finde findest findet finden findet finden",
    "öffnen": "öffne öffnest öffnet öffnen öffnet öffnen",
    "zeichnen": "zeichne zeichnest zeichnet zeichnen zeichnet zeichnen",
    "wohnen": "wohne wohnst wohnt wohnen wohnt wohnen",
    "lernen": "lerne lernst lernt lernen lernt lernen",
    "heißen": "heiße heißt heißt heißen heißt heißen",
    "sitzen": "sitze sitzt sitzt sitzen sitzt sitzen",
    "spielen": "spiele spielst spielt spielen spielt spielen",
    "fühlen": "fühle fühlst fühlt fühlen fühlt fühlen",
    "könnten": "könnte könntest könnte könnten könntet könnten",
    "sammeln": "sammle sammelst sammelt sammeln sammelt sammeln",
    "wandern": "wandere wanderst wandert wandern wandert wandern",
    "halten": "halte hältst hält halten haltet halten",
    "treffen": "treffe triffst trifft treffen trefft treffen",
    "einladen": "lade lädst lädt laden ladet laden",
    "reparieren": "repariere reparierst repariert reparieren repariert reparieren",
}


@pytest.mark.parametrize("name", CONJUGATIONS)
def test_present(name: str) -> None:
    assert " ".join(de.present(verb(name), p) for p in range(6)) == CONJUGATIONS[name]


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("sein", "war warst war waren wart waren"),
        ("haben", "hatte hattest hatte hatten hattet hatten"),
        ("müssen", "musste musstest musste mussten musstet mussten"),
    ],
)
def test_simple_past(name: str, forms: str) -> None:
    assert " ".join(de.past(verb(name), p) for p in range(6)) == forms


@pytest.mark.parametrize(
    ("name", "form", "auxiliary"),
    [
        ("kaufen", "gekauft", "haben"), ("arbeiten", "gearbeitet", "haben"),
        ("besuchen", "besucht", "haben"), ("verkaufen", "verkauft", "haben"),
        ("erzählen", "erzählt", "haben"), ("gehören", "gehört", "haben"),
        ("reparieren", "repariert", "haben"), ("einkaufen", "eingekauft", "haben"),
        ("anrufen", "angerufen", "haben"), ("fernsehen", "ferngesehen", "haben"),
        ("aufstehen", "aufgestanden", "sein"), ("gehen", "gegangen", "sein"),
        ("bleiben", "geblieben", "sein"), ("zeichnen", "gezeichnet", "haben"),
        ("verstehen", "verstanden", "haben"), ("reisen", "gereist", "sein"),
    ],
)  # fmt: skip
def test_participle(name: str, form: str, auxiliary: str) -> None:
    assert (de.participle(verb(name)), verb(name).auxiliary) == (form, auxiliary)


@pytest.mark.parametrize(
    ("title", "third_person", "participle", "auxiliary"),
    [
        ("ab|brechen", "bricht", "abgebrochen", "haben"),
        ("zerbrechen", "zerbricht", "zerbrochen", "haben"),
        ("ein|brechen", "bricht", "eingebrochen", "sein"),
        ("los|fahren", "fährt", "losgefahren", "sein"),
        ("erfahren", "erfährt", "erfahren", "haben"),
        ("ein|berufen", "beruft", "einberufen", "haben"),
        ("missverstehen", "missversteht", "missverstanden", "haben"),
        ("unterschreiben", "unterschreibt", "unterschrieben", "haben"),
        ("überholen", "überholt", "überholt", "haben"),
        ("zurück|verlangen", "verlangt", "zurückverlangt", "haben"),
        ("runter|laden", "lädt", "runtergeladen", "haben"),
        ("ertrinken", "ertrinkt", "ertrunken", "sein"),
        ("lüften", "lüftet", "gelüftet", "haben"),
        ("durchsuchen", "durchsucht", "durchsucht", "haben"),
        ("aus|bessern", "bessert", "ausgebessert", "haben"),
        ("tief|gefrieren", "gefriert", "tiefgefroren", "haben"),
        ("erscheinen", "erscheint", "erschienen", "sein"),
    ],
)
def test_compounds_inherit_from_their_verb(
    title: str, third_person: str, participle: str, auxiliary: str
) -> None:
    entry = verb(title)
    assert de.present(entry, 2) == third_person
    assert (de.participle(entry), entry.auxiliary) == (participle, auxiliary)


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("nehmen", "nimm nehmt nehmen"), ("lesen", "lies lest lesen"),
        ("fahren", "fahr fahrt fahren"), ("waschen", "wasch wascht waschen"),
        ("warten", "warte wartet warten"),
        ("zeigen", "zeig zeigt zeigen"), ("sein", "sei seid seien"),
        ("reparieren", "repariere repariert reparieren"), ("gehen", "geh geht gehen"),
    ],
)  # fmt: skip
def test_imperative(name: str, forms: str) -> None:
    assert " ".join(de.imperative(verb(name), key) for key in ("du", "ihr", "Sie")) == forms


def test_zu_infinitive() -> None:
    assert de.zu_infinitive(verb("aufstehen")) == "aufzustehen"
    assert de.zu_infinitive(verb("gehen")) == "zu gehen"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ich gehe zu dem Arzt.", "Ich gehe zum Arzt."), ("zu der Schule", "zur Schule"),
        ("in dem Haus", "im Haus"), ("in das Kino", "ins Kino"), ("an dem See", "am See"),
        ("an das Meer", "ans Meer"), ("von dem Bahnhof", "vom Bahnhof"),
        ("bei dem Chef", "beim Chef"), ("in den Park", "in den Park"),
        ("in der Stadt", "in der Stadt"), ("auf dem Tisch", "auf dem Tisch"),
    ],
)  # fmt: skip
def test_contract(text: str, expected: str) -> None:
    assert de.contract(text) == expected


def test_noun_forms() -> None:
    assert de.noun_form("Junge", "Jungen", "m", "acc", weak=True) == "Jungen"
    assert de.noun_form("Junge", "Jungen", "m", "nom", weak=True) == "Junge"
    assert de.noun_form("Kind", "Kinder", "p", "dat") == "Kindern"
    assert de.noun_form("Auto", "Autos", "p", "dat") == "Autos"
    assert de.noun_form("Kind", "Kinder", "n", "gen") == "Kindes"
    assert de.noun_form("Vater", "Väter", "m", "gen") == "Vaters"
    assert de.noun_form("Freund", "Freunde", "m", "gen") == "Freundes"
    assert de.noun_form("Chef", "Chefs", "m", "gen") == "Chefs"
    assert de.noun_form("Mutter", "Mütter", "f", "gen") == "Mutter"


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [(0, "zero", "null"), (1, "one", "eins"), (7, "seven", "sieben"), (12, "twelve", "zwölf"),
     (16, "sixteen", "sechzehn"), (17, "seventeen", "siebzehn"), (21, "twenty-one",
     "einundzwanzig"), (30, "thirty", "dreißig"), (66, "sixty-six", "sechsundsechzig"),
     (101, "one hundred and one", "einhunderteins")],
)  # fmt: skip
def test_numbers(value: int, english: str, german: str) -> None:
    assert (en.number(value), de.number(value)) == (english, german)


def test_ordinals() -> None:
    assert [de.ordinal(n) for n in (1, 3, 7, 8, 19, 20, 31)] == [
        "erst", "dritt", "siebt", "acht", "neunzehnt", "zwanzigst", "einunddreißigst"]  # fmt: skip
    assert [en.ordinal(n) for n in (1, 2, 3, 8, 12, 20, 31)] == [
        "first", "second", "third", "eighth", "twelfth", "twentieth", "thirty-first"]  # fmt: skip


def test_english_inflection() -> None:
    assert [en.plural(n) for n in ("city", "boy", "bus", "potato", "radio", "key")] == [
        "cities", "boys", "buses", "potatoes", "radios", "keys"]  # fmt: skip
    assert [en.gerund(v) for v in ("make", "get", "lie", "see", "play", "wait", "swim")] == [
        "making", "getting", "lying", "seeing", "playing", "waiting", "swimming"]  # fmt: skip
    assert [en.third_person(v) for v in ("go", "watch", "study", "play", "have")] == [
        "goes", "watches", "studies", "plays", "has"]  # fmt: skip
    assert [en.comparative(a) for a in ("old", "friendly", "expensive", "modern", "nice")] == [
        "older", "friendlier", "more expensive", "more modern", "nicer"]  # fmt: skip
    assert [en.indefinite(n) for n in ("apple", "university", "umbrella", "book")] == [
        "an apple", "a university", "an umbrella", "a book"]  # fmt: skip


@pytest.mark.parametrize(
    ("base", "gerund", "past"),
    [
        ("be", "being", "was"),
        ("bribe", "bribing", "bribed"),
        ("dye", "dyeing", "dyed"),
        ("submit", "submitting", "submitted"),
        ("cancel", "cancelling", "cancelled"),
        ("shrink", "shrinking", "shrank"),
        ("lie", "lying", "lay"),
    ],
)
def test_english_verbs(base: str, gerund: str, past: str) -> None:
    assert (en.gerund(base), english_past(base)[0]) == (gerund, past)


def test_every_adjective_compares_as_in_a_dictionary() -> None:
    expected = {"easy": "easier", "quiet": "quieter", "beautiful": "more beautiful",
                "interesting": "more interesting", "big": "bigger", "comfortable":
                "more comfortable", "heavy": "heavier", "slow": "slower", "cheap": "cheaper",
                "young": "younger", "polite": "more polite", "dirty": "dirtier"}  # fmt: skip
    assert {a.source: a.more for a in adjectives() if a.source in expected} == expected
