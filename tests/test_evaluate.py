"""python -m mt.evaluate: scores with their signatures, hypotheses, a complete report."""

import dataclasses
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
import sacremoses
import torch
from conftest import MAX_LENGTH, write_lines
from evaluate_helpers import FILES, NAMES, TEST, RunModule, hypotheses, read_report

from mt.data import phrasebook
from mt.data import tokenizer as tokenizers
from mt.evaluation import comet, metrics
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.utils.locks import exclusive_lock

ROOT = Path(checkpoint.__file__).parents[2]
pytest_plugins = ["evaluate_helpers"]


def test_what_a_run_leaves(evaluate: RunModule, tmp_path: Path, model_folder: Path) -> None:
    done = evaluate()
    assert (done.code, done.err) == (0, "")
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == sorted([*FILES, "pictures.png"])
    translator = Translator.load(model_folder, "cpu")
    for beam_size in (1, 4):
        results = translator.translate([en for en, _ in TEST], beam_size=beam_size)
        assert hypotheses(tmp_path, beam_size) == [result.text for result in results]
    report, comparison = done.out.splitlines()[-2:]
    assert report == "report  out/report.md"
    assert comparison == "compare python -m mt.evaluate 'compare=[out,FOLDER]'"


@pytest.mark.parametrize(
    ("hypothesis", "warnings"),
    [
        ("", ["4 of 4 translations are empty", "the model says the same for every sentence"]),
        ("Ja.", ["the model says the same for every sentence"]),
        (None, []),
    ],
)
def test_a_model_of_no_use_is_noticed(
    evaluate: RunModule,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    hypothesis: str | None,
    warnings: list[str],
) -> None:
    translate = Translator.translate
    monkeypatch.setattr(
        Translator,
        "translate",
        lambda *args, **options: [
            result if hypothesis is None else dataclasses.replace(result, text=hypothesis)
            for result in translate(*args, **options)
        ],
    )
    assert evaluate("search.beam_size=1").code == 0
    assert caplog.messages == [f"beam1: {warning}" for warning in warnings]


