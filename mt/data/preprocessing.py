"""Which sentence pairs are used, what is dropped, and their ids on disk.

``prepare`` cleans and tokenises a split of a source once, into an Arrow file that is
memory-mapped from then on.
"""

import hashlib
import itertools
import json
import logging
import os
import shutil
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import filelock
import numpy as np
import pyarrow as pa
from datasets.arrow_writer import ArrowWriter
from tqdm import tqdm

from mt.data.readers import CorpusReader, Pair
from mt.data.tokenizer import Tokenizer

log = logging.getLogger("mt")

SECONDS_BETWEEN_LINES = 20.0  # where there is no terminal for a bar
Ids = list[list[int]]
_FORMAT = 2  # raised when prepared files of older versions must not be reused


def check_limit(limit: int | None, name: str = "limit") -> None:
    """ValueError when it is neither null nor a number of pairs."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"{name}={limit!r}: must be null or a whole number of at least 1")


class Empty(ValueError):
    """There is nothing in a corpus."""


def first(pairs: Iterable[Pair], limit: int | None) -> Iterator[Pair]:
    """At most ``limit`` pairs from the front. Raises Empty when there is none at all."""
    check_limit(limit)
    some = False
    for pair in itertools.islice(pairs, limit):
        some = True
        yield pair
    if not some:
        raise Empty("the corpus is empty: it holds no sentence pairs")


class DuplicateFilter:
    """Which pairs came before, known by 8 bytes each: two pairs of one hash are taken for equal,
    which among a hundred million happens to one in about 4,000 corpora."""

    def __init__(self) -> None:
        self.sorted = array("Q")
        self.recent: set[int] = set()

    def add(self, pair: Pair) -> bool:
        """Whether it is new; from now on it is not."""
        text = "\n".join(pair).encode("utf-8", "replace")
        key = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        place = bisect_left(self.sorted, key)
        if key in self.recent or self.sorted[place : place + 1] == array("Q", [key]):
            return False
        self.recent.add(key)
        if len(self.recent) > max(2**16, len(self.sorted) // 16):  # few merges, little in the set
            merged = np.concatenate((self.sorted, np.fromiter(self.recent, np.uint64)))
            merged.sort()
            self.sorted = array("Q", merged.tobytes())
            self.recent.clear()
        return True


@dataclass(frozen=True)
class PairFilter:
    """Which pairs to drop; each rule can be turned off by false or null. Lengths are in tokens."""

    empty: bool = True  # a side without text
    max_length: int | None = 256  # a side longer than this
    max_ratio: float | None = None  # the longer side over the shorter one, more than this
    identical: bool = False  # both sides the same text
    duplicates: bool = False  # a pair that came before

    def __post_init__(self) -> None:
        for name in ("empty", "identical", "duplicates"):
            value = getattr(self, name)
            if not isinstance(value, bool | None):
                raise ValueError(f"{name}={value!r}: must be true, false or null")
        for name in ("max_length", "max_ratio"):
            value = getattr(self, name)
            kinds = int if name == "max_length" else int | float
            number = isinstance(value, kinds) and not isinstance(value, bool)
            if value is not None and (not number or not value >= 1):
                kind = "a whole number" if name == "max_length" else "a number"
                raise ValueError(f"{name}={value!r}: must be null or {kind} of at least 1")

    def reasons(self) -> dict[str, int]:
        """A count of zero for each reason, in the order in which the rules are applied."""
        return dict.fromkeys(("empty", "identical", "max_length", "max_ratio", "duplicates"), 0)

    def reject_reason(
        self, pair: Pair, lengths: tuple[int, int], seen: DuplicateFilter
    ) -> str | None:
        """The reason to drop a pair, or None to keep it, which puts it among the ``seen``."""
        short, long = sorted(lengths)
        if self.empty and short == 0:
            return "empty"
        if self.identical and pair[0].strip() == pair[1].strip():
            return "identical"
        if self.max_length is not None and long > self.max_length:
            return "max_length"
        if self.max_ratio is not None and long > self.max_ratio * max(short, 1):
            return "max_ratio"
        if self.duplicates and not seen.add(pair):
            return "duplicates"
        return None


class PreparedCorpus:
    """Ids of a cleaned split in a memory-mapped Arrow file, without special ids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.report: dict[str, Any] = json.loads((folder / "report.json").read_text())
        self._rows = datasets.Dataset.from_file(str(folder / "pairs.arrow")).with_format("arrow")

    def __len__(self) -> int:
        return len(self._rows)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of each source and target, one added for eos.

        From a file of their own: to read them off the ids would bring all of those into memory.
        """
        src, tgt = np.load(self._folder / "lengths.npy").astype(np.int32) + 1
        return src, tgt

    def fetch(self, indices: list[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Source and target ids of some pairs."""
        table: pa.Table = self._rows[indices]
        src, tgt = (
            [row.values.to_numpy() for chunk in table.column(name).chunks for row in chunk]
            for name in ("src", "tgt")
        )
        return src, tgt


