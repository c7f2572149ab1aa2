"""The report: its numbers are those of the model, its arrays are stored well, and it is small."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import babbler

from mt.data.special_ids import BOS, EOS
from mt.data.tokenizer import Tokenizer
from mt.inference.alignment import soft_alignment
from mt.inference.translator import Translator
from mt.inspection.arrays import LEVELS, SMALL, decode, encode
from mt.inspection.report import TOP, inspect
from mt.model.transformer import Transformer, positional_encoding

SENTENCE = "Where do you live?"


@pytest.fixture(scope="module")
def translator(bpe: Tokenizer) -> Translator:
    return Translator(babbler(bpe.vocab_size, h=4), bpe, max_length=60, name="babbler")


@pytest.fixture(scope="module")
def report(translator: Translator) -> dict[str, Any]:
    return inspect(translator, SENTENCE, n_best=2, max_length=12)


@pytest.fixture(scope="module")
def forced(translator: Translator) -> dict[str, Any]:
    return inspect(translator, SENTENCE, "Wo wohnst du denn?", layer=1, head=3, step=4)


@pytest.mark.parametrize("shape", [(SMALL,), (SMALL + 1,), (3, 5, 40), (2, 0)])
def test_arrays_are_stored_within_half_a_level(shape: tuple[int, ...]) -> None:
    values = 300 * torch.randn(shape) - 70
    stored = json.loads(json.dumps(encode(values)))
    decoded = decode(stored)
    assert decoded.shape == shape
    if values.numel() > SMALL:
        half = (values.max() - values.min()).item() / LEVELS / 2
        assert stored["scale"] / 2 == pytest.approx(half, rel=1e-5)
        assert np.abs(decoded - values.double().numpy()).max() <= half * (1 + 1e-9)
        assert decoded.min() == values.min().item()
    else:
        np.testing.assert_allclose(decoded, values, rtol=1e-6)


def test_equal_numbers_are_stored_exactly() -> None:
    assert (decode(encode(torch.full((30, 30), 0.7))) == torch.tensor(0.7).item()).all()


def test_the_report_is_json_without_nan(report: dict[str, Any], forced: dict[str, Any]) -> None:
    for content in (report, forced):
        assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_source_target_and_translation(
    translator: Translator, report: dict[str, Any], forced: dict[str, Any]
) -> None:
    ids = translator.tokenizer.encode([SENTENCE])[0]
    assert report["source"]["ids"] == [*ids, EOS]
    assert report["source"]["pieces"] == [*translator.tokenizer.pieces(ids), "</s>"]
    [result] = translator.translate([SENTENCE], n_best=2, max_length=12)
    assert report["translation"]["text"] == report["target"]["text"] == result.text
    assert report["translation"]["score"] == report["target"]["score"] == result.score
    assert report["target"]["log_prob"] == pytest.approx(result.log_prob)
    assert report["target"]["pieces"][:-1] == list(result.parts[0].output)
    assert report["target"]["inputs"] == ["<s>", *report["target"]["pieces"][:-1]]
    assert not report["target"]["given"]
    assert forced["target"]["given"]
    [scored] = translator.score([SENTENCE], ["Wo wohnst du denn?"])
    assert forced["target"]["text"] == scored.text
    assert forced["target"]["log_prob"] == pytest.approx(scored.log_prob, abs=1e-9)
    assert forced["target"]["score"] == pytest.approx(scored.score, abs=1e-9)


def test_the_model(report: dict[str, Any], translator: Translator) -> None:
    model = babbler(translator.tokenizer.vocab_size, h=4)
    names = ("N", "d_model", "d_ff", "h", "d_k", "vocab_size")
    assert [report["model"][n] for n in names] == [model.config[n] for n in names]
    assert report["model"]["parameters"] == sum(p.numel() for p in model.parameters())


def test_attention_and_its_entropy(report: dict[str, Any], translator: Translator) -> None:
    S, T = len(report["source"]["ids"]), len(report["target"]["ids"])
    inspection = translator.inspect(SENTENCE, max_length=12)
    shapes = {"encoder": (1, 4, S, S), "decoder": (1, 4, T, T), "cross": (1, 4, T, S)}
    for kind, shape in shapes.items():
        weights = decode(report["attention"][kind])
        assert weights.shape == shape
        assert np.abs(weights - inspection.trace.weights[kind].numpy()).max() <= 0.5 / LEVELS + 1e-9
        assert np.abs(weights.sum(axis=-1) - 1).max() < shape[-1] * 0.5 / LEVELS + 1e-6
        entropy = decode(report["attention"]["entropy"][kind])
        exact = inspection.trace.weights[kind].double().numpy()
        logs = np.log(np.where(exact > 0, exact, 1))
        np.testing.assert_allclose(entropy, -(exact * logs).sum(-1).mean(-1), atol=1e-5)


def test_the_steps_have_the_probabilities_of_the_search(
    report: dict[str, Any], translator: Translator
) -> None:
    ids, V = report["target"]["ids"], translator.tokenizer.vocab_size
    model = translator.models[0]
    state = model.start(torch.tensor([report["source"]["ids"]]))
    [result] = translator.translate([SENTENCE], max_length=12)
    for t, (read, written) in enumerate(zip([BOS, *ids], ids, strict=False)):
        logits = model.step(torch.tensor([[read]]), state)[0, 0].double()
        log_probs = logits.log_softmax(dim=0)
        step = report["steps"][t]
        assert step["piece"] == translator.tokenizer.pieces([written])[0]
        assert step["log_prob"] == pytest.approx(float(log_probs[written]), abs=1e-5)
        assert step["log_prob"] == pytest.approx(result.parts[0].log_probs[t], abs=1e-5)
        assert step["rank"] == 1 + int((logits > logits[written]).sum())
        pieces, top, probs = zip(*step["top"], strict=True)
        best = logits.topk(TOP)
        assert list(pieces) == translator.tokenizer.pieces(best.indices.tolist())
        assert list(top) == pytest.approx(best.values.tolist(), abs=1e-5)
        assert list(probs) == pytest.approx(log_probs[best.indices].exp().tolist(), abs=1e-6)
        assert sum(probs) + step["rest"] == pytest.approx(1, abs=1e-9)
        for temperature, rest in zip(report["temperatures"], step["rest_logsumexp"], strict=True):
            exact = (logits / temperature).softmax(dim=0)[best.indices[0]]
            total = sum(math.exp(logit / temperature) for logit in top) + math.exp(rest)
            assert math.exp(top[0] / temperature) / total == pytest.approx(float(exact), abs=1e-5)
    assert len(report["steps"]) == len(ids)
    assert len(best.indices) < V


def test_the_tree_gives_the_n_best_and_greedy_is_beside_it(
    report: dict[str, Any], translator: Translator
) -> None:
    [result] = translator.translate([SENTENCE], n_best=2, max_length=12)
    nodes = report["tree"]["nodes"]
    assert [node["id"] for node in nodes] == list(range(len(nodes)))
    scores = [nodes[index]["score"] for index in report["tree"]["n_best"]]
    assert list(zip(report["tree"]["texts"], scores, strict=True)) == list(result.n_best)
    best, path = nodes[report["tree"]["n_best"][0]], []
    while best["parent"] is not None:
        path.insert(0, best["piece"])
        best = nodes[best["parent"]]
    assert path == report["target"]["pieces"]
    [greedy] = translator.translate([SENTENCE], beam_size=1)
    assert report["tree"]["greedy"]["text"] == greedy.text
    assert report["tree"]["greedy"]["log_probs"] == list(greedy.parts[0].log_probs)
    assert report["tree"]["options"]["n_best"] == 2


def test_the_search_begins_with_a_prefix(translator: Translator) -> None:
    report = inspect(translator, SENTENCE, prefix="Wo wohnst", max_length=12)
    [result] = translator.translate([SENTENCE], prefixes=["Wo wohnst"], max_length=12)
    assert report["translation"]["text"] == result.text
    assert report["translation"]["score"] == result.score
    for text in (result.text, report["tree"]["greedy"]["text"]):
        assert text.startswith("Wo wohnst")


def test_embeddings_their_neighbours_and_positions(
    report: dict[str, Any], translator: Translator
) -> None:
    table = translator.models[0].embedding.double()
    ids = report["source"]["ids"]
    stored = decode(report["embedding"]["source"])
    half = np.ptp(stored) / LEVELS / 2 * 1.01
    assert np.abs(stored - (table[ids] * math.sqrt(32)).numpy()).max() <= half + 1e-6
    inputs = [BOS, *report["target"]["ids"][:-1]]
    stored = decode(report["embedding"]["target"])
    assert np.abs(stored - (table[inputs] * math.sqrt(32)).numpy()).max() <= half + 1e-6
    pieces = {*report["source"]["pieces"], *report["target"]["pieces"], "<s>"}
    assert report["embedding"]["neighbours"].keys() == pieces
    rows = table / table.norm(dim=1, keepdim=True).clamp(min=1e-12)
    for piece, i in zip(report["source"]["pieces"], ids, strict=True):
        cosines = rows @ rows[i]
        cosines[i] = -2
        neighbours = report["embedding"]["neighbours"][piece]
        assert [v for _, v in neighbours] == pytest.approx(
            cosines.topk(8).values.tolist(), abs=1e-4
        )
    positions = positional_encoding(torch.arange(64), 32)
    stored = decode(report["positions"]["table"])
    assert np.abs(stored - positions.numpy()).max() <= 1 / LEVELS + 1e-6
    products = decode(report["positions"]["dot_products"])
    assert np.abs(products - (positions @ positions.T).numpy()).max() <= 16 / LEVELS
    assert report["positions"]["learned"] is None


def test_learned_positions_stand_beside_the_sinusoids(bpe: Tokenizer) -> None:
    model = Transformer(bpe.vocab_size, N=1, d_model=16, d_ff=16, h=2, learned_positions=50).eval()
    report = inspect(Translator(model, bpe, max_length=40), "Hello", max_length=4)
    assert model.positions is not None
    stored = decode(report["positions"]["learned"])
    assert np.abs(stored - model.positions.weight.detach().numpy()).max() < 1e-4
    assert decode(report["positions"]["table"]).shape == (64, 16)


def test_the_step_by_hand(forced: dict[str, Any]) -> None:
    assert [record["kind"] for record in forced["by_hand"]] == ["encoder", "decoder", "cross"]
    for record in forced["by_hand"]:
        assert (record["layer"], record["head"], record["step"]) == (1, 3, 4)
        values = {k: decode(v["values"]) for k, v in record.items() if isinstance(v, dict)}
        for name, array in values.items():
            assert list(array.shape) == record[name]["shape"]
        close = {"atol": 2e-3, "rtol": 2e-3}  # 16 bits
        scores = values["K"] @ values["q"]
        np.testing.assert_allclose(values["scores"], scores, **close)
        np.testing.assert_allclose(values["scaled"], values["scores"] / math.sqrt(8), rtol=1e-5)
        for name, form in (("softmax", "scaled"), ("unscaled_softmax", "scores")):
            exps = np.exp(values[form]) * values["mask"]
            np.testing.assert_allclose(values[name], exps / exps.sum(), atol=1e-5)
        np.testing.assert_allclose(values["context"], values["softmax"] @ values["V"], **close)
        np.testing.assert_allclose(values["heads_concatenated"][16:24], values["context"], **close)
        total = values["x"] + values["after_W_O"]
        np.testing.assert_allclose(values["add_norm"], normalised(total), **close)
        total = values["feed_forward_input"] + values["feed_forward"]
        np.testing.assert_allclose(values["feed_forward_add_norm"], normalised(total), **close)
    masks = [decode(record["mask"]["values"]) for record in forced["by_hand"]]
    assert masks[0].all()
    assert masks[2].all()
    assert masks[1].tolist() == [1] * 4 + [0] * (len(forced["target"]["ids"]) - 4)


def test_the_step_by_hand_names_another_activation(bpe: Tokenizer) -> None:
    model = babbler(bpe.vocab_size, h=4, activation="gelu")
    record = inspect(Translator(model, bpe, max_length=60), SENTENCE, max_length=12)
    assert record["model"]["activation"] == "gelu"
    for own in record["by_hand"]:
        assert own["feed_forward_inner"]["equation"] == "gelu(x W_1 + b_1)  (equation 2)"


def normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def test_the_alignment_is_that_of_the_translator(
    forced: dict[str, Any], translator: Translator
) -> None:
    alignment, aligner = forced["alignment"], translator.aligner
    assert alignment["heads"] == [[layer + 1, head + 1] for layer, head in aligner.heads]
    assert alignment["words"]["source"] == ["Where", "do", "you", "live", "?"]
    assert alignment["words"]["target"] == ["Wo", "wohnst", "du", "denn", "?"]
    weights = translator.inspect(SENTENCE, "Wo wohnst du denn?").trace.weights["cross"]
    soft = soft_alignment(weights, aligner).numpy()
    assert np.abs(decode(alignment["soft"]) - soft).max() <= 1 / LEVELS
    assert all(0 <= s < 5 and 0 <= t < 5 and weight >= 0.15 for s, t, weight in alignment["links"])


def test_thirty_pieces_with_six_layers_and_eight_heads_take_less_than_a_megabyte(
    bpe: Tokenizer,
) -> None:
    model = Transformer(bpe.vocab_size, N=6, d_model=512, d_ff=64, h=8).eval()
    large = Translator(model, bpe, max_length=60)
    text = bpe.decode([list(range(40, 40 + 29))])[0]
    report = inspect(large, text, text, max_length=30)
    ids = report["source"]["ids"]
    assert 28 <= len(ids) <= 60
    size = len(json.dumps(report, ensure_ascii=False, separators=(",", ":")).encode())
    assert size < 900_000 * max(1, (len(ids) / 30) ** 2)  # the page's own files come to it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sentence": " "}, "nothing to look into"),
        ({"sentence": "live " * 70}, "pieces, more than the 60"),
        ({"target": ""}, "nothing to look into"),
        ({"target": "du " * 70}, "target: .* pieces, more than the 60"),
        ({"layer": 2}, "layer=2: must be a whole number from 1 to 1"),
        ({"head": 0}, "head=0"),
        ({"step": 99}, "step=99: must be a whole number from 1 to"),
        ({"samples": 2}, "leave out samples"),
        ({"mbr": True}, "leave out mbr"),
        ({"prefix": " "}, "nothing to look into"),
        ({"beam_size": 0}, "beam_size=0"),
    ],
)
def test_what_cannot_be_inspected(
    translator: Translator, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        inspect(translator, **({"sentence": SENTENCE, "max_length": 9} | arguments))


def test_an_ensemble_and_a_model_without_numbers(bpe: Tokenizer) -> None:
    models = [babbler(bpe.vocab_size, seed) for seed in (1, 2)]
    with pytest.raises(ValueError, match="inspect one at a time"):
        Translator(models, bpe, 60).inspect(SENTENCE)
    with torch.no_grad():
        models[0].encoder[0].feed_forward.W_2.bias.fill_(math.nan)
    with pytest.raises(ValueError, match="are not numbers"):
        Translator(models[0], bpe, 60).inspect(SENTENCE)
    with pytest.raises(TypeError, match="target: must be a string, not int"):
        Translator(models[1], bpe, 60).inspect(SENTENCE, 3)  # type: ignore[arg-type]
