"""The engine: answers as offline, whoever else is there; limits, cancelling, failures, draining."""

import asyncio
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from conftest import PAIRS

from mt.inference.glossary import Glossary
from mt.inference.options import SearchOptions
from mt.inference.terms import TermRules
from mt.inference.translator import Translator
from mt.serving import active_request, continuous_batching
from mt.serving.continuous_batching import ContinuousBatching
from mt.serving.engine import DeadlineExceeded, Job, Overloaded, TextTranslation

T = TypeVar("T")
ENGLISH = [english for english, _ in PAIRS]
LONG = " ".join(ENGLISH)  # 36 sentences

OPTIONS = [
    SearchOptions(),
    SearchOptions(beam_size=1),
    SearchOptions(beam_size=1, max_length=3),
    SearchOptions(beam_size=5, n_best=5, alpha=0),
    SearchOptions(beam_size=2, min_length=30, max_length=60, no_repeat_ngram=2),
    SearchOptions(beam_size=3, repetition_penalty=1.5),
    SearchOptions(samples=3, n_best=3, seed=5, temperature=0.7, top_k=20),
    SearchOptions(samples=2, top_p=0.8),
    SearchOptions(alternatives=4, n_best=4),
    SearchOptions(beam_size=4, mbr=True, n_best=2),
    SearchOptions(attention=True),
]


@pytest.fixture(params=[1, 2])
def translator(request: pytest.FixtureRequest, model_folder: Path) -> Translator:
    return Translator.load(model_folder, device="cpu", workers=request.param)


@pytest.fixture
def one_thread(model_folder: Path) -> Translator:
    return Translator.load(model_folder, device="cpu", workers=1)


def run(engine: ContinuousBatching, talk: Callable[[], Awaitable[T]]) -> T:
    """Call ``talk`` while the engine works, then drain it."""

    async def main() -> T:
        engine.start()
        try:
            return await talk()
        finally:
            await engine.stop()

    return asyncio.run(asyncio.wait_for(main(), 60))


def assert_equal(answer: TextTranslation, translator: Translator, job: Job) -> None:
    """The answer is what the translator gives for the only line of the job."""
    prefixes = list(job.prefixes) or None
    (wanted,) = translator.translate(
        list(job.texts), job.options, prefixes=prefixes, split=job.split
    )
    (line,) = answer.lines
    assert answer.text == wanted.text
    assert [text for text, _ in answer.n_best] == [text for text, _ in wanted.n_best]
    for (_, score), (_, exact) in zip(answer.n_best, wanted.n_best, strict=True):
        assert score == pytest.approx(exact, abs=1e-4)
    assert answer.tokens == wanted.tokens
    for part, exact_part in zip(line.parts, wanted.parts, strict=True):
        assert part.output == exact_part.output
        assert part.log_probs == pytest.approx(exact_part.log_probs, abs=1e-4)
        assert part.attention is None  # it would take much memory
        assert (part.alignment is None) == (exact_part.alignment is None)
        if part.alignment is not None:
            assert part.alignment.shape == exact_part.alignment.shape
            assert float((part.alignment - exact_part.alignment).abs().max()) < 1e-4


def test_answers_are_those_of_the_translator_whoever_else_is_there(translator: Translator) -> None:
    """Requests of all kinds come at random times, and some go away."""
    rng = random.Random(0)
    jobs = [
        Job(
            [" ".join(rng.choices(ENGLISH, k=rng.choice([1, 1, 2, 5])))],
            rng.choice(OPTIONS),
            split=rng.random() < 0.7,
            prefixes=[rng.choice(["", "Der Bär", "Mein Freund trägt"])] * rng.randint(0, 1),
        )
        for _ in range(80)
    ]
    engine = ContinuousBatching(translator)

    async def client(job: Job, delay: float, leaves: bool) -> TextTranslation | None:
        await asyncio.sleep(delay)
        task = asyncio.ensure_future(engine.translate(job, 60))
        if leaves:
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        return (await task)[0]

    async def talk() -> list[TextTranslation | None]:
        clients = [client(job, rng.random(), rng.random() < 0.2) for job in jobs]
        return await asyncio.gather(*clients)

    answers = run(engine, talk)
    assert sum(answer is None for answer in answers) > 5
    for job, answer in zip(jobs, answers, strict=True):
        if answer is not None:
            assert_equal(answer, translator, job)


