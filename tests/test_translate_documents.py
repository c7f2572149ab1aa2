"""python -m mt.translate --input letter.docx --output brief.docx: a document for a document."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, names_in

from mt import translate
from mt.documents import files
from mt.inference.translation import Translation

Translate = Callable[..., Done]
PAGE = "# Where do you live?\n\nI live in **Berlin**.\n\n    code stays\n\n- I am hungry.\n"
TABLE = 'id,en,note\n1,I am hungry.,"a, b"\n2,Where do you live?,\n'
FILES = {
    "a.md": PAGE,
    "a.html": "<!doctype html><p class=x>I live in <b>Berlin</b>.</p><script>no</script>\n",
    "a.srt": "1\n00:00:01,000 --> 00:00:02,000\nI am <i>hungry</i>.\n",
    "a.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nI am hungry.\n",
    "a.jsonl": '{"en": "I am hungry.", "n": 1.50}\n',
    "a.csv": TABLE,
}
COLUMNS = {".csv": ["--column", "en"], ".jsonl": ["--column", "en"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def as_it_is(_: Any, lines: list[str], *args: Any, **named: Any) -> list[Translation]:
    return [Translation(line, line, 0.0, 0, ((line, 0.0),)) for line in lines]


def in_capitals(_: Any, lines: list[str], *args: Any, **named: Any) -> list[Translation]:
    return [Translation(line, line.upper(), 0.0, 0, ((line.upper(), 0.0),)) for line in lines]


@pytest.mark.parametrize("name", FILES)
def test_a_model_that_answers_its_input_gives_the_same_file(
    name: str, greedy: Translate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate.Translator, "translate", as_it_is)
    suffix = Path(name).suffix
    done = greedy("--input", name, "--output", f"b{suffix}", *COLUMNS.get(suffix, []))
    assert done == Done(0, "", "")
    assert (folder / f"b{suffix}").read_bytes() == (folder / name).read_bytes()
    assert names_in(folder) == sorted([*FILES, f"b{suffix}"])


def test_the_texts_are_translated_and_the_rest_stays(
    greedy: Translate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate.Translator, "translate", in_capitals)
    assert greedy("--input", "a.md", "--output", "b.md") == Done(0, "", "")
    expected = PAGE.upper().replace("CODE STAYS", "code stays")
    assert (folder / "b.md").read_text(encoding="utf-8") == expected
    assert greedy("--input", "a.csv", "--output", "b.csv", "--column", "en=de").code == 0
    assert (folder / "b.csv").read_text(encoding="utf-8") == (
        'id,en,note,de\n1,I am hungry.,"a, b",I AM HUNGRY.\n'
        "2,Where do you live?,,WHERE DO YOU LIVE?\n"
    )


def test_what_is_asked_of_the_translator(
    greedy: Translate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences are split and what must be kept is kept, unless one says no."""
    asked: list[dict[str, Any]] = []

    def note(_: Any, lines: list[str], *args: Any, **named: Any) -> list[Translation]:
        asked.append(named)
        return as_it_is(_, lines)

    monkeypatch.setattr(translate.Translator, "translate", note)
    greedy("--input", "a.vtt", "--output", "b.vtt")
    greedy("--input", "a.vtt", "--output", "b.vtt", "--no-split", "--no-keep")
    assert [named["split"] for named in asked] == [True, False]
    assert [named["terms"].keep for named in asked] == [True, False]


def test_json_prints_each_text_with_its_confidence(greedy: Translate, folder: Path) -> None:
    done = greedy("--input", "a.md", "--output", "b.md", "--json")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [r["source"] for r in records] == [
        "Where do you live?", "I live in Berlin.", "I am hungry.",
    ]  # fmt: skip
    for record in records:
        assert 0 <= record["confidence"] <= 1
        assert record["translation"] in (folder / "b.md").read_text("utf-8").replace("**", "")


