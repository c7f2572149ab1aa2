"""Searches side by side in one evaluation, and reports compared."""

import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import PAIRS, write_lines
from evaluate_helpers import NAMES, TEST, RunModule, hypotheses, read_report

from mt.evaluation import metrics
from mt.inference.translator import Translator

pytest_plugins = ["evaluate_helpers"]


def test_greedy_and_beam_are_compared(evaluate: RunModule, tmp_path: Path) -> None:
    assert evaluate().code == 0
    done = evaluate("compare=[out/hypotheses.beam1.txt,out]", "hydra.run.dir=compared")
    assert (done.code, done.err) == (0, "")
    content = json.loads((tmp_path / "compared" / "comparison.json").read_text(encoding="utf-8"))
    assert (content["a"]["search"], content["b"]["search"]) == ("greedy", "beam 4")
    for side, run in zip("ab", read_report(tmp_path)["runs"], strict=True):
        scores = [(score["name"], score[side]["score"]) for score in content["scores"]]
        assert scores == [(score["name"], pytest.approx(score["value"])) for score in run["scores"]]
    assert [row for row in done.out.splitlines() if row.startswith("lc-tok BLEU")]
    assert done.out.endswith("\ncomparison  compared/comparison.md\n")


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("[gone,out]", "gone: no report there: name a folder that holds report.json"),
        ("out", "compare=[out]: name two reports, as compare=[FOLDER_A,FOLDER_B]"),
    ],
)
def test_reports_that_are_not_there(
    evaluate: RunModule, tmp_path: Path, paths: str, message: str
) -> None:
    done = evaluate(f"compare={paths}", "hydra.run.dir=outputs/compared")
    assert done == (2, "", f"mt.evaluate: error: {message}\n")
    assert not (tmp_path / "outputs").exists()


def test_alpha_is_the_models_own_unless_given(
    evaluate: RunModule, tmp_path: Path, model_folder: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / "own")
    file = tmp_path / "own" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "search": {"alpha": 1.2}}))
    for setting, alpha in (("null", 1.2), ("0.3", 0.3)):
        assert evaluate("model_path=own", "limit=1", f"search.alpha={setting}").code == 0
        assert [run["alpha"] for run in read_report(tmp_path)["runs"]] == [alpha, alpha]


def test_greedy_and_beam_side_by_side(
    evaluate: RunModule, tmp_path: Path, model_folder: Path
) -> None:
    evaluate()
    greedy, beam = read_report(tmp_path)["runs"]
    translator = Translator.load(model_folder, "cpu")
    for run, beam_size in ((greedy, 1), (beam, 4)):
        assert (run["beam_size"], run["alpha"]) == (beam_size, 0.6)
        assert run["hypotheses"] == f"hypotheses.beam{beam_size}.txt"
        expected = metrics.all_scores(hypotheses(tmp_path, beam_size), [de for _, de in TEST])
        assert [score["name"] for score in run["scores"]] == NAMES
        assert run["scores"] == [score._asdict() for score in expected]
        results = translator.translate([en for en, _ in TEST], beam_size=beam_size)
        assert run["output_tokens"] == sum(result.tokens for result in results)
        assert run["seconds"] > 0
        assert run["tokens_per_second"] > 0


def test_the_table_shows_every_score_with_its_signature(
    evaluate: RunModule, tmp_path: Path
) -> None:
    done = evaluate()
    report = read_report(tmp_path)
    header = next(line for line in done.out.splitlines() if "greedy" in line)
    assert header.split() == ["greedy", "beam", "4"]
    for i, name in enumerate(NAMES):
        scores = [run["scores"][i] for run in report["runs"]]
        values = [f"{score['value']:.2f} ± {score['interval']:.2f}" for score in scores]
        row = next(line for line in done.out.splitlines() if line.startswith(name))
        assert row.removeprefix(name).split() == " ".join(values).split()
        signature = report["runs"][0]["scores"][i]["signature"]
        assert f"  {name}: {signature}\n" in done.out
        assert "version:" in signature
    assert "bs:1000|seed:12345" in done.out
    assert report["model_sha256"][:12] in done.out
    assert "corpus/test (test): 4 sentences" in done.out
    assert not re.search(r"^\s*BLEU\b", done.out, re.MULTILINE), "BLEU of which kind?"


def test_references_that_are_met_score_the_most(
    evaluate: RunModule, tmp_path: Path, model_folder: Path
) -> None:
    """The model's own output as the reference: the scores are computed against the right file."""
    sources = [en for en, _ in PAIRS]
    results = Translator.load(model_folder, "cpu").translate(sources, beam_size=1)
    write_lines(tmp_path / "own.en", sources)
    write_lines(tmp_path / "own.de", [result.text for result in results])
    evaluate("src=own.en", "ref=own.de", "search.beam_size=1")
    report = read_report(tmp_path)
    values = {score["name"]: score["value"] for score in report["runs"][0]["scores"]}
    assert values["sacreBLEU"] == pytest.approx(100)
    assert values["chrF"] == pytest.approx(100)
    assert values["TER"] == pytest.approx(0)
    assert report["data"] == "own.en / own.de"
    assert report["sentences"] == len(PAIRS)


@pytest.mark.parametrize(
    ("beam_size", "columns"), [("1", ["greedy"]), ("3", ["beam", "3"]), ("[2]", ["beam", "2"])]
)
def test_one_beam_size_is_enough(evaluate: RunModule, beam_size: str, columns: list[str]) -> None:
    done = evaluate(f"search.beam_size={beam_size}", "limit=1")
    assert columns in [line.split() for line in done.out.splitlines()]


def test_src_and_ref_take_the_place_of_the_data(evaluate: RunModule, tmp_path: Path) -> None:
    """No split of the data is read then, which may not even exist."""
    done = evaluate(
        "src=corpus/validation.en", "ref=corpus/validation.de", "data.test=gone", "limit=2"
    )
    assert done.code == 0, done
    report = read_report(tmp_path)
    assert report["data"] == "corpus/validation.en / corpus/validation.de"
    assert report["sentences"] == 2
