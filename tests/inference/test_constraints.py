"""Terms that must come and phrases that must not, against all outputs of toy models."""

import functools
import itertools
import math
import random
import re
import tracemalloc

import pytest
import torch
from test_beam_search import (
    EOS,
    Rules,
    Toy,
    all_outputs,
    assert_same,
    batch,
    max_extra,  # noqa: F401 (a fixture)
    random_logits,
    some_sources,
)

from mt.inference.beam_search import search
from mt.inference.constraints import Constraints, Vocabulary
from mt.inference.options import SearchOptions
from mt.inference.required_tokens import RequiredTokens
from mt.inference.sentence_search import ConstrainedSearch, SentenceSearch, length_penalty

PIECES = ["<pad>", "<unk>", "<s>", "</s>", "▁a", "▁b", "c", "."]
VOCABULARY = Vocabulary(PIECES)


def text_of(ids):
    return "".join(PIECES[i].replace("▁", " ") for i in ids)


def occurrences(ids, forms, attached=False):
    """How often a form stands there as whole words, at different places."""
    ends = set()
    for form in forms:
        for start in range(len(ids) - len(form) + 1):
            end = start + len(form)
            before, after = text_of(ids[:start]), text_of(ids[end:])
            begins = _may_follow_word(text_of(form), attached) or not _within_word(before)
            # A dot between letters belongs to the word.
            if ids[start:end] == list(form) and begins and not re.match(r"\.*\w", after):
                ends.add(end)
    return len(ends)


def rescored(source, hypotheses, constraints, alpha):
    """The terms' log P is divided by the penalty of the source's length."""
    results = []
    for h in hypotheses:
        steps = [log_softmax(random_logits((*source, EOS), tuple(h.ids[:i])))[token]
                 for i, token in enumerate(h.ids)]  # fmt: skip
        of_terms = sum(sum(steps[p.start : p.end]) for p in constraints.places(h.ids))
        free = (h.log_prob - of_terms) / length_penalty(len(h.ids) + 1, alpha)
        score = free + of_terms / length_penalty(len(source) + 1, alpha)
        results.append(h._replace(score=score))
    return sorted(results, key=lambda h: -h.score)


def log_softmax(row):
    total = math.log(sum(map(math.exp, row)))
    return [x - total for x in row]


def rambles(source, ids, terms, options, attached=False):
    """Whether an output goes on without a term that it lacks where eos is the likeliest token."""
    for end in range(len(ids)):
        allowed = Rules(options, source).log_probs(random_logits, source, tuple(ids[:end]))
        lacks = [f for f in terms if occurrences(ids[:end], f, attached) < terms.count(f)]
        if lacks and max(allowed, key=allowed.get) == EOS:
            kept = [ids[start : start + len(form)] == list(form)
                    and _begins_word(ids, start, attached)
                    for forms in lacks for form in forms
                    for start in range(max(0, end + 1 - len(form)), end + 1)]  # fmt: skip
            if not any(kept):
                return True
    return False


def _begins_word(ids, start, attached):
    before = text_of(ids[:start])
    return _may_follow_word(text_of(ids[start:]), attached) or not _within_word(before)


def _may_follow_word(text, attached):
    return text.startswith((" ", ".") if attached else " ")


def _within_word(before):
    return re.search(r"\w\.*$", before) is not None


def is_kept(ids, terms, forbidden, attached=False):
    """Terms are different or equal, but none is a part of another one."""
    kept = all(occurrences(ids, forms, attached) >= terms.count(forms) for forms in terms)
    return kept and not any(re.search(rf"(?<!\w){p}(?!\w)", text_of(ids)) for p in forbidden)


ATTACHED = "a mark right after a word"
CASES = {
    "a word": ([[[4]]], []),
    "a word of two pieces": ([[[5, 6]]], []),
    "a phrase": ([[[4, 5]]], []),
    "one of two forms": ([[[4, 6], [5]]], []),
    "a form that begins another": ([[[4], [4, 6, 6]]], []),
    "two terms": ([[[4]], [[5, 6]]], []),
    "a term twice": ([[[4]], [[4]]], []),
    "a mark": ([[[7, 6], [6]]], []),
    ATTACHED: ([[[7, 6], [6]]], []),
    "a forbidden word": ([], ["a"]),
    "a forbidden word that begins another": ([], ["ac"]),
    "forbidden phrases": ([], ["a b", "b\\."]),
    "both": ([[[5]]], ["a", "bc"]),
    "three": ([[[4]], [[5]], [[4, 6]]], []),
}


