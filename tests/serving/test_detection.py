"""Which of two languages a text is in."""

import asyncio

import pytest

from mt.serving.detection import Detector


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("We visited Schloss Neuschwanstein and München.", "en"),
        ("She lives in Göttingen with Jürgen.", "en"),
        ("Angela Merkel traf Olaf Scholz in Düsseldorf.", "de"),
        ("Herr Müller traf Frau Schäfer.", "de"),
        ("Guten Morgen!", "de"),
        ("Kommst du mit?", "de"),
        ("Er hat Glück.", "de"),
        ("Das Auto hat Winterreifen.", "de"),
        ("Der Hund war also still.", "de"),
        ("Das Kind sang still.", "de"),
        ("12:30", "en"),
    ],
)
def test_names_do_not_outweigh_the_words_of_a_sentence(text: str, language: str) -> None:
    found, probability = asyncio.run(Detector("en", "de").language(text))
    assert found == language
    assert probability > (0.8 if language == "de" else 0.4)
