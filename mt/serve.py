"""python -m mt.serve: a translation server with a page.

It must be ready soon: what only a server needs is loaded after the arguments are checked.
"""

import argparse
import logging
import re
import signal
import sys
from dataclasses import fields
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from mt.inference.options import PRECISIONS
from mt.serving.limits import ApiKeys, Limits, read_api_keys
from mt.utils import console
from mt.utils.checks import check_int

try:
    import resource
except ImportError:  # on Windows, which has no such limits
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from mt.inference.translator import Translator
    from mt.serving.engine import Engine
    from mt.serving.metrics import Metrics

# The threads that decode and the one that answers take turns at the interpreter: with Python's 5 ms
# they would wait for it a sixth of the time (scripts/benchmarks/serve.py).
SWITCH_SECONDS = 2e-5
LOG_LEVELS = ("error", "warning", "info", "debug")


def make_parser() -> argparse.ArgumentParser:
    parser = console.ArgumentParser(
        prog="mt.serve",
        description="Serve translations: a page, and the interfaces of LibreTranslate and DeepL.",
    )
    add = parser.add_argument
    add("--model", action="append", help="model folder or checkpoint; `everyday`, the bundled "
        "model (default); `latest`, the newest RUN/model of outputs/; or ORG/NAME of the Hugging "
        "Face hub. Several --model make an ensemble")  # fmt: skip
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1, which only "
        "this machine reaches)")  # fmt: skip
    add("--port", type=int, default=8000, help="default 8000; 0 is any free one")
    add("--api-keys", metavar="FILE", help="only clients with a key of FILE are served: one a "
        "line, # begins a comment (default: everybody is served)")  # fmt: skip
    add("--allow-origin", action="append", default=[], metavar="ORIGIN", help="site whose pages "
        "may use the server, as https://example.org, or *; may come several times")  # fmt: skip
    add("--log-level", choices=LOG_LEVELS, default="warning", help="info also logs each request, "
        "without its text (default warning)")  # fmt: skip
    add = parser.add_argument_group("speed").add_argument
    add("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    add("--precision", default="float32", choices=PRECISIONS, help="default float32")
    add("--workers", type=int, help="decoding threads (default: one for each CPU thread)")
    add = parser.add_argument_group("limits").add_argument
    for limit in fields(Limits):
        flag = "--limit-" + limit.name.replace("_", "-")
        meaning = f"{limit.metadata['meaning']} (default {limit.default:,})"
        add(flag, type=type(limit.default), metavar="N", help=meaning)
    return parser


def read_limits(args: argparse.Namespace) -> Limits:
    """The limits of the command line. Raises ValueError for a value that makes no sense."""
    values = {limit.name: getattr(args, f"limit_{limit.name}") for limit in fields(Limits)}
    try:
        return Limits(**{name: value for name, value in values.items() if value is not None})
    except ValueError as error:
        raise ValueError(f"--limit-{str(error).replace('_', '-')}") from None


def run(args: argparse.Namespace) -> None:
    limits = read_limits(args)
    check_int("port", args.port, 0, 65535)
    for origin in args.allow_origin:
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise ValueError(f"--allow-origin {origin}: must be * or like https://example.org")
    keys = read_api_keys(args.api_keys) if args.api_keys is not None else ApiKeys([])
    try:
        with console.exit_at_interrupt():
            from mt.inference.translator import Translator
            from mt.model.model_path import find_models
            from mt.serving.app import create_app
            from mt.serving.metrics import Metrics
            from mt.serving.server import Server, bind
    except ImportError as error:
        hint = console.install_hint("server")
        raise ValueError(f"the server's packages are not installed ({error}): {hint}") from None
    bound = bind(args.host, args.port)  # before slow work
    allow_open_files(limits.connections)
    paths = find_models("mt.serve", args.model)
    translator = Translator.load(paths, args.device, args.precision, args.workers)
    sys.setswitchinterval(SWITCH_SECONDS)
    metrics = Metrics()
    engine = make_engine(translator, limits, metrics)
    draw = partial(draw_inspection, translator) if translator.can_inspect else None
    app = create_app(engine, limits, keys, args.allow_origin, metrics, draw)
    signal.signal(signal.SIGINT, end)
    Server(app, bound, args.host, args.log_level).run()


def make_engine(translator: "Translator", limits: Limits, metrics: "Metrics") -> "Engine":
    """The engine of the server."""
    from mt.serving.continuous_batching import ContinuousBatching

    return ContinuousBatching(
        translator, metrics, limits.queue_sentences, limits.queue_requests, limits.max_length
    )


def draw_inspection(translator: "Translator", text: str, prefix: str) -> tuple[str, str]:
    """The page of mt.inspect, and its Content-Security-Policy.

    The sentence is written as the server translates it, which reads what people type.
    """
    from mt.inference.inputs import as_written
    from mt.inspection import page, report
    from mt.serving.service import shown_name

    text = as_written(text)
    inspection = report.inspect(translator, text, prefix=prefix)
    inspection["model"]["name"] = shown_name(translator)
    return page.render([{**inspection, "server": "inspect"}]), page.policy()


def set_up_logging(level: str) -> None:
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(format=form, stream=sys.stderr, level=level.upper())
    # Their warnings quote what they are about: a text, the bytes of a form.
    for name in ("mt.inference", "mt.documents", "python_multipart"):
        logging.getLogger(name).setLevel(logging.ERROR)


def allow_open_files(connections: int) -> None:
    """Raise the soft limit of open files, if it is too low for so many connections."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 200  # the model, the log, the listening socket
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def end(number: int, frame: FrameType | None) -> None:
    """End with status 0 at SIGTERM, and at Ctrl-C once the server runs.

    uvicorn has handlers of its own while it runs; when it has finished it raises the signal again.
    """
    raise SystemExit(0)


def main(argv: list[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, end)
    set_up_logging(args.log_level)
    return console.exit_status("mt.serve", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
