"""How long a whole file takes with a trained model, side by side with what one could use instead.

python scripts/benchmark_mixed.py MODEL_FOLDER --source newstest2014.en.gz \\
    --reference newstest2014.de.gz --python transformers=PATH --python ctranslate2=PATH

The very same weights go into transformers' MarianMTModel, as `mt.model.marian` lays them out, and,
converted from it, into CTranslate2. That is checked on some sentences: no logit may differ by 1e-4
or more.

Ours is `Translator.translate` as a user calls it, text to text, with one worker for each thread
(-one-worker: with all threads inside each operation). The peers get token ids, sorted by length
and in batches of 64, and give ids back: what they leave out, tokenization, is to their advantage.
All stop at the longest source of the batch + 50 tokens (ours: of the sentence) and search greedily
or with beam 4; their length penalties with 0.6 divide by length ** 0.6, ours by
((5 + length) / 6) ** 0.6. -1x1, -1xN and -Nx1 are as in `benchmark_translate.py`. Blank lines and
those that are longer than the model was trained on, which we would cut into parts, are left out
for all. Tokens count eos and no padding.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

# The peers' interpreters run this file too: at its top it imports nothing but Python's own.
from benchmark_engines import REFERENCE, ban_specials, convert_marian, open_ctranslate2
from benchmark_models import BOS, EOS, PAD, Size, marian, padded, word
from benchmark_translate import PEERS
from benchmarking import (
    Meter,
    cell,
    command_line,
    disturbed,
    interpreters,
    machine,
    missing,
    run_worker,
    say,
    table,
    typical,
    versions,
)

MAX_EXTRA = 50  # tokens that an output may be longer than its input
ALPHA = 0.6
BATCH = 64
TOLERANCE = 1e-4  # of a logit

Weights = dict[str, Any]
Outputs = list[Any]  # of each sentence: our text, or a peer's ids
TranslateAll = Callable[[int, int | None], tuple[Outputs, int]]
"""(beam, first sentences only or None) -> outputs in order, tokens produced."""


# --------------------------------------------------------------------------------- the weights


def filled_marian(weights: Weights, size: Size, positions: int) -> Any:
    """MarianMTModel with ``weights`` in it. Raises ValueError when some are left over or lack."""
    model = marian(size, positions)
    wrong = model.load_state_dict(weights, strict=False)
    known = ("embed_tokens.weight", "embed_positions.weight", "lm_head.weight")
    lack = [name for name in wrong.missing_keys if not name.endswith(known)]
    if lack or wrong.unexpected_keys:
        raise ValueError(f"weights lack {lack} or have {wrong.unexpected_keys} too many")
    model.tie_weights()
    return model


def difference(model: Any, check: dict[str, Any]) -> float:
    """The greatest difference of a logit from ours; padding behind targets does not count."""
    import torch

    src, tgt = check["src"], check["tgt"]
    with torch.inference_mode():
        logits = model(
            input_ids=src, attention_mask=(src != PAD).long(), decoder_input_ids=tgt
        ).logits
    real = tgt != PAD
    return float((logits[real] - check["logits"][real]).abs().max())


# ------------------------------------------------------------------------------------- engines


def sorted_batches(sentences: list[list[int]]) -> Iterator[list[int]]:
    """Indices of sentences of like length, the longest first."""
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    for start in range(0, len(order), BATCH):
        yield order[start : start + BATCH]


def open_mt(
    task: dict[str, Any], threads: int, precision: str = "float32", workers: bool = True
) -> TranslateAll:
    from mt.inference.translator import Translator

    translator = Translator.load(task["model"], "cpu", precision, threads if workers else 1)

    def translate(beam: int, first: int | None) -> tuple[Outputs, int]:
        found = translator.translate(task["lines"][:first], beam_size=beam)
        return [t.text for t in found], sum(t.tokens for t in found)

    return translate


def open_transformers(task: dict[str, Any], threads: int) -> TranslateAll:
    import torch

    model = filled_marian(task["weights"], task["size"], task["positions"])
    task["difference"] = difference(model, task["check"])
    ban_specials(model)

    def translate(beam: int, first: int | None) -> tuple[Outputs, int]:
        sentences = task["ids"][:first]
        outputs: Outputs = [[] for _ in sentences]
        tokens = 0
        for batch in sorted_batches(sentences):
            src = padded([sentences[i] for i in batch], EOS, PAD)
            options = {"num_beams": beam, "length_penalty": ALPHA} if beam > 1 else {}
            with torch.inference_mode():
                ids = model.generate(
                    input_ids=src,
                    attention_mask=(src != PAD).long(),
                    do_sample=False,
                    max_new_tokens=max(len(sentences[i]) for i in batch) + MAX_EXTRA,
                    **options,
                )
            for i, row in zip(batch, ids[:, 1:].tolist(), strict=True):
                # What follows the end is filled with pad or, beam search with pad id 0, with eos.
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
        waiting = []
        for batch in sorted_batches(sentences):
            results = translator.translate_batch(
                [[*map(word, sentences[i]), word(EOS)] for i in batch],
                beam_size=beam,
                length_penalty=ALPHA,
                max_decoding_length=max(len(sentences[i]) for i in batch) + MAX_EXTRA,
                return_end_token=True,
                asynchronous=True,  # so that several workers have work
            )
            waiting += zip(batch, results, strict=True)
        for i, result in waiting:
            words = result.result().hypotheses[0]
            tokens += len(words)
            outputs[i] = [int(w[1:]) for w in words if w != word(EOS)]
        return outputs, tokens

    return translate


class Engine(NamedTuple):
    peer: str  # whose interpreter runs it: NAME of --python
    packages: tuple[str, ...]
    open: Callable[[dict[str, Any], int], TranslateAll]


def _ctranslate2(compute_type: str, layout: str) -> Engine:
    build = partial(open_converted, compute_type=compute_type, layout=layout)
    return Engine("ctranslate2", ("ctranslate2", "transformers"), build)


ENGINES = {
    "mt": Engine("mt", ("mt",), open_mt),
    "mt-one-worker": Engine("mt", ("mt",), partial(open_mt, workers=False)),
    "mt-bfloat16": Engine("mt", ("mt",), partial(open_mt, precision="bfloat16")),
    "mt-int8": Engine("mt", ("mt",), partial(open_mt, precision="int8")),
    "transformers": Engine("transformers", ("transformers",), open_transformers),
    REFERENCE: _ctranslate2("float32", "1xN"),
    "ctranslate2-float32-Nx1": _ctranslate2("float32", "Nx1"),
    "ctranslate2-int8-1x1": _ctranslate2("int8", "1x1"),
    "ctranslate2-int8-Nx1": _ctranslate2("int8", "Nx1"),
}


def work(args: argparse.Namespace) -> None:
    """In an engine's interpreter: one JSON line for each beam size, outputs in files."""
    name = args.worker
    if lacks := missing(ENGINES[name].packages):
        print(json.dumps({"skipped": f"{' and '.join(lacks)} not installed"}))
        return
    import torch

    torch.set_num_threads(args.threads)
    scratch = Path(args.scratch)
    task = json.loads((scratch / "task.json").read_text(encoding="utf-8"))
    task |= {"scratch": scratch, "size": Size(*task["size"])}
    for key in ("weights", "check"):
        task[key] = torch.load(scratch / f"{key}.pt", weights_only=True)
    translate = ENGINES[name].open(task, args.threads)
    print(
        json.dumps({"versions": versions(["torch", *PEERS]), "difference": task.get("difference")}),
        flush=True,
    )
    for beam in args.beams:
        translate(beam, 4)  # what happens at the first call only is not measured
        with Meter() as meter:
            outputs, tokens = translate(beam, None)
        path = scratch / f"{name}-{beam}.json"
        path.write_text(json.dumps(outputs), encoding="utf-8")
        sample = {
            "engine": name,
            "beam": beam,
            "seconds": round(meter.seconds, 3),
            "tokens": tokens,
            "tokens_per_second": round(tokens / meter.seconds, 1),
            "others": meter.others,
            "disturbed": disturbed(meter.others),
        }
        print(json.dumps(sample), flush=True)


