"""How long a whole file takes with a trained model, side by side with other toolkits.

python scripts/benchmarks/benchmark_mixed.py MODEL_FOLDER --source newstest2014.en.gz \\
    --reference newstest2014.de.gz --python transformers=PATH --python ctranslate2=PATH

The same weights go into transformers' MarianMTModel, in the layout of `mt.model.marian`, and from
there, converted, into CTranslate2. The script checks on some sentences that all logits agree.
docs/performance.md says what is equal and what is not.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import benchmarking
import reporting

# Other toolkits' interpreters run this file too: its top imports the standard library only.
from benchmark_engines import (
    REFERENCE,
    TOOLKITS,
    Engine,
    ban_specials,
    convert_marian,
    ctranslate2_engine,
    generate,
    open_ctranslate2,
)
from benchmark_models import BOS, EOS, PACKAGES, PAD, Size, marian, padded, word
from benchmarking import Meter, Rounds, Sample, emit, names, numbers
from reporting import Row, cell, group_by, ratio

MAX_EXTRA = 50  # tokens that an output may be longer than its input
ALPHA = 0.6
BATCH = 64
TOLERANCE = 1e-4  # of a logit
COLUMNS = {
    "engine": lambda row: row["engine"],
    "seconds": lambda row: f"{row['seconds']['median']:.1f}",
    "tokens/s": lambda row: f"{row['tokens_per_second']:.0f}",
    "to transformers": lambda row: cell(row["to_transformers"], ".2f"),
    "to CTranslate2 float32": lambda row: cell(row[f"to_{REFERENCE}"], ".2f"),
    "same as mt": lambda row: cell(row["same"], ".1%"),
    "sacreBLEU": lambda row: cell(row.get("bleu"), ".2f"),
    "samples": lambda row: row["seconds"]["samples"],
    "disturbed": lambda row: row["seconds"]["disturbed"],
}

Weights = dict[str, Any]
Outputs = list[Any]  # of each sentence: mt's text, or another toolkit's ids
TranslateAll = Callable[[int, int | None], tuple[Outputs, int]]
"""(beam, first sentences only or None) -> outputs in order, tokens produced."""


def filled_marian(weights: Weights, size: Size, positions: int) -> Any:
    """MarianMTModel with these weights. Raises ValueError when there are too few or too many."""
    model = marian(size, positions)
    result = model.load_state_dict(weights, strict=False)
    known = ("embed_tokens.weight", "embed_positions.weight", "lm_head.weight")
    missing = [name for name in result.missing_keys if not name.endswith(known)]
    if missing or result.unexpected_keys:
        raise ValueError(f"weights missing {missing}, or unexpected: {result.unexpected_keys}")
    model.tie_weights()
    return model


def difference(model: Any, check: dict[str, Any]) -> float:
    """The greatest difference of a logit from mt's; padding of the targets does not count."""
    import torch

    src, tgt = check["src"], check["tgt"]
    mask = (src != PAD).long()
    with torch.inference_mode():
        logits = model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt).logits
    real = tgt != PAD
    return float((logits[real] - check["logits"][real]).abs().max())


def sorted_batches(sentences: list[list[int]]) -> Iterator[list[int]]:
    """Indices of sentences of similar length, the longest first."""
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    for start in range(0, len(order), BATCH):
        yield order[start : start + BATCH]


def open_mt(
    task: dict[str, Any], threads: int, precision: str = "float32", workers: bool = True
) -> TranslateAll:
    from mt.inference.translator import Translator

    translator = Translator.load(task["model"], "cpu", precision, threads if workers else 1)

    def translate(beam: int, first: int | None) -> tuple[Outputs, int]:
        translations = translator.translate(task["lines"][:first], beam_size=beam)
        return [t.text for t in translations], sum(t.tokens for t in translations)

    return translate


def open_transformers(task: dict[str, Any], threads: int) -> TranslateAll:
    model = filled_marian(task["weights"], task["size"], task["positions"])
    task["difference"] = difference(model, task["check"])
    ban_specials(model)

    def translate(beam: int, first: int | None) -> tuple[Outputs, int]:
        sentences = task["ids"][:first]
        outputs: Outputs = [[] for _ in sentences]
        tokens = 0
        for batch in sorted_batches(sentences):
            sources = [sentences[i] for i in batch]
            options = {"num_beams": beam, "length_penalty": ALPHA} if beam > 1 else {}
            longest = max(map(len, sources)) + MAX_EXTRA
            ids = generate(model, sources, max_new_tokens=longest, **options)
            for i, row in zip(batch, ids.tolist(), strict=True):
                # After the end, generate fills up with pad or, in beam search, with eos.
                outputs[i] = row[: row.index(EOS)] if EOS in row else row
                tokens += min(len(outputs[i]) + 1, len(row))
        return outputs, tokens

    return translate


