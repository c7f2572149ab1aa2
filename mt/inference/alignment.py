"""Which word of the source each word of a translation renders, read from the cross-attention.

Shift-Att (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation"):
the alignment of a target token is taken from the step that reads it, one after the step that
predicts it, because only then the decoder knows which token it is. They take the mean of a layer's
heads; here single heads of any layer are taken, because in our models one head does the work.

Shapes: N layers, h heads, T target tokens and S source tokens, eos counted in both.
"""

import codecs
import itertools
import random
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mt.data.batch_sampler import pad
from mt.data.special_ids import EOS
from mt.data.tokenizer import Tokenizer
from mt.inference.incremental import InferenceStacks
from mt.inference.translation import TranslatedPart

TOKEN = re.compile(r"\w+(?:[-.,:'’]\w+)*|[^\w\s]+")  # words, and marks on their own
BETWEEN_BLANKS = re.compile(r"\S+")

# Two words are linked if this much of the attention, or more, goes from one to the other.
LEAST_WEIGHT = 0.15

# Names and numbers, which most languages copy. Heads that align words find them in any order.
COPIED = [
    *("Anna", "Peter", "Maria", "Robert", "Martin", "Sarah", "Elena", "Thomas", "Simon"),
    *("Berlin", "Paris", "London", "Madrid", "Hamburg", "Tokyo", "Oslo", "Canada"),
    *("1984", "2020", "300", "75", "46", "12"),
]
LISTS, LIST_LENGTH = 30, 6
WORST = 0.3  # heads that put less of their weight on copied words do not align
SIMILAR = 0.5  # heads with at least this part of the best one's weight align too

Word = tuple[str, list[int]]  # and the numbers of its pieces
Link = tuple[int, int, float]  # numbers of a source word and a target word, from 0; their weight


class Aligner(NamedTuple):
    """How a model's cross-attention shows the alignment."""

    heads: list[tuple[int, int]]  # layer and head, from 0, the best one first; their mean counts
    shifted: bool  # whether a token's row is the one that reads it, or the one that predicts it


class Alignment(NamedTuple):
    """The alignment of a source and a target."""

    soft: Tensor  # [T, S]
    source: list[str]  # words
    target: list[str]
    links: list[Link]


def soft_alignment(attention: Tensor, aligner: Aligner) -> Tensor:
    """Cross-attention [N, h, T, S] -> weights [T, S] of the source tokens for each target token.

    Row t of the attention reads token t - 1 and predicts token t. No row reads eos, which shares
    the row of the token before it.
    """
    layers, heads = zip(*aligner.heads, strict=True)
    mean = attention[list(layers), list(heads)].float().mean(dim=0)
    return torch.cat([mean[1:], mean[-1:]]) if aligner.shifted else mean


def align(
    soft: Tensor,
    source: Sequence[str],
    target: Sequence[str],
    pattern: re.Pattern[str] = TOKEN,
) -> Alignment:
    """The alignment of the words that pieces spell; ``soft`` [T, S], pieces without eos.

    A word is what ``pattern`` finds. Two words are linked if the one attends to the other with at
    least LEAST_WEIGHT, and more than to any other, or more than any other does.
    """
    source_words, target_words = words(source, pattern), words(target, pattern)
    weights = word_weights(soft, source_words, target_words)
    links: list[Link] = []
    if weights.numel():
        best = (weights == weights.amax(0)) | (weights == weights.amax(1, keepdim=True))
        pairs = (best & (weights >= LEAST_WEIGHT)).nonzero().tolist()
        links = sorted((s, t, float(weights[t, s])) for t, s in pairs)
    return Alignment(soft, [w for w, _ in source_words], [w for w, _ in target_words], links)


def words(pieces: Sequence[str], pattern: re.Pattern[str] = TOKEN) -> list[Word]:
    """The words that pieces spell."""
    text, owners = spell(pieces)
    matches = pattern.finditer(text)
    return [
        (match[0], sorted(set(itertools.chain.from_iterable(owners[slice(*match.span())]))))
        for match in matches
    ]


