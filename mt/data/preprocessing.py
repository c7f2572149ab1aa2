"""Cleans the pairs of a corpus, and keeps their ids on disk.

``prepare`` cleans and tokenises a split once. From then on training reads the ids from an Arrow
file, which is memory-mapped.
"""

import hashlib
import itertools
import json
import logging
import os
import textwrap
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
import numpy as np
from datasets.arrow_writer import ArrowWriter
from tabulate import tabulate
from tqdm import tqdm

from mt.data.corpus_reader import CorpusReader, Pair
from mt.data.prepared_corpus import PreparedCorpus
from mt.data.tokenizer import Tokenizer
from mt.utils.atomic import atomic_folder
from mt.utils.checks import check_bool, check_int, check_number
from mt.utils.locks import waiting_lock

log = logging.getLogger("mt")

LOG_INTERVAL = 20.0  # seconds between lines of progress where no terminal shows a bar
Block = tuple[list[Pair], list[list[int]], list[list[int]]]  # pairs, their source and target ids
_FORMAT = 3  # a new number makes the prepared files of older versions invalid


class EmptyCorpusError(ValueError):
    """A corpus without pairs."""


def first_pairs(pairs: Iterable[Pair], limit: int | None, name: str) -> Iterator[Pair]:
    """At most the first ``limit`` pairs. Raises EmptyCorpusError when there are none at all.

    The error calls the corpus by its ``name``.
    """
    check_int("limit", limit, optional=True)
    pair = None
    for pair in itertools.islice(pairs, limit):
        yield pair
    if pair is None:
        raise EmptyCorpusError(f"the corpus is empty: {name} holds no sentence pairs")


def fingerprint(text: str) -> int:
    """A hash of 64 bits."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class DuplicateFilter:
    """Remembers pairs by a hash of 8 bytes each.

    It takes two pairs with the same hash for equal. In a hundred million different pairs this
    happens with a probability of about 1 in 4,000.
    """

    def __init__(self) -> None:
        self.sorted = array("Q")
        self.recent: set[int] = set()

    def add(self, pair: Pair) -> bool:
        """Remember a pair. True when it is new."""
        key = fingerprint("\n".join(pair))
        index = bisect_left(self.sorted, key)
        if key in self.recent or self.sorted[index : index + 1] == array("Q", [key]):
            return False
        self.recent.add(key)
        if len(self.recent) > max(2**16, len(self.sorted) // 16):  # a set needs more memory
            merged = np.concatenate((self.sorted, np.fromiter(self.recent, np.uint64)))
            merged.sort()
            self.sorted = array("Q", merged.tobytes())
            self.recent.clear()
        return True


@dataclass(frozen=True)
class PairFilter:
    """Rules for the pairs to drop; false or null turns a rule off. Lengths are in tokens."""

    empty: bool = True  # a side has no text
    max_length: int | None = 256  # a side is longer than this
    max_ratio: float | None = None  # the longer side is more than this times the shorter one
    identical: bool = False  # both sides are the same text
    duplicates: bool = False  # the pair came before

    def __post_init__(self) -> None:
        for name in ("empty", "identical", "duplicates"):
            check_bool(name, getattr(self, name), optional=True)
        check_int("max_length", self.max_length, optional=True)
        check_number("max_ratio", self.max_ratio, 1, optional=True)

    def reasons(self) -> dict[str, int]:
        """A count of zero for each reason, in the order of the rules."""
        return dict.fromkeys(("empty", "identical", "max_length", "max_ratio", "duplicates"), 0)

    def reject_reason(
        self, pair: Pair, lengths: tuple[int, int], seen: DuplicateFilter
    ) -> str | None:
        """The reason to drop a pair, or None to keep it; a kept pair is added to ``seen``."""
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


def prepare(
    reader: CorpusReader,
    split: str,
    tokenizer: Tokenizer,
    pair_filter: PairFilter,
    cache_dir: str | os.PathLike[str],
    limit: int | None = None,
) -> PreparedCorpus:
    """Clean and tokenise a split, or open it when the cache already has it.

    The cache knows a prepared corpus by its reader's identity, tokenizer, filter and limit. The
    folder appears whole or not at all. When several processes need it, one prepares it and the
    others wait. Raises ValueError when no pair is left, and the reader's errors.
    """
    dependencies = [_FORMAT, reader.identity(split), asdict(pair_filter), limit, split]
    key = hashlib.sha256(json.dumps(dependencies).encode() + tokenizer.proto).hexdigest()[:20]
    folder = Path(cache_dir).expanduser() / f"{split}-{key}"
    if not _is_prepared(folder):
        with file_lock(folder, cache_dir):
            if not _is_prepared(folder):
                pairs = first_pairs(reader.pairs(split), limit, f"data.{split}")
                with atomic_folder(folder) as partial:
                    _write(partial, pairs, split, tokenizer, pair_filter)
    return PreparedCorpus(folder)


def _is_prepared(folder: Path) -> bool:
    return (folder / "report.json").is_file()


@contextmanager
def file_lock(path: Path, cache_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock on making a file or folder; the lock's file lies in the cache.

    The operating system frees the lock when the process ends, however it ends.
    """
    cache = Path(cache_dir).expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    message = f"waiting for another process, which is making {path}"
    with waiting_lock(cache / f".make-{path.name}.lock", message):  # atomic_folder has its own
        yield


