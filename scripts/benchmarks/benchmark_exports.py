"""Every export of a model: proved, weighed and timed beside our own engine.

python scripts/benchmark_exports.py everyday --output results/exports.json

`mt.export` writes each and leaves what its parity gate found. Then all engines translate the same
sentences of the phrasebook's test split greedily, in this process, on the CPU, an operation on
one thread unless --threads says otherwise: every eighth sentence one at a time, and 64 of like
length at a time. Medians of interleaved rounds, in sentences a second.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from benchmarking import (
    Meter,
    Sample,
    command_line,
    disturbed,
    machine,
    say,
    table,
    typical,
    versions,
)

from mt.data import phrasebook
from mt.export import __main__
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.utils import console

FORMS = (
    ("ctranslate2", "float32"), ("ctranslate2", "float16"), ("ctranslate2", "int8"),
    ("ctranslate2", "int8_bfloat16"), ("huggingface", "float32"), ("huggingface", "float16"),
    ("huggingface", "bfloat16"), ("onnx", "float32"),
)  # fmt: skip
BATCH = 64
ROUNDS = 5
Greedy = Callable[[list[list[int]]], object]


def write(model: Path, folder: Path, form: str, precision: str) -> dict[str, Any]:
    """What the parity gate found. ValueError where it does not open."""
    arguments = [str(model), str(folder), "--to", form, "--precision", precision]
    return __main__.run(__main__.parse(arguments))


def engines(model: Path, folders: dict[tuple[str, str], Path]) -> dict[str, Greedy]:
    """Name -> what translates a batch of ids greedily."""
    found: dict[str, Greedy] = {}
    for precision in ("float32", "bfloat16", "int8"):
        found[f"mt, {precision}"] = ours(Translator.load(model, "cpu", precision, workers=1))
    for (form, precision), folder in folders.items():
        one = {"workers": 1} if form == "ctranslate2" else {}
        found[f"{form}, {precision}"] = __main__.engine_of(form).Engine(folder, **one).greedy
    return found


def ours(translator: Translator) -> Greedy:
    options = SearchOptions(beam_size=1)
    return lambda ids: translator.search(ids, options, [[] for _ in ids])


def batches(ids: list[list[int]], size: int) -> list[list[list[int]]]:
    alike = sorted(ids, key=len)
    return [alike[start : start + size] for start in range(0, len(alike), size)]


def measure(greedy: Greedy, work: Sequence[list[list[int]]]) -> Sample:
    with Meter() as meter:
        for batch in work:
            greedy(batch)
    rate = sum(map(len, work)) / meter.seconds
    return {"sentences_per_second": round(rate, 1), "disturbed": disturbed(meter.others)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="model folder, `everyday` or `latest`")
    parser.add_argument("--sentences", type=int, default=256, help="of 64 at a time (default 256)")
    parser.add_argument("--threads", type=int, default=1, help="of an operation (default 1)")
    parser.add_argument("--output", type=Path, required=True, help="JSON")
    args = parser.parse_args(argv)
    return console.status("benchmark_exports", lambda: run(args))


def run(args: argparse.Namespace) -> None:
    model = checkpoint.resolve_model_path(args.model)
    with tempfile.TemporaryDirectory() as scratch:
        folders, parity = {}, {}
        for form, precision in FORMS:
            folders[form, precision] = Path(scratch) / f"{form}-{precision}"
            found = write(model, folders[form, precision], form, precision)
            parity[f"{form}, {precision}"] = found
            say(f"{form}, {precision}:", {k: v for k, v in found.items() if k != "model_sha256"})
        sources = [source for source, _ in phrasebook.load("test")[: args.sentences]]
        ids = Translator.load(model, "cpu").tokenizer.encode(sources)
        some = ids[:: max(1, len(ids) // 32)]
        works = {"one at a time": batches(some, 1), f"{BATCH} at a time": batches(ids, BATCH)}
        torch.set_num_threads(args.threads)  # which CTranslate2 may have changed
        samples: dict[str, dict[str, list[Sample]]] = {}
        known = engines(model, folders)
        for round_ in range(ROUNDS + 1):  # the first warms up
            for name, greedy in known.items():
                for what, work in works.items():
                    sample = measure(greedy, work)
                    if round_:
                        samples.setdefault(name, {}).setdefault(what, []).append(sample)
    rates = {
        name: {what: typical(each, "sentences_per_second") for what, each in kinds.items()}
        for name, kinds in samples.items()
    }
    rows = []
    own = {"bytes": sum(f.stat().st_size for f in model.iterdir())}
    for name, rate in rates.items():
        found = parity.get(name, own)
        equal = found.get("equal greedy outputs")
        rows.append([
            name,
            f"{found['bytes'] / 1e6:.1f}",
            *(f"{each['median']:,.0f}" for each in rate.values()),
            "" if equal is None else f"{equal:,} of {found['sentences']:,}",
            found.get("BLEU of the export", ""),
        ])  # fmt: skip
    report = {
        "date": date.today().isoformat(),
        "command": command_line(),
        "machine": machine(),
        "threads": args.threads,
        "versions": versions(["torch", "ctranslate2", "transformers", "onnxruntime"]),
        "model_sha256": checkpoint.digest(model),
        "bytes of the model": own["bytes"],
        "parity": parity,
        "sentences a second": rates,
    }
    args.output.write_text(json.dumps(report, indent=1) + "\n")
    print(table(["engine", "MB", *works, "greedy outputs that are ours", "BLEU"], rows))


if __name__ == "__main__":
    sys.exit(main())
