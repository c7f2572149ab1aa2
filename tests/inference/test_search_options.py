"""Every option of the search against naive searches in plain Python, and known probabilities."""

import collections
import itertools
import math
import random
from dataclasses import fields

import numpy as np
import pytest
import torch
from test_beam_search import (
    BOS,
    EOS,
    WORDS,
    Rules,
    Toy,
    V,
    all_outputs,
    assert_same,
    batch,
    max_extra,  # noqa: F401 (a fixture)
    naive_beam,
    random_logits,
    some_sources,
)
from torch.testing import assert_close

import mt.inference.beam_search
import mt.inference.candidates
import mt.inference.sentence_search
from mt.inference.beam_search import score, search
from mt.inference.incremental import Ensemble
from mt.inference.options import MAX_ALPHA, MAX_LENGTH, SearchOptions

SETTINGS = {
    "min_length": {"min_length": 2},
    "max_length": {"max_length": 2},
    "both lengths": {"min_length": 2, "max_length": 2},
    "no word twice": {"no_repeat_ngram": 1},
    "no pair twice": {"no_repeat_ngram": 2},
    "repetition dear": {"repetition_penalty": 1.7},
    "repetition cheap": {"repetition_penalty": 0.6},
    "all": {
        "min_length": 1,
        "max_length": 3,
        "no_repeat_ngram": 2,
        "repetition_penalty": 1.3,
    },
}


@pytest.mark.parametrize("alpha", [0, 0.6, 1.5])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_wide_beam_finds_the_best_that_is_permitted(max_extra, name, alpha):  # noqa: F811
    max_extra(1)
    options = SearchOptions(85, alpha, n_best=3, **SETTINGS[name])
    sources = [[4], [5, 7], [6], [7, 4]]
    results = search(Toy(random_logits), batch(sources), options)
    for source, hypotheses in zip(sources, results, strict=True):
        assert_same(hypotheses, all_outputs(random_logits, source, options)[:3])


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_narrow_beam_is_the_naive_one(max_extra, name, k):  # noqa: F811
    max_extra(4)
    options = SearchOptions(k, 0.6, n_best=min(k, 2), **SETTINGS[name])
    sources = some_sources(25)
    results = search(Toy(random_logits), batch(sources), options)
    for source, hypotheses in zip(sources, results, strict=True):
        assert_same(hypotheses, naive_beam(random_logits, source, options)[: options.n_best])


@pytest.mark.parametrize("k", [1, 3, 85])
def test_outputs_begin_as_they_must(max_extra, k):  # noqa: F811
    max_extra(2)
    options = SearchOptions(k, 0.6, n_best=min(k, 2), max_length=3)
    sources = [[4], [5, 7], [6], [7, 4], [7]]
    prefixes = [[], [6], [5, 5], [7, 6, 4], [4, 4, 4, 1]]  # the last: longer than permitted, unk
    results = search(Toy(random_logits), batch(sources), options, prefixes)
    naive = all_outputs if k == 85 else naive_beam
    for source, prefix, hypotheses in zip(sources, prefixes, results, strict=True):
        assert_same(hypotheses, naive(random_logits, source, options, prefix)[: options.n_best])
        assert all(h.ids[: len(prefix)] == prefix for h in hypotheses)
    assert results[-1][0].ids == prefixes[-1]


def test_lengths_are_kept(max_extra):  # noqa: F811
    for options in (SearchOptions(1, min_length=60), SearchOptions(4, min_length=60)):
        for hypotheses in search(Toy(random_logits), batch([[4], [5] * 20]), options):
            assert 60 <= len(hypotheses[0].ids) <= 70  # more than the 51 that one word may have
    options = SearchOptions(3, max_length=0)
    assert [h[0].ids for h in search(Toy(random_logits), batch([[4], [5]]), options)] == [[], []]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_hypothesis_that_may_neither_end_nor_go_on_is_closed_as_it_is(beam_size):
    options = SearchOptions(beam_size, no_repeat_ngram=1, min_length=9, max_length=90)
    for (hypothesis,) in search(Toy(random_logits), batch([[4], [5, 6]]), options):
        assert sorted(hypothesis.ids) == WORDS  # each word once, and nothing is left
        assert math.isfinite(hypothesis.score)
        assert len(hypothesis.token_log_probs) == 4


