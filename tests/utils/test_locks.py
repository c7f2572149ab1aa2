"""One holder of a lock at a time, in this process and in others."""

import logging
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from mt.utils.locks import exclusive_lock, waiting_lock


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


def test_the_second_is_refused_and_the_third_is_not(lock: Path) -> None:
    with exclusive_lock(lock, "first"):
        with pytest.raises(BlockingIOError) as error, exclusive_lock(lock, "it is taken"):
            raise AssertionError("both hold it")
        assert str(error.value) == "it is taken"
    with exclusive_lock(lock, "third"):
        pass


def test_who_removes_the_file_removes_no_lock_of_others(lock: Path) -> None:
    for _ in range(3):
        with exclusive_lock(lock, ""):
            lock.unlink()
            with exclusive_lock(lock, "another file"):
                pass
    assert lock.exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc is Linux's")
def test_nobody_waits_where_there_can_be_no_file() -> None:
    with pytest.raises(OSError), waiting_lock(Path("/proc/.lock"), "held"):  # noqa: PT011
        raise AssertionError("there is a lock")


def test_an_error_gives_the_lock_back(lock: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), exclusive_lock(lock, "taken"):
            raise ZeroDivisionError


def test_a_process_that_is_killed_gives_its_lock_back(lock: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with exclusive_lock(lock, ""):
                os.write(writer, b"x")
                time.sleep(60)
        finally:
            os._exit(1)
    assert os.read(reader, 1) == b"x"
    with pytest.raises(BlockingIOError), exclusive_lock(lock, "taken"):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with exclusive_lock(lock, ""):
        assert lock.exists()


def test_who_waits_gets_it_in_the_end(lock: Path, caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []

    def second() -> None:
        with waiting_lock(lock, "waiting for the first"):
            order.append("second")

    with caplog.at_level(logging.INFO, "mt"):
        with waiting_lock(lock, ""):
            thread = threading.Thread(target=second)
            thread.start()
            while "waiting for the first" not in caplog.text:
                time.sleep(0.01)
            order.append("first")
        thread.join(20)
    assert order == ["first", "second"]


@pytest.mark.parametrize("kind", [exclusive_lock, waiting_lock])
def test_a_folder_that_is_missing_is_not_made(tmp_path: Path, kind: object) -> None:
    with pytest.raises(FileNotFoundError, match="gone"), kind(tmp_path / "gone" / "lock", ""):  # type: ignore[operator]
        pass
    assert list(tmp_path.iterdir()) == []
