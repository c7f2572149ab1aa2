"""A translation as the JSON object that is printed for it."""

import math
from typing import Any

from mt.inference.alignment import line_links
from mt.inference.translation import TranslatedPart, Translation
from mt.utils.json_io import json_number


def translation_record(
    result: Translation,
    *,
    log_prob: bool = False,
    n_best: bool = False,
    align: bool = False,
    tokens: bool = False,
    attention: bool = False,
) -> dict[str, Any]:
    """Source, translation, score and confidence, and what else is asked for.

    ``align`` and ``attention`` need a translation with attention.
    """
    record: dict[str, Any] = {"source": result.source, "translation": result.text}
    record["score"] = json_number(result.score)
    if not math.isnan(result.confidence):  # another engine gives no log P
        record["confidence"] = round(result.confidence, 4)
    if log_prob:
        record["log_prob"] = json_number(result.log_prob)
    if n_best:
        record["n_best"] = [{"translation": t, "score": json_number(s)} for t, s in result.n_best]
    if align:
        record["alignment"] = line_links(result.parts)
    if tokens or attention:
        record["parts"] = [_part_record(part, attention) for part in result.parts]
    return record


def _part_record(part: TranslatedPart, attention: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "source": [*part.source, "</s>"],
        "translation": [*part.output, "</s>"],
        "log_probs": [json_number(round(log_prob, 6)) for log_prob in part.log_probs],
    }
    if attention and part.attention is not None:  # the mean over layers and heads: [T, S]
        rows = part.attention.mean(dim=(0, 1)).tolist()
        record["attention"] = [[json_number(round(w, 4)) for w in row] for row in rows]
    return record
