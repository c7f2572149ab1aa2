"""multi30k.py: its data in both forms, the programs that it calls, and its use of their reports."""

import gzip
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from script_helpers import load_script

from mt.inference.options import SearchOptions, load_search_defaults
from mt.model import checkpoint
from mt.training import initialization

ENGLISH = "Two men are here.\nA dog (brown) runs.\n"
GERMAN = "Zwei Männer sind hier.\nEin Hund (braun) läuft.\n"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.chdir(tmp_path)
    return load_script(monkeypatch, "multi30k")


@pytest.fixture
def scores(recipe: ModuleType) -> ModuleType:
    return sys.modules["multi30k_scores"]


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
    assert len(texts) == 12 + 1  # and origin.json


class Faked(NamedTuple):
    """The script without the work of the programs that it calls."""

    run: Callable[..., dict[str, Any]]  # command line -> "configurations" of the report
    call: Callable[..., None]
    calls: list[list[str]]
    tuned: list[tuple[str, list[str], int, float]]


@pytest.fixture
def faked(
    recipe: ModuleType, scores: ModuleType, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> Faked:
    calls: list[list[str]] = []
    tuned: list[tuple[str, list[str], int, float]] = []

    def call(job: Any, arguments: Sequence[str], threads: int | None = None) -> None:
        """Write the files that the programs would write."""
        calls.append(list(arguments))
        if arguments[0] == "mt.translate":
            output = Path(arguments[arguments.index("--output") + 1])
            model = Path(arguments[arguments.index("--model") + 1])
            output.write_text(f"{model.parent.name}.\n" * 2, "utf-8")
            return
        settings = dict(argument.split("=", 1) for argument in arguments[1:])
        run = Path(settings["hydra.run.dir"].strip("'"))
        if arguments[0] == "mt.train":
            (run / "model").mkdir(exist_ok=True, parents=True)
            weights = [settings["seed"], settings.get("trainer.max_steps", "0")]
            (run / "model" / "model.safetensors").write_text(" ".join(weights))
            (run / "model" / "config.json").write_text('{"languages": ["en", "de"]}')
            return
        run.mkdir(parents=True, exist_ok=True)
        (run / "hypotheses.txt").write_text("zwei männer sind hier .\n" * 2, "utf-8")
        model = Path(settings["model_path"].strip("'"))
        seed, steps = map(int, (model / "model.safetensors").read_text().split())
        names = ("sacreBLEU", "lc-tok BLEU", "tokenised BLEU, as given")
        values = [{"name": name, "value": 31 + seed + steps + i} for i, name in enumerate(names)]
        report = {
            "model_sha256": checkpoint.digest(model),
            "model_config": {"training": {}},
            "source_sha256": "",
            "reference_sha256": "",
            "runs": [{"scores": values, "hypotheses": "hypotheses.txt"}],
        }
        (run / "report.json").write_text(json.dumps(report))

    class Translator:
        """Beam 10 finds the references, with alpha 1.0, 1.4 and 1.8."""

        @classmethod
        def load(cls, path: Path) -> "Translator":
            translator = cls()
            translator.path = str(path)
            return translator

        def translate(self, sources: list[str], options: SearchOptions) -> list[Any]:
            tuned.append((self.path, sources, options.beam_size, options.alpha))
            lines = GERMAN.splitlines()
            if ".norm" in self.path:
                lines = ["zwei männer sind hier .", "ein hund ( braun ) läuft ."]
            if options.beam_size != 10 or not 1 <= options.alpha <= 1.8:
                lines[0] += " nicht"
            return [SimpleNamespace(text=line) for line in lines]

    monkeypatch.setattr(recipe.Job, "call", call)
    monkeypatch.setattr(scores, "Translator", Translator)

    def run(*arguments: str) -> dict[str, Any]:
        command = ["multi30k.py", "--data", str(raw), "--seed", "1", "2", *arguments]
        monkeypatch.setattr(sys, "argv", command)
        recipe.main()
        report: dict[str, Any] = json.loads(Path("outputs/multi30k/report.json").read_text())
        return report["configurations"]  # type: ignore[no-any-return]

    return Faked(run, call, calls, tuned)


def test_both_forms_are_tuned_on_validation_and_tested_once(
    recipe: ModuleType, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any,
    faked: Faked,
) -> None:  # fmt: skip
    run, call, calls, tuned = faked
    scored = run("--", "trainer.max_steps=9")
    assert [call[0] for call in calls] == ["mt.train"] * 4 + ["mt.evaluate"] * 4
    assert all(call[-1] == "trainer.max_steps=9" and "ckpt=auto" in call for call in calls[:4])
    assert all("search.beam_size=10" in call and "search.alpha=1.4" in call for call in calls[4:])
    assert all("data/test" in call[1] for call in calls[4:])  # and nothing else sees the test set
    english = [ENGLISH.splitlines(), ["two men are here .", "a dog ( brown ) runs ."]]
    assert len(tuned) == 20
    assert all("seed1" in path and sources in english for path, sources, _, _ in tuned)
    assert list(scored) == ["raw", "lc.norm.tok"]
    assert scored["raw"]["cased sacreBLEU"]["mean"] == 41.5  # of 41 and 42
    assert scored["raw"]["lc-tok BLEU"]["mean"] == 42.5
    assert scored["lc.norm.tok"]["lc-tok BLEU"] == {
        "mean": 43.5, "deviation": 0.71, "least": 43, "most": 44, "seeds": 2
    }  # fmt: skip
    # detokenised, but without the references' capitals
    assert 0 < scored["lc.norm.tok"]["cased sacreBLEU"]["mean"] < 41
    assert "43.50 ± 0.71" in capsys.readouterr().out
    for name in (
        "raw-seed1",
        "raw-seed2",
        "lc.norm.tok-seed2",
    ):  # the models keep the chosen search
        model = Path("outputs/multi30k") / name / "model"
        assert load_search_defaults(model) == SearchOptions(10, 1.4)

    calls.clear()
    assert run("--", "trainer.max_steps=9") == scored
    assert [call[0] for call in calls] == ["mt.train"] * 4  # they end at once
    assert len(tuned) == 20
    with pytest.raises(ValueError, match="name another --folder or --settings"):
        run("--", "trainer.max_steps=10")
    other = shutil.copytree(raw, tmp_path / "other")
    monkeypatch.setattr(sys, "argv", ["multi30k.py", "--data", str(other)])
    with pytest.raises(ValueError, match=r"was made with .*published"):
        recipe.main()

    weights = Path("outputs/multi30k/raw-seed1/model/model.safetensors")
    folder = f"hydra.run.dir='{weights.parents[1]}'"
    call(None, ["mt.train", folder, "seed=1", "trainer.max_steps=11"])
    monkeypatch.setattr(recipe, "train_all", lambda *_: None)
    again = run("--", "trainer.max_steps=9")  # a changed model is scored again
    assert again["raw"]["cased sacreBLEU"]["mean"] == 42.5
    assert len(tuned) == 30


def test_seeds_teach_each_other(recipe: ModuleType, faked: Faked, tmp_path: Path) -> None:
    first = ("model=base", "++model.N=2", "model.P_drop=0.2", "tokenizer.bpe_dropout=0.1")
    arguments = ("--form", "raw", "--diverse", "--", *first, "start_from=everyday", "average=9")
    configurations = faked.run(*arguments)
    programs = [call[0] for call in faked.calls]
    train, translate, evaluate = (["mt." + n] * 2 for n in ("train", "translate", "evaluate"))
    assert programs == train + translate + 2 * train + translate + train + 3 * evaluate
    search = {"--resume", "--beam-size=10", "--alpha=1.4"}
    assert all(search < set(call) for call in faked.calls[2:4])
    parents = [[a for a in call if "_from=" in a] for call in faked.calls[4:8]]
    assert all(len(settings) == 1 for settings in parents)
    assert list(configurations) == ["raw", "raw-diverse", "raw-both"]

    more = [dict(item.split("=", 1) for item in call[1:]) for call in faked.calls[4:6]]
    assert [settings["init_from"].strip("'") for settings in more] == [
        f"outputs/multi30k/raw-seed{seed}/model" for seed in (1, 2)
    ]
    assert more[0]["data.train"] == more[1]["data.train"]
    assert more[0]["trainer.max_steps"] == "3175"
    assert not {"model", "++model.N"} & more[0].keys()  # the model brings them along
    assert (more[0]["model.P_drop"], more[0]["tokenizer.bpe_dropout"]) == ("0.2", "0.1")
    assert more[0]["average"] == "20"  # the last of the two counts
    prefix = more[0]["data.train"].strip("'")
    assert Path(f"{prefix}.en").read_text("utf-8") == ENGLISH * 3
    diverse = GERMAN + "raw-seed1.\n" * 2 + "raw-seed2.\n" * 2
    assert Path(f"{prefix}.de").read_text("utf-8") == diverse

    # The first models learn the other direction, and the last trainings use their translations.
    for seed, training, translation in zip(
        (1, 2), faked.calls[6:8], faked.calls[8:10], strict=True
    ):
        reverse = dict(item.split("=", 1) for item in training[1:])
        assert reverse["init_from"].strip("'") == f"outputs/multi30k/raw-seed{seed}/model"
        assert (reverse["data.src"], reverse["data.tgt"]) == ("de", "en")
        assert reverse["data.train"].strip("'") == "outputs/multi30k/data/train"
        assert {"--beam-size=5", "--alpha=1.0"} < set(translation)
        assert "outputs/multi30k/data/train.de" in translation
        assert f"outputs/multi30k/raw-reverse-seed{seed}/model" in translation
    both = [dict(item.split("=", 1) for item in call[1:]) for call in faked.calls[10:12]]
    assert [settings["init_from"].strip("'") for settings in both] == [
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
    assert faked.run(*arguments) == configurations
    assert Path(f"{prefix}.en").stat().st_mtime_ns == written
    assert [call[0] for call in faked.calls] == ["mt.train"] * 8  # they end at once
    with pytest.raises(ValueError, match=r"diverse was made with \[1, 2\]: give the same --seed"):
        faked.run("--form", "raw", "--seed", "1", "--diverse", *arguments[3:])
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
    arguments = ("--form", "raw", "--diverse", "--", "trainer.max_steps=9")
    faked.run(*arguments)
    changed = "outputs/multi30k/raw-diverse-seed2"

    def call(job: Any, arguments: Sequence[str], threads: int | None = None) -> None:
        faked.call(job, arguments, threads)
        if recipe.setting("hydra.run.dir", changed) in arguments:
            Path(changed, "model", "model.safetensors").write_text("2 4")

    monkeypatch.setattr(recipe.Job, "call", call)
    with pytest.raises(ValueError, match=r"raw-both-seed2 was made with"):
        faked.run(*arguments)


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


def test_an_alpha_beside_a_cliff_is_not_chosen(scores: ModuleType) -> None:
    """The scores were measured: the best one stands next to the worst."""
    measured = {5: (40.6, 41.0, 41.3, 41.4, 37.9), 10: (40.6, 40.9, 41.2, 41.2, 36.7)}
    rows = [
        {"beam_size": beam_size, "alpha": alpha, "BLEU": value}
        for beam_size, values in measured.items()
        for alpha, value in zip(scores.ALPHAS, values, strict=True)
    ]
    first, *others = scores.best_first(rows, "BLEU")
    assert first == {
        "beam_size": 5, "alpha": 1.4, "BLEU": 41.3, "with the next alphas": 41.233
    }  # fmt: skip
    assert len(others) == 9
    assert {row["alpha"] for row in others[-4:]} == {0.6, 2.2}  # they only serve their neighbours


def test_a_slip_of_the_pen_locks_nothing(
    recipe: ModuleType, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        recipe.prepare_data(tmp_path / "gone", tmp_path / "data")
    recipe.prepare_data(raw, tmp_path / "data")
    monkeypatch.setattr(recipe.Job, "call", lambda *_: None)
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
    job = recipe.Job("raw", "", (), 1, tmp_path)
    with pytest.raises(ChildProcessError, match=r"output.log: mt.nothing ended .*No module named"):
        job.call(["mt.nothing"], 1)
    assert (job.run / "output.log").exists()


@pytest.mark.parametrize(
    "name", ["tokenizer.byte_fallback", "tokenizer.split_digits", "model.P_attention", "model.N"]
)
def test_what_a_model_brings_along_is_what_training_refuses_beside_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script = load_script(monkeypatch, "multi30k")
    override, refused = f"{name}=1", False
    try:
        initialization._check_overrides([override], initialization._shape({"N": 6}))
    except ValueError:
        refused = True
    assert bool(re.match(script.OF_MODEL, override)) == refused
