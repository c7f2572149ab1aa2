"""python -m mt.export --to ctranslate2|huggingface|onnx MODEL OUT: a model for other engines.

Its own engine loads every export, and the two are compared before the folder gets its name
(``mt.export.parity``).
"""

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mt.utils import console

with console.exit_at_interrupt():
    from mt.data import phrasebook
    from mt.export import parity
    from mt.inference.translator import Translator
    from mt.model import checkpoint
    from mt.model.checkpoint import LoadedModel
    from mt.model.model_path import find_models
    from mt.utils.atomic import atomic_folder
    from mt.utils.line_io import read_lines

LOADED_WITH = {  # for the card
    "ctranslate2": "python -m mt.translate --engine ctranslate2 --model FOLDER",
    "huggingface": "transformers.MarianMTModel.from_pretrained(FOLDER)",
    "onnx": "mt.export.onnx.Engine(FOLDER)",
}
FRONT_MATTER = re.compile(r"---\n.*?\n---\n", re.DOTALL)
LOCAL_LINK = re.compile(r"!?\[([^\]]*)\]\((?![a-z]+:|#)[^)]*\)")
FORMATS = {  # name -> the packages that it needs
    "ctranslate2": ("ctranslate2",),
    "huggingface": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
EXACT = "float32"  # the precision in which every greedy token must be equal; else BLEU decides
NUM_SENTENCES = 200  # least number of sentences to compare on; for EXACT also the greatest


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = console.ArgumentParser(
        prog="mt.export",
        description="Rewrite a model for another engine, and check that it translates as before.",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="model folder, checkpoint, `everyday`, `latest` or ORG/NAME")
    add("out", metavar="OUT", type=Path, help="folder to write; it must not exist")
    add("--to", required=True, choices=FORMATS, help="the engine")
    add("--precision", default=EXACT, help="float32 (default); ctranslate2 also has float16, int8 "
        "and int8_bfloat16, huggingface float16 and bfloat16")  # fmt: skip
    add("--src", metavar="FILE", help="sentences to compare on (default: the phrasebook's)")
    add("--ref", metavar="FILE", help="their translations")
    args = parser.parse_args(argv)
    if (args.src is None) != (args.ref is None):
        parser.error("--src and --ref go together")
    return args


def comparison_pairs(args: argparse.Namespace, model: LoadedModel) -> list[tuple[str, str]]:
    """Sentences to compare on, with their references. ValueError when they are too few."""
    if args.src is not None:
        src, ref = list(read_lines(args.src)), list(read_lines(args.ref))
        if len(src) != len(ref):
            raise ValueError(f"{args.src} has {len(src):,} lines, {args.ref} {len(ref):,}")
        pairs = list(zip(src, ref, strict=True))
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
    limit = model.config["max_length"]
    usable = [pair for pair, length in zip(pairs, lengths, strict=True) if 0 < length <= limit]
    if len(usable) < NUM_SENTENCES:
        raise ValueError(
            f"{args.src or 'the phrasebook'}: {len(usable)} sentences that are neither blank nor "
            f"too long for the model: name {NUM_SENTENCES} at least"
        )
    return usable[:NUM_SENTENCES] if args.precision == EXACT else usable


def engine_of(name: str) -> Any:
    """The module that writes and runs this format. ValueError when a package is missing."""
    for package in FORMATS[name]:
        try:
            importlib.import_module(package)
        except ImportError as error:
            hint = console.install_hint(name)
            raise ValueError(f"--to {name} needs {package} ({error}): {hint}") from None
    return importlib.import_module(f"mt.export.{name}")


def card_of_export(card: str, name: str) -> str:
    """The card of a model for its export: how it is loaded, and no links to files beside it."""
    match = FRONT_MATTER.match(card)
    end = match.end() if match else 0
    library = FORMATS[name][0]  # as the Hugging Face hub calls it
    front = card[:end].replace("\nlibrary_name: mt\n", f"\nlibrary_name: {library}\n")
    note = f"This folder is an export, loaded with `{LOADED_WITH[name]}`.\n"
    if card:
        note += "\nWhat follows is its model's card.\n\n"
    return front + "\n" * bool(front) + note + LOCAL_LINK.sub(r"\1", card[end:]).lstrip("\n")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Write the export and compare it; what parity.json holds.

    Raises ValueError or OSError when the export cannot be written or differs from the model.
    """
    [path] = find_models("mt.export", [args.model])
    if args.out.exists():
        raise FileExistsError(f"{args.out} exists already: name another folder")
    export = engine_of(args.to)
    if args.precision not in export.PRECISIONS:
        allowed = ", ".join(export.PRECISIONS)
        raise ValueError(f"--precision {args.precision}: {args.to} is written in {allowed}")
    loaded = checkpoint.load(path)
    sources, references = zip(*comparison_pairs(args, loaded), strict=True)
    translator = Translator(loaded.model, loaded.tokenizer, loaded.config["max_length"])
    with atomic_folder(args.out) as folder:
        exact = args.precision == EXACT
        try:
            export.write(loaded, folder, args.precision)
            result = parity.check(translator, export.Engine(folder), sources, references, exact)
        except (ValueError, OSError):
            raise
        except Exception as error:  # each engine raises its own kinds
            if os.environ.get("MT_TRACEBACK"):
                raise
            raise ValueError(f"{args.to}: {' '.join(str(error).split())[:300]}") from None
        card = ""  # names the source of the weights and their licence; a checkpoint has none
        if (path / "README.md").is_file():
            card = (path / "README.md").read_text("utf-8", errors="replace")
        (folder / "README.md").write_text(card_of_export(card, args.to), "utf-8")
        packages = map(importlib.import_module, FORMATS[args.to])
        report = {
            "format": args.to,
            "precision": args.precision,
            "model_sha256": checkpoint.digest(path),
            "versions": {package.__name__: package.__version__ for package in packages},
            **result,
            "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        }
        (folder / "parity.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def print_summary(out: Path, report: dict[str, Any]) -> None:
    different = report["different outputs"]
    useless = "" if different > 1 else ", the same for every sentence: the model is of no use"
    print(
        f"{out}: {report['format']}, {report['precision']}, {report['bytes'] / 1e6:.1f} MB; "
        f"computed in {report['computed in']}, "
        f"{report['equal greedy outputs']} of {report['sentences']} greedy translations are ours "
        f"({different} different ones{useless}), "
        f"BLEU {report['BLEU of the export']}, ours {report['BLEU of ours']} "
        f"({report['signature']})"
    )


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    return console.exit_status("mt.export", lambda: print_summary(args.out, run(args)))


if __name__ == "__main__":
    sys.exit(main())
