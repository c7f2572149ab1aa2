"""Files that version 0.1 wrote, before its modules moved into packages, still work."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from conftest import ENVIRONMENT
from train_helpers import weights

from mt import Translator

WRITTEN = Path(__file__).parent / "fixtures" / "version_0_1"
EXPECTED: dict[str, Any] = json.loads((WRITTEN / "expected.json").read_text("utf-8"))

SETTINGS = """
    data=files data.train=corpus/train data.validation=corpus/valid data.cache_dir=cache
    tokenizer.path=corpus/bpe.model model=tiny model.N=1 model.d_model=16 model.d_ff=32 model.h=2
    data.tokens_per_step=800 data.max_tokens=400 data.noise=0.2 tokenizer.bpe_dropout=0.1
    training.warmup_steps=50 search.beam_size=1 validate_every=10 checkpoint_every=5 average=3
    trainer.max_steps=12 trainer.accelerator=cpu trainer.devices=1
""".split()  # noqa: SIM905


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A copy of all files, each folder with its tokenizer."""
    folder = shutil.copytree(WRITTEN, tmp_path / "written")
    for place in ("model", "onnx", "ctranslate2", "run"):
        shutil.copy(folder / "bpe.model", folder / place / "tokenizer.model")
    shutil.copy(folder / "bpe.model", folder / "corpus" / "bpe.model")
    return folder


def check_translations(translator: Translator, name: str, beam_size: int) -> None:
    results = translator.translate(EXPECTED["sentences"], beam_size=beam_size)
    for result, (text, score) in zip(results, EXPECTED[name], strict=True):
        assert result.text == text
        assert result.score == pytest.approx(score, abs=1e-3)


def test_a_model_folder_translates_as_it_did(written: Path) -> None:
    check_translations(Translator.load(written / "model"), "model, beam 4", 4)


def test_a_training_checkpoint_translates_as_it_did(written: Path) -> None:
    checkpoint = written / "run" / "checkpoints" / "step-00000005.ckpt"
    check_translations(Translator.load(checkpoint), "checkpoint, greedy", 1)


@pytest.mark.slow
def test_a_run_goes_on_from_the_middle_of_its_epoch(written: Path) -> None:
    """On the machine that wrote the files the weights are equal to the last bit (2026-11-23);
    another CPU may round matrix products differently. The C++ draws other dropout."""
    checkpoint = written / "run" / "checkpoints" / "step-00000005.ckpt"
    done = subprocess.run(
        [sys.executable, "-m", "mt.train", *SETTINGS, f"ckpt={checkpoint}"],
        cwd=written, env=ENVIRONMENT | {"MT_NATIVE": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    resumed = weights(written / "run")
    expected = safetensors.torch.load_file(written / "final.safetensors")
    started = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert resumed.keys() == expected.keys()
    for name, weight in expected.items():
        if "MT_BIT_FOR_BIT" in os.environ:
            assert torch.equal(resumed[name], weight), name
        torch.testing.assert_close(resumed[name], weight, rtol=1e-3, atol=1e-5)
    moved = [(started[name] - weight).abs().max() for name, weight in expected.items()]
    assert max(moved) > 1e-3  # so that the comparison could fail


@pytest.mark.parametrize("module", ["mt.exports.onnx", "mt.export.onnx"])
def test_an_onnx_export_runs_with_the_import_lines_of_its_card(written: Path, module: str) -> None:
    pytest.importorskip("onnxruntime")
    engine = importlib.import_module(module).Engine(written / "onnx")
    search = importlib.import_module("mt.search").search
    translator = Translator.load(written / "model")
    ids = engine.encode(EXPECTED["sentences"][:1])[0]
    [[best]] = search(engine, torch.tensor([[*ids, 3]]), engine.options)
    assert engine.decode([best.ids]) == [translator.translate(EXPECTED["sentences"][:1])[0].text]


def test_a_ctranslate2_export_translates(written: Path) -> None:
    pytest.importorskip("ctranslate2")
    engine = importlib.import_module("mt.export.ctranslate2").Engine(written / "ctranslate2")
    ours = Translator.load(written / "model").translate(EXPECTED["sentences"], beam_size=1)
    theirs = engine.translate(EXPECTED["sentences"], beam_size=1)
    assert [result.text for result in theirs] == [result.text for result in ours]


def test_the_names_that_cards_print_are_the_names_of_today() -> None:
    from mt.search import SearchOptions, search  # type: ignore[import-not-found]
    from mt.translator import Translator as FromCard  # type: ignore[import-not-found]

    assert FromCard is Translator
    assert search is importlib.import_module("mt.inference.beam_search").search
    assert SearchOptions is importlib.import_module("mt.inference.options").SearchOptions
