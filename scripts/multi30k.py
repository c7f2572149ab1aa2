"""Multi30k, from the text to the table: train, average, decode and score forms and seeds.

    python scripts/multi30k.py                 # the hub's set, both forms, three seeds each
    python scripts/multi30k.py --data FOLDER --form lc.norm.tok --seed 1
    python scripts/multi30k.py --jobs 6 -- trainer.accelerator=gpu    # six at a time on a GPU
    python scripts/multi30k.py --settings wide "model.d_model=256 model.d_ff=512"
    python scripts/multi30k.py --form raw --diverse

Every run is experiment=multi30k in a directory of its own; stopped, the same line goes on, and what
is done is not done again. Beam size and alpha are chosen on the validation split with the first
seed's model, where the next alphas do well too, and the test split is decoded with these alone.
Arguments behind ``--`` are settings of mt.train.

With --diverse the seeds then teach each other (data diversification, Nguyen et al. 2020): each goes
on from its model, with what all of them make of the training sources beside the pairs; and once
more, also with what all of them, taught the other direction, make of the training targets. The
settings of these trainings are the values of --diverse, in the order "diverse", "reverse", "both";
those behind ``--`` come before, but for what the models bring along.

The two forms are the raw text, and the text lowercased, normalised and tokenised, which is what
published figures are computed on. Two scores of each are reported: lc-tok BLEU, for which the raw
model's output is brought into that form, and cased sacreBLEU, for which the other's is detokenised
(it has no capitals, and scores low for it). FOLDER holds train, val and test_2016_flickr (.en, .de;
.gz too), and maybe the same as NAME.lc.norm.tok.en and .de, which are made here where missing.
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarking import command_line, machine, setting, table
from multi30k_data import LC, NAMES, RAW, prefix, prepare_data, remember

from mt.evaluation import metrics, report
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.utils.line_io import read_lines

BEAMS, ALPHAS = (5, 10), (0.6, 1.0, 1.4, 1.8, 2.2)  # tried on the validation split
WITH_NEXT = "with the next alphas"  # the mean that chooses
DIVERSE = {  # trainings that follow, and their settings
    # a quarter of the first training; its second half and more is averaged
    "diverse": "trainer.max_steps=3175 training.warmup_steps=500 training.lr_factor=1 "
    "checkpoint_every=127 average=20",
    "reverse": "trainer.max_steps=2413 training.warmup_steps=500 training.lr_factor=1.5 "
    "checkpoint_every=127 average=8",
    "both": "trainer.max_steps=1270 training.warmup_steps=300 training.lr_factor=0.6 "
    "checkpoint_every=63 average=12",
}
REVERSE_BEAM, REVERSE_ALPHA = 5, 1.0  # English is as long as the German, or longer
# Settings that no model can be trained further with: it brings them along.
BROUGHT = (
    r"[+~]*(start_from=|model(=|\.(?!P_drop=|compile=))|variation=|tokenizer\.(path|vocab_size)=)"
)
GIVEN = r"[+~]*data\.(kind|train|validation|src|tgt|limit)="  # by the recipe, to each training
LC_TOK, CASED = "lc-tok BLEU", "cased sacreBLEU"  # the two scores of the table


@dataclass(frozen=True)
class Job:
    """One training and its evaluation."""

    form: str
    name: str  # of its settings, "" for the experiment as it is
    settings: tuple[str, ...]
    seed: int
    folder: Path  # of the whole recipe
    parent: str = ""  # digest of the model that it goes on from

    @property
    def configuration(self) -> str:
        return "-".join(filter(None, (self.form, self.name)))

    @property
    def run(self) -> Path:
        return self.folder / f"{self.configuration}-seed{self.seed}"

    def prefix(self, split: str) -> str:
        return prefix(self.folder / "data", split, self.form)

    def texts(self, split: str) -> tuple[list[str], list[str]]:
        source, target = (list(read_lines(f"{self.prefix(split)}.{side}")) for side in ("en", "de"))
        return source, target


# Runs


def call(arguments: Sequence[str], log: Path, threads: int | None = None) -> None:
    """A program of ours, its output in ``log``. RuntimeError when it fails."""
    env = dict(os.environ) | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    with log.open("a") as stream:
        status = subprocess.run(
            [sys.executable, "-m", *arguments], stdout=stream, stderr=subprocess.STDOUT, env=env
        ).returncode
    if status:
        last = (log.read_text().strip().splitlines() or [""])[-1]
        raise RuntimeError(f"{log}: {arguments[0]} ended with status {status}: {last}")


def train(job: Job, overrides: Sequence[str], threads: int) -> None:
    settings = [*job.settings, *overrides]
    what = [*settings, job.parent] if job.parent else settings
    known = job.run / "settings.json"
    if not any((job.run / name).exists() for name in ("checkpoints", "model")):  # nothing is done
        known.unlink(missing_ok=True)
    remember(known, what, "name another --folder or --settings NAME")
    arguments = [
        "mt.train",
        "experiment=multi30k",
        "data=files",
        setting("data.train", job.prefix("train")),
        setting("data.validation", job.prefix("validation")),
        f"seed={job.seed}",
        setting("hydra.run.dir", job.run),
        "ckpt=auto",
        *settings,
    ]
    print(f"{job.run}: training, see its output.log", flush=True)
    start = time.perf_counter()
    call(arguments, job.run / "output.log", threads)
    print(f"{job.run}: trained, {time.perf_counter() - start:,.0f} s", flush=True)


def train_all(jobs: Sequence[Job], overrides: Sequence[str], at_once: int, threads: int) -> None:
    """Where one fails, those that have not begun do not."""
    pool = ThreadPoolExecutor(at_once)
    try:
        for done in [pool.submit(train, job, overrides, threads) for job in jobs]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def further(jobs: Sequence[Job], name: str, settings: Sequence[str]) -> list[Job]:
    """Trainings that go on from the models of ``jobs`` with other settings."""
    return [
        replace(
            job,
            name=name,
            settings=(*settings, setting("start_from", job.run / "model")),
            parent=checkpoint.digest(job.run / "model"),
        )
        for job in jobs
    ]


def diversify(
    jobs: Sequence[Job], settings: dict[str, Sequence[str]], train: Callable[[Sequence[Job]], None]
) -> list[Job]:
    """Train what follows ``jobs``, trained seeds of one form, with settings by DIVERSE's names.

    Returns what translates their way: all but "reverse".
    """
    search = [tune(jobs[0])[0][name] for name in ("beam_size", "alpha")]
    said = [translation(job, *search, "en", "de") for job in jobs]
    english, german = jobs[0].texts("train")
    sources = english * (len(jobs) + 1)
    targets = german + [line for path in said for line in read_lines(path)]
    more = write_pairs(jobs[0], said, sources, targets)
    taught = further(jobs, "diverse", [*settings["diverse"], more])
    directed = [*settings["reverse"], "data.src=de", "data.tgt=en"]
    reverse = further(jobs, "reverse", directed)
    train([*taught, *reverse])

    backwards = [translation(job, REVERSE_BEAM, REVERSE_ALPHA, "de", "en") for job in reverse]
    said += backwards
    sources += [line for path in backwards for line in read_lines(path)]
    targets += german * len(jobs)
    more = write_pairs(jobs[0], said, sources, targets)
    both = further(taught, "both", [*settings["both"], more])
    train(both)
    return [*taught, *both]


def translation(job: Job, beam_size: int, alpha: float, src: str, tgt: str) -> Path:
    """What the job's model makes of one side of the training pairs."""
    model = job.run / "model"
    name = f"{checkpoint.digest(model)[:12]}-beam{beam_size}-alpha{alpha}"
    output = job.run / f"train.{name}.{tgt}"
    if not output.exists():
        print(f"{job.run}: translating train.{src}, see its output.log", flush=True)
        files = ["--input", f"{job.prefix('train')}.{src}", "--output", str(output), "--resume"]
        search = [f"--beam-size={beam_size}", f"--alpha={alpha}", "--no-split"]
        call(["mt.translate", "--model", str(model), *files, *search], job.run / "output.log")
    return output


