"""Minimum Bayes risk: the translation that is most like what else the model would say."""

from collections.abc import Sequence

import numpy as np

from mt.inference.options import SearchOptions
from mt.inference.sentence_search import Hypothesis


def by_risk(
    hypotheses: Sequence[Hypothesis], texts: Sequence[str], options: SearchOptions
) -> list[Hypothesis]:
    """The ``n_best`` hypotheses by the expected chrF of their texts, best first.

    Kumar and Byrne 2004. Samples weigh equally in the expectation; members of an n-best list weigh
    by the probabilities that the model gives them.
    """
    from mt.evaluation.metrics import pairwise_chrf  # sacreBLEU would delay every start

    log_probs = np.array([hypothesis.log_prob for hypothesis in hypotheses])
    weights = np.exp(log_probs - log_probs.max())
    if options.samples:
        weights = np.ones(len(hypotheses))
    expected = pairwise_chrf(list(texts)) @ (weights / weights.sum())
    order = np.argsort(-expected, kind="stable")[: options.n_best]
    return [hypotheses[i] for i in order]
