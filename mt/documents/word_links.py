"""Which words of a text belong to which words of its translation, as characters of both."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence

from mt.inference.alignment import align_part
from mt.inference.translation import TranslatedPart

Span = tuple[int, int]  # characters of a text, from the first to the one after the last
Link = tuple[Span, Span, float]  # a word of the source, one of the target, and their weight

# Scripts that leave no blanks between words: each character counts as one.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:[-.,:'’][^\W{_UNSPACED}]+)*")
# Characters that may lie between two words of ``word_spans``, and the most that were not found
MISSED, MOST_MISSED = 40, 1000


def segment_links(
    segment_text: str, target_text: str, parts: Sequence[TranslatedPart]
) -> list[Link]:
    """Which words of a text belong to which words of its translation, with the weights in [0, 1].

    The parts must have their alignment: raises ValueError where one lacks it.
    """
    source: list[str] = []
    target: list[str] = []
    numbered: list[tuple[int, int, float]] = []
    for part in parts:
        alignment = align_part(part, WORD)
        numbered += [(s + len(source), t + len(target), weight) for s, t, weight in alignment.links]
        source += alignment.source
        target += alignment.target
    sources, targets = word_spans(segment_text, source), word_spans(target_text, target)
    return [
        (first, second, weight)
        for s, t, weight in numbered
        if (first := sources[s]) is not None and (second := targets[t]) is not None
    ]


def word_spans(text: str, words: Sequence[str]) -> list[Span | None]:
    """Where words stand in a text, in their order; None for one that is not found.

    The words are those of a tokenizer, which normalises a text (NFKC; blanks, control characters)
    and may change capitals. So a word that does not stand there as it is may do so in another form.
    """
    folded, owners = "", []
    for i, c in enumerate(text):
        forms = _fold(c)
        folded += forms
        owners += [i] * len(forms)
    spans: list[Span | None] = []
    position, missed = 0, 0  # in the text; characters of words that were not found
    for word in words:
        limit = position + len(word) + missed + MISSED
        start = text.find(word, position, limit)
        end = start + len(word)
        begin = bisect_left(owners, position)
        form = _fold(word)
        near = folded.find(form, begin, begin + len(form) + missed + MISSED) if form else -1
        if near >= 0 and (start < 0 or owners[near] < start):
            start, end = owners[near], owners[near + len(form) - 1] + 1
        if start < 0 or not word:
            spans.append(None)
            missed = min(missed + len(word), MOST_MISSED)
        else:
            spans.append((start, end))
            position, missed = end, 0
    return spans


def _fold(text: str) -> str:
    """What is equal in all forms of a text: no capitals, no blanks, one spelling of accents."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(
        c for c in folded if not (c.isspace() or unicodedata.category(c) in ("Cc", "Cf"))
    )
