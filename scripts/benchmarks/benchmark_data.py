"""What data of WMT14's size cost: preparation, start of training, planning of an epoch.

python scripts/benchmarks/benchmark_data.py --text PREFIX --validation PREFIX \\
    --output results/scale.json

Writes a corpus in the layout of the Hugging Face hub from the lines of PREFIX.en(.gz) and
PREFIX.de(.gz), then runs this project's commands on it and measures them. After an interruption,
the same command continues with the files that exist.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarking import new_parser
from reporting import machine, new_report, remember, write_report

from mt.data.batch_sampler import TokenBudgetSampler
from mt.data.prepared_corpus import PreparedCorpus
from mt.data.readers import FileReader, Pair
from mt.utils.atomic import atomic_path, atomic_write

ROOT = Path(__file__).resolve().parents[2]
SHARDS = 3  # as many as wmt/wmt14 has on the hub

# A program that runs mt.train until the first batch arrives, and writes how long that took and how
# much memory the processes hold.
FIRST_BATCH = """
import json, os, sys, time
from pathlib import Path

def status(pid, key):
    line = next(l for l in open(f"/proc/{pid}/status") if l.startswith(key + ":"))
    return int(line.split()[1]) * 1024

def report(self, batch, batch_idx):
    ticks = float(Path("/proc/self/stat").read_text().rsplit(") ", 1)[1].split()[19])
    started = ticks / os.sysconf("SC_CLK_TCK")
    seconds = float(Path("/proc/uptime").read_text().split()[0]) - started
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    answer = {
        "seconds": round(seconds, 2),
        "peak_rss": status("self", "VmHWM"),
        "workers_rss": [status(pid, "VmRSS") for pid in children],
        "batch": list(batch.src.rows.shape),
    }
    Path(os.environ["ANSWER"]).write_text(json.dumps(answer))
    os._exit(0)

from mt import train
from mt.training.lightning_module import TranslationModule
TranslationModule.on_train_batch_start = report
train.main()
"""


def join_pairs(pairs: list[Pair], count: int) -> Iterator[dict[str, str]]:
    """Join one to four pairs, differently in every repetition: about the lengths of WMT14."""
    for n in range(count):
        repetition, i = divmod(n, len(pairs))
        parts = range(1 + (i + repetition) % 4)
        chosen = [pairs[(i + part * (repetition + 1) * 7) % len(pairs)] for part in parts]
        english, german = (" ".join(side) for side in zip(*chosen, strict=True))
        yield {"de": german, "en": english}


def write_split(folder: Path, split: str, rows: Iterator[dict[str, str]], count: int) -> None:
    """Write Parquet shards with one feature, ``translation``."""
    shards = SHARDS if split == "train" else 1
    kind = pa.struct([("de", pa.string()), ("en", pa.string())])
    schema = pa.schema([("translation", kind)])
    for shard in range(shards):
        size = count * (shard + 1) // shards - count * shard // shards
        path = folder / f"{split}-{shard:05d}-of-{shards:05d}.parquet"
        with atomic_path(path) as partial, pq.ParquetWriter(partial, schema) as writer:
            while size > 0:
                block = [next(rows) for _ in range(min(size, 50_000))]
                writer.write_table(pa.table({"translation": pa.array(block, type=kind)}, schema))
                size -= len(block)


def write_corpus(folder: Path, text: str, validation: str, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "made").is_file():
        return
    print(f"writing {count:,} pairs to {folder}", flush=True)
    pairs = list(FileReader(train=text).pairs("train"))
    write_split(folder, "train", join_pairs(pairs, count), count)
    held_out = list(FileReader(validation=validation).pairs("validation"))
    rows = ({"de": german, "en": english} for english, german in held_out)
    write_split(folder, "validation", rows, len(held_out))
    (folder / "made").write_text("")


def measure(command: list[str], cwd: Path) -> dict[str, Any]:
    """Run a command; returns its times, and its peak resident memory without its children's."""
    print("$", *command, flush=True)
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {command}")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_rss": usage.ru_maxrss * 1024,
    }