@pytest.mark.parametrize("options", [SearchOptions(1), SearchOptions(4, n_best=4)])
def test_each_token_has_its_log_prob(max_extra, options):  # noqa: F811
    max_extra(5)
    sources = some_sources(10)
    results = search(Toy(random_logits), batch(sources), options)
    for source, hypotheses in zip(sources, results, strict=True):
        rules = Rules(options, source)
        for hypothesis in hypotheses:
            expected = [
                rules.log_probs(random_logits, source, tuple(hypothesis.ids[:i]))[token]
                for i, token in enumerate([*hypothesis.ids, EOS])
            ]
            assert hypothesis.token_log_probs == pytest.approx(expected, rel=1e-4, abs=1e-5)
            assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob)


def test_hypotheses_that_can_win_no_more_cost_nothing():
    """After one sure output the others are given up, not carried on to the longest length."""

    def sure(source, prefix):
        if prefix == (4,):
            return [0, 0, 0, 30, 0, 0, 0, 0]
        return [0, 0, 0, -9, 9 if prefix == () else 0, 0, 0, 0]

    toy = Toy(sure)
    ((best,),) = search(toy, batch([[4] * 10]), SearchOptions(4, 0.6))
    assert best.ids == [4]
    assert toy.steps < 10
    assert toy.rows < 20


# Scores of given outputs


def test_given_outputs_are_scored_as_the_search_would(max_extra):  # noqa: F811
    max_extra(5)
    sources = some_sources(12)
    options = SearchOptions(4, 0.6, n_best=3)
    results = search(Toy(random_logits), batch(sources), options)
    for rank in range(3):
        again = score(Toy(random_logits), batch(sources), [h[rank].ids for h in results], alpha=0.6)
        assert_same(again, [h[rank] for h in results])
        for scored, hypotheses in zip(again, results, strict=True):
            token_log_probs = hypotheses[rank].token_log_probs
            assert scored.token_log_probs == pytest.approx(token_log_probs, abs=1e-5)


def test_any_output_has_a_score():
    outputs = [[], [4], [1, 1, 4], [7] * 90]
    sources = [[4], [5, 6], [6], [7]]
    hypotheses = score(Toy(random_logits), batch(sources), outputs, 1.0)
    for source, ids, hypothesis in zip(sources, outputs, hypotheses, strict=True):
        total = 0.0
        for i, token in enumerate([*ids, EOS]):
            row = random_logits((*source, EOS), tuple(ids[:i]))
            total += row[token] - math.log(sum(map(math.exp, row)))
        assert hypothesis.ids == ids
        assert hypothesis.log_prob == pytest.approx(total, rel=1e-5)
        assert hypothesis.score == pytest.approx(total / ((6 + len(ids)) / 6), rel=1e-5)


# Ensembles


def other_logits(source, prefix):
    rng = random.Random(f"other {source} {prefix}")
    return [rng.gauss(0, 1.5) for _ in range(V)]


def softmax(row):
    total = sum(map(math.exp, row))
    return [math.exp(x) / total for x in row]


def mixture(source, prefix):
    pairs = zip(
        softmax(random_logits(source, prefix)), softmax(other_logits(source, prefix)), strict=True
    )
    return [math.log((a + b) / 2) for a, b in pairs]


@pytest.mark.parametrize("k", [1, 3])
def test_an_ensemble_is_the_mean_of_probabilities(max_extra, k):  # noqa: F811
    max_extra(4)
    sources = some_sources(20)
    options = SearchOptions(k, 0.6)
    results = search(Ensemble([Toy(random_logits), Toy(other_logits)]), batch(sources), options)
    for source, hypotheses in zip(sources, results, strict=True):
        assert_same(hypotheses, naive_beam(mixture, source, options)[:1])
    alone = search(Toy(random_logits), batch(sources), options)
    assert [h[0].ids for h in results] != [h[0].ids for h in alone]


