"""python -m mt.serve: its arguments, its mistakes, and that it is soon there and ends cleanly."""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

from mt import serve
from mt.serving.limits import Limits


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put back what the program sets for its process."""
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    loggers = [logging.getLogger(name) for name in ("mt.inference", "python_multipart")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_each_limit_has_a_flag() -> None:
    args = serve.make_parser().parse_args([])
    assert serve.read_limits(args) == Limits()
    flags = [f"--limit-{limit.name.replace('_', '-')}=7" for limit in fields(Limits)]
    limits = serve.read_limits(serve.make_parser().parse_args(flags))
    assert {getattr(limits, limit.name) for limit in fields(Limits)} == {7}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit-texts", "0"], "--limit-texts=0: must be a whole number"),
        (["--limit-send-seconds", "nan"], "--limit-send-seconds=nan: must be a number above 0"),
        (["--port", "65536"], "port=65536: must be a whole number from 0 to 65,535"),
        (["--api-keys", "no-such-file"], "no-such-file: no such file"),
        (["--api-keys", os.devnull], f"{os.devnull}: not a regular file"),
        (["--allow-origin", "https://example.org/"], "--allow-origin https://example.org/: must"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid: no address"),
        (["--port", "0", "--model", "no-such-model"], "no-such-model"),
        (["--port", "0", "--device", "cuda:99"], "device 'cuda:99'"),
        (["--port", "0", "--workers", "0"], "workers=0: must be a whole number"),
    ],
)
def test_a_mistake_ends_with_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("mt.serve: error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_port_in_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve.main(["--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"127.0.0.1 port {port}: address already in use: give another --port" in error


def test_a_missing_package_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.startswith("mt.serving.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert serve.main(["--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "the server's packages are not installed" in error
    assert error.count("\n") == 1


def test_it_says_where_it_is_serves_and_ends_with_status_0(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("good-key\n")
    command = [sys.executable, "-m", "mt.serve", "--port", "0", "--api-keys", str(keys)]
    command += ["--device", "cpu", "--log-level", "info", "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        ready = next(line for line in lines if line.startswith("mt.serve: http://127.0.0.1:"))
        address = ready.split()[1]
        long_line = "I have an appointment with the doctor and " * 40  # the translator warns of it
        form = {"q": long_line, "source": "en", "target": "de"}
        assert httpx.post(address + "/translate", data=form).status_code == 403
        answer = httpx.post(address + "/translate", data=form | {"api_key": "good-key"}, timeout=60)
        assert answer.json()["translatedText"]
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=30)[1]
    assert process.returncode == 0, log
    assert "POST /translate 403" in log
    assert "POST /translate 200" in log
    assert "doctor" not in log
    assert "Traceback" not in log
