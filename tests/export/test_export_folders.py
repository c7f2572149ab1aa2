"""The folders that mt.export writes: what they say of the model, and nothing of this machine."""

import importlib
import json
import math
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from mt.export import __main__, common
from mt.inference.confidence import Calibration, calibration_of
from mt.model import checkpoint

pytest_plugins = ["export_helpers"]


def test_a_damaged_onnx_folder_is_named(tmp_path: Path, model: Path) -> None:
    from mt.export import onnx

    with pytest.raises(FileNotFoundError, match=r"encoder\.onnx is missing"):
        onnx.Engine(tmp_path)
    for name in onnx.FILES:
        (tmp_path / name).write_bytes(b"{}")
    shutil.copy(model / "tokenizer.model", tmp_path)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        onnx.Engine(tmp_path)


CALIBRATION = Calibration(-1.5, 3.0, -0.5, 0.4)


@pytest.fixture(scope="module")
def all_forms(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each format, of a model with an alpha and a calibration of its own."""
    folder = tmp_path_factory.mktemp("all_forms")
    shutil.copytree(model, folder / "own")
    file = folder / "own" / "config.json"
    own = {"search": {"alpha": 1.2}, "confidence": asdict(CALIBRATION)}
    file.write_text(json.dumps(json.loads(file.read_text()) | own))
    loaded = checkpoint.load(folder / "own")
    for form in __main__.FORMATS:
        if form == "onnx" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
            pytest.skip("this PyTorch cannot write ONNX")
        (folder / form).mkdir()
        __main__.engine_of(form).write(loaded, folder / form, "float32")
    return folder


def test_it_searches_as_the_model_says(all_forms: Path) -> None:
    for form in ("ctranslate2", "onnx"):
        options = __main__.engine_of(form).Engine(all_forms / form).options
        assert (options.beam_size, options.alpha) == (4, 1.2)
    config = json.loads((all_forms / "huggingface" / "generation_config.json").read_text())
    assert (config["num_beams"], config["length_penalty"]) == (4, pytest.approx(0.9))


def test_it_is_as_sure_as_the_model(all_forms: Path) -> None:
    for form in ("own", "ctranslate2", "onnx"):
        file = "mt.json" if form == "ctranslate2" else "config.json"
        config = json.loads((all_forms / form / file).read_text())
        assert calibration_of(config["confidence"]) == CALIBRATION


def test_no_file_names_a_place_of_this_machine(all_forms: Path) -> None:
    """Torch writes stack traces and module names beside the nodes of an ONNX file."""
    places = {str(Path(common.__file__).parents[2]), str(Path.home()), str(all_forms)}
    for file in (file for form in __main__.FORMATS for file in (all_forms / form).iterdir()):
        content = file.read_bytes()
        for word in (*places, "stack_trace", "site-packages", "mt.export"):
            assert word.encode() not in content, (file.name, word)
        if file.suffix == ".onnx":
            onnx = importlib.import_module("onnx")
            onnx.checker.check_model(file, full_check=True)
            nodes = onnx.load(file).graph.node
            assert nodes
            assert not any(node.metadata_props or node.doc_string for node in nodes)


def test_length_penalties_grow_alike_at_typical_lengths() -> None:
    alpha, n = 1.2, common.TYPICAL_LENGTH
    own = [alpha * math.log((5 + length) / 6) for length in (n - 0.01, n + 0.01)]
    power = common.length_exponent(alpha)
    engine = [power * math.log(length) for length in (n - 0.01, n + 0.01)]
    assert own[1] - own[0] == pytest.approx(engine[1] - engine[0], rel=1e-4)


def test_the_card_of_an_export_says_how_it_is_loaded() -> None:
    front = "---\n# a comment\nlibrary_name: mt\n---\n"
    card = f"{front}\n# A model\n\n[`a.json`](../a.json 'b'), ![it](p.png), [paper](https://x.y)\n"
    changed = __main__.card_of_export(card, "huggingface")
    assert changed.startswith(
        front.replace(": mt", ": transformers") + "\nThis folder is an export"
    )
    assert "MarianMTModel.from_pretrained(FOLDER)`" in changed
    assert changed.endswith("card.\n\n# A model\n\n`a.json`, it, [paper](https://x.y)\n")
    assert __main__.card_of_export("A model\n", "onnx").startswith("This folder is an export")
    loaded = "This folder is an export, loaded with `mt.export.onnx.Engine(FOLDER)`.\n"
    assert __main__.card_of_export("", "onnx") == loaded  # a checkpoint has no card
