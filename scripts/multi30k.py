"""Multi30k, from the text to the table: train, average, decode and score forms and seeds.

    python scripts/multi30k.py                 # the hub's set, both forms, three seeds each
    python scripts/multi30k.py --data FOLDER --form lc.norm.tok --seed 1
    python scripts/multi30k.py --jobs 6 -- trainer.accelerator=gpu    # six at a time on a GPU
    python scripts/multi30k.py --settings narrow "model.d_model=128 model.d_ff=256"

Every run is experiment=multi30k in a directory of its own; stopped, the same line goes on, and what
is done is not done again. Beam size and alpha are chosen on the validation split (``--tune``, with
the first seed), the test split is decoded once. Arguments behind ``--`` are settings of mt.train.

The two forms are the raw text, and the text lowercased, normalised and tokenised, which is what
published figures are computed on. Two scores of each are reported: lc-tok BLEU, for which the raw
model's output is brought into that form, and cased sacreBLEU, for which the other's is detokenised
(it has no capitals, and scores low for it). FOLDER holds train, val and test_2016_flickr (.en, .de;
.gz too), and maybe the same as NAME.lc.norm.tok.en and .de, which are made here where missing.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking import command_line, machine, table

from mt import metrics
from mt.sources import Files, Hub, Source, read_lines

RAW, LC = "raw", "lc.norm.tok"
NAMES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}  # in FOLDER
BEAMS, ALPHAS = (5, 10), (0.6, 1.0, 1.4, 1.8)  # tried on the validation split
# Scores as mt.evaluate names them.
CASED, LC_TOK, TOKENS = "sacreBLEU", "lc-tok BLEU", "tokenised BLEU, as given"
KINDS = ("lc-tok BLEU", "cased sacreBLEU")  # as the table names them


@dataclass(frozen=True)
class Job:
    """One training and its evaluation."""

    form: str
    settings_name: str  # "" for the experiment as it is
    settings: tuple[str, ...]
    seed: int

    @property
    def configuration(self) -> str:
        return "-".join(filter(None, (self.form, self.settings_name)))

    @property
    def name(self) -> str:
        return f"{self.configuration}-seed{self.seed}"

    @property
    def tuned_by(self) -> str:
        """The name of the score that chooses beam size and alpha."""
        return CASED if self.form == RAW else TOKENS


def prefix(folder: Path, split: str, form: str) -> str:
    return str(folder / (split if form == RAW else f"{split}.{form}"))


# Data


def prepare_data(source: Path | None, folder: Path) -> None:
    """The splits in both forms as files of ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, form in itertools.product(NAMES, (RAW, LC)):
        base = prefix(folder, split, form)
        if Path(f"{base}.de").exists():
            continue
        sides = zip(*_pairs(source, split, form), strict=True)
        for side, lines in zip(("en", "de"), sides, strict=True):
            partial = folder / ".partial"
            partial.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            partial.replace(f"{base}.{side}")


def _pairs(source: Path | None, split: str, form: str) -> Iterator[tuple[str, str]]:
    if source is None:
        raw: Source = Hub("bentrevett/multi30k")
    else:
        name = prefix(source, NAMES[split], form)
        if form == LC and not any(Path(f"{name}.de{end}").exists() for end in ("", ".gz")):
            name = prefix(source, NAMES[split], RAW)
        elif form == LC:
            return Files(**{split: name}).pairs(split)
        raw = Files(**{split: name})
    if form == RAW:
        return raw.pairs(split)
    english, german = metrics.LcNormTok("en"), metrics.LcNormTok("de")
    return ((english(source), german(target)) for source, target in raw.pairs(split))


# Runs


def call(arguments: Sequence[str], log: Path, threads: int | None) -> None:
    """A program of ours, its output in ``log``. Ends this one when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ) | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    with log.open("a") as stream:
        status = subprocess.run(
            [sys.executable, "-m", *arguments], stdout=stream, stderr=subprocess.STDOUT, env=env
        ).returncode
    if status:
        last = (log.read_text().strip().splitlines() or [""])[-1]
        raise RuntimeError(f"{log}: {' '.join(arguments[:2])} … ended with status {status}: {last}")


def train(job: Job, folder: Path, overrides: Sequence[str], threads: int | None) -> None:
    data = folder / "data"
    arguments = [
        "mt.train",
        "experiment=multi30k",
        "data=files",
        f"data.train={prefix(data, 'train', job.form)}",
        f"data.validation={prefix(data, 'validation', job.form)}",
        f"seed={job.seed}",
        f"hydra.run.dir={folder / job.name}",
        "ckpt=auto",
        *job.settings,
        *overrides,
    ]
    call(arguments, folder / job.name / "output.log", threads)
    print(f"{job.name}: trained", flush=True)


def evaluate(
    job: Job, folder: Path, split: str, beams: Sequence[int], alpha: float
) -> list[dict[str, Any]]:
    """The report's runs, one for each beam size; an evaluation that is there is read."""
    run = folder / job.name / f"{split}-alpha{alpha}"
    if not (run / "report.json").exists():
        base = prefix(folder / "data", split, job.form)
        arguments = [
            "mt.evaluate",
            f"src={base}.en",
            f"ref={base}.de",
            f"model_path={folder / job.name / 'model'}",
            f"search.beam_size=[{','.join(map(str, beams))}]",
            f"search.alpha={alpha}",
            f"tokenized={str(job.form == LC).lower()}",
            f"hydra.run.dir={run}",
        ]
        call(arguments, folder / job.name / "output.log", None)
    runs: list[dict[str, Any]] = json.loads((run / "report.json").read_text())["runs"]
    return [result | {"hypotheses": str(run / result["hypotheses"])} for result in runs]


