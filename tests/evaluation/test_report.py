"""The report of an evaluation: lengths, sentences, Markdown, files that are complete."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from mt.evaluation import metrics, report

SOURCES = ["one two", "", "a b c d e f g", "three", "x " * 60]
REFERENCES = ["eins zwei", "leer", "a b c d e f g", "", "x " * 60]
HYPOTHESES = ["eins zwei", "", "a b c d f g h", "drei", "x " * 30]


def one_blank(text: str) -> str:
    """The text without the blanks that fill the columns of its tables."""
    return re.sub(" +", " ", text)


class CometStandIn:
    """Stands in for mt.evaluation.comet.Comet."""

    signature = "comet:stand-in"

    def __init__(self) -> None:
        self.sides: Any = None

    def __call__(self, *sides: list[str]) -> tuple[metrics.Score, list[float]]:
        self.sides = sides
        return metrics.Score("COMET", 0.5, self.signature), [0.25] * len(sides[0])


def full(run: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A report as mt.evaluate writes it."""
    search = {"beam_size": 1, "alpha": 0.6, "output_tokens": 9, "tokens_per_second": 1.0}
    files = {"hypotheses": "h.txt", "sentence_scores": "s.jsonl"}
    return {
        "date": "2001-02-03",
        "command": "python -m mt.evaluate",
        "machine": "an abacus",
        "model": "m",
        "model_sha256": "5" * 64,
        "tokenizer_sha256": "8" * 64,
        "data": "d",
        "sentences": len(SOURCES),
        "source_tokens": 7,
        "source_sha256": "6" * 64,
        "reference_sha256": "7" * 64,
        "target": "de",
        "tokenized": False,
        "config": {"precision": "float32"},
        "runs": [search | run | files],
    } | changes


def test_sentences_by_the_words_of_their_sources() -> None:
    words = (0, 1, 5, 6, 10, 11, 15, 16, 20, 21, 30, 31, 50, 51, 500)
    buckets = report.indices_by_length(["w " * n for n in words])
    assert {name: [words[i] for i in indices] for name, indices in buckets.items()} == {
        "0": [0],
        "1-5": [1, 5],
        "6-10": [6, 10],
        "11-15": [11, 15],
        "16-20": [16, 20],
        "21-30": [21, 30],
        "31-50": [31, 50],
        "51+": [51, 500],
    }
    assert report.indices_by_length(SOURCES) == {"0": [1], "1-5": [0, 3], "6-10": [2], "51+": [4]}


@pytest.mark.parametrize("tokenized", [False, True])
def test_what_is_recorded(tokenized: bool) -> None:
    run, rows = report.score_output(SOURCES, REFERENCES, HYPOTHESES, "de", tokenized)
    expected = metrics.all_scores(HYPOTHESES, REFERENCES, "de", tokenized)
    assert run["scores"] == [score._asdict() for score in expected]
    assert run["tokens"] == {"hypotheses": 2 + 0 + 7 + 1 + 30, "references": 2 + 1 + 7 + 0 + 60}
    assert run["length_ratio"] == round(40 / 70, 4)
    buckets = {bucket["words"]: bucket for bucket in run["by_length"]}
    assert list(buckets) == ["0", "1-5", "6-10", "51+"]
    assert [bucket["sentences"] for bucket in buckets.values()] == [1, 2, 1, 1]
    assert [bucket["length_ratio"] for bucket in buckets.values()] == [0, 1.5, 1, 0.5]
    alone = metrics.all_scores(HYPOTHESES[2:3], REFERENCES[2:3], "de", tokenized)[:2]
    assert buckets["6-10"]["scores"] == {score.name: score.value for score in alone}
    assert 0 < alone[0].value < 100
    chrf = [sacrebleu.sentence_chrf(h, [r]).score for h, r in zip(HYPOTHESES, REFERENCES, strict=1)]
    assert [row["chrf"] for row in rows] == [round(value, 4) for value in chrf]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["hypothesis"] for row in rows] == HYPOTHESES
    assert set(run["sentence_signatures"]) == {"bleu", "chrf", "ter"}
    json.dumps([run, rows])


def test_references_without_a_word() -> None:
    run, rows = report.score_output([""], [""], [""])
    assert run["length_ratio"] is None
    assert "| length ratio | – |" in one_blank(report.markdown(full(run), rows))


def test_one_sentence_has_no_interval() -> None:
    run, rows = report.score_output(["a"], ["b"], ["c"])
    for text in (report.markdown(full(run), rows), report.render(full(run))):
        assert "±" not in text
        assert "bs:" not in text


def test_columns_stay_apart() -> None:
    run, _ = report.score_output(SOURCES, REFERENCES, HYPOTHESES)
    run["scores"] = [{"name": "TER", "value": 1234.5, "signature": "s", "interval": 1234.5}]
    two = full(run)
    text = report.render(two | {"runs": two["runs"] * 2})
    assert "1234.50 ± 1234.50  1234.50 ± 1234.50" in text