def constraints_of(name):
    terms, forbidden = CASES[name]
    plain = [phrase.replace("\\", "") for phrase in forbidden]
    return Constraints(VOCABULARY, terms, plain, [0] if name == ATTACHED else [])


@pytest.mark.parametrize("alpha", [0, 0.6])
@pytest.mark.parametrize("name", CASES)
def test_a_wide_beam_finds_the_best_that_keeps_them(max_extra, name, alpha):  # noqa: F811
    max_extra(2)
    terms, forbidden = CASES[name]
    options = SearchOptions(400, alpha, n_best=3, max_length=4)
    for source in ([4], [5, 7], [6, 6, 4]):
        everything = all_outputs(random_logits, source, options)
        expected = [
            h for h in everything
            if is_kept(h.ids, terms, forbidden, name == ATTACHED)
            and not rambles(source, h.ids, terms, options, name == ATTACHED)
        ]  # fmt: skip
        expected = rescored(source, expected, constraints_of(name), alpha)
        assert 0 < len(expected) < len(everything)
        (hypotheses,) = search(
            Toy(random_logits), batch([source]), options, None, [constraints_of(name)]
        )
        assert_same(hypotheses, expected[:3])


@pytest.mark.parametrize("alpha", [0.6, 2, 5])
@pytest.mark.parametrize("name", ["a word", ATTACHED, "a term twice", "two terms"])
def test_what_is_dropped_early_could_not_win(monkeypatch, name, alpha):
    def spread_logits(seed, source, prefix):
        draw = random.Random(f"{seed} {source} {prefix}")
        return [draw.gauss(0, 3) for _ in PIECES]

    options = SearchOptions(400, alpha, n_best=2, max_length=5)
    for seed in range(12):
        toy, sources = Toy(functools.partial(spread_logits, seed)), batch([[4], [5, 7]])
        arguments = toy, sources, options, None, [constraints_of(name)] * 2
        found = search(*arguments)
        with monkeypatch.context() as patch:
            for kind in (SentenceSearch, ConstrainedSearch):
                patch.setattr(kind, "_can_exceed", lambda *_: True)
            assert found == search(*arguments)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_a_narrow_beam_keeps_them(max_extra, name, k):  # noqa: F811
    max_extra(4)
    terms, forbidden = CASES[name]
    for extra in ({}, {"no_repeat_ngram": 1}, {"min_length": 3}, {"repetition_penalty": 1.5}):
        options = SearchOptions(k, 0.6, n_best=min(k, 2), **extra)
        sources = some_sources(30)
        own = [constraints_of(name)] * len(sources)
        for hypotheses in search(Toy(random_logits), batch(sources), options, None, own):
            assert all(is_kept(h.ids, terms, forbidden, name == ATTACHED) for h in hypotheses)
            for h in hypotheses:
                places = own[0].places(h.ids)
                assert sorted(place.term for place in places) == list(range(len(terms)))
                for place in places:
                    form = terms[place.term][place.form]
                    assert h.ids[place.start : place.end] == form


NUMBERS = Vocabulary(["<pad>", "<unk>", "<s>", "</s>", "▁", "9", "7", ".", "▁a", "(", "-", "b"])
DIGITS = {"9": 5, "7": 6, ".": 7, " ": 4, "a": 8, "(": 9, "-": 10, "b": 11}


@pytest.mark.parametrize(
    ("form", "text", "is_met"),
    [
        ("97", " 97", True),
        ("97", "(97", True),
        ("97", "(97.", True),
        ("97", " 97. a", True),
        ("97", " 97.9", False),
        ("97", " 9.97", False),
        ("97", " 997", False),
        ("97", " 979", False),
        ("97", " a97", False),
        ("9797", " 979797", False),
        ("9797", " 97 9797", True),
        ("97", " 97-9", False),
        ("97-", " 97-b", True),  # the beginning of a compound, such as 97-jährig
        ("97-", " 97-9", False),
        ("97-", " 97-", True),
        ("97-", " 97", False),
        ("97-", " 997-b", False),
        ("9.7", " 9.7", True),
        ("9.7", " 9.79", False),
        ("9.7", " 9.9.7", False),
    ],
)
def test_a_number_in_a_number_does_not_count(form, text, is_met):
    forms = [[DIGITS[c] for c in form], [4, *(DIGITS[c] for c in form)]]
    constraints = Constraints(NUMBERS, [forms])
    ids = [DIGITS[c] for c in text.replace(" a", "a")]
    places = constraints.places(ids)
    assert len(places) == is_met
    if is_met:
        (place,) = places
        assert list(ids[place.start : place.end]) in forms


