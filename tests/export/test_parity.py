"""The gate of mt.export: which outputs prove an export, and which are refused."""

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import babbler
from export_helpers import LINES, Run

from mt.data.tokenizer import Tokenizer
from mt.export import __main__, parity
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint

pytest_plugins = ["export_helpers"]


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface"])
def test_another_function_is_not_let_through(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    engine = __main__.engine_of(form)
    write = engine.write

    def wrong(loaded: Any, folder: Path, precision: str) -> None:
        loaded = copy.deepcopy(loaded)
        with torch.no_grad():
            loaded.model.decoder[0].feed_forward.W_1.bias += 0.5
        write(loaded, folder, precision)

    monkeypatch.setattr(engine, "write", wrong)
    done = run("--to", form, model, "out")
    assert done.code == 2
    [line] = done.err.splitlines()
    assert "of 30 sentences are translated differently" in line
    assert "first in sentence 1, " in line
    assert "Traceback" not in done.err
    assert list(Path().iterdir()) == []


class Fake:
    """An engine that is our own but for what a test changes."""

    computes_in = "float32"

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.pieces: Callable[[int, list[int]], list[int]] = lambda i, ids: ids
        self.output: Callable[[int, list[int]], list[int]] = lambda i, ids: ids
        self.count = itertools.count()

    def encode(self, sentences: list[str]) -> list[list[int]]:
        rows = self.translator.tokenizer.encode(list(sentences))
        return [self.pieces(i, ids) for i, ids in enumerate(rows)]

    def decode(self, ids: list[list[int]]) -> list[str]:
        return self.translator.tokenizer.decode(ids)

    def greedy(self, sources: list[list[int]]) -> list[list[int]]:
        results = self.translator.search(sources, SearchOptions(beam_size=1), [[] for _ in sources])
        return [self.output(next(self.count), hypotheses[0].ids) for hypotheses in results]


def test_a_model_of_no_use_is_told(run: Run, bpe: Tokenizer) -> None:
    """Its export may be right all the same: nobody would see it in the number of equal outputs."""
    silent = babbler(bpe.vocab_size)
    with torch.no_grad():
        silent.decoder[-1].add_norm[-1].norm.weight.zero_()
        silent.decoder[-1].add_norm[-1].norm.bias.fill_(1)
        silent.embedding.weight[3] = 10  # eos
    checkpoint.save("silent", silent, bpe, 40, ["en", "de"], {})
    done = run("--to", "ctranslate2", "silent", "out")
    assert done.code == 0
    expected = "30 of 30 greedy translations are ours (1 different ones, the same for every"
    assert expected in done.out
    assert json.loads(Path("out/parity.json").read_text())["different outputs"] == 1


def test_the_first_difference_is_named(translator: Translator) -> None:
    fake = Fake(translator)
    assert parity.check(translator, fake, LINES, LINES, exact=True)["equal greedy outputs"] == 40
    fake = Fake(translator)
    fake.output = lambda i, ids: ids if i < 27 else [*ids[:2], 7, *ids[3:]]
    [result] = translator.translate([LINES[27]], beam_size=1)
    pieces = result.parts[0].output
    with pytest.raises(parity.Difference) as error:
        parity.check(translator, fake, LINES, LINES, exact=True)
    assert f"first in sentence 28, {LINES[27]!r}, token 3, " in str(error.value)
    assert f"after {' '.join(pieces[:2])!r}" in str(error.value)
    assert f"ours {pieces[2]!r}" in str(error.value)


def test_an_output_that_ends_early_is_a_difference(translator: Translator) -> None:
    fake = Fake(translator)
    fake.output = lambda i, ids: ids[:-1] if i == 4 else ids
    with pytest.raises(parity.Difference, match=r"1 of 40 .* sentence 5, .*'</s>', ours"):
        parity.check(translator, fake, LINES, LINES, exact=True)


def test_another_tokenizer_is_a_difference(translator: Translator) -> None:
    fake = Fake(translator)
    fake.pieces = lambda i, ids: ids[::-1] if i == 2 else ids
    with pytest.raises(parity.Difference, match=r"sentence 3, .*: its tokenizer gives"):
        parity.check(translator, fake, LINES, LINES, exact=False)


def test_a_reduced_precision_is_held_to_bleu(translator: Translator) -> None:
    outputs = [result.text for result in translator.translate(LINES, beam_size=1)]
    fake = Fake(translator)
    fake.output = lambda i, ids: [*ids[:-1], 7] if i == 4 else ids  # of 40 babbled lines
    result = parity.check(translator, fake, LINES, LINES[::-1], exact=False)
    assert result["equal greedy outputs"] == 39
    assert result["BLEU of one against the other"] < 100
    fake = Fake(translator)
    fake.output = lambda i, ids: [7] if i % 2 else ids
    with pytest.raises(parity.Difference, match=r"20 of 40 .* BLEU \d+\.\d\d, ours 100.00"):
        parity.check(translator, fake, LINES, outputs, exact=False)


def test_two_that_are_equally_bad_are_not_alike(translator: Translator) -> None:
    """BLEU is near 0 for any babble: it alone would let all through."""
    fake = Fake(translator)
    fake.output = lambda i, ids: ids[::-1]
    with pytest.raises(parity.Difference, match="of one against the other"):
        parity.check(translator, fake, LINES, LINES, exact=False)


def test_another_way_back_to_text_is_a_difference(translator: Translator) -> None:
    fake = Fake(translator)
    fake.decode = lambda ids: [  # type: ignore[method-assign]
        text.replace("e", "a", 1) for text in translator.tokenizer.decode(ids)
    ]
    with pytest.raises(parity.Difference, match=r"by its tokenizer, .* by ours"):
        parity.check(translator, fake, LINES, LINES, exact=True)
