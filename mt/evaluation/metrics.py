"""BLEU, chrF and TER, each with the signature that says how its value came about.

"BLEU" alone names no number, because the preparation of the text decides it. Every score here is
a ``MetricSpec`` with a name of its own.

To add a metric, add its ``MetricSpec`` to the list in ``metric_specs``. The tables of
reports and comparisons show all of that list; the tables by length show only its first two, so
append a new one after TER. To score single sentences with it too, add it to
``sentence_metrics``. A metric that is not on the scale of 100 needs a line in ``is_percentage``.
"""

import importlib.metadata
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import sacremoses
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import estimate_ci

from mt.evaluation.sacrebleu_private import MeanOfScores, score_and_samples

NUM_BOOTSTRAP_SAMPLES = 1000  # sacreBLEU's default


class Score(NamedTuple):
    name: str
    value: float
    signature: str
    interval: float | None = None  # half the width of the 95% confidence interval, if computed


@dataclass(frozen=True)
class MetricSpec:
    """A metric over a whole test set, with everything that decides its value."""

    name: str
    description: str  # shown in reports: when the metric is useful
    new_metric: Callable[[], Metric]  # makes an object of sacreBLEU, which keeps state
    preprocess: Callable[[str], str] | None = None  # changes each line before
    signature_suffix: str = ""  # names the preprocessing in the signature

    def preprocess_lines(self, lines: list[str]) -> list[str]:
        return lines if self.preprocess is None else [self.preprocess(line) for line in lines]

    def full_signature(self, signature: object) -> str:
        """sacreBLEU's signature, followed by the preprocessing."""
        if not self.signature_suffix:
            return str(signature)
        return f"{signature}|pre:{self.signature_suffix}|sacremoses:{sacremoses.__version__}"

    def score(self, hypotheses: list[str], references: list[str]) -> Score:
        """The score of hypotheses against references, line by line.

        Raises ValueError when the two differ in length or are empty.
        """
        metric, lines, reference_lines = self._prepare(hypotheses, references)
        value = metric.corpus_score(lines, [reference_lines]).score
        return Score(self.name, value, self.full_signature(metric.get_signature()))

    def score_with_interval(self, hypotheses: list[str], references: list[str]) -> Score:
        """``score`` with the interval of sacreBLEU's bootstrap over the sentences.

        A single sentence gives no interval: all its samples are alike. Raises ValueError also for
        a SACREBLEU_SEED that sacreBLEU does not accept.
        """
        metric, lines, reference_lines = self._prepare(hypotheses, references)
        count = NUM_BOOTSTRAP_SAMPLES if len(lines) > 1 else 0
        value, samples = score_and_samples(metric, lines, reference_lines, count, bootstrap_seed())
        half_width = float(estimate_ci(np.array(samples))[1]) if samples else None
        return Score(self.name, value, self.full_signature(metric.get_signature()), half_width)

    def _prepare(
        self, hypotheses: list[str], references: list[str]
    ) -> tuple[Metric, list[str], list[str]]:
        if len(hypotheses) != len(references):
            raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references")
        if not hypotheses:
            raise ValueError("nothing to score: no sentences")
        lines, reference_lines = map(self.preprocess_lines, (hypotheses, references))
        return self.new_metric(), lines, reference_lines


def bootstrap_seed() -> int | None:
    """sacreBLEU's seed. Raises ValueError for a SACREBLEU_SEED that sacreBLEU does not accept."""
    seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
    if seed != "none" and not (seed.isdecimal() and int(seed) > 0):
        raise ValueError(f"SACREBLEU_SEED={seed}: must be a whole number above 0, or none")
    return None if seed == "none" else int(seed)


def bootstrap_signature() -> str:
    """Samples and seed of the intervals, as sacreBLEU writes them."""
    return f"bs:{NUM_BOOTSTRAP_SAMPLES}|seed:{str(bootstrap_seed()).lower()}"