def test_other_languages_than_the_models_are_refused(
    evaluate: RunModule, tmp_path: Path, model_folder: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / "finnish")
    file = tmp_path / "finnish" / "config.json"
    config = json.loads(file.read_text()) | {"languages": ["en", "fi"]}
    file.write_text(json.dumps(config))
    done = evaluate("model_path=finnish", "data=phrasebook")
    message = "the model translates en to fi, the data are en to de"
    assert done == (2, "", f"mt.evaluate: error: {message}\n")
    assert evaluate("model_path=finnish", "search.beam_size=1").code == 0  # .de may mean anything
    file.write_text(json.dumps(config | {"languages": ["de", "en"]}))
    done = evaluate("model_path=finnish")
    assert "the data are en to de: set data.src=de data.tgt=en" in done.err


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")],
)
def test_too_little_memory_is_told_in_a_line(
    evaluate: RunModule, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def translate(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Translator, "translate", translate)
    done = evaluate()
    advice = "set a smaller search.batch_size or search.beam_size"
    assert done == (2, "", f"mt.evaluate: error: out of memory: {advice}\n")


def test_two_evaluations_do_not_share_a_folder(
    evaluate: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    with exclusive_lock(tmp_path / "out" / ".lock", ""):
        done = evaluate()
        message = "out: another evaluation writes there now: name another hydra.run.dir"
        assert done == (2, "", f"mt.evaluate: error: {message}\n")
    assert evaluate("search.beam_size=1").code == 0
    assert not (tmp_path / "out" / ".lock").exists()


def test_several_models_are_an_ensemble(
    evaluate: RunModule, tmp_path: Path, model_folder: Path
) -> None:
    loaded = checkpoint.load(model_folder)
    torch.manual_seed(7)
    for parameter in loaded.model.parameters():
        parameter.data += 0.3 * parameter.std() * torch.randn_like(parameter)
    max_length, languages = loaded.config["max_length"], loaded.config["languages"]
    checkpoint.save(tmp_path / "b", loaded.model, loaded.tokenizer, max_length, languages, {})
    done = evaluate(f"model_path=[{model_folder},b]", "search.beam_size=4")
    assert (done.code, done.err) == (0, "")
    together = Translator.load([model_folder, tmp_path / "b"], "cpu")
    expected = [result.text for result in together.translate([en for en, _ in TEST], beam_size=4)]
    assert hypotheses(tmp_path, 4) == expected
    report = read_report(tmp_path)
    hashes = [checkpoint.digest(path) for path in (model_folder, tmp_path / "b")]
    assert report["model"] == f"{model_folder} + b"
    assert report["model_sha256"] == hashlib.sha256(" ".join(hashes).encode()).hexdigest()
    assert [member["model_sha256"] for member in report["members"]] == hashes
    assert report["members"][0]["model_config"] == loaded.config
    both = f"{model_folder} (sha256 {hashes[0][:12]}) + b (sha256 {hashes[1][:12]})"
    assert both in done.out
    assert f"- model: {both}\n" in (tmp_path / "out" / "report.md").read_text("utf-8")
    done = evaluate("compare=[out,out]", "hydra.run.dir=both")
    assert (done.code, both in done.out) == (0, True)

    assert evaluate(f"model_path=[{model_folder}]", "search.beam_size=4").code == 0
    assert read_report(tmp_path)["model_sha256"] == hashes[0]
    for wrong in (f"[{model_folder},{model_folder}/]", "[everyday,null]", "[]"):
        done = evaluate(f"model_path={wrong}")
        assert done.code == 2
        assert "name at least one, each once" in done.err


def test_the_report_says_all(evaluate: RunModule, tmp_path: Path, model_folder: Path) -> None:
    evaluate("search.alpha=0.7")
    report = read_report(tmp_path)
    loaded = checkpoint.load(model_folder)
    assert report["model"] == str(model_folder)
    assert report["model_sha256"] == checkpoint.digest(model_folder)
    assert report["model_config"] == loaded.config
    assert report["data"] == "corpus/test (test)"
    assert report["sentences"] == len(TEST)
    ids = loaded.tokenizer.encode([en for en, _ in TEST])
    assert report["source_tokens"] == sum(len(row) + 1 for row in ids)
    assert report["config"]["search"] == {"beam_size": [1, 4], "alpha": 0.7, "batch_size": 64}
    assert report["config"]["data"]["test"] == "corpus/test"
    assert report["config"]["data"]["cache_dir"] == str(tmp_path / "cache")  # resolved
    assert report["tokenizer_sha256"] == hashlib.sha256(loaded.tokenizer.proto).hexdigest()
    assert report["versions"] == {
        "mt": metrics.package_version("mt"),
        "torch": torch.__version__,
        "sacrebleu": sacrebleu.__version__,
        "sacremoses": sacremoses.__version__,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", report["date"])
    assert report["command"].startswith("python -m mt.evaluate data=files ")
    assert "search.alpha=0.7" in report["command"]
    assert re.search(r"\w.*, \d+ threads?$", report["machine"])
    for side, suffix in (("source", "en"), ("reference", "de")):
        content = (tmp_path / "corpus" / f"test.{suffix}").read_bytes()
        assert report[f"{side}_sha256"] == hashlib.sha256(content).hexdigest()
    assert (report["target"], report["tokenized"]) == ("de", False)


def test_sentence_by_sentence(evaluate: RunModule, tmp_path: Path, model_folder: Path) -> None:
    evaluate("search.beam_size=4")
    [run] = read_report(tmp_path)["runs"]
    content = (tmp_path / "out" / run["sentence_scores"]).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in content.split("\n")[:-1]]
    results = Translator.load(model_folder, "cpu").translate([en for en, _ in TEST], beam_size=4)
    assert [(row["source"], row["reference"]) for row in rows] == TEST
    assert [row["hypothesis"] for row in rows] == [result.text for result in results]
    for row, result in zip(rows, results, strict=True):
        assert row["log_prob"] == pytest.approx(result.log_prob, abs=1e-3)
        expected = sacrebleu.sentence_chrf(row["hypothesis"], [row["reference"]]).score
        assert row["chrf"] == round(expected, 4)
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert rows[0]["hypothesis"] in text
    assert re.search(r"^\| (1-5|6-10) +\|", text, re.MULTILINE)


def test_tokenised_text_is_scored_as_it_is(
    evaluate: RunModule, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    form = metrics.LcNormTok("de")
    write_lines(tmp_path / "tok.en", [en for en, _ in TEST])
    write_lines(tmp_path / "tok.de", [form(de) for _, de in TEST])
    files = ["src=tok.en", "ref=tok.de", "search.beam_size=1"]
    done = evaluate(*files, "tokenized=true")
    assert (done.code, done.err) == (0, "")
    report = read_report(tmp_path)
    names = ["tokenised BLEU, as given", "chrF", "TER", "sacreBLEU, detokenised"]
    assert [score["name"] for score in report["runs"][0]["scores"]] == names
    assert report["tokenized"] is True
    assert not caplog.messages
    evaluate(*files)
    hint = "the references look tokenised: tokenized=true scores such text as it is"
    assert caplog.messages == [hint]
    write_lines(tmp_path / "raw.de", [f"{de.rstrip('.')}." for _, de in TEST])
    evaluate("src=tok.en", "ref=raw.de", "search.beam_size=1", "tokenized=true")
    assert caplog.messages[1:] == [
        "the references do not look tokenised: tokenized=true is for text that is"
    ]


def test_comet_when_it_is_asked_for(
    evaluate: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    done = evaluate("comet=some/model")
    assert done.code == 2
    assert done.err.startswith("mt.evaluate: error: comet=some/model: COMET is not installed")
    assert not (tmp_path / "out").exists()


def test_comet_that_fails_leaves_the_rest(
    evaluate: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def __init__(self, model: str, gpu: bool) -> None:
            pass

        def __call__(self, *sides: list[str]) -> None:
            raise ValueError("COMET has failed: out of memory")

    monkeypatch.setattr(comet, "Comet", Failing)
    done = evaluate("comet=m", "search.beam_size=1")
    assert done.code == 2
    assert done.err == (
        "mt.evaluate: error: comet=m: COMET has failed: out of memory; "
        "out/report.md is without it\n"
    )
    assert "sacreBLEU" in done.out
    assert [score["name"] for score in read_report(tmp_path)["runs"][0]["scores"]] == NAMES
    assert len(hypotheses(tmp_path, 1)) == len(TEST)
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    done = evaluate("comet=m", "search.beam_size=2")  # what may have been with COMET stays
    assert "out/without-comet/report.md is without it" in done.err
    assert (tmp_path / "out" / "without-comet" / "hypotheses.beam2.txt").exists()
    spare = tmp_path / "out" / "without-comet"
    file = spare / "hypotheses.beam2.txt"
    own = evaluate("comet=m", f"hyp={file}", "model_path=null")  # it may be replaced
    assert own.code == 2
    assert "hypotheses.beam2.txt" in own.err
    evaluate("comet=m", "search.beam_size=3")
    assert [path.name for path in spare.glob("hypotheses.*")] == ["hypotheses.beam3.txt"]
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()} == (
        before
    )


def test_lines_stay_lines(
    evaluate: RunModule, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Blank and odd lines of a test set count, and each has its hypothesis."""
    sources = ["The bear.", "", "a\u2028b\u0085c", "a\rb", " ", "\ufeffdoor"]
    write_lines(tmp_path / "odd.en", sources)
    write_lines(tmp_path / "odd.de", [f"{number}." for number in range(len(sources))])
    done = evaluate("src=odd.en", "ref=odd.de")
    assert done.code == 0
    assert "2 source line(s) are empty, the first is line 2" in caplog.text
    for beam_size in (1, 4):
        lines = hypotheses(tmp_path, beam_size)
        assert len(lines) == len(sources)
        assert [number for number, line in enumerate(lines) if not line] == [1, 4]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        (["limit=3"], 3),
        (["limit=1000"], 4),
        (["split=validation", "data.validation=corpus/validation"], 6),
        (["split=train", "data.train=corpus/train", "limit=7"], 7),
    ],
)
def test_a_split_and_a_limit(
    evaluate: RunModule, tmp_path: Path, changes: list[str], count: int
) -> None:
    done = evaluate("search.beam_size=1", *changes)
    assert done.code == 0, done
    assert read_report(tmp_path)["sentences"] == count
    assert len(hypotheses(tmp_path, 1)) == count


@pytest.mark.parametrize(
    ("changes", "parts", "name"),
    [
        ([], ["grammar"], "phrasebook (test)"),
        (["data.parts=[themes]"], ["themes"], "phrasebook: themes (test)"),
    ],
)
def test_the_phrasebook_is_a_test_set(
    evaluate: RunModule, tmp_path: Path, changes: list[str], parts: list[str], name: str
) -> None:
    done = evaluate("data=phrasebook", *changes, "limit=2", "search.beam_size=1")
    assert done.code == 0, done
    report = read_report(tmp_path)
    assert report["data"] == name
    references = [de for _, de in phrasebook.load("test", parts)[:2]]
    expected = metrics.bleu(hypotheses(tmp_path, 1), references)
    assert report["runs"][0]["scores"][0]["value"] == expected.value


def test_data_of_the_other_direction_are_refused(evaluate: RunModule) -> None:
    done = evaluate("data.src=de", "data.tgt=en", "search.beam_size=1")
    assert done.code == 2
    assert "the model translates en to de, the data are de to en" in done.err
    for name in ("t.en", "t.de"):
        Path(name).write_text(f"{name}\n")
    done = evaluate("src=t.de", "ref=t.en", "search.beam_size=1")
    assert done.code == 2
    assert "the data are de to en: swap src and ref" in done.err
    for name in ("t.en", "t.de"):
        Path(f"{name}.gz").write_bytes(gzip.compress(f"{name}\n".encode()))
    done = evaluate("src=t.de.gz", "ref=t.en.gz", "search.beam_size=1")
    assert "the data are de to en: swap src and ref" in done.err
    Path("t.jsonl").write_text('{"t": {"en": "a", "de": "b"}}\n')
    done = evaluate("data.test=t.jsonl", "data.src=t.de", "data.tgt=t.en", "search.beam_size=1")
    assert "the data are de to en: set data.src=en data.tgt=de" in done.err
    done = evaluate("src=t.de", "ref=t.en", "hyp=t.en", "model_path=null")  # of any program
    assert done.code == 0


def test_nothing_of_an_evaluation_before_stays(evaluate: RunModule, tmp_path: Path) -> None:
    for beams in ("[1,2]", "1"):
        assert evaluate("data.test=corpus/test", f"search.beam_size={beams}", "limit=2").code == 0
    assert not list((tmp_path / "out").glob("*beam2*"))


def test_a_training_checkpoint_is_a_model(
    evaluate: RunModule, tmp_path: Path, model_folder: Path
) -> None:
    loaded = checkpoint.load(model_folder)
    path = tmp_path / "run" / "checkpoints" / "step-7.ckpt"
    path.parent.mkdir(parents=True)
    content = {
        "state_dict": {f"model.{name}": w for name, w in loaded.model.state_dict().items()},
        "hyper_parameters": {"model": loaded.model.config, "max_length": MAX_LENGTH},
        "global_step": 7,
    }
    torch.save(content, path)
    tokenizers.save(loaded.tokenizer, tmp_path / "run" / "tokenizer.model")
    assert evaluate("search.beam_size=1").code == 0
    of_folder = hypotheses(tmp_path, 1)
    assert evaluate("search.beam_size=1", "model_path=run/checkpoints/step-7.ckpt").code == 0
    assert hypotheses(tmp_path, 1) == of_folder
    report = read_report(tmp_path)
    assert report["model_sha256"] == checkpoint.digest(path)
    assert report["model_config"]["training"] == {"global_step": 7}


def test_the_bundled_model_is_the_default_and_the_latest_must_be_named(
    evaluate: RunModule, tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "BUNDLED_MODEL", model_folder)
    assert evaluate("model_path=null", "search.beam_size=1", "limit=1").code == 0
    assert read_report(tmp_path)["model"] == "mt/everyday"  # wherever that is installed
    for age, name in ((9, "old"), (1, "new")):
        folder = tmp_path / "outputs" / name / "model"
        shutil.copytree(model_folder, folder)
        os.utime(folder / "config.json", (1e9 - age, 1e9 - age))
    done = evaluate("model_path=latest", "search.beam_size=1", "limit=1")
    assert done.code == 0, done
    assert read_report(tmp_path)["model"] == "outputs/new/model"
    assert "model   outputs/new/model" in done.out


def test_as_a_process(model_folder: Path, tmp_path: Path) -> None:
    """Also, what is too long for the model is told, and that there is no matplotlib."""
    write_lines(tmp_path / "without" / "matplotlib" / "__init__.py", ["raise ImportError"])
    write_lines(tmp_path / "some.en", ["The bear.", "the door " * 40, "The door."])
    write_lines(tmp_path / "some.de", ["Der Bär.", "die Tür " * 40, "Die Tür."])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mt.evaluate", "src=some.en", "ref=some.de"),
            *(f"model_path={model_folder}", "device=cpu", "limit=2"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{tmp_path / 'without'}{os.pathsep}{ROOT}",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    warning = r"mt\.evaluate: a line of \d+ tokens, .*\n"
    no_pictures = r"mt\.evaluate: outputs/.*/pictures\.png is not drawn: .*\n"
    empty = r"(mt\.evaluate: beam4: 1 of 2 translations are empty\n)"
    twice = f"({warning}){{2}}{empty}{no_pictures}"  # of greedy and of beam 4
    assert re.fullmatch(twice, done.stderr), done.stderr
    [folder] = (tmp_path / "outputs" / "evaluate").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert f"\nreport  outputs/evaluate/{folder.name}/report.md\n" in done.stdout
