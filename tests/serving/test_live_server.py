"""A live server in front of a stand-in engine: what happens between it and its clients."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from live_server import running, wait_for
from serving_helpers import StandIn

from mt.serving.app import create_app
from mt.serving.limits import Limits
from mt.serving.server import Server, bind

HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
QUICK = Limits(send_seconds=0.3, body_bytes=1000, connections=20, drain_seconds=0.5)


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
def server(stand_in: StandIn) -> Iterator[Server]:
    with running(create_app(stand_in, QUICK)) as server:
        yield server


def connect(server: Server) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", int(server.address.rpartition(":")[2])), timeout=10
    )


def request(**body: object) -> bytes:
    content = json.dumps(body).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    chunks = []
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    return b"".join(chunks)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while end not in received:
        received += connection.recv(65536)
    return received


def metric(server: Server, line: str) -> bool:
    return line in server.service.metrics.text().decode()


def test_requests_follow_each_other_on_a_connection(server: Server) -> None:
    with httpx.Client(base_url=server.address) as client:
        for text in ("one", "two"):
            answer = client.post("/v1/translate", json={"text": text}).json()
            assert answer["translations"][0]["text"] == text.upper()
    with connect(server) as connection:  # both at once
        connection.sendall(request(text="one") + request(text="two"))
        assert b"ONE" in read_until(connection, b"TWO")


@pytest.mark.parametrize("start", [b"", b"POST /v1/trans", HEAD])
@pytest.mark.parametrize("is_first", [True, False])
def test_headers_that_do_not_come_close_the_connection(
    server: Server, start: bytes, is_first: bool
) -> None:
    with connect(server) as connection:
        if not is_first:
            connection.sendall(request(text="one"))
            read_until(connection, b"ONE")
            start = start or b"P"  # else uvicorn's limit for idle connections holds
        begin = time.monotonic()
        connection.sendall(start)
        assert read_all(connection) == b""
        assert 0.2 < time.monotonic() - begin < 4


def test_headers_that_come_byte_by_byte_close_the_connection_too(server: Server) -> None:
    with connect(server) as connection, contextlib.suppress(ConnectionError):
        begin = time.monotonic()
        for byte in HEAD * 10:
            connection.sendall(bytes([byte]))
            time.sleep(0.02)
    assert 0.2 < time.monotonic() - begin < 4


@pytest.mark.parametrize(
    "start",
    [
        HEAD + b'Content-Length: 50\r\n\r\n{"text"',
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
    ],
)
def test_a_body_that_does_not_come_is_answered_with_408(server: Server, start: bytes) -> None:
    with connect(server) as connection:
        connection.sendall(start)
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"too_slow"' in received
    assert metric(server, 'mt_rejections_total{reason="too_slow"} 1.0')


@pytest.mark.parametrize(
    "start",
    [
        HEAD + b"Content-Length: 1001\r\n\r\n" + b" " * 1001,
        HEAD + b"Content-Length: 99999999999\r\n\r\n",
        HEAD + b"Content-Length: 15000\r\n\r\n" + b" " * 15000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"200\r\n" + b" " * 512 + b"\r\n200\r\n"
        + b" " * 512 + b"\r\n0\r\n\r\n",
    ],
)  # fmt: skip
def test_a_large_body_is_answered_with_413(server: Server, start: bytes) -> None:
    with connect(server) as connection:
        connection.sendall(start)
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b"larger than 1,000 bytes" in received


@pytest.mark.parametrize(
    "start",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/x\r\n\r\n",
        b"\x00\xff" * 50 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        HEAD + b"X: " + b"a" * 600_000 + b"\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_answered_with_400(server: Server, start: bytes) -> None:
    with connect(server) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(start)
        received = read_all(connection)
    assert received[:12] in (b"HTTP/1.1 400", b"")  # nothing where the answer met unread bytes
    assert httpx.get(server.address + "/health/live").status_code == 200


def test_connections_are_limited(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(QUICK.connections):
            stack.enter_context(connect(server))
        wait_for(lambda: len(server.server_state.connections) == QUICK.connections)
        refused = read_all(stack.enter_context(connect(server)))
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert metric(server, 'mt_rejections_total{reason="connections"} 1.0')
    wait_for(lambda: not server.server_state.connections)
    assert httpx.get(server.address + "/health/live").status_code == 200


def test_a_slow_reader_gets_the_whole_answer(server: Server) -> None:
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(server) as connection:
        connection.sendall(ask * 200 + ask.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        begin, received = time.monotonic(), b""
        while time.monotonic() - begin < 4 * QUICK.send_seconds:
            received += connection.recv(20_000)
            time.sleep(0.02)
        received += read_all(connection)
    assert received.count(b"HTTP/1.1 200 OK") == 201


def test_an_answer_that_nobody_reads_closes_the_connection(server: Server) -> None:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)  # a small window
    with client:
        client.connect(("127.0.0.1", int(server.address.rpartition(":")[2])))
        ask = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        client.sendall(ask * 100)
        wait_for(lambda: len(server.server_state.connections) == 1)
        wait_for(lambda: not server.server_state.connections)


@pytest.mark.parametrize("stream", [False, True])
def test_when_a_client_leaves_its_work_is_dropped(
    server: Server, stand_in: StandIn, stream: bool
) -> None:
    stand_in.hold.set()
    with connect(server) as connection:
        connection.sendall(request(text="Hello", stream=stream))
        wait_for(lambda: stand_in.jobs)
        if stream:
            read_until(connection, b"event: partial")
        assert not stand_in.cancelled.is_set()
    wait_for(stand_in.cancelled.is_set)
    status = 200 if stream else 499
    wait_for(lambda: metric(server, f'mt_requests_total{{interface="v1",status="{status}"}} 1.0'))


def test_a_client_may_leave_before_its_body_is_whole(server: Server, stand_in: StandIn) -> None:
    with connect(server) as connection:
        connection.sendall(HEAD + b'Content-Length: 50\r\n\r\n{"text"')
        time.sleep(0.05)
    wait_for(lambda: metric(server, 'mt_requests_total{interface="v1",status="499"} 1.0'))
    assert not stand_in.jobs


def is_heard(server: Server) -> bool:
    try:
        connect(server).close()
    except ConnectionError:
        return False
    return True


def ask_in_background(server: Server) -> tuple[threading.Thread, list[httpx.Response]]:
    answers: list[httpx.Response] = []
    url = server.address + "/v1/translate"
    thread = threading.Thread(
        target=lambda: answers.append(httpx.post(url, json={"text": "Hi"}, timeout=20))
    )
    thread.start()
    return thread, answers


def test_a_server_that_stops_finishes_what_it_has(server: Server, stand_in: StandIn) -> None:
    stand_in.hold.set()
    thread, answers = ask_in_background(server)
    wait_for(lambda: stand_in.jobs)
    server.handle_exit(15, None)
    assert server.service.ready is False
    wait_for(lambda: not is_heard(server))
    stand_in.hold.clear()
    thread.join(20)
    assert answers[0].status_code == 200
    assert answers[0].json()["translations"][0]["text"] == "HI"
    wait_for(lambda: stand_in.stopped)


def test_a_server_that_stops_does_not_wait_for_ever(server: Server, stand_in: StandIn) -> None:
    stand_in.hold.set()
    thread, answers = ask_in_background(server)
    wait_for(lambda: stand_in.jobs)
    server.handle_exit(15, None)
    thread.join(20)
    assert (answers[0].status_code, answers[0].headers["retry-after"]) == (503, "1")
    wait_for(stand_in.cancelled.is_set)


def test_bind_tells_what_is_wrong() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"127.0.0.1 port {port}: .*: give another --port"):
            bind("127.0.0.1", port)
    with pytest.raises(ValueError, match=r"--host no\.such\.host\.invalid: no address"):
        bind("no.such.host.invalid", 0)
    with pytest.raises(ValueError, match=r"^--host a\.\.b: no address has this name here$"):
        bind("a..b", 0)
    with pytest.raises(ValueError, match=r"192\.0\.2\.1 port 0: "):
        bind("192.0.2.1", 0)