def test_the_length_is_enough(max_extra):  # noqa: F811
    max_extra(0)
    terms = [[[4, 5, 5]], [[5, 6, 6]]]
    own = Constraints(VOCABULARY, terms)
    for settings in ({}, {"max_length": 2}, {"max_length": 6}, {"max_length": 7}):
        for source in some_sources(20):
            options = SearchOptions(2, 0.6, **settings)
            ((best,),) = search(Toy(random_logits), batch([source]), options, None, [own])
            assert is_kept(best.ids, terms, [])


def test_a_prefix_may_have_a_part_of_a_term():
    own = Constraints(VOCABULARY, [[[4, 6, 6]], [[5]]])
    for source in some_sources(20):
        (hypotheses,) = search(
            Toy(random_logits), batch([source]), SearchOptions(n_best=2), [[5, 4, 6]], [own]
        )
        for h in hypotheses:
            assert h.ids[:3] == [5, 4, 6]
            assert is_kept(h.ids, own.terms, [])


def test_others_of_the_batch_change_nothing():
    sources = some_sources(24)
    rng = random.Random(1)
    names = [rng.choice([None, *CASES]) for _ in sources]
    own = [None if name is None else constraints_of(name) for name in names]
    together = search(Toy(random_logits), batch(sources), SearchOptions(3, n_best=2), None, own)
    for source, constraints, expected in zip(sources, own, together, strict=True):
        args = batch([source]), SearchOptions(3, n_best=2), None
        (alone,) = search(Toy(random_logits), *args, [constraints])
        assert alone == expected
        if constraints is None:
            assert search(Toy(random_logits), *args)[0] == expected


def test_without_constraints_nothing_more_is_computed(monkeypatch):
    assert Constraints(VOCABULARY).fewest_tokens == 0
    for name in ("read", "constrain", "add_to"):
        monkeypatch.setattr(RequiredTokens, name, None)
    search(Toy(random_logits), batch(some_sources(5)), SearchOptions())


def test_samples_have_no_terms():
    own = [constraints_of("a word")]
    for settings in ({"samples": 2}, {"alternatives": 2}):
        with pytest.raises(ValueError, match="terms need beam search"):
            search(Toy(random_logits), batch([[4]]), SearchOptions(**settings), None, own)


@pytest.mark.parametrize(("terms", "forbidden"), [([[]], []), ([[[]]], []), ([], [" "])])
def test_empty_ones_are_refused(terms, forbidden):
    with pytest.raises(ValueError, match="must"):
        Constraints(VOCABULARY, terms, forbidden)


def test_the_trie_follows_all_beginnings():
    """The state after any tokens is that of a search for each form from the beginning.

    The forms are too long to be whole: a term that has ended begins nothing else.
    """
    terms = [[[4, 5, 4, 4, 5, 4, 5]], [[5, 4, 5, 5, 4, 4, 4]], [[4, 4, 5, 4, 4, 5, 5]]]
    constraints = Constraints(VOCABULARY, terms)
    for ids in itertools.product([4, 5], repeat=6):
        state = constraints.start
        for token in ids:
            state = state.advance(token)
        longest = max(
            n for forms in terms for form in forms for n in range(len(form) + 1)
             if n == 0 or list(ids[-n:]) == form[:n]
        )  # fmt: skip
        depth = max((len(f[0]) - left for f, left in [
            (terms[term], left) for term, left in constraints.begun(state.node)
        ]), default=0)  # fmt: skip
        assert depth == longest


def test_logits_that_are_no_numbers_end_the_search():
    nothing = Toy(lambda source, prefix: [float("nan")] * 8)
    ((best,),) = search(nothing, batch([[4]]), SearchOptions(), None, [constraints_of("a word")])
    assert best.ids == [] or torch.isnan(torch.tensor(best.score))
    assert EOS not in best.ids


def test_long_terms_take_little_memory() -> None:
    """A form that begins again in itself would take a square of it."""
    tracemalloc.start()
    constraints = Constraints(VOCABULARY, [[[4, 5] * 4000], [[4, 5, 4]]])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert constraints.fewest_tokens == 8003
    assert list(itertools.islice(constraints.begun(5), 3)) == [(0, 7995), (0, 7997), (1, 0)]