def test_texts_keep_their_lines(one_thread: Translator) -> None:
    texts = ["", f"{ENGLISH[0]}\n\n{ENGLISH[1]} {ENGLISH[2]}\r\n", "  ", ENGLISH[3]]
    engine = ContinuousBatching(one_thread)
    answers = run(engine, lambda: engine.translate(Job(texts, SearchOptions()), 60))
    assert [answer.text for answer in answers] == [one_thread.translate_text(t) for t in texts]
    assert answers[0].lines[0].parts == ()
    assert answers[1].breaks == ("\n", "\n", "\r\n")
    assert (
        run(ContinuousBatching(one_thread), lambda: engine.translate(Job([], OPTIONS[0]), 1)) == []
    )


def test_a_text_grows_in_partial_results(
    one_thread: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous_batching, "PARTIAL_SECONDS", 0.0)
    seen: list[tuple[int, str]] = []
    job = Job(
        [ENGLISH[0], f"{ENGLISH[1]} {ENGLISH[2]}"],
        SearchOptions(beam_size=1),
        on_partial=lambda index, text: seen.append((index, text)),
    )
    engine = ContinuousBatching(one_thread)
    answers = run(engine, lambda: engine.translate(job, 60))
    for index, answer in enumerate(answers):
        texts = [text for i, text in seen if i == index]
        assert len(texts) > 3
        # Greedy search takes nothing back.
        first = answer.lines[0].parts[0]
        assert all(answer.text.startswith(t[:5]) for t in texts if len(first.output) > 5)


def test_lines_that_stay_as_they_are_are_in_partial_results(
    one_thread: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous_batching, "PARTIAL_SECONDS", 0.0)
    seen: list[str] = []
    job = Job(
        [f"https://example.org/a\n{ENGLISH[0]}"],
        SearchOptions(beam_size=2),
        on_partial=lambda _, text: seen.append(text),
        terms=TermRules(keep=True),
    )
    engine = ContinuousBatching(one_thread)
    (answer,) = run(engine, lambda: engine.translate(job, 60))
    for text in (*seen, answer.text):
        assert text.startswith("https://example.org/a")
    assert len(seen) > 3


def test_a_full_server_plans_nothing(one_thread: Translator) -> None:
    engine = ContinuousBatching(one_thread, max_requests=0)
    with pytest.raises(Overloaded):
        run(engine, lambda: engine.translate(Job(["A house."], SearchOptions()), 60))


def test_a_long_text_does_not_hold_up_a_short_one(one_thread: Translator) -> None:
    engine = ContinuousBatching(one_thread)
    order: list[str] = []

    async def client(name: str, text: str) -> None:
        await engine.translate(Job([text], SearchOptions()), 60)
        order.append(name)

    async def talk() -> None:
        long = asyncio.ensure_future(client("long", LONG * 3))
        await asyncio.sleep(0.1)
        await asyncio.gather(*(client("short", text) for text in ENGLISH[:5]))
        await long

    run(engine, talk)
    assert order == ["short"] * 5 + ["long"]


class Watched:
    """The engine's metrics, as a test sees them."""

    def __init__(self) -> None:
        self.queue: list[int] = []
        self.batches: list[int] = []
        self.first: list[float] = []
        self.count = 0

    def queue_depth(self, sentences: int) -> None:
        self.queue.append(sentences)

    def batch(self, sentences: int) -> None:
        self.batches.append(sentences)

    def first_token(self, seconds: float) -> None:
        self.first.append(seconds)

    def tokens(self, count: int) -> None:
        self.count += count


def test_metrics_count_what_happens(translator: Translator) -> None:
    metrics = Watched()
    engine = ContinuousBatching(translator, metrics)
    (answer,) = run(engine, lambda: engine.translate(Job([LONG], SearchOptions()), 60))
    assert metrics.count == answer.tokens
    assert len(metrics.first) == 36
    assert max(metrics.queue) == 36
    assert metrics.queue[-1] == 0
    most = continuous_batching.MAX_OWN * translator.workers
    assert most // 2 < max(metrics.batches) <= most


