"""All that happens when a sentence is translated, as data: what ``Translator.inspect`` returns."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from mt.data.special_ids import EOS
from mt.data.tokenizer import Tokenizer
from mt.inference import beam_search, search_tree
from mt.inference.alignment import Aligner, Alignment, align, soft_alignment
from mt.inference.incremental import InferenceModel
from mt.inference.options import SearchOptions
from mt.inference.search_tree import SearchTree
from mt.inference.sentence_search import Hypothesis
from mt.inference.trace import Trace, trace
from mt.utils.checks import short_repr


class Inspection(NamedTuple):
    """A source and a target, what the model computes for them, and how it searches."""

    source: list[int]  # ids with eos
    target: list[int]  # ids with eos, of the best translation or of a given one
    hypothesis: Hypothesis  # the target's log P and score
    trace: Trace
    options: SearchOptions
    tree: SearchTree
    greedy: Hypothesis
    aligner: Aligner
    alignment: Alignment


def inspect(
    model: InferenceModel,
    tokenizer: Tokenizer,
    max_length: int,
    aligner: Aligner,
    sentence: str,
    target: str | None,
    prefix: str,
    options: SearchOptions,
) -> Inspection:
    """Translate a sentence as one input and keep everything: see ``Translator.inspect``."""
    source = _encode(tokenizer.encode, "sentence", sentence, max_length)
    target_ids = (
        target if target is None else _encode(tokenizer.encode_target, "target", target, max_length)
    )
    start = _encode(tokenizer.encode_target, "prefix", prefix, max_length) if prefix else []
    if options.mbr:
        raise ValueError("minimum Bayes risk ranks what the search has found: leave out mbr")
    src = torch.tensor([[*source, EOS]], device=model.device)
    tree = search_tree.record(model, src, options, start)
    one_at_a_time = SearchOptions(beam_size=1, alpha=options.alpha)
    [[greedy]] = beam_search.search(model, src, one_at_a_time, [start])
    shown = tree.hypotheses[0]
    if target_ids is not None:
        [shown] = beam_search.score(model, src, [target_ids], options.alpha)
    source_ids, shown_ids = [*source, EOS], [*shown.ids, EOS]
    model_trace = trace(model, source_ids, shown_ids)
    if not model_trace.logits.isfinite().all():
        raise ValueError("the model's logits are not numbers: nothing to look into")
    soft = soft_alignment(model_trace.weights["cross"], aligner)
    alignment = align(soft, tokenizer.pieces(source), tokenizer.pieces(shown.ids))
    return Inspection(
        source_ids, shown_ids, shown, model_trace, options, tree, greedy, aligner, alignment
    )


def _encode(
    encode: Callable[[list[str]], list[list[int]]], name: str, text: str, max_length: int
) -> list[int]:
    if not isinstance(text, str):
        raise TypeError(f"{name}: must be a string, not {type(text).__name__}")
    [ids] = encode([text])
    if not ids:
        raise ValueError(f"{name}={short_repr(text)}: there is nothing to look into")
    if len(ids) > max_length:
        raise ValueError(
            f"{name}: {len(ids)} pieces, more than the {max_length} that the model was trained on: "
            "give a shorter one"
        )
    return ids
