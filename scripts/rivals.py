"""What each choice is worth: encoder-decoder, decoder-only and variants, trained on one task.

    python scripts/rivals.py --train PREFIX --validation PREFIX --test PREFIX --folder FOLDER
    python scripts/rivals.py ... --seeds 1 2 3 --only paper decoder_only --jobs 2

Every row of the table is trained by mt.train with the same tokenizer, batches, updates and seeds,
and decoded alike, with beam 4. "equal FLOPs" rows stop a decoder-only model where it has computed
as much as the encoder-decoder. PREFIX names PREFIX.en and PREFIX.de (.gz too). The same command
continues after an interruption and repeats nothing. Nor does it repeat what --output holds already,
so that rows may be trained on several machines, one after another. Arguments after ``--`` are
settings of mt.train for all rows. docs/rivals.md has the results.
"""

import argparse
import hashlib
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from mt.utils import console

sys.path.append(str(Path(__file__).resolve().parent / "benchmarks"))  # for reporting.py

with console.exit_at_interrupt():
    import yaml
    from reporting import machine, new_report, pyplot_for, save_figure, setting, table, write_report
    from trainings import BEAM_SIZE, SPLITS, make_parser, run_program, score

    from mt.data.readers import FileReader
    from mt.data.tokenizer import Tokenizer
    from mt.evaluation.learning_curves import learning_curves
    from mt.model import checkpoint
    from mt.utils.atomic import atomic_write
    from mt.utils.checks import check_int
    from mt.utils.json_io import read_json

PAPER, ALONE, BOTH = "paper", "decoder_only", "decoder_only_both"
ROWS = {  # name -> what the table calls it, settings
    PAPER: ("encoder-decoder, post-LN (the paper)", ()),
    "pre_ln": ("pre-LN", ("model.norm=pre",)),
    "gelu": ("GELU", ("model.activation=gelu",)),
    "gelu_tanh": ("GELU, tanh", ("model.activation=gelu_tanh",)),
    "dropout_attention": ("dropout of attention weights 0.1", ("model.P_attention=0.1",)),
    "dropout_inner": ("dropout in feed-forward 0.1", ("model.P_inner=0.1",)),
    "dropout_all": ("both dropouts", ("model.P_attention=0.1", "model.P_inner=0.1")),
    "learned": ("learned positions", ("model.learned_positions=130",)),
    "untied": ("a matrix for each embedding", ("model.tied_embeddings=false",)),
    "unscaled": ("scores not scaled", ("model.scaled_scores=false",)),
    ALONE: ("decoder-only, loss on the target", ("model=decoder_only_tiny",)),
    BOTH: (
        "decoder-only, loss on both",
        ("model=decoder_only_tiny", "training.loss_on_source=true"),
    ),
}
EQUAL_FLOPS = "_flops"  # ends the names of the rows that stop early
SETTINGS = (  # of every row
    "data=files", "model=tiny", "tokenizer.vocab_size=4000", "data.tokens_per_step=2048",
    "data.clean.max_length=128", "training.warmup_steps=400", "training.lr_factor=1.0",
    "validate_every=200", "checkpoint_every=50", "average=5", "search.beam_size=1",
    "trainer.devices=1",
)  # fmt: skip
SPEED = "tokens_per_second"  # of both sides in training, the median of what was logged


class Job(NamedTuple):
    """A training of a row with a seed, and its evaluation."""

    row: str
    seed: int
    steps: int
    folder: Path  # that of all jobs

    @property
    def run(self) -> Path:
        return self.folder / f"{self.row}-seed{self.seed}"

    @property
    def settings(self) -> Sequence[str]:
        return ROWS[self.row.removesuffix(EQUAL_FLOPS)][1]


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--steps", type=int, default=1000, help="updates of every row (default 1000)")
    add("--seeds", type=int, nargs="+", default=[1, 2], help="default: 1 2")
    add("--only", nargs="+", choices=sorted(ROWS), help="rows; default: all")
    add("--jobs", type=int, default=1, help="trainings at a time, a thread each")
    add("--picture", type=Path, help="PNG file for the learning curves")
    args = parser.parse_args(argv)
    return console.exit_status("rivals", lambda: run(args))


def run(args: argparse.Namespace) -> None:
    """Train, evaluate, report. Raises ValueError or OSError for a user's mistake."""
    for name in ("steps", "jobs"):
        check_int(name, getattr(args, name))
    reader = FileReader(args.train, args.validation, args.test)
    for split in SPLITS:
        reader.identity(split)  # raises an error where a file is missing
    args.folder.mkdir(parents=True, exist_ok=True)
    results = Results(args, reader)
    jobs = [
        Job(row, seed, args.steps, args.folder)
        for row in args.only or list(ROWS)
        for seed in args.seeds
    ]
    results.add(jobs)
    results.add(list(equal_flops(jobs, results)))
    print(render(summary(results.runs)))
    draw(results.runs, args.picture)