@pytest.mark.parametrize("leaving", ["cancel", "deadline"])
def test_work_stops_when_nobody_waits_for_it(translator: Translator, leaving: str) -> None:
    metrics = Watched()
    engine = ContinuousBatching(translator, metrics)
    job = Job([LONG * 5], SearchOptions(min_length=200, max_length=200))

    async def talk() -> None:
        if leaving == "deadline":
            with pytest.raises(DeadlineExceeded, match=r"longer than 0\.3 s"):
                await engine.translate(job, 0.3)
        else:
            task = asyncio.ensure_future(engine.translate(job, 60))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        begun = len(metrics.first)
        for _ in range(500):  # ten seconds, for a machine with other work; a step takes far less
            await asyncio.sleep(0.02)
            if sum(engine._active) == 0:
                break
        assert sum(engine._active) == 0
        assert len(metrics.first) <= begun + translator.workers * continuous_batching.MAX_OWN
        (answer,) = await engine.translate(Job([ENGLISH[0]], SearchOptions()), 60)
        assert_equal(answer, translator, Job([ENGLISH[0]], SearchOptions()))

    run(engine, talk)
    assert len(metrics.first) < 180


def test_a_full_queue_says_when_to_come_again(one_thread: Translator) -> None:
    engine = ContinuousBatching(one_thread, max_sentences=50, max_requests=3)
    slow = SearchOptions(min_length=100, max_length=100)

    async def talk() -> None:
        # A request that alone is larger than the queue is served when nobody else waits.
        tasks = [asyncio.ensure_future(engine.translate(Job([LONG * 2], slow), 60))]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded, match=r"try again in [0-9]+ s") as error:
            await engine.translate(Job([LONG], slow), 60)
        assert 1 <= error.value.retry_after <= 60
        # A short one does not wait for all of it.
        (answer,) = await engine.translate(Job([ENGLISH[0]], SearchOptions()), 60)
        assert_equal(answer, one_thread, Job([ENGLISH[0]], SearchOptions()))
        assert not tasks[0].done()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tasks = [asyncio.ensure_future(engine.translate(Job(["A"], slow), 60)) for _ in range(4)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, Overloaded) for result in results] == [False] * 3 + [True]

    run(engine, talk)


