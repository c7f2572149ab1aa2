"""The application: all interfaces, the page, health and metrics."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from mt.serving import (
    deepl,
    deepl_documents,
    inspection,
    libretranslate,
    libretranslate_documents,
    native,
    native_documents,
)
from mt.serving.documents import Documents
from mt.serving.engine import DeadlineExceeded, Engine, Overloaded
from mt.serving.inspection import Draw
from mt.serving.kept_documents import KeptDocuments
from mt.serving.limits import ApiKeys, Limits
from mt.serving.metrics import Metrics
from mt.serving.middleware import AnswerExceptions, Observe, ReceiveRequest
from mt.serving.requests import RequestError, error_response
from mt.serving.service import Service, as_request_error
from mt.serving.uploads import REMARKS
from mt.utils import BASE_STYLE
from mt.utils.checks import printable

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"
}  # fmt: skip


def create_app(
    engine: Engine,
    limits: Limits | None = None,
    keys: ApiKeys | None = None,
    origins: Sequence[str] = (),
    metrics: Metrics | None = None,
    draw: Draw | None = None,
) -> FastAPI:
    """The application around an engine, which starts and stops with it.

    ``origins`` are the sites whose pages may use it, or ``*``; without keys everybody may use it.
    ``metrics`` is the object to which the engine reports. ``draw`` makes the pages of /inspect,
    which a server with keys does not have. ``app.state.service`` is the Service.
    """
    limits, metrics = limits or Limits(), metrics or Metrics()
    service = Service(engine, limits, keys or ApiKeys([]), metrics)
    documents = Documents(service)
    kept = KeptDocuments(documents)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        service.ready = True
        yield
        service.ready = False
        kept.stop()
        await engine.stop()

    app = FastAPI(
        title="mt",
        summary=f"Translates from {service.source} to {service.target}.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # they load scripts of other sites
        redoc_url=None,
        redirect_slashes=False,  # it would name this server's own host, wrong behind a proxy
    )
    app.state.service = service
    for module in (native, libretranslate, deepl):
        app.include_router(module.make_router(service))
    app.include_router(native_documents.make_router(documents))
    for with_store in (libretranslate_documents, deepl_documents):
        app.include_router(with_store.make_router(documents, kept))
    app.include_router(_operation_router(service))
    if draw is not None and not service.keys:
        app.include_router(inspection.make_router(service, draw))
    _add_page(app)
    _add_error_handlers(app, metrics)
    # The last one added stands around the others.
    app.add_middleware(ReceiveRequest, service=service)
    app.add_middleware(AnswerExceptions, metrics=metrics)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Content-Disposition", "Retry-After", REMARKS],
        )
    app.add_middleware(Observe, metrics=metrics)
    return app


def _operation_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.head("/health/live", include_in_schema=False)
    @router.get("/health/live", summary="Whether the process answers")
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    @router.head("/health/ready", include_in_schema=False)
    @router.get("/health/ready", summary="Whether it takes requests: 503 when it stops")
    async def ready() -> JSONResponse:
        if service.ready:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "unavailable"}, 503)

    @router.get("/metrics", summary="Metrics for Prometheus")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return router


def _add_page(app: FastAPI) -> None:
    """The files of the page, which are read once."""
    for file in (BASE_STYLE, *sorted(PAGE.iterdir())):
        if file.suffix in TYPES:
            _add_file(app, file)


def _add_file(app: FastAPI, file: Path) -> None:
    content, kind = file.read_bytes(), TYPES[file.suffix]

    async def get() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    path = "/" if file.name == "index.html" else f"/{file.name}"
    app.add_api_route(path, get, methods=["GET", "HEAD"], include_in_schema=False)


def _as_ours(request: Request, error: HTTPException) -> RequestError:
    """An error of the framework, with what to do instead."""
    path, headers = printable(request.url.path, 100), error.headers
    if error.status_code == 404:
        message = f"nothing is at {path}: /openapi.json lists what there is"
        return RequestError(404, "not_found", message, headers)
    if error.status_code == 405:
        allowed = (headers or {}).get("Allow", "another method")
        message = f"{path} does not take {request.method}: use {allowed}"
        return RequestError(405, "method_not_allowed", message, headers)
    return RequestError(error.status_code, "bad_request", str(error.detail), headers)


def _add_error_handlers(app: FastAPI, metrics: Metrics) -> None:
    """Every error has the form of its interface."""

    async def on_error(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):  # of the framework
            error = _as_ours(request, error)
        request_error = as_request_error(error)
        metrics.rejection(request_error.code)
        return error_response(request.url.path, request_error)

    for kind in (HTTPException, RequestError, Overloaded, DeadlineExceeded):
        app.add_exception_handler(kind, on_error)
