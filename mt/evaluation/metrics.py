"""BLEU, chrF, TER and COMET, each with the signature that says which one it is.

"BLEU" alone names no number: what was done to the text decides it. Every score here is a
``Measure``, which knows that, under a name of its own.
"""

import contextlib
import hashlib
import importlib.metadata
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sacremoses
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as Found
from sacrebleu.significance import estimate_ci


def package_version(name: str) -> str:
    """Of an installed package; "unknown" when its code is there alone."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


SAMPLES = 1000  # of the bootstrap, sacreBLEU's default


class Score(NamedTuple):
    name: str
    value: float
    signature: str
    interval: float | None = None  # half the width of the 95% one, where it was asked for


@dataclass(frozen=True)
class MetricSpec:
    """A score over a whole test set, with all that decides its value."""

    name: str
    about: str  # for people: what it is good for
    metric: Callable[[], Metric]  # a new one of sacreBLEU's
    prepare: Callable[[str], str] | None = None  # what is done to each line before
    signature_suffix: str = ""  # how the signature tells of that

    def texts(self, lines: list[str]) -> list[str]:
        return lines if self.prepare is None else [self.prepare(line) for line in lines]

    def full_signature(self, signature: object) -> str:
        """sacreBLEU's signature, and what was done to the text before."""
        if not self.signature_suffix:
            return str(signature)
        return f"{signature}|pre:{self.signature_suffix}|sacremoses:{sacremoses.__version__}"

    def score(self, hypotheses: list[str], references: list[str]) -> Score:
        """Sentence i of the one against i of the other.

        Raises ValueError when the two differ in length or are empty.
        """
        _check_lengths(hypotheses, references)
        metric = self.metric()
        value = metric.corpus_score(self.texts(hypotheses), [self.texts(references)]).score
        return Score(self.name, value, self.full_signature(metric.get_signature()))

    def with_interval(self, hypotheses: list[str], references: list[str]) -> Score:
        """``score`` with its interval; one sentence's samples are all alike and give none.

        The samples of sacreBLEU's bootstrap, one at a time: it holds all at once, for chrF of
        100,000 sentences 7 GB, and fails where some have no chrF. Raises ValueError for a
        SACREBLEU_SEED that it does not take.
        """
        _check_lengths(hypotheses, references)
        metric, rng = self.metric(), np.random.default_rng(bootstrap_seed())
        counts = metric._extract_corpus_statistics(self.texts(hypotheses), [self.texts(references)])
        value = metric._aggregate_and_compute(counts).score
        table, n = np.array(counts, dtype=np.float64), len(counts)
        samples = [
            metric._compute_score_from_stats(table[rng.choice(n, n)].sum(0)).score
            for _ in range(SAMPLES if n > 1 else 0)
        ]
        half = float(estimate_ci(np.array(samples))[1]) if samples else None
        return Score(self.name, value, self.full_signature(metric.get_signature()), half)