def open_converted(
    task: dict[str, Any], threads: int, compute_type: str, layout: str
) -> TranslateAll:
    folder = Path(task["scratch"]) / "ctranslate2"
    if not folder.exists():
        model = filled_marian(task["weights"], task["size"], task["positions"])
        ban_specials(model)
        convert_marian(model, folder)
    translator = open_ctranslate2(folder, threads, compute_type, layout)

    def translate(beam: int, first: int | None) -> tuple[Outputs, int]:
        sentences = task["ids"][:first]
        outputs: Outputs = [[] for _ in sentences]
        tokens = 0
        pending = []
        for batch in sorted_batches(sentences):
            results = translator.translate_batch(
                [[*map(word, sentences[i]), word(EOS)] for i in batch],
                beam_size=beam,
                length_penalty=ALPHA,
                max_decoding_length=max(len(sentences[i]) for i in batch) + MAX_EXTRA,
                return_end_token=True,
                asynchronous=True,  # so that several workers have work
            )
            pending += zip(batch, results, strict=True)
        for i, result in pending:
            words = result.result().hypotheses[0]
            tokens += len(words)
            outputs[i] = [int(w[1:]) for w in words if w != word(EOS)]
        return outputs, tokens

    return translate


_ctranslate2 = partial(ctranslate2_engine, open_converted)
ENGINES = {
    "mt": Engine("mt", open_mt),
    "mt-one-worker": Engine("mt", partial(open_mt, workers=False)),
    "mt-bfloat16": Engine("mt", partial(open_mt, precision="bfloat16")),
    "mt-int8": Engine("mt", partial(open_mt, precision="int8")),
    "transformers": Engine("transformers", open_transformers),
    REFERENCE: _ctranslate2("float32", "1xN"),
    "ctranslate2-float32-Nx1": _ctranslate2("float32", "Nx1"),
    "ctranslate2-int8-1x1": _ctranslate2("int8", "1x1"),
    "ctranslate2-int8-Nx1": _ctranslate2("int8", "Nx1"),
}


def work(args: argparse.Namespace) -> None:
    """In the worker: emit a sample for each beam size, and write the outputs to files."""
    name, scratch = args.worker, Path(args.scratch)
    if not benchmarking.start_worker(PACKAGES[ENGINES[name].toolkit], TOOLKITS, args.threads):
        return
    import torch

    task = torch.load(scratch / "task.pt", weights_only=True)
    task |= {"scratch": scratch, "size": Size(*task["size"])}
    translate = ENGINES[name].build(task, args.threads)
    for beam in args.beams:
        translate(beam, 4)  # the first call is slower
        with Meter() as meter:
            outputs, tokens = translate(beam, None)
        path = scratch / f"{name}-{beam}.json"
        path.write_text(json.dumps(outputs), encoding="utf-8")
        sample = {
            "beam": beam,
            "seconds": round(meter.seconds, 3),
            "tokens": tokens,
            "tokens_per_second": round(tokens / meter.seconds, 1),
            **meter.load(),
        }
        emit(sample | {key: task[key] for key in ("difference",) if key in task})


def prepare(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], Any]:
    """Write what the workers need; return the facts for the report, and the tokenizer."""
    import torch

    from mt.model import checkpoint
    from mt.model.marian import to_marian
    from mt.utils.line_io import read_lines

    model, tokenizer, config, _ = checkpoint.load(args.model)
    lines = list(islice(read_lines(args.source), args.lines))
    ids = tokenizer.encode(lines)
    kept = [i for i, sentence in enumerate(ids) if 0 < len(sentence) <= config["max_length"]]
    if not kept:
        raise SystemExit(f"{args.source} has no sentence of a suitable length")
    first = [ids[i] for i in kept[:8]]
    src = padded(first, EOS, PAD)
    tgt = padded([[BOS, *sentence] for sentence in first], EOS, PAD)[:, :-1]
    with torch.inference_mode():
        logits = model(src, tgt)
    task = {
        "model": str(Path(args.model).resolve()),
        "size": [model.config[name] for name in ("d_model", "d_ff", "h", "N", "vocab_size")],
        "weights": to_marian(model, torch.zeros(model.config["vocab_size"])),
        "check": {"src": src, "tgt": tgt, "logits": logits},
        "positions": max(len(ids[i]) for i in kept) + MAX_EXTRA + 1,
        "lines": [lines[i] for i in kept],
        "ids": [ids[i] for i in kept],
    }
    torch.save(task, scratch / "task.pt")
    facts = {"model": model.config, "sentences": len(kept), "left_out": len(lines) - len(kept)}
    if args.reference:
        references = list(islice(read_lines(args.reference), args.lines))
        if len(references) != len(lines):
            raise SystemExit(f"{args.reference}: {len(references)} lines, not {len(lines)}")
        facts["references"] = [references[i] for i in kept]
    return facts, tokenizer