def test_a_sentence_that_fails_fails_alone(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model breaks whenever a certain sentence is in its batch."""
    (poison,) = translator.tokenizer.encode([ENGLISH[7]])
    begin, step = translator.model.start, translator.model.step

    def start(src: Any) -> Any:
        state = begin(src)
        rows = [row[: len(poison)] for row in src.tolist()]
        state.poisoned, state.poisoned_steps = poison in rows, 0
        join = state.join

        def joined(other: Any) -> None:
            state.poisoned |= other.poisoned
            join(other)

        state.join = joined
        return state

    def broken(tokens: Any, state: Any, parents: Any = None) -> Any:
        state.poisoned_steps += state.poisoned
        if state.poisoned_steps > 3:
            raise RuntimeError("the kernel failed")
        return step(tokens, state, parents)

    jobs = [Job([text], SearchOptions()) for text in ENGLISH[:12]]
    wanted = [translator.translate([text])[0].text for text in ENGLISH[:12]]
    engine = ContinuousBatching(translator)
    monkeypatch.setattr(translator.model, "start", start)
    monkeypatch.setattr(translator.model, "step", broken)

    async def talk() -> list[Any]:
        tasks = [engine.translate(job, 60) for job in jobs]
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = run(engine, talk)
    for i, (result, text) in enumerate(zip(results, wanted, strict=True)):
        if i == 7:
            assert isinstance(result, RuntimeError)
        else:
            assert result[0].text == text


def test_a_drained_engine_finishes_and_takes_nothing_more(translator: Translator) -> None:
    engine = ContinuousBatching(translator)

    async def talk() -> None:
        tasks = [asyncio.ensure_future(engine.translate(Job([t], OPTIONS[0]), 60)) for t in ENGLISH]
        await asyncio.sleep(0.01)
        stopping = asyncio.ensure_future(engine.stop())
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await engine.translate(Job([ENGLISH[0]], OPTIONS[0]), 60)
        answers = await asyncio.gather(*tasks)
        await stopping
        assert len(answers) == len(ENGLISH)
        assert not any(thread.is_alive() for thread in engine._threads)

    run(engine, talk)


def test_idle_threads_do_not_turn(translator: Translator) -> None:
    """They wait also while another thread has all that a request may have under way."""
    engine = ContinuousBatching(translator)

    async def talk() -> float:
        await engine.translate(Job([ENGLISH[0]], OPTIONS[0]), 60)
        start = time.process_time()
        await asyncio.sleep(0.3)
        return time.process_time() - start

    assert run(engine, talk) < 0.1


def test_equal_options_are_one_object() -> None:
    one, other = replace(OPTIONS[3]), replace(OPTIONS[3])
    assert one is not other
    assert continuous_batching._interned(one) is continuous_batching._interned(other)


def test_a_prefix_is_no_longer_than_an_output_may_be(one_thread: Translator) -> None:
    engine = ContinuousBatching(one_thread, max_prefix=4)

    def job(prefix: str) -> Job:
        return Job([ENGLISH[0]], SearchOptions(), prefixes=[prefix])

    async def talk() -> None:
        with pytest.raises(ValueError, match=r"a prefix of \d+ tokens is too long: give at most 4"):
            await engine.translate(job("Der Bär " * 5), 60)
        await engine.translate(job("Der"), 60)

    run(engine, talk)


def test_terms_of_samples_are_refused_before_they_join_others(one_thread: Translator) -> None:
    engine = ContinuousBatching(one_thread)
    terms = TermRules(Glossary([("bear", ["Bärin"])]))

    async def talk() -> None:
        with pytest.raises(ValueError, match="terms need beam search"):
            await engine.translate(Job(["The bear."], SearchOptions(samples=2), terms=terms), 60)
        assert not engine._requests

    run(engine, talk)


def test_a_glossary_holds_nobody_up(
    one_thread: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terms are looked up in a thread, and no longer than the request may take."""
    plan = Translator.plan
    threads: list[str] = []

    def slow(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        time.sleep(0.1)
        return plan(*arguments)

    monkeypatch.setattr(Translator, "plan", slow)
    monkeypatch.setattr(active_request, "PLANNED", 1)
    engine = ContinuousBatching(one_thread)
    terms = TermRules(Glossary([("bear", ["Bärin"])]))

    async def talk() -> None:
        with pytest.raises(DeadlineExceeded):
            await engine.translate(Job(["\n".join(ENGLISH)], SearchOptions(), terms=terms), 0.3)

    run(engine, talk)
    assert threading.main_thread().name not in threads
    assert len(threads) < len(ENGLISH) - 10


def test_what_is_kept_is_looked_for_in_the_best_by_risk_as_offline(everyday: Translator) -> None:
    terms, options = TermRules(keep=True), SearchOptions(beam_size=4, mbr=True)
    texts = ["The top-10 list has 110 entries.", 'He said: "./stone.txt" is twelve years old.']
    wanted = [result.text for result in everyday.translate(texts, options, terms=terms)]
    engine = ContinuousBatching(everyday)

    async def talk() -> list[str]:
        answers = await asyncio.gather(
            *(engine.translate(Job([text], options, terms=terms), 60) for text in texts)
        )
        return [answer.text for (answer,) in answers]

    assert run(engine, talk) == wanted


def test_a_term_takes_its_place_as_offline(everyday: Translator) -> None:
    """Its sentence is searched again, beside those that are under way."""
    terms = TermRules(Glossary([("house", ["Gebäude"]), ("doctor", ["Mediziner"])]))
    texts = ["The house is big.", "My doctor is ill.", "Where do you live?"]
    wanted = [result.text for result in everyday.translate(texts, terms=terms)]
    assert wanted[:2] == ["Das Gebäude ist groß.", "Mein Mediziner ist krank."]

    async def talk() -> list[str]:
        answers = await asyncio.gather(
            *(engine.translate(Job([text], SearchOptions(), terms=terms), 60) for text in texts)
        )
        assert not engine._requests
        assert not engine._turns
        return [answer.text for (answer,) in answers]

    metrics = Watched()
    engine = ContinuousBatching(everyday, metrics)
    assert run(engine, talk) == wanted
    assert len(metrics.first) == len(texts)  # a second search is no second arrival


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux alone")
@pytest.mark.parametrize("given", [0, 19])
def test_a_decoding_thread_gives_way_and_never_rises(given: int) -> None:
    """Without privileges a thread may not raise its priority."""

    def begin() -> int:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, before)
        continuous_batching._give_way()
        return os.getpriority(os.PRIO_PROCESS, thread)

    before = max(given, os.getpriority(os.PRIO_PROCESS, 0))
    with ThreadPoolExecutor(1) as pool:  # a thread of its own, which ends
        assert pool.submit(begin).result() == max(before, continuous_batching.NICENESS)