def _check_lengths(hypotheses: list[str], references: list[str]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references")
    if not hypotheses:
        raise ValueError("nothing to score: no sentences")


def bootstrap_seed() -> int | None:
    """sacreBLEU's. Raises ValueError for a SACREBLEU_SEED that it does not take as one."""
    seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
    if seed != "none" and not (seed.isdecimal() and int(seed) > 0):
        raise ValueError(f"SACREBLEU_SEED={seed}: must be a whole number above 0, or none")
    return None if seed == "none" else int(seed)


def bootstrap_signature() -> str:
    """Of the intervals, as sacreBLEU writes it."""
    return f"bs:{SAMPLES}|seed:{str(bootstrap_seed()).lower()}"


# ------------------------------------------------------------------------------- what is scored

_WHOLE_WORDS: dict[str, Any] = {"tokenize": "none", "force": True}  # tokenised before


def metric_specs(target: str = "de", tokenized: bool = False) -> list[MetricSpec]:
    """All that fit the text and its language; the first is the one to look at first.

    ``tokenized`` text is scored as it is, and once more with its tokens put together again. The
    compound-split BLEU is for German alone.
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
            "sacreBLEU when Moses has put the tokens of both sides together again",
            partial(BLEU, force=True),
            Detokenized(target),
            f"detok-moses-{target}",
        )
        return [as_given, chrf, ter, detokenized]
    plain = MetricSpec(
        "sacreBLEU",
        "BLEU of text as people write it (Post 2018): the one to compare between papers",
        partial(BLEU, force=True),
    )
    lc_tok = MetricSpec(
        "lc-tok BLEU",
        "BLEU of lowercased, normalised, tokenised text: what published Multi30k figures are",
        partial(BLEU, lowercase=True, smooth_method="none", **_WHOLE_WORDS),
        LcNormTok(target),
        f"lc+norm+moses-{target}",
    )
    return [plain, chrf, ter, *([_compound_split()] if target == "de" else []), lc_tok]


def _compound_split() -> MetricSpec:
    """Tokenised BLEU with compounds split, as the paper's English-German results were computed.

    Steps of tensor2tensor's get_ende_bleu.sh: plain punctuation for Unicode's, the Moses
    tokenizer for German, hyphenated compounds split at ##AT##-##AT##, BLEU without smoothing.
    """
    return MetricSpec(
        "tokenised BLEU, compound-split",
        "what the paper's 27.3 and 28.4 are; not to be compared with sacreBLEU, usually higher",
        partial(BLEU, smooth_method="none", **_WHOLE_WORDS),
        _CompoundSplitter(),
        "moses-de+at",
    )


def all_scores(
    hypotheses: list[str], references: list[str], target: str = "de", tokenized: bool = False
) -> list[Score]:
    """Every score of a translated test set with its interval, in the order of ``metric_specs``."""
    return [each.with_interval(hypotheses, references) for each in metric_specs(target, tokenized)]


def bleu(hypotheses: list[str], references: list[str], force: bool = False) -> Score:
    """Cased sacreBLEU over detokenised text (Post 2018): the one to compare between papers.

    sacreBLEU warns of text that looks tokenised unless ``force``; the score is the same.
    """
    measure = MetricSpec("sacreBLEU", "", partial(BLEU, force=force))
    return measure.score(hypotheses, references)


def compound_split_bleu(hypotheses: list[str], references: list[str]) -> Score:
    """The measure of the paper's English-German results."""
    return _compound_split().score(hypotheses, references)


# ------------------------------------------------------------------------- sentence by sentence


def sentence_scores(
    hypotheses: list[str], references: list[str], tokenized: bool = False
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """BLEU, chrF and TER of every sentence, and the signatures of the three.

    BLEU counts n-grams up to the sentence's own length (effective order), else short ones had none.
    """
    kinds: dict[str, Any] = {
        "bleu": BLEU(effective_order=True, **(_WHOLE_WORDS if tokenized else {"force": True})),
        "chrf": CHRF(),
        "ter": TER(),
    }
    scores = {
        name: sentence_level(metric, hypotheses, references) for name, metric in kinds.items()
    }
    return scores, {name: str(metric.get_signature()) for name, metric in kinds.items()}


def sentence_level(metric: Metric, hypotheses: list[str], references: list[str]) -> list[float]:
    """The metric's score of every sentence."""
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(hypothesis, [ref]).score for hypothesis, ref in pairs]


def token_counts(hypotheses: list[str], references: list[str], tokenized: bool) -> tuple[int, int]:
    """Tokens of all hypotheses and of all references, as BLEU counts them."""
    metric = BLEU(**_WHOLE_WORDS) if tokenized else BLEU(force=True)
    counted = metric.corpus_score(hypotheses, [references])
    return counted.sys_len, counted.ref_len


def look_tokenized(lines: list[str]) -> bool | None:
    """Whether most full stops at a line's end stand alone, as only a tokenizer puts them.

    None where no line ends in one.
    """
    stops = [line for line in lines if line.endswith(".")]
    return sum(line.endswith(" .") for line in stops) > len(stops) / 2 if stops else None


def pairwise_chrf(texts: list[str]) -> np.ndarray:
    """chrF of text i when text j is its reference: [i, j], from 0 to 100."""
    chrf = CHRF()
    different = sorted(set(texts))
    table = np.array([[chrf.sentence_score(a, [b]).score for b in different] for a in different])
    which = [different.index(text) for text in texts]
    return table[np.ix_(which, which)]


# -------------------------------------------------------------------------- forms of text


class LcNormTok:
    """A raw line -> lowercased, punctuation normalised, tokenised and escaped by Moses' rules.

    That is the form of the ``lc.norm.tok`` files that come with Multi30k.
    """

    def __init__(self, lang: str) -> None:
        self._normalizer = sacremoses.MosesPunctNormalizer(lang=lang)
        self._tokenizer = sacremoses.MosesTokenizer(lang=lang)

    def __call__(self, line: str) -> str:
        # Moses' scripts see the line break too: a full stop and a quote before it change places.
        plain = self._normalizer.normalize(line.lower() + "\n")
        return str(self._tokenizer.tokenize(plain, return_str=True))


class Detokenized:
    """A line of tokens -> text as people write it, by Moses' rules; its escapes are undone."""

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


# ------------------------------------------------------------------------------------- COMET


class MeanOf(Metric):
    """The mean of the sentences' own scores, for sacreBLEU's tests.

    A "hypothesis" is the text of its sentence's score, references count for nothing.
    """

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return [float(hypothesis), 1.0]

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        return Found("mean", float(stats[0] / stats[1]))

    def _aggregate_and_compute(self, stats: list[list[Any]]) -> Any:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])


