"""The gate that every export must pass: its own engine must translate as our model does."""

from collections.abc import Sequence
from typing import Any, Protocol

from mt.data.special_ids import EOS
from mt.data.tokenizer import printable_bytes
from mt.evaluation.metrics import bleu
from mt.inference.options import MAX_EXTRA, SearchOptions
from mt.inference.translator import Translator

BATCH_SIZE = 25  # sentences
MAX_BLEU_DIFFERENCE = 0.3  # by which a reduced precision may be better or worse
# BLEU of its translations with ours as references. A poor model needs it: any output is as poor.
MIN_LIKENESS = 80.0


class ExportEngine(Protocol):
    """An export as its own engine runs it."""

    computes_in: str  # float32, ...

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids without eos."""

    def greedy(self, sources: Sequence[list[int]]) -> list[list[int]]:
        """The greedy output of each source, both without eos."""

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Texts."""


class Difference(ValueError):
    """An export differs from its model; the message says where the first difference lies."""


def check(
    translator: Translator,
    engine: ExportEngine,
    sources: Sequence[str],
    references: Sequence[str],
    exact: bool,
) -> dict[str, Any]:
    """Translate the sources with both; the results for parity.json.

    If ``exact``, every greedy token must be equal. Otherwise BLEU may differ by
    MAX_BLEU_DIFFERENCE, and the translations must be as alike as MIN_LIKENESS. No source may be
    longer than the model's max_length. Raises Difference.
    """
    tokenizer = translator.tokenizer
    ids = tokenizer.encode(list(sources))
    for line, (ours, theirs) in enumerate(zip(ids, engine.encode(sources), strict=True), 1):
        if ours != theirs:
            raise Difference(
                f"sentence {line}, {sources[line - 1]!r}: its tokenizer gives "
                f"{tokenizer.pieces(theirs)}, ours {tokenizer.pieces(ours)}"
            )
    expected: list[list[int]] = []
    outputs: list[list[int]] = []
    for start in range(0, len(ids), BATCH_SIZE):
        batch = ids[start : start + BATCH_SIZE]
        results = translator.search(batch, SearchOptions(beam_size=1), [[] for _ in batch])
        expected += [hypotheses[0].ids for hypotheses in results]
        pairs = zip(batch, engine.greedy(batch), strict=True)
        outputs += [output[: len(source) + MAX_EXTRA] for source, output in pairs]
    expected_texts, texts = tokenizer.decode(expected), tokenizer.decode(outputs)
    for output, text, engine_text in zip(outputs, texts, engine.decode(outputs), strict=True):
        if printable_bytes(text).split() != printable_bytes(engine_text).split():
            spelled = tokenizer.pieces(output)
            raise Difference(f"{spelled} is {engine_text!r} by its tokenizer, {text!r} by ours")
    rows = zip(expected, outputs, strict=True)
    differing = [i for i, (ours, theirs) in enumerate(rows) if ours != theirs]
    own_bleu, engine_bleu = (bleu(lines, list(references)) for lines in (expected_texts, texts))
    likeness = bleu(texts, expected_texts).value if differing else 100.0
    far = abs(engine_bleu.value - own_bleu.value) > MAX_BLEU_DIFFERENCE or likeness < MIN_LIKENESS
    if differing and (exact or far):
        i = differing[0]
        raise Difference(
            f"{len(differing)} of {len(ids)} sentences are translated differently, "
            f"BLEU {engine_bleu.value:.2f}, ours {own_bleu.value:.2f}, "
            f"of one against the other {likeness:.1f}; first in sentence {i + 1}, {sources[i]!r}, "
            + _first_difference(translator, expected[i], outputs[i])
        )
    return {
        "sentences": len(ids),
        "computed in": engine.computes_in,
        "equal greedy outputs": len(ids) - len(differing),
        "different outputs": len(set(texts)),
        "BLEU of ours": round(own_bleu.value, 3),
        "BLEU of the export": round(engine_bleu.value, 3),
        "BLEU of one against the other": round(likeness, 3),
        "signature": own_bleu.signature,
        "passed by": "equal tokens" if exact else f"BLEU within {MAX_BLEU_DIFFERENCE}",
    }


def _first_difference(translator: Translator, expected: list[int], output: list[int]) -> str:
    """The first token that differs, and the tokens before it."""
    ours, theirs = (translator.tokenizer.pieces([*ids, EOS]) for ids in (expected, output))
    at = next(j for j, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y)
    return f"token {at + 1}, after {' '.join(ours[:at])!r}: {theirs[at]!r}, ours {ours[at]!r}"
