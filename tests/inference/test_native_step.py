"""The step in C++: that of the model, and the same to the last bit alone and in company."""

import copy
import math
import pickle
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from mt.inference.beam_search import search
from mt.inference.incremental import InferenceModel
from mt.inference.native.best import best_tokens
from mt.inference.native.linear import NativeLinear
from mt.inference.native.step import NativeState
from mt.inference.options import SearchOptions
from mt.model.layers import ACTIVATIONS
from mt.model.marian import MarianTransformer
from mt.model.transformer import Transformer

BOS, EOS, V = 2, 3, 70
SHAPES: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"marian": True},  # attention has biases, and the output
    {"h": 1, "d_k": 32},
    {"h": 1, "d_model": 96, "learned_positions": 60},
    {"N": 1, "tied_embeddings": False, "scaled_scores": False},
    {"activation": "gelu", "d_ff": 84},
    {"activation": "gelu_tanh", "norm": "pre"},
    {"marian": True, "activation": "swish"},
]


def make(marian: bool = False, activation: str = "relu", **changes: Any) -> Transformer:
    """With biases and norms that are not their initial values: an omission would show."""
    torch.manual_seed(0)
    kind = MarianTransformer if marian else Transformer
    sizes = {"vocab_size": V, "N": 2, "d_model": 32, "d_ff": 64, "h": 2, **changes}
    model = kind(activation=activation, **sizes)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "bias" in name or "norm" in name:
                p += 0.3 * torch.randn_like(p)
        for layer in model.decoder:  # so that sources make a difference
            layer.cross_attention.W_O.weight *= 3
    return model.eval()


def sentence(length: int) -> Tensor:
    return torch.cat([torch.randint(4, V, (length - 1,)), torch.tensor([EOS])])


def batch(sentences: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True)


def native(model: Transformer, precision: str = "int8") -> InferenceModel:
    decoder = InferenceModel(model, precision)
    assert decoder.native is not None
    assert decoder.exact
    return decoder


@pytest.fixture(autouse=True)
def _native(native_library: Any) -> Any:
    with torch.inference_mode():
        yield


PRECISIONS = pytest.mark.parametrize("precision", ["float32", "int8"])


