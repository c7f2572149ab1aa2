"""Every option of the search against searches written out in plain Python, and against chance."""

import collections
import itertools
import math
import random

import numpy as np
import pytest
import torch
from test_beam_search import (
    BOS,
    EOS,
    NEVER_IDS,
    WORDS,
    Toy,
    V,
    assert_same,
    batch,
    chance,
    max_extra,  # noqa: F401 (a fixture)
    scored,
    some_sources,
)

import mt.inference.beam_search
from mt.inference.beam_search import score, search
from mt.inference.incremental import Ensemble
from mt.inference.options import SearchOptions


class Rules:
    """The options, each as one would say it, for one hypothesis at a time."""

    def __init__(self, options, source, prefix=()):
        self.options, self.prefix = options, tuple(prefix)
        limit = options.max_length
        if limit is None:
            limit = max(len(source) + mt.inference.beam_search.MAX_EXTRA, options.min_length)
        self.limit = max(limit, len(prefix))

    def log_probs(self, logits, source, said):
        """{token: log P} of those that may come next."""
        row = list(logits((*source, EOS), said))
        penalty = self.options.repetition_penalty
        for token in set(said):
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        log_total = math.log(sum(math.exp(logit) for logit in row))
        may = {i: row[i] - log_total for i in range(V)}
        if len(said) < len(self.prefix):
            return {self.prefix[len(said)]: may[self.prefix[len(said)]]}
        if len(said) == self.limit:
            return {EOS: may[EOS]}
        for i in NEVER_IDS:
            del may[i]
        if len(said) < self.options.min_length:
            del may[EOS]
        n = self.options.no_repeat_ngram
        if n:
            there = {said[i : i + n] for i in range(len(said) - n + 1)}
            may = {i: p for i, p in may.items() if (*said, i)[-n:] not in there or i == EOS}
        return may


def all_outputs(logits, source, options, prefix=()):
    """Every output that the rules permit, best first."""
    rules, ended, going = Rules(options, source, prefix), [], [(0.0, ())]
    while going:
        log_prob, said = going.pop()
        for token, more in rules.log_probs(logits, source, said).items():
            if token == EOS:
                ended.append((log_prob + more, said))
            else:
                going.append((log_prob + more, (*said, token)))
    return scored(ended, options.alpha)


def naive_beam(logits, source, options, prefix=()):
    rules, going, ended = Rules(options, source, prefix), [(0.0, ())], []
    k = options.beam_size
    while going:
        grown = [
            (log_prob + more, (*said, token))
            for log_prob, said in going
            for token, more in rules.log_probs(logits, source, said).items()
        ]
        grown = sorted(grown, reverse=True)[: 1 if k == 1 else 2 * k]
        ended += [(log_prob, said[:-1]) for log_prob, said in grown if said[-1] == EOS]
        going = [(log_prob, said) for log_prob, said in grown if said[-1] != EOS][:k]
    return scored(ended, options.alpha)


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
    found = search(Toy(chance), batch(sources), options)
    for source, hypotheses in zip(sources, found, strict=True):
        assert_same(hypotheses, all_outputs(chance, source, options)[:3])


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_narrow_beam_is_the_naive_one(max_extra, name, k):  # noqa: F811
    max_extra(4)
    options = SearchOptions(k, 0.6, n_best=min(k, 2), **SETTINGS[name])
    sources = some_sources(25)
    found = search(Toy(chance), batch(sources), options)
    for source, hypotheses in zip(sources, found, strict=True):
        assert_same(hypotheses, naive_beam(chance, source, options)[: options.n_best])


