"""Files that mt.translate reads and writes."""

import io
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, names_in
from translate_helpers import Translate, assert_error

from mt.utils import line_io

pytest_plugins = ["translate_helpers"]


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