# --------------------------------------------------------------------------------- the driver


def read(path: str, limit: int | None) -> list[str]:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\r\n") for line in islice(file, limit)]


def prepare(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], Any]:
    """Write what the workers need; return the facts for the report, and our tokenizer."""
    import torch

    from mt.model import checkpoint
    from mt.model.marian import weights as marian_weights

    model, tokenizer, config, _ = checkpoint.load(args.model)
    lines = read(args.source, args.lines)
    ids = tokenizer.encode(lines)
    kept = [i for i, sentence in enumerate(ids) if 0 < len(sentence) <= config["max_length"]]
    if not kept:
        raise SystemExit(f"{args.source}: no sentence in it")
    shape = [model.config[name] for name in ("d_model", "d_ff", "h", "N", "vocab_size")]
    some = [ids[i] for i in kept[:8]]
    src = padded(some, EOS, PAD)
    tgt = padded([[BOS, *sentence] for sentence in some], EOS, PAD)[:, :-1]
    with torch.inference_mode():
        logits = model(src, tgt)
    no_bias = torch.zeros(model.config["vocab_size"])
    torch.save(marian_weights(model, no_bias), scratch / "weights.pt")
    torch.save({"src": src, "tgt": tgt, "logits": logits}, scratch / "check.pt")
    task = {
        "model": str(Path(args.model).resolve()),
        "size": shape,
        "positions": max(len(ids[i]) for i in kept) + MAX_EXTRA + 1,
        "lines": [lines[i] for i in kept],
        "ids": [ids[i] for i in kept],
    }
    (scratch / "task.json").write_text(json.dumps(task), encoding="utf-8")
    facts = {"model": model.config, "sentences": len(kept), "left_out": len(lines) - len(kept)}
    if args.reference:
        references = read(args.reference, args.lines)
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
    samples: Sequence[dict[str, Any]], translations: dict[tuple[str, int], list[str]]
) -> list[dict[str, Any]]:
    """One row for each beam size and engine; ``same`` is the share of texts that equal ours."""
    rows = []
    for beam in dict.fromkeys(s["beam"] for s in samples):
        seconds = {}
        for name in ENGINES:
            own = [s for s in samples if (s["engine"], s["beam"]) == (name, beam)]
            if own:
                seconds[name] = typical(own, "seconds"), typical(own)["median"]
        ours = translations.get(("mt", beam))
        for name, (time, speed) in sorted(seconds.items(), key=lambda item: -item[1][1]):
            row = {"beam": beam, "engine": name, "tokens_per_second": speed, "seconds": time}
            for peer in ("transformers", REFERENCE):
                faster = speed / seconds[peer][1] if peer in seconds else None
                row[f"to_{peer}"] = faster and round(faster, 3)
            text = translations[name, beam]
            same = [a == b for a, b in zip(text, ours, strict=True)] if ours else None
            row["same"] = same and round(sum(same) / len(same), 3)
            rows.append(row)
    return rows


