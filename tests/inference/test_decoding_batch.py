"""Sentences that join and leave a batch, each with its own options, and alternatives."""

import random

import pytest
from test_beam_search import EOS, WORDS, Rules, Toy, ToyState, V, batch, random_logits, some_sources

from mt.data.batch_sampler import pad
from mt.inference.beam_search import DecodingBatch, search
from mt.inference.incremental import InferenceModel
from mt.inference.options import SearchOptions
from mt.inference.sentence_search import SentenceSearch, length_penalty
from mt.model.transformer import Transformer


class JoiningState(ToyState):
    def join(self, other):
        w = len(self.prefixes[0])
        assert all(prefixes == [()] for prefixes in other.prefixes)
        self.sources += other.sources
        self.prefixes += [prefixes * w for prefixes in other.prefixes]


class JoiningToy(Toy):
    def start(self, src):
        state = super().start(src)
        return JoiningState(state.sources)


OPTIONS = [
    SearchOptions(beam_size=1),
    SearchOptions(beam_size=4, alpha=1.0, n_best=3),
    SearchOptions(beam_size=3, min_length=4),
    SearchOptions(beam_size=2, repetition_penalty=1.7, no_repeat_ngram=2),
    SearchOptions(samples=3, n_best=3, seed=3),
    SearchOptions(samples=2, top_k=3, temperature=0.7),
    SearchOptions(alternatives=3, n_best=3),
]


@pytest.mark.parametrize("seed", range(4))
def test_a_sentence_does_not_depend_on_those_that_come_and_go(seed):
    rng = random.Random(seed)
    running = DecodingBatch(JoiningToy(random_logits))
    expected, results = {}, {}
    jobs = [(source, rng.choice(OPTIONS)) for source in some_sources(40)]
    while jobs or running.active:
        newcomers = [jobs.pop() for _ in range(min(len(jobs), rng.choice([0, 0, 1, 3])))]
        if newcomers:
            sentences = []
            for source, options in newcomers:
                prefix = rng.choices(WORDS, k=rng.choice([0, 0, 2]))
                sentence = SentenceSearch.begin(source, options, prefix)
                sentences.append(sentence)
                (alone,) = search(Toy(random_logits), batch([source]), options, [prefix])
                expected[sentence] = alone
            running.join(batch([source for source, _ in newcomers]), sentences)
        if len(running.active) > 1 and rng.random() < 0.1:
            dropped = rng.choice(running.active)
            running.remove({dropped})
            del expected[dropped]
        if running.active:
            before = list(running.active)
            running.step()
            for sentence in before:
                if not sentence.alive:
                    results[sentence] = sentence.hypotheses()
    assert results.keys() == expected.keys()
    for sentence, hypotheses in results.items():
        assert [h.ids for h in hypotheses] == [h.ids for h in expected[sentence]]
        for hypothesis, alone in zip(hypotheses, expected[sentence], strict=True):
            assert hypothesis.score == pytest.approx(alone.score, abs=1e-5)


def test_the_best_up_to_now_is_a_beginning_of_the_greedy_output():
    running = DecodingBatch(Toy(random_logits))
    (source,) = some_sources(1)
    sentence = SentenceSearch.begin(source, SearchOptions(beam_size=1))
    running.join(batch([source]), [sentence])
    seen = []
    while running.active:
        seen.append(sentence.best_ids())
        running.step()
    best = sentence.hypotheses()[0].ids
    assert seen == [best[:n] for n in range(len(seen))]
    assert sentence.best_ids() == best


def naive_alternatives(source, prefix, options):
    """Each of the likeliest tokens after the prefix, continued greedily."""
    rules = Rules(options, source, prefix)
    output, total = (), 0.0
    for token in prefix:
        total += rules.log_probs(random_logits, source, output)[token]
        output = (*output, token)
    permitted = rules.log_probs(random_logits, source, output)
    firsts = sorted(permitted, key=lambda token: -permitted[token])[: options.alternatives]
    results = []
    for first in firsts:
        ids, log_prob = (*output, first), total + permitted[first]
        while ids[-1] != EOS:
            following = rules.log_probs(random_logits, source, ids)
            token = max(following, key=lambda t: following[t])
            ids, log_prob = (*ids, token), log_prob + following[token]
        results.append((log_prob / length_penalty(len(ids), options.alpha), ids[:-1]))
    return sorted(results, reverse=True)


@pytest.mark.parametrize("prefix", [[], [5], [7, 4, 4]])
@pytest.mark.parametrize("count", [1, 2, V - 3])
def test_alternatives_differ_in_the_first_free_token(prefix, count):
    options = SearchOptions(alternatives=count, n_best=count, alpha=0.5)
    sources = some_sources(12)
    results = search(Toy(random_logits), batch(sources), options, [prefix] * len(sources))
    for source, hypotheses in zip(sources, results, strict=True):
        wanted = naive_alternatives(source, prefix, options)
        assert [tuple(h.ids) for h in hypotheses] == [ids for _, ids in wanted]
        for hypothesis, (score, _) in zip(hypotheses, wanted, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
        assert len({tuple(h.ids[: len(prefix) + 1]) for h in hypotheses}) == count


def test_there_are_no_more_alternatives_than_tokens():
    options = SearchOptions(alternatives=V, n_best=V)
    (hypotheses,) = search(Toy(random_logits), batch([[5]]), options)
    assert len(hypotheses) == V - 3  # without pad, unk and bos
    assert len({tuple(h.ids[:1]) for h in hypotheses}) == V - 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alternatives": 2, "samples": 2}, "samples and alternatives exclude each other"),
        ({"alternatives": 2, "n_best": 3}, "n_best=3: must not exceed alternatives=2"),
        ({"alternatives": -1}, "alternatives=-1"),
    ],
)
def test_alternatives_have_bounds(settings, message):
    with pytest.raises(ValueError, match=message):
        SearchOptions(**settings)


def test_a_greedy_sentence_goes_on_after_a_beam_has_left():
    """The mask keeps a row for each hypothesis of the widest sentence; one of them is left."""
    model = InferenceModel(Transformer(40, N=1, d_model=16, d_ff=16, h=2).eval())
    options = SearchOptions(beam_size=4, max_length=3), SearchOptions(beam_size=1, max_length=12)
    sources = [[10, 11, 12], [13, 14]]
    pairs = zip(sources, options, strict=True)
    sentences = [SentenceSearch.begin(ids, own) for ids, own in pairs]
    running = DecodingBatch(model)
    running.join(pad([[*ids, 3] for ids in sources]), sentences)
    while running.active:
        running.step()
    for ids, own, sentence in zip(sources, options, sentences, strict=True):
        (alone,) = search(model, pad([[*ids, 3]]), own)
        assert [h.ids for h in sentence.hypotheses()] == [h.ids for h in alone]
