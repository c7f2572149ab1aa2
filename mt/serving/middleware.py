"""What stands around the application: it receives requests, and sees all answers."""

import asyncio
import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mt.serving.metrics import Metrics
from mt.serving.requests import DOCUMENT_PATHS, RequestError, error_response, interface_of
from mt.serving.service import SCHEMES, Service, as_request_error
from mt.utils.checks import printable

log = logging.getLogger(__name__)
access_log = logging.getLogger("mt.serving.access")

MOST_UPLOADS = 16  # requests with a file at a time, which are in memory
RETRY_SECONDS = 5  # for those beyond
MOST_DISCARDED = 16  # bodies of the largest size: so much is read of a larger one, and forgotten
CLIENT_LEFT = 499  # the status in the metrics of a request whose client did not wait

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


SECRET = re.compile(
    r"^(/download_file/|/v2/document/)[^/]+"
)  # a file is given to any client that knows it


class Observe:
    """Adds security headers, counts requests and writes the access log.

    The log has no text and no query.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        self.headers = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begin = time.monotonic()
        status = CLIENT_LEFT

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", ()))
                names = {name.lower() for name, _ in headers}
                headers += [header for header in self.headers if header[0] not in names]
                message["headers"] = headers
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            seconds = time.monotonic() - begin
            self.metrics.request(interface_of(scope["path"]), status, seconds)
            client = (scope.get("client") or ("?",))[0]
            path = printable(SECRET.sub(r"\1…", scope["path"]), 100)
            access_log.info(f"{client} {scope['method']} {path} {status} {seconds:.3f} s")


class AnswerExceptions:
    """Makes an answer with status 500 of an exception, which the log describes."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watched_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            log.exception("a request failed")
            if has_begun:
                raise  # the server can only close the connection
            request_error = as_request_error(error)
            self.metrics.rejection(request_error.code)
            await error_response(scope["path"], request_error)(scope, receive, send)


class ReceiveRequest:
    """Reads the whole request within its limits, then runs the application while a client waits.

    When the client leaves, the application's task is cancelled, and with it its work.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self.limits, self.metrics = service.limits, service.metrics
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        is_upload = scope["path"] in DOCUMENT_PATHS and scope["method"] == "POST"
        most = self.limits.body_bytes
        refusal = None
        if is_upload:
            most += self.limits.document_bytes
            refusal = self._refusal(scope)
        is_kept = is_upload and refusal is None
        self._uploads += is_kept
        try:
            reading = self._read(most, refusal, scope, receive)
            body = await asyncio.wait_for(reading, self.limits.send_seconds)
        except (TimeoutError, asyncio.TimeoutError):
            message = f"the request did not arrive within {self.limits.send_seconds:g} s"
            await self._reject(RequestError(408, "too_slow", message), scope, receive, send)
        except RequestError as error:
            await self._reject(error, scope, receive, send)
        else:
            if body is not None:
                await self._run(body, scope, receive, send)
        finally:
            self._uploads -= is_kept

    def _refusal(self, scope: Scope) -> RequestError | None:
        """Why a file is not taken, whatever it holds."""
        if scope["path"].startswith(tuple(SCHEMES)):  # others have their key beside the file
            try:
                self.service.check_authorization(scope)
            except RequestError as error:
                return error
        if self._uploads < MOST_UPLOADS:
            return None
        wait = {"Retry-After": str(RETRY_SECONDS)}
        message = "the server is busy with other documents: try again later"
        return RequestError(429, "overloaded", message, wait)

    async def _read(
        self, most: int, refusal: RequestError | None, scope: Scope, receive: Receive
    ) -> bytes | None:
        """The body, or None if the client leaves before it is whole.

        Raises RequestError for one of more than ``most`` bytes, and ``refusal`` instead of keeping
        any of it.
        """
        message = f"the request is larger than {most:,} bytes: send less at a time"
        too_large = RequestError(413, "too_large", message)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and len(length) < 20 and int(length) > MOST_DISCARDED * most:
            raise too_large
        chunks, size = [], 0
        more = True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            chunk, more = event.get("body", b""), event.get("more_body", False)
            size += len(chunk)
            if size <= most and refusal is None:
                chunks.append(chunk)
            elif size > MOST_DISCARDED * most:
                raise too_large
        # A client that still sends would see a broken connection instead of this answer.
        if size > most:
            raise too_large
        if refusal is not None:
            raise refusal
        return b"".join(chunks)

    async def _run(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        delivered = begun = complete = False

        async def receive_again() -> Message:
            nonlocal delivered
            if delivered:  # a task that waits for the client to leave is cancelled then
                await asyncio.Event().wait()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def watch(message: Message) -> None:
            nonlocal begun, complete
            begun = True
            complete = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        work = asyncio.ensure_future(self.app(scope, receive_again, watch))
        disconnect = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((work, disconnect), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not complete:
                work.cancel()
            await asyncio.wait((work,))
        except asyncio.CancelledError:  # the server stops and has waited long enough
            work.cancel()
            if not begun:
                message, wait = "the server stops: try again later", {"Retry-After": "1"}
                error = RequestError(503, "unavailable", message, wait)  # of another server
                await self._reject(error, scope, receive, send)
            return
        finally:
            disconnect.cancel()
        if not work.cancelled():
            work.result()

    async def _reject(
        self, error: RequestError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.metrics.rejection(error.code)
        error.headers["Connection"] = "close"  # what else arrives there is of no use
        await error_response(scope["path"], error)(scope, receive, send)