def markdown(results: Sequence[dict[str, Any]]) -> str:
    header = ["engine", "seconds", "tokens/s", "to transformers", "to CTranslate2 float32"]
    header += ["same as ours", "sacreBLEU", "samples", "disturbed"]

    parts = []
    for beam in dict.fromkeys(r["beam"] for r in results):
        rows = [
            [
                r["engine"],
                f"{r['seconds']['median']:.1f}",
                f"{r['tokens_per_second']:.0f}",
                cell(r["to_transformers"], ".2f"),
                cell(r[f"to_{REFERENCE}"], ".2f"),
                cell(r["same"], ".1%"),
                cell(r.get("bleu"), ".2f"),
                r["seconds"]["samples"],
                r["seconds"]["disturbed"],
            ]
            for r in results
            if r["beam"] == beam
        ]
        parts.append(f"### {'greedy' if beam == 1 else f'beam {beam}'}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    def numbers(text: str) -> list[int]:
        return [int(n) for n in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])  # type: ignore[union-attr]
    parser.add_argument("model", nargs="?", help="a model folder of ours")
    parser.add_argument("--source", help="English lines, .gz or not")
    parser.add_argument("--reference", help="German lines, for sacreBLEU")
    parser.add_argument("--lines", type=int, help="only so many; all by default")
    parser.add_argument("--beams", type=numbers, default=[1, 4])
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--output", help="a JSON file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.worker:
        work(args)
        return 0
    if not args.model or not args.source:
        parser.error("a model folder and --source are needed")
    if unknown := sorted(set(args.engines) - set(ENGINES)):
        parser.error(f"--engines: {unknown[0]!r} is none of {', '.join(ENGINES)}")
    python = interpreters(args.python, PEERS)
    report: dict[str, Any] = {"date": date.today().isoformat(), "command": command_line()}
    report |= {"machine": machine(), "threads": args.threads, "versions": {}, "skipped": {}}
    samples: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        facts, tokenizer = prepare(args, Path(folder))
        references = facts.pop("references", None)
        for number in range(1, args.rounds + 1):
            for name in args.engines:
                if name in errors or name in report["skipped"]:
                    continue
                peer = ENGINES[name].peer
                options = ["--worker", name, "--scratch", folder, "--threads", args.threads]
                options += ["--beams", ",".join(map(str, args.beams))]
                command = [python.get(peer, sys.executable), __file__, *map(str, options)]
                records, error = run_worker(command, args.threads)
                for record in records:
                    if "skipped" in record:
                        report["skipped"][name] = record["skipped"]
                        say(f"{name}: skipped, {record['skipped']}")
                    elif "versions" in record:
                        report["versions"][peer] = record["versions"]
                        if record["difference"] is not None:
                            facts["greatest_difference_of_a_logit"] = record["difference"]
                    else:
                        samples.append({**record, "round": number})
                        say(f"round {number}  {name}  beam {record['beam']}: {record['seconds']} s")
                if error:
                    errors[name] = error
                    say(f"round {number}  {name}: {error}")
        produced = {(s["engine"], s["beam"]) for s in samples}
        translations = {
            (name, beam): texts(Path(folder) / f"{name}-{beam}.json", tokenizer)
            for name, beam in produced
        }
    results = summarise(samples, translations)
    if references:
        from mt.evaluation.metrics import bleu

        for row in results:
            text = translations[row["engine"], row["beam"]]
            row["bleu"] = round(bleu(text, references).value, 2)
    report |= {**facts, "errors": errors, "results": results, "samples": samples}
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(markdown(results) if results else "nothing was measured")
    found = facts.get("greatest_difference_of_a_logit")
    if found is not None:
        verdict = "as it must" if found < TOLERANCE else f"which is MORE than {TOLERANCE}"
        print(f"\nLogits in transformers differ by at most {found:.1e} from ours, {verdict}.")
        return int(found >= TOLERANCE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
