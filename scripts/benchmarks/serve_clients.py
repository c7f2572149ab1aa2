"""What the server's benchmark and its soak test share: a server process, and clients of it.

The clients speak HTTP/1.1 over asyncio's streams, because httpx takes about a millisecond for a
request, which the server would lack on the same machine.
"""

import asyncio
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = Path(__file__).parent / "serve_sentences.txt"
HOST = "127.0.0.1"
START = 60  # seconds that a server may take until it is ready
STOP = 30  # seconds that it may take to end
WARM_UP = 6  # seconds after which a measurement begins even if some clients still wait
PATIENCE = 90  # seconds for an answer; the server itself gives up after 60
PAUSE = 0.05  # seconds before a client that was refused tries again


# ------------------------------------------------------------------------------- the server


class Server:
    """A server process of this machine, which runs within the ``with`` statement."""

    def __init__(self, command: Sequence[object]) -> None:
        """``command`` gets the ``--port``."""
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = int(free.getsockname()[1])
        self.command = [sys.executable, *map(str, command), "--port", str(self.port)]

    def __enter__(self) -> "Server":
        self.log = tempfile.TemporaryFile()
        start = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            self.command, env=environment, stdout=self.log, stderr=self.log
        )
        while not self._is_ready():
            if self.process.poll() is not None or time.perf_counter() - start > START:
                self.__exit__(None, None, None)
                raise SystemExit(f"the server did not start: {self.messages()[-500:]}")
            time.sleep(0.05)
        self.seconds_to_ready = time.perf_counter() - start
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def messages(self) -> str:
        """What the process has printed."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def rss(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) * 1024  # type: ignore[union-attr]

    def cpu_seconds(self) -> float:
        """Seconds that its threads have worked."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rsplit(") ", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------- the requests


def sentences(count: int, longest: int = 60) -> list[str]:
    """The first ``count`` English sentences, of at most ``longest`` words, of a list that we wrote.

    They are of the phrasebook's training split, a quarter of each part.
    """
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if len(line.split()) <= longest][:count]


def long_texts(count: int, words: int) -> list[str]:
    """Texts of about ``words`` words, in paragraphs of five sentences."""
    source = itertools.cycle(sentences(1000))
    texts = []
    for _ in range(count):
        chosen: list[str] = []
        length = 0
        while length < words:
            chosen.append(next(source))
            length += len(chosen[-1].split())
        paragraphs = (" ".join(chosen[i : i + 5]) for i in range(0, len(chosen), 5))
        texts.append("\n".join(paragraphs))
    return texts


def message(method: str, path: str, body: bytes = b"", headers: Iterable[str] = ()) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def post(path: str, content: object) -> bytes:
    body = json.dumps(content, ensure_ascii=False).encode()
    return message("POST", path, body, ["Content-Type: application/json"])


def translate(text: str, stream: bool = False) -> bytes:
    """A request for a translation as the model's defaults want it."""
    body = {"text": text, "keep": False}  # which the other engines cannot
    return post("/v1/translate", body | ({"stream": True} if stream else {}))


# -------------------------------------------------------------------------------- the clients


class Answer(NamedTuple):
    status: int  # 0: the connection broke, or no answer came in time
    body: bytes
    seconds: float  # until the whole answer
    first: float  # until the first event of a stream, else until the whole answer


class Connection:
    """A connection that is kept open from request to request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer: asyncio.StreamWriter | None = None

    async def request(self, data: bytes) -> Answer:
        start = time.perf_counter()
        is_reused = self.writer is not None
        try:
            status, body, first = await asyncio.wait_for(self._exchange(data), PATIENCE)
        except (ConnectionResetError, BrokenPipeError, asyncio.IncompleteReadError) as error:
            self.close()
            if is_reused and not getattr(error, "partial", b""):  # the server closed it meanwhile
                return await self.request(data)
            status, body, first = 0, b"", time.perf_counter()
        except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            self.close()
            status, body, first = 0, b"", time.perf_counter()
        return Answer(
            status, body, time.perf_counter() - start, (first or time.perf_counter()) - start
        )

    async def _exchange(self, data: bytes) -> tuple[int, bytes, float]:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(HOST, self.port)
        self.writer.write(data)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if match := re.search(rb"\r\ncontent-length: *(\d+)", head):
            body, first = await self.reader.readexactly(int(match.group(1))), 0.0
        elif b"\r\ntransfer-encoding: chunked" in head:
            body, first = await self._chunks()
        else:
            body, first = b"", 0.0
        if b"\r\nconnection: close" in head:
            self.close()
        return status, body, first

    async def _chunks(self) -> tuple[bytes, float]:
        """The body, and when its first event came."""
        body, first = b"", 0.0
        while size := int(await self.reader.readline(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
            if not first and b"data:" in body:
                first = time.perf_counter()
        await self.reader.readline()
        return body, first

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class Load(NamedTuple):
    answers: list[Answer]  # that came within ``seconds``
    seconds: float
    beside: list[Answer]  # those of the client beside the others


async def closed_loop(
    port: int,
    requests: Iterator[bytes],
    clients: int,
    seconds: float,
    beside: Iterator[bytes] | None = None,
) -> Load:
    """Clients that each send the next request as soon as they have an answer.

    Measures for ``seconds``, from the time when every client has had an answer. One more client
    sends the requests ``beside``.
    """
    answers: list[Answer] = []
    others: list[Answer] = []
    everybody, over = asyncio.Event(), asyncio.Event()
    served: set[int] = set()

    async def client(number: int, source: Iterator[bytes], record: list[Answer]) -> None:
        connection = Connection(port)
        try:
            while not over.is_set():  # Python 3.11's wait_for may swallow a cancellation
                record.append(await connection.request(next(source)))
                if record is answers:
                    served.add(number)
                if len(served) == clients:
                    everybody.set()
                if record[-1].status != 200:
                    await asyncio.sleep(PAUSE)
        finally:
            connection.close()

    tasks = []
    if beside is not None:
        tasks.append(asyncio.create_task(client(0, beside, others)))
    tasks += [asyncio.create_task(client(i + 1, requests, answers)) for i in range(clients)]
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(everybody.wait(), WARM_UP)
    answers.clear()
    others.clear()
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    load = Load(list(answers), time.perf_counter() - start, list(others))
    over.set()
    for task in tasks:
        task.cancel()  # the server drops what is under way
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(PAUSE)
    return load


async def open_loop(
    port: int, requests: Iterator[bytes], rate: float, seconds: float
) -> list[Answer]:
    """``rate`` requests a second, whether answers come or not; all their answers.

    After a pause of this process, those that are late are sent at once.
    """
    idle: list[Connection] = []

    async def send(data: bytes) -> Answer:
        connection = idle.pop() if idle else Connection(port)
        answer = await connection.request(data)
        idle.append(connection)
        return answer

    tasks: list[asyncio.Task[Answer]] = []
    number = round(rate * seconds)
    start = time.perf_counter()
    while len(tasks) < number:
        due = min(int((time.perf_counter() - start) * rate) + 1, number)
        tasks += [asyncio.create_task(send(next(requests))) for _ in range(due - len(tasks))]
        await asyncio.sleep(0.002)
    answers = await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return answers


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least ``share`` of the values do not exceed."""
    return sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]


def bar(
    value: float | None, least: float | None = None, most: float | None = None
) -> dict[str, Any]:
    """A figure, what it must be, and whether it is."""
    limit = {"at least": least} if least is not None else {"at most": most}
    met = (
        value is not None and (least is None or value >= least) and (most is None or value <= most)
    )
    return {"value": value, **limit, "met": met}
