"""What the server counts and measures, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one server. The engine calls the first four methods, from any thread."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._queue = Gauge("mt_queue_sentences", "Sentences that wait", registry=registry)
        self._batch = Gauge(
            "mt_batch_sentences", "Sentences that are translated now", registry=registry
        )
        self._first_token = Histogram(
            "mt_time_to_first_token_seconds", "From a sentence's arrival to its first token",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._tokens = Counter("mt_tokens", "Tokens produced, eos counted", registry=registry)
        self._requests = Counter(
            "mt_requests", "Answered requests", ["interface", "status"], registry=registry
        )
        self._seconds = Histogram(
            "mt_request_seconds", "From a request's headers to the end of its answer",
            ["interface"], buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._rejections = Counter(
            "mt_rejections", "Requests that were not served", ["reason"], registry=registry
        )

    def queue_depth(self, sentences: int) -> None:
        self._queue.set(sentences)

    def batch(self, sentences: int) -> None:
        self._batch.set(sentences)

    def first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def tokens(self, count: int) -> None:
        self._tokens.inc(count)

    def request(self, interface: str, status: int, seconds: float) -> None:
        self._requests.labels(interface, str(status)).inc()
        self._seconds.labels(interface).observe(seconds)

    def rejection(self, reason: str) -> None:
        self._rejections.labels(reason).inc()

    def text(self) -> bytes:
        """All of them in Prometheus's text format."""
        return generate_latest(self.registry)
