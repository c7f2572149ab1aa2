"""The gate that every export goes through: its own engine must translate as our model does."""

from collections.abc import Sequence
from typing import Any, Protocol

from mt.data.special_ids import EOS
from mt.evaluation.metrics import bleu
from mt.inference.options import MAX_EXTRA, SearchOptions
from mt.inference.translator import Translator

BATCH = 25  # sentences
WITHIN = 0.3  # BLEU that a reduced precision may be better or worse
LIKE = 80.0  # BLEU of its translations with ours as references: a poor model's are poor alike


class Engine(Protocol):
    """An export as its own engine runs it."""

    computes_in: str  # float32, ...

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids without eos."""

    def greedy(self, sources: Sequence[list[int]]) -> list[list[int]]:
        """Greedy output of each source, eos left out of both."""

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Texts."""


class Difference(ValueError):
    """An export is not its model; the message says where the first difference lies."""


def check(
    translator: Translator,
    engine: Engine,
    sources: Sequence[str],
    references: Sequence[str],
    exact: bool,
) -> dict[str, Any]:
    """What both make of the sources, as a report. Raises Difference when it is not the same.

    ``exact``: every greedy token must be ours. Else BLEU must be within WITHIN of ours, and the
    translations like ours (LIKE). Sources are no longer than the model's max_length.
    """
    ids = translator.tokenizer.encode(list(sources))
    for line, (a, b) in enumerate(zip(ids, engine.encode(sources), strict=True), 1):
        if a != b:
            raise Difference(
                f"sentence {line}, {sources[line - 1]!r}: its tokenizer gives "
                f"{translator.tokenizer.pieces(b)}, ours {translator.tokenizer.pieces(a)}"
            )
    ours: list[list[int]] = []
    theirs: list[list[int]] = []
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        found = translator.search(batch, SearchOptions(beam_size=1), [[] for _ in batch])
        ours += [hypotheses[0].ids for hypotheses in found]
        outputs = zip(batch, engine.greedy(batch), strict=True)
        theirs += [output[: len(source) + MAX_EXTRA] for source, output in outputs]
    texts = [translator.tokenizer.decode(each) for each in (ours, theirs)]
    for output, a_text, b_text in zip(theirs, texts[1], engine.decode(theirs), strict=True):
        if a_text.split() != b_text.split():
            spelled = translator.tokenizer.pieces(output)
            raise Difference(f"{spelled} is {b_text!r} by its tokenizer, {a_text!r} by ours")
    differing = [i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    scores = [bleu(each, list(references)) for each in texts]
    likeness = bleu(texts[1], texts[0]).value if differing else 100.0
    apart = abs(scores[1].value - scores[0].value) > WITHIN or likeness < LIKE
    if differing and (exact or apart):
        raise Difference(
            f"{len(differing)} of {len(ids)} sentences are translated otherwise, "
            f"BLEU {scores[1].value:.2f}, ours {scores[0].value:.2f}, "
            f"of one against the other {likeness:.1f}; "
            + first_difference(translator, sources, ours, theirs, differing[0])
        )
    return {
        "sentences": len(ids),
        "computed in": engine.computes_in,
        "equal greedy outputs": len(ids) - len(differing),
        "BLEU of ours": round(scores[0].value, 3),
        "BLEU of the export": round(scores[1].value, 3),
        "BLEU of one against the other": round(likeness, 3),
        "signature": scores[0].signature,
        "passed by": "equal tokens" if exact else f"BLEU within {WITHIN}",
    }


def first_difference(
    translator: Translator,
    sources: Sequence[str],
    ours: Sequence[list[int]],
    theirs: Sequence[list[int]],
    i: int,
) -> str:
    """Sentence, token and what each engine says there."""
    eos = [translator.tokenizer.pieces([*ids, EOS]) for ids in (ours[i], theirs[i])]
    at = next(j for j, pair in enumerate(zip(*eos, strict=False)) if pair[0] != pair[1])
    return (
        f"first in sentence {i + 1}, {sources[i]!r}, token {at + 1}, "
        f"behind {' '.join(eos[0][:at])!r}: {eos[1][at]!r}, ours {eos[0][at]!r}"
    )
