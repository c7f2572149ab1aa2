"""What a user may name as a model, without the hub (test_hub.py)."""

import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import PAIRS
from model_files import SENTENCES, tiny

from mt.data import tokenizer as tokenizers
from mt.inference.translator import Translator
from mt.model import checkpoint, hub
from mt.model.model_path import latest, resolve_model_path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def test_latest_is_the_newest_model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizers.train(SENTENCES, 50)
    folders = [tmp_path / day / "run" / "model" for day in "abc"]
    for folder, age in zip(folders, (300, 100, 200), strict=True):
        checkpoint.save(folder, tiny(), tokenizer, 10, ["en", "de"], {})
        os.utime(folder / "config.json", (1e9 - age, 1e9 - age))
    assert latest(tmp_path) == folders[1]
    monkeypatch.chdir(folders[0].parent)
    assert latest(".") == Path("model")


def test_latest_passes_over_what_a_run_has_set_aside(tmp_path: Path) -> None:
    for folder in ("run", "run/until-00000012", "run/until-00000012-2"):
        (tmp_path / folder / "model").mkdir(parents=True)
        (tmp_path / folder / "model" / "config.json").touch()
    os.utime(tmp_path / "run/model/config.json", (1, 1))
    assert latest(tmp_path) == tmp_path / "run" / "model"


def test_latest_of_nothing_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)  # without a config.json it is none
    with pytest.raises(FileNotFoundError, match="experiment=quickstart") as caught:
        latest(tmp_path)
    assert f"no model folder under {tmp_path}" in str(caught.value)


def test_what_is_no_name_stays_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ORG" / "folder").mkdir(parents=True)
    (tmp_path / "ORG" / "model.ckpt").write_bytes(b"")
    for name in (
        "gone", "ORG/folder", "ORG/model.ckpt", "ORG/gone", "/ORG/NAME", "./x/y", "../x", "x/y/z",
        "-x/y", "x/.y", "a b/c", "x/y@", "x/y@../z", "é/x", "", "everyday/", "x\\y",
    ):  # fmt: skip
        assert resolve_model_path(name) == Path(name), name
    assert resolve_model_path(tmp_path / "any/folder") == tmp_path / "any/folder"
    assert resolve_model_path(Path("x/y")) == Path("x/y")  # a Path is no name
    assert not cache.exists()


@pytest.mark.parametrize(
    "name", ["x/y", "Helsinki-NLP/opus-mt-en-de", "x/y.z@v1.0", "x/y@refs/pr/1"]
)
def test_names_of_the_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert hub.is_name(name)
    (tmp_path / name.partition("/")[0]).mkdir()
    assert not hub.is_name(name)  # a folder that is there was meant


def test_a_folder_of_transformers_is_converted_when_it_has_changed(
    marian_folder: Path, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(marian_folder, tmp_path / "opus")
    out = resolve_model_path(folder)
    assert out.parent == cache
    assert caplog.messages == [f"{folder} converted, kept in {out}"]
    assert checkpoint.load(out).config["training"] == {"imported from": "opus"}
    caplog.clear()
    before = (out / "config.json").stat().st_mtime_ns
    again = shutil.copytree(folder, tmp_path / "copy")
    for same in (str(folder), again, out):
        assert resolve_model_path(same) == out
    assert (out / "config.json").stat().st_mtime_ns == before
    assert not caplog.messages
    (folder / "generation_config.json").write_text(json.dumps({"num_beams": 7}))
    changed = resolve_model_path(folder)
    assert changed != out
    translator = Translator.load(folder, "cpu")
    assert (translator.name, translator.options.beam_size) == (str(changed), 7)
    assert translator.translate([PAIRS[0][0]], max_length=5)[0].text


def test_a_folder_that_cannot_be_converted_leaves_nothing(
    marian_folder: Path, tmp_path: Path, cache: Path
) -> None:
    folder = shutil.copytree(marian_folder, tmp_path / "opus")
    (folder / "target.spm").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"opus: not a pair of SentencePiece models"):
        resolve_model_path(folder)
    assert [path for path in cache.iterdir() if path.is_dir()] == []
