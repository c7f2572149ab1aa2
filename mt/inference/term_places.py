"""A term takes the place of the word that the model would write for it.

Where a model is sure of a word of its own, the search writes this word and adds the term where that
costs least: "Das Haus ist groß Gebäude." for "The house is big." with house -> Gebäude. The
cross-attention shows which word renders the source of the term. The sentence is then searched once
more, from that word on: the term must begin there, and the word does not come again.

What is kept of the source, such as a number, the model mostly copies by itself. So the first search
goes without it, and only a translation that lacks it is searched again.
"""

from torch import Tensor

from mt.data.tokenizer import Tokenizer
from mt.inference.alignment import Aligner, soft_alignment, spell, word_weights, words
from mt.inference.constraints import TermPlace
from mt.inference.inputs import Input

# Of a word's attention; misplaced terms have 0.3 at most, own words 0.9 and more.
LEAST_ATTENTION = 0.5
MOST_ATTEMPTS = 4  # searches of one input
WITH_DIGITS = {"time", "date", "ordinal", "number", "identifier"}  # the model writes digits too
QUOTES = "\"'„“”‚‘’«»"


def lacks_items(source: Input, best: str) -> bool:
    """Whether the best translation lacks what is kept, after a search without the terms."""
    terms = source.terms
    if terms is None or not source.comes_by_itself:
        return False
    return terms.rest_of(best, source.all_caps) is None


def may_stand_elsewhere(source: Input, output: list[int], tokenizer: Tokenizer) -> bool:
    """Whether a term may stand elsewhere than the word that the model would write for it.

    A number does if the output, ids without eos, has other digits.
    """
    terms = source.terms
    if terms is None or source.attempt + 1 == MOST_ATTEMPTS:
        return False
    kinds = {kind for kind, span in zip(terms.kinds, terms.spans, strict=True) if span}
    if kinds - WITH_DIGITS and not source.comes_by_itself:
        return True
    if terms.are_kept:
        (text,) = tokenizer.decode([output])
        rest_of_text = terms.rest_of(text, source.all_caps)
        if rest_of_text is not None:
            return _has_digit(rest_of_text)
    taken = {i for place in terms.constraints.places(output) for i in range(*place[2:])}
    rest = "".join(tokenizer.pieces([id for i, id in enumerate(output) if i not in taken]))
    return bool(kinds) and _has_digit(rest)


def with_term_in_place(
    source: Input, output: list[int], attention: Tensor, aligner: Aligner, tokenizer: Tokenizer
) -> Input | None:
    """The input for another search, or None where no word stands in the place of a term.

    ``output`` are the ids of the best hypothesis, without eos, ``attention`` [N, h, T, S] is that
    of ``source`` and ``output``.
    """
    assert source.terms is not None
    constraints = source.terms.constraints
    pieces = tokenizer.pieces(output)
    places = constraints.places(output)
    # What comes before an earlier place stays as it is.
    fixed = max(len(source.prefix), constraints.begin[1] + 1 if constraints.begin else 0)
    replaced = _replaced_word(
        source, soft_alignment(attention, aligner), tokenizer, pieces, places, fixed
    )
    if replaced is None:
        return None
    ids, word, term = replaced
    begin = _first_omitted(source, term, pieces, ids[0], fixed)
    is_glued = begin > 0 and not pieces[begin].startswith("▁")  # to a quotation mark
    banned = tuple(output[i] for i in ids)
    placed = constraints.with_place(term, begin, banned, is_glued)
    # The token before a word, such as an article, may have to be another one.
    has_article = not is_glued and any(map(str.isalpha, word))
    ends = (place.end for place in places if place.end <= begin)
    start = max(fixed, begin - has_article, *ends)
    terms = source.terms._replace(constraints=placed)
    return source._replace(prefix=output[:start], terms=terms, attempt=source.attempt + 1)


def _replaced_word(
    source: Input,
    alignment: Tensor,
    tokenizer: Tokenizer,
    pieces: list[str],
    places: list[TermPlace],
    fixed: int,
) -> tuple[list[int], str, int] | None:
    """The first word of the output that stands for a term, as its ids' places and text; the term.

    ``alignment`` is [T, S], ``places`` are where the output has terms. No word before ``fixed``.
    """
    assert source.terms is not None
    text, owners = spell(tokenizer.pieces(source.ids))
    if text.strip().lower() != source.text.strip().lower():  # they spell other characters
        return None
    target_words = words(pieces)
    shift = _blanks(text) - _blanks(source.text)
    taken = {i for place in places for i in range(place.start, place.end)}
    candidates: list[tuple[list[int], str, int]] = []
    for term, span in enumerate(source.terms.spans):
        if span is None:
            continue
        owned = sorted({i for owner in owners[span[0] + shift : span[1] + shift] for i in owner})
        is_number = source.terms.kinds[term] in WITH_DIGITS
        weights = word_weights(alignment, [("", owned)], target_words)[:, 0].tolist()
        first = min((place.start for place in places if place.term == term), default=len(pieces))
        for (word, ids), weight in zip(target_words, weights, strict=True):
            is_free = fixed <= ids[0] < first and taken.isdisjoint(ids)
            is_like = _has_digit(word) if is_number else any(map(str.isalnum, word))
            if weight >= LEAST_ATTENTION and is_free and is_like:
                candidates.append((ids, word, term))
    return min(candidates, default=None)  # the first one, so that the others can follow


def _first_omitted(source: Input, term: int, pieces: list[str], begin: int, fixed: int) -> int:
    """Where the signs begin that stand before the word at ``begin`` and go with it.

    Signs that are no part of the text are left out, and quotation marks before code, which the
    model writes instead of backticks. A number has its blank in a piece of its own.
    """
    assert source.terms is not None
    omitted = set(source.terms.stray)
    if source.terms.kinds[term] == "code":
        omitted |= {*QUOTES, *source.text[slice(*(source.terms.spans[term] or (0, 0)))]}
    while begin > fixed and not pieces[begin].startswith("▁"):
        before = pieces[begin - 1].strip("▁")
        if any(map(str.isalnum, before)) or not omitted.issuperset(before):
            break
        begin -= 1
    return begin


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _blanks(text: str) -> int:
    """The number of blanks with which the text begins."""
    return len(text) - len(text.lstrip())
