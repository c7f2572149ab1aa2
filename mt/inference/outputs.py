"""What the search gave for an input, as text.

Shapes: N layers, h heads, T target tokens and S source tokens, eos counted in both.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from mt.data.tokenizer import Tokenizer
from mt.inference.alignment import Aligner, soft_alignment
from mt.inference.confidence import Calibration, confidence
from mt.inference.inputs import Input
from mt.inference.sentence_search import Hypothesis
from mt.inference.terms import written
from mt.inference.translation import Segment


class Output(NamedTuple):
    input: Input
    hypotheses: list[Hypothesis]  # best first
    attention: Tensor | None  # [N, h, T, S] of the best hypothesis


def texts(ids: list[list[int]], tokenizer: Tokenizer) -> list[str]:
    """The text of each list of ids, in one line: a vocabulary may hold line breaks."""
    return [" ".join(text.split()) for text in tokenizer.decode(ids)]


def output_text(output: Output, ids: list[int], tokenizer: Tokenizer) -> str:
    """The text of one of an output's hypotheses, its terms written as they must be."""
    terms, all_caps = output.input.terms, output.input.all_caps
    (text,) = texts([ids], tokenizer)
    stray = "" if terms is None else "".join(set(text) & terms.stray)
    if terms is not None and (terms.rewrite or all_caps or stray):
        return written(ids, terms, tokenizer, all_caps, stray)
    return text.upper() if all_caps else text


def segment(
    output: Output,
    text: str,
    tokenizer: Tokenizer,
    find_aligner: Callable[[], Aligner],
    calibration: Calibration | None,
) -> Segment:
    """The best hypothesis and its ``text``. ``find_aligner`` is called if there is attention."""
    source, (best, *_), attention = output
    alignment = None if attention is None else soft_alignment(attention, find_aligner())
    pieces = [tuple(tokenizer.pieces(ids)) for ids in (source.ids, best.ids)]
    sure = confidence(calibration, best.token_log_probs, len(source.ids))
    return Segment(pieces[0], pieces[1], best.token_log_probs, attention, alignment, sure, text)