def tune(job: Job, folder: Path) -> list[dict[str, Any]]:
    """Each beam size and alpha on the validation split, best first; the narrower beam if equal."""
    rows = [
        {"beam_size": run["beam_size"], "alpha": alpha, "BLEU": _value(run, job.tuned_by)}
        for alpha in ALPHAS
        for run in evaluate(job, folder, "validation", BEAMS, alpha)
    ]
    return sorted(rows, key=lambda row: (-row["BLEU"], row["beam_size"]))


def test_scores(job: Job, folder: Path, beam_size: int, alpha: float) -> dict[str, Any]:
    """Both kinds of score of the test split, with their signatures."""
    (run,) = evaluate(job, folder, "test", [beam_size], alpha)
    scores = {score["name"]: score for score in run["scores"]}
    if job.form == RAW:
        return dict(zip(KINDS, (scores[LC_TOK], scores[CASED]), strict=True))
    references = list(read_lines(folder / "data" / "test.de"))
    detokenize = metrics.Detokenized("de")
    hypotheses = [detokenize(line) for line in read_lines(run["hypotheses"])]
    cased = metrics.bleu(hypotheses, references)._asdict()
    return dict(zip(KINDS, (scores[TOKENS], cased), strict=True))


def _value(run: dict[str, Any], name: str) -> float:
    return next(float(score["value"]) for score in run["scores"] if score["name"] == name)


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Mean, sample standard deviation (0 of a single value), least and most."""
    return {
        "mean": round(statistics.mean(values), 2),
        "deviation": round(statistics.stdev(values), 2) if len(values) > 1 else 0.0,
        "least": round(min(values), 2),
        "most": round(max(values), 2),
        "seeds": len(values),
    }


def render(report: dict[str, Any]) -> str:
    """A row for each configuration, mean ± standard deviation over its seeds."""
    rows = []
    for configuration, found in report["configurations"].items():
        cells = [
            f"{kind['mean']:.2f} ± {kind['deviation']:.2f}" if kind["seeds"] > 1
            else f"{kind['mean']:.2f}"
            for kind in (found[name] for name in KINDS)
        ]  # fmt: skip
        seeds, beam_size, alpha = len(found["seeds"]), found["beam_size"], found["alpha"]
        rows.append([configuration, seeds, beam_size, alpha, *cells])
    return table(["trained on", "seeds", "beam", "alpha", *KINDS], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="FOLDER", help="instead of the hub")
    add("--form", nargs="+", choices=(RAW, LC), default=[RAW, LC])
    add("--seed", nargs="+", type=int, default=[1, 2, 3])
    add("--settings", nargs=2, action="append", metavar=("NAME", "OVERRIDES"), default=[],
        help="a configuration beside the experiment's own; may be given several times")  # fmt: skip
    add("--jobs", type=int, default=1, help="trainings at a time")
    add("--threads", type=int, help="of each training; default: the cores, shared by the jobs")
    add("--folder", type=Path, default=Path("outputs/multi30k"))
    add("--output", type=Path, help="default: report.json in the folder")
    add("overrides", nargs="*", help="settings of mt.train, behind --")
    args = parser.parse_args()

    prepare_data(args.data, args.folder / "data")
    variants = [("", ()), *((name, tuple(given.split())) for name, given in args.settings)]
    jobs = [
        Job(form, name, settings, seed)
        for form, (name, settings), seed in itertools.product(args.form, variants, args.seed)
    ]
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.jobs)
    start = time.time()
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda job: train(job, args.folder, args.overrides, threads), jobs))
    report: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "command": command_line(),
        "seconds": round(time.time() - start),
        "test set": NAMES["test"],
        "configurations": {},
    }
    for name, group in itertools.groupby(jobs, lambda job: job.configuration):
        seeds = list(group)
        tuning = tune(seeds[0], args.folder)
        beam_size, alpha = tuning[0]["beam_size"], tuning[0]["alpha"]
        tests = {str(job.seed): test_scores(job, args.folder, beam_size, alpha) for job in seeds}
        report["configurations"][name] = {
            "beam_size": beam_size,
            "alpha": alpha,
            "chosen on the validation split": tuning,
            "seeds": tests,
            **{kind: spread([test[kind]["value"] for test in tests.values()]) for kind in KINDS},
        }
    output = args.output or args.folder / "report.json"
    partial = output.with_name(f".{output.name}")
    partial.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")
    partial.replace(output)
    print(render(report))
    print(f"\nreport  {output}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, RuntimeError) as error:
        print(f"multi30k: error: {error}", file=sys.stderr)
        sys.exit(2)
