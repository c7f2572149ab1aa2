"""Requests that no server should get: what `serve_soak.py` sends, chosen by a random generator."""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from serve_clients import HOST, message, post

JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
PATHS = ("/v1/translate", "/translate", "/v2/translate", "/detect")
WAIT = 20  # seconds for an answer


class Malformed(NamedTuple):
    kind: str
    data: bytes
    slow: bool = False  # sends one byte at a time
    closes: bool = False  # ends its side of the connection after the data


def make(rng: random.Random) -> Malformed:
    kind = rng.choice(list(KINDS))
    data = KINDS[kind](rng)
    slow = kind == "slow sender"
    return Malformed(
        kind, data, slow, closes=kind == "half-closed" or (not slow and rng.random() < 0.1)
    )


async def send(port: int, malformed: Malformed) -> int | str:
    """Send it; returns the status of the answer, or "closed" or "no answer"."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return "refused"
    sending = asyncio.create_task(_write(writer, malformed))
    try:
        line = await asyncio.wait_for(reader.readline(), WAIT)
        return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else "closed"
    except asyncio.TimeoutError:
        return "no answer"
    except (OSError, ValueError, IndexError):
        return "closed"
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        writer.close()


async def _write(writer: asyncio.StreamWriter, malformed: Malformed) -> None:
    with suppress(OSError):
        at_once = len(malformed.data)
        if malformed.slow:  # the headers at once, if they are whole
            blank = malformed.data.find(b"\r\n\r\n")
            at_once = blank + 4 if blank >= 0 else 0
        writer.write(malformed.data[:at_once])
        for byte in malformed.data[at_once:]:
            await asyncio.sleep(0.5)
            writer.write(bytes([byte]))
        await writer.drain()
        if malformed.closes:
            writer.write_eof()


def _path(rng: random.Random) -> str:
    return rng.choice(PATHS)


def _raw(rng: random.Random, body: bytes, kind: str = JSON) -> bytes:
    return message("POST", _path(rng), body, [kind])


def _fields(rng: random.Random, value: object) -> dict[str, object]:
    """A request's fields, with this value in one of them."""
    fields: dict[str, object] = {
        "text": ["Hello."], "q": "Hello.", "source": "en", "target": "de", "target_lang": "DE"
    }  # fmt: skip
    options = (
        "text", "q", "source", "target", "target_lang", "source_lang", "format", "split", "prefix",
        "n_best", "beam_size", "alpha", "min_length", "max_length", "no_repeat_ngram", "samples",
        "repetition_penalty", "temperature", "top_k", "top_p", "seed", "mbr", "alternatives",
        "tokens", "attention", "stream", "tag_handling", "split_sentences", "api_key", "unknown",
    )  # fmt: skip
    fields[rng.choice(options)] = value
    return fields


WRONG: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    -(10**400),
    1.5,
    1e308,
    "",
    "x",
    "ü" * 50,
    [],
    [None],
    [[]],
    [1, "a"],
    {},
    {"a": {"b": []}},
    ["Hello."] * 60,
    [""] * 60,
    "word " * 6000,
    "x" * 15_000,
    "\ud800",
    "\x00\x01\x02",
    "\u202e\ufeff\u2028",
    "🙂" * 500,
    "a\n" * 2000,
    " " * 20_000,
    "\udfff text",
)


def _wrong_type(rng: random.Random) -> bytes:
    return _raw(rng, json.dumps(_fields(rng, rng.choice(WRONG))).encode())


def _bad_json(rng: random.Random) -> bytes:
    whole = json.dumps(_fields(rng, "Hello.")).encode()
    broken = (
        whole[: rng.randrange(1, len(whole))],
        whole + b"}",
        b"{" + whole,
        b"{'text': 'Hello.'}",
        b'{"text": "Hello.",}',
        b'{"text": NaN}',
        b'{"text": "a", "alpha": Infinity}',
        b"\xef\xbb\xbf" + whole,
        b'{"text": "\\x41"}',
        b'{"text": "\\u12"}',
        b'{"text": 1e99999}',
        b"null",
        b'""',
        b"[]",
        b"1",
        b'{"text": "a", "text": ["b"]}',
        b"/* */" + whole,
        b'{"beam_size": ' + b"9" * 10_000 + b"}",
    )
    return _raw(rng, rng.choice(broken))


