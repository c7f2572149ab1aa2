"""The Multi30k recipe: its data in both forms, what it calls, and what it makes of the reports."""

import gzip
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
ENGLISH = "Two men are here.\nA dog (brown) runs.\n"
GERMAN = "Zwei Männer sind hier.\nEin Hund (braun) läuft.\n"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("multi30k")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A folder with the three splits as they are published."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name in ("train", "val", "test_2016_flickr"):
        (folder / f"{name}.en").write_text(ENGLISH, "utf-8")
        (folder / f"{name}.de.gz").write_bytes(gzip.compress(GERMAN.encode()))
    (folder / "train.en").rename(folder / "train.en.tmp")
    (folder / "train.en.gz").write_bytes(gzip.compress((folder / "train.en.tmp").read_bytes()))
    for name in ("val", "test_2016_flickr"):
        (folder / f"{name}.de").write_text(GERMAN, "utf-8")
    return folder


def test_the_tokenised_form_is_made_where_there_is_none(
    recipe: ModuleType, raw: Path, tmp_path: Path
) -> None:
    (raw / "val.lc.norm.tok.en").write_text("given .\n", "utf-8")
    (raw / "val.lc.norm.tok.de").write_text("gegeben .\n", "utf-8")
    recipe.prepare_data(raw, tmp_path / "data")
    texts = {path.name: path.read_text("utf-8") for path in (tmp_path / "data").iterdir()}
    assert texts["train.en"] == texts["test.en"] == ENGLISH
    assert texts["test.de"] == GERMAN
    assert texts["train.lc.norm.tok.en"] == "two men are here .\na dog ( brown ) runs .\n"
    assert texts["test.lc.norm.tok.de"] == "zwei männer sind hier .\nein hund ( braun ) läuft .\n"
    assert texts["validation.lc.norm.tok.en"] == "given .\n"
    assert len(texts) == 12


def test_both_forms_are_tuned_on_validation_and_tested_once(
    recipe: ModuleType, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    calls: list[list[str]] = []

    def call(arguments: Sequence[str], log: Path, threads: int | None) -> None:
        """What mt.train and mt.evaluate leave, but for the work."""
        calls.append(list(arguments))
        if arguments[0] == "mt.train":
            return
        given = dict(argument.split("=", 1) for argument in arguments[1:])
        run = Path(given["hydra.run.dir"])
        run.mkdir(parents=True)
        on_test = "test" in given["src"]
        seed = int(given["model_path"].split("seed")[1].split("/")[0])
        alpha = float(given["search.alpha"])
        runs = []
        for beam in json.loads(given["search.beam_size"]):
            (run / f"{beam}.txt").write_text("zwei männer sind hier .\n" * 2, "utf-8")
            value = 40 + seed if on_test else 30 - abs(alpha - 1.4) + (beam == 10)
            names = ("sacreBLEU", "lc-tok BLEU", "tokenised BLEU, as given")
            scores = [{"name": name, "value": value + i} for i, name in enumerate(names)]
            runs.append({"beam_size": beam, "scores": scores, "hypotheses": f"{beam}.txt"})
        (run / "report.json").write_text(json.dumps({"runs": runs}))

    monkeypatch.setattr(recipe, "call", call)
    command = ["multi30k.py", "--data", str(raw), "--seed", "1", "2", "--", "trainer.max_steps=9"]
    monkeypatch.setattr(sys, "argv", command)
    recipe.main()
    trained = [call for call in calls if call[0] == "mt.train"]
    assert len(trained) == 4
    assert all(call[-1] == "trainer.max_steps=9" and "ckpt=auto" in call for call in trained)
    assert sum("src=outputs/multi30k/data/test" in " ".join(call) for call in calls) == 4
    report = json.loads(Path("outputs/multi30k/report.json").read_text())
    found = report["configurations"]
    assert list(found) == ["raw", "lc.norm.tok"]
    for configuration in found.values():
        assert (configuration["beam_size"], configuration["alpha"]) == (10, 1.4)
        assert len(configuration["chosen on the validation split"]) == 8
    assert found["raw"]["cased sacreBLEU"]["mean"] == 41.5  # of 41 and 42
    assert found["raw"]["lc-tok BLEU"]["mean"] == 42.5
    assert found["lc.norm.tok"]["lc-tok BLEU"] == {
        "mean": 43.5, "deviation": 0.71, "least": 43, "most": 44, "seeds": 2
    }  # fmt: skip
    # put together again, and beside references with capitals
    assert 0 < found["lc.norm.tok"]["cased sacreBLEU"]["mean"] < 41
    assert "43.50 ± 0.71" in capsys.readouterr().out

    done = len(calls)
    recipe.main()
    assert [call[0] for call in calls[done:]] == ["mt.train"] * 4  # which end at once


def test_a_failed_run_ends_the_recipe_with_its_last_line(
    recipe: ModuleType, tmp_path: Path
) -> None:
    log = tmp_path / "run" / "output.log"
    with pytest.raises(RuntimeError, match=r"output.log: .*No module named 'mt\.nothing'|nothing"):
        recipe.call(["mt.nothing"], log, 1)
    assert log.exists()
