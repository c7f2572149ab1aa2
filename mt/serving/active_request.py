"""A request that the engine works on: its inputs, their outputs, and the texts made of these."""

import asyncio
import itertools
import time
from collections import deque
from dataclasses import dataclass, field

from mt.inference.inputs import Input, split_lines
from mt.inference.outputs import Output, unchanged
from mt.inference.translator import Translator
from mt.serving.engine import DeadlineExceeded, Job, TextTranslation

PLANNED = 10  # lines at once: between them planning may be out of time


@dataclass(eq=False)
class ActiveRequest:
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

    def translations(self, translator: Translator) -> list[TextTranslation]:
        """The translations of the texts, when all inputs have an output."""
        rows = (self.outputs[i] for i in range(len(self.inputs)))
        counts = iter(self.counts)
        return [
            TextTranslation(
                tuple(
                    translator.join(line, list(itertools.islice(rows, next(counts))))
                    for line in lines
                ),
                breaks,
            )
            for lines, breaks in zip(self.lines, self.breaks, strict=True)
        ]

    def show_partial(self, translator: Translator, ids: dict[int, list[int]]) -> None:
        """Call ``on_partial`` with what has come of each text; ``ids`` are the outputs of inputs.

        An input that is not finished has the best ids up to now.
        """
        if self.dropped or self.job.on_partial is None:
            return
        texts = dict(zip(ids, translator.texts(list(ids.values())), strict=True))
        numbers, counts = itertools.count(), iter(self.counts)
        for k, (lines, breaks) in enumerate(zip(self.lines, self.breaks, strict=True)):
            numbers_of_lines = [[next(numbers) for _ in range(next(counts))] for _ in lines]
            if any(i in texts for line in numbers_of_lines for i in line):
                rows = [
                    self._partial(inputs, texts) if inputs else unchanged(line)
                    for line, inputs in zip(lines, numbers_of_lines, strict=True)
                ]
                text = "".join(map("".join, zip(rows, (*breaks, ""), strict=True)))
                self.job.on_partial(k, text.rstrip())

    def _partial(self, inputs: list[int], texts: dict[int, str]) -> str:
        """What has come of a line, with the layout of its inputs."""
        come = [i for i in inputs if i in texts]
        befores = [self.inputs[i].before if i == inputs[0] or n else "" for n, i in enumerate(come)]
        return "".join(before + texts[i] for before, i in zip(befores, come, strict=True))


def plan_request(
    translator: Translator,
    job: Job,
    loop: asyncio.AbstractEventLoop,
    deadline: float,
    max_prefix: float,
) -> ActiveRequest:
    """The inputs of a job. ``deadline`` is of ``time.monotonic``, ``max_prefix`` counts tokens.

    Raises DeadlineExceeded, and ValueError for options that do not go together.
    """
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
        plan += translator.plan(all_lines[part], part_prefixes, job.split, job.terms)
    inputs = list(itertools.chain.from_iterable(plan))
    wanted = job.terms is not None and (job.terms.glossary or job.terms.forbidden)
    if wanted or any(x.terms for x in inputs):
        job.options.check_terms()
    longest = max((len(x.prefix) for x in inputs), default=0)
    if longest > max_prefix:
        message = f"a prefix of {longest:,} tokens is too long: give at most"
        raise ValueError(f"{message} {max_prefix:,}")
    waiting = deque(range(len(inputs)))
    counts, running = list(map(len, plan)), [0] * translator.workers
    now, done = time.monotonic(), loop.create_future()
    return ActiveRequest(
        job, loop, done, list(lines), list(breaks), inputs, counts, waiting, now, running
    )