def write_pairs(job: Job, made: Sequence[Path], sources: list[str], targets: list[str]) -> str:
    """The setting that trains on these pairs, whose files are known by what was ``made``."""
    name = hashlib.sha256(" ".join(path.name for path in made).encode()).hexdigest()[:12]
    more = prefix(job.folder / "data", f"train-{name}", job.form)
    report.write_json(Path(f"{more}.json"), [str(path) for path in made])
    for side, lines in (("en", sources), ("de", targets)):
        if not Path(f"{more}.{side}").exists():  # a file written anew is prepared anew
            report.write(Path(f"{more}.{side}"), report.text_of(lines))
    return setting("data.train", more)


def tune(job: Job) -> list[dict[str, Any]]:
    """Each beam size and alpha on the validation split, best first; the narrower beam if equal.

    By the form's own score: cased sacreBLEU of raw text, BLEU of the other's tokens as they are.
    Best is what has the best mean of its score and those of the next smaller and larger alpha: the
    score rises slowly to an alpha behind which it falls by points, and which one that is differs
    from text to text.
    """
    file, model = job.run / "tuning.json", checkpoint.digest(job.run / "model")
    measure = metrics.metric_specs("de", tokenized=job.form == LC)[0]
    if file.exists():
        before = json.loads(file.read_text("utf-8"))
        if before["model_sha256"] == model:
            return best_first(before["rows"], measure.name)
    sources, references = job.texts("validation")
    translator = Translator.load(job.run / "model")
    rows = []
    for beam_size, alpha in itertools.product(BEAMS, ALPHAS):
        found = translator.translate(sources, SearchOptions(beam_size, alpha))
        score = measure.score([translation.text for translation in found], references)
        rows.append({"beam_size": beam_size, "alpha": alpha, score.name: round(score.value, 3)})
        print(f"{job.run}: validation, {rows[-1]}", flush=True)
    rows = best_first(rows, measure.name)
    report.write_json(file, {"model_sha256": model, "rows": rows})
    return rows


