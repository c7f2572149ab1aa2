"""The Multi30k recipe: its data in both forms, what it calls, and what it makes of the reports."""

import gzip
import importlib
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from mt.inference.options import SearchOptions, load_search_defaults
from mt.model import checkpoint

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
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
    assert len(texts) == 12 + 1  # and where they are from


class Faked(NamedTuple):
    """The recipe without the work."""

    run: Callable[..., dict[str, Any]]  # with these arguments, to its configurations
    call: Callable[..., None]
    calls: list[list[str]]
    tuned: list[tuple[str, list[str], int, float]]


@pytest.fixture
def faked(recipe: ModuleType, raw: Path, monkeypatch: pytest.MonkeyPatch) -> Faked:
    calls: list[list[str]] = []
    tuned: list[tuple[str, list[str], int, float]] = []

    def call(arguments: Sequence[str], log: Path, threads: int | None = None) -> None:
        """What mt.train and mt.evaluate leave, but for the work."""
        calls.append(list(arguments))
        if arguments[0] == "mt.translate":
            output = Path(arguments[arguments.index("--output") + 1])
            model = Path(arguments[arguments.index("--model") + 1])
            output.write_text(f"{model.parent.name}.\n" * 2, "utf-8")
            return
        given = dict(argument.split("=", 1) for argument in arguments[1:])
        run = Path(given["hydra.run.dir"].strip("'"))
        if arguments[0] == "mt.train":
            (run / "model").mkdir(exist_ok=True, parents=True)
            weights = [given["seed"], given.get("trainer.max_steps", "0")]
            (run / "model" / "model.safetensors").write_text(" ".join(weights))
            (run / "model" / "config.json").write_text('{"languages": ["en", "de"]}')
            return
        run.mkdir(parents=True, exist_ok=True)
        (run / "hypotheses.txt").write_text("zwei männer sind hier .\n" * 2, "utf-8")
        model = Path(given["model_path"].strip("'"))
        seed, steps = map(int, (model / "model.safetensors").read_text().split())
        names = ("sacreBLEU", "lc-tok BLEU", "tokenised BLEU, as given")
        scores = [{"name": name, "value": 31 + seed + steps + i} for i, name in enumerate(names)]
        report = {
            "model_sha256": checkpoint.digest(model),
            "model_config": {"training": {}},
            "source_sha256": "",
            "reference_sha256": "",
            "runs": [{"scores": scores, "hypotheses": "hypotheses.txt"}],
        }
        (run / "report.json").write_text(json.dumps(report))

    class Translator:
        """Beam 10 finds the references, with alpha 1.0, 1.4 and 1.8."""

        @classmethod
        def load(cls, path: Path) -> "Translator":
            found = cls()
            found.path = str(path)
            return found

        def translate(self, sources: list[str], options: SearchOptions) -> list[Any]:
            tuned.append((self.path, sources, options.beam_size, options.alpha))
            lines = GERMAN.splitlines()
            if ".norm" in self.path:
                lines = ["zwei männer sind hier .", "ein hund ( braun ) läuft ."]
            if options.beam_size != 10 or not 1 <= options.alpha <= 1.8:
                lines[0] += " nicht"
            return [SimpleNamespace(text=line) for line in lines]

    monkeypatch.setattr(recipe, "call", call)
    monkeypatch.setattr(recipe, "Translator", Translator)

    def run(*arguments: str) -> dict[str, Any]:
        command = ["multi30k.py", "--data", str(raw), "--seed", "1", "2", *arguments]
        monkeypatch.setattr(sys, "argv", command)
        recipe.main()
        found: dict[str, Any] = json.loads(Path("outputs/multi30k/report.json").read_text())
        return found["configurations"]  # type: ignore[no-any-return]

    return Faked(run, call, calls, tuned)


