"""Multi30k as files: three splits in both forms, from a folder or the hub."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.data.readers import CorpusReader, FileReader, HubReader
from mt.evaluation import metrics, report

HUB = "bentrevett/multi30k"
RAW, LC = "raw", "lc.norm.tok"
NAMES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}  # as published


def prepare_data(source: Path | None, folder: Path) -> None:
    """The splits in both forms as files of ``folder``. ValueError when it holds another set."""
    origin = str(source.resolve()) if source else HUB
    next(_pairs(source, "train", RAW), None)  # if it is not there, nothing is remembered
    remember(folder / "origin.json", origin, "name another --folder")
    for split, form in itertools.product(NAMES, (RAW, LC)):
        base = prefix(folder, split, form)
        if Path(f"{base}.de").exists():
            continue
        sides = zip(*_pairs(source, split, form), strict=True)
        for side, lines in zip(("en", "de"), sides, strict=True):
            report.write(Path(f"{base}.{side}"), report.text_of(lines))


def _pairs(source: Path | None, split: str, form: str) -> Iterator[tuple[str, str]]:
    raw: CorpusReader = HubReader(HUB)
    if source is not None:
        raw, given = (FileReader(**{split: prefix(source, NAMES[split], f)}) for f in (RAW, form))
        if any(source.glob(f"{NAMES[split]}.{LC}.de*")):
            return given.pairs(split)
    if form == RAW:
        return raw.pairs(split)
    english, german = metrics.LcNormTok("en"), metrics.LcNormTok("de")
    return ((english(source), german(target)) for source, target in raw.pairs(split))


def prefix(folder: Path, split: str, form: str) -> str:
    return str(folder / (split if form == RAW else f"{split}.{form}"))


def remember(file: Path, what: Any, remedy: str) -> None:
    """ValueError when what is done already in the file's folder was done with something else."""
    now = json.dumps(what)
    if file.exists() and file.read_text("utf-8").strip() != now:
        raise ValueError(f"{file.parent} was made with {file.read_text('utf-8').strip()}: {remedy}")
    file.parent.mkdir(parents=True, exist_ok=True)
    report.write(file, f"{now}\n")