def test_a_document_is_written_when_nobody_reads_the_json(
    greedy: Translate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bool] = []

    def closed(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(translate, "print", closed, raising=False)
    monkeypatch.setattr(translate.console, "discard_output", lambda: left.append(True))
    done = greedy("--input", "a.md", "--output", "b.md", "--json")
    assert done.code == 0
    assert left == [True]
    assert (folder / "b.md").is_file()


def test_an_interrupted_document_goes_on_where_it_stopped(
    greedy: Translate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK", 2)
    done = greedy("--input", "a.md", "--output", "whole.md", "--json")
    whole = (folder / "whole.md").read_bytes()
    original = translate.Translator.translate
    seen: list[str] = []

    def fail_late(self: Any, lines: list[str], *args: Any, **named: Any) -> list[Translation]:
        if "I am hungry." in lines:
            raise MemoryError
        return original(self, lines, *args, **named)

    def note(self: Any, lines: list[str], *args: Any, **named: Any) -> list[Translation]:
        seen.extend(lines)
        return original(self, lines, *args, **named)

    monkeypatch.setattr(translate.Translator, "translate", fail_late)
    cut = greedy("--input", "a.md", "--output", "b.md", "--json")
    assert cut.code == 2
    assert "2 lines are translated and kept: continue with --resume" in cut.err
    assert not (folder / "b.md").exists()

    monkeypatch.setattr(translate.Translator, "translate", note)
    (folder / "a.md").write_text(PAGE + "\nMore.\n", encoding="utf-8")
    changed = greedy("--input", "a.md", "--output", "b.md", "--json", "--resume")
    assert (changed.code, seen) == (2, [])
    assert "begun with another document" in changed.err
    (folder / "a.md").write_text(PAGE, encoding="utf-8")
    resumed = greedy("--input", "a.md", "--output", "b.md", "--json", "--resume")
    assert (resumed.code, resumed.out, seen) == (0, done.out, ["I am hungry."])
    assert (folder / "b.md").read_bytes() == whole
    assert names_in(folder) == sorted([*FILES, "b.md", "whole.md"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--input a.md", "a.md is a document: name its translation with --output"),
        ("--input a.md --output b.txt", "the translation of a .md is a .md: name another"),
        ("--input a.md --output a.md", "writing a.md would replace it"),
        ("--input a.md --output b.md --score x", "--score is for lines"),
        ("--input a.md --output b.md --n-best 2", "--n-best is for lines"),
        ("--input a.md --output b.md --column en", "has no columns"),
        ("--input a.csv --output b.csv", "is a table: name a column that is translated with --col"),
        ("--input a.csv --output b.csv --column x", 'a.csv: has no column "x"'),
        ("--input lines --column en", "--column is for an --input that ends in"),
        ("--input a.pdf --output b.pdf", "a.pdf is a .pdf file: save it as .docx or .odt first"),
        ("--input a.docx --output b.docx", "a.docx: is damaged"),
        ("--input none.html --output b.html", "none.html: no such file"),
        ("--input a.md --output /dev/null", "the translation of a .md is a .md"),
        ("--input a.json --output b.json", "is a .json file: save it as .jsonl, an object in each"),
        (
            "--input a.xml --output b.xml",
            "a.xml is a .xml file: save it as .txt, text alone",
        ),
        ("--input a.json", "a.json is a .json file: save it as .jsonl"),
        ("--input lines --output b.docx", "lines of text make no .docx: name another --output"),
        ("--input lines --output b.HTML", "lines of text make no .HTML"),
        ("--output b.srt Hello", "lines of text make no .srt"),
        ("--output b/ Hello", "b/: is a folder: name a file in it"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: str, message: str, greedy: Translate, folder: Path
) -> None:
    (folder / "a.pdf").write_bytes(b"%PDF-1.7")
    for name in ("a.json", "a.xml", "lines"):
        (folder / name).write_text("{}")
    with zipfile.ZipFile(folder / "a.docx", "w") as archive:
        archive.writestr("word/document.xml", "no xml")
    (folder / "a.docx").write_bytes((folder / "a.docx").read_bytes()[:-8])
    before = names_in(folder)
    done = greedy(*arguments.split())
    assert done.code == 2
    assert message in done.err.splitlines()[-1]
    assert names_in(folder) == before


@pytest.mark.parametrize("name", ["b.md", "b.jsonl", "b.tsv", "b.json", "b.en"])
def test_lines_may_go_to_a_file_that_has_lines(name: str, greedy: Translate, folder: Path) -> None:
    assert greedy("--output", name, "--json", "the bear") == Done(0, "", "")
    assert (folder / name).read_text().startswith('{"source": "the bear"')


def test_what_is_odd_in_a_table_is_told(greedy: Translate, folder: Path) -> None:
    (folder / "a.csv").write_text("id,en\n1,I am hungry, and tired\n2\n3,the bear\n")
    done = greedy("--input", "a.csv", "--output", "b.csv", "--column", "en=id")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        'mt.translate: a.csv: 1 of 3 rows have no text in "en" to translate',
        'mt.translate: a.csv: 2 of 3 rows have a text in "id": it is replaced',
        "mt.translate: a.csv: 1 of 3 rows have more cells than names: put a text with ',' in it in "
        "quotation marks",
    ]
