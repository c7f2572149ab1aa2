"""python -m mt.inspect: a page, JSON or pictures of one sentence, and what a user does wrong."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from mt import inspect
from mt.inference.translator import Translator
from mt.inspection.report import FORMAT

SENTENCE = "The bear opens the door."


@pytest.fixture
def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model_folder: Path,
) -> Callable[..., Done]:
    """mt.inspect in tmp_path, with a small model unless the arguments name one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_TRACEBACK", raising=False)

    def call(*arguments: str | Path) -> Done:
        own = () if "--model" in arguments else ("--model", model_folder)
        try:
            code = inspect.main([str(argument) for argument in (*arguments, *own)])
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return call


def test_a_page_is_the_default(run: Callable[..., Done], model_folder: Path) -> None:
    done = run(SENTENCE)
    text = Translator.load(model_folder).translate([SENTENCE])[0].text
    assert done == (0, f"{text}\ninspect.html\n", "")
    page = Path("inspect.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert FORMAT in page
    assert not re.search(r"(?:src|href)=.?https?:", page)
    assert run("Another sentence.").code == 0  # it replaces a page, but nothing else
    Path("inspect.html").write_text("my notes", "utf-8")
    done = run(SENTENCE)
    assert done.code == 2
    assert "inspect.html: is no page of mt.inspect: name another file" in done.err
    assert Path("inspect.html").read_text("utf-8") == "my notes"


def test_it_says_which_model_the_latest_is(
    run: Callable[..., Done], model_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / "outputs" / "run" / "model")
    assert run(SENTENCE, "--model", "latest").err == "mt.inspect: model outputs/run/model\n"


def test_json_of_one_model_and_of_several(run: Callable[..., Done], model_folder: Path) -> None:
    options = ("--target", "Der Bär hört.", "--beam-size", "2", "--n-best", "2", "--alpha", "0.1")
    assert run(SENTENCE, *options, "--head", "3", "--step", "2", "--output", "x.json").code == 0
    one = json.loads(Path("x.json").read_text("utf-8"))
    assert one["format"] == FORMAT
    assert one["target"]["text"] == "Der Bär hört."
    assert (one["by_hand"][0]["head"], one["by_hand"][0]["step"]) == (3, 2)
    searched = one["tree"]["options"]
    assert (searched["beam_size"], searched["n_best"], searched["alpha"]) == (2, 2, 0.1)
    models = ("--model", model_folder, "--model", model_folder)
    done = run(SENTENCE, *models, "--target", "Der Bär hört.", "--output", "two.html")
    assert done == (0, f"{model_folder}: Der Bär hört.\n" * 2 + "two.html\n", "")
    assert Path("two.html").read_text("utf-8").count(FORMAT) == 2
    assert run(SENTENCE, *models, "--output", "two.json").code == 0
    assert [r["format"] for r in json.loads(Path("two.json").read_text("utf-8"))] == [FORMAT] * 2


def test_a_folder_with_a_dot_gets_pictures_and_endings_may_be_capitals(
    run: Callable[..., Done],
) -> None:
    Path("pictures.v1").mkdir()
    assert run(SENTENCE, "--output", "pictures.v1").code == 0
    assert list(Path("pictures.v1").glob("*.png"))
    assert run(SENTENCE, "--output", "PAGE.HTML").code == 0
    assert Path("PAGE.HTML").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((" ",), "sentence=' ': there is nothing to look into"),
        ((SENTENCE * 20,), "sentence: .* pieces, more than the 40"),
        ((SENTENCE, "--target", " "), "target=' '"),
        ((SENTENCE, "--layer", "2"), "layer=2: must be a whole number from 1 to 1"),
        ((SENTENCE, "--head", "5"), "head=5: must be a whole number from 1 to 4"),
        ((SENTENCE, "--step", "0"), "step=0: must be"),
        ((SENTENCE, "--beam-size", "0"), "beam_size=0"),
        ((SENTENCE, "--n-best", "9"), "n_best=9: must not exceed beam_size=4"),
        ((SENTENCE, "--output", "x.pdf"), "x.pdf: must end in .html or .json, or be a folder"),
        ((SENTENCE, "--output", "no/x.html"), "no: no such folder"),
        ((SENTENCE, "--model", "nothing"), "nothing"),
        ((SENTENCE, "--device", "toaster"), "device 'toaster' cannot be used here"),
    ],
)
def test_a_mistake_ends_with_one_line(
    run: Callable[..., Done], arguments: tuple[str, ...], message: str
) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.out == ""
    [line] = done.err.splitlines()
    assert line.startswith("mt.inspect: error: ")
    assert re.search(message, line)
    assert not any(Path().iterdir())


def test_without_a_sentence(run: Callable[..., Done]) -> None:
    done = run()
    assert done.code == 2
    assert "SENTENCE" in done.err
