"""Greedy and beam search against naive searches written out in plain Python.

The models here are toys: P(next token | source, prefix) is a function of the whole output so far.
So a row that continues with the state of another row changes the result.
"""

import math
import random

import pytest
import torch

import mt.data.batch_sampler
import mt.data.tokenizer
import mt.inference.sentence_search
from mt.inference.beam_search import search
from mt.inference.incremental import InferenceModel
from mt.inference.options import SearchOptions
from mt.inference.sentence_search import Hypothesis, length_penalty
from mt.model.transformer import Transformer

PAD, UNK, BOS, EOS = 0, 1, 2, 3
NEVER_IDS = [PAD, UNK, BOS]
WORDS = [4, 5, 6, 7]
V = 8


class Toy:
    """A model with logits ``logits(source, prefix)``, V numbers; both are tuples of ids."""

    def __init__(self, logits):
        self.logits = logits
        self.steps = 0
        self.rows = 0  # all hypotheses of all steps

    def start(self, src):
        return ToyState([tuple(i for i in row if i != PAD) for row in src.tolist()])

    def step(self, tokens, state, parents=None):
        self.steps += 1
        self.rows += tokens.numel()
        B, w = tokens.shape
        assert len(state.sources) == B
        if parents is None:
            assert all(len(prefixes) == w for prefixes in state.prefixes)
            parents = torch.arange(w).expand(B, w)
        state.prefixes = [
            [(*before[row], token) for row, token in zip(rows, new, strict=True)]
            for before, rows, new in zip(
                state.prefixes, parents.tolist(), tokens.tolist(), strict=True
            )
        ]
        return torch.tensor(
            [
                [self.logits(source, prefix[1:]) for prefix in prefixes]
                for source, prefixes in zip(state.sources, state.prefixes, strict=True)
            ],
            dtype=torch.float32,
        )


class ToyState:
    """Sources and the prefixes of each, where mt.inference.cache.State has keys and values."""

    def __init__(self, sources):
        self.sources = sources
        self.prefixes = [[()] for _ in sources]

    def select(self, order):
        assert 0 < len(order) < len(self.sources)
        self.sources = [self.sources[i] for i in order]
        self.prefixes = [self.prefixes[i] for i in order]


def random_logits(source, prefix):
    """Random but always the same; pad, unk and bos are as likely as words."""
    rng = random.Random(f"{source} {prefix}")
    return [rng.gauss(0, 1.5) for _ in range(V)]


def batch(sources):
    rows = [torch.tensor([*source, EOS]) for source in sources]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def some_sources(count, longest=5):
    rng = random.Random(0)
    return [rng.choices(WORDS, k=rng.randint(1, longest)) for _ in range(count)]


@pytest.fixture
def max_extra(monkeypatch):
    return lambda tokens: monkeypatch.setattr(mt.inference.sentence_search, "MAX_EXTRA", tokens)


# The naive searches: one sentence, lists of (log P, ids), no tensors and no early stop.


class Rules:
    """The options, each written out for one hypothesis at a time."""

    def __init__(self, options, source, prefix=()):
        self.options, self.prefix = options, tuple(prefix)
        limit = options.max_length
        if limit is None:
            limit = max(len(source) + mt.inference.sentence_search.MAX_EXTRA, options.min_length)
        self.limit = max(limit, len(prefix))

    def log_probs(self, logits, source, output):
        """{token: log P} of those that may come next."""
        row = list(logits((*source, EOS), output))
        penalty = self.options.repetition_penalty
        for token in set(output):
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        log_total = math.log(sum(math.exp(logit) for logit in row))
        allowed = {i: row[i] - log_total for i in range(V)}
        if len(output) < len(self.prefix):
            return {self.prefix[len(output)]: allowed[self.prefix[len(output)]]}
        if len(output) == self.limit:
            return {EOS: allowed[EOS]}
        for i in NEVER_IDS:
            del allowed[i]
        if len(output) < self.options.min_length:
            del allowed[EOS]
        n = self.options.no_repeat_ngram
        if n:
            ngrams = {output[i : i + n] for i in range(len(output) - n + 1)}
            repeats = [i for i in allowed if i != EOS and (*output, i)[-n:] in ngrams]
            allowed = {i: p for i, p in allowed.items() if i not in repeats}
        return allowed


