"""How the programs of plain arguments end."""

import contextlib
import importlib.metadata
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mt
from mt.utils import console


def raises(error: BaseException) -> None:
    raise error


def test_a_wrong_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = console.ArgumentParser(prog="p")
    parser.add_subparsers(dest="command").add_parser("go")
    for arguments, prog in ((["--banana"], "p"), (["go", "--banana"], "p")):
        with pytest.raises(SystemExit, match="2"):
            parser.parse_args(arguments)
        assert capsys.readouterr() == ("", f"{prog}: error: unrecognized arguments: --banana\n")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        console.ArgumentParser(prog="p").parse_args(["--version"])
    assert capsys.readouterr() == (f"mt {mt.__version__}\n", "")


def test_all_went_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.exit_status("p", lambda: print("done")) == 0
    assert capsys.readouterr() == ("done\n", "")


@pytest.mark.parametrize("error", [ValueError("seven"), FileNotFoundError("seven")])
def test_a_mistake_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    assert console.exit_status("p", lambda: raises(error)) == 2
    assert capsys.readouterr() == ("", "p: error: seven\n")
    monkeypatch.setenv("MT_TRACEBACK", "1")
    with pytest.raises(type(error)):
        console.exit_status("p", lambda: raises(error))


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        console.exit_status("p", lambda: 1 // 0)


def test_ctrl_c() -> None:
    assert console.exit_status("p", lambda: raises(KeyboardInterrupt())) == 130


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("two\nlines"), "two\nlines"),
        (ValueError(), "ValueError"),
        (OSError("of ours"), "of ours"),
        (
            FileNotFoundError(2, "No such file or directory", "a b"),
            "a b: no such file or directory",
        ),
        (OSError(28, "No space left on device"), "no space left on device"),
        (OSError(9, "Bad file descriptor", 7), "7: bad file descriptor"),
        (OSError(18, "Invalid link", "a", None, "b"), "a: invalid link"),
    ],
)
def test_an_error_of_the_system_begins_with_its_file(error: Exception, message: str) -> None:
    assert console.describe(error) == message


# Ctrl-C while libraries load

ROOT = Path(console.__file__).parents[2]
ENTRY_POINTS = sorted(  # but those that load nothing slow
    str(file.relative_to(ROOT))
    for file in [*ROOT.glob("mt/**/*.py"), *ROOT.glob("scripts/*.py")]
    if 'if __name__ == "__main__"' in file.read_text("utf-8")
    and file.name not in ("compile.py", "corpus.py", "check_container.py", "check_documents.py")
)
SLOW = "print('loading', flush=True)\nimport time\ntime.sleep(60)\n"


def test_the_entry_points_are_found() -> None:
    assert {"mt/translate.py", "mt/export/__main__.py", "scripts/multi30k.py"} < set(ENTRY_POINTS)


@pytest.mark.parametrize("file", ENTRY_POINTS)
def test_ctrl_c_while_libraries_load(file: str, tmp_path: Path) -> None:
    for name in ("torch", "numpy", "hydra", "datasets", "sacrebleu"):
        (tmp_path / f"{name}.py").write_text(SLOW)
    module = file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    program = [str(ROOT / file)] if file.startswith("scripts") else ["-m", module]
    # What a job in the background starts, as these tests may be, would ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
    )
    signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    assert process.stdout.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == 130


def test_after_the_libraries_ctrl_c_is_as_before() -> None:
    for handler in (signal.default_int_handler, signal.SIG_IGN, lambda *_: None):
        before = signal.signal(signal.SIGINT, handler)
        with contextlib.suppress(ImportError), console.exit_at_interrupt():
            same = signal.getsignal(signal.SIGINT) is handler
            assert same == (handler is not signal.default_int_handler)
            raise ImportError
        assert signal.signal(signal.SIGINT, before) is handler


def test_another_thread_may_import_a_program() -> None:
    """Only the main thread may set a handler."""

    def load() -> None:
        with console.exit_at_interrupt():
            loaded.append(True)

    loaded: list[bool] = []
    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    assert loaded == [True]


# Progress


@pytest.mark.parametrize(
    ("total", "last"), [(1234, "617/1,234 lines"), (1, "50%"), (None, "617.0 lines")]
)
def test_a_bar_takes_fractions(
    total: int | None, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with console.progress_bar(total, "lines") as bar:
        bar.start_t -= 60  # it has worked for a minute
        for _ in range(1234):
            bar.update((total or 1234) / 2 / 1234)
    assert last in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with console.progress_bar(total, "lines") as bar:
        bar.update(1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("pictures", {"matplotlib"}),
        ("comet", {"unbabel-comet", "pyarrow", "setuptools"}),
        ("ctranslate2", {"ctranslate2"}),
        ("huggingface", {"transformers"}),
        ("onnx", {"onnx", "onnxscript", "onnxruntime"}),
    ],
)
def test_the_hint_is_a_command_that_works_in_every_folder(extra: str, packages: set[str]) -> None:
    pip, install, *requirements = shlex.split(console.install_hint(extra))
    assert (pip, install) == ("pip", "install")
    assert {re.split("[<>=]", requirement)[0] for requirement in requirements} == packages


def test_the_hint_where_only_the_code_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert console.install_hint("onnx") == "pyproject.toml names the packages of the extra 'onnx'"


@pytest.mark.parametrize(
    "last_line",
    ["sys.exit(console.exit_status('p', run))", "with console.ignore_broken_pipe(): run()"],
)
def test_a_reader_that_has_ended_is_no_mistake(last_line: str) -> None:
    """As in ``p | head -1``: no message, also none when the interpreter ends."""
    program = (
        "import sys; from mt.utils import console\n"
        "def run():\n    for _ in range(10**6): print('line', flush=True)\n"
        f"{last_line}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_a_fault_of_a_gpu_is_no_lack_of_memory() -> None:
    with (
        pytest.raises(RuntimeError, match="illegal memory access"),
        console.within_memory("set less"),
    ):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    for error in (MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate")):
        with (
            pytest.raises(ValueError, match="of memory: set less"),
            console.within_memory("set less"),
        ):
            raise error
