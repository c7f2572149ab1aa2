"""What mt.evaluate refuses, and which reports it leaves as they are."""

import shutil
from pathlib import Path

import pytest
from conftest import write_lines
from evaluate_helpers import TEST, RunModule, read_report

from mt.evaluation import metrics, report

pytest_plugins = ["evaluate_helpers"]


def test_a_file_of_translations_is_scored(
    evaluate: RunModule, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever made them; and it is compared as a model's."""
    references = [de for _, de in TEST]
    write_lines(tmp_path / "other.de", [*references[:-1], "Etwas anderes."])
    done = evaluate("hyp=other.de", "model_path=null")
    assert (done.code, done.err) == (0, "")
    report = read_report(tmp_path)
    [run] = report["runs"]
    assert (report["model"], report["model_sha256"]) == ("other.de", None)
    assert (run["beam_size"], run["alpha"]) == (None, None)
    expected = metrics.all_scores([*references[:-1], "Etwas anderes."], references)
    assert run["scores"] == [score._asdict() for score in expected]
    assert "model   the translations in other.de\n" in done.out
    assert evaluate("hydra.run.dir=model", "search.beam_size=1").code == 0
    done = evaluate("compare=[model,out]", "hydra.run.dir=compared")
    assert (done.code, done.err) == (0, "")
    assert "B     out: the translations in other.de\n" in done.out
    assert not caplog.messages
    write_lines(tmp_path / "other.de", ["Ein Bär .", "", "Eine Tür .", "Ja ."])
    assert evaluate("hyp=other.de", "model_path=null").code == 0
    assert caplog.messages == [
        "the hypotheses look tokenised: tokenized=true scores such text as it is",
        "1 hypothesis line(s) are empty, the first is line 2",
    ]
    assert evaluate("hyp=other.de", "model_path=null", "limit=2").code == 0
    assert read_report(tmp_path)["sentences"] == 2


def test_the_report_that_is_scored_is_not_replaced(evaluate: RunModule, tmp_path: Path) -> None:
    assert evaluate("search.beam_size=1").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "link").symlink_to("out/hypotheses.beam1.txt")
    for file in ("out/hypotheses.beam1.txt", "link"):
        done = evaluate(f"hyp={file}", "model_path=null", "limit=2")
        assert done.code == 2
        assert f"error: {file} is read, and writing out/hypotheses.beam1.txt would" in done.err
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_test_set_in_the_folder_of_the_report_is_not_replaced(
    evaluate: RunModule, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    for name in ("hypotheses.given.txt", "hypotheses.beam1.txt"):
        shutil.copy(tmp_path / "corpus" / "test.de", tmp_path / "out" / name)
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    pair = "data.test=[corpus/test.en,out/hypotheses.beam1.txt]"
    for settings in (
        ["hyp=out/hypotheses.given.txt", "model_path=null"],
        ["data=files", pair, "search.beam_size=1"],
    ):
        done = evaluate(*settings, "limit=1")
        assert done.code == 2
        assert "the report would replace it: name another hydra.run.dir" in done.err
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["hyp=short.de", "model_path=null"], "hyp=short.de: 1 lines for 4 sentences"),
        (["hyp=short.de"], "hyp and model_path: either score a file or what a model translates"),
        (["hyp=gone.de", "model_path=null"], "gone.de: no such file or directory"),
        (["hyp=[short.de,gone.de]", "model_path=null"], "hyp: name one file"),
        (["search=null"], "search=None: is a section: set search.NAME=VALUE"),
        (["src=empty.en", "ref=empty.de"], "empty.en / empty.de: the corpus is empty"),
        (["src=corpus/test.en", "ref=short.de"], "test.en has 4 lines, short.de has 1"),
        (["src=short.de", "ref=short.de"], "short.de"),  # one file
    ],
)
def test_what_cannot_be_scored(
    evaluate: RunModule, tmp_path: Path, changes: list[str], message: str
) -> None:
    write_lines(tmp_path / "short.de", ["Der Bär."])
    for side in ("en", "de"):
        (tmp_path / f"empty.{side}").write_text("")
    done = evaluate(*changes)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_report_stays_until_another_is_done(
    evaluate: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def content() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    assert evaluate("search.beam_size=[1,2]").code == 0
    before = content()
    assert evaluate("search.batch_size=0").code == 2
    assert content() == before
    monkeypatch.setattr(metrics, "sentence_scores", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate()
    texts = before["hypotheses.beam1.txt"]
    assert content() == before | {"unfinished.beam1.txt": texts}  # what was translated stays


def test_what_was_translated_stays_when_the_next_search_fails(
    evaluate: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_output = report.score_output
    counted = iter(range(2))
    monkeypatch.setattr(
        report, "score_output", lambda *args: 1 / (1 - next(counted)) and score_output(*args)
    )
    with pytest.raises(ZeroDivisionError):
        evaluate()
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"unfinished.beam1.txt", "unfinished.beam4.txt"}
    for name in names:
        assert len((tmp_path / "out" / name).read_text().splitlines()) == len(TEST)


def test_a_report_of_something_else_is_not_replaced(evaluate: RunModule, tmp_path: Path) -> None:
    file = tmp_path / "out" / "report.json"
    outside = '{"runs": [{"hypotheses": "../x", "sentence_scores": "sentences.beam1.jsonl"}]}'
    for text in ('{"sales": 7}', "[1]", "no JSON", '{"runs": []}', outside):
        write_lines(file, [text])
        done = evaluate("search.beam_size=1")
        assert done.code == 2
        assert "out/report.json: no report of mt.evaluate: name another hydra.run.dir" in done.err
        assert file.read_text() == f"{text}\n"
        assert len(list(file.parent.iterdir())) == 1