def _write(
    folder: Path, pairs: Iterator[Pair], split: str, tokenizer: Tokenizer, pair_filter: PairFilter
) -> None:
    """Fill the folder of a prepared corpus."""
    id_type = datasets.Value("uint16" if tokenizer.vocab_size <= 2**16 else "int32")
    features = datasets.Features({"src": [id_type], "tgt": [id_type]})
    read, dropped, seen = 0, pair_filter.reasons(), DuplicateFilter()
    lengths = []  # [2, kept pairs] of each block
    fingerprints = array("Q")
    with ArrowWriter(path=str(folder / "pairs.arrow"), features=features) as writer:
        for block, src, tgt in _with_progress(_encode(pairs, tokenizer), split):
            kept = []
            for i, pair in enumerate(block):
                reason = pair_filter.reject_reason(pair, (len(src[i]), len(tgt[i])), seen)
                if reason is None:
                    kept.append(i)
                    fingerprints.append(fingerprint(pair[0].strip() or pair[1].strip()))
                else:
                    dropped[reason] += 1
            read += len(block)
            if kept:
                columns = {"src": [src[i] for i in kept], "tgt": [tgt[i] for i in kept]}
                writer.write_batch(columns)
                counts = [[len(ids) for ids in side] for side in columns.values()]
                lengths.append(np.array(counts, np.int32))
        total = read - sum(dropped.values())
        report = {"split": split, "read": read, "kept": total, "dropped": dropped}
        if not total:
            most = max(dropped, key=lambda reason: dropped[reason])
            raise ValueError(
                f"no pair of {split} is left after cleaning, most are dropped by data.clean.{most}"
                f"\n{format_report(report)}"
            )
        writer.finalize()
    sides = np.concatenate(lengths, axis=1)
    length_type = np.uint16 if sides.max() < 2**16 else np.int32
    np.save(folder / "lengths.npy", sides.astype(length_type))
    np.save(folder / "fingerprints.npy", np.frombuffer(fingerprints, np.uint64))
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")


def _encode(pairs: Iterator[Pair], tokenizer: Tokenizer) -> Iterator[Block]:
    """Pairs in blocks, in their order, with the ids of both sides.

    SentencePiece encodes the next blocks on all cores while the caller uses the last one.
    """

    def encode(block: list[Pair]) -> Block:
        src, tgt = zip(*block, strict=True)
        return block, tokenizer.encode(list(src)), tokenizer.encode_target(list(tgt))

    with ThreadPoolExecutor(2) as pool:
        queue: deque[Future[Block]] = deque()
        while block := list(itertools.islice(pairs, 10_000)):
            queue.append(pool.submit(encode, block))
            if len(queue) > 2:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()


def _with_progress(blocks: Iterator[Block], split: str) -> Iterator[Block]:
    """The same blocks, and a progress bar, or lines of the log where there is no terminal."""
    read, last_line = 0, time.monotonic()
    with tqdm(desc=f"preparing {split}", unit=" pairs", disable=None) as bar:
        for block in blocks:
            yield block
            read += len(block[0])
            bar.update(len(block[0]))
            if bar.disable and time.monotonic() > last_line + LOG_INTERVAL:
                log.info(f"preparing {split}: {read:,} pairs read")
                last_line = time.monotonic()


def format_report(report: dict[str, Any]) -> str:
    """A table of how many pairs of a split were read, dropped and kept."""
    dropped = [(f"dropped: {reason}", count) for reason, count in report["dropped"].items()]
    rows = [("pairs read", report["read"]), *dropped, ("kept", report["kept"])]
    table = tabulate(rows, tablefmt="plain", intfmt=",")
    return f"{report['split']}:\n{textwrap.indent(table, '  ')}"


def texts(
    reader: CorpusReader, split: str, limit: int | None = None
) -> tuple[list[str], list[str]]:
    """All source and all target sentences of a split, unchanged, for translating and scoring."""
    pairs = list(first_pairs(reader.pairs(split), limit, "it"))
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]