@pytest.mark.parametrize("k", [1, 3, 85])
def test_outputs_begin_as_they_must(max_extra, k):  # noqa: F811
    max_extra(2)
    options = SearchOptions(k, 0.6, n_best=min(k, 2), max_length=3)
    sources = [[4], [5, 7], [6], [7, 4], [7]]
    prefixes = [[], [6], [5, 5], [7, 6, 4], [4, 4, 4, 1]]  # the last: longer than permitted, unk
    found = search(Toy(chance), batch(sources), options, prefixes)
    naive = all_outputs if k == 85 else naive_beam
    for source, prefix, hypotheses in zip(sources, prefixes, found, strict=True):
        assert_same(hypotheses, naive(chance, source, options, prefix)[: options.n_best])
        assert all(h.ids[: len(prefix)] == prefix for h in hypotheses)
    assert found[-1][0].ids == prefixes[-1]


def test_lengths_are_kept(max_extra):  # noqa: F811
    for options in (SearchOptions(1, min_length=60), SearchOptions(4, min_length=60)):
        for hypotheses in search(Toy(chance), batch([[4], [5] * 20]), options):
            assert 60 <= len(hypotheses[0].ids) <= 70  # more than the 51 that one word may have
    options = SearchOptions(3, max_length=0)
    assert [h[0].ids for h in search(Toy(chance), batch([[4], [5]]), options)] == [[], []]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_hypothesis_that_may_neither_end_nor_go_on_is_closed_as_it_is(beam_size):
    options = SearchOptions(beam_size, no_repeat_ngram=1, min_length=9, max_length=90)
    for (hypothesis,) in search(Toy(chance), batch([[4], [5, 6]]), options):
        assert sorted(hypothesis.ids) == WORDS  # each word once, and nothing is left
        assert math.isfinite(hypothesis.score)
        assert len(hypothesis.token_log_probs) == 4


@pytest.mark.parametrize("options", [SearchOptions(1), SearchOptions(4, n_best=4)])
def test_each_token_has_its_log_prob(max_extra, options):  # noqa: F811
    max_extra(5)
    sources = some_sources(10)
    for source, found in zip(sources, search(Toy(chance), batch(sources), options), strict=True):
        rules = Rules(options, source)
        for hypothesis in found:
            said = [
                rules.log_probs(chance, source, tuple(hypothesis.ids[:i]))[token]
                for i, token in enumerate([*hypothesis.ids, EOS])
            ]
            assert hypothesis.token_log_probs == pytest.approx(said, rel=1e-4, abs=1e-5)
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
    found = search(Toy(chance), batch(sources), options)
    for rank in range(3):
        again = score(Toy(chance), batch(sources), [h[rank].ids for h in found], alpha=0.6)
        assert_same(again, [h[rank] for h in found])
        for one, other in zip(again, found, strict=True):
            assert one.token_log_probs == pytest.approx(other[rank].token_log_probs, abs=1e-5)


def test_any_output_has_a_score():
    outputs = [[], [4], [1, 1, 4], [7] * 90]
    sources = [[4], [5, 6], [6], [7]]
    for source, ids, found in zip(
        sources, outputs, score(Toy(chance), batch(sources), outputs, 1.0), strict=True
    ):
        total = 0.0
        for i, token in enumerate([*ids, EOS]):
            row = chance((*source, EOS), tuple(ids[:i]))
            total += row[token] - math.log(sum(map(math.exp, row)))
        assert found.ids == ids
        assert found.log_prob == pytest.approx(total, rel=1e-5)
        assert found.score == pytest.approx(total / ((6 + len(ids)) / 6), rel=1e-5)


# Ensembles


def other(source, prefix):
    rng = random.Random(f"other {source} {prefix}")
    return [rng.gauss(0, 1.5) for _ in range(V)]


def softmax(row):
    total = sum(map(math.exp, row))
    return [math.exp(x) / total for x in row]


def mixture(source, prefix):
    pairs = zip(softmax(chance(source, prefix)), softmax(other(source, prefix)), strict=True)
    return [math.log((a + b) / 2) for a, b in pairs]


@pytest.mark.parametrize("k", [1, 3])
def test_an_ensemble_is_the_mean_of_probabilities(max_extra, k):  # noqa: F811
    max_extra(4)
    sources = some_sources(20)
    options = SearchOptions(k, 0.6)
    found = search(Ensemble([Toy(chance), Toy(other)]), batch(sources), options)
    for source, hypotheses in zip(sources, found, strict=True):
        assert_same(hypotheses, naive_beam(mixture, source, options)[:1])
    alone = search(Toy(chance), batch(sources), options)
    assert [h[0].ids for h in found] != [h[0].ids for h in alone]


