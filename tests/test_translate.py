"""python -m mt.translate: one line out for every line in, and every mistake in one line."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT, Done, names_in

from mt.inference import beam_search
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.utils import line_io

Translate = Callable[..., Done]


@pytest.fixture(scope="module")
def expected(model_folder: Path) -> Callable[[list[str]], list[str]]:
    translator = Translator.load(model_folder, "cpu")

    def call(lines: list[str]) -> list[str]:
        return [result.text for result in translator.translate(lines, beam_size=1)]

    return call


def assert_error(done: Done, message: str) -> None:
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    *others, last = done.err.splitlines()
    assert re.match(r"mt\.translate: error: ", last), done.err
    assert re.search(message, last), last
    assert all(line.startswith("mt.translate: model ") for line in others), others


# One line in, one line out


def test_sentences_as_arguments(greedy: Translate, expected: Callable) -> None:
    sentences = ["The bear hears the door.", "An apple", "", "two\nlines"]
    done = greedy(*sentences)
    assert done.code == 0
    assert done.out.split("\n") == [*expected([*sentences[:3], "two", "lines"]), ""]
    assert len(set(done.out.split("\n"))) >= 4, "a model that ignores its source"
    assert done.err == ""


@pytest.mark.parametrize(
    ("stdin", "lines"),
    [
        (b"", []),
        (b"a door", ["a door"]),
        (b"a door\n", ["a door"]),
        (b"\n", [""]),
        (b"a door\n\n \n\t\nthe key\n\n", ["a door", "", "", "", "the key", ""]),
        (b"a door\r\nthe key\r\n", ["a door", "the key"]),
        (b"a\rdoor\rthe key\nbear\r", ["a\rdoor\rthe key", "bear"]),
        ("a\u2028door\u0085b\x0cc\x1ed\nbear\n".encode(), ["a\u2028door\u0085b\x0cc\x1ed", "bear"]),
        (b"\xef\xbb\xbfa door\n", ["\ufeffa door"]),
        ("Größe 😀 \u200b\n\u200b\nx\n".encode(), ["Größe 😀 \u200b", "\u200b", "x"]),
        (b'"a "door\n\'the\n', ['"a "door', "'the"]),
        (b"--help\n-x\n", ["--help", "-x"]),
    ],
)
@pytest.mark.parametrize("channel", ["pipe", "file"])
def test_one_line_out_for_each_line_in(
    greedy: Translate,
    expected: Callable,
    tmp_path: Path,
    stdin: bytes,
    lines: list[str],
    channel: str,
) -> None:
    if channel == "file":
        (tmp_path / "in put.txt").write_bytes(stdin)
        done = greedy("--input", "in put.txt")
    else:
        done = greedy(stdin=stdin)
    assert (done.code, done.err) == (0, "")
    assert done.out.split("\n") == [*expected(lines), ""]


def test_ten_thousand_blank_lines(greedy: Translate) -> None:
    assert greedy(stdin=b"\n" * 10_000) == Done(0, "\n" * 10_000, "")


def test_blocks_keep_their_order(
    greedy: Translate, expected: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 3)
    lines = ["a door", "", "bear", "the key", "an apple", "", "", "friend"]
    done = greedy("--batch-size", "2", stdin="\n".join(lines).encode())
    assert done.out.split("\n") == [*expected(lines), ""]


def test_a_line_of_ten_thousand_words_is_one_line_with_a_warning(greedy: Translate) -> None:
    done = greedy(stdin=b"a " * 10_000 + b"\nbear\n")
    assert done.code == 0
    assert done.out.count("\n") == 2
    [warning] = done.err.splitlines()
    assert warning.startswith("mt.translate: a line of 10000 tokens, 'a a a")
    assert "parts" in warning


# Files


def test_input_and_output_files(greedy: Translate, expected: Callable, tmp_path: Path) -> None:
    lines = ["the key", "", "Größe"]
    (tmp_path / "in").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "out").write_text("of yesterday")
    assert greedy("--input", "in", "--output", "out") == Done(0, "", "")
    content = (tmp_path / "out").read_bytes().decode("utf-8")
    assert content == "".join(f"{line}\n" for line in expected(lines))
    assert names_in(tmp_path) == ["in", "out"]


READ = {  # what is read, with the arguments that read it, and the names by which it is written
    "--input": (["--input", "in"], ["in", "./in", "link", "hard"]),
    "<": ([], ["in", "link", "hard"]),
    "--score": (["--input", "other", "--score", "in"], ["in", "link", "hard"]),
    "partial": (["--input", ".in.partial"], ["in", "link"]),
    "record": (["--input", "other", "--score", ".in.partial.json"], ["in"]),
    "model": (["--input", "other"], ["model/config.json", "model/README.md"]),
}


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize(
    ("reading", "output"),
    [(name, output) for name, (_, outputs) in READ.items() for output in outputs],
)
def test_what_is_read_is_not_written(
    run_translate: Translate,
    model_folder: Path,
    tmp_path: Path,
    reading: str,
    output: str,
    resume: list[str],
) -> None:
    shutil.copytree(model_folder, tmp_path / "model")
    for name in ("in", "other", ".in.partial", ".in.partial.json"):
        (tmp_path / name).write_text("a door\n")
    (tmp_path / "link").symlink_to("in")
    os.link(tmp_path / "in", tmp_path / "hard")
    before = everything(tmp_path)
    arguments = ["--model", "model", *READ[reading][0], "--output", output, *resume]
    with (tmp_path / "in").open("rb") as stdin:
        done = run_translate(*arguments, stdin=stdin)
    assert_error(done, r"is read, and writing \S+ would replace it: name another output$")
    assert everything(tmp_path) == before


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_file_beside_those_that_are_read_may_be_written(
    run_translate: Translate, model_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / "model")
    (tmp_path / "in").write_text("a door\n")
    assert run_translate("--model", "model", "--input", "in", "--output", "model/out").code == 0
    assert run_translate("--model", "model", "--input", "in", "--output", "/dev/null").code == 0
    assert (tmp_path / "in").read_text() == "a door\n"


def test_an_argument_that_names_a_file_is_translated_and_the_option_is_named(
    greedy: Translate, expected: Callable, tmp_path: Path
) -> None:
    (tmp_path / "the key").write_text("a door\n")
    [text] = expected(["the key"])
    message = "mt.translate: these are words: --input 'the key' translates the file\n"
    assert greedy("the key") == Done(0, f"{text}\n", message)


def test_sources_and_translations_of_one_pipe_are_refused(greedy: Translate) -> None:
    """Each would take lines from the other."""
    reader, writer = os.pipe()
    with open(writer, "wb") as stream:
        stream.write(b"a\nb\n")
    with open(reader, "rb") as stdin:
        done = greedy("--score", f"/dev/fd/{reader}", stdin=stdin)
    assert_error(done, r"/dev/fd/\d+: the sources come from there too$")


@pytest.mark.parametrize("name", [".out.partial", ".out.partial.json", ".out.lock"])
def test_a_folder_in_the_place_of_a_temporary_file(
    greedy: Translate, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    for resume in ([], ["--resume"]):
        assert_error(greedy("--output", "out", *resume, "bear"), "out cannot be written: Is a dir")
        assert names_in(tmp_path) == [name]


def test_a_line_that_is_too_long_is_named(
    greedy: Translate, expected: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "MAX_LINE", 10)
    monkeypatch.setattr(line_io, "BLOCK", 1)
    done = greedy(stdin=b"a door\n" + b"x" * 20 + b"\nthe key\n")
    assert done.code == 2
    assert done.err == "mt.translate: error: standard input, line 2: longer than 10 bytes\n"
    assert done.out == expected(["a door"])[0] + "\n"


@pytest.mark.parametrize("channel", ["pipe", "file"])
@pytest.mark.parametrize(
    ("content", "number"),
    [(b"good\nb\xe4d\ngood\n", 2), (b"\xff\xfe", 1), (b"\n" * 1999 + b"\xc3", 2000)],
)
def test_a_line_that_is_not_utf8_is_named(
    greedy: Translate, tmp_path: Path, content: bytes, number: int, channel: str
) -> None:
    (tmp_path / "in").write_bytes(content)
    if channel == "file":
        done = greedy("--input", "in", "--output", "out")
        assert_error(done, f"error: in, line {number}: not UTF-8")
    else:
        done = greedy("--output", "out", stdin=content)
        assert_error(done, f"standard input, line {number}: not UTF-8")
    assert names_in(tmp_path) == ["in"]


def test_a_file_that_the_shell_writes_is_not_replaced(model_folder: Path, tmp_path: Path) -> None:
    """What stands there would be lost, and what the shell writes after it."""
    file = tmp_path / "all.txt"
    file.write_text("earlier\n")
    arguments = ["--model", str(model_folder), "--device", "cpu", "--beam-size", "1"]
    program = [sys.executable, "-m", "mt.translate", *arguments, "A bear."]
    with file.open("a") as stream:
        for name in ("/dev/stdout", str(file)):
            done = subprocess.run(
                [*program, "--output", name], stdout=stream, stderr=subprocess.PIPE, text=True
            )
            assert done.returncode == 2
            assert done.stderr.endswith("is open already: leave out --output, or name another\n")
    assert file.read_text() == "earlier\n"
    done = subprocess.run([*program, "--output", "/dev/stdout"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_dash_is_standard_input_and_output(greedy: Translate, tmp_path: Path) -> None:
    done = greedy("--input", "-", "--output", "-", stdin=b"the bear\n")
    assert done == greedy(stdin=b"the bear\n")
    assert names_in(tmp_path) == []


def test_a_failure_leaves_the_old_output_as_it_was(greedy: Translate, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("of yesterday")
    assert_error(greedy("--output", "out", stdin=b"good\n\xff\n"), "line 2")
    assert names_in(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "of yesterday"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "no/such/out"], r"no/such/out: .*no/such$"),
        (["--output", "folder"], "folder: is a folder"),
        (["--output", "file/out"], "file/out"),
        (["--input", "missing"], "error: missing: no such file or directory$"),
        (["--input", "folder"], "error: folder: is a directory$"),
        (["--score", "missing", "--input", "in"], "error: missing: no such file or directory$"),
        (["--input", "in", "--output", "folder"], "folder: is a folder"),
        (["--input", "a.en.gz"], "a.en.gz is compressed: unpack it first"),
        (["--input", "in", "--output", "."], r"\.: is a folder: name a file in it"),
        (["--input", ""], "--input is empty: name a file"),
        (["--input", "in", "--output", ""], "--output is empty: name a file"),
        (
            ["--input", "in", "--max-length", "0"],
            "max_length=0: must be a whole number of at least 1",
        ),
    ],
)
def test_files_that_cannot_be_used(
    greedy: Translate, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "in").write_text("x")
    before = names_in(tmp_path)
    assert_error(greedy(*arguments), message)
    assert names_in(tmp_path) == before
    assert names_in(tmp_path / "folder") == []


class Broken(io.RawIOBase):
    """A disk that fails while it is read."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(5, "Input/output error")


