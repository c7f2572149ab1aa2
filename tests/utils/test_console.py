"""How the programs of plain arguments end."""

import os
import subprocess
import sys

import pytest

from mt.utils import console


def raises(error: BaseException) -> None:
    raise error


def test_all_went_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.status("p", lambda: print("done")) == 0
    assert capsys.readouterr() == ("done\n", "")


@pytest.mark.parametrize("error", [ValueError("seven"), FileNotFoundError("seven")])
def test_a_mistake_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    assert console.status("p", lambda: raises(error)) == 2
    assert capsys.readouterr() == ("", "p: error: seven\n")
    monkeypatch.setenv("MT_TRACEBACK", "1")
    with pytest.raises(type(error)):
        console.status("p", lambda: raises(error))


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        console.status("p", lambda: 1 // 0)


def test_ctrl_c() -> None:
    assert console.status("p", lambda: raises(KeyboardInterrupt())) == 130


def test_a_reader_that_has_gone_is_no_mistake() -> None:
    """As in ``p | head -1``: no message, and nothing at the interpreter's end either."""
    ends_when_its_reader_goes("sys.exit(errors.status('p', run))")
    ends_when_its_reader_goes("with errors.reader_may_go(): run()")


def ends_when_its_reader_goes(way: str) -> None:
    program = (
        "import sys; from mt import errors\n"
        "def run():\n    for _ in range(10**6): print('line', flush=True)\n"
        f"{way}"
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
