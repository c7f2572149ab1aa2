"""The engine of ``mt.serve``: a running search that sentences join and leave between two steps.

A request becomes inputs, the sentences of its texts, which wait in the request's own queue.
Requests take turns, and one has only so many sentences under way, so that a long text does not
hold up a short one. In float32 a translation does not depend on the others of its batch.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol

import torch
from torch import Tensor

from mt.inference.alignment import soft_alignment
from mt.inference.beam_search import DecodingBatch
from mt.inference.inputs import Input, split_lines
from mt.inference.options import SearchOptions
from mt.inference.outputs import Output, unchanged
from mt.inference.sentence_search import Hypothesis, SentenceSearch
from mt.inference.translator import Translator
from mt.serving.engine import DeadlineExceeded, Job, Overloaded, TextTranslation

log = logging.getLogger(__name__)

MAX_HYPOTHESES = 256  # of a running batch: 64 sentences with a beam of 4
MAX_OWN = 8  # sentences of one request under way in a thread, fewer when there are other requests
PARTIAL_SECONDS = 0.05  # from one partial result of a request to the next
NICENESS = 5  # of the threads that decode, else a health check waits for them when all cores work
MAX_INLINE = 2000  # characters whose tokens are computed in the event loop
PLANNED = 10  # lines at once: between them planning may be out of time


class EngineMetrics(Protocol):
    """What the engine reports, from any thread; ``mt.serving.metrics.Metrics`` has it."""

    def queue_depth(self, sentences: int) -> None: ...

    def batch(self, sentences: int) -> None: ...

    def first_token(self, seconds: float) -> None: ...

    def tokens(self, count: int) -> None: ...


@lru_cache(maxsize=4096)
def _interned(options: SearchOptions) -> SearchOptions:
    """The same object for equal options, by which a step finds the sentences that are alike."""
    return options


@dataclass(eq=False)
class _Request:
    """A request under way. The event loop writes it, then the threads under the engine's lock."""

    job: Job
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[None]"
    lines: list[list[str]]  # of each text
    breaks: list[tuple[str, ...]]
    inputs: list[Input]  # of all lines of all texts
    counts: list[int]  # how many inputs each line has
    waiting: deque[int]  # the inputs that nobody has begun
    arrived: float  # time.monotonic
    running: list[int]  # inputs under way in each thread
    outputs: dict[int, Output] = field(default_factory=dict)
    dropped: bool = False
    partials: dict[int, list[int]] = field(default_factory=dict)  # ids of inputs under way
    next_partial: float = 0.0


_RequestInput = tuple[_Request, int]  # an input of a request