def next_log_probs(logits, source, output):
    """{token: log P} of those that may come next, by the paper's options."""
    return Rules(SearchOptions(), source).log_probs(logits, source, output)


def scored(finished, alpha):
    """(log P, ids) -> hypotheses, best first."""
    hypotheses = [
        Hypothesis(list(ids), log_prob / ((5 + len(ids) + 1) / 6) ** alpha, log_prob)
        for log_prob, ids in finished
    ]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def naive_greedy(logits, source, alpha):
    ids, log_prob = (), 0.0
    while True:
        choices = next_log_probs(logits, source, ids)
        best = max(choices, key=choices.get)
        log_prob += choices[best]
        if best == EOS:
            return scored([(log_prob, ids)], alpha)
        ids = (*ids, best)


def all_outputs(logits, source, options, prefix=()):
    """Every output that the rules permit, best first."""
    rules, finished, alive = Rules(options, source, prefix), [], [(0.0, ())]
    while alive:
        log_prob, output = alive.pop()
        for token, more in rules.log_probs(logits, source, output).items():
            if token == EOS:
                finished.append((log_prob + more, output))
            else:
                alive.append((log_prob + more, (*output, token)))
    return scored(finished, options.alpha)


def naive_beam(logits, source, options, prefix=(), candidates=None):
    """Keep the k best that have not ended among the best ``candidates``, 2k, until all end."""
    rules, alive, finished = Rules(options, source, prefix), [(0.0, ())], []
    k = options.beam_size
    while alive:
        extended = [
            (log_prob + more, (*output, token))
            for log_prob, output in alive
            for token, more in rules.log_probs(logits, source, output).items()
        ]
        extended = sorted(extended, reverse=True)[: candidates or (1 if k == 1 else 2 * k)]
        finished += [(log_prob, output[:-1]) for log_prob, output in extended if output[-1] == EOS]
        alive = [(log_prob, output) for log_prob, output in extended if output[-1] != EOS][:k]
    return scored(finished, options.alpha)


def assert_same(actual, expected):
    assert [hypothesis.ids for hypothesis in actual] == [hypothesis.ids for hypothesis in expected]
    for a, b in zip(actual, expected, strict=True):
        assert a.score == pytest.approx(b.score, rel=1e-5, abs=1e-5)
        assert a.log_prob == pytest.approx(b.log_prob, rel=1e-5, abs=1e-5)


# The right answers.


@pytest.mark.parametrize("alpha", [0, 0.6, 2.0])
def test_beam_size_1_is_greedy(max_extra, alpha):
    max_extra(6)
    sources = some_sources(40)
    results = search(Toy(random_logits), batch(sources), SearchOptions(1, alpha))
    for source, result in zip(sources, results, strict=True):
        assert_same(result, naive_greedy(random_logits, source, alpha))
    assert len({len(result[0].ids) for result in results}) > 4  # they end at different times


@pytest.mark.parametrize("n_best", [1, 5, 85])
@pytest.mark.parametrize("alpha", [0, 0.6, 1.0, 3.0])
def test_a_wide_beam_finds_the_best_of_all_outputs(max_extra, alpha, n_best):
    max_extra(1)
    sources = [[4], [5, 7], [6], [7, 4], [7]]
    results = search(Toy(random_logits), batch(sources), SearchOptions(85, alpha, n_best))
    for source, result in zip(sources, results, strict=True):
        outputs = all_outputs(random_logits, source, SearchOptions(85, alpha))
        assert len(outputs) == (21 if len(source) == 1 else 85)  # 1 + 4 + 16 (+ 64)
        assert_same(result, outputs[:n_best])


