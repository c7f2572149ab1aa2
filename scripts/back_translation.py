"""What back-translation brings: few pairs, and more text in the target language.

    python scripts/back_translation.py --train PREFIX --validation PREFIX --test PREFIX \\
        --folder FOLDER --pairs 8000

The first --pairs of the training pairs stay pairs; of the others only the target is used. Four
models of one size are trained with equal updates and seeds:

real     on the pairs
reverse  on the pairs, from the target to the source; it translates the text that is left
both     on the pairs and on the translated text
all      on the real pairs of everything: the most that the text can bring

PREFIX names PREFIX.en and PREFIX.de (.gz too). The same command continues after an interruption;
arguments after ``--`` are settings of mt.train for all four.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mt.utils import console

sys.path.append(str(Path(__file__).resolve().parent / "benchmarks"))  # for reporting.py

with console.exit_at_interrupt():
    from reporting import new_report, remember, setting, table, write_report
    from rivals import SETTINGS
    from trainings import BEAM_SIZE, make_parser, run_program, score

    from mt.data.readers import FileReader, Pair
    from mt.evaluation.report import join_lines
    from mt.utils.atomic import atomic_write
    from mt.utils.checks import check_int
    from mt.utils.line_io import read_lines

FORWARD = ("real", "both", "all")


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=8000, help="that stay pairs (default %(default)s)")
    add("--steps", type=int, default=1200, help="updates of every training (default %(default)s)")
    add("--seed", type=int, default=1, help="(default %(default)s)")
    args = parser.parse_args(argv)
    return console.exit_status("back_translation", lambda: run(args))


def run(args: argparse.Namespace) -> None:
    """Train, translate, evaluate, report. Raises ValueError or OSError for a user's mistake."""
    for name in ("pairs", "steps"):
        check_int(name, getattr(args, name))
    reader = FileReader(args.train, args.validation, args.test)
    pairs = list(reader.pairs("train"))
    if args.pairs >= len(pairs):
        raise ValueError(f"--pairs {args.pairs}: {args.train} has {len(pairs)}; leave some as text")
    remember(args.folder / "options.json", options(args), "name another --folder")
    data = args.folder / "data"
    write_rows(data / "real" / "real.jsonl", pairs[: args.pairs])
    write_rows(data / "all" / "all.jsonl", pairs)
    write_once(data / "text.de", (target for _, target in pairs[args.pairs :]))
    train(args, "real", data / "real")
    train(args, "reverse", data / "real", "data.src=de", "data.tgt=en")
    both = data / "both"
    write_rows(both / "real.jsonl", pairs[: args.pairs])
    translate_back(args.folder, both / "back.jsonl")
    train(args, "both", both)
    train(args, "all", data / "all")
    test = list(reader.pairs("test"))
    back = sum(1 for _ in read_lines(both / "back.jsonl"))
    lines = {"real": args.pairs, "both": args.pairs + back, "all": len(pairs)}
    rows = [
        {"name": name, "training_pairs": lines[name], **score(args.folder / name / "model", test)}
        for name in FORWARD
    ]
    print(table(
        ("trained on", "training pairs", "test BLEU", "± (95%)", "validation perplexity"),
        [
            (row["name"], f"{row['training_pairs']:,}", f"{row['bleu']:.2f}",
             f"{row['interval']:.2f}", f"{row['perplexity']:.2f}")
            for row in rows
        ],
    ))  # fmt: skip
    write_report(args.output, new_report(rows=rows, beam_size=BEAM_SIZE, **options(args)))


def options(args: argparse.Namespace) -> dict[str, Any]:
    names = ("train", "validation", "test", "pairs", "steps", "seed")
    return {name: getattr(args, name) for name in names} | {"settings": [*SETTINGS, *args.settings]}


def write_rows(path: Path, pairs: Iterable[Pair]) -> None:
    rows = ({"en": source, "de": target} for source, target in pairs)
    write_once(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def write_once(path: Path, lines: Iterable[str]) -> None:
    """Write a file, unless it is there: a training that continues has seen it as it is."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, join_lines(lines))


def train(args: argparse.Namespace, name: str, data: Path, *settings: str) -> None:
    """Train a model on the files of a folder, unless that is done."""
    run = args.folder / name
    if (run / "done").exists():
        return
    print(f"{run}: training, see its output.log", flush=True)
    arguments = [
        *("mt.train", *SETTINGS, setting("data.train", data)),
        setting("data.validation", args.validation),
        setting("tokenizer.path", args.folder / "tokenizer.model"),
        *(f"seed={args.seed}", f"trainer.max_steps={args.steps}", *settings, *args.settings),
        *(setting("hydra.run.dir", run), "ckpt=auto"),
    ]
    run_program(arguments, run / "output.log", threads=1)
    (run / "done").touch()


def translate_back(folder: Path, output: Path) -> None:
    """Translate the text with the reverse model, as docs/corpora.md shows."""
    if output.exists():
        return
    log, translated = folder / "corpus.log", folder / "data" / "translated.jsonl"
    print(f"{output}: translating, see {log}", flush=True)
    steps = [
        ["translate", "--model", folder / "reverse" / "model", "--column", "de=en", "--overwrite",
         "--input", folder / "data" / "text.de", "--output", translated],
        ["filter", "--source", "de", "--target", "en", "--min-length", "1",
         "--input", translated, "--output", output],
    ]  # fmt: skip
    for arguments in steps:
        run_program(["mt.corpus", *map(str, arguments)], log)


if __name__ == "__main__":
    sys.exit(main())
