"""Translations and scores: those of a translator, of the same model on each machine."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import PAIRS
from corpus_files import read, run, write

from mt.corpora.models import Models, ScorePairs, Translate
from mt.inference import text_models
from mt.inference.batch_runner import pick_workers
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator


def test_models_translate_and_score_as_a_translator(model_folder: Path, tmp_path: Path) -> None:
    models = Models.find([str(model_folder)], "cpu")
    records = [{"en": english, "de": german} for english, german in PAIRS]
    source = write(tmp_path / "in.jsonl", records)
    options = SearchOptions(beam_size=2)
    run(Translate(models, "en", "new", options), source, tmp_path / "out.jsonl", block_rows=7)
    run(ScorePairs(models, "en", "de"), source, tmp_path / "scored.parquet", block_rows=7)
    translator = Translator.load(model_folder, "cpu", workers=1)
    english, german = zip(*PAIRS, strict=True)
    translated = [result.text for result in translator.translate(english, options)]
    assert [record["new"] for record in read(tmp_path / "out.jsonl")] == translated
    scored = translator.score(english, german, 0.6)
    rows = read(tmp_path / "scored.parquet")
    for name in ("log_prob", "score"):  # its last digits depend on the batch
        expected = pytest.approx([getattr(result, name) for result in scored], rel=1e-5)
        assert [row[name] for row in rows] == expected


@pytest.mark.parametrize(("source", "target"), [("a " * 6000, "b"), ("a", "\ufdfa" * 1200)])
def test_a_pair_too_long_to_be_scored_is_a_bad_row(
    source: str, target: str, model_folder: Path, tmp_path: Path
) -> None:
    """The second one has few characters, each of which the tokenizer makes 18 of."""
    pairs = [{"source": "a", "target": "b"}, {"source": source, "target": target}]
    file = write(tmp_path / "in.jsonl", pairs)
    models = Models.find([str(model_folder)], "cpu")
    assert run(ScorePairs(models, "source", "target"), file, tmp_path / "out.txt").errors == 1
    first, second = read(tmp_path / "out.txt")
    assert float(first) < 0
    assert second == ""


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model", "config.json"])
def test_every_file_of_a_model_counts(name: str, model_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "model")
    before = Translate(Models.find([str(folder)]), "a", "b", SearchOptions()).identity
    with (folder / name).open("ab") as stream:
        stream.write(b"\n")
    after = Translate(Models.find([str(folder)]), "a", "b", SearchOptions()).identity
    assert before["model"] != after["model"]
    assert (before["device"], before["batch_size"]) == ("auto", 64)


def test_warnings_of_translators_are_counted(model_folder: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "a " * 500}, {"text": "b"}, {"text": "a " * 400}])
    models = Models.find([str(model_folder)], "cpu")
    translate = Translate(models, "text", "text", SearchOptions(beam_size=1, max_length=1))
    summary = run(translate, source, tmp_path / "out.txt", block_rows=1)
    assert summary.warnings == 2
    assert "tokens" in summary.first_warning


def test_another_model_on_another_machine_is_refused(model_folder: Path, tmp_path: Path) -> None:
    models = Models((str(model_folder),), ("0" * 64,), "cpu")
    source = write(tmp_path / "in.txt", [{"text": "x"}])
    with pytest.raises(ValueError, match="another model than where the run was started"):
        run(Translate(models, "text", "text", SearchOptions()), source, tmp_path / "out.txt")
    manifest = json.loads((tmp_path / ".out.txt.partial" / "manifest.json").read_text())
    assert manifest["model"] == ["0" * 64]


def test_workers_follow_the_device(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each thread of a CPU; a GPU has one, whatever the threads."""
    asked: list[int | None] = []
    monkeypatch.setattr(text_models, "pick_workers", lambda workers, _: asked.append(workers))
    before = torch.get_num_threads()
    try:
        Models.find([str(model_folder)], "cpu").load(2)
        assert pick_workers(*asked, torch.device("cpu")) == 2
        assert pick_workers(*asked, torch.device("cuda")) == 1
    finally:
        torch.set_num_threads(before)
