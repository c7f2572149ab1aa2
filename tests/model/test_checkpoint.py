"""The model folder and training checkpoints: written whole, read with care, averaged, named."""

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import names_in
from model_files import (
    CONTENT,
    SENTENCES,
    assert_refused,
    assert_same_model,
    save,
    tiny,
    training_checkpoint,
    without_hashes,
)

from mt.data import tokenizer as tokenizers
from mt.data.tokenizer import Tokenizer
from mt.inference.options import SearchOptions, load_search_defaults
from mt.model import checkpoint


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizers.train(SENTENCES, 50)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return save(tmp_path / "model", tiny(), tokenizer)


@pytest.fixture
def run(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A training run's folder with its tokenizer and one checkpoint, step7.ckpt."""
    training_checkpoint(tmp_path / "run" / "checkpoints" / "step7.ckpt", tiny())
    tokenizers.save(tokenizer, tmp_path / "run" / "tokenizer.model")
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Saving


def test_a_loaded_model_gives_the_same_logits(folder: Path, tokenizer: Tokenizer) -> None:
    loaded = checkpoint.load(folder)
    assert_same_model(loaded.model, tiny())
    assert loaded.tokenizer.proto == tokenizer.proto
    assert loaded.config["max_length"] == 20
    assert loaded.path == folder


def test_a_model_in_training_is_saved_without_its_dropout_at_work(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = tiny().train()
    loaded = checkpoint.load(save(tmp_path / "model", model, tokenizer))
    assert model.training
    assert_same_model(loaded.model, model.eval())


def test_the_folder_holds_four_files_and_its_parent_nothing_else(folder: Path) -> None:
    assert names_in(folder) == CONTENT
    assert names_in(folder.parent) == ["model"]


def test_a_folder_and_a_checkpoint_from_before_the_variations_are_read(
    folder: Path, run: Path
) -> None:
    config = json.loads((folder / "config.json").read_text())
    path = run / "checkpoints" / "step7.ckpt"
    content = torch.load(path, weights_only=True)
    for shape in (config["model"], content["hyper_parameters"]["model"]):
        del shape["d_k"], shape["learned_positions"]
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(content, path)
    for old in (folder, path):
        assert_same_model(checkpoint.load(old).model, tiny())


@pytest.mark.parametrize("changes", [{"d_k": 3}, {"learned_positions": 9}])
def test_a_variation_is_saved_and_loaded(
    changes: dict[str, int], tmp_path: Path, tokenizer: Tokenizer
) -> None:
    loaded = checkpoint.load(save(tmp_path / "model", tiny(**changes), tokenizer))
    assert_same_model(loaded.model, tiny(**changes))
    ((name, value),) = changes.items()
    assert f"{name} {value}" in (tmp_path / "model" / "README.md").read_text()


def test_the_config_says_what_the_model_is(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config == {
        "format": "mt-model-1",
        "languages": ["en", "de"],
        "max_length": 20,
        "model": tiny().config,
        "training": {"steps": 7},
        "sha256": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in ("model.safetensors", "tokenizer.model")
        },
    }


def test_a_folder_names_the_search_that_suits_it(folder: Path) -> None:
    before = checkpoint.load(folder).config
    checkpoint.set_search(folder, 5, 1.4)
    assert load_search_defaults(folder) == SearchOptions(5, 1.4)
    checkpoint.set_search(folder, 10, 1.0)
    after = checkpoint.load(folder).config
    assert after == {**before, "search": {"beam_size": 10, "alpha": 1.0}}
    assert sorted(file.name for file in folder.iterdir()) == CONTENT


def test_the_card_says_it_to_people(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = save(tmp_path / "model", tiny(), tokenizer, corpus="Sätze", sacreBLEU=27.3)
    card = (folder / "README.md").read_text(encoding="utf-8")
    parameters = sum(p.numel() for p in tiny().parameters())
    for fact in (
        "# en → de translation model",
        "vocab_size 50, N 1, d_model 16, d_ff 32, h 2",
        f"parameters: {parameters:,}",
        "longest source that training admits: 20 tokens",
        "- steps: 7\n- corpus: Sätze\n- sacreBLEU: 27.3\n",
        "from mt import Translator",
    ):
        assert fact in card


def test_missing_parents_are_made(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = save(tmp_path / "outputs" / "run 1" / "model", tiny(), tokenizer)
    assert_same_model(checkpoint.load(str(folder)).model, tiny())


def test_a_moved_folder_works(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "süß"
    moved.parent.mkdir()
    shutil.move(folder, moved)
    assert_same_model(checkpoint.load(moved).model, tiny())


def test_replacing_leaves_nothing_of_the_old_one(folder: Path, tokenizer: Tokenizer) -> None:
    (folder / "notes.txt").write_text("of the old model")
    save(folder, tiny(seed=1), tokenizer)
    assert names_in(folder) == CONTENT
    assert names_in(folder.parent) == ["model"]
    assert_same_model(checkpoint.load(folder).model, tiny(seed=1))


def test_a_failed_save_leaves_the_old_one_whole(
    folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(*_: object) -> None:
        raise OSError("No space left on device")

    before = contents(folder)
    monkeypatch.setattr(Path, "write_bytes", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save(folder, tiny(seed=1), tokenizer)
    assert contents(folder) == before
    assert names_in(folder.parent) == ["model"]


def test_a_really_full_disk_is_an_error_of_the_system(folder: Path, tokenizer: Tokenizer) -> None:
    """A limit on file sizes stops the write halfway."""
    before = contents(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match=r"too large|os error"):
            save(folder, tiny(seed=1), tokenizer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(folder) == before
    assert names_in(folder.parent) == ["model"]


def test_a_save_that_fails_late_leaves_the_old_one_whole(
    folder: Path, tokenizer: Tokenizer
) -> None:
    before = contents(folder)
    with pytest.raises(TypeError, match="JSON"):
        save(folder, tiny(seed=1), tokenizer, source=object())
    assert contents(folder) == before
    assert names_in(folder.parent) == ["model"]


def test_whoever_may_read_the_config_may_read_the_weights(folder: Path) -> None:
    assert len({(folder / name).stat().st_mode for name in CONTENT}) == 1


def test_a_failed_first_save_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(TypeError, match="JSON"):
        save(tmp_path / "model", tiny(), tokenizer, source=object())
    assert names_in(tmp_path) == []


# Loading a folder


def test_loading_needs_neither_lightning_nor_hydra_nor_datasets(folder: Path) -> None:
    code = (
        "import sys; from mt.model import checkpoint; checkpoint.load(sys.argv[1]);"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert {"torch", "safetensors", "sentencepiece"} <= modules
    assert modules.isdisjoint({"pytorch_lightning", "lightning", "hydra", "omegaconf", "datasets"})


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.model"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert_refused(folder, FileNotFoundError, f"{name} is missing")


def test_a_missing_card_is_no_matter(folder: Path) -> None:
    (folder / "README.md").unlink()
    assert_same_model(checkpoint.load(folder).model, tiny())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert_refused(tmp_path / "absent", FileNotFoundError, "no such model folder")


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("model/model.safetensors", "its model folder is .*/other/model$"),
        ("mt.json", "mt.translate takes it with --engine ctranslate2$"),
        ("encoder.onnx", "mt.export wrote it, for programs with ONNX Runtime$"),
        ("step-00000002.ckpt", "it holds checkpoints: name one of them$"),
        ("notes.txt", "model.safetensors is missing$"),
    ],
)
def test_what_another_folder_is(file: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "other" / file
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(FileNotFoundError, match=f"not a model folder, .*{hint}"):
        checkpoint.load(tmp_path / "other")


@pytest.mark.parametrize("kept", [0, 4, 20, 3000, -100, -1])
def test_truncated_weights_are_named(folder: Path, kept: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert_refused(folder, ValueError, "model.safetensors: damaged or truncated")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.model", "model.safetensors"])
def test_a_damaged_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\xff\xfeneither\nof\nthem" * 10)
    assert_refused(folder, ValueError, f"{folder}/{name}: ")


@pytest.mark.parametrize("text", ["", "[1, 2]", '"text"', "null", "3", "{", "{}"])
def test_a_config_that_is_not_one_is_named(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    assert_refused(folder, ValueError, f"{folder}/config.json: ")


MISSING = object()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "mt-model-9", "is 'mt-model-9', must be 'mt-model-1' or 'mt-model-2'"),
        ("format", ["mt-model-1"], "must be 'mt-model-1'"),
        ("format", MISSING, "format is None"),
        ("format", "mt-model-2", "storage is None, must be 'int8'"),
        ("storage", "int8", "storage is 'int8', must be missing"),
        ("max_length", MISSING, "max_length"),
        ("max_length", "20", "max_length"),
        ("max_length", None, "max_length"),
        # A translator that may keep no token of a line would split it for ever.
        ("max_length", 0, "max_length"),
        ("max_length", -5, "max_length"),
        ("max_length", True, "max_length"),
        ("model", MISSING, "model"),
        ("model", [1, 2], "model"),
        ("model", {}, "vocab_size"),
        ("model", {**tiny().config, "N": "six"}, "N='six': must be a whole number"),
        ("model", {**tiny().config, "P_drop": None}, "P_drop=None"),
        ("model", {**tiny().config, "layers": 6}, "layers"),
        (
            "model",
            {**tiny().config, "d_ff": 64},
            "its configuration wants [64, 16]",
        ),
        ("model", {**tiny().config, "N": 2}, "lacks the weight 'decoder.1.add_norm.0.norm.bias'"),
        ("model", {**tiny().config, "learned_positions": 5}, "lacks the weight 'positions.weight'"),
        (
            "model",
            {**tiny().config, "N": 10**6},
            "N=1000000: must be a whole number from 1 to 1,000",
        ),
        ("model", {**tiny().config, "d_ff": 2**24}, "has the shape [32, 16]"),
        ("model", {**tiny().config, "d_ff": 10**30}, "d_ff=1000000"),
        ("model", {**tiny().config, "activation": ["relu"]}, "not a model that this version reads"),
        ("model", {**tiny().config, "\x1b[31m\n": 1}, "unexpected keyword argument"),
        ("max_length", 10**12, "max_length=1000000000000: must be a whole number from 1 to 8,192"),
        ("training", [7], "'training' must be an object"),
        ("languages", "en", "languages='en': must be two names"),
        ("languages", ["en"], "must be two names"),
        ("languages", ["en", 3], "must be two names"),
        ("model", {**tiny().config, "vocab_size": 51}, "51 pieces with a tokenizer of 50"),
    ],
)
def test_a_wrong_config_is_refused(folder: Path, key: str, value: Any, message: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config[key] = value
    if value is MISSING:
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    assert_refused(folder, ValueError, message)


def test_a_small_config_takes_no_memory(folder: Path) -> None:
    """The sizes in a configuration are compared with the weights before anything is made."""
    config = json.loads((folder / "config.json").read_text())
    config["model"] |= {"d_model": 2**24, "d_ff": 2**24, "h": 1, "d_k": 2**24}
    (folder / "config.json").write_text(json.dumps(config))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert_refused(folder, ValueError, "its configuration wants")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


def test_another_models_tokenizer_is_refused(folder: Path) -> None:
    other = tokenizers.train(SENTENCES, 45)
    (folder / "tokenizer.model").write_bytes(other.proto)
    without_hashes(folder)
    assert_refused(folder, ValueError, "a model of 50 pieces with a tokenizer of 45")


def test_a_folder_without_hashes_is_read(folder: Path) -> None:
    without_hashes(folder)
    assert_same_model(checkpoint.load(folder).model, tiny())


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model"])
def test_a_file_of_another_model_is_refused_by_its_hash(
    folder: Path, tmp_path: Path, name: str
) -> None:
    other_tokenizer = tokenizers.train([text.upper() for text in SENTENCES], 50)
    other = save(tmp_path / "other", tiny(seed=1), other_tokenizer)
    shutil.copyfile(other / name, folder / name)
    assert_refused(folder, ValueError, f"{name}: damaged, or of another model")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", CONTENT[1:])
def test_a_pipe_does_not_block(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert_refused(folder, FileNotFoundError, f"{name} is not a regular file")


# Loading a training checkpoint


def test_a_checkpoint_loads_with_its_runs_tokenizer(run: Path, tokenizer: Tokenizer) -> None:
    loaded = checkpoint.load(run / "checkpoints" / "step7.ckpt")
    assert_same_model(loaded.model, tiny())
    assert loaded.tokenizer.proto == tokenizer.proto
    assert loaded.config["max_length"] == 20


def test_a_checkpoint_without_its_runs_tokenizer_is_named(run: Path) -> None:
    (run / "tokenizer.model").unlink()
    text = assert_refused(run / "checkpoints" / "step7.ckpt", FileNotFoundError, "tokenizer")
    assert str(run / "tokenizer.model") in text


@pytest.mark.parametrize(
    "changes",
    [
        {"state_dict": {}},
        {"state_dict": {"loss.weight": torch.zeros(1)}},
        {"state_dict": [1, 2]},
        {"state_dict": {"model.embedding.weight": 3}},
        {"state_dict": {"model.embedding.weight": torch.zeros(50, 16)}},
        {"hyper_parameters": None},
        {"hyper_parameters": {}},
        {"hyper_parameters": {"model": None, "max_length": 20}},
        {"hyper_parameters": {"model": {**tiny().config, "N": "six"}, "max_length": 20}},
        {"hyper_parameters": {"model": tiny().config}},
        {"hyper_parameters": {"model": tiny().config, "max_length": 0}},
    ],
    ids=lambda changes: repr(changes)[:60],
)
def test_a_checkpoint_of_something_else_is_refused(run: Path, changes: dict[str, Any]) -> None:
    path = training_checkpoint(run / "checkpoints" / "odd.ckpt", tiny(), **changes)
    assert_refused(path, ValueError, "odd.ckpt: ")


@pytest.mark.parametrize("content", [[1, 2], {"weights": torch.zeros(1)}, torch.zeros(1)])
def test_another_programs_checkpoint_is_refused(run: Path, content: object) -> None:
    path = run / "checkpoints" / "other.ckpt"
    torch.save(content, path)
    assert_refused(path, ValueError, "not a training checkpoint of this project")


# Averaging


def test_the_average_is_the_mean_by_hand(tmp_path: Path) -> None:
    models = [tiny(seed) for seed in range(3)]
    paths = [training_checkpoint(tmp_path / f"{i}.ckpt", m) for i, m in enumerate(models)]
    mean = checkpoint.average(paths)
    states = [model.state_dict() for model in models]
    assert set(mean) == set(states[0])
    for name, weight in mean.items():
        a, b, c = (state[name] for state in states)
        torch.testing.assert_close(weight, (a + b + c) / 3)
        assert weight.dtype == torch.float32
    tiny().load_state_dict(mean)


def test_the_average_is_taken_in_double_precision(tmp_path: Path) -> None:
    paths = []
    for i, value in enumerate([1e8, 1.0, -1e8]):  # float32 loses the 1 beside 1e8
        state = {"model.w": torch.tensor([value]), "loss.w": torch.tensor([0.0])}
        paths.append(training_checkpoint(tmp_path / f"{i}.ckpt", tiny(), state_dict=state))
    mean = checkpoint.average(paths)
    assert list(mean) == ["w"]
    torch.testing.assert_close(mean["w"], torch.tensor([1 / 3]))


def test_the_average_of_one_is_itself(tmp_path: Path) -> None:
    path = training_checkpoint(tmp_path / "one.ckpt", tiny())
    mean = checkpoint.average([str(path)])
    assert all(torch.equal(mean[name], w) for name, w in tiny().state_dict().items())


def test_different_models_have_no_average(tmp_path: Path) -> None:
    one = training_checkpoint(tmp_path / "one.ckpt", tiny())
    for changes in ({"d_ff": 64}, {"N": 2}):
        other = training_checkpoint(tmp_path / "other.ckpt", tiny(**changes))
        with pytest.raises(ValueError, match=re.escape(f"{other}: not the same model as {one}")):
            checkpoint.average([one, other])


def test_nothing_has_no_average() -> None:
    with pytest.raises(ValueError, match="no checkpoints to average"):
        checkpoint.average([])


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.ckpt: no such checkpoint"):
        checkpoint.average([tmp_path / "absent.ckpt"])


# Naming


def test_the_digest_follows_the_weights_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    first = save(tmp_path / "first", tiny(), tokenizer)
    again = save(tmp_path / "again", tiny(), tokenizer, comment="another card")
    changed = tiny()
    with torch.no_grad():
        changed.embedding.weight[7, 3] += 1e-6
    other = save(tmp_path / "other", changed, tokenizer)
    digest = checkpoint.digest(first)
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert checkpoint.digest(str(again)) == digest
    assert checkpoint.digest(other) != digest
    assert checkpoint.digest(first / "model.safetensors") == digest


def test_the_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert checkpoint.digest(tmp_path / "weights") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