@pytest.mark.parametrize("penalty", [0.6, 1.0, 1.7])
def test_an_ensemble_of_one_model_twice_is_that_model(max_extra, penalty):  # noqa: F811
    """Also where the sign of its logits matters."""
    max_extra(4)
    sources = some_sources(20)
    options = SearchOptions(3, 0.6, n_best=3, repetition_penalty=penalty)
    alone = search(Toy(random_logits), batch(sources), options)
    doubled = search(Ensemble([Toy(random_logits), Toy(random_logits)]), batch(sources), options)
    for expected_of_one, result in zip(alone, doubled, strict=True):
        assert_same(result, expected_of_one)


class ConstantModel:
    """A model with the same logits at every step."""

    def __init__(self, *logits):
        self.logits = torch.tensor(logits)[None, None]

    def start(self, src):
        return None

    def step(self, tokens, state, parents=None):
        return self.logits.clone()


@pytest.mark.parametrize("far", [-5.0, -60.0, -300.0])
def test_an_ensemble_is_exact_where_float32_has_no_such_probability(far):
    logits_of_models = [(3.0, far, -1.0), (2.0, far - 2, 0.5)]
    both = Ensemble([ConstantModel(*logits) for logits in logits_of_models])
    logits = both.step(torch.zeros(1, 1), both.start(torch.zeros(1, 1)))[0, 0].double()
    rows = torch.tensor(logits_of_models).double()
    expected = rows.log_softmax(dim=1).logsumexp(dim=0) - math.log(2)
    height = rows.logsumexp(dim=1).mean()
    torch.testing.assert_close(logits - height, expected, rtol=1e-6, atol=1e-5)


# Sampling


def short(source, prefix):
    """A small tree of outputs with known probabilities."""
    if len(prefix) == 2:
        return [-50.0] * 3 + [0.0] + [-50.0] * 4
    return [math.log(p) for p in (1e-20, 1e-20, 1e-20, 0.3, 0.4, 0.2, 0.06, 0.04)]


