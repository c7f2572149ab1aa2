"""A warning about sentences longer than the positions that a model has learned."""

import logging
from collections.abc import Iterable, Sequence

from mt.inference.decoder_only import DecoderOnlyModel
from mt.inference.incremental import InferenceStacks

log = logging.getLogger(__name__)


def warn_of_unlearned_positions(
    models: Sequence[InferenceStacks], lengths: Iterable[tuple[int, int]]
) -> None:
    """Count the sentences that go beyond the learned positions of one of the models, and warn.

    ``lengths`` are those of each source and output, without bos and eos.
    """
    learned = [len(model.learned) for model in models if model.learned is not None]
    if not learned:
        return
    is_one_sequence = isinstance(models[0], DecoderOnlyModel)
    # The position of the last token of the longest sequence, from 0
    last = (sum(pair) + 1 if is_one_sequence else max(pair) for pair in lengths)
    beyond = sum(position >= min(learned) for position in last)
    if beyond:
        log.warning(
            f"{beyond:,} sentence(s) of the input or output go beyond the {min(learned)} "
            "positions that the model has learned: do not trust what comes after them"
        )
