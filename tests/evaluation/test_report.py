"""The record of an evaluation: lengths, sentences, what Markdown shows, files that are whole."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from mt.evaluation import metrics, report

SOURCES = ["one two", "", "a b c d e f g", "three", "x " * 60]
REFERENCES = ["eins zwei", "leer", "a b c d e f g", "", "x " * 60]
HYPOTHESES = ["eins zwei", "", "a b c d f g h", "drei", "x " * 30]


class Doubling:
    """Stands in for metrics.Comet."""

    signature = "comet:stand-in"

    def __init__(self) -> None:
        self.sides: Any = None

    def __call__(self, *sides: list[str]) -> tuple[metrics.Score, list[float]]:
        self.sides = sides
        return metrics.Score("COMET", 0.5, self.signature), [0.25] * len(sides[0])


def full(record: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A report as mt.evaluate puts it together."""
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
        "runs": [search | record | files],
    } | changes


def test_sentences_by_the_words_of_their_sources() -> None:
    words = (0, 1, 5, 6, 10, 11, 15, 16, 20, 21, 30, 31, 50, 51, 500)
    found = report.by_length(["w " * n for n in words])
    assert {name: [words[i] for i in which] for name, which in found.items()} == {
        "0": [0],
        "1-5": [1, 5],
        "6-10": [6, 10],
        "11-15": [11, 15],
        "16-20": [16, 20],
        "21-30": [21, 30],
        "31-50": [31, 50],
        "51+": [51, 500],
    }
    assert report.by_length(SOURCES) == {"0": [1], "1-5": [0, 3], "6-10": [2], "51+": [4]}


@pytest.mark.parametrize("tokenized", [False, True])
def test_what_is_recorded(tokenized: bool) -> None:
    record, rows = report.score(SOURCES, REFERENCES, HYPOTHESES, "de", tokenized)
    expected = metrics.all_scores(HYPOTHESES, REFERENCES, "de", tokenized)
    assert record["scores"] == [score._asdict() for score in expected]
    assert record["tokens"] == {"hypotheses": 2 + 0 + 7 + 1 + 30, "references": 2 + 1 + 7 + 0 + 60}
    assert record["length_ratio"] == round(40 / 70, 4)
    buckets = {bucket["words"]: bucket for bucket in record["by_length"]}
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
    assert set(record["sentence_signatures"]) == {"bleu", "chrf", "ter"}
    json.dumps([record, rows])


def test_references_without_a_word() -> None:
    record, rows = report.score([""], [""], [""])
    assert record["length_ratio"] is None
    assert "| length ratio | – |" in report.markdown(full(record), rows)


def test_one_sentence_has_no_interval() -> None:
    record, rows = report.score(["a"], ["b"], ["c"])
    for text in (report.markdown(full(record), rows), report.render(full(record))):
        assert "±" not in text
        assert "bs:" not in text


def test_columns_stay_apart() -> None:
    record, _ = report.score(SOURCES, REFERENCES, HYPOTHESES)
    record["scores"] = [{"name": "TER", "value": 1234.5, "signature": "s", "interval": 1234.5}]
    two = full(record)
    text = report.render(two | {"runs": two["runs"] * 2})
    assert "1234.50 ± 1234.50  1234.50 ± 1234.50" in text


def test_comet_sees_sources_and_text_as_people_write_it() -> None:
    comet, languages = Doubling(), ("en", "de")
    record, rows = report.score(["a ."], ["b ."], ["c &amp; ."], "de", tokenized=True)
    found = report.comet_scores(rows, comet, languages, tokenized=True)  # type: ignore[arg-type]
    assert comet.sides == (["a."], ["c &."], ["b."])
    report.add_comet(record, rows, found)
    assert record["scores"][-1]["name"] == "COMET"
    assert record["sentence_signatures"]["comet"] == "comet:stand-in"
    assert rows[0]["comet"] == 0.25
    report.comet_scores(rows, comet, languages)  # type: ignore[arg-type]
    assert comet.sides == (["a ."], ["c &amp; ."], ["b ."])
    text = report.markdown(full(record, tokenized=True), rows)
    assert "COMET: a learned score" in text
    assert "| COMET | 0.5000 |" in text  # whose differences are small
    assert "| sentence comet | 0.2500 |" in text


def test_translations_of_a_file_have_neither_search_nor_speed() -> None:
    record, rows = report.score(SOURCES, REFERENCES, HYPOTHESES)
    whole = full(record, model="out.de", model_sha256=None, source_tokens=None)
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
        report.score([], [], [])


def test_a_digest_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "x.de"
    path.write_text("ä\n\nb\n", encoding="utf-8")
    assert report.digest(["ä", "", "b"]) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert report.digest(["ä", "b"]) != report.digest(["ä", "", "b"])


def test_markdown_and_terminal_show_every_score_with_its_signature() -> None:
    record, rows = report.score(SOURCES, REFERENCES, HYPOTHESES)
    for text in (report.markdown(full(record), rows), report.render(full(record))):
        for score in record["scores"]:
            assert score["signature"] in text
            assert f"{score['value']:.2f} ± {score['interval']:.2f}" in text
        assert "bs:1000|seed:12345" in text
        assert "0.571" in text


def test_texts_mean_nothing_to_markdown() -> None:
    """Whatever a sentence holds, it is shown in an indented block, a line each."""
    odd = "# <b> | *x* \u2028 \r - ```"
    record, rows = report.score([odd], ["r"], [odd])
    text = report.markdown(full(record), rows)
    assert "\n    source: # <b> | *x* - ```\n" in text
    assert "\n    hypothesis: # <b> | *x* - ```\n" in text
    assert not [line for line in text.splitlines() if line.startswith("# <b>")]


def test_the_worst_sentences_come_first() -> None:
    count = report.NUM_WORST_SENTENCES + 5
    texts = [f"Das ist Satz {number}." for number in range(count)]
    others = [*texts[:7], "etwas anderes", *texts[8:]]
    record, rows = report.score(texts, texts, others)
    text = report.markdown(full(record), rows)
    shown = [line.strip() for line in text.splitlines() if line.startswith("    line ")]
    assert len(shown) == report.NUM_WORST_SENTENCES
    assert shown[0].startswith("line 8: ")


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [{"source": "a\u2028b\rc"}, {"source": "ü"}]
    report.write(path, report.json_lines(rows))
    content = path.read_bytes().decode().split("\n")
    assert [json.loads(line) for line in content[:-1]] == rows
    with pytest.raises(UnicodeEncodeError):
        report.write(path, "new \ud800")
    assert path.read_bytes().decode().split("\n") == content