def test_comet_sees_sources_and_text_as_people_write_it() -> None:
    comet: Any = CometStandIn()
    run, rows = report.score_output(["a ."], ["b ."], ["c &amp; ."], "de", tokenized=True)
    content = full(run, tokenized=True)
    report.add_comet(comet, content, [rows], ("en", "de"))
    assert comet.sides == (["a."], ["c &."], ["b."])
    [run] = content["runs"]
    assert run["scores"][-1]["name"] == "COMET"
    assert run["sentence_signatures"]["comet"] == "comet:stand-in"
    assert rows[0]["comet"] == 0.25
    text = report.markdown(content, rows)
    plain, rows = report.score_output(["a ."], ["b ."], ["c &amp; ."])
    report.add_comet(comet, full(plain), [rows], ("en", "de"))
    assert comet.sides == (["a ."], ["c &amp; ."], ["b ."])
    assert "COMET: a learned score" in text
    assert "| COMET | 0.5000 |" in one_blank(text)  # its differences are small
    assert "| sentence comet | 0.2500 |" in one_blank(text)


def test_translations_of_a_file_have_neither_search_nor_speed() -> None:
    run, rows = report.score_output(SOURCES, REFERENCES, HYPOTHESES)
    whole = full(run, model="out.de", model_sha256=None, source_tokens=None)
    run = whole["runs"][0] | {"beam_size": None, "alpha": None}
    whole["runs"] = [
        {k: v for k, v in run.items() if k not in ("output_tokens", "tokens_per_second")}
    ]
    for text in (report.markdown(whole, rows), report.render(whole)):
        assert "as given" in text
        assert "the translations in out.de" in text
        for word in ("tokens/s", "output tokens", "alpha", "None", "pieces"):
            assert word not in text, word


def test_no_sentences() -> None:
    with pytest.raises(ValueError, match="no sentences"):
        report.score_output([], [], [])


def test_a_digest_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "x.de"
    path.write_text("ä\n\nb\n", encoding="utf-8")
    assert report.digest(["ä", "", "b"]) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert report.digest(["ä", "b"]) != report.digest(["ä", "", "b"])


def test_markdown_and_terminal_show_every_score_with_its_signature() -> None:
    run, rows = report.score_output(SOURCES, REFERENCES, HYPOTHESES)
    for text in (report.markdown(full(run), rows), report.render(full(run))):
        for score in run["scores"]:
            assert score["signature"] in text
            assert f"{score['value']:.2f} ± {score['interval']:.2f}" in text
        assert "bs:1000|seed:12345" in text
        assert "0.571" in text


def test_texts_mean_nothing_to_markdown() -> None:
    """Whatever a sentence holds, it is shown in an indented block, a line each."""
    odd = "# <b> | *x* \u2028 \r - ```"
    run, rows = report.score_output([odd], ["r"], [odd])
    text = report.markdown(full(run), rows)
    assert "\n    source: # <b> | *x* - ```\n" in text
    assert "\n    hypothesis: # <b> | *x* - ```\n" in text
    assert not [line for line in text.splitlines() if line.startswith("# <b>")]


def test_the_worst_sentences_come_first() -> None:
    count = report.NUM_WORST_SENTENCES + 5
    texts = [f"Das ist Satz {number}." for number in range(count)]
    others = [*texts[:7], "etwas anderes", *texts[8:]]
    run, rows = report.score_output(texts, texts, others)
    text = report.markdown(full(run), rows)
    shown = [line.strip() for line in text.splitlines() if line.startswith("    line ")]
    assert len(shown) == report.NUM_WORST_SENTENCES
    assert shown[0].startswith("line 8: ")


def test_files_are_complete_and_written_together_or_not(tmp_path: Path) -> None:
    texts = ["a\u2028b\rc", "ü"]
    run, rows = report.score_output(texts, texts, texts)
    content = full(run)
    report.save(tmp_path, content, [rows], {"s.jsonl", "gone.txt"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {"h.txt", "s.jsonl", "report.md", "report.json"}
    lines = before["s.jsonl"].decode().split("\n")
    assert [json.loads(line) for line in lines[:-1]] == rows
    assert before["h.txt"].decode() == "a\u2028b\rc\nü\n"
    assert json.loads(before["report.json"]) == content
    rows[1]["source"] = rows[0]["hypothesis"] = "new \ud800"
    for damaged in (rows, [rows[1]]):  # the first file cannot be written, or the second
        with pytest.raises(UnicodeEncodeError):
            report.save(tmp_path, content | {"date": "later"}, [damaged], set())
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_of_the_report_before_are_removed(tmp_path: Path) -> None:
    run, rows = report.score_output(SOURCES, REFERENCES, HYPOTHESES)
    names = {"hypotheses": "hypotheses.beam1.txt", "sentence_scores": "sentences.beam1.jsonl"}
    content = full(run | names)
    content["runs"][0] |= names
    report.save(tmp_path, content, [rows], set())
    assert report.report_files(tmp_path) == set(names.values())
    content["runs"][0] |= {"hypotheses": "hypotheses.beam2.txt"}
    report.save(tmp_path, content, [rows], report.report_files(tmp_path))
    names["hypotheses"] = "hypotheses.beam2.txt"
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {*names.values(), "report.md", "report.json"}
    assert report.report_files(tmp_path / "none") == set()