@pytest.mark.parametrize("alpha", [0, 0.6, 1.5, 4.0])
@pytest.mark.parametrize(("k", "n_best"), [(2, 1), (2, 2), (3, 1), (4, 3), (7, 7)])
def test_beam_search_stopped_early_equals_one_that_runs_to_the_end(max_extra, k, n_best, alpha):
    max_extra(4)
    sources = some_sources(30)
    results = search(Toy(random_logits), batch(sources), SearchOptions(k, alpha, n_best))
    for source, result in zip(sources, results, strict=True):
        assert_same(result, naive_beam(random_logits, source, SearchOptions(k, alpha))[:n_best])


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_search_stops_as_soon_as_nothing_better_can_come(beam_size):
    def certain(source, prefix):
        """After as many words as the source has, almost surely the end."""
        return [0, 0, 0, 12 if len(prefix) == len(source) - 1 else -12, 9, 0, 0, 0]

    toy = Toy(certain)
    (result,) = search(toy, batch([[4, 5, 6]]), SearchOptions(beam_size, 0.6))
    assert result[0].ids == [4, 4, 4]
    assert toy.steps == 4  # three words and eos, of the 54 that the limit allows


def test_eos_among_the_candidates_loses_no_hypothesis():
    """Keeping 2 candidates, eos takes the place of 6, the only way to the best output."""
    never = 1e-9
    table = {  # probabilities of eos, 4, 5, 6, 7
        (): [0.34, 0.33, never, 0.32, never],
        (6,): [never, never, 1.0, never, never],
        (6, 5): [1.0, never, never, never, never],
    }

    def logits(source, prefix):
        return [-20.0] * 3 + [math.log(p) for p in table.get(prefix, [0.2] * 5)]

    for result in search(Toy(logits), batch([[4], [5, 6]]), SearchOptions(2, 0.6)):
        assert result[0].ids == [6, 5]
        assert result[0].log_prob == pytest.approx(math.log(0.32 / 0.99), rel=1e-3)
    too_few = naive_beam(logits, [4], SearchOptions(2, 0.6), candidates=2)[0]
    assert too_few.ids == []
    assert too_few.score < result[0].score


@pytest.mark.parametrize("beam_size", [1, 3])
def test_output_ends_50_tokens_after_the_length_of_its_input(beam_size):
    def endless(source, prefix):
        return [0, 0, 0, -20, *random_logits(source, prefix)[4:]]

    sources = [[4], [5, 6, 7, 4, 5, 6, 7], [6, 4]]  # eos is not counted
    results = search(Toy(endless), batch(sources), SearchOptions(beam_size, 0.6))
    assert [len(result[0].ids) for result in results] == [51, 57, 52]
    for source, (result,) in zip(sources, results, strict=True):
        log_prob = sum(
            next_log_probs(endless, source, tuple(result.ids[:i]))[token]
            for i, token in enumerate([*result.ids, EOS])
        )
        assert result.log_prob == pytest.approx(log_prob, rel=1e-5)  # the forced eos costs too
        assert result.log_prob < -15


def test_there_may_be_fewer_outputs_than_wanted(max_extra):
    max_extra(0)
    (result,) = search(Toy(random_logits), batch([[]]), SearchOptions(4, 0.6, n_best=4))
    assert_same(result, all_outputs(random_logits, [], SearchOptions()))
    assert [hypothesis.ids for hypothesis in result] == [[]]


@pytest.mark.parametrize("alpha", [0, 0.6])
def test_n_best_are_sorted_distinct_and_scored_by_the_model(max_extra, alpha):
    max_extra(5)
    sources = some_sources(10)
    results = search(Toy(random_logits), batch(sources), SearchOptions(6, alpha, n_best=6))
    for source, result in zip(sources, results, strict=True):
        assert len(result) == 6
        assert len({tuple(hypothesis.ids) for hypothesis in result}) == 6
        assert [h.score for h in result] == sorted((h.score for h in result), reverse=True)
        for ids, score, log_prob, _ in result:
            assert set(ids) <= set(WORDS)
            tokens = enumerate([*ids, EOS])
            total = sum(next_log_probs(random_logits, source, tuple(ids[:i]))[t] for i, t in tokens)
            assert log_prob == pytest.approx(total, rel=1e-5)
            assert score == pytest.approx(total / ((6 + len(ids)) / 6) ** alpha, rel=1e-5)


# A sentence and its neighbours.


def talkative(source, prefix):
    """How soon it ends depends on the first word: 4 at once, 7 never."""
    row = random_logits(source, prefix)
    row[EOS] += {4: 20, 5: 1, 6: -1, 7: -20}[source[0]]
    return row


