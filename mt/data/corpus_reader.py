"""What every reader of a corpus has: the interface, and checks that readers share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from mt.utils.checks import short_repr

Pair = tuple[str, str]

ERRORS_SUFFIX = ".errors.jsonl"  # of the files to which mt.corpus writes bad rows


class CorpusReader(Protocol):
    """Reads the sentence pairs of a corpus."""

    def pairs(self, split: str) -> Iterator[Pair]:
        """The pairs of a split in their order. Raises ValueError or OSError when it cannot."""

    def identity(self, split: str) -> list[Any]:
        """What the pairs depend on, in JSON's types: it changes when the pairs may have changed."""


def check_languages(src: Any, tgt: Any, *kinds: type) -> None:
    """ValueError unless ``data.src`` and ``data.tgt`` name two different sides of a corpus."""
    for name, value in (("src", src), ("tgt", tgt)):
        if type(value) not in (kinds or (str,)) or not str(value).strip():
            raise ValueError(f"data.{name}={short_repr(value)}: must name a side, such as en")
    if str(src) == str(tgt):
        raise ValueError(f"data.src={src} and data.tgt={tgt}: the source is the target")


def is_data_file(name: str) -> bool:
    """Whether a file of a folder has data, by its name, which of a folder on the web is empty."""
    return bool(name) and name[0] not in "._" and not name.endswith(ERRORS_SUFFIX)


def file_stat(path: Path) -> tuple[str, int, int]:
    """A file's name, its size in bytes, and when it was last changed, in nanoseconds."""
    stat = path.stat()
    return str(path), stat.st_size, stat.st_mtime_ns
