"""The bundled model is whole and small, and translates what people type."""

import re

import pytest

from mt.data import phrasebook
from mt.evaluation import metrics
from mt.inference.translator import Translator
from mt.model import checkpoint

FOLDER = checkpoint.BUNDLED_MODEL


def test_it_is_whole_and_small() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {*checkpoint.FILES, "README.md"}
    assert (FOLDER / "model.safetensors").stat().st_size < 20e6


def test_its_card_tells_all_and_nothing_of_a_machine() -> None:
    card = (FOLDER / "README.md").read_text("utf-8")
    for word in ("CC-BY 2.0 FR", "tatoeba.org", "nrefs:1|", "python -m mt.train", "failures"):
        assert word in card, word
    for text in (card, (FOLDER / "config.json").read_text("utf-8")):
        assert not re.search(r"@\w*@|/tmp|/home|/work|/root", text)


@pytest.mark.parametrize(
    ("typed", "german"),
    [
        ("Where do you live?", "Wo wohnen Sie?"),
        ("where do you live", "Wo wohnen Sie?"),
        ("WHERE DO YOU LIVE?", "WO WOHNEN SIE?"),
        ("whats your name", "Wie heißt du?"),
        ("I'm hungry.", "Ich habe Hunger."),
        ("I’m hungry. Where do you live?", "Ich habe Hunger. Wo wohnen Sie?"),
    ],
)
def test_it_translates_what_people_type(everyday: Translator, typed: str, german: str) -> None:
    assert everyday.translate([typed], split=True)[0].text == german


def test_it_knows_the_phrasebook(everyday: Translator) -> None:
    """It learned the training split: a low score would mean that something is broken."""
    sources, references = zip(*phrasebook.load("test")[:100], strict=True)
    hypotheses = [result.text for result in everyday.translate(sources, beam_size=1)]
    assert metrics.bleu(hypotheses, references).value > 60
