"""python -m mt.translate: glossaries, what is kept, and phrases that are forbidden."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, write_lines

Translate = Callable[..., Done]
URL = "https://example.org/a?b=1"


def test_a_glossary(run_translate: Translate, tmp_path: Path) -> None:
    write_lines(tmp_path / "terms.tsv", ["house\tGebäude", "contract\tVertrag|Kontrakt"])
    done = run_translate("--glossary", tmp_path / "terms.tsv", "I see the house.")
    assert done.code == 0
    assert done.out == "Ich sehe das Gebäude.\n"
    assert done.err.splitlines()[-1].endswith(f"2 terms of {tmp_path / 'terms.tsv'}")


def test_what_is_typed_is_kept_and_a_file_on_demand(
    run_translate: Translate, tmp_path: Path
) -> None:
    sentence = f"I see {URL} today."
    write_lines(tmp_path / "text.en", [sentence])
    typed = run_translate(sentence).out
    assert URL in typed
    assert (
        run_translate("--no-keep", sentence).out
        == run_translate("--input", tmp_path / "text.en").out
    )
    assert run_translate("--keep", "--input", tmp_path / "text.en").out == typed


def test_how_numbers_are_written(run_translate: Translate) -> None:
    sentence = "It costs 1,250.50."
    assert "1.250,50" in run_translate("--decimal", "german", sentence).out
    assert "1,250.50" in run_translate("--decimal", "as written", sentence).out


def test_a_forbidden_phrase_does_not_come(run_translate: Translate) -> None:
    plain = run_translate("Where do you live?").out.split()
    done = run_translate("--forbid", plain[0], "--forbid", plain[1], "Where do you live?")
    assert done.code == 0
    assert not {plain[0], plain[1]} & set(done.out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--glossary", "missing.tsv"], "missing.tsv"),
        (["--glossary", "bad.tsv"], "bad.tsv: line 1: must be a term, a tab and its translation"),
        (["--glossary", "empty.tsv"], "empty.tsv: has no terms from en to de"),
        (["--glossary", "french.csv"], "french.csv: has no terms from en to de"),
        (["--forbid", " "], "a term or a forbidden phrase must not be blank"),
        (["--forbid", "du", "--samples", "2"], "--forbid needs beam search: leave out --samples"),
        (["--glossary", "house.tsv", "--samples", "2"], "--glossary needs beam search"),
        (["--forbid", "du", "--score", "x"], "--score does not search: leave out --forbid"),
        (["--keep", "--samples", "2"], "--keep needs beam search: leave out --samples"),
        (["--glossary", "house.tsv", "--forbid", "Haus"], "house: its translation is forbidden"),
        (["--keep", "--engine", "ctranslate2", "--model", "x"],
         "--keep is not for --engine ctranslate2"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(
    run_translate: Translate, arguments: list[str], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_lines(Path("bad.tsv"), ["no tab"])
    write_lines(Path("empty.tsv"), ["# nothing"])
    write_lines(Path("french.csv"), ["house,maison,en,fr"])
    write_lines(Path("house.tsv"), ["house\tHaus"])
    done = run_translate(*arguments, "Hello.")
    assert done.code == 2
    assert message in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_samples_are_drawn_without_terms(run_translate: Translate) -> None:
    assert run_translate("--samples", "2", f"I see {URL} today.").code == 0


def test_an_option_for_what_is_kept_is_not_ignored(
    run_translate: Translate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("a.en"), ["It costs 1,250.50."])
    done = run_translate("--decimal", "german", "--input", "a.en")
    assert done.code == 2
    assert "--decimal says how --keep writes numbers: add --keep" in done.err
    assert "1.250,50" in run_translate("--decimal", "german", "--keep", "--input", "a.en").out
