"""The data of `multi30k.py`, three splits in both forms, and its jobs."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reporting import remember
from trainings import run_program

from mt.data.readers import CorpusReader, FileReader, HubReader
from mt.evaluation import metrics
from mt.evaluation.report import join_lines
from mt.utils.atomic import atomic_write
from mt.utils.line_io import read_lines

HUB = "bentrevett/multi30k"
RAW, LC = "raw", "lc.norm.tok"
NAMES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}  # as published


@dataclass(frozen=True)
class Job:
    """One training and its evaluation."""

    form: str
    name: str  # of its settings, "" for the experiment's own
    settings: tuple[str, ...]
    seed: int
    folder: Path  # that of all jobs
    parent: str = ""  # digest of the model that it trains further

    @property
    def configuration(self) -> str:
        return "-".join(filter(None, (self.form, self.name)))

    @property
    def run(self) -> Path:
        return self.folder / f"{self.configuration}-seed{self.seed}"

    def prefix(self, split: str, form: str | None = None) -> str:
        return prefix(self.folder / "data", split, form or self.form)

    def lines(self, split: str, side: str, form: str | None = None) -> list[str]:
        return list(read_lines(f"{self.prefix(split, form)}.{side}"))

    def call(self, arguments: Sequence[str], threads: int | None = None) -> None:
        """Run one of mt's programs; output.log gets its output. ChildProcessError when it fails."""
        run_program(arguments, self.run / "output.log", threads)


def prefix(folder: Path, split: str, form: str) -> str:
    return str(folder / (split if form == RAW else f"{split}.{form}"))


def prepare_data(source: Path | None, folder: Path) -> None:
    """Write the splits in both forms. ValueError when ``folder`` holds another set."""
    origin = str(source.resolve()) if source else HUB
    next(_pairs(source, "train", RAW), None)  # raises an error if the set is missing
    remember(folder / "origin.json", origin, "name another --folder")
    for split, form in itertools.product(NAMES, (RAW, LC)):
        base = prefix(folder, split, form)
        if Path(f"{base}.de").exists():
            continue
        sides = zip(*_pairs(source, split, form), strict=True)
        for side, lines in zip(("en", "de"), sides, strict=True):
            atomic_write(f"{base}.{side}", join_lines(lines))


def _pairs(source: Path | None, split: str, form: str) -> Iterator[tuple[str, str]]:
    raw: CorpusReader = HubReader(HUB)
    if source is not None:
        if any(source.glob(f"{NAMES[split]}.{LC}.de*")):
            return FileReader(**{split: prefix(source, NAMES[split], form)}).pairs(split)
        raw = FileReader(**{split: prefix(source, NAMES[split], RAW)})
    if form == RAW:
        return raw.pairs(split)
    english, german = metrics.LcNormTok("en"), metrics.LcNormTok("de")
    return ((english(source), german(target)) for source, target in raw.pairs(split))