COMET = MetricSpec("COMET", "", MeanOf)  # of texts that are its sentences' scores


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what COMET and its libraries say of each other, and Lightning of its products."""
    names = ("comet", "pytorch_lightning.utilities.rank_zero")
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for logger in levels:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


class Comet:
    """A learned score (Rei et al. 2020) of translations that also sees their sources.

    ``model`` is a COMET checkpoint's file, or a model's name, which the package finds where it has
    downloaded it. Raises ValueError when there is no such package or model.
    """

    def __init__(self, model: str, gpu: bool = False) -> None:
        try:
            with _quiet():
                import comet
        except ImportError as error:
            missing = "" if error.name == "comet" else f" whole ({error})"
            raise ValueError(
                f"comet={model}: COMET is not installed{missing}: "
                "pip install -e '.[comet]' in the project's folder"
            ) from None
        try:
            path = model if Path(model).is_file() else comet.download_model(model)
            with _quiet():
                self._model = comet.load_from_checkpoint(path)
        except Exception as error:  # the package raises Exception itself, and its libraries theirs
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"comet={model}: no such COMET model can be loaded: {reason}"
            ) from None
        version = package_version("unbabel-comet")
        sha256 = hashlib.sha256()
        with Path(path).open("rb") as stream:
            while block := stream.read(2**20):
                sha256.update(block)
        name = Path(model).name if path == model else model
        self.signature = f"comet:{version}|model:{name}|sha256:{sha256.hexdigest()[:12]}"
        self._gpus = int(gpu)

    def __call__(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> tuple[Score, list[float]]:
        """The score of the whole, and of every sentence. Raises ValueError when it fails."""
        triples = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in triples]
        try:
            with _quiet():
                found = self._model.predict(
                    samples, batch_size=16, gpus=self._gpus, progress_bar=sys.stderr.isatty()
                )
        except Exception as error:  # of its libraries: memory, say, that the model's share left
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"COMET has failed: {reason}") from error
        scores = [float(score) for score in found.scores]
        texts = [str(score) for score in scores]
        half = COMET.with_interval(texts, texts).interval
        return Score(COMET.name, float(found.system_score), self.signature, half), scores