def best_first(rows: Sequence[dict[str, Any]], score: str) -> list[dict[str, Any]]:
    """The rows of ``tune`` in its order, each with the mean that decides; last the ends of ALPHAS,
    which have none."""
    values = {(row["beam_size"], row["alpha"]): row[score] for row in rows}
    near = {three[1]: three for three in zip(ALPHAS, ALPHAS[1:], ALPHAS[2:], strict=False)}
    ends = [row for row in rows if row["alpha"] not in near]
    judged = []
    for row in (row for row in rows if row["alpha"] in near):
        mean = statistics.mean(values[row["beam_size"], alpha] for alpha in near[row["alpha"]])
        judged.append(row | {WITH_NEXT: round(mean, 3)})
    return sorted(judged, key=lambda row: (-row[WITH_NEXT], row["beam_size"])) + ends


def test(job: Job, beam_size: int, alpha: float) -> dict[str, Any]:
    """Both scores of the test split, with their signatures, from the report of mt.evaluate."""
    folder = job.run / f"test-beam{beam_size}-alpha{alpha}"
    model = checkpoint.digest(job.run / "model")
    file = folder / "report.json"
    if not file.exists() or json.loads(file.read_text("utf-8"))["model_sha256"] != model:
        arguments = [
            "mt.evaluate",
            setting("src", f"{job.prefix('test')}.en"),
            setting("ref", f"{job.prefix('test')}.de"),
            setting("model_path", job.run / "model"),
            f"search.beam_size={beam_size}",
            f"search.alpha={alpha}",
            f"tokenized={str(job.form == LC).lower()}",
            setting("hydra.run.dir", folder),
        ]
        call(arguments, job.run / "output.log")
    record = json.loads(file.read_text("utf-8"))
    scores = {score["name"]: score for score in record["runs"][0]["scores"]}
    if job.form == RAW:
        found = {LC_TOK: scores["lc-tok BLEU"], CASED: scores["sacreBLEU"]}
    else:
        references = list(read_lines(f"{prefix(job.folder / 'data', 'test', RAW)}.de"))
        detokenize = metrics.Detokenized("de")
        hypotheses = read_lines(folder / record["runs"][0]["hypotheses"])
        cased = metrics.bleu([detokenize(line) for line in hypotheses], references)
        found = {LC_TOK: scores["tokenised BLEU, as given"], CASED: cased._asdict()}
    hashes = {key: record[key] for key in ("model_sha256", "source_sha256", "reference_sha256")}
    return found | hashes | {"training": record["model_config"]["training"]}


