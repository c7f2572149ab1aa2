"""What the search gave for an input, as text.

Shapes: N layers, h heads, T target tokens and S source tokens, eos counted in both.
"""

import logging
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from mt.data.tokenizer import Tokenizer
from mt.inference.alignment import Aligner, soft_alignment
from mt.inference.confidence import Calibration, confidence
from mt.inference.inputs import Input
from mt.inference.sentence_search import Hypothesis
from mt.inference.terms import text_with_terms
from mt.inference.translation import TranslatedPart, Translation

log = logging.getLogger(__name__)

# Marks such as !!! at the end of a source, and what a translation has there
_MARKS = re.compile(r"(?<![!?])[!?]{2,}(?=[\"'”’»]{0,3}\s*\Z)")
# A mark after an emoji, which the model omits; U+FE0F asks for the coloured picture
_AFTER_SIGN = re.compile(r"([^\w\s])(\ufe0f?)([.!?])\s*\Z")
_QUOTES = "\"'“‘”’«»„"
_END = re.compile(r"(?<![!?.…])[!?.…]{0,50}([\"'“‘”’«»]{0,3})\.?\Z")


class Output(NamedTuple):
    input: Input
    hypotheses: list[Hypothesis]  # best first
    attention: Tensor | None  # [N, h, T, S] of the best hypothesis
    alignment: Tensor | None = None  # [T, S], where the attention is not kept


def texts(ids: list[list[int]], tokenizer: Tokenizer) -> list[str]:
    """The text of each list of ids, in one line: a vocabulary may hold line breaks."""
    return [" ".join(text.split()) for text in tokenizer.decode(ids)]


def output_text(output: Output, ids: list[int], tokenizer: Tokenizer) -> str:
    """The text of one of an output's hypotheses, its terms written as they must be."""
    terms, all_caps = output.input.terms, output.input.all_caps
    text, prefix = texts([ids, output.input.prefix], tokenizer)
    all_caps = all_caps and prefix == prefix.upper()  # else it begins with the prefix as it is
    stray = "" if terms is None else "".join(set(text) & terms.stray)
    if stray and terms is not None and terms.are_kept:
        # What is kept may have such signs, also where the model spells it in other pieces.
        rest = terms.rest_of(text, all_caps)
        stray = stray if rest is None else "".join(set(rest) & terms.stray)
    if terms is not None and (terms.rewrite or all_caps or stray):
        text = text_with_terms(ids, terms, tokenizer, all_caps, stray)
    elif all_caps:
        text = text.upper()
    is_continued = not output.input.ids  # its text is the beginning of the output
    return text if is_continued else _with_marks_of(output.input.text, text)


def _with_marks_of(source: str, text: str) -> str:
    """The text with the source's !!!, its ellipses, which NFKC turns into three dots, and its mark
    after an emoji.
    """
    if "…" in source and "..." not in source:
        text = text.replace("...", "…")
    if marks := _MARKS.search(source):
        end = _END.search(text)
        is_of_quote = source[marks.end() :].strip() and source.lstrip()[:1] not in _QUOTES
        if end and (end[1] or not is_of_quote):  # else they do not belong to the end
            text = text[: end.start()] + marks[0] + end[1]
    elif (end := _AFTER_SIGN.search(source)) and unicodedata.category(end[1]) in ("So", "Sk"):
        text += end[3] if text.endswith(end[1] + end[2]) else ""
    return _with_inner_quotes(text)


def _with_inner_quotes(text: str) -> str:
    """German quotes within quotes: „so ‚und so‘“. The model writes all of them alike."""
    depth, signs = 0, []
    for sign in text if text.count("„") > 1 else "":
        depth += sign == "„"
        signs.append({"„": "‚", "“": "‘"}.get(sign, sign) if depth > 1 else sign)
        depth -= sign == "“"
        if depth < 0:
            return text
    return "".join(signs) if signs and depth == 0 else text


def _with_items(output: Output, tokenizer: Tokenizer) -> list[Hypothesis]:
    """The best hypothesis, and of the others those that have what is kept of the source."""
    best, *others = output.hypotheses
    terms, any_case = output.input.terms, output.input.all_caps
    if terms is None or not terms.are_kept or not others:
        return output.hypotheses
    others_texts = texts([other.ids for other in others], tokenizer)
    pairs = zip(others, others_texts, strict=True)
    return [best, *(other for other, text in pairs if terms.rest_of(text, any_case) is not None)]


def translated_part(
    output: Output,
    text: str,
    tokenizer: Tokenizer,
    find_aligner: Callable[[], Aligner],
    calibration: Calibration | None,
) -> TranslatedPart:
    """The best hypothesis and its ``text``. ``find_aligner`` is called if there is attention."""
    source, (best, *_), attention, alignment = output
    if attention is not None:
        alignment = soft_alignment(attention, find_aligner())
    pieces = [tuple(tokenizer.pieces(ids)) for ids in (source.ids, best.ids)]
    sure = confidence(calibration, best.token_log_probs, len(source.ids))
    return TranslatedPart(
        source=pieces[0],
        output=pieces[1],
        log_probs=best.token_log_probs,
        attention=attention,
        alignment=alignment,
        confidence=sure,
        text=text,
        before=source.before,
        apart=source.apart,
    )


def unchanged(line: str) -> str:
    """A line that is not translated, in one line."""
    return " ".join(line.splitlines()).rstrip()


def join(
    line: str,
    outputs: Sequence[Output],
    tokenizer: Tokenizer,
    find_aligner: Callable[[], Aligner],
    calibration: Calibration | None,
) -> Translation:
    """The translation of a line from those of its inputs; without any it stays as it is."""
    if not outputs:
        is_blank = not any(c.isprintable() and not c.isspace() for c in line)
        text = "" if is_blank else unchanged(line)
        return Translation(line, text, 0.0, 0, ((text, 0.0),))
    ranks = list(zip(*(_with_items(output, tokenizer) for output in outputs), strict=False))
    part_texts = [
        [output_text(o, h.ids, tokenizer) for o, h in zip(outputs, hypotheses, strict=True)]
        for hypotheses in ranks
    ]
    scores = [sum(h.score for h in hypotheses) / len(hypotheses) for hypotheses in ranks]
    befores = [output.input.before for output in outputs]
    lines = ["".join(map("".join, zip(befores, parts, strict=True))) for parts in part_texts]
    n_best = tuple(zip(lines, scores, strict=True))
    translated_parts = tuple(
        translated_part(output, text, tokenizer, find_aligner, calibration)
        for output, text in zip(outputs, part_texts[0], strict=True)
    )
    if any(math.isnan(output.hypotheses[0].score) for output in outputs):
        log.warning(f"the model's logits are not numbers: no translation of {line[:30]!r}")
    tokens = sum(len(part.output) + 1 for part in translated_parts)
    return Translation(line, lines[0], scores[0], tokens, n_best, translated_parts)
