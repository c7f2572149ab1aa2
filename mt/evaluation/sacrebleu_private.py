"""All that this package uses of sacreBLEU's private interface, and why the public one does not do.

A metric of sacreBLEU turns each sentence into statistics (counts of n-grams, of edits, ...) and
their sum into a score. Only private methods give access to the two steps.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score


def score_and_samples(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[str],
    num_samples: int,
    seed: int | None,
) -> tuple[float, list[float]]:
    """A metric's corpus score, and its scores on ``num_samples`` bootstrap samples of sentences.

    The public ``corpus_score(..., n_bootstrap=...)`` draws the same samples, but it holds all of
    them at once (7 GB for chrF of 100,000 sentences), and it fails when a sample has no chrF.
    """
    rng = np.random.default_rng(seed)
    statistics = metric._extract_corpus_statistics(hypotheses, [references])
    score = metric._aggregate_and_compute(statistics).score
    table, n = np.array(statistics, dtype=np.float64), len(statistics)
    samples = [
        metric._compute_score_from_stats(table[rng.choice(n, n)].sum(0)).score
        for _ in range(num_samples)
    ]
    return score, samples


class MeanOfScores(Metric):
    """A metric for sacreBLEU's significance tests: the mean of scores that exist already.

    Each "hypothesis" is the text of its sentence's score, references are ignored. The public
    interface has no metric of one's own: these abstract methods are how sacreBLEU's are written.
    """

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return [float(hypothesis), 1.0]

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        return Score("mean", float(stats[0] / stats[1]))

    def _aggregate_and_compute(self, stats: list[list[Any]]) -> Any:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])
