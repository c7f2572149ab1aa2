"""The engines with which `serve.py` compares the server's own, each behind the server's own app.

python scripts/benchmarks/serve_engines.py ENGINE --port PORT

Instead of serving, the engine `offline` prints how many sentences a second Translator.translate
does, in batches of 64.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import benchmarking
import serve_clients

from mt.inference.inputs import split_lines
from mt.inference.translator import Translator
from mt.serving.app import create_app
from mt.serving.engine import DeadlineExceeded, Engine, Job, TextTranslation
from mt.serving.limits import Limits
from mt.serving.server import Server, bind

ENGINES = ("one-at-a-time", "window", "ctranslate2", "offline")
WINDOW = 0.010  # seconds
BATCH = 64  # lines


class Sequential:
    """Translates one job after the other."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.thread = ThreadPoolExecutor(1, "translate")

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        self.thread.shutdown(wait=False)

    async def translate(self, job: Job, timeout: float) -> list[TextTranslation]:
        work = asyncio.get_running_loop().run_in_executor(
            self.thread, translate_jobs, self.translator, [job]
        )
        try:
            return (await asyncio.wait_for(work, timeout))[0]
        except asyncio.TimeoutError:
            raise DeadlineExceeded from None


@dataclass
class Waiting:
    job: Job
    result: asyncio.Future[list[TextTranslation]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def lines(self) -> int:
        return sum(len(split_lines(text)[0]) for text in self.job.texts)

    @property
    def kind(self) -> Any:
        """Only jobs of one kind may be translated together."""
        return self.job.options, self.job.split


class Windows:
    """Collects what arrives within WINDOW, at most BATCH lines, and translates it at once."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.queue: list[Waiting] = []
        self.arrived = asyncio.Event()

    def start(self) -> None:
        self.task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def translate(self, job: Job, timeout: float) -> list[TextTranslation]:
        waiting = Waiting(job)
        self.queue.append(waiting)
        self.arrived.set()
        try:
            return await asyncio.wait_for(waiting.result, timeout)
        except asyncio.TimeoutError:
            raise DeadlineExceeded from None

    async def _work(self) -> None:
        while True:
            await self.arrived.wait()
            if sum(waiting.lines for waiting in self.queue) < BATCH:
                await asyncio.sleep(WINDOW)
            if batch := self._take():
                jobs = [waiting.job for waiting in batch]
                try:
                    results = await asyncio.to_thread(translate_jobs, self.translator, jobs)
                except ValueError as error:
                    self._finish(batch, error)
                else:
                    self._finish(batch, results)
            if not self.queue:
                self.arrived.clear()

    def _finish(
        self, batch: list[Waiting], results: list[list[TextTranslation]] | ValueError
    ) -> None:
        for i, waiting in enumerate(batch):
            if waiting.result.done():  # the client has left
                continue
            if isinstance(results, ValueError):
                waiting.result.set_exception(results)
            else:
                waiting.result.set_result(results[i])

    def _take(self) -> list[Waiting]:
        """The oldest jobs, which have one kind and at most BATCH lines; at least one job."""
        self.queue = [waiting for waiting in self.queue if not waiting.result.done()]
        batch: list[Waiting] = []
        lines = 0
        for waiting in self.queue:
            lines += waiting.lines
            if batch and (lines > BATCH or waiting.kind != batch[0].kind):
                break
            batch.append(waiting)
        self.queue = self.queue[len(batch) :]
        return batch


def translate_jobs(translator: Translator, jobs: Sequence[Job]) -> list[list[TextTranslation]]:
    """Jobs of one kind in one call. Raises ValueError as Translator.translate does."""
    texts = [split_lines(text) for job in jobs for text in job.texts]
    prefixes = [prefix for job in jobs for prefix in job.prefixes or [""] * len(job.texts)]
    begins: list[str] = []  # of each line: the prefix of a text is that of its first line
    for (lines, _), prefix in zip(texts, prefixes, strict=True):
        begins += [prefix, *[""] * (len(lines) - 1)]
    translations = iter(
        translator.translate(
            [line for lines, _ in texts for line in lines],
            jobs[0].options,
            prefixes=begins if any(begins) else None,
            split=jobs[0].split,
        )
    )
    results = (TextTranslation(tuple(next(translations) for _ in lines), b) for lines, b in texts)
    return [[next(results) for _ in job.texts] for job in jobs]


def build(name: str, folder: str | None) -> Engine:
    """``folder`` is an export to CTranslate2, which only its engine needs."""
    if name == "ctranslate2":
        from mt.export.ctranslate2 import Engine as CTranslate2

        translator: Translator = CTranslate2(str(folder))
        return Windows(translator)
    translator = Translator.load(None, "cpu")
    return Sequential(translator) if name == "one-at-a-time" else Windows(translator)


def serve(engine: Engine, port: int) -> None:
    """As mt.serve does."""
    limits = Limits()
    app = create_app(engine, limits)
    Server(app, bind(serve_clients.HOST, port), serve_clients.HOST, "warning").run()


def offline(count: int) -> dict[str, Any]:
    """Sentences a second of whole batches: sorted by length, and in the order of the list.

    The second is what a server could reach that always has 64 requests at hand.
    """
    translator = Translator.load(None, "cpu")
    texts = serve_clients.sentences(count)
    translator.translate(texts[:BATCH], split=True)  # warms up
    with benchmarking.Meter() as meter:
        translator.translate(texts, split=True, batch_size=BATCH)
    rate = len(texts) / meter.seconds
    with benchmarking.Meter() as arrival:
        for start in range(0, len(texts), BATCH):
            translator.translate(texts[start : start + BATCH], split=True, batch_size=BATCH)
    return {
        "requests_per_second": round(rate, 1),
        "in_order_of_arrival": round(len(texts) / arrival.seconds, 1),
        **meter.load(),
    }


def main() -> None:
    parser = benchmarking.new_parser(__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--port", type=int)
    parser.add_argument("--export", help="folder with an export to CTranslate2")
    parser.add_argument("--sentences", type=int, help="for offline")
    args = parser.parse_args()
    if args.engine == "offline":
        benchmarking.emit(offline(args.sentences))
    else:
        serve(build(args.engine, args.export), args.port)


if __name__ == "__main__":
    main()
