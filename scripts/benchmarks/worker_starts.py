"""Start the workers of data loaders many times on two ranks, and count the starts that hang.

python scripts/benchmarks/worker_starts.py --work FOLDER --output results/worker-starts.json

Every round begins two rank processes in the state in which training starts workers: Lightning,
gloo and OpenMP have their threads, and one more thread multiplies. Each round makes --renew starts:
a loader with two workers on each rank, a batch from each worker, the end of the workers. A start
hangs when a rank says nothing for --patience seconds. The output is written after each round; the
same command continues with the starts that it counts. --method fork is for comparison.

The corpus, --pairs pairs of random ids, is made in --work if it is not there.
"""

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from benchmarking import new_parser
from reporting import new_report, write_report

RANKS, WORKERS = 2, 2
RANK = "import sys, worker_starts; worker_starts.run_rank(*sys.argv[1:])"
Answer = dict[str, Any]


def write_corpus(folder: Path, pairs: int) -> None:
    """A prepared corpus of short lines of random ids."""
    import datasets
    from datasets.arrow_writer import ArrowWriter

    from mt.utils.atomic import atomic_folder

    rng = np.random.default_rng(0)
    ids = [datasets.Value("uint16")]
    features, lengths = datasets.Features({"src": ids, "tgt": ids}), []
    with atomic_folder(folder) as partial:
        with ArrowWriter(path=str(partial / "pairs.arrow"), features=features) as writer:
            for first in range(0, pairs, 10_000):
                counts = rng.integers(5, 15, (2, min(10_000, pairs - first)))
                sides = [[rng.integers(4, 37_000, n).tolist() for n in side] for side in counts]
                writer.write_batch(dict(zip(("src", "tgt"), sides, strict=True)))
                lengths.append(counts)
            writer.finalize()
        np.save(partial / "lengths.npy", np.concatenate(lengths, axis=1).astype(np.uint16))
        (partial / "report.json").write_text("{}\n")


def memory(pid: int) -> dict[str, float]:
    """MB that a process uses, and of these what is its alone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    private = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return {"rss": round(kilobytes["Rss"] / 1000), "private": round(private / 1000)}


def run_rank(number: str, folder: str, store: str, method: str) -> None:
    """Start workers whenever a line comes, and answer with a line of figures."""
    import torch
    import torch.distributed as dist

    from mt.data.batch_dataset import BatchDataset
    from mt.data.batch_sampler import Draw
    from mt.data.datamodule import TranslationData
    from mt.data.prepared_corpus import PreparedCorpus
    from mt.data.preprocessing import PairFilter

    rank = int(number)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    nothing: Any = None  # the reader and the tokenizer: the corpus is prepared
    data = TranslationData(nothing, nothing, PairFilter(), 4096, folder, 1, WORKERS)
    corpus = PreparedCorpus(Path(folder))
    pairs = np.random.default_rng(rank).integers(len(corpus), size=(WORKERS, 100)).tolist()
    draws: Any = [Draw(0, batch) for batch in pairs]

    def multiply() -> None:
        matrix = torch.rand(300, 300)
        while True:
            matrix @ matrix
            time.sleep(0.01)

    threading.Thread(target=multiply, daemon=True).start()
    for _ in sys.stdin:
        dist.all_reduce(torch.zeros(1000))
        loader = data._loader(BatchDataset(corpus), draws, WORKERS)
        loader.multiprocessing_context = method
        begun = time.monotonic()
        batches = iter(loader)
        returned = time.monotonic()
        next(batches)
        first = time.monotonic()
        for _ in batches:
            pass
        pids = [worker.pid for worker in batches._workers]  # type: ignore[attr-defined]
        answer = {
            "started": round(returned - begun, 3),
            "first batch": round(first - begun, 3),
            "workers": [memory(pid) for pid in pids],
            "threads": len(os.listdir("/proc/self/task")),
        }
        del batches, loader
        print(json.dumps(answer), flush=True)


class Ranks:
    """The rank processes of a round, and the lines that they print."""

    def __init__(self, folder: Path, store: str, method: str) -> None:
        self.answers: queue.Queue[Answer] = queue.Queue()
        options = [str(folder), store, method]
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), *options],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent,
            )
            for rank in range(RANKS)
        ]  # fmt: skip
        for process in self.processes:
            threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.answers.put(json.loads(line))

    def start_workers(self, patience: int) -> list[Answer]:
        """What both ranks answer. Raises queue.Empty when one is silent for too long."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [self._answer(patience) for _ in self.processes]

    def _answer(self, patience: int) -> Answer:
        for _ in range(patience):  # second by second: while all is paused, no time counts
            with suppress(queue.Empty):
                return self.answers.get(timeout=1)
        raise queue.Empty

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def run_round(folder: Path, method: str, starts: int, patience: int) -> tuple[list[Answer], int]:
    """The answers of up to ``starts`` starts of new ranks, and how many hung: the last, or none."""
    answers: list[Answer] = []
    # A rank that dies before its first answer counts as a hang, too.
    with tempfile.TemporaryDirectory() as scratch:
        ranks = Ranks(folder, f"{scratch}/store", method)
        try:
            for _ in range(starts):
                answers += ranks.start_workers(patience)
        except (queue.Empty, BrokenPipeError):
            return answers, 1
        finally:
            ranks.end()
    return answers, 0


def figures(answers: list[Answer]) -> dict[str, Any]:
    """Medians of what ranks have answered."""
    workers = [worker for answer in answers for worker in answer["workers"]]
    return {
        "seconds_until_loader_returns": median(a["started"] for a in answers),
        "seconds_until_first_batch": median(a["first batch"] for a in answers),
        "threads_of_a_rank": median(a["threads"] for a in answers),
        "worker_mb": median(worker["rss"] for worker in workers),
        "worker_private_mb": median(worker["private"] for worker in workers),
    }


def median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def main(argv: list[str] | None = None) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--starts", type=int, default=500)
    parser.add_argument("--renew", type=int, default=10, help="starts of the same ranks")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--patience", type=int, default=300, help="seconds")
    parser.add_argument("--method", choices=("spawn", "fork"), default="spawn")
    parser.add_argument("--work", type=Path, required=True, help="folder for the corpus")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    args = parser.parse_args(argv)
    done: dict[str, Any] = {"starts": 0, "new_ranks": 0, "hangs": 0}
    same = {"method": args.method, "pairs": args.pairs}
    if args.output.is_file():
        done = json.loads(args.output.read_text())
        if any(done[name] != value for name, value in same.items()):
            parser.error(f"{args.output} counts starts with other options: name another output")
    corpus = args.work / f"pairs-{args.pairs}"
    if not corpus.is_dir():
        write_corpus(corpus, args.pairs)
    while done["starts"] < args.starts:
        count = min(args.renew, args.starts - done["starts"])
        answers, hung = run_round(corpus.absolute(), args.method, count, args.patience)
        done |= new_report(**same) | {
            "starts": done["starts"] + len(answers) // RANKS + hung,
            "new_ranks": done["new_ranks"] + RANKS,
            "hangs": done["hangs"] + hung,
        }
        if answers:
            done["latest_round"] = figures(answers)
        write_report(args.output, done)
        print(f"{done['starts']} starts, {done['hangs']} hung", flush=True)
    return 1 if done["hangs"] else 0


if __name__ == "__main__":
    sys.exit(main())