def test_both_forms_are_tuned_on_validation_and_tested_once(
    recipe: ModuleType, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any,
    faked: Faked,
) -> None:  # fmt: skip
    run, call, calls, tuned = faked
    found = run("--", "trainer.max_steps=9")
    assert [call[0] for call in calls] == ["mt.train"] * 4 + ["mt.evaluate"] * 4
    assert all(call[-1] == "trainer.max_steps=9" and "ckpt=auto" in call for call in calls[:4])
    assert all("search.beam_size=10" in call and "search.alpha=1.4" in call for call in calls[4:])
    assert all("data/test" in call[1] for call in calls[4:])  # and nothing else sees the test set
    english = [ENGLISH.splitlines(), ["two men are here .", "a dog ( brown ) runs ."]]
    assert len(tuned) == 20
    assert all("seed1" in path and sources in english for path, sources, _, _ in tuned)
    assert list(found) == ["raw", "lc.norm.tok"]
    assert found["raw"]["cased sacreBLEU"]["mean"] == 41.5  # of 41 and 42
    assert found["raw"]["lc-tok BLEU"]["mean"] == 42.5
    assert found["lc.norm.tok"]["lc-tok BLEU"] == {
        "mean": 43.5, "deviation": 0.71, "least": 43, "most": 44, "seeds": 2
    }  # fmt: skip
    # put together again, and beside references with capitals
    assert 0 < found["lc.norm.tok"]["cased sacreBLEU"]["mean"] < 41
    assert "43.50 ± 0.71" in capsys.readouterr().out
    for name in ("raw-seed1", "raw-seed2", "lc.norm.tok-seed2"):  # as whoever uses them will want
        model = Path("outputs/multi30k") / name / "model"
        assert load_search_defaults(model) == SearchOptions(10, 1.4)

    calls.clear()
    assert run("--", "trainer.max_steps=9") == found
    assert [call[0] for call in calls] == ["mt.train"] * 4  # which end at once
    assert len(tuned) == 20
    with pytest.raises(ValueError, match="name another --folder or --settings"):
        run("--", "trainer.max_steps=10")
    other = shutil.copytree(raw, tmp_path / "other")
    monkeypatch.setattr(sys, "argv", ["multi30k.py", "--data", str(other)])
    with pytest.raises(ValueError, match=r"was made with .*published"):
        recipe.main()

    weights = Path("outputs/multi30k/raw-seed1/model/model.safetensors")
    call(["mt.train", f"hydra.run.dir='{weights.parents[1]}'", "seed=1", "trainer.max_steps=11"],
         Path("log"))  # fmt: skip
    monkeypatch.setattr(recipe, "train_all", lambda *_: None)
    again = run("--", "trainer.max_steps=9")  # a model that has changed is scored anew
    assert again["raw"]["cased sacreBLEU"]["mean"] == 42.5
    assert len(tuned) == 30


def test_seeds_teach_each_other(recipe: ModuleType, faked: Faked, tmp_path: Path) -> None:
    first = ("model=base", "++model.N=2", "model.P_drop=0.2", "tokenizer.bpe_dropout=0.1")
    given = ("--form", "raw", "--diverse", "--", *first, "start_from=everyday", "average=9")
    found = faked.run(*given)
    programs = [call[0] for call in faked.calls]
    trained, evaluated = ["mt.train"] * 2, ["mt.evaluate"] * 2
    said = ["mt.translate"] * 2
    assert programs == trained + said + 2 * trained + said + trained + 3 * evaluated
    search = {"--resume", "--beam-size=10", "--alpha=1.4"}
    assert all(search < set(call) for call in faked.calls[2:4])
    parents = [[a for a in call if a.startswith("start_from=")] for call in faked.calls[4:8]]
    assert all(len(given) == 1 for given in parents)
    assert list(found) == ["raw", "raw-diverse", "raw-both"]

    more = [dict(item.split("=", 1) for item in call[1:]) for call in faked.calls[4:6]]
    assert [given["start_from"].strip("'") for given in more] == [
        f"outputs/multi30k/raw-seed{seed}/model" for seed in (1, 2)
    ]
    assert more[0]["data.train"] == more[1]["data.train"]
    assert more[0]["trainer.max_steps"] == "3175"
    assert not {"model", "++model.N"} & more[0].keys()  # which the model it starts from has already
    assert (more[0]["model.P_drop"], more[0]["tokenizer.bpe_dropout"]) == ("0.2", "0.1")
    assert more[0]["average"] == "20"  # of two the last
    prefix = more[0]["data.train"].strip("'")
    assert Path(f"{prefix}.en").read_text("utf-8") == ENGLISH * 3
    diverse = GERMAN + "raw-seed1.\n" * 2 + "raw-seed2.\n" * 2
    assert Path(f"{prefix}.de").read_text("utf-8") == diverse

    # the first models learn the other direction, and the last trainings what they say
    for seed, learnt, said_back in zip((1, 2), faked.calls[6:8], faked.calls[8:10], strict=True):
        reverse = dict(item.split("=", 1) for item in learnt[1:])
        assert reverse["start_from"].strip("'") == f"outputs/multi30k/raw-seed{seed}/model"
        assert (reverse["data.src"], reverse["data.tgt"]) == ("de", "en")
        assert reverse["data.train"].strip("'") == "outputs/multi30k/data/train"
        assert {"--beam-size=5", "--alpha=1.0"} < set(said_back)
        assert "outputs/multi30k/data/train.de" in said_back
        assert f"outputs/multi30k/raw-reverse-seed{seed}/model" in said_back
    both = [dict(item.split("=", 1) for item in call[1:]) for call in faked.calls[10:12]]
    assert [given["start_from"].strip("'") for given in both] == [
        f"outputs/multi30k/raw-diverse-seed{seed}/model" for seed in (1, 2)
    ]
    assert "data.src" not in both[0]
    assert (both[0]["trainer.max_steps"], both[0]["model.P_drop"]) == ("1270", "0.2")
    everything = both[0]["data.train"].strip("'")
    assert both[1]["data.train"].strip("'") == everything != prefix
    back = "raw-reverse-seed1.\n" * 2 + "raw-reverse-seed2.\n" * 2
    assert Path(f"{everything}.en").read_text("utf-8") == ENGLISH * 3 + back
    assert Path(f"{everything}.de").read_text("utf-8") == diverse + GERMAN * 2

    faked.calls.clear()
    written = Path(f"{prefix}.en").stat().st_mtime_ns
    assert faked.run(*given) == found
    assert Path(f"{prefix}.en").stat().st_mtime_ns == written
    assert [call[0] for call in faked.calls] == ["mt.train"] * 8  # which end at once
    with pytest.raises(ValueError, match=r"diverse was made with \[1, 2\]: give the same --seed"):
        faked.run("--form", "raw", "--seed", "1", "--diverse", *given[3:])
    for wrong in (
        ("--settings", "both", "model.N=2"),
        ("average=2",),
        ("average=2", "model.N=2", "average=2"),
        ("--", "data.limit=9"),
        ("--", "data.src=de"),
    ):
        faked.calls.clear()
        with pytest.raises(SystemExit):
            faked.run("--diverse", *wrong)
        assert not faked.calls


