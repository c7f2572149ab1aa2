"""python -m mt.export --to ctranslate2|huggingface|onnx MODEL OUT: a model for other engines.

Every export is loaded by its own engine and compared with the model before it gets its name
(``mt.exports.parity``).
"""

import argparse
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mt.data import phrasebook
from mt.export import install, parity
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.checkpoint import LoadedModel
from mt.utils import console
from mt.utils.line_io import read_lines

FORMATS = {  # name: what it needs
    "ctranslate2": ("ctranslate2",),
    "huggingface": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
EXACT = "float32"  # in which every greedy token must be ours; in others BLEU counts
SENTENCES = 200  # to compare on at least, and in EXACT at most


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mt.export",
        description="Rewrite a model for another engine, and prove that it translates alike.",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="model folder or checkpoint, or `everyday`, or `latest`")
    add("out", metavar="OUT", type=Path, help="folder to write; it must not be there")
    add("--to", required=True, choices=FORMATS, help="the engine")
    add("--precision", default=EXACT, help="float32 (default); ctranslate2 also has float16, int8 "
        "and int8_bfloat16, huggingface float16 and bfloat16")  # fmt: skip
    add("--src", metavar="FILE", help="sentences to compare on (default: the phrasebook's)")
    add("--ref", metavar="FILE", help="their translations")
    args = parser.parse_args(argv)
    if (args.src is None) != (args.ref is None):
        parser.error("--src and --ref go together")
    return args


def sentences(args: argparse.Namespace, model: LoadedModel) -> tuple[list[str], list[str]]:
    """What the export is tried on, and what it should say. ValueError when that is too little."""
    if args.src is not None:
        sides = list(read_lines(args.src)), list(read_lines(args.ref))
        if len(sides[0]) != len(sides[1]):
            raise ValueError(
                f"{args.src} has {len(sides[0]):,} lines, {args.ref} {len(sides[1]):,}"
            )
        pairs = list(zip(*sides, strict=True))
    else:
        languages = model.config.get("languages") or ["en", "de"]
        if set(languages) != {"en", "de"}:
            raise ValueError(
                f"the model translates {' to '.join(languages)}, the phrasebook is English and "
                "German: name sentences to compare on with --src and --ref"
            )
        pairs = phrasebook.load("test")
        if languages[0] == "de":
            pairs = [(german, english) for english, german in pairs]
    lengths = map(len, model.tokenizer.encode([source for source, _ in pairs]))
    fit = [0 < length <= model.config["max_length"] for length in lengths]
    kept = [pair for pair, fits in zip(pairs, fit, strict=True) if fits]
    if len(kept) < SENTENCES:
        raise ValueError(
            f"{args.src}: {len(kept)} sentences that are neither blank nor too long for the "
            f"model: name {SENTENCES} at least"
        )
    used = kept[:SENTENCES] if args.precision == EXACT else kept
    return [source for source, _ in used], [reference for _, reference in used]


def engine_of(name: str) -> Any:
    """The module that writes and runs this format. ValueError when what it needs is not there."""
    for module in FORMATS[name]:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(f"--to {name} needs {module} ({error}): {install(name)}") from None
    return importlib.import_module(f"mt.export.{name}")


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """An empty folder that takes its name when all went well, and goes when not."""
    if folder.exists():
        raise FileExistsError(f"{folder}: is there already: name another folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def run(args: argparse.Namespace) -> dict[str, Any]:
    export = engine_of(args.to)
    if args.precision not in export.PRECISIONS:
        allowed = ", ".join(export.PRECISIONS)
        raise ValueError(f"--precision {args.precision}: {args.to} is written in {allowed}")
    path = checkpoint.resolve_model_path(args.model)
    loaded = checkpoint.load(path)
    sources, references = sentences(args, loaded)
    translator = Translator(loaded.model, loaded.tokenizer, loaded.config["max_length"])
    with appearing(args.out) as folder:
        exact = args.precision == EXACT
        try:
            export.write(loaded, folder, args.precision)
            found = parity.check(translator, export.Engine(folder), sources, references, exact)
        except (ValueError, OSError):
            raise
        except Exception as error:  # the engines have kinds of their own
            if os.environ.get("MT_TRACEBACK"):
                raise
            raise ValueError(f"{args.to}: {' '.join(str(error).split())[:300]}") from None
        about = {
            "format": args.to,
            "precision": args.precision,
            "model_sha256": checkpoint.digest(path),
            "versions": {
                name: importlib.import_module(name).__version__ for name in FORMATS[args.to]
            },
            **found,
        }
        if (path / "README.md").is_file():  # where the weights come from, and their terms
            shutil.copy(path / "README.md", folder / "README.md")
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        about["bytes"] = size
        (folder / "parity.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return about


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    return console.status("mt.export", lambda: tell(args.out, run(args)))


def tell(out: Path, about: dict[str, Any]) -> None:
    print(
        f"{out}: {about['format']}, {about['precision']}, {about['bytes'] / 1e6:.1f} MB; "
        f"computed in {about['computed in']}, "
        f"{about['equal greedy outputs']} of {about['sentences']} greedy translations are ours, "
        f"BLEU {about['BLEU of the export']}, ours {about['BLEU of ours']} ({about['signature']})"
    )


if __name__ == "__main__":
    sys.exit(main())
