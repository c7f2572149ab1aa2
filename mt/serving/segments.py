"""The pieces of a translation, their log-probabilities and alignment, as JSON."""

import re
from collections.abc import Sequence
from typing import Any

from mt.inference import sentence_splitter
from mt.inference.translation import TranslatedPart, Translation
from mt.utils.json_io import json_number


def line_record(line: Translation, split: bool, tokens: bool) -> dict[str, Any]:
    """The segments of a line: what the model translated at once, or text that stays as it is."""
    rows = list(zip(line.parts, _sources(line, split), strict=True))
    if line.text and not rows:
        rows = [(TranslatedPart((), (), (), confidence=line.confidence, text=line.text), line.text)]
    return {"segments": [_segment_record(part, source, tokens) for part, source in rows]}


def _segment_record(part: TranslatedPart, source: str, tokens: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "before": part.before,
        "source": source,
        "text": part.text,
        "log_prob": rounded(sum(part.log_probs)),
        "confidence": rounded(part.confidence),
        "source_pieces": part.source,
        "pieces": part.output,
    }
    if tokens:
        record["log_probs"] = [rounded(value) for value in part.log_probs]
    if part.alignment is not None:  # T rows of S weights
        rows = part.alignment.tolist()
        record["alignment"] = [[json_number(round(w, 4)) for w in row] for row in rows]
    return record


def rounded(value: float) -> float | None:
    """A number for JSON."""
    return json_number(round(value, 6))


def _sources(line: Translation, split: bool) -> list[str]:
    """The source of each segment: as it was typed, or of a part of a long sentence its pieces."""
    rows = sentence_splitter.sentences_of_line(line.source) if split else [("", line.source)]
    typed = [sentence for _, sentence in rows]
    typed = [sentence.strip() for sentence in typed if sentence.strip() and line.parts]
    return typed if len(typed) == len(line.parts) else [_spell(p.source) for p in line.parts]


def _spell(pieces: Sequence[str]) -> str:
    """The text of pieces, some of which may be single bytes."""
    text = re.sub(
        r"(?:<0x[0-9A-F]{2}>)+",
        lambda run: bytes.fromhex(re.sub("<0x|>", "", run[0])).decode("utf-8", "replace"),
        "".join(pieces),
    )
    return " ".join(text.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").split())
