"""Tells the model's two languages apart."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

SURE_OF_WORDS = 0.9  # of a sentence without its names
SURE = 0.8  # below it a text passes for the source language: a name or a number is in either


class Detector:
    """Language detection by py3langid (Lui and Baldwin 2012), between two languages.

    Its model is loaded when the first text comes, because many servers never need it.
    """

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self._thread = ThreadPoolExecutor(1, "detect")  # one thread, so the model is loaded once

    async def rank(self, text: str) -> list[tuple[str, float]]:
        """Both languages with their probabilities, the likelier first."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._rank, text)

    async def language(self, text: str) -> tuple[str, float]:
        """The language from which to translate a text, and its probability.

        It is the target language only where that is nearly certain: then there is nothing to do.
        """
        probabilities = dict(await self.rank(text))
        if probabilities[self.target] >= SURE:
            return self.target, probabilities[self.target]
        return self.source, probabilities[self.source]

    def _rank(self, text: str) -> list[tuple[str, float]]:
        probabilities = self._probabilities(text)
        if probabilities[self.target] > probabilities[self.source]:
            # "We visited Jürgen in Düsseldorf.": names must not outweigh the words of the sentence.
            first, *rest = text.split() or [""]
            small = " ".join([first.lower(), *(word for word in rest if word[:1].islower())])
            words = self._probabilities(small)
            if words[self.source] > SURE_OF_WORDS:
                probabilities = words
        # The source comes first where both are equal.
        return sorted(probabilities.items(), key=lambda item: -item[1])

    def _probabilities(self, text: str) -> dict[str, float]:
        probabilities = dict(_identifier(self.source, self.target).rank(text))
        return {
            language: probabilities.get(language, 0.0) for language in (self.source, self.target)
        }


@cache
def _identifier(*languages: str) -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    codes = [code for code in languages if code in identifier.labels]
    identifier.set_languages(codes or None)
    return identifier