def package_version(name: str) -> str:
    """The version of an installed package; "unknown" when only its code is there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# --------------------------------------------------------------------------- the list of metrics

# sacreBLEU's default tokenizer, 13a, takes a sentence without blanks for one word.
_WITHOUT_BLANKS = {"zh": "zh", "ja": "char", "th": "char", "lo": "char", "km": "char", "my": "char"}
_WHOLE_WORDS: dict[str, Any] = {"tokenize": "none", "force": True}  # for text tokenised before


def _bleu_options(target: str, tokenized: bool = False) -> dict[str, Any]:
    """Without a warning of sacreBLEU's about text that looks tokenised."""
    if tokenized:
        return _WHOLE_WORDS
    return {"tokenize": _WITHOUT_BLANKS.get(target, "13a"), "force": True}


def metric_specs(target: str = "de", tokenized: bool = False) -> list[MetricSpec]:
    """All metrics that fit the text and its language, the most important one first.

    ``tokenized`` text is scored as it is, and once more after detokenisation. Compound-split BLEU
    is for German alone.
    """
    chrf = MetricSpec("chrF", "F-score of character n-grams (Popović 2015)", CHRF)
    ter = MetricSpec("TER", "edits for a hundred words: less is better (Snover et al. 2006)", TER)
    if tokenized:
        as_given = MetricSpec(
            "tokenised BLEU, as given",
            "BLEU of the tokens of the file: comparable only between files tokenised alike",
            partial(BLEU, **_WHOLE_WORDS),
        )
        detokenized = MetricSpec(
            "sacreBLEU, detokenised",
            "sacreBLEU after the Moses detokenizer has joined the tokens of both sides",
            partial(BLEU, **_bleu_options(target)),
            Detokenized(target),
            f"detok-moses-{target}",
        )
        return [as_given, chrf, ter, detokenized]
    cased = MetricSpec(
        "sacreBLEU",
        "BLEU of text as people write it (Post 2018): the one to compare between papers",
        partial(BLEU, **_bleu_options(target)),
    )
    lc_tok = MetricSpec(
        "lc-tok BLEU",
        "BLEU of lowercased, normalised, tokenised text: what published Multi30k figures are",
        partial(BLEU, lowercase=True, smooth_method="none", **_WHOLE_WORDS),
        LcNormTok(target),
        f"lc+norm+moses-{target}",
    )
    return [cased, chrf, ter, *([_compound_split()] if target == "de" else []), lc_tok]


def sentence_metrics(target: str = "de", tokenized: bool = False) -> dict[str, Metric]:
    """The metrics of single sentences, by the names that reports use.

    BLEU counts n-grams up to the sentence's own length (effective order); otherwise a sentence of
    fewer than four tokens would always score 0.
    """
    options = _bleu_options(target, tokenized)
    return {"bleu": BLEU(effective_order=True, **options), "chrf": CHRF(), "ter": TER()}


# COMET of texts that are its sentences' scores, for intervals and significance tests.
COMET = MetricSpec(
    "COMET", "a learned score that sees the source too; comparable for one model only", MeanOfScores
)


def is_percentage(name: str) -> bool:
    """Whether a score of this name is on the scale of 100; COMET goes from 0 to 1."""
    return name.lower() != "comet"


def format_score(name: str, value: float, sign: str = "") -> str:
    return f"{value:{sign}.{2 if is_percentage(name) else 4}f}"


def _compound_split() -> MetricSpec:
    """Tokenised BLEU with split compounds, as the paper's English-German results were computed.

    The steps of tensor2tensor's get_ende_bleu.sh: plain punctuation instead of Unicode's, the
    Moses tokenizer for German, hyphenated compounds split at ##AT##-##AT##, BLEU without smoothing.
    """
    return MetricSpec(
        "tokenised BLEU, compound-split",
        "what the paper's 27.3 and 28.4 are; not to be compared with sacreBLEU, usually higher",
        partial(BLEU, smooth_method="none", **_WHOLE_WORDS),
        _CompoundSplitter(),
        "moses-de+at",
    )


# -------------------------------------------------------------------------------------- scoring


