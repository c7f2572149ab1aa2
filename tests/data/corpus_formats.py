"""The same sentence pairs in every file format that ``FileReader`` reads."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import write_lines

from mt.data.readers import Pair

# Lines as newstest and crawled text have them. Many programs count more or fewer than 12.
NASTY = [
    "plain",
    "a lone \r stays",
    "line\u2028separator",
    "paragraph\u2029separator",
    "next\u0085line",
    "form\x0cfeed, \x0bvertical tab",
    "\x1c\x1d\x1e separators",
    "",
    'an open "quote',
    "“typographic” 'quotes' \\n and a backslash \\",
    "\ufeffmark inside",
    "no\u00a0break 😀 \U0001f1e9\U0001f1ea",
]


def nasty_pairs() -> list[Pair]:
    return [(text, f"{number} {text}") for number, text in enumerate(NASTY)]


def as_prefix(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    for side, suffix in enumerate(("en", "de")):
        write_lines(folder / f"set.{suffix}", [pair[side] for pair in pairs])
    return {"train": str(folder / "set")}


def as_gzip(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    options = as_prefix(folder, pairs)
    for path in list(folder.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return options


def as_half_gzip(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    options = as_prefix(folder, pairs)
    path = folder / "set.de"
    path.with_name("set.de.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return options


def as_windows(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    options = as_prefix(folder, pairs)
    for path in folder.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    return options


def as_two_files(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    as_prefix(folder, pairs)
    (folder / "set.en").rename(folder / "original text.txt")
    (folder / "set.de").rename(folder / "translation")
    return {"train": [str(folder / "original text.txt"), str(folder / "translation")]}


def as_tsv(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = ["id\tde\tnote\ten", *(f"{i}\t{de}\t\t{en}" for i, (en, de) in enumerate(pairs))]
    return {"train": str(write_lines(folder / "set.tsv", rows))}


def as_tsv_gzip(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    path = Path(as_tsv(folder, pairs)["train"])
    path.with_name("set.tsv.gz").write_bytes(gzip.compress(path.read_bytes()))
    return {"train": f"{path}.gz"}


def as_tsv_numbered(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [f"{de}\t0.5\t{en}\tmore" for en, de in pairs]
    return {"train": str(write_lines(folder / "set.tsv", rows)), "src": 2, "tgt": 0}


def as_tsv_numbered_in_quotes(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    return {**as_tsv_numbered(folder, pairs), "src": "2", "tgt": "0"}


def as_json(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [json.dumps({"en": en, "de": de, "id": 3}, ensure_ascii=False) for en, de in pairs]
    return {"train": str(write_lines(folder / "set.jsonl", rows))}


def as_nested_json(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [json.dumps({"translation": {"en": en, "de": de}}) for en, de in pairs]
    path = write_lines(folder / "set.json", rows)
    return {"train": str(path), "src": "translation.en", "tgt": "translation.de"}


def as_dotted_json(folder: Path, pairs: list[Pair]) -> dict[str, Any]:
    rows = [json.dumps({"text.en": en, "text.de": de}) for en, de in pairs]
    path = folder / "set.json.gz"
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))
    return {"train": str(path), "src": "text.en", "tgt": "text.de"}


FORMATS = [
    as_prefix,
    as_gzip,
    as_half_gzip,
    as_windows,
    as_two_files,
    as_tsv,
    as_tsv_gzip,
    as_tsv_numbered,
    as_tsv_numbered_in_quotes,
    as_json,
    as_nested_json,
    as_dotted_json,
]
Format = Callable[[Path, list[Pair]], dict[str, Any]]