def prepare(
    source: CorpusReader,
    split: str,
    tokenizer: Tokenizer,
    cleaning: PairFilter,
    cache_dir: str | os.PathLike[str],
    limit: int | None = None,
) -> PreparedCorpus:
    """Clean and tokenise a split, or open it where this has been done before.

    The cache knows a prepared corpus by its source, tokenizer, rules and limit; it appears whole
    or not at all. Of several processes one prepares and the others wait for it. Raises ValueError
    when no pair is left, and what the source raises.
    """
    what = [_FORMAT, source.identity(split), asdict(cleaning), limit, split]
    key = hashlib.sha256(json.dumps(what).encode() + tokenizer.proto).hexdigest()[:20]
    folder = Path(cache_dir).expanduser() / f"{split}-{key}"
    if not _is_prepared(folder):
        with file_lock(folder, cache_dir):
            if not _is_prepared(folder):
                _prepare(folder, first(source.pairs(split), limit), split, tokenizer, cleaning)
    return PreparedCorpus(folder)


def _is_prepared(folder: Path) -> bool:
    return (folder / "report.json").is_file()


@contextmanager
def file_lock(path: Path, cache_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Be the only process to make a file or folder: a lock in the cache, which falls with it."""
    cache = Path(cache_dir).expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(cache / f".{path.name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        log.info(f"waiting for another process, which is making {path}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _prepare(
    folder: Path, pairs: Iterator[Pair], split: str, tokenizer: Tokenizer, cleaning: PairFilter
) -> None:
    partial = folder.with_name(f".{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    partial.mkdir()
    try:
        _write(partial, pairs, split, tokenizer, cleaning)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(
    folder: Path, pairs: Iterator[Pair], split: str, tokenizer: Tokenizer, cleaning: PairFilter
) -> None:
    id_type = datasets.Value("uint16" if tokenizer.vocab_size <= 2**16 else "int32")
    features = datasets.Features({"src": [id_type], "tgt": [id_type]})
    dropped = cleaning.reasons()
    read = kept = 0
    seen = DuplicateFilter()
    lengths = []
    said = time.monotonic()
    with (
        ArrowWriter(path=str(folder / "pairs.arrow"), features=features) as writer,
        tqdm(desc=f"preparing {split}", unit=" pairs", disable=None) as bar,
    ):
        for block, src, tgt in _encoded(pairs, tokenizer):
            keep = []
            for i, pair in enumerate(block):
                reason = cleaning.reject_reason(pair, (len(src[i]), len(tgt[i])), seen)
                if reason is None:
                    keep.append(i)
                else:
                    dropped[reason] += 1
            if keep:
                rows = {"src": [src[i] for i in keep], "tgt": [tgt[i] for i in keep]}
                writer.write_batch(rows)
                lengths.append(
                    np.array([[len(row) for row in side] for side in rows.values()], np.int32)
                )
            read, kept = read + len(block), kept + len(keep)
            bar.update(len(block))
            if bar.disable and time.monotonic() > said + SECONDS_BETWEEN_LINES:
                log.info(f"preparing {split}: {read:,} pairs read")
                said = time.monotonic()
        report = {"split": split, "read": read, "kept": kept, "dropped": dropped}
        if not kept:
            raise ValueError(f"no pair is left after cleaning\n{table(report)}")
        writer.finalize()
    sides = np.concatenate(lengths, axis=1)
    small = np.uint16 if sides.max() < 2**16 else np.int32
    np.save(folder / "lengths.npy", sides.astype(small))
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")


def _encoded(pairs: Iterator[Pair], tokenizer: Tokenizer) -> Iterator[tuple[list[Pair], Ids, Ids]]:
    """Pairs in blocks, in their order, with the ids of both sides.

    SentencePiece works on the next blocks, on all cores, while the last one is used.
    """

    def encode(block: list[Pair]) -> tuple[list[Pair], Ids, Ids]:
        src, tgt = zip(*block, strict=True)
        return block, tokenizer.encode(list(src)), tokenizer.encode_target(list(tgt))

    with ThreadPoolExecutor(2) as pool:
        ahead: deque[Future[tuple[list[Pair], Ids, Ids]]] = deque()
        while block := list(itertools.islice(pairs, 10_000)):
            ahead.append(pool.submit(encode, block))
            if len(ahead) > 2:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def table(report: dict[str, Any]) -> str:
    """What became of the pairs of a split, for people."""
    rows = [("pairs read", report["read"])]
    rows += [(f"dropped: {reason}", count) for reason, count in report["dropped"].items()]
    rows += [("kept", report["kept"])]
    lines = [f"  {name:<20} {count:>12,}" for name, count in rows]
    return "\n".join([f"{report['split']}:", *lines])


def texts(
    source: CorpusReader, split: str, limit: int | None = None
) -> tuple[list[str], list[str]]:
    """All source and all target sentences of a split as they are, for translating and scoring."""
    pairs = list(first(source.pairs(split), limit))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