def frequencies(options, sources=1, logits=short):
    results = search(
        Toy(logits), batch([[4 + i % 4] * (1 + i // 4) for i in range(sources)]), options
    )
    counts = collections.Counter(tuple(h.ids) for hypotheses in results for h in hypotheses)
    return {ids: n / sum(counts.values()) for ids, n in counts.items()}


def expected(first):
    """The probability of each output of ``short`` if a token has the probabilities ``first``."""
    end, *words = first
    table = {(): end}
    for a, p in zip(WORDS, words, strict=True):
        table[(a,)] = p * end
        for b, q in zip(WORDS, words, strict=True):
            table[(a, b)] = p * q
    return {ids: p for ids, p in table.items() if p > 0}


def normalised(probs):
    return [p / sum(probs) for p in probs]


@pytest.mark.parametrize(
    ("settings", "probs"),
    [
        ({}, [0.3, 0.4, 0.2, 0.06, 0.04]),
        ({"top_k": 2}, normalised([0.3, 0.4, 0, 0, 0])),
        ({"top_k": 100}, [0.3, 0.4, 0.2, 0.06, 0.04]),
        ({"top_p": 0.75}, normalised([0.3, 0.4, 0.2, 0, 0])),  # 0.4 + 0.3 do not make 0.75
        ({"top_p": 0.3}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.75, "top_k": 2}, normalised([0.3, 0.4, 0, 0, 0])),
        ({"temperature": 0.5}, normalised([p**2 for p in (0.3, 0.4, 0.2, 0.06, 0.04)])),
        ({"temperature": 2.0}, normalised([p**0.5 for p in (0.3, 0.4, 0.2, 0.06, 0.04)])),
        ({"min_length": 1}, None),
    ],
    ids=str,
)
def test_samples_come_as_often_as_they_should(settings, probs):
    measured = frequencies(SearchOptions(samples=250, n_best=250, **settings), sources=16)
    if probs is None:
        assert () not in measured
        return
    wanted = expected(probs)
    assert measured.keys() <= wanted.keys()
    for ids, p in wanted.items():
        assert measured.get(ids, 0.0) == pytest.approx(p, abs=5 * math.sqrt(p / 4000) + 1e-3), ids


def test_a_cold_sample_is_the_greedy_output(max_extra):  # noqa: F811
    max_extra(5)
    sources = some_sources(12)
    cold = search(Toy(random_logits), batch(sources), SearchOptions(samples=2, temperature=0.01))
    greedy = search(Toy(random_logits), batch(sources), SearchOptions(1))
    same = [a[0].ids == b[0].ids for a, b in zip(cold, greedy, strict=True)]
    assert sum(same) >= 11


def test_samples_depend_on_source_and_seed_alone(max_extra):  # noqa: F811
    max_extra(6)
    sources = some_sources(20)
    options = SearchOptions(samples=3, n_best=3, seed=7)
    together = search(Toy(random_logits), batch(sources), options)
    order = random.Random(1).sample(range(20), 20)
    shuffled = search(Toy(random_logits), batch([sources[i] for i in order]), options)
    for i, hypotheses in zip(order, shuffled, strict=True):
        assert_same(hypotheses, together[i])
        assert_same(search(Toy(random_logits), batch([sources[i]]), options)[0], together[i])
    others = search(Toy(random_logits), batch(sources), SearchOptions(samples=3, n_best=3, seed=8))
    assert [h[0].ids for h in others] != [h[0].ids for h in together]
    assert all(len(h) == 3 for h in together)
    assert all([x.score for x in h] == sorted((x.score for x in h), reverse=True) for h in together)


def naive_sample(source, number, options, rules):
    """Sample ``number`` by itself: with its share of the source's random numbers alone."""
    rng = np.random.default_rng([options.seed, *source, EOS])
    output = ()
    while True:
        uniform = rng.random(options.samples)[number]
        allowed = rules.log_probs(random_logits, source, output)
        if not allowed:
            return list(output)  # nothing is permitted
        total, sums = sum(map(math.exp, allowed.values())), 0.0
        for token in sorted(allowed):
            sums += math.exp(allowed[token]) / total
            if uniform < sums:
                break
        if token == EOS:
            return list(output)
        output = (*output, token)


@pytest.mark.parametrize("settings", [{}, {"no_repeat_ngram": 1, "min_length": 9}])
def test_a_sample_is_not_moved_by_the_end_of_another(max_extra, settings):  # noqa: F811
    max_extra(6)
    sources = some_sources(15)
    options = SearchOptions(samples=4, n_best=4, seed=3, max_length=9, **settings)
    results = search(Toy(random_logits), batch(sources), options)
    for source, hypotheses in zip(sources, results, strict=True):
        rules = Rules(options, source)
        wanted = sorted(naive_sample(source, number, options, rules) for number in range(4))
        assert sorted(hypothesis.ids for hypothesis in hypotheses) == wanted


def test_samples_carry_the_models_own_log_prob(max_extra):  # noqa: F811
    """Not that of the distribution with temperature and top_k that they were drawn from."""
    max_extra(4)
    sources = some_sources(6)
    options = SearchOptions(samples=4, n_best=4, temperature=1.7, top_k=4)
    results = search(Toy(random_logits), batch(sources), options)
    for source, hypotheses in zip(sources, results, strict=True):
        again = score(Toy(random_logits), batch([source] * 4), [h.ids for h in hypotheses])
        assert_same(hypotheses, again)


# Options that make no sense


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_length": -1}, "min_length=-1: must be a whole number from 0 to 5,000"),
        ({"max_length": -1}, "max_length=-1: must"),
        ({"max_length": 2.5}, "max_length=2.5: must"),
        ({"min_length": 3, "max_length": 2}, "min_length=3: must not exceed max_length=2"),
        ({"no_repeat_ngram": -2}, "no_repeat_ngram=-2: must"),
        ({"repetition_penalty": 0}, "repetition_penalty=0: must be a number from 0.01 to 100"),
        ({"repetition_penalty": math.nan}, "repetition_penalty=nan: must"),
        ({"samples": True}, "samples=True: must"),
        ({"samples": 3, "temperature": 0}, "temperature=0: must"),
        ({"samples": 3, "temperature": -1.0}, "temperature=-1.0: must"),
        ({"samples": 3, "top_p": 0}, "top_p=0: must"),
        ({"samples": 3, "top_p": 1.5}, "top_p=1.5: must be a number from 1e-06 to 1"),
        ({"samples": 3, "top_k": -1}, "top_k=-1: must"),
        ({"samples": 3, "n_best": 4}, "n_best=4: must not exceed samples=3"),
        ({"seed": -1}, "seed=-1: must"),
        ({"temperature": 2.0}, "are for sampling: set samples too"),
        ({"top_k": 2}, "are for sampling: set samples too"),
        ({"beam_size": 1, "mbr": True}, "mbr chooses among hypotheses"),
        ({"mbr": "no"}, "mbr='no': must be true or false"),
        ({"attention": 1}, "attention=1: must be true or false"),
    ],
)
def test_a_bad_option_is_told(settings, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        SearchOptions(**settings)


NUMBERS = [f.name for f in fields(SearchOptions) if f.type in (int, float, int | None)]


@pytest.mark.parametrize("value", [10**400, 10**30, 1e300, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_has_bounds(name, value):
    """Beyond them a search would have no end, or more memory than there is."""
    with pytest.raises(ValueError, match=f"^{name}="):
        SearchOptions(**{"samples": 2, name: value})


def test_what_the_bounds_allow_has_a_score():
    """The penalty of the longest output is a number, and so is its inverse."""
    penalty = mt.inference.sentence_search.length_penalty(MAX_LENGTH + 1, MAX_ALPHA)
    assert 0 < 1 / penalty < 1


def test_every_permutation_of_finished_sentences_closes_the_gaps():
    for finished in itertools.product([False, True], repeat=6):
        order = mt.inference.beam_search._close_gaps(list(finished))
        assert sorted(order) == [i for i in range(6) if not finished[i]]
        moved = sum(i != old for i, old in enumerate(order))
        assert moved == sum(finished[: len(order)])  # no more than there are gaps


def test_the_largest_are_found_in_folds_as_without():
    torch.manual_seed(0)
    for shape in ((3, 2, 37_000), (1, 4, 32_000), (70, 1, 1_001), (2, 1, 40)):
        logits = torch.randn(shape)
        for keep in (1, 2, 8):
            values, index = mt.inference.candidates._top_k(logits, keep)
            wanted = logits.topk(keep)
            assert torch.equal(values, wanted.values)
            assert torch.equal(index, wanted.indices)


def test_the_first_of_equal_tokens_and_of_nans_is_the_likeliest():
    logits = torch.randint(0, 3, (5, 2, 40)).float()
    logits[0, 0, 17:] = torch.nan
    logits[0, 1] = -torch.inf
    values, index = mt.inference.candidates._top_k(logits, 1)
    wanted = logits.max(dim=2, keepdim=True)
    assert_close(values, wanted.values, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(index, wanted.indices)


def test_bos_is_how_every_output_begins():
    seen = []

    class Recorder(Toy):
        def step(self, tokens, state, parents=None):
            seen.append(tokens.flatten().tolist())
            return super().step(tokens, state, parents)

    search(Recorder(random_logits), batch([[4], [5]]), SearchOptions(2))
    assert seen[0] == [BOS, BOS]
