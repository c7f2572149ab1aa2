"""A recorded search is the search: what its tree holds gives the n-best, number for number."""

import pytest
import torch
from conftest import babbler

from mt.data.special_ids import BOS, EOS
from mt.inference.beam_search import search
from mt.inference.incremental import InferenceModel
from mt.inference.options import SearchOptions
from mt.inference.search_tree import SearchTree, record
from mt.inference.sentence_search import Hypothesis, length_penalty

V = 60
SOURCES = [[5, 17, 9, 33, EOS], [40, EOS], [8, 8, 30, 22, 51, 6, 19, 44, EOS]]
OPTIONS = {
    "greedy": SearchOptions(beam_size=1),
    "beam 2": SearchOptions(beam_size=2),
    "beam 4, all of them": SearchOptions(beam_size=4, n_best=4),
    "beam 7, alpha 0": SearchOptions(beam_size=7, n_best=3, alpha=0),
    "beam 5, alpha 2": SearchOptions(beam_size=5, n_best=2, alpha=2),
    "beam 30": SearchOptions(beam_size=30, n_best=5, max_length=9),
    "at most 3 tokens": SearchOptions(beam_size=4, n_best=2, max_length=3),
    "no token": SearchOptions(beam_size=3, max_length=0),
    "at least 12 tokens": SearchOptions(beam_size=3, n_best=2, min_length=12),
    "no pair twice": SearchOptions(beam_size=4, n_best=3, no_repeat_ngram=2),
    "penalised": SearchOptions(beam_size=4, n_best=2, repetition_penalty=1.8),
}


@pytest.fixture(scope="module")
def model() -> InferenceModel:
    return InferenceModel(babbler(V))


def replay(tree: SearchTree) -> list[Hypothesis]:
    """The n-best from nothing but the nodes."""
    hypotheses = []
    for index in tree.n_best:
        path = []
        last = tree.nodes[index]
        node = last
        while node.parent is not None:
            path.insert(0, node)
            node = tree.nodes[node.parent]
        assert node.token == BOS
        total = 0.0
        for step, node in enumerate(path, 1):
            assert node.step == step
            total += node.log_prob
            assert node.total == total
        ids = [node.token for node in path if node.token != EOS]
        assert last.score is not None
        hypotheses.append(
            Hypothesis(ids, last.score, last.total, tuple(node.log_prob for node in path))
        )
    return hypotheses


@pytest.mark.parametrize("prefix", [[], [9, 30]], ids=["free", "prefix"])
@pytest.mark.parametrize("name", OPTIONS)
def test_replay_gives_the_n_best_exactly(
    model: InferenceModel, name: str, prefix: list[int]
) -> None:
    for source in SOURCES:
        src = torch.tensor([source])
        tree = record(model, src, OPTIONS[name], prefix)
        [expected] = search(model, src, OPTIONS[name], [prefix])
        assert tree.hypotheses == expected
        assert replay(tree) == expected


@pytest.mark.parametrize("name", OPTIONS)
def test_the_states_of_nodes_are_what_the_search_did(model: InferenceModel, name: str) -> None:
    options = OPTIONS[name]
    for source in SOURCES:
        tree = record(model, torch.tensor([source]), options)
        parents = {node.parent for node in tree.nodes}
        for index, node in enumerate(tree.nodes):
            assert node.parent is None or node.parent < index
            assert node.state in ("alive", "finished", "pruned")
            assert (node.state == "pruned") == bool(node.why)
            assert (node.state == "alive") == (index in parents)
            if node.state == "finished":
                assert node.penalty == length_penalty(node.step, options.alpha)
                assert node.score == node.total / node.penalty
            else:
                assert node.score is node.penalty is None
        steps = [node.step for node in tree.nodes]
        for step in set(steps) - {0}:
            own = [node for node in tree.nodes if node.step == step]
            going_on = [node for node in own if node.state == "alive"]
            assert len(own) <= max(1, 2 * options.beam_size)
            assert len(going_on) <= options.beam_size
            assert [n.total for n in own] == sorted((n.total for n in own), reverse=True)
        finished = [node.score for node in tree.nodes if node.score is not None]
        best = sorted(finished, reverse=True)[: options.n_best]
        assert [tree.nodes[index].score for index in tree.n_best] == best


def test_each_reason_is_true(model: InferenceModel) -> None:
    options = SearchOptions(beam_size=4, n_best=1)
    reasons = set()
    for source in SOURCES:
        tree = record(model, torch.tensor([source]), options)
        limit = len(source) - 1 + 50
        for node in tree.nodes:
            reasons.add(node.why.split(" ")[0])
            if node.why.startswith("it can reach"):
                best = node.total / length_penalty(limit + 1, options.alpha)
                finished = [n.score for n in tree.nodes if n.score is not None]
                assert best <= max(s for s in finished)
                assert f"{best:.4f}" in node.why
            elif node.why.startswith("it is not among"):
                own = [n for n in tree.nodes if n.step == node.step and n.token != EOS]
                assert sum(n.total >= node.total for n in own) > options.beam_size
    assert reasons == {"", "it", "no"}


def test_a_sentence_for_which_no_token_is_permitted(model: InferenceModel) -> None:
    options = SearchOptions(beam_size=2, no_repeat_ngram=1, min_length=V)
    src = torch.tensor([SOURCES[0]])
    tree = record(model, src, options)
    assert tree.hypotheses == search(model, src, options)[0] == replay(tree)


def test_what_does_not_compete_makes_no_tree(model: InferenceModel) -> None:
    for options in (SearchOptions(samples=2), SearchOptions(alternatives=2)):
        with pytest.raises(ValueError, match="leave out samples and alternatives"):
            record(model, torch.tensor([SOURCES[0]]), options)