class Results:
    """The runs of all rows, in the file --output, to which each is added when it is done.

    Raises ValueError where that file has runs of other settings or other text.
    """

    def __init__(self, args: argparse.Namespace, reader: FileReader) -> None:
        self.args, self.reader, self.runs = args, reader, []
        self.file = args.output or args.folder / "rivals.json"
        self.conditions = {
            "settings": [*SETTINGS, f"trainer.max_steps={args.steps}", *args.settings],
            "beam_size": BEAM_SIZE,
            "sha256 of the text": {split: digest(reader, split) for split in SPLITS},
        }
        if self.file.exists():
            report = read_json(self.file)
            if {name: report.get(name) for name in self.conditions} != self.conditions:
                raise ValueError(f"{self.file} has runs of other settings: name another --output")
            self.runs = report["runs"]

    def find(self, job: Job) -> dict[str, Any] | None:
        """What is known of a job that is done."""
        wanted = (job.row, job.seed)
        return next((run for run in self.runs if (run["row"], run["seed"]) == wanted), None)

    def add(self, jobs: Sequence[Job]) -> None:
        """Train and evaluate the jobs that are not done. After one fails, no other begins."""
        left = [job for job in jobs if self.find(job) is None]
        if not left:
            return
        if not (self.args.folder / "tokenizer.model").exists():
            train(self.args, left[0])  # it makes the tokenizer and the data of all
        costs = Costs(self.reader, left[0])
        pool = ThreadPoolExecutor(self.args.jobs)
        try:
            trainings = [pool.submit(train, self.args, job) for job in left]
            for job, training in zip(left, trainings, strict=True):
                training.result()
                self.runs.append(evaluate(job, self.reader, costs))
                self.write()
        finally:
            pool.shutdown(cancel_futures=True)

    def write(self) -> None:
        order = [name + end for end in ("", EQUAL_FLOPS) for name in ROWS]
        self.runs.sort(key=lambda run: (order.index(run["row"]), run["seed"]))
        rows = summary(self.runs)
        write_report(self.file, new_report(**self.conditions, rows=rows, runs=self.runs))


def digest(reader: FileReader, split: str) -> str:
    return hashlib.sha256(json.dumps(list(reader.pairs(split))).encode()).hexdigest()


def equal_flops(jobs: Sequence[Job], results: Results) -> Iterator[Job]:
    """The decoder-only models, with as many updates as cost what the paper's cost."""
    paper = next((run for run in results.runs if run["row"] == PAPER), None)
    for job in jobs:
        own = results.find(job)
        if paper and own and job.row in (ALONE, BOTH):
            steps = round(job.steps * paper["petaflops"] / own["petaflops"])
            yield job._replace(row=job.row + EQUAL_FLOPS, steps=steps)


def train(args: argparse.Namespace, job: Job) -> None:
    """Train the job's model, unless its run is complete. ChildProcessError when that fails."""
    done = job.run / "rival.json"
    arguments = [
        *SETTINGS,
        setting("data.train", args.train),
        setting("data.validation", args.validation),
        setting("tokenizer.path", args.folder / "tokenizer.model"),
        f"seed={job.seed}",
        f"trainer.max_steps={job.steps}",
        *job.settings,
        *args.settings,
    ]
    if done.exists():
        if json.loads(done.read_text("utf-8"))["arguments"] != arguments:
            raise ValueError(f"{job.run} was made with other settings: name another --folder")
        return
    print(f"{job.run}: training, see its output.log", flush=True)
    command = ["mt.train", *arguments, setting("hydra.run.dir", job.run), "ckpt=auto"]
    run_program(command, job.run / "output.log", threads=1)
    atomic_write(done, json.dumps({"arguments": arguments}))


def evaluate(job: Job, reader: FileReader, costs: "Costs") -> dict[str, Any]:
    """The job's scores on the test split, its cost and its learning curve."""
    curves = learning_curves(job.run / "model", ("val_nll", SPEED))
    result = {
        "row": job.row,
        "seed": job.seed,
        "steps": job.steps,
        "model_sha256": checkpoint.digest(job.run / "model"),
        **score(job.run / "model", list(reader.pairs("test"))),
        "petaflops": float(f"{job.steps * costs.of_a_step(job) / 1e15:.4g}"),
        SPEED: round(statistics.median(speed for _, speed in curves[SPEED])),
        "date": date.today().isoformat(),
        "machine": machine(),
        "curve": curves.get("val_nll", []),
    }
    print(f"{job.run}: BLEU {result['bleu']}, perplexity {result['perplexity']}", flush=True)
    return result


