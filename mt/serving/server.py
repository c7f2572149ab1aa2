"""uvicorn, with a limit for connections and for slow headers, and a line when it is ready."""

import asyncio
import errno
import functools
import socket
import sys
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from mt.serving.limits import Limits
from mt.serving.service import Service

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    b"content-length: 0\r\n\r\n"
)


class Protocol(H11Protocol):
    """A connection. It is closed if the headers of a request do not arrive in time.

    It is also closed if the client reads nothing of an answer for as long.
    """

    def __init__(self, *args: Any, service: Service, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.service = service
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.service.limits.connections:
            self.service.metrics.rejection("connections")
            transport.write(FULL)
            transport.close()
        else:
            self._expect_headers()
        self._expect_reading(0)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # a request's headers are whole
            self._stop_expecting()
        elif self._headers_due is None:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        if self._reading_due is not None:
            self._reading_due.cancel()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        seconds = self.service.limits.send_seconds
        self._headers_due = self.loop.call_later(seconds, self.transport.close)

    def _expect_reading(self, unread: int) -> None:
        """Look again in a while whether the client has read of the bytes that wait for it."""
        seconds = self.service.limits.send_seconds
        self._reading_due = self.loop.call_later(seconds, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        waiting = _unread_bytes(self.transport)
        if waiting and waiting == unread:
            self.transport.abort()  # close() would wait for the client
        else:
            self._expect_reading(waiting)

    def _stop_expecting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None


def _unread_bytes(transport: asyncio.Transport) -> int:
    """The bytes that wait to be sent, with those in the system's buffer where it tells."""
    waiting = transport.get_write_buffer_size()
    if waiting and fcntl is not None:
        content = fcntl.ioctl(transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
        waiting += int.from_bytes(content, sys.byteorder)
    return waiting


class Server(uvicorn.Server):
    """uvicorn's server for one application on one socket; ``host`` is what users call it.

    It prints its address when it is ready. At SIGTERM or Ctrl-C it takes no more requests and
    finishes those it has.
    """

    def __init__(self, app: FastAPI, bound: socket.socket, host: str, log_level: str) -> None:
        self.service: Service = app.state.service
        limits: Limits = self.service.limits
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(Protocol, service=self.service),  # type: ignore[arg-type]
                ws="none",
                lifespan="on",
                log_config=None,
                log_level=log_level,
                access_log=False,  # uvicorn's has the query, which may hold a text
                server_header=False,
                timeout_graceful_shutdown=int(limits.drain_seconds + 0.999),
            )
        )
        self.bound = bound
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{bound.getsockname()[1]}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self.bound])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            languages = f"{self.service.source} to {self.service.target}"
            print(f"mt.serve: {self.address} translates {languages}", file=sys.stderr, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.ready = False
        super().handle_exit(sig, frame)


def bind(host: str, port: int) -> socket.socket:
    """A socket with this address that does not listen yet. OSError that names the address."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (socket.gaierror, UnicodeError):  # such as of a..b
        raise ValueError(f"--host {host}: no address has this name here") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = ": give another --port" if error.errno == errno.EADDRINUSE else ""
        raise ValueError(f"{host} port {port}: {reason}{hint}") from None
    return bound
