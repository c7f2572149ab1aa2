"""python -m mt.inspect SENTENCE: what the Transformer does with one sentence.

It writes a page that a browser opens without a network, the numbers as JSON, or pictures.
"""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mt.utils import console

with console.exit_at_interrupt():
    from mt.inference.options import PRECISIONS, load_search_defaults
    from mt.inference.translator import Translator
    from mt.inspection import page, report
    from mt.model.model_path import find_models
    from mt.utils.atomic import atomic_write
    from mt.utils.native import compiling


PAGE = Path("inspect.html")  # where a page goes whose file nobody has named


def make_parser() -> argparse.ArgumentParser:
    parser = console.ArgumentParser(
        prog="mt.inspect",
        description="Show what the Transformer does with a sentence: attention, probabilities, "
        "the search and the alignment of words.",
    )
    add = parser.add_argument
    add("sentence", metavar="SENTENCE")
    add("--target", metavar="TEXT", help="follow this translation instead of the model's own")
    add("--prefix", metavar="TEXT", default="", help="the search begins with TEXT")
    add("--output", metavar="FILE", type=Path, help="a page, "
        "NAME.html (default inspect.html), the numbers, NAME.json, or a folder for "
        "pictures")  # fmt: skip
    add("--model", action="append", help="as for mt.translate; several are shown side by side")
    add("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    add("--precision", default="float32", choices=PRECISIONS, help="default float32")
    add = parser.add_argument_group("one step by hand, all counted from 1").add_argument
    add("--layer", type=int, metavar="N", help="default: the layer that aligns words")
    add("--head", type=int, metavar="N", help="default: the head that aligns words")
    add("--step", type=int, metavar="N", default=1, help="token of the translation (default 1)")
    add = parser.add_argument_group("search").add_argument
    add("--beam-size", type=int, metavar="N", help="default: the model's own, else 4")
    add("--alpha", type=float, metavar="A", help="default: the model's own, else 0.6")
    add(
        "--n-best",
        type=int,
        metavar="N",
        help="number of translations that the tree marks as results",
    )
    return parser


def run(args: argparse.Namespace) -> None:
    if args.output is None:
        args.output = PAGE
        if PAGE.exists() and not page.is_page(PAGE):
            raise ValueError(f"{PAGE}: is no page of mt.inspect: name another file with --output")
    write = writer(args.output)
    paths = find_models("mt.inspect", args.model)
    names = ("beam_size", "alpha", "n_best")
    settings: dict[str, Any] = {n: getattr(args, n) for n in names if getattr(args, n) is not None}
    # Before slow work:
    options = [replace(load_search_defaults(path), **settings) for path in paths]
    keywords = {name: getattr(args, name) for name in ("target", "prefix", "layer", "head", "step")}
    reports = []
    for path, own_options in zip(paths, options, strict=True):
        # A person waits for one sentence.
        with compiling(args.precision != "float32"):
            translator = Translator.load(path, args.device, args.precision)
        reports.append(report.inspect(translator, args.sentence, options=own_options, **keywords))
    write(reports)
    for name, content in zip(args.model or [None], reports, strict=True):
        print(f"{name}: " if len(reports) > 1 else "", content["target"]["text"], sep="")
    print(args.output)


def writer(output: Path) -> Callable[[list[dict[str, Any]]], None]:
    """A function that writes the reports of the models to ``output``.

    Raises ValueError if they cannot be written there, before any of them is made.
    """
    if not output.parent.is_dir():
        raise ValueError(f"{output.parent}: no such folder")
    if output.is_dir():
        return as_pictures(output)
    if output.suffix.lower() == ".html":
        return lambda reports: page.write_page(reports, output)
    if output.suffix.lower() == ".json":
        return lambda reports: atomic_write(output, as_json(reports))
    if output.suffix or output.is_file():
        raise ValueError(f"{output}: must end in .html or .json, or be a folder")
    return as_pictures(output)


def as_pictures(output: Path) -> Callable[[list[dict[str, Any]]], None]:
    """A function that draws the reports. Raises ValueError where the package for it is missing."""
    try:
        from mt.inspection import pictures
    except ImportError as error:
        hint = console.install_hint("pictures")
        raise ValueError(f"{output}: pictures need matplotlib ({error}): {hint}") from None
    return lambda reports: pictures.write_pictures(reports, output)


def as_json(reports: list[dict[str, Any]]) -> str:
    """The report of one model, or a list of several."""
    content = reports if len(reports) > 1 else reports[0]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    logging.basicConfig(format="mt.inspect: %(message)s", stream=sys.stderr)
    console.write_utf8()

    def run_within_memory() -> None:
        with console.within_memory("give a shorter sentence or a smaller --beam-size"):
            run(args)

    return console.exit_status("mt.inspect", run_within_memory)


if __name__ == "__main__":
    sys.exit(main())
