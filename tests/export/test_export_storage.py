"""Exports of models with a tokenizer of bytes, and of folders whose weights are in 8 bits."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import babbler

from mt.data import phrasebook
from mt.data import tokenizer as tokenizers
from mt.data.tokenizer import Tokenizer
from mt.export import __main__
from mt.model import checkpoint

for name in itertools.chain.from_iterable(__main__.FORMATS.values()):
    pytest.importorskip(name)

LINES = [
    "I love 😀❤️ and 東京.", "👍🏽 👨‍👩‍👧 Where do you live?", "Привет, мир", "25 m² for 1,250.50 €",
    *(source for source, _ in itertools.islice(phrasebook.load("test"), 26)),
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    text = itertools.chain.from_iterable(phrasebook.phrases())
    return tokenizers.train(text, 700, byte_fallback=True, split_digits=True)


def save(folder: Path, tokenizer: Tokenizer, storage: str) -> Path:
    model = babbler(tokenizer.vocab_size)
    checkpoint.save(folder, model, tokenizer, 60, ["en", "de"], {}, storage=storage)
    return folder


@pytest.mark.parametrize(
    "form", ["ctranslate2", "huggingface", pytest.param("onnx", marks=pytest.mark.slow)]
)
def test_a_tokenizer_of_bytes_is_exported(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: Any, form: str
) -> None:
    """The gate compares the ids, the greedy translations, which hold bytes, and their texts."""
    monkeypatch.setattr(__main__, "NUM_SENTENCES", len(LINES))
    (tmp_path / "en").write_text("".join(f"{line}\n" for line in LINES))
    model, out = save(tmp_path / "model", tokenizer, "int8"), tmp_path / "out"
    own = ["--src", str(tmp_path / "en"), "--ref", str(tmp_path / "en")]
    assert __main__.main(["--to", form, *own, str(model), str(out)]) == 0, capsys.readouterr().err
    report = json.loads((out / "parity.json").read_text())
    assert report["equal greedy outputs"] == len(LINES)
    engine = __main__.engine_of(form).Engine(out)
    ids = engine.encode(LINES[:4])
    assert ids == tokenizer.encode(LINES[:4])
    assert engine.decode(ids) == LINES[:4]
    written = itertools.chain.from_iterable(engine.greedy(ids))
    assert any(piece.startswith("<0x") for piece in tokenizer.pieces(list(written)))


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface"])
def test_an_export_of_8_bits_is_that_of_the_weights_they_stand_for(
    tmp_path: Path, tokenizer: Tokenizer, form: str
) -> None:
    small = save(tmp_path / "small", tokenizer, "int8")
    loaded, files = checkpoint.load(small), []
    checkpoint.save(
        tmp_path / "plain", loaded.model, tokenizer, 60, ["en", "de"], {}, storage="float32"
    )
    for model in (small, tmp_path / "plain"):
        folder = tmp_path / f"{model.name}-{form}"
        folder.mkdir()
        __main__.engine_of(form).write(checkpoint.load(model), folder, "float32")
        [file] = (file for file in folder.iterdir() if file.stem == "model")
        files.append(file.read_bytes())
    assert files[0] == files[1]