def spell(pieces: Sequence[str]) -> tuple[str, list[list[int]]]:
    """The text of pieces, and the numbers of the pieces that spell each of its characters."""
    text: str = ""
    owners: list[list[int]] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # of pieces that are bytes
    pending: list[int] = []
    for i, piece in enumerate(pieces):
        pending.append(i)
        byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
        spelled = decoder.decode(bytes.fromhex(byte[1])) if byte else piece.replace("▁", " ")
        if spelled:
            text += spelled
            owners += [pending] * len(spelled)
            pending = []
    return text, owners


def word_weights(soft: Tensor, source: list[Word], target: list[Word]) -> Tensor:
    """Weights [T, S] of pieces -> [target words, source words].

    The weight of a source word is the sum over its pieces, of a target word the mean.
    """
    columns = [soft[:, pieces].sum(dim=1) for _, pieces in source]
    if not (columns and target):
        return torch.zeros(len(target), len(source))
    by_word = torch.stack(columns, dim=1)
    return torch.stack([by_word[pieces].mean(dim=0) for _, pieces in target])


def align_part(part: TranslatedPart, pattern: re.Pattern[str]) -> Alignment:
    """The alignment of a part's words. Raises ValueError where it has no weights of pieces."""
    if part.alignment is None:
        raise ValueError("no alignment: translate with attention=True")
    return align(part.alignment, part.source, part.output, pattern)


def line_links(parts: Sequence[TranslatedPart]) -> list[tuple[int, int]]:
    """The links of a translated line: numbers of a source word and a word of the translation.

    Words stand between blanks and are counted from 0. The parts must have their alignment.
    """
    links, source_words, target_words = [], 0, 0
    apart: list[int] = []  # words after which the line has a mark that the model saw joined
    for part in parts:
        alignment = align_part(part, BETWEEN_BLANKS)
        layout = len(part.before.split())  # the sign of a list
        source_words, target_words = source_words + layout, target_words + layout
        apart += [word + source_words for word in part.apart]
        own = [(s + source_words, t + target_words) for s, t, _ in alignment.links]
        links += [(s + bisect_left(apart, s), t) for s, t in own]
        source_words += len(alignment.source)
        target_words += len(alignment.target)
    return links


@torch.inference_mode()
def find_aligner(model: InferenceStacks, tokenizer: Tokenizer) -> Aligner:
    """The heads that find copied words, measured without labels and for any pair of languages.

    The model reads lists of names and numbers, and as their translations the same words in another
    order. A head aligns as well as it attends, when the last piece of a word is read, to that word
    of the source. Where none does, the plain mean of all heads is taken.
    """
    rng = random.Random(0)
    lists = [rng.sample(COPIED, LIST_LENGTH) for _ in range(LISTS)]
    shuffled = [rng.sample(names, LIST_LENGTH) for names in lists]
    sources = tokenizer.encode([", ".join(names) + "." for names in lists])
    targets = tokenizer.encode_target([", ".join(names) + "." for names in shuffled])
    src = pad([[*ids, EOS] for ids in sources]).to(model.device)
    hits = []
    for source, target, attention in zip(
        sources, targets, model.cross_attention_weights(src, targets), strict=True
    ):
        places = dict(words(tokenizer.pieces(source)))
        for word, pieces in words(tokenizer.pieces(target)):
            if word in places and word in COPIED:
                row = attention[:, :, pieces[-1] + 1]  # the step that reads its last piece
                hits.append(row[:, :, places[word]].sum(dim=2))
    all_heads = [(n, i) for n in range(len(model.decoder)) for i in range(model.h)]
    weight = torch.stack(hits).mean(dim=0).flatten().tolist() if hits else [0.0] * len(all_heads)
    best = max(weight)
    if not best >= WORST:
        return Aligner(all_heads, shifted=False)
    ranked = sorted(zip(weight, all_heads, strict=True), reverse=True)
    return Aligner([head for w, head in ranked if w >= SIMILAR * best], shifted=True)
