"""mt.translate --engine ctranslate2: what it has of our options, and damaged folders."""

import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from export_helpers import LINES, Run

from mt.export import __main__
from mt.export.ctranslate2 import Engine
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.utils import line_io

pytest_plugins = ["export_helpers"]


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ct2")
    __main__.engine_of("ctranslate2").write(checkpoint.load(model), folder, "float32")
    return folder


@pytest.fixture
def ct2(run_translate: Run, exported: Path) -> Run:
    def call(*arguments: str | Path, stdin: bytes = b"") -> Done:
        fixed = ("--engine", "ctranslate2", "--device", "cpu", "--model", exported)
        return run_translate(*fixed, *arguments, stdin=stdin)

    return call


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--min-length 40",
        "--min-length 100",
        "--max-length 3",
        "--no-repeat-ngram 2",
        "--prefix Der",
        "--split",
        "--batch-size 7 --workers 2",
    ],
)
def test_greedy_is_ours_with_any_option(
    ct2: Run, run_translate: Run, model: Path, options: str
) -> None:
    lines = "".join(f"{line}\n" for line in [*LINES, "", f"{LINES[0]} {LINES[1]}"]).encode()
    settings = ("--beam-size", "1", *options.split())
    expected = run_translate("--model", model, "--device", "cpu", *settings, stdin=lines)
    assert expected.code == 0
    assert ct2(*settings, stdin=lines) == expected


def test_n_best_and_json(ct2: Run) -> None:
    done = ct2("--n-best", "2", *LINES[:3])
    assert [line.split("\t")[0] for line in done.out.splitlines()] == list("112233")
    [row] = [json.loads(line) for line in ct2("--json", LINES[0]).out.splitlines()]
    assert row.keys() == {"source", "translation", "score"}
    assert row["score"] < 0


def test_a_line_too_long_is_cut(ct2: Run) -> None:
    done = ct2("--no-split", " ".join(LINES[:6]))
    assert len(done.out.splitlines()) == 1
    assert "translated in" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--samples 2 hello", "--samples is not for --engine ctranslate2"),
        ("--mbr hello", "--mbr is not for"),
        ("--json --tokens hello", "--tokens is not for"),
        ("--json --attention hello", "--attention is not for"),
        ("--score file", "--score is not for"),
        ("--model other hello", "wants one --model"),
        ("--device nowhere hello", "device 'nowhere' cannot be used"),
        ("--workers 0 hello", "workers=0: must be a whole number from 1"),
        ("--max-length 600 --min-length 600 hello", "No position encodings"),
    ],
)
def test_what_this_engine_has_not_is_refused(ct2: Run, arguments: str, message: str) -> None:
    done = ct2(*arguments.split())
    assert done.code == 2
    assert message in done.err.splitlines()[-1]


def test_a_folder_of_the_other_kind_is_named(
    run_translate: Run, model: Path, exported: Path
) -> None:
    done = run_translate("--model", exported, "hello")
    assert done.code == 2
    assert "mt.translate takes it with --engine ctranslate2" in done.err
    done = run_translate("--engine", "ctranslate2", "--model", model, "hello")
    assert done.code == 2
    assert "not written by mt.export --to ctranslate2, model.bin is missing" in done.err
    alone = run_translate("--engine", "ctranslate2", "hello")
    assert (alone.code, "wants one --model" in alone.err) == (2, True)


def cut(content: bytes) -> bytes:
    return content[:20]


def flipped(content: bytes) -> bytes:
    """One bit of a weight is another."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def renamed(content: bytes) -> bytes:
    """A weight is not found."""
    return content.replace(b"encoder/layer_0", b"encoder/layer_9")


def about(**values: Any) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | values).encode()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.bin", cut, "model.bin: damaged"),
        ("model.bin", flipped, "model.bin: damaged"),
        ("model.bin", renamed, "model.bin: damaged"),
        ("tokenizer.model", cut, "tokenizer.model"),
        ("mt.json", cut, "mt.json: not JSON"),
        ("mt.json", lambda _: b"[" * 100_000, "mt.json: not JSON: nested too deeply"),
        ("mt.json", lambda _: b"{}", "mt.json: max_length=None: must be"),
        ("mt.json", lambda _: b"[]", "mt.json: not a JSON object"),
        ("mt.json", about(max_length=float("inf")), "max_length=inf: must be"),
        ("mt.json", about(max_length=10**12), "max_length=1000000000000: must be"),
        ("mt.json", about(search={"beam_size": 10_000}), "beam_size=10000: must be"),
    ],
)
@pytest.mark.parametrize("hashes", [True, False])  # a folder that is older, or made to do harm
def test_a_damaged_folder_is_named(
    run_translate: Run,
    exported: Path,
    tmp_path: Path,
    name: str,
    damage: Callable[[bytes], bytes],
    message: str,
    hashes: bool,
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "damaged"))
    if not hashes:
        (folder / "mt.json").write_bytes(about(sha256=None)((folder / "mt.json").read_bytes()))
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    done = run_translate("--engine", "ctranslate2", "--model", folder, "hello")
    if damage is flipped and not hashes:
        return  # it may translate
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert str(folder) in done.err
    if hashes:
        assert re.search(message, done.err)


@pytest.mark.parametrize("name", ["mt.json", "tokenizer.model", "model.bin"])
def test_a_pipe_in_a_folder_is_not_waited_for(
    run_translate: Run, exported: Path, tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "damaged"))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    done = run_translate("--engine", "ctranslate2", "--model", folder, "hello")
    assert done.code == 2
    assert f"{name} is missing" in done.err


def test_an_interrupted_output_goes_on_with_its_own_engine(
    ct2: Run, run_translate: Run, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    fixed = ("--input", "in", "--output", "out", "--beam-size", "1")
    whole = run_translate("--model", model, "--device", "cpu", *fixed)
    assert whole.code == 0
    expected = (tmp_path / "out").read_text()
    (tmp_path / "out").unlink()
    monkeypatch.setattr(line_io, "BLOCK", 10)
    calls = itertools.count()
    original_search = Engine.search

    def stopped(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return original_search(*arguments)

    monkeypatch.setattr(Engine, "search", stopped)
    assert ct2(*fixed).code == 130
    monkeypatch.setattr(Engine, "search", original_search)
    other = run_translate("--model", model, "--device", "cpu", *fixed, "--resume")
    assert other.code == 2
    assert ct2(*fixed, "--resume") == Done(0, "", "")
    assert (tmp_path / "out").read_text() == expected


def test_from_a_program(exported: Path, translator: Translator) -> None:
    engine = Engine(exported, workers=2)
    expected = translator.translate(LINES, beam_size=1)
    results = engine.translate(LINES, beam_size=1)
    assert [result.text for result in results] == [result.text for result in expected]
    assert all(math.isnan(result.log_prob) for result in results)
    for call in (
        lambda: engine.score(["a"], ["b"]),
        lambda: engine.translate(["a"], samples=2),
        lambda: engine.translate(["a"], attention=True),
    ):
        with pytest.raises(ValueError, match="CTranslate2"):
            call()
