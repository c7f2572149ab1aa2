"""IBM model 1 (Brown et al. 1993) in numpy: how well the words of two sentences explain each other.

A pair whose words translate each other nowhere else in the corpus is most likely misaligned.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

Pair = tuple[str, str]

WORD = re.compile(r"[^\W_]+")
MIN_COUNT = 3  # occurrences of a word; there is no telling what rarer ones mean
FLOOR = 1e-7  # the probability of a word that nothing explains


def gains(pairs: Sequence[Pair], iterations: int = 4) -> np.ndarray:
    """How much better a pair's words explain each other than chance does: float [pairs].

    It is the mean over the words of both sides of log(p(word | other side) / p(word)), in nats.
    The other pairs alone give the probabilities (leave one out), else a misaligned pair of rare
    words would explain itself. NaN where no word is frequent enough.
    """
    sides = [_ids(side) for side in zip(*pairs, strict=True)]
    there, back = _explain(*sides, iterations), _explain(*reversed(sides), iterations)
    with np.errstate(invalid="ignore"):
        return (there[0] + back[0]) / (there[1] + back[1])


def _ids(sentences: Sequence[str]) -> list[np.ndarray]:
    """The ids of each sentence's distinct words that are frequent enough."""
    texts = [sorted(set(WORD.findall(text.lower()))) for text in sentences]
    counts = Counter(word for words in texts for word in words)
    known = (word for word, count in counts.items() if count >= MIN_COUNT)
    ids = {word: i for i, word in enumerate(known, start=1)}  # 0 is the empty word
    return [np.array([ids[word] for word in words if word in ids], np.int32) for words in texts]


def _explain(
    source: list[np.ndarray], target: list[np.ndarray], iterations: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sum over each pair's target words of the gain in log-probability, and their number."""
    source = [np.append(ids, np.int32(0)) for ids in source]
    target_lengths = np.array([len(ids) for ids in target])
    words = np.concatenate(target)  # all target words, pair by pair
    fanout = np.repeat([len(ids) for ids in source], target_lengths)  # source words of each

    # A link joins a source word and a target word of one pair; links of the same words are alike.
    word_of_link = np.repeat(np.arange(len(words), dtype=np.int32), fanout)
    source_of_link = np.concatenate(
        [np.tile(ids, length) for ids, length in zip(source, target_lengths, strict=True)]
    )
    codes = source_of_link.astype(np.int64) << 32 | words[word_of_link]
    kinds, kind_of_link = np.unique(codes, return_inverse=True)
    source_of_kind = kinds >> 32
    del codes, kinds

    probability = np.ones(len(source_of_kind))
    for _ in range(iterations):  # expectation, then maximisation
        share = probability[kind_of_link]
        share /= np.bincount(word_of_link, share)[word_of_link]
        counts = np.bincount(kind_of_link, share)
        totals = np.bincount(source_of_kind, counts)
        probability = counts / totals[source_of_kind]

    others = np.maximum(counts[kind_of_link] - share, 0)
    others /= np.maximum(totals[source_of_link] - 1, 1) * fanout[word_of_link]
    explained = np.bincount(word_of_link, others, len(words)) + FLOOR
    gain = np.log(explained * len(words) / np.bincount(words)[words])
    pair_of_word = np.repeat(np.arange(len(target)), target_lengths)
    return np.bincount(pair_of_word, gain, len(target)), target_lengths
