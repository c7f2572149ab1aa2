"""Which model mt.translate takes, and options that make no sense."""

import os
import re
from pathlib import Path

import pytest
import torch
from conftest import Done, names_in
from translate_helpers import Translate, assert_error

from mt.inference.translator import Translator
from mt.model import checkpoint

pytest_plugins = ["translate_helpers"]


# Which model


def test_the_bundled_model_is_the_default_and_the_latest_must_be_named(
    run_translate: Translate,
    model_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(checkpoint, "BUNDLED_MODEL", model_folder)
    loaded = checkpoint.load(model_folder)
    for age, name in ((200, "old"), (100, "new"), (300, "older")):
        folder = tmp_path / "outputs" / name / "run" / "model"
        with torch.no_grad():
            loaded.model.embedding.weight[10:] = loaded.model.embedding.weight[10:].roll(7, 0)
        checkpoint.save(folder, loaded.model, loaded.tokenizer, 40, ["en", "de"], {})
        os.utime(folder / "config.json", (1e9 - age, 1e9 - age))
    bundled = Translator.load(model_folder).translate(["the bear"], beam_size=1)[0].text
    assert run_translate("--beam-size", "1", "the bear") == Done(0, f"{bundled}\n", "")
    assert Translator.load().translate(["the bear"], beam_size=1)[0].text == bundled
    done = run_translate("--model", "latest", "--beam-size", "1", "the bear")
    assert done.code == 0
    assert done.err == "mt.translate: model outputs/new/run/model\n"
    assert done.out != f"{bundled}\n"
    newest = Translator.load(tmp_path / "outputs/new/run/model")
    assert done.out == newest.translate(["the bear"], beam_size=1)[0].text + "\n"


def test_without_a_model_it_is_said_how_to_get_one(
    run_translate: Translate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    latest = run_translate("--model", "latest", "the bear")
    assert_error(latest, "no model folder under outputs/: .*experiment=quickstart")
    monkeypatch.setattr(checkpoint, "BUNDLED_MODEL", tmp_path / "gone")
    assert_error(run_translate("the bear"), "gone is missing: name a model")
    assert names_in(tmp_path) == []


def test_a_missing_model_is_named(run_translate: Translate) -> None:
    assert_error(
        run_translate("--model", "gone", "the bear"), "gone: no such model folder or checkpoint"
    )


# Options that make no sense


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam-size", "0"], "beam_size=0: must be"),
        (["--beam-size", "-4"], "beam_size=-4: must be"),
        (["--n-best", "9"], "n_best=9: must not exceed beam_size=4"),
        (["--n-best", "0"], "n_best=0: must be"),
        (["--n-best", "-1"], "n_best=-1: must be"),
        (["--alpha", "-1"], "alpha=-1.0: must be"),
        (["--alpha", "nan"], "alpha=nan: must be"),
        (["--alpha", "inf"], "alpha=inf: must be"),
        (["--alpha", "1e300"], "alpha=1e+300: must be a number from 0 to 10"),
        (["--alpha", "1e300", "--score", "x"], "alpha=1e+300: must be a number from 0 to 10"),
        (["--batch-size", "0"], "batch_size=0: must be"),
        (["--beam-size", "10000"], "beam_size=10000: must be a whole number from 1 to 1,000"),
        (["--samples", "10000"], "samples=10000: must be a whole number from 0 to 1,000"),
        (["--max-length", f"{10**12}"], "max_length=1000000000000: must be null or a whole number"),
        (["--min-length", "100000"], "min_length=100000: must be a whole number from 0 to 5,000"),
        (["--workers", f"{10**9}"], "workers=1000000000: must be a whole number from 1 to 1,024"),
        (
            ["--samples", "1", "--seed", "-1"],
            "seed=-1: must be a whole number from 0 to 18",
        ),
        (
            ["--samples", "1", "--seed", f"{2**64}"],
            "seed=18446744073709551616: must be a",
        ),
        (["--device", "banana"], "device 'banana' cannot be used here"),
        (["--device", "cuda:99"], "device 'cuda:99' cannot be used here"),
        (["--device", "meta"], "device 'meta' cannot be used here"),
        (["--beam-size", "two"], "argument --beam-size: invalid int value: 'two'"),
    ],
)
def test_options_that_make_no_sense(
    run_translate: Translate, model_folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run_translate("--model", model_folder, "--output", "out", *arguments, "the bear")
    assert_error(done, re.escape(message))
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("file", ["in", ""])
def test_sentences_and_a_file_together_are_refused(
    greedy: Translate, tmp_path: Path, file: str
) -> None:
    (tmp_path / "in").write_text("x\n")
    done = greedy("--input", file, "the bear")
    assert (done.code, done.out) == (2, "")
    assert "give sentences or --input, not both" in done.err


def test_a_second_input_is_refused(greedy: Translate, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x\n")
    done = greedy("--input", "in", "--input", "in")
    assert (done.code, done.out) == (2, "")
    assert "--input may come once only" in done.err


def test_closed_standard_input_is_told(run_translate: Translate, model_folder: Path) -> None:
    """``mt.translate <&-`` has no sys.stdin."""
    assert_error(run_translate("--model", model_folder, stdin=None), "standard input is closed")


def test_a_traceback_on_demand(run_translate: Translate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MT_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError, match="gone"):
        run_translate("--model", "gone", "the bear")