@pytest.mark.parametrize("penalty", [0.6, 1.0, 1.7])
def test_an_ensemble_of_one_model_twice_is_that_model(max_extra, penalty):  # noqa: F811
    """Also where the sign of its logits matters."""
    max_extra(4)
    sources = some_sources(20)
    options = SearchOptions(3, 0.6, n_best=3, repetition_penalty=penalty)
    alone = search(Toy(chance), batch(sources), options)
    twice = search(Ensemble([Toy(chance), Toy(chance)]), batch(sources), options)
    for one, two in zip(alone, twice, strict=True):
        assert_same(two, one)


class Says:
    """A model that says the same wherever it is."""

    def __init__(self, *logits):
        self.logits = torch.tensor(logits)[None, None]

    def start(self, src):
        return None

    def step(self, tokens, state, parents=None):
        return self.logits.clone()


@pytest.mark.parametrize("far", [-5.0, -60.0, -300.0])
def test_an_ensemble_is_exact_where_float32_has_no_such_probability(far):
    said = [(3.0, far, -1.0), (2.0, far - 2, 0.5)]
    both = Ensemble([Says(*logits) for logits in said])
    logits = both.step(torch.zeros(1, 1), both.start(torch.zeros(1, 1)))[0, 0].double()
    rows = torch.tensor(said).double()
    expected = rows.log_softmax(dim=1).logsumexp(dim=0) - math.log(2)
    height = rows.logsumexp(dim=1).mean()
    torch.testing.assert_close(logits - height, expected, rtol=1e-6, atol=1e-5)


# Sampling


def short(source, prefix):
    """A small tree of outputs with known chances."""
    if len(prefix) == 2:
        return [-50.0] * 3 + [0.0] + [-50.0] * 4
    return [math.log(p) for p in (1e-20, 1e-20, 1e-20, 0.3, 0.4, 0.2, 0.06, 0.04)]


