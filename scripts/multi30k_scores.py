"""The scores of `multi30k.py`: choose the search on the validation split, test, make the table."""

import itertools
import json
import statistics
from collections.abc import Sequence
from typing import Any

from multi30k_data import LC, RAW, Job
from reporting import setting, table

from mt.evaluation import metrics, report
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.utils.line_io import read_lines

BEAMS, ALPHAS = (5, 10), (0.6, 1.0, 1.4, 1.8, 2.2)  # tried on the validation split
WITH_NEXT = "with the next alphas"  # names the mean that chooses
LC_TOK, CASED = "lc-tok BLEU", "cased sacreBLEU"  # the two scores of the table


def tune(job: Job) -> list[dict[str, Any]]:
    """Score each beam size and alpha on the validation split; the best comes first.

    The score is cased sacreBLEU of raw text, or BLEU of the tokens of the other form. Its mean with
    those of the next alphas decides (docs/multi30k.md); of equal means, the narrower beam is best.
    """
    file, model = job.run / "tuning.json", checkpoint.digest(job.run / "model")
    metric = metrics.metric_specs("de", tokenized=job.form == LC)[0]
    if file.exists():
        tuning = json.loads(file.read_text("utf-8"))
        if tuning["model_sha256"] == model:
            return best_first(tuning["rows"], metric.name)
    sources, references = (job.lines("validation", side) for side in ("en", "de"))
    translator = Translator.load(job.run / "model")
    rows = []
    for beam_size, alpha in itertools.product(BEAMS, ALPHAS):
        translations = translator.translate(sources, SearchOptions(beam_size, alpha))
        score = metric.score([translation.text for translation in translations], references)
        rows.append({"beam_size": beam_size, "alpha": alpha, score.name: round(score.value, 3)})
        print(f"{job.run}: validation, {rows[-1]}", flush=True)
    rows = best_first(rows, metric.name)
    report.write_json(file, {"model_sha256": model, "rows": rows})
    return rows


def best_first(rows: Sequence[dict[str, Any]], score: str) -> list[dict[str, Any]]:
    """Sort the rows of ``tune`` and add the means; the ends of ALPHAS have none and come last."""
    values = {(row["beam_size"], row["alpha"]): row[score] for row in rows}
    neighbours = {three[1]: three for three in zip(ALPHAS, ALPHAS[1:], ALPHAS[2:], strict=False)}
    ends = [row for row in rows if row["alpha"] not in neighbours]
    inner = []
    for row in (row for row in rows if row["alpha"] in neighbours):
        alphas = neighbours[row["alpha"]]
        mean = statistics.mean(values[row["beam_size"], alpha] for alpha in alphas)
        inner.append(row | {WITH_NEXT: round(mean, 3)})
    return sorted(inner, key=lambda row: (-row[WITH_NEXT], row["beam_size"])) + ends


def test(job: Job, beam_size: int, alpha: float) -> dict[str, Any]:
    """Both scores of the test split with their signatures, from mt.evaluate's report."""
    folder = job.run / f"test-beam{beam_size}-alpha{alpha}"
    model = checkpoint.digest(job.run / "model")
    file = folder / "report.json"
    if not file.exists() or json.loads(file.read_text("utf-8"))["model_sha256"] != model:
        job.call([
            "mt.evaluate",
            setting("src", f"{job.prefix('test')}.en"),
            setting("ref", f"{job.prefix('test')}.de"),
            setting("model_path", job.run / "model"),
            f"search.beam_size={beam_size}",
            f"search.alpha={alpha}",
            f"tokenized={str(job.form == LC).lower()}",
            setting("hydra.run.dir", folder),
        ])  # fmt: skip
    evaluation = json.loads(file.read_text("utf-8"))
    run = evaluation["runs"][0]
    scores = {score["name"]: score for score in run["scores"]}
    if job.form == RAW:
        lc_tok, cased = scores["lc-tok BLEU"], scores["sacreBLEU"]
    else:
        references = job.lines("test", "de", RAW)
        hypotheses = list(map(metrics.Detokenized("de"), read_lines(folder / run["hypotheses"])))
        lc_tok = scores["tokenised BLEU, as given"]
        cased = metrics.bleu(hypotheses, references)._asdict()
    hashes = {key: evaluation[key] for key in ("model_sha256", "source_sha256", "reference_sha256")}
    training = evaluation["model_config"]["training"]
    return {LC_TOK: lc_tok, CASED: cased, **hashes, "training": training}


def evaluate(jobs: Sequence[Job]) -> dict[str, Any]:
    """Tune and test the seeds of one configuration; the models keep the search that was chosen."""
    tuning = tune(jobs[0])
    beam_size, alpha = tuning[0]["beam_size"], tuning[0]["alpha"]
    tests = {str(job.seed): test(job, beam_size, alpha) for job in jobs}
    for job in jobs:
        checkpoint.set_search(job.run / "model", beam_size, alpha)
    scores = {kind: [test[kind]["value"] for test in tests.values()] for kind in (LC_TOK, CASED)}
    return {
        "beam_size": beam_size,
        "alpha": alpha,
        **{kind: spread(values) for kind, values in scores.items()},
        "chosen on the validation split": tuning,
        "seeds": tests,
    }


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Mean, sample standard deviation (None for a single value), least and most."""
    return {
        "mean": round(statistics.mean(values), 2),
        "deviation": round(statistics.stdev(values), 2) if len(values) > 1 else None,
        "least": round(min(values), 2),
        "most": round(max(values), 2),
        "seeds": len(values),
    }


def render(configurations: dict[str, Any]) -> str:
    """A row for each configuration, mean ± standard deviation over its seeds."""

    def cell(score: dict[str, Any]) -> str:
        deviation = score["deviation"]
        return f"{score['mean']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")

    header = ["trained on", "seeds", "beam", "alpha", LC_TOK, CASED]
    rows = [
        [name, c[CASED]["seeds"], c["beam_size"], c["alpha"], cell(c[LC_TOK]), cell(c[CASED])]
        for name, c in configurations.items()
    ]
    return table(header, rows)