@PRECISIONS
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_logits_are_those_of_the_model(changes: dict[str, Any], precision: str) -> None:
    model = make(**changes)
    decoder = native(model, precision)
    src, tgt = batch([sentence(n) for n in (9, 4, 7)]), torch.randint(4, V, (3, 40))
    state = decoder.start(src)
    assert isinstance(state, NativeState)
    logits = torch.cat([decoder.step(tgt[:, t : t + 1], state) for t in range(40)], dim=1)
    exact = model(src, tgt)
    error = float((logits - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt())
    least, most = (1e-9, 2e-6) if precision == "float32" else (1e-4, 0.05)
    assert least < error < most


def alone(decoder: InferenceModel, source: Tensor, prefix: list[int]) -> Tensor:
    """The logits after a prefix, of one hypothesis of one sentence."""
    state = decoder.start(source[None])
    for token in prefix:
        logits = decoder.step(torch.tensor([[token]]), state)
    return logits[0, 0]


@PRECISIONS
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_hypotheses_and_sentences_come_and_go_and_change_no_bit(
    changes: dict[str, Any], precision: str
) -> None:
    """A random walk: at every step as many hypotheses as one likes, each of any parent."""
    rng = random.Random(0)
    decoder = native(make(**changes), precision)
    sources = [sentence(n) for n in (5, 2, 30, 3)]
    state = decoder.start(batch(sources))
    prefixes = [[[BOS]] for _ in sources]
    parents = None
    most = 0
    for _ in range(40):
        w = len(prefixes[0])
        last = torch.tensor([[prefix[-1] for prefix in rows] for rows in prefixes])
        logits = decoder.step(last, state, parents)
        most = max(most, state.used)
        for source, rows, own in zip(sources, prefixes, logits, strict=True):
            i = rng.randrange(w)
            assert torch.equal(own[i], alone(decoder, source, rows[i]))
        if len(sources) > 1 and rng.random() < 0.3:
            order = rng.sample(range(len(sources)), rng.randint(1, len(sources) - 1))
            state.select(order)
            sources, prefixes = [sources[i] for i in order], [prefixes[i] for i in order]
        wider = rng.choice([1, 2, 3, 5])
        parents = torch.tensor([[rng.randrange(w) for _ in range(wider)] for _ in prefixes])
        prefixes = [
            [[*rows[i], rng.randrange(4, V)] for i in chosen]
            for rows, chosen in zip(prefixes, parents.tolist(), strict=True)
        ]
        if len(sources) < 3 or rng.random() < 0.1:
            joining = [sentence(rng.randint(1, 12)) for _ in range(2)]
            state.join(decoder.start(batch(joining)))
            sources += joining
            prefixes += [[[BOS]] * wider for _ in joining]
            parents = torch.cat([parents, torch.zeros(2, wider, dtype=torch.long)])
    assert most < 40 * 5, "slots that nobody sees are used again"


@PRECISIONS
@pytest.mark.parametrize(
    ("options", "threads"),
    [
        (SearchOptions(beam_size=1), 1),
        (SearchOptions(beam_size=4, min_length=5), 2),
        (SearchOptions(beam_size=4, no_repeat_ngram=2, repetition_penalty=1.1), 1),
        (SearchOptions(samples=3), 2),
    ],
)
def test_sentences_are_translated_alike_alone_and_in_company(
    options: SearchOptions, threads: int, precision: str
) -> None:
    decoder = native(make(d_model=64, d_ff=128), precision)
    decoder.decoder[-1].feed_forward.norm.weight[::2] *= -1  # so that it does not repeat its input
    lengths = [random.Random(n).randint(1, 20) for n in range(60)]
    sources = [sentence(length) for length in lengths]
    options = replace(options, max_length=12)
    one_by_one = [search(decoder, source[None], options)[0][0] for source in sources]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = [hypotheses[0] for hypotheses in search(decoder, batch(sources), options)]
    finally:
        torch.set_num_threads(before)
    assert together == one_by_one
    assert len({tuple(h.ids) for h in together}) > 15


@pytest.mark.parametrize("k", [1, 8])
def test_the_best_tokens_are_those_of_log_softmax(k: int) -> None:
    unfinished = [True, False, True]
    logits = 3 * torch.randn(3, 20, 203)
    logits[1, 0, 100:] = logits[1, 0, 99]
    log_probs = logits.log_softmax(dim=2)
    log_probs[:, :, :3] = -torch.inf
    log_probs[[0, 2], :, EOS] = -torch.inf
    values, ids = best_tokens(logits.clone(), k, unfinished)
    wanted = log_probs.sort(dim=2, descending=True, stable=True)
    assert torch.equal(torch.from_numpy(ids), wanted.indices[:, :, :k])
    assert_close(torch.from_numpy(values), wanted.values[:, :, :k], atol=1e-5, rtol=1e-5)


def test_best_tokens_of_what_is_not_a_number_and_of_few() -> None:
    logits = torch.randn(1, 2, 6)
    logits[0, 1, 4] = torch.nan
    values, ids = best_tokens(logits, 6, [True])
    assert sorted(ids[0, 0, :2]) == [4, 5]
    assert (values[0, 0, 2:] == -math.inf).all()
    assert math.isnan(values[0, 1, 0])


@PRECISIONS
def test_a_row_that_is_not_a_number_shows(precision: str) -> None:
    """Whole numbers would hide it."""
    decoder = native(make(), precision)
    decoder.embedding[7] = torch.nan
    logits = decoder.step(torch.tensor([[7], [8]]), decoder.start(batch([sentence(4)] * 2)))
    assert logits[0].isnan().all()
    assert logits[1].isfinite().all()


@PRECISIONS
def test_torch_may_have_another_default_type(precision: str) -> None:
    decoder = native(make(), precision)
    src = sentence(4)[None]
    options = SearchOptions(beam_size=3, max_length=5)
    wanted = decoder.step(torch.tensor([[7]]), decoder.start(src)), search(decoder, src, options)
    torch.set_default_dtype(torch.float64)
    try:
        step = decoder.step(torch.tensor([[7]]).int(), decoder.start(src.int()))
        results = step, search(decoder, src, options)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(results[0], wanted[0])
    assert results[1] == wanted[1]


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_a_copy_of_a_model_runs_as_the_model(activation: str) -> None:
    model = make(activation=activation)
    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    src = sentence(4)[None]
    steps = [
        decoder.step(torch.tensor([[7]]), decoder.start(src))
        for decoder in map(native, (model, *copies))
    ]
    assert torch.equal(steps[0], steps[1])
    assert torch.equal(steps[0], steps[2])


def test_ids_that_are_not_in_the_vocabulary_are_refused() -> None:
    decoder = native(make())
    with pytest.raises(IndexError, match="a source id is not in the vocabulary"):
        decoder.start(torch.tensor([[V, EOS]]))
    state = decoder.start(sentence(3)[None])
    with pytest.raises(IndexError, match="a token is not in the vocabulary"):
        decoder.step(torch.tensor([[-1]]), state)


OTHERS = [{"h": 4}, {"d_model": 24, "h": 1}, {"d_ff": 66}]


@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_other_models_have_its_products_of_8_bits_alone(changes: dict[str, Any]) -> None:
    model = make(**changes)
    decoder = InferenceModel(model, "int8")
    assert decoder.native is None
    assert isinstance(decoder.vocabulary, NativeLinear)
    assert not decoder.exact
    src, tgt = sentence(6)[None], torch.tensor([[BOS]])
    logits = decoder.step(tgt, decoder.start(src))
    assert float((logits - model(src, tgt)).abs().max()) < 0.1 * float(logits.abs().max())


@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_other_models_are_computed_by_pytorch_in_float32(changes: dict[str, Any]) -> None:
    model = make(**changes)
    decoder = InferenceModel(model)
    assert decoder.native is None
    assert not isinstance(decoder.decoder[0].feed_forward.W_1, NativeLinear)
    src, tgt = sentence(6)[None], torch.tensor([[BOS]])
    assert_close(decoder.step(tgt, decoder.start(src)), model(src, tgt))