def test_a_failure_of_the_input_is_told() -> None:
    """It is read in a thread of its own, whose end must not leave the others waiting."""
    failures: list[BaseException] = []

    def read() -> None:
        try:
            list(line_io.read_blocks(io.BufferedReader(Broken()), "disk"))
        except OSError as error:
            failures.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert not reader.is_alive(), "it waits for ever"
    assert "Input/output error" in str(failures)


# Formats


def test_json_is_an_object_a_line(greedy: Translate, expected: Callable) -> None:
    lines = ["the bear", "", "Größe"]
    done = greedy("--json", stdin="\n".join(lines).encode())
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record["source"] for record in records] == lines
    assert [record["translation"] for record in records] == expected(lines)
    keys = {"source", "translation", "score", "confidence"}
    assert all(record.keys() == keys for record in records)
    assert 0 < records[0]["confidence"] < records[1]["confidence"] == 1
    assert records[0]["score"] < 0
    assert records[1]["score"] == 0
    assert "Größe" in done.out  # not escaped


def test_n_best_gives_number_score_and_text(run_translate: Translate, model_folder: Path) -> None:
    done = run_translate("--model", model_folder, "--n-best", "3", stdin=b"the bear\n\na door\n")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert rows[3] == ["2", "0.0000", ""]
    for three in (rows[:3], rows[4:]):
        scores = [float(score) for _, score, _ in three]
        assert scores == sorted(scores, reverse=True)
    plain = run_translate("--model", model_folder, stdin=b"the bear\n\na door\n").out.splitlines()
    assert [rows[0][2], rows[3][2], rows[4][2]] == plain