def texts(path: Path, tokenizer: Any) -> list[str]:
    outputs = json.loads(path.read_text(encoding="utf-8"))
    if outputs and isinstance(outputs[0], list):
        outputs = [" ".join(text.split()) for text in tokenizer.decode(outputs)]
    return outputs


def summarise(
    samples: Sequence[Sample], translations: dict[tuple[str, int], list[str]]
) -> list[dict[str, Any]]:
    """One row for each beam size and engine; ``same`` is the share of texts that equal mt's."""
    rows = []
    for beam, group in group_by(samples, "beam").items():
        engines = group_by(group, "engine")
        speeds = {name: speed["median"] for name, speed in reporting.rank(group).items()}
        mt_texts = translations.get(("mt", beam))
        for name, speed in speeds.items():
            seconds = reporting.typical(engines[name], "seconds")
            row = {"beam": beam, "engine": name, "tokens_per_second": speed, "seconds": seconds}
            for toolkit in ("transformers", REFERENCE):
                row[f"to_{toolkit}"] = ratio(speed, speeds.get(toolkit))
            texts = translations[name, beam]
            equal = [a == b for a, b in zip(texts, mt_texts, strict=True)] if mt_texts else None
            row["same"] = equal and round(sum(equal) / len(equal), 3)
            rows.append(row)
    return rows


def title(row: Row) -> str:
    return "greedy" if row["beam"] == 1 else f"beam {row['beam']}"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmarking.new_parser(__doc__)
    parser.add_argument("model", nargs="?", help="a model folder of mt")
    parser.add_argument("--source", help="English lines, .gz or not")
    parser.add_argument("--reference", help="German lines, for sacreBLEU")
    parser.add_argument("--lines", type=int, help="only so many; all by default")
    parser.add_argument("--beams", type=numbers, default=[1, 4])
    parser.add_argument("--engines", type=names, default=list(ENGINES))
    benchmarking.add_worker_options(parser, rounds=1)
    benchmarking.add_output_options(parser, picture=False)
    parser.add_argument("--scratch", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if not args.worker and not (args.model and args.source):
        parser.error("a model folder and --source are needed")
    benchmarking.check_names(parser, "--engines", args.engines, ENGINES)
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if args.worker:
        work(args)
        return 0
    rounds = Rounds(__file__, args, TOOLKITS, lambda s: f"{title(s)}: {s['seconds']} s")
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        facts, tokenizer = prepare(args, Path(folder))
        references = facts.pop("references", None)
        options = ["--scratch", folder, "--beams", ",".join(map(str, args.beams))]
        for number in range(1, args.rounds + 1):
            for name in args.engines:
                if name not in errors and name not in rounds.skipped:
                    rounds.run(number, name, ENGINES[name].toolkit, options)
                    errors = {error["engine"]: error["error"] for error in rounds.errors}
        translations = {
            (name, beam): texts(Path(folder) / f"{name}-{beam}.json", tokenizer)
            for name, beam in group_by(rounds.samples, "engine", "beam")
        }
    differences = [s.pop("difference") for s in rounds.samples if "difference" in s]
    if differences:
        facts["greatest_difference_of_a_logit"] = differences[-1]
    results = summarise(rounds.samples, translations)
    if references:
        from mt.evaluation.metrics import bleu

        for row in results:
            hypotheses = translations[row["engine"], row["beam"]]
            row["bleu"] = round(bleu(hypotheses, references).value, 2)
    facts |= {**rounds.facts(), "errors": errors, "results": results, "samples": rounds.samples}
    reporting.write_report(args.output, reporting.new_report(threads=args.threads, **facts))
    print(reporting.sections(results, title, COLUMNS))
    if not differences:
        return 0
    beyond = differences[-1] >= TOLERANCE
    verdict = f"{'BEYOND' if beyond else 'within'} the limit of {TOLERANCE}"
    print(f"\nLogits of transformers differ from mt's by at most {differences[-1]:.1e}, {verdict}.")
    return int(beyond)


if __name__ == "__main__":
    sys.exit(main())