def _bad_utf8(rng: random.Random) -> bytes:
    bad = rng.choice((b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80" * 100))
    if rng.random() < 0.3:
        return _raw(rng, b"text=" + bad + b"&q=%ff%fe&target=de&source=en&target_lang=DE", FORM)
    return _raw(rng, b'{"text": "a' + bad + b'", "q": "' + bad + b'", "target_lang": "DE"}')


def _deep(rng: random.Random) -> bytes:
    depth = rng.choice((100, 1000, 10_000, 50_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = opening * depth + (b"1" + closing * depth if rng.random() < 0.5 else b"")
    return _raw(rng, b'{"text": ' + inner + b', "q": ' + inner[:60_000] + b"}")


def _binary(rng: random.Random) -> bytes:
    noise = rng.randbytes(rng.randrange(1, 3000))
    tls = bytes.fromhex("1603010200010001fc0303")
    return rng.choice((noise, tls + noise, b"\x00" * 1000, _raw(rng, noise), noise + b"\r\n\r\n"))


def _huge(rng: random.Random) -> bytes:
    size = rng.choice((130_000, 200_000, 1_000_000, 3_000_000))
    text = json.dumps({"text": "a " * (size // 2)}).encode()
    return rng.choice((_raw(rng, text), _raw(rng, b"\x00" * size), _raw(rng, text, FORM)))


def _lengths(rng: random.Random) -> bytes:
    value = rng.choice(
        ("-1", "1e3", "99999999999999999999", "0x10", "", "5, 6", "+3", "12\r\nContent-Length: 13")
    )
    head = f"POST {_path(rng)} HTTP/1.1\r\nHost: x\r\n{JSON}\r\nContent-Length: {value}\r\n\r\n"
    return head.encode() + b'{"text": "a"}'


def _chunks(rng: random.Random) -> bytes:
    head = f"POST {_path(rng)} HTTP/1.1\r\nHost: x\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n"
    both = rng.choice(("", "Content-Length: 3\r\n", "Transfer-Encoding: gzip\r\n"))
    bodies = (
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"-1\r\na\r\n",
        b"5\r\nhel\r\n0\r\n\r\n",
        b"ffffffffffffffffffff\r\n",
        b"1;" + b"x" * 100_000 + b"\r\na\r\n0\r\n\r\n",
        b"1\r\n{\r\n" * 20_000 + b"0\r\n\r\n",
        b"0\r\n\r\n",
    )
    return (head + both).encode() + b"\r\n" + rng.choice(bodies)


def _methods(rng: random.Random) -> bytes:
    method = rng.choice(
        (
            "GET",
            "PUT",
            "DELETE",
            "PATCH",
            "TRACE",
            "CONNECT",
            "OPTIONS",
            "HEAD",
            "BREW",
            "ge t",
            "X" * 5000,
        )
    )
    return message(method, _path(rng), b'{"text": "a"}', [JSON])


def _paths(rng: random.Random) -> bytes:
    path = rng.choice(
        (
            "/",
            "/nothing",
            "/../../etc/passwd",
            "//v1/translate",
            "/%00",
            "/%ff%fe",
            "/" + "a" * 100_000,
            "*",
            "/v1/translate?" + "a=b&" * 5000,
            "http://other.example/v1/translate",
            "/v1/%2e%2e/x",
            "/page.css%0d%0aX: y",
            "/docs",
            "/openapi.json",
            "/v2/languages?type=%ff",
            "/v2/usage?a[]=1",
            "v1",
        )
    )
    return message(rng.choice(("GET", "POST", "HEAD")), path)


def _headers(rng: random.Random) -> bytes:
    headers = rng.choice(
        (
            [f"X-{i}: {'a' * 50}" for i in range(3000)],
            ["X: " + "a" * 300_000],
            ["no colon"],
            [": empty"],
            ["Host: a", "Host: b"],
            ["X: a\x00b"],
            [" folded: x"],
            ["Authorization: Bearer " + "k" * 9000],
            ["Content-Encoding: gzip"],
            ["Expect: 100-continue"],
            ["Expect: what"],
            ["Cookie: " + "a=b;" * 9000],
            [
                "Upgrade: websocket",
                "Connection: Upgrade",
                "Sec-WebSocket-Key: x",
                "Sec-WebSocket-Version: 13",
            ],
            ["Authorization: DeepL-Auth-Key \u00e9\u00e9"],
            ["Origin: null"],
            ["Accept-Encoding: " + "gzip," * 2000],
        )
    )
    return message("POST", _path(rng), b'{"text": "a", "target_lang": "DE"}', [JSON, *headers])


def _kinds_of_body(rng: random.Random) -> bytes:
    kind = rng.choice((
        "", "text/plain", "application/json; charset=utf-16", "application/json; charset=nothing",
        "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded", "image/png", "a" * 5000, "application/xml",
    ))  # fmt: skip
    body = rng.choice(
        (
            b'{"text": "a"}',
            b"",
            b"--x\r\n\r\n",
            b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--",
            b"text=a&text=b&" * 2000,
            b"q=" + b"a" * 30_000,
            b"%%%=&&&===",
            b"text[]=1&q[]=2",
            b'--x\r\nContent-Disposition: form-data; name="q"; filename="f"\r\n\r\n\xff\r\n--x--',
        )
    )
    return _raw(rng, body, f"Content-Type: {kind}")


def _request_line(rng: random.Random) -> bytes:
    return rng.choice(
        (
            b"\r\n\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET  /  HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"hello\n\n",
            b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"POST /translate HTTP/1.1\nHost: x\n\n",
            b"A" * 200_000,
            b"GET / HTTP/1.1\r\nHost: x\r\n",
        )
    )


def _part(rng: random.Random) -> bytes:
    """The beginning of a good request."""
    whole = post(_path(rng), {"text": "Hello.", "q": "Hello.", "target_lang": "DE", "target": "de"})
    return whole[: rng.randrange(1, len(whole))]


def _mutated(rng: random.Random) -> bytes:
    """A good request, some of whose bytes are others."""
    data = bytearray(post(_path(rng), _fields(rng, "Where do you live?")))
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "bad JSON": _bad_json,
    "wrong type": _wrong_type,
    "bad UTF-8": _bad_utf8,
    "deep nesting": _deep,
    "binary": _binary,
    "huge body": _huge,
    "wrong length": _lengths,
    "wrong chunks": _chunks,
    "wrong method": _methods,
    "wrong path": _paths,
    "wrong headers": _headers,
    "wrong kind of body": _kinds_of_body,
    "wrong request line": _request_line,
    "half-closed": _part,
    "mutated": _mutated,
    "slow sender": _part,
}