@pytest.mark.parametrize("options", [SearchOptions(1), SearchOptions(4), SearchOptions(5, 1.0, 3)])
def test_a_finished_sentence_is_left_alone_by_longer_neighbours(options):
    sources = [[7, 6], [4, 5, 6], [6], [4], [7], [5, 5, 4, 4], [5, 7]]
    together = search(Toy(talkative), batch(sources), options)
    lengths = [len(result[0].ids) for result in together]
    assert min(lengths) == 0
    assert max(lengths) == 52
    for source, result in zip(sources, together, strict=True):
        (alone,) = search(Toy(talkative), batch([source]), options)
        assert_same(result, alone)


@pytest.mark.parametrize("options", [SearchOptions(1), SearchOptions(4), SearchOptions(5, 1.0, 3)])
def test_results_do_not_depend_on_the_order_of_the_batch(max_extra, options):
    max_extra(6)
    sources = some_sources(25)
    results = search(Toy(talkative), batch(sources), options)
    order = random.Random(1).sample(range(25), 25)
    shuffled = search(Toy(talkative), batch([sources[i] for i in order]), options)
    for i, result in zip(order, shuffled, strict=True):
        assert_same(result, results[i])


@pytest.mark.parametrize("options", [SearchOptions(1), SearchOptions(4, n_best=2)])
def test_the_transformer_translates_alike_alone_and_in_a_batch(max_extra, options):
    max_extra(6)
    model = Transformer(vocab_size=30, N=2, d_model=16, d_ff=32, h=4).eval()
    with torch.no_grad():
        model.embedding.weight[EOS] *= 1.5  # so that some outputs end before their limits
    sources = [torch.randint(4, 30, (n % 9 + 1,)).tolist() for n in range(30)]
    model = InferenceModel(model)
    together = search(model, batch(sources), options)
    assert len({tuple(result[0].ids) for result in together}) > 10
    assert len({len(result[0].ids) for result in together}) > 5
    limits = [len(source) + 6 for source in sources]
    assert any(len(r[0].ids) < limit for r, limit in zip(together, limits, strict=True))
    for source, result in zip(sources, together, strict=True):
        (alone,) = search(model, batch([source]), options)
        assert_same(result, alone)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_no_sentences_have_no_translations(beam_size):
    none = torch.empty(0, 3, dtype=torch.long)
    assert search(Toy(random_logits), none, SearchOptions(beam_size)) == []


# Numbers.


@pytest.mark.parametrize(
    ("length", "alpha", "expected"),
    [
        (1, 0.6, 1.0),  # (5 + 1) / 6 = 1
        (7, 1.0, 2.0),
        (13, 2.0, 9.0),
        (25, 0.5, 5**0.5),
        (7, 0.6, 1.515717),  # 2^0.6
        (1000, 0.0, 1.0),
    ],
)
def test_length_penalty_by_hand(length, alpha, expected):
    assert length_penalty(length, alpha) == pytest.approx(expected, rel=1e-6)


def test_paper_s_options_are_the_default():
    assert SearchOptions() == SearchOptions(beam_size=4, alpha=0.6, n_best=1)
    assert mt.inference.sentence_search.MAX_EXTRA == 50


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_size", 0),
        ("beam_size", -4),
        ("beam_size", "4"),
        ("beam_size", 4.0),
        ("beam_size", True),
        ("beam_size", None),
        ("n_best", 0),
        ("n_best", True),
        ("n_best", "1"),
        ("n_best", 5),  # more than the beam holds
        ("alpha", -1),
        ("alpha", math.nan),
        ("alpha", math.inf),
        ("alpha", "0.6"),
        ("alpha", None),
    ],
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value!r}: must"):
        SearchOptions(**{name: value})


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_model_that_says_nan_ends_at_the_limit_too(max_extra, beam_size):
    max_extra(3)
    toy = Toy(lambda source, prefix: [math.nan] * V)
    for result in search(toy, batch([[4], [5, 6]]), SearchOptions(beam_size)):
        assert [math.isnan(hypothesis.score) for hypothesis in result] == [True]
    assert toy.steps <= 6