def test_what_went_on_from_another_model_is_not_taken(
    recipe: ModuleType, faked: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--form", "raw", "--diverse", "--", "trainer.max_steps=9")
    faked.run(*given)
    call, changed = recipe.call, "outputs/multi30k/raw-diverse-seed2"

    def other(arguments: Sequence[str], log: Path, threads: int | None = None) -> None:
        call(arguments, log, threads)
        if recipe.setting("hydra.run.dir", changed) in arguments:
            Path(changed, "model", "model.safetensors").write_text("2 4")

    monkeypatch.setattr(recipe, "call", other)
    with pytest.raises(ValueError, match=r"raw-both-seed2 was made with"):
        faked.run(*given)


def test_the_trainings_that_follow_have_settings_of_their_own(faked: Faked) -> None:
    own = ("trainer.max_steps=7 average=2", "trainer.max_steps=6", "trainer.max_steps=5")
    faked.run("--form", "lc.norm.tok", "--diverse", *own, "--", "trainer.max_steps=9")
    steps = [
        dict(item.split("=", 1) for item in call[1:])["trainer.max_steps"]
        for call in faked.calls
        if call[0] == "mt.train"
    ]
    assert steps == ["9", "9", "7", "7", "6", "6", "5", "5"]
    translated = [call for call in faked.calls if call[0] == "mt.translate"]
    translate = [
        f"outputs/multi30k/data/train.lc.norm.tok.{side}" for side in ("en", "en", "de", "de")
    ]
    assert [call[call.index("--input") + 1] for call in translated] == translate


def test_an_alpha_beside_a_cliff_is_not_chosen(recipe: ModuleType) -> None:
    """As measured: the best score stands next to the worst."""
    scores = {5: (40.6, 41.0, 41.3, 41.4, 37.9), 10: (40.6, 40.9, 41.2, 41.2, 36.7)}
    rows = [
        {"beam_size": beam_size, "alpha": alpha, "BLEU": value}
        for beam_size, values in scores.items()
        for alpha, value in zip(recipe.ALPHAS, values, strict=True)
    ]
    first, *others = recipe.best_first(rows, "BLEU")
    assert first == {
        "beam_size": 5, "alpha": 1.4, "BLEU": 41.3, "with the next alphas": 41.233
    }  # fmt: skip
    assert len(others) == 9
    assert {row["alpha"] for row in others[-4:]} == {0.6, 2.2}  # only tried for their neighbours


def test_a_slip_of_the_pen_locks_nothing(
    recipe: ModuleType, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        recipe.prepare_data(tmp_path / "gone", tmp_path / "data")
    recipe.prepare_data(raw, tmp_path / "data")
    monkeypatch.setattr(recipe, "call", lambda *_: None)
    job = recipe.Job("raw", "", (), 1, tmp_path)
    recipe.train(job, ["trainer.max_step=9"], 1)
    recipe.train(job, ["trainer.max_steps=9"], 1)
    (job.run / "checkpoints").mkdir()
    with pytest.raises(ValueError, match="name another --folder"):
        recipe.train(job, ["trainer.max_steps=10"], 1)


@pytest.mark.parametrize("wrong", [["--jobs", "0"], ["--seed", "1", "1"], ["--threads", "-1"]])
def test_a_wrong_command_line_begins_nothing(
    recipe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["multi30k.py", *wrong])
    with pytest.raises(SystemExit):
        recipe.main()
    assert not list(tmp_path.iterdir())


def test_where_a_training_fails_the_others_do_not_begin(
    recipe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def train(job: Any, overrides: Sequence[str], threads: int) -> None:
        begun.append(job.seed)
        raise RuntimeError("a full disk")

    monkeypatch.setattr(recipe, "train", train)
    jobs = [recipe.Job("raw", "", (), seed, tmp_path) for seed in range(40)]
    with pytest.raises(RuntimeError, match="a full disk"):
        recipe.train_all(jobs, [], 1, 1)
    assert len(begun) < 40


def test_a_failed_run_ends_the_recipe_with_its_last_line(
    recipe: ModuleType, tmp_path: Path
) -> None:
    log = tmp_path / "output.log"
    with pytest.raises(RuntimeError, match=r"output.log: mt.nothing ended .*No module named"):
        recipe.call(["mt.nothing"], log, 1)
    assert log.exists()