class Costs:
    """Floating-point operations of a training step, from the lengths of the training pairs.

    Of matrix products alone, three times the forward pass: a weight takes two operations a token
    that it meets, a score of attention 2 d_model, and so does its part of the weighted values.
    """

    def __init__(self, reader: FileReader, job: Job) -> None:
        pairs = [pair for _, pair in zip(range(5000), reader.pairs("train"), strict=False)]
        tokenizer = Tokenizer.load(job.folder / "tokenizer.model")
        sides = [tokenizer.encode(list(side)) for side in zip(*pairs, strict=True)]
        lengths = [[len(ids) + 1 for ids in side] for side in sides]
        self.S, self.T = (statistics.mean(side) for side in lengths)
        self.SS, self.TT, self.ST, self.joined = (
            statistics.mean(x * y for x, y in zip(*both, strict=True))
            for both in (
                (lengths[0], lengths[0]),
                (lengths[1], lengths[1]),
                lengths,
                [[s + t for s, t in zip(*lengths, strict=True)]] * 2,
            )
        )

    def of_a_step(self, job: Job) -> float:
        """The operations of one update of a job whose model is trained."""
        name = job.row.removesuffix(EQUAL_FLOPS)
        config = read_json(job.run / "model" / "config.json")["model"]
        N, d, d_ff, V = (config[size] for size in ("N", "d_model", "d_ff", "vocab_size"))
        S, T = self.S, self.T
        own, cross, fed = 4 * d * d, 2 * d * d, 2 * d * d_ff  # weights; W_Q and W_O, W_K and W_V
        predicted = T + (S - 1 if name == BOTH else 0)
        if config.get("architecture") == "decoder_only":
            products = N * (own + fed) * (S + T)
            scores = N * 2 * d * self.joined / 2  # a position sees those before it
        else:
            products = N * ((own + fed) * (S + T) + cross * (S + T))
            scores = N * 2 * d * (self.SS + self.TT / 2 + self.ST)
        run = yaml.safe_load((job.run / "config.yaml").read_text("utf-8"))
        pairs = run["data"]["tokens_per_step"] / max(S, T)
        return float(3 * 2 * (products + scores + V * d * predicted) * pairs)


def summary(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each kind of training: means over the seeds, and their range."""
    rows = []
    for name in dict.fromkeys(result["row"] for result in results):
        own = [result for result in results if result["row"] == name]
        title = ROWS[name.removesuffix(EQUAL_FLOPS)][0]
        title += ", equal FLOPs" if name.endswith(EQUAL_FLOPS) else ""
        bleu = [result["bleu"] for result in own]
        rows.append(
            {
                "name": name,
                "title": title,
                "seeds": len(own),
                "bleu": round(statistics.mean(bleu), 2),
                "least": min(bleu),
                "most": max(bleu),
                "interval": round(statistics.mean(r["interval"] for r in own), 2),
                "perplexity": round(statistics.mean(r["perplexity"] for r in own), 3),
                **{key: own[0][key] for key in ("parameters", "petaflops", "steps", "signature")},
                SPEED: round(statistics.mean(r[SPEED] for r in own)),
            }
        )
    return rows


def render(rows: Sequence[dict[str, Any]]) -> str:
    header = (
        "",
        "test BLEU",
        "± (95%)",
        "of seeds",
        "validation perplexity",
        "parameters",
        "PFLOP",
        "updates",
        "tokens/s",
    )
    return table(
        header,
        [
            (
                row["title"], f"{row['bleu']:.2f}", f"{row['interval']:.2f}",
                f"{row['least']:.2f}-{row['most']:.2f}", f"{row['perplexity']:.2f}",
                f"{row['parameters']:,}", f"{row['petaflops']:.3g}",
                f"{row['steps']:,}", f"{row[SPEED]:,}",
            )
            for row in rows
        ],
    )  # fmt: skip


def draw(results: Sequence[dict[str, Any]], path: Path | None) -> None:
    """The validation loss of the first seed of each row."""
    pyplot = pyplot_for(path)
    if pyplot is None:
        return
    figure, axes = pyplot.subplots(figsize=(9, 6))
    first = min(result["seed"] for result in results)
    for result in results:
        if result["seed"] == first and not result["row"].endswith(EQUAL_FLOPS):
            steps, losses = zip(*result["curve"], strict=True)
            alone = result["row"].startswith(ALONE)
            style = {"linestyle": "--"} if alone else {}
            width = 2.5 if result["row"] == PAPER else 1.2
            axes.plot(steps, losses, label=ROWS[result["row"]][0], linewidth=width, **style)
    axes.set(xlabel="updates", ylabel="validation loss of the target, nats a token")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    save_figure(figure, path)


if __name__ == "__main__":
    sys.exit(main())