def test_line_numbers_go_on_from_block_to_block(
    greedy: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 2)
    done = greedy("--n-best", "1", stdin=b"a\nb\nc\nd\ne\n")
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["1", "2", "3", "4", "5"]


def test_json_and_n_best_together(run_translate: Translate, model_folder: Path) -> None:
    done = run_translate("--model", model_folder, "--json", "--n-best", "2", "the bear", " ")
    one, blank = (json.loads(line) for line in done.out.splitlines())
    assert [set(entry) for entry in one["n_best"]] == [{"translation", "score"}] * 2
    assert one["n_best"][0] == {"translation": one["translation"], "score": one["score"]}
    assert blank["n_best"] == [{"translation": "", "score": 0.0}]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[SearchOptions]:
    """The options of each search that the test runs."""
    searches: list[SearchOptions] = []

    def search(*arguments: Any) -> list:
        searches.append(arguments[2])
        return beam_search.search(*arguments)

    monkeypatch.setattr("mt.inference.translator.search", search)
    return searches


def test_alpha_and_beam_size_reach_the_search(
    run_translate: Translate, model_folder: Path, searches: list[SearchOptions]
) -> None:
    assert run_translate("--model", model_folder, "a").code == 0
    assert run_translate("--model", model_folder, "a", "--beam-size", "2", "--alpha", "0").code == 0
    paper, other = searches
    assert (paper.beam_size, paper.alpha) == (4, 0.6)  # 6.1
    assert (other.beam_size, other.alpha) == (2, 0.0)


