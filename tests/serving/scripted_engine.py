"""An engine that knows its sentences by heart, and a live server around it."""

import asyncio
import math
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from live_server import running

from mt.inference import sentence_splitter
from mt.inference.confidence import Calibration
from mt.inference.inputs import split_lines
from mt.inference.options import SearchOptions
from mt.inference.translation import TranslatedPart, Translation
from mt.serving.app import create_app
from mt.serving.engine import DeadlineExceeded, Job, TextTranslation
from mt.serving.limits import ApiKeys, Limits

# A sentence and its translations, best first. Another one comes back in capitals.
SCRIPT = {
    "Where do you live?": ["Wo wohnst du?", "Wo lebst du?", "Wo wohnen Sie?"],
    "I see the house.": ["Ich sehe das Haus.", "Ich erblicke das Haus."],
    "A ½ ROAD IS LONG.": ["EINE ½ STRASSE IST LANG."],
    "It is so.": ["Es ist so.", "So ist es."],
}
UNSURE = "Es ist so."  # the engine is sure of all others
LOOKS_AT = {"Wo": "Where", "wohnst": "live", "lebst": "live", "Haus": "house", "straße": "road"}


class ScriptedEngine:
    """Shows ``words`` words and waits for more. ``error`` is what every job raises."""

    def __init__(self) -> None:
        self.translator = SimpleNamespace(
            languages=("en", "de"),
            name="/models/scripted",
            options=SearchOptions(),
            max_length=100,
            calibration=Calibration(0.0, 1.0, -1.0, check_below=0.5),
        )
        self.reset()

    def reset(self) -> None:
        self.words = math.inf
        self.error: Exception | None = None
        self.jobs: list[Job] = []
        self.cancelled: list[str] = []

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def translate(self, job: Job, timeout: float) -> list[TextTranslation]:
        self.jobs.append(job)
        if self.error is not None:
            raise self.error
        prefixes = job.prefixes or [""] * len(job.texts)
        results = [_translate(text, *rest) for text, *rest in zip(job.texts, prefixes, strict=True)]
        try:
            await asyncio.wait_for(self._show_words(job, results), timeout)
        except asyncio.TimeoutError:
            raise DeadlineExceeded from None
        except asyncio.CancelledError:
            self.cancelled += job.texts
            raise
        return results

    async def _show_words(self, job: Job, results: list[TextTranslation]) -> None:
        for i, result in enumerate(results):
            words = result.text.split(" ")
            for n in range(min(len(words), 20)):
                if n and job.on_partial is not None:
                    job.on_partial(i, " ".join(words[:n]))
                while n >= self.words:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0)


def _translate(text: str, prefix: str) -> TextTranslation:
    lines, breaks = split_lines(text)
    return TextTranslation(tuple(_translate_line(line, prefix) for line in lines), breaks)


def _translate_line(line: str, prefix: str) -> Translation:
    sentences = sentence_splitter.sentences(line)
    if not sentences:
        return Translation(line, "", 0.0, 0, (("", 0.0),))
    options = [SCRIPT.get(sentence, [sentence.upper()]) for sentence in sentences]
    if prefix:
        options = [[text for text in texts if text.startswith(prefix)] for texts in options]
    n_best = [(" ".join(texts), -float(i)) for i, texts in enumerate(zip(*options, strict=False))]
    parts = tuple(
        _segment(sentence, texts[0], " " if i else "")
        for i, (sentence, texts) in enumerate(zip(sentences, options, strict=True))
    )
    tokens = sum(len(part.output) + 1 for part in parts)
    return Translation(line, *n_best[0], tokens, tuple(n_best), parts)


def _segment(source: str, output: str, before: str) -> TranslatedPart:
    source_pieces, pieces = _pieces(source), _pieces(output)
    alignment = torch.full((len(pieces) + 1, len(source_pieces) + 1), 0.02)
    words = [piece.strip("▁") for piece in source_pieces]
    for t, piece in enumerate(pieces):
        looked_at = LOOKS_AT.get(piece.strip("▁"))
        if looked_at in words:
            alignment[t, words.index(looked_at)] = 0.8
    log_probs = (-0.1,) * (len(pieces) + 1)
    confidence = 0.3 if output == UNSURE else 0.9
    return TranslatedPart(
        source_pieces,
        pieces,
        log_probs,
        alignment=alignment,
        confidence=confidence,
        text=output,
        before=before,
    )


def _pieces(text: str) -> tuple[str, ...]:
    """Words as pieces, and the mark at the end as its own; spelled as the translator does.

    It translates a sentence in capitals in small letters, and the tokenizer has forms of its own.
    """
    spelled = unicodedata.normalize("NFKC", text)
    if text.isupper():
        spelled = spelled.lower().replace("strasse", "straße")
    return (*f"▁{spelled[:-1]}".replace(" ", " ▁").split(" "), spelled[-1])


@contextmanager
def serving(
    engine: ScriptedEngine, limits: Limits | None = None, keys: ApiKeys | None = None, port: int = 0
) -> Iterator[str]:
    """The address of a live server."""
    with running(create_app(engine, limits, keys), port) as server:
        yield server.address
