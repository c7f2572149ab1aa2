"""Phrases that a translation must not have, while its tokens are chosen."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np


def forbidden_pattern(phrases: Sequence[str]) -> re.Pattern[str] | None:
    """Finds the phrases as whole words; None if there are none."""
    words = "|".join(re.escape(" ".join(phrase.split())) for phrase in phrases)
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)") if phrases else None


def check_phrases(phrases: Sequence[str]) -> None:
    """Raises ValueError for phrases that cannot be forbidden."""
    if isinstance(phrases, str):
        raise ValueError("forbidden: must be phrases, not one text")
    for phrase in phrases:
        if not isinstance(phrase, str) or not phrase.strip():
            raise ValueError("a term or a forbidden phrase must not be blank")
        if all(unicodedata.category(c).startswith("P") for c in "".join(phrase.split())):
            raise ValueError(f"{phrase!r} is punctuation: only words can be forbidden")


class TokenTexts:
    """The texts of a vocabulary's tokens, by how they begin."""

    def __init__(self, texts: Sequence[str]) -> None:
        rows = sorted((text, token) for token, text in enumerate(texts) if text)
        self._texts, self._tokens = [text for text, _ in rows], [token for _, token in rows]
        self.longest = max(map(len, texts))
        self.ends_word = np.array([not _is_word(text[:1]) for text in texts])
        # Those in which a word may begin, other than at the start or after a blank there
        self.of_words = [row for row in rows if re.search(r"\A[^\w ].|.\W.", row[0], re.DOTALL)]

    def beginning_with(self, head: str) -> Iterator[tuple[str, int]]:
        """The texts that begin so, and their tokens."""
        for i in range(bisect_left(self._texts, head), len(self._texts)):
            if not self._texts[i].startswith(head):
                return
            yield self._texts[i], self._tokens[i]


class ForbiddenPhrases:
    """Phrases that must not come as whole words. ValueError for a blank one."""

    def __init__(self, token_texts: TokenTexts, phrases: Sequence[str]) -> None:
        self._phrases = [" ".join(phrase.split()) for phrase in phrases]
        if not all(self._phrases):
            raise ValueError("a forbidden phrase must not be blank")
        self._token_texts = token_texts
        self._ending_tokens: dict[tuple[str, bool], np.ndarray] = {}
        self.longest = max(map(len, self._phrases))

    def tokens(self, text: str, is_last: bool) -> np.ndarray:
        """[V] booleans: the tokens after which one of them stands there as whole words.

        ``is_last``: the output ends after the token.
        """
        is_met = any(_ends_with(text, phrase) for phrase in self._phrases)
        banned = self._token_texts.ends_word & is_met
        banned[self._inside[is_last]] = True
        for rest in self._rests(text):
            banned[self._ending(rest, is_last)] = True
        return banned

    def _ending(self, rest: str, is_last: bool) -> np.ndarray:
        """The tokens that begin with ``rest`` as whole words, found once for each."""
        ending = self._ending_tokens.get((rest, is_last))
        if ending is None:
            tokens = []
            for token_text, token in self._token_texts.beginning_with(rest):
                after = token_text[len(rest) : len(rest) + 1]
                if not _is_word(after) if after else is_last:
                    tokens.append(token)
            ending = self._ending_tokens[rest, is_last] = np.array(tokens, dtype=np.int64)
        return ending

    def _rests(self, text: str) -> set[str]:
        """What a token must begin with so that one of the phrases ends within it."""
        rests = {f" {phrase}" for phrase in self._phrases}
        for phrase in self._phrases:
            for i in range(max(0, len(phrase) - self._token_texts.longest), len(phrase)):
                if _ends_with(text, phrase[:i]):
                    rests.add(phrase[i:])
        return rests

    @cached_property
    def _inside(self) -> tuple[list[int], list[int]]:
        """The tokens that have a whole phrase after their start; then also at their end."""
        pattern = forbidden_pattern(self._phrases)
        assert pattern is not None
        within, at_end = [], []
        for text, token in self._token_texts.of_words:
            ends = [match.end() for match in pattern.finditer(text, 1)]
            if ends:
                at_end.append(token)
            if ends and ends[0] < len(text):
                within.append(token)
        return within, at_end


def _ends_with(text: str, words: str) -> bool:
    """Whether a text ends with words that begin as whole ones; with none if a word may begin."""
    before = len(text) - len(words)
    return text.endswith(words) and (before == 0 or not _is_word(text[before - 1]))


def _is_word(character: str) -> bool:
    return re.match(r"\w", character) is not None