def all_scores(
    hypotheses: list[str], references: list[str], target: str = "de", tokenized: bool = False
) -> list[Score]:
    """Every score of a translated test set with its interval, in the order of ``metric_specs``."""
    specs = metric_specs(target, tokenized)
    return [spec.score_with_interval(hypotheses, references) for spec in specs]


def bleu(
    hypotheses: list[str], references: list[str], force: bool = False, target: str = "de"
) -> Score:
    """Cased sacreBLEU over detokenised text (Post 2018): the one to compare between papers.

    sacreBLEU warns of text that looks tokenised unless ``force``; the score is the same. The
    signature names the tokenizer, which is another one where a language has no blanks.
    """
    options = _bleu_options(target) | {"force": force}
    return MetricSpec("sacreBLEU", "", partial(BLEU, **options)).score(hypotheses, references)


def sentence_scores(
    hypotheses: list[str], references: list[str], target: str = "de", tokenized: bool = False
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """By the names of ``sentence_metrics``: the scores of every sentence, and the signatures."""
    metrics = sentence_metrics(target, tokenized)
    scores = {name: sentence_level(m, hypotheses, references) for name, m in metrics.items()}
    return scores, {name: str(metric.get_signature()) for name, metric in metrics.items()}


def sentence_level(metric: Metric, hypotheses: list[str], references: list[str]) -> list[float]:
    """The metric's score of every sentence."""
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(hypothesis, [ref]).score for hypothesis, ref in pairs]


def token_counts(
    hypotheses: list[str], references: list[str], target: str = "de", tokenized: bool = False
) -> tuple[int, int]:
    """Tokens of all hypotheses and of all references, as BLEU counts them."""
    metric = BLEU(**_bleu_options(target, tokenized))
    score = metric.corpus_score(hypotheses, [references])
    return score.sys_len, score.ref_len


def pairwise_chrf(texts: list[str]) -> np.ndarray:
    """[n, n] of n texts: chrF of text i with text j as its reference, from 0 to 100."""
    chrf = CHRF()
    unique = sorted(set(texts))
    table = np.array([[chrf.sentence_score(a, [b]).score for b in unique] for a in unique])
    rows = [unique.index(text) for text in texts]
    return table[np.ix_(rows, rows)]


# -------------------------------------------------------------------------------- forms of text


def looks_tokenized(lines: list[str]) -> bool | None:
    """Whether most full stops at line ends stand alone, as only a tokenizer puts them.

    None when no line ends in a full stop.
    """
    stops = [line for line in lines if line.endswith(".")]
    return sum(line.endswith(" .") for line in stops) > len(stops) / 2 if stops else None


class LcNormTok:
    """Lowercases a line, normalises its punctuation, tokenises and escapes it by Moses' rules.

    The ``lc.norm.tok`` files of Multi30k have this form.
    """

    def __init__(self, lang: str) -> None:
        self._normalizer = sacremoses.MosesPunctNormalizer(lang=lang)
        self._tokenizer = sacremoses.MosesTokenizer(lang=lang)

    def __call__(self, line: str) -> str:
        # Moses' scripts see the line break too: a full stop and a quote before it change places.
        normalized = self._normalizer.normalize(line.lower() + "\n")
        return str(self._tokenizer.tokenize(normalized, return_str=True))


class Detokenized:
    """Joins the tokens of a line into text as people write it, and undoes Moses' escapes."""

    def __init__(self, lang: str) -> None:
        self._detokenizer = sacremoses.MosesDetokenizer(lang=lang)

    def __call__(self, line: str) -> str:
        return str(self._detokenizer.detokenize(line.split()))


class _CompoundSplitter:
    def __init__(self) -> None:
        self._normalizer = sacremoses.MosesPunctNormalizer()
        self._tokenizer = sacremoses.MosesTokenizer(lang="de")

    def __call__(self, line: str) -> str:
        plain = self._normalizer.replace_unicode_punct(line)
        tokens = self._tokenizer.tokenize(plain, return_str=True, escape=False)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens)