def frequencies(options, sources=1, logits=short):
    found = search(
        Toy(logits), batch([[4 + i % 4] * (1 + i // 4) for i in range(sources)]), options
    )
    counts = collections.Counter(tuple(h.ids) for hypotheses in found for h in hypotheses)
    return {ids: n / sum(counts.values()) for ids, n in counts.items()}


def expected(first):
    """Chances of all outputs of ``short`` when a token has the chances ``first``."""
    end, *words = first
    table = {(): end}
    for a, p in zip(WORDS, words, strict=True):
        table[(a,)] = p * end
        for b, q in zip(WORDS, words, strict=True):
            table[(a, b)] = p * q
    return {ids: p for ids, p in table.items() if p > 0}


def normalised(chances):
    return [p / sum(chances) for p in chances]


@pytest.mark.parametrize(
    ("settings", "chances"),
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
def test_samples_come_as_often_as_they_should(settings, chances):
    found = frequencies(SearchOptions(samples=250, n_best=250, **settings), sources=16)
    if chances is None:
        assert () not in found
        return
    wanted = expected(chances)
    assert found.keys() <= wanted.keys()
    for ids, p in wanted.items():
        assert found.get(ids, 0.0) == pytest.approx(p, abs=5 * math.sqrt(p / 4000) + 1e-3), ids


def test_a_cold_sample_is_the_greedy_output(max_extra):  # noqa: F811
    max_extra(5)
    sources = some_sources(12)
    cold = search(Toy(chance), batch(sources), SearchOptions(samples=2, temperature=0.01))
    greedy = search(Toy(chance), batch(sources), SearchOptions(1))
    same = [a[0].ids == b[0].ids for a, b in zip(cold, greedy, strict=True)]
    assert sum(same) >= 11


def test_samples_depend_on_source_and_seed_alone(max_extra):  # noqa: F811
    max_extra(6)
    sources = some_sources(20)
    options = SearchOptions(samples=3, n_best=3, seed=7)
    together = search(Toy(chance), batch(sources), options)
    order = random.Random(1).sample(range(20), 20)
    shuffled = search(Toy(chance), batch([sources[i] for i in order]), options)
    for i, hypotheses in zip(order, shuffled, strict=True):
        assert_same(hypotheses, together[i])
        assert_same(search(Toy(chance), batch([sources[i]]), options)[0], together[i])
    others = search(Toy(chance), batch(sources), SearchOptions(samples=3, n_best=3, seed=8))
    assert [h[0].ids for h in others] != [h[0].ids for h in together]
    assert all(len(h) == 3 for h in together)
    assert all([x.score for x in h] == sorted((x.score for x in h), reverse=True) for h in together)


def naive_sample(source, number, options, rules):
    """Sample ``number`` by itself: its share of the source's random numbers, and no other's."""
    rng = np.random.default_rng([options.seed, *source, EOS])
    said = ()
    while True:
        chance_of_step = rng.random(options.samples)[number]
        may = rules.log_probs(chance, source, said)
        if not may:
            return list(said)  # nothing is permitted
        total, sums = sum(map(math.exp, may.values())), 0.0
        for token in sorted(may):
            sums += math.exp(may[token]) / total
            if chance_of_step < sums:
                break
        if token == EOS:
            return list(said)
        said = (*said, token)


@pytest.mark.parametrize("settings", [{}, {"no_repeat_ngram": 1, "min_length": 9}])
def test_a_sample_is_not_moved_by_the_end_of_another(max_extra, settings):  # noqa: F811
    max_extra(6)
    sources = some_sources(15)
    options = SearchOptions(samples=4, n_best=4, seed=3, max_length=9, **settings)
    for source, found in zip(sources, search(Toy(chance), batch(sources), options), strict=True):
        rules = Rules(options, source)
        wanted = sorted(naive_sample(source, number, options, rules) for number in range(4))
        assert sorted(hypothesis.ids for hypothesis in found) == wanted


def test_samples_carry_the_models_own_log_prob(max_extra):  # noqa: F811
    """Not that of the warmer or shorter list that they were drawn from."""
    max_extra(4)
    sources = some_sources(6)
    options = SearchOptions(samples=4, n_best=4, temperature=1.7, top_k=4)
    for source, found in zip(sources, search(Toy(chance), batch(sources), options), strict=True):
        again = score(Toy(chance), batch([source] * 4), [h.ids for h in found])
        assert_same(found, again)


# Options that make no sense


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_length": -1}, "min_length=-1: must be a whole number of at least 0"),
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
    ],
)
def test_a_bad_option_is_told(settings, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        SearchOptions(**settings)


def test_every_permutation_of_finished_sentences_closes_the_gaps():
    for done in itertools.product([False, True], repeat=6):
        order = mt.inference.beam_search._close_gaps(list(done))
        assert sorted(order) == [i for i in range(6) if not done[i]]
        moved = sum(i != old for i, old in enumerate(order))
        assert moved == sum(done[: len(order)])  # no more than there are gaps


def test_the_largest_are_found_in_folds_as_without():
    torch.manual_seed(0)
    for shape in ((3, 2, 37_000), (1, 4, 32_000), (70, 1, 1_001), (2, 1, 40)):
        logits = torch.randn(shape)
        for keep in (1, 2, 8):
            values, index = mt.inference.beam_search._top(logits, keep)
            wanted = logits.topk(keep)
            assert torch.equal(values, wanted.values)
            assert torch.equal(index, wanted.indices)


def test_bos_is_how_every_output_begins():
    seen = []

    class Listening(Toy):
        def step(self, tokens, state, parents=None):
            seen.append(tokens.flatten().tolist())
            return super().step(tokens, state, parents)

    search(Listening(chance), batch([[4], [5]]), SearchOptions(2))
    assert seen[0] == [BOS, BOS]
