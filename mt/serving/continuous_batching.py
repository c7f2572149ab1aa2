"""The engine of ``mt.serve``: a running search that sentences join and leave between two steps.

A request becomes inputs, the sentences of its texts, which wait in the request's own queue.
Requests take turns, and one has only so many sentences under way, so that a long text does not
hold up a short one. In float32 a translation does not depend on the others of its batch.
"""

import asyncio
import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol

import torch
from torch import Tensor

from mt.inference.alignment import soft_alignment
from mt.inference.beam_search import DecodingBatch
from mt.inference.inputs import Input
from mt.inference.options import SearchOptions
from mt.inference.outputs import Output
from mt.inference.sentence_search import Hypothesis, SentenceSearch
from mt.inference.translator import Translator
from mt.serving.active_request import ActiveRequest, plan_request
from mt.serving.engine import DeadlineExceeded, Job, Overloaded, TextTranslation

log = logging.getLogger(__name__)

MAX_HYPOTHESES = 256  # of a running batch: 64 sentences with a beam of 4
MAX_OWN = 8  # sentences of one request under way in a thread, fewer when there are other requests
PARTIAL_SECONDS = 0.05  # from one partial result of a request to the next
NICENESS = 5  # of the threads that decode, else a health check waits for them when all cores work
MAX_INLINE = 2000  # characters whose tokens are computed in the event loop


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


_RequestInput = tuple[ActiveRequest, int]  # an input of a request


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
        self._requests: set[ActiveRequest] = set()
        self._turns: deque[ActiveRequest] = deque()  # those with inputs that wait
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
        loop = asyncio.get_running_loop()
        plan = partial(plan_request, self.translator, job, loop, deadline, self.max_prefix)
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
        if job.options.attention:  # others want to be answered meanwhile
            return await asyncio.to_thread(request.translations, self.translator)
        return request.translations(self.translator)

    def _accept(self, request: ActiveRequest) -> None:
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

    def _drop(self, request: ActiveRequest) -> None:
        """Forget a request, finished or not: its sentences leave their batches at the next step."""
        with self._changed:
            request.dropped = True
            request.waiting.clear()
            self._requests.discard(request)
            if request in self._turns:
                self._turns.remove(request)
            self._report()
            self._changed.notify_all()

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
        """Pass on what a step has finished, and partial results to requests that want them."""
        now = time.monotonic()
        for sentence in stepped:
            request, i = owners[sentence]
            is_first = sentence.length == 1 and request.inputs[i].attempt == 0
            if is_first and self.metrics is not None:
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
                    self._call(request, request.show_partial, self.translator, ids)

    def _finish(
        self, number: int, request: ActiveRequest, i: int, hypotheses: list[Hypothesis]
    ) -> None:
        if request.job.options.mbr:
            hypotheses = self.translator.by_risk(hypotheses, request.job.options)
        if again := self.translator.search_again([request.inputs[i]], [hypotheses]):
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

    def _search_again(self, number: int, request: ActiveRequest, i: int, placed: Input) -> None:
        with self._changed:
            request.running[number] -= 1
            if request.dropped:
                return
            request.inputs[i] = placed
            request.waiting.appendleft(i)
            if request not in self._turns:
                self._turns.append(request)
            self._changed.notify_all()

    def _alignment(self, request: ActiveRequest, i: int, best: Hypothesis) -> Tensor | None:
        """[T, S] of an input and its best output; all of the attention would take much memory."""
        if not request.job.options.attention:
            return None
        rows = [request.inputs[i]], [best.ids]
        aligner = self.translator.aligner
        (alignment,) = self.translator.attend(
            *rows, 1, lambda _, __, weights: soft_alignment(weights, aligner)
        )
        return alignment

    def _translate_alone(self, number: int, request: ActiveRequest, i: int) -> None:
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

    def _call(
        self, request: ActiveRequest, function: Callable[..., object], *arguments: Any
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            request.loop.call_soon_threadsafe(function, *arguments)

    def _report(self) -> None:
        if self.metrics is not None:
            self.metrics.queue_depth(sum(len(request.waiting) for request in self._turns))
            self.metrics.batch(sum(self._active))


def _give_way() -> None:
    """Let the thread that answers go before this one, where threads have priorities (Linux)."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    # A server that was started with a lower priority than this keeps it.
    if os.getpriority(os.PRIO_PROCESS, thread) < NICENESS:
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)


def _resolve(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if not done.done():
        done.set_result(None) if error is None else done.set_exception(error)