class ContinuousBatching:
    """Translates the jobs of many requests together (``mt.serving.engine.Engine``).

    ``workers`` threads with an equal share of torch's threads each run a batch.
    """

    def __init__(
        self,
        translator: Translator,
        metrics: EngineMetrics | None = None,
        max_sentences: int = 1000,
        max_requests: int = 256,
        max_prefix: float = math.inf,
    ) -> None:
        self.translator = translator
        self.metrics = metrics
        self.max_sentences, self.max_requests = max_sentences, max_requests
        self.max_prefix = max_prefix  # tokens: those beside a long output take as much memory
        self._changed = threading.Condition()  # guards what follows
        self._requests: set[_Request] = set()
        self._turns: deque[_Request] = deque()  # those with inputs that wait
        self._active = [0] * translator.workers  # sentences under way in each thread
        self._rate = 10.0  # sentences a second, a moving average
        self._last_finished = time.monotonic()
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to work; called in the event loop."""
        share = max(1, torch.get_num_threads() // self.translator.workers)
        self._threads = [
            threading.Thread(target=self._work, args=(number, share), name="decode", daemon=True)
            for number in range(self.translator.workers)
        ]
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Finish what is accepted, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def translate(self, job: Job, timeout: float) -> list[TextTranslation]:
        """The translations of the job's texts, in order; see ``Engine.translate``."""
        deadline = time.monotonic() + timeout
        with self._changed:
            if len(self._requests) >= self.max_requests and any(map(str.strip, job.texts)):
                raise self._overloaded(sum(len(other.waiting) for other in self._turns))
        plan = partial(self._plan, job, asyncio.get_running_loop(), deadline)
        has_glossary = job.terms is not None and job.terms.glossary is not None
        is_long = sum(map(len, (*job.texts, *job.prefixes))) > MAX_INLINE
        request = await asyncio.to_thread(plan) if has_glossary or is_long else plan()
        if request.inputs:
            self._accept(request)
            try:
                await asyncio.wait_for(request.done, deadline - time.monotonic())
            except (TimeoutError, asyncio.TimeoutError):
                raise DeadlineExceeded(f"the answer took longer than {timeout:g} s") from None
            finally:  # also when the awaiting task is cancelled
                self._drop(request)
        if job.options.mbr or job.options.attention:  # others want to be answered meanwhile
            return await asyncio.to_thread(self._answer, request)
        return self._answer(request)

    # In the event loop, or a thread of its own

    def _plan(self, job: Job, loop: asyncio.AbstractEventLoop, deadline: float) -> _Request:
        lines, breaks = zip(*map(split_lines, job.texts), strict=True) if job.texts else ((), ())
        all_lines = list(itertools.chain.from_iterable(lines))
        prefixes = None
        if job.prefixes:  # of the first line of each text
            rows = zip(job.prefixes, lines, strict=True)
            prefixes = [
                p for prefix, text_lines in rows for p in (prefix, *[""] * (len(text_lines) - 1))
            ]
        plan: list[list[Input]] = []
        for start in range(0, len(all_lines), PLANNED):
            if time.monotonic() > deadline:
                raise DeadlineExceeded
            part = slice(start, start + PLANNED)
            part_prefixes = prefixes and prefixes[part]
            plan += self.translator.plan(all_lines[part], part_prefixes, job.split, job.terms)
        inputs = list(itertools.chain.from_iterable(plan))
        wanted = job.terms is not None and (job.terms.glossary or job.terms.forbidden)
        if not job.options.is_beam_search and (wanted or any(x.constraints for x in inputs)):
            raise ValueError("terms need beam search: leave out samples and alternatives")
        longest = max((len(x.prefix) for x in inputs), default=0)
        if longest > self.max_prefix:
            message = f"a prefix of {longest:,} tokens is too long: give at most"
            raise ValueError(f"{message} {self.max_prefix:,}")
        waiting = deque(range(len(inputs)))
        counts, running = list(map(len, plan)), [0] * self.translator.workers
        now, done = time.monotonic(), loop.create_future()
        return _Request(
            job, loop, done, list(lines), list(breaks), inputs, counts, waiting, now, running
        )

    def _accept(self, request: _Request) -> None:
        with self._changed:
            # Those that come before it, as requests take turns: one with many holds up few.
            size = len(request.inputs)
            ahead = sum(min(len(other.waiting), size) for other in self._turns)
            if (
                self._stopping
                or len(self._requests) >= self.max_requests
                or ahead + size > max(self.max_sentences, size)
            ):
                raise self._overloaded(ahead)
            self._requests.add(request)
            self._turns.append(request)
            self._report()
            self._changed.notify_all()

    def _overloaded(self, ahead: int) -> Overloaded:
        return Overloaded(min(60, math.ceil((ahead + 1) / self._rate)))

    def _drop(self, request: _Request) -> None:
        """Forget a request, finished or not: what runs of it leaves at the next step."""
        with self._changed:
            request.dropped = True
            request.waiting.clear()
            self._requests.discard(request)
            if request in self._turns:
                self._turns.remove(request)
            self._report()
            self._changed.notify_all()

    def _answer(self, request: _Request) -> list[TextTranslation]:
        options = request.job.options
        outputs = [request.outputs[i] for i in range(len(request.inputs))]
        if options.mbr:
            by_risk = self.translator.by_risk
            outputs = [o._replace(hypotheses=by_risk(o.hypotheses, options)) for o in outputs]
        rows, counts = iter(outputs), iter(request.counts)
        return [
            TextTranslation(
                tuple(
                    self.translator.join(line, list(itertools.islice(rows, next(counts))))
                    for line in lines
                ),
                breaks,
            )
            for lines, breaks in zip(request.lines, request.breaks, strict=True)
        ]

    # In the threads

    def _work(self, number: int, torch_threads: int) -> None:
        torch.set_num_threads(torch_threads)
        _give_way()
        batch = DecodingBatch(self.translator.model)
        owners: dict[SentenceSearch, _RequestInput] = {}
        while True:
            with self._changed:
                self._active[number] = len(batch.active)
                while not (newcomers := self._admit(number, batch)) and not batch.active:
                    if self._stopping and not self._requests:
                        return
                    self._report()
                    self._changed.wait()
                self._active[number] += len(newcomers)
                gone = {s for s in batch.active if owners[s][0].dropped}
                self._report()
            try:
                batch.remove(gone)
                owners = {sentence: owners[sentence] for sentence in batch.active}
                if newcomers:
                    owners |= self._join(batch, newcomers)
                stepping = list(batch.active)
                if stepping:
                    batch.step()
                    self._deliver(number, stepping, owners)
            except Exception:  # each goes on alone, and fails alone
                log.exception("a decoding step failed: its sentences are translated one by one")
                batch = DecodingBatch(self.translator.model)
                for request, i in {*owners.values(), *newcomers}:
                    self._translate_alone(number, request, i)

    def _admit(self, number: int, batch: DecodingBatch) -> list[_RequestInput]:
        """The inputs that join the batch of a thread, which has as many as the others get."""
        waiting = sum(len(request.waiting) for request in self._turns)
        share = math.ceil((sum(self._active) + waiting) / len(self._active))
        room = MAX_HYPOTHESES - sum(s.options.width for s in batch.active)
        most_own = max(1, MAX_OWN // max(1, len(self._requests)))
        admitted: list[_RequestInput] = []
        passed = 0  # requests in turn that have enough under way
        while passed < len(self._turns) and len(batch.active) + len(admitted) < share:
            request = self._turns[0]
            width = request.job.options.width
            if width > room and (batch.active or admitted):
                break
            self._turns.rotate(-1)
            if request.running[number] >= most_own:
                passed += 1
                continue
            passed, room = 0, room - width
            admitted.append((request, request.waiting.popleft()))
            request.running[number] += 1
            if not request.waiting:
                self._turns.remove(request)
        return admitted

    def _join(
        self, batch: DecodingBatch, newcomers: list[_RequestInput]
    ) -> dict[SentenceSearch, _RequestInput]:
        inputs = [request.inputs[i] for request, i in newcomers]
        sentences = [
            SentenceSearch.begin(
                x.ids, _interned(request.job.options.of_search), x.prefix, x.constraints
            )
            for x, (request, _) in zip(inputs, newcomers, strict=True)
        ]
        batch.join(self.translator.pad_sources([x.ids for x in inputs]), sentences)
        return dict(zip(sentences, newcomers, strict=True))

    def _deliver(
        self,
        number: int,
        stepped: list[SentenceSearch],
        owners: dict[SentenceSearch, _RequestInput],
    ) -> None:
        """Pass on what a step has finished, and partial results to those who want them."""
        now = time.monotonic()
        for sentence in stepped:
            request, i = owners[sentence]
            if sentence.length == 1 and self.metrics is not None:
                constraints = request.inputs[i].constraints
                if constraints is None or not constraints.rounds:  # not a search that comes again
                    self.metrics.first_token(now - request.arrived)
            if not sentence.alive:
                self._finish(number, request, i, sentence.hypotheses())
            elif request.job.on_partial is not None:
                request.partials[i] = sentence.best_ids()
                if now >= request.next_partial:
                    request.next_partial = now + PARTIAL_SECONDS
                    with self._changed:
                        outputs = dict(request.outputs)
                    ids = request.partials | {i: o.hypotheses[0].ids for i, o in outputs.items()}
                    self._call(request, self._show_partial, request, ids)

    def _finish(self, number: int, request: _Request, i: int, hypotheses: list[Hypothesis]) -> None:
        if again := self.translator.place_terms([request.inputs[i]], [hypotheses]):
            return self._search_again(number, request, i, again[0])
        alignment = self._alignment(request, i, hypotheses[0])
        with self._changed:
            request.outputs[i] = Output(request.inputs[i], hypotheses, None, alignment)
            request.running[number] -= 1
            complete = len(request.outputs) == len(request.inputs)
            now = time.monotonic()
            seconds, self._last_finished = max(1e-3, now - self._last_finished), now
            self._rate += 0.02 * (min(1 / seconds, 1000) - self._rate)
        if self.metrics is not None:
            self.metrics.tokens(len(hypotheses[0].ids) + 1)
        if complete:
            self._call(request, _resolve, request.done, None)

    def _search_again(self, number: int, request: _Request, i: int, placed: Input) -> None:
        with self._changed:
            request.running[number] -= 1
            if request.dropped:
                return
            request.inputs[i] = placed
            request.waiting.appendleft(i)
            if request not in self._turns:
                self._turns.append(request)
            self._changed.notify_all()

    def _alignment(self, request: _Request, i: int, best: Hypothesis) -> Tensor | None:
        """[T, S] of an input and its best output; all of the attention would take much memory."""
        if not request.job.options.attention:
            return None
        rows = [request.inputs[i]], [best.ids]
        aligner = self.translator.aligner
        (alignment,) = self.translator.attend(
            *rows, 1, lambda _, __, weights: soft_alignment(weights, aligner)
        )
        return alignment

    def _translate_alone(self, number: int, request: _Request, i: int) -> None:
        if request.dropped or i in request.outputs:
            return
        x = request.inputs[i]
        try:
            (hypotheses,) = self.translator.search(
                [x.ids], request.job.options.of_search, [x.prefix], [x.constraints]
            )
            self._finish(number, request, i, hypotheses)
        except Exception as error:
            self._call(request, _resolve, request.done, error)

    # In the event loop again

    def _call(self, request: _Request, function: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            request.loop.call_soon_threadsafe(function, *arguments)

    def _show_partial(self, request: _Request, ids: dict[int, list[int]]) -> None:
        """Call ``on_partial`` with each text of which a sentence has ``ids``, finished or not."""
        if request.dropped or request.job.on_partial is None:
            return
        texts = dict(zip(ids, self.translator.texts(list(ids.values())), strict=True))
        numbers, counts = itertools.count(), iter(request.counts)
        for k, (lines, breaks) in enumerate(zip(request.lines, request.breaks, strict=True)):
            numbers_of_lines = [[next(numbers) for _ in range(next(counts))] for _ in lines]
            if any(i in texts for line in numbers_of_lines for i in line):
                rows = [
                    self._partial(request, inputs, texts) if inputs else unchanged(line)
                    for line, inputs in zip(lines, numbers_of_lines, strict=True)
                ]
                text = "".join(map("".join, zip(rows, (*breaks, ""), strict=True)))
                request.job.on_partial(k, text.rstrip())

    @staticmethod
    def _partial(request: _Request, inputs: list[int], texts: dict[int, str]) -> str:
        """What has come of a line, with the layout of its inputs."""
        come = [i for i in inputs if i in texts]
        befores = [
            request.inputs[i].before if i == inputs[0] or n else "" for n, i in enumerate(come)
        ]
        return "".join(before + texts[i] for before, i in zip(befores, come, strict=True))

    def _report(self) -> None:
        if self.metrics is not None:
            self.metrics.queue_depth(sum(len(request.waiting) for request in self._turns))
            self.metrics.batch(sum(self._active))


def _give_way() -> None:
    """Let the thread that answers go before this one, where threads have priorities (Linux)."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    # Whoever started the server with a lower priority than this wants that one.
    if os.getpriority(os.PRIO_PROCESS, thread) < NICENESS:
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)


def _resolve(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if not done.done():
        done.set_result(None) if error is None else done.set_exception(error)
