"""How the programs of plain arguments end."""

import os
import subprocess
import sys

import pytest

from mt.utils import console


def raises(error: BaseException) -> None:
    raise error


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


def test_the_hint_is_a_command() -> None:
    assert console.install_hint("onnx") == "pip install -e '.[onnx]' in the project's folder"


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