# The table


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Mean, sample standard deviation (None of a single value), least and most."""
    return {
        "mean": round(statistics.mean(values), 2),
        "deviation": round(statistics.stdev(values), 2) if len(values) > 1 else None,
        "least": round(min(values), 2),
        "most": round(max(values), 2),
        "seeds": len(values),
    }


def render(configurations: dict[str, Any]) -> str:
    """A row for each configuration, mean ± standard deviation over its seeds."""
    rows = []
    for name, found in configurations.items():
        kinds = [found[kind] for kind in (LC_TOK, CASED)]
        cells = [
            f"{kind['mean']:.2f}"
            + (f" ± {kind['deviation']:.2f}" if kind["deviation"] is not None else "")
            for kind in kinds
        ]
        rows.append([name, kinds[0]["seeds"], found["beam_size"], found["alpha"], *cells])
    return table(["trained on", "seeds", "beam", "alpha", LC_TOK, CASED], rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="FOLDER", help="instead of the hub")
    add("--form", nargs="+", choices=(RAW, LC), default=[RAW, LC], help="default: both")
    add("--seed", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    add("--settings", nargs=2, action="append", metavar=("NAME", "OVERRIDES"), default=[],
        help="a configuration beside the experiment's own; may be given several times")  # fmt: skip
    add("--diverse", nargs="*", metavar="OVERRIDES",
        help="also train the experiment's own seeds further, on what all of them say, and on what "
        f"they say backwards (default: {' '.join(map(repr, DIVERSE.values()))})")  # fmt: skip
    add("--jobs", type=int, default=1, help="trainings at a time (default 1)")
    add("--threads", type=int, help="of each training; default: the cores, shared by the jobs")
    add("--folder", type=Path, default=Path("outputs/multi30k"),
        help="where all that is made lies (default outputs/multi30k)")  # fmt: skip
    add("--output", type=Path, help="default: report.json in the folder")
    add("overrides", nargs="*", help="settings of mt.train, behind --")
    args = parser.parse_args()
    if args.jobs < 1 or (args.threads is not None and args.threads < 1):
        parser.error("--jobs and --threads must be at least 1")
    names = [name for name, _ in args.settings]
    if taken := DIVERSE.keys() & set(names):
        parser.error(f"--settings {taken.pop()}: a name of --diverse")
    if args.diverse == []:
        args.diverse = list(DIVERSE.values())
    if args.diverse:
        if len(args.diverse) != len(DIVERSE):
            parser.error(f"--diverse: give the settings of {', '.join(DIVERSE)}, or none")
        fixed = [o for o in args.overrides if re.match(GIVEN, o)]
        fixed += [o for o in " ".join(args.diverse).split() if re.match(f"{GIVEN}|{BROUGHT}", o)]
        if fixed:
            parser.error(f"--diverse: {fixed[0]} cannot be changed")
    for given in (args.form, args.seed, names):
        if len(set(given)) < len(given):
            parser.error(f"{' '.join(map(str, given))}: name each once")
    return args


def main() -> None:
    args = arguments()
    prepare_data(args.data, args.folder / "data")
    variants = [("", ()), *((name, tuple(given.split())) for name, given in args.settings)]
    jobs = [
        Job(form, name, settings, seed, args.folder)
        for form, (name, settings), seed in itertools.product(args.form, variants, args.seed)
    ]
    if args.diverse:  # what they learn from depends on all of them
        file = args.folder / "diverse" / "seeds.json"
        if not any(args.folder.glob("*-diverse-seed*")):
            file.unlink(missing_ok=True)
        remember(file, args.seed, "give the same --seed, or name another --folder")
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.jobs)
    train_all(jobs, args.overrides, args.jobs, threads)
    if args.diverse:
        common = [o for o in args.overrides if not re.match(BROUGHT, o)]
        own = zip(DIVERSE, args.diverse, strict=True)
        settings = {name: [*common, *given.split()] for name, given in own}
        for form in args.form:
            seeds = [job for job in jobs if (job.form, job.name) == (form, "")]
            jobs += diversify(seeds, settings, lambda j: train_all(j, [], args.jobs, threads))
    configurations: dict[str, Any] = {}
    for name, group in itertools.groupby(jobs, lambda job: job.configuration):
        seeds = list(group)
        tuning = tune(seeds[0])
        beam_size, alpha = tuning[0]["beam_size"], tuning[0]["alpha"]
        tests = {str(job.seed): test(job, beam_size, alpha) for job in seeds}
        for job in seeds:
            checkpoint.set_search(job.run / "model", beam_size, alpha)
        configurations[name] = {
            "beam_size": beam_size,
            "alpha": alpha,
            **{kind: spread([test[kind]["value"] for test in tests.values()])
               for kind in (LC_TOK, CASED)},
            "chosen on the validation split": tuning,
            "seeds": tests,
        }  # fmt: skip
    output = args.output or args.folder / "report.json"
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "command": command_line(),
        "test set": NAMES["test"],
        "configurations": configurations,
    }
    report.write_json(output, found)
    print(f"{render(configurations)}\n\nreport  {output}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, RuntimeError) as error:
        print(f"multi30k: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("multi30k: interrupted; the same line goes on", file=sys.stderr)
        sys.exit(130)
