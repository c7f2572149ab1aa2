"""The parts of sacreBLEU's private interface that are used agree with the public one."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, estimate_ci

from mt.evaluation.sacrebleu_private import MeanOfScores, score_and_samples

HYPOTHESES = ["der Hund schläft heute nicht", "das Haus ist groß", "ja", "er fährt nach Hause"]
REFERENCES = ["der Hund schläft jetzt nicht", "das Haus ist klein", "ja", "er fuhr nach Hause"]


@pytest.mark.parametrize("kind", [BLEU, CHRF, TER])
def test_samples_are_those_of_the_public_bootstrap(
    kind: type[Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    score, samples = score_and_samples(kind(), HYPOTHESES, REFERENCES, 500, seed=7)
    public = kind().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=500)
    assert score == public.score
    mean, half_width = estimate_ci(np.array(samples))
    assert f"μ = {mean:.3f} ± {half_width:.3f}" in public.format(width=3)
    assert len(samples) == 500
    other = score_and_samples(kind(), HYPOTHESES, REFERENCES, 500, seed=8)
    assert other[0] == score
    assert other[1] != samples


def test_no_samples_are_a_score_alone() -> None:
    score, samples = score_and_samples(CHRF(), HYPOTHESES, REFERENCES, 0, seed=None)
    assert (score, samples) == (CHRF().corpus_score(HYPOTHESES, [REFERENCES]).score, [])


def test_a_sample_without_any_score_is_no_error() -> None:
    """chrF of empty texts: sacreBLEU's bootstrap fails at them."""
    _, samples = score_and_samples(CHRF(), ["", "ja"], ["", "ja"], 50, seed=1)
    assert set(samples) == {0, 100}


def test_the_mean_of_scores_is_a_metric_of_the_significance_test() -> None:
    a, b = [["0.5", "0.25", "0.75"], ["0.5", "0.5", "0.8"]]
    assert MeanOfScores().corpus_score(a, [a]).score == pytest.approx(0.5)
    assert MeanOfScores().sentence_score("0.25", ["0.25"]).score == 0.25
    systems = [("A", a), ("B", b)]
    test = PairedTest(systems, {"mean": MeanOfScores()}, [a], test_type="bs", n_samples=200)
    _, scores = test()
    [results] = [scores[name] for name in scores if name != "System"]
    assert [result.score for result in results] == pytest.approx([0.5, 0.6])
    assert results[1].mean == pytest.approx(0.6, abs=0.02)
    assert 0 < results[1].p_value < 1