def test_a_model_may_name_its_own_search(
    run_translate: Translate, model_folder: Path, tmp_path: Path, searches: list[SearchOptions]
) -> None:
    shutil.copytree(model_folder, tmp_path / "own")
    file = tmp_path / "own" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "search": {"beam_size": 3, "alpha": 1.2}}))
    assert run_translate("--model", "own", "a").code == 0
    assert run_translate("--model", "own", "a", "--alpha", "0.5").code == 0
    Translator.load("own").translate(["a"], beam_size=2)
    assert [(options.beam_size, options.alpha) for options in searches] == [
        (3, 1.2),
        (3, 0.5),
        (2, 1.2),
    ]
    model = Translator.load("own")
    scores = [model.score(["a"], ["b"], alpha)[0].score for alpha in (None, 1.2, 0.6)]
    assert scores[0] == scores[1] != scores[2]
    done = run_translate("--model", "own", "a", "--n-best", "3")  # as many as its own beam has
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert_error(run_translate("--model", "own", "a", "--n-best", "4"), "beam_size=3")
    odd = ({"alpha": -1}, {"n_best": 2}, 7, [], {"alpha": 1e300}, {"beam_size": True}, ["alpha"])
    for wrong in (
        *odd,
        {"beam_size": 101},
        {"beam_size": 10**30},
        {"x" * 10**5: 1},
        {"alpha": None},
    ):
        file.write_text(json.dumps({**config, "search": wrong}))
        done = run_translate("--model", "own", "a")
        assert_error(done, "own/config.json: search=")
        assert len(done.err) < 500


def test_an_output_of_another_search_does_not_go_on(
    run_translate: Translate, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 2)
    shutil.copytree(model_folder, tmp_path / "own")
    (tmp_path / "in").write_text("a\nb\nc\nd\n")
    arguments = ("--model", "own", "--input", "in", "--output", "out", "--resume")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        calls = iter([beam_search.search])
        patch.setattr("mt.inference.translator.search", lambda *a: next(calls, stopped)(*a))
        assert run_translate(*arguments).code == 130
    file = tmp_path / "own" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "search": {"alpha": 1.2}}))
    assert_error(run_translate(*arguments), "alpha")


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


# As a process


def test_a_pipe_is_answered_line_by_line(model_folder: Path, expected: Callable) -> None:
    """And in UTF-8 whatever the locale; a test that waits for ever has found a fault."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mt.translate", "--model", str(model_folder), "--beam-size", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for line in ("Der Bär hört die Tür.", "", "öffnet"):
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().decode("utf-8") == expected([line])[0] + "\n"
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait(20) == 0


def test_a_reader_that_goes_away_is_no_error(model_folder: Path, tmp_path: Path) -> None:
    command = (
        f"'{sys.executable}' -m mt.translate --model '{model_folder}' --input in --beam-size 1 "
        "--json | head -n 1; exit ${PIPESTATUS[0]}"
    )
    (tmp_path / "in").write_text("\n" * 200_000)  # more than a pipe holds
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["translation"] == ""
    assert done.returncode == 0
