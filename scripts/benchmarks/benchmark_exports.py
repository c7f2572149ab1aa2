"""Every export of a model: its parity, size and speed, side by side with mt.

python scripts/benchmarks/benchmark_exports.py everyday --output results/exports.json

All engines translate the same sentences of the phrasebook's test split greedily, in this process,
on the CPU: every eighth sentence one at a time, and all in batches of 64 of similar length. The
rates are medians of interleaved rounds, in sentences a second.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from benchmarking import Meter, Sample, add_output_options, new_parser, say, versions
from reporting import group_by, new_report, table, typical, write_report

from mt.data import phrasebook
from mt.export import __main__
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.model_path import resolve_model_path
from mt.utils import console

FORMS = (
    ("ctranslate2", "float32"), ("ctranslate2", "float16"), ("ctranslate2", "int8"),
    ("ctranslate2", "int8_bfloat16"), ("huggingface", "float32"), ("huggingface", "float16"),
    ("huggingface", "bfloat16"), ("onnx", "float32"),
)  # fmt: skip
BATCH = 64
ROUNDS = 5
Greedy = Callable[[list[list[int]]], object]


def engines(model: Path, folders: dict[tuple[str, str], Path]) -> dict[str, Greedy]:
    """For each name, a function that translates a batch of ids greedily."""
    functions: dict[str, Greedy] = {}
    for precision in ("float32", "bfloat16", "int8"):
        translator = Translator.load(model, "cpu", precision, workers=1)
        functions[f"mt, {precision}"] = mt_greedy(translator)
    for (form, precision), folder in folders.items():
        options = {"workers": 1} if form == "ctranslate2" else {}
        engine = __main__.engine_of(form).Engine(folder, **options)
        functions[f"{form}, {precision}"] = engine.greedy
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
    parser = new_parser(__doc__)
    parser.add_argument("model", help="model folder, `everyday` or `latest`")
    parser.add_argument("--sentences", type=int, default=256, help="in batches (default 256)")
    add_output_options(parser, picture=False, threads=1, required=True)
    args = parser.parse_args(argv)
    return console.exit_status("benchmark_exports", lambda: run(args))


def run(args: argparse.Namespace) -> None:
    model = resolve_model_path(args.model)
    with tempfile.TemporaryDirectory() as scratch:
        folders, parity = {}, {}
        for form, precision in FORMS:
            folder = folders[form, precision] = Path(scratch) / f"{form}-{precision}"
            arguments = [str(model), str(folder), "--to", form, "--precision", precision]
            gate = __main__.run(__main__.parse(arguments))  # an error if parity fails
            parity[f"{form}, {precision}"] = gate
            say(f"{form}, {precision}:", {k: v for k, v in gate.items() if k != "model_sha256"})
        sources = [source for source, _ in phrasebook.load("test")[: args.sentences]]
        ids = Translator.load(model, "cpu").tokenizer.encode(sources)
        few = ids[:: max(1, len(ids) // 32)]
        works = {"one at a time": batches(few, 1), f"{BATCH} at a time": batches(ids, BATCH)}
        torch.set_num_threads(args.threads)  # CTranslate2 may have changed it
        functions = engines(model, folders)
        samples: list[Sample] = []
        for number in range(ROUNDS + 1):
            for name, greedy in functions.items():
                for kind, work in works.items():
                    sample = measure(greedy, work)
                    if number > 0:  # the first round warms up
                        samples.append({"engine": name, "kind": kind, **sample})
    rates = {
        name: {k: typical(s, "sentences_per_second") for k, s in group_by(group, "kind").items()}
        for name, group in group_by(samples, "engine").items()
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