def plan(prepared: PreparedCorpus, max_tokens: int) -> dict[str, Any]:
    """The time to plan an epoch, and the share of every rank for several world sizes."""
    lengths = prepared.lengths()
    start = time.perf_counter()
    sampler = TokenBudgetSampler(*lengths, max_tokens=max_tokens, seed=1)
    seconds_once = time.perf_counter() - start
    first = next(iter(sampler))
    seconds_planned = time.perf_counter() - start
    prepared.fetch(first.indices)
    ranks: dict[str, Any] = {}
    for world_size in (1, 2, 3, 4, 8):
        options = {"max_tokens": max_tokens, "seed": 1, "world_size": world_size}
        samplers = [TokenBudgetSampler(*lengths, rank=r, **options) for r in range(world_size)]
        plans = [s.plan(0) for s in samplers]
        pairs = sum(len(batch) for p in plans for batch in p)
        distinct = len({i for p in plans for batch in p for i in batch.tolist()})
        ranks[str(world_size)] = {
            "batches_of_each_rank": sorted({len(p) for p in plans}),
            "batches_left_over": samplers[0].dropped_batches,
            "pairs_left_over": len(lengths[0]) - pairs,
            "pairs_twice": pairs - distinct,
        }
    return {
        "max_tokens": max_tokens,
        "seconds_once": round(seconds_once, 2),
        "seconds_to_first_batch": round(seconds_planned, 2),
        "seconds_each_epoch": round(seconds_planned - seconds_once, 2),
        "world_sizes": ranks,
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--text", required=True, help="prefix of the lines to make pairs from")
    parser.add_argument("--validation", required=True, help="prefix of the validation lines")
    parser.add_argument("--pairs", type=int, default=4_500_000)
    parser.add_argument("--vocab-size", type=int, default=37_000)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mt-scale")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    args = parser.parse_args(argv)
    args.work = args.work.resolve()
    return args


def mirror_of(args: argparse.Namespace) -> Path:
    """The folder of the corpus, laid out as on the hub."""
    return args.work / f"wmt14-{args.pairs}"


def settings_of(args: argparse.Namespace) -> list[str]:
    """The settings of this project's commands."""
    return [
        "experiment=wmt14_base",
        f"data.path={mirror_of(args)}",
        f"data.cache_dir={args.work / 'cache'}",
        f"tokenizer.path={args.work / f'{args.pairs}-{args.vocab_size}.model'}",
        f"tokenizer.vocab_size={args.vocab_size}",
        "trainer.accelerator=cpu",
        "trainer.devices=1",
    ]


def make_corpus(args: argparse.Namespace) -> None:
    # A separate process, because the memory of this one counts in its children's peak memory.
    arguments = (mirror_of(args) / "de-en", args.text, args.validation, args.pairs)
    writer = multiprocessing.Process(target=write_corpus, args=arguments)
    writer.start()
    writer.join()
    if writer.exitcode:
        sys.exit(writer.exitcode)


def measured_once(args: argparse.Namespace) -> dict[str, Any]:
    """The figures of the tokenizer and the preparation, which a second run takes from a file."""
    file = args.work / "figures.json"
    figures: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    for name, script in (("tokenizer", "train_tokenizer.py"), ("preparation", "prepare_data.py")):
        if name not in figures:
            command = [sys.executable, str(ROOT / "scripts" / script), *settings_of(args)]
            figures[name] = measure(command, args.work)
            atomic_write(file, json.dumps(figures))
    preparation = figures["preparation"]
    preparation["pairs_per_second"] = round(args.pairs / preparation["seconds"])
    return figures


def median_start(args: argparse.Namespace) -> dict[str, Any]:
    """Of three starts of a training up to its first batch, that with the median time."""
    driver, answer = args.work / "first_batch.py", args.work / "first-batch.json"
    driver.write_text(FIRST_BATCH)
    os.environ["ANSWER"] = str(answer)
    starts = []
    for n in range(3):
        run = f"hydra.run.dir={args.work / 'runs' / f'{time.time():.0f}-{n}'}"
        measure([sys.executable, str(driver), *settings_of(args), run], args.work)
        starts.append(json.loads(answer.read_text()))
    return sorted(starts, key=lambda start: start["seconds"])[1]


def report_of(args: argparse.Namespace, figures: dict[str, Any]) -> dict[str, Any]:
    (folder,) = (args.work / "cache").glob("train-*")
    prepared = PreparedCorpus(folder)
    shards = (mirror_of(args) / "de-en").glob("train-*.parquet")
    return new_report() | {
        "machine": "{cores} cores, {cpu}, {memory_gib:.0f} GiB".format(**machine()),
        "command": "python scripts/benchmarks/benchmark_data.py --text PREFIX --validation PREFIX "
        f"--pairs {args.pairs} --vocab-size {args.vocab_size} --output FILE",
        "text": "/".join(Path(args.text).parts[-2:]),
        "pairs": args.pairs,
        "kept": len(prepared),
        "mean_tokens": [round(float(side.mean()), 2) for side in prepared.lengths()],
        "source_bytes": sum(file.stat().st_size for file in shards),
        "prepared_bytes": sum(file.stat().st_size for file in folder.iterdir()),
        **figures,
        "epoch": plan(prepared, 6250),
    }


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    names = ("text", "validation", "pairs", "vocab_size")
    depends_on = {name: getattr(args, name) for name in names}
    try:
        remember(args.work / "settings.json", depends_on, "name another --work")
    except ValueError as error:
        raise SystemExit(str(error)) from None
    make_corpus(args)
    figures = measured_once(args) | {"start": median_start(args)}
    report = report_of(args, figures)
    write_report(args.output, report)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
