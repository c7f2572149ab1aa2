"""Every export of a model: its parity, size and speed, side by side with mt.

python scripts/benchmarks/benchmark_exports.py everyday --output results/exports.json

`mt.export` writes each export and returns the results of its parity gate. Then all engines
translate the same sentences of the phrasebook's test split greedily, in this process, on the CPU,
with one thread in each operation unless --threads says otherwise: every eighth sentence one at a
time, and all sentences in batches of 64 of similar length. The rates are medians of interleaved
rounds, in sentences a second.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarking import Meter, Sample, say, versions
from reporting import new_report, table, typical, write_report

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


def export(model: Path, folder: Path, form: str, precision: str) -> dict[str, Any]:
    """Write an export; returns the results of its parity gate. Raises ValueError if it fails."""
    arguments = [str(model), str(folder), "--to", form, "--precision", precision]
    return __main__.run(__main__.parse(arguments))


def engines(model: Path, folders: dict[tuple[str, str], Path]) -> dict[str, Greedy]:
    """For each name, a function that translates a batch of ids greedily."""
    functions: dict[str, Greedy] = {}
    for precision in ("float32", "bfloat16", "int8"):
        functions[f"mt, {precision}"] = mt_greedy(
            Translator.load(model, "cpu", precision, workers=1)
        )
    for (form, precision), folder in folders.items():
        options = {"workers": 1} if form == "ctranslate2" else {}
        functions[f"{form}, {precision}"] = (
            __main__.engine_of(form).Engine(folder, **options).greedy
        )
    return functions


def mt_greedy(translator: Translator) -> Greedy:
    options = SearchOptions(beam_size=1)
    return lambda ids: translator.search(ids, options, [[] for _ in ids])


def batches(ids: list[list[int]], size: int) -> list[list[list[int]]]:
    by_length = sorted(ids, key=len)
    return [by_length[start : start + size] for start in range(0, len(by_length), size)]


def measure(greedy: Greedy, work: Sequence[list[list[int]]]) -> Sample:
    with Meter() as meter:
        for batch in work:
            greedy(batch)
    return {
        "sentences_per_second": round(sum(map(len, work)) / meter.seconds, 1),
        "disturbed": meter.load()["disturbed"],
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="model folder, `everyday` or `latest`")
    parser.add_argument(
        "--sentences", type=int, default=256, help="translated in batches (default 256)"
    )
    parser.add_argument("--threads", type=int, default=1, help="in each operation (default 1)")
    parser.add_argument("--output", type=Path, required=True, help="JSON")
    args = parser.parse_args(argv)
    return console.exit_status("benchmark_exports", lambda: run(args))


def run(args: argparse.Namespace) -> None:
    model = checkpoint.resolve_model_path(args.model)
    with tempfile.TemporaryDirectory() as scratch:
        folders, parity = {}, {}
        for form, precision in FORMS:
            folders[form, precision] = Path(scratch) / f"{form}-{precision}"
            gate = export(model, folders[form, precision], form, precision)
            parity[f"{form}, {precision}"] = gate
            say(f"{form}, {precision}:", {k: v for k, v in gate.items() if k != "model_sha256"})
        sources = [source for source, _ in phrasebook.load("test")[: args.sentences]]
        ids = Translator.load(model, "cpu").tokenizer.encode(sources)
        few = ids[:: max(1, len(ids) // 32)]
        works = {"one at a time": batches(few, 1), f"{BATCH} at a time": batches(ids, BATCH)}
        torch.set_num_threads(args.threads)  # CTranslate2 may have changed it
        functions = engines(model, folders)
        samples: dict[str, dict[str, list[Sample]]] = {
            name: {kind: [] for kind in works} for name in functions
        }
        for number in range(ROUNDS + 1):
            for name, greedy in functions.items():
                for kind, work in works.items():
                    sample = measure(greedy, work)
                    if number > 0:  # the first round warms up
                        samples[name][kind].append(sample)
    rates = {
        name: {kind: typical(group, "sentences_per_second") for kind, group in kinds.items()}
        for name, kinds in samples.items()
    }
    rows = []
    model_bytes = sum(f.stat().st_size for f in model.iterdir())
    for name, kinds in rates.items():
        gate = parity.get(name, {"bytes": model_bytes})
        equal = gate.get("equal greedy outputs")
        rows.append([
            name,
            f"{gate['bytes'] / 1e6:.1f}",
            *(f"{rate['median']:,.0f}" for rate in kinds.values()),
            "" if equal is None else f"{equal:,} of {gate['sentences']:,}",
            gate.get("BLEU of the export", ""),
        ])  # fmt: skip
    report = new_report(
        threads=args.threads,
        versions=versions(["torch", "ctranslate2", "transformers", "onnxruntime"]),
        model_sha256=checkpoint.digest(model),
    )
    report |= {"bytes of the model": model_bytes, "parity": parity, "sentences a second": rates}
    write_report(args.output, report)
    print(table(["engine", "MB", *works, "greedy outputs equal to mt's", "BLEU"], rows))


if __name__ == "__main__":
    sys.exit(main())
