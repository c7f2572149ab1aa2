"""A live server in a thread of the tests."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from mt.serving.server import Server, bind


@contextmanager
def running(app: FastAPI, port: int = 0) -> Iterator[Server]:
    server = Server(app, bind("127.0.0.1", port), "127.0.0.1", "critical")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


def wait_for(happened: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.005)
