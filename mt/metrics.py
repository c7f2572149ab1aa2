"""BLEU, chrF and TER, each with the signature that says which one it is."""

import re
from typing import NamedTuple

import numpy as np
import sacrebleu.metrics
import sacremoses


class Score(NamedTuple):
    name: str
    value: float
    signature: str


def bleu(hypotheses: list[str], references: list[str]) -> Score:
    """Cased sacreBLEU over detokenised text (Post 2018): the one to compare between papers.

    This and every other score raises ValueError when the two lists differ in length or are empty.
    """
    return _score("sacreBLEU", sacrebleu.metrics.BLEU(), hypotheses, references)


def all_scores(hypotheses: list[str], references: list[str], german: bool = True) -> list[Score]:
    """Every score of a translated test set, sentence i of the one against i of the other.

    The compound-split BLEU is among them only when the target language is ``german``.
    """
    scores = [
        bleu(hypotheses, references),
        _score("chrF", sacrebleu.metrics.CHRF(), hypotheses, references),
        _score("TER", sacrebleu.metrics.TER(), hypotheses, references),
    ]
    return [*scores, compound_split_bleu(hypotheses, references)] if german else scores


def pairwise_chrf(texts: list[str]) -> np.ndarray:
    """chrF of text i when text j is its reference: [i, j], from 0 to 100."""
    chrf = sacrebleu.metrics.CHRF()
    different = sorted(set(texts))
    table = np.array([[chrf.sentence_score(a, [b]).score for b in different] for a in different])
    which = [different.index(text) for text in texts]
    return table[np.ix_(which, which)]


def compound_split_bleu(hypotheses: list[str], references: list[str]) -> Score:
    """Tokenised BLEU with compounds split, as the paper's English-German results were computed.

    Steps of tensor2tensor's get_ende_bleu.sh: plain punctuation for Unicode's, the Moses
    tokenizer for German, hyphenated compounds split at ##AT##-##AT##, BLEU without smoothing.
    On newstest2014 it comes out higher than cased sacreBLEU; the two must not be compared.
    """
    split = _CompoundSplitter()
    metric = sacrebleu.metrics.BLEU(tokenize="none", smooth_method="none", force=True)
    score = _score(
        "tokenised BLEU, compound-split",
        metric,
        [split(line) for line in hypotheses],
        [split(line) for line in references],
    )
    return score._replace(
        signature=f"{score.signature}|pre:moses-de+at|sacremoses:{sacremoses.__version__}"
    )


class _CompoundSplitter:
    def __init__(self) -> None:
        self._normalizer = sacremoses.MosesPunctNormalizer()
        self._tokenizer = sacremoses.MosesTokenizer(lang="de")

    def __call__(self, line: str) -> str:
        plain = self._normalizer.replace_unicode_punct(line)
        tokens = self._tokenizer.tokenize(plain, return_str=True, escape=False)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens)


def _score(
    name: str, metric: sacrebleu.metrics.base.Metric, hypotheses: list[str], references: list[str]
) -> Score:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references")
    if not hypotheses:
        raise ValueError("nothing to score: no sentences")
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(name, value, str(metric.get_signature()))
