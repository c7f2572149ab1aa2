"""Two evaluations of the same test set side by side: is the difference more than chance?

Paired bootstrap resampling (Koehn 2004) by sacreBLEU's own test, so that its command line gives
the same p-values. Our own over sufficient statistics was equal, but for 10,000 sentences and five
scores only 2.7 times faster, most of it counting n-grams still: not worth a second one.
"""

import json
import shlex
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import sacrebleu
from sacrebleu.metrics import CHRF
from sacrebleu.significance import PairedTest, Result
from tqdm import tqdm

from mt.evaluation import metrics, plots
from mt.evaluation import report as reports
from mt.evaluation.report import Report
from mt.utils import console

COLUMNS = {"A": 8, "B": 8, "B - A": 8, "A, 95%": 16, "B, 95%": 16, "p": 8}  # name -> width
MOST = 10  # sentences of each direction that comparison.md shows
NUMBER = (int, float, type(None))  # None of translations that were there already
OF_REPORT = {"runs": list, "config": dict, "model": str, "model_sha256": (str, type(None))}
OF_REPORT |= {"data": str, "sentences": int, "target": str, "tokenized": bool}
OF_REPORT |= {"source_sha256": str, "reference_sha256": str}
OF_RUN = {"beam_size": NUMBER, "alpha": NUMBER, "hypotheses": str, "sentence_scores": str}
OF_RUN |= {"hypothesis_sha256": str, "scores": list, "sentence_signatures": dict}
OF_SCORE = {"name": str, "value": (int, float), "signature": str}


class System(NamedTuple):
    """One search of a report."""

    path: Path
    report: Report
    run: Report  # one of the report's
    rows: list[dict[str, Any]]  # of its sentences

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


def load(path: Path) -> System:
    """The widest search of a report's folder or its report.json, or that of a hypotheses file.

    Raises FileNotFoundError or ValueError that says what is wrong with it.
    """
    file = path / "report.json" if path.is_dir() else path
    chosen = None
    if file.suffix != ".json":
        file, chosen = path.parent / "report.json", path.name
    if not path.exists() or not file.is_file():
        raise FileNotFoundError(f"{path}: no report there: name a folder that holds report.json")
    report = _read_report(file)
    runs = [run for run in report["runs"] if chosen in (None, run["hypotheses"])]
    if not runs:
        raise ValueError(f"{path}: no hypotheses that {file} knows")
    run = max(runs, key=lambda run: run["beam_size"] or 0)
    sides = {"source": report["source_sha256"], "reference": report["reference_sha256"]}
    sides["hypothesis"] = run["hypothesis_sha256"]
    texts = file.parent / run["hypotheses"]
    if texts.is_file() and sha256(texts.read_bytes()).hexdigest() != sides["hypothesis"]:
        raise ValueError(f"{texts}: not what the report beside it scored: evaluate again")
    return System(path, report, run, _read_rows(file.parent / run["sentence_scores"], sides))


def _read_report(file: Path) -> Report:
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: not JSON: {error}") from None
    if (
        _has(report, OF_REPORT)
        and report["runs"]
        and all(_has(run, OF_RUN) for run in report["runs"])
        and all(_has(score, OF_SCORE) for run in report["runs"] for score in run["scores"])
    ):
        return cast("Report", report)
    raise ValueError(f"{file}: not a report of this version: evaluate again")


def _has(found: object, kinds: dict[str, Any]) -> bool:
    return isinstance(found, dict) and all(
        name in found and isinstance(found[name], kind) for name, kind in kinds.items()
    )


def _read_rows(file: Path, sides: dict[str, str]) -> list[dict[str, Any]]:
    """The sentences, when each of their ``sides`` has the hash that the report knows."""
    try:
        with file.open(encoding="utf-8", newline="\n") as stream:
            rows = [json.loads(line) for line in stream]
        whole = {side: reports.digest([row[side] for row in rows]) for side in sides} == sides
    except FileNotFoundError:
        raise ValueError(f"{file}: is missing, the report beside it names it") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise ValueError(f"{file}: damaged, or not of the report beside it: evaluate again")
    return rows


def check_comparable(a: System, b: System) -> None:
    """ValueError when the two were not scored alike."""
    if a.report["reference_sha256"] != b.report["reference_sha256"]:
        raise ValueError(
            f"{a.path} and {b.path} have other references ({a.report['data']}, "
            f"{a.report['sentences']:,} sentences; {b.report['data']}, "
            f"{b.report['sentences']:,}): nothing to compare"
        )
    for key in ("tokenized", "target"):
        if a.report[key] != b.report[key]:
            raise ValueError(
                f"{a.path} and {b.path} are not scored alike: {key} is "
                f"{a.report[key]} and {b.report[key]}"
            )


def paired_bootstrap(
    measure: metrics.MetricSpec, a: list[str], b: list[str], references: list[str]
) -> Report:
    """The score of each with its mean and the half of its 95% interval, and the p-value.

    The p-value is None where sacreBLEU's would be its least, and mean nothing: of equal scores, and
    of a test set whose samples are all alike, as those of one sentence. Raises ValueError for a
    SACREBLEU_SEED that sacreBLEU does not take as one.
    """
    metrics.bootstrap_seed()  # which says what is wrong with it
    systems: list[tuple[str, Sequence[str]]]
    systems = [("A", measure.texts(a)), ("B", measure.texts(b))]
    kinds, sides = {measure.name: measure.metric()}, [measure.texts(references)]
    test = PairedTest(systems, kinds, sides, test_type="bs", n_samples=metrics.SAMPLES)
    signatures, results = test()
    [(name, signature)] = signatures.items()
    found: Report = {"name": measure.name, "signature": measure.full_signature(signature)}
    for side, result in zip("ab", cast("list[Result]", results[name]), strict=True):
        # numpy's numbers, which JSON does not know
        found[side] = {key: float(getattr(result, key)) for key in ("score", "mean", "ci")}
        found["p_value"] = result.p_value  # B's: A, the first, is compared with nothing
    a_side, b_side = found["a"], found["b"]
    if a_side["score"] == b_side["score"] or a_side["ci"] == b_side["ci"] == 0:
        found["p_value"] = None
    return found


def check_recorded(system: System, side: str, scores: list[Report]) -> list[str]:
    """Names of the scores that its report has not recorded as they are computed now.

    ValueError when it has another value of one than its texts give.
    """
    recorded = {score["signature"]: score["value"] for score in system.run["scores"]}
    unknown = []
    for score in scores:
        now, (signature, _) = score[side]["score"], reports.split_signature(score["signature"])
        if signature not in recorded:
            unknown.append(score["name"])
        elif abs(now - recorded[signature]) > (0.0005 if score["name"] == "COMET" else 0.005):
            then = reports.number(score["name"], recorded[signature])
            raise ValueError(
                f"{system.path}: {score['name']} is {then} in the report, but "
                f"{reports.number(score['name'], now)} of its sentences: evaluate again"
            )
    return unknown


def comet_bootstrap(a: System, b: System) -> Report | None:
    """``paired_bootstrap`` of COMET; None unless one model has scored both, of the same sources."""
    names = {system.run["sentence_signatures"].get("comet") for system in (a, b)}
    if len(names) != 1 or a.report["source_sha256"] != b.report["source_sha256"]:
        return None
    try:
        one, other = ([str(float(x)) for x in system.column("comet")] for system in (a, b))
    except (KeyError, TypeError, ValueError):
        return None
    found = paired_bootstrap(metrics.COMET, one, other, one)
    _, test = reports.split_signature(found["signature"])
    return found | {"signature": f"{names.pop()}|{test}"}


def compare(a: System, b: System) -> Report:
    """All that comparison.json holds but when and how it came about. Raises ValueError."""
    check_comparable(a, b)
    target, tokenized = a.report["target"], a.report["tokenized"]
    sources, references = a.column("source"), a.column("reference")
    sides = {"a": a, "b": b}
    hypotheses = {side: system.column("hypothesis") for side, system in sides.items()}
    measures = metrics.metric_specs(target, tokenized)
    chrf = CHRF()
    one, other = (metrics.sentence_level(chrf, lines, references) for lines in hypotheses.values())
    differences = [round(y - x, 4) for x, y in zip(one, other, strict=True)]
    scores = [
        paired_bootstrap(each, hypotheses["a"], hypotheses["b"], references)
        for each in tqdm(measures, unit=" scores", disable=None)
    ]
    notes = []
    if a.report["source_sha256"] != b.report["source_sha256"]:
        notes.append("the sources differ; lengths are A's")
    if learned := comet_bootstrap(a, b):
        scores.append(learned)
    elif any("comet" in each.run["sentence_signatures"] for each in (a, b)):
        notes.append("COMET is left out: one model has not scored both, of the same sources")
    for side, system in sides.items():
        if unknown := check_recorded(system, side, scores):
            names = ", ".join(unknown)
            notes.append(f"{side.upper()}'s report has {names} of another version or not at all")
    buckets = []
    for words, which in reports.by_length(sources).items():
        bucket: Report = {"words": words, "sentences": len(which)}
        theirs = reports.pick(references, which)
        for side, lines in hypotheses.items():
            ours = reports.pick(lines, which)
            bucket[side] = {each.name: each.score(ours, theirs).value for each in measures[:2]}
        buckets.append(bucket)
    order = sorted(range(len(references)), key=lambda i: differences[i])
    ends = [i for i in order[:MOST] if differences[i] < 0]
    ends += [i for i in reversed(order[-MOST:]) if differences[i] > 0]
    return {
        "data": a.report["data"],
        "sentences": len(references),
        "notes": notes,
        "reference_sha256": a.report["reference_sha256"],
        "target": target,
        "tokenized": tokenized,
        **{side: _about(system) for side, system in sides.items()},
        "test": "paired bootstrap resampling, sacrebleu.significance.PairedTest",
        "versions": {"sacrebleu": sacrebleu.__version__},
        "scores": scores,
        "sentence_chrf": {
            "signature": str(chrf.get_signature()),
            "differences": differences,
            "a_better": sum(d < 0 for d in differences),
            "b_better": sum(d > 0 for d in differences),
            "equal": sum(d == 0 for d in differences),
            "same_text": sum(x == y for x, y in zip(*hypotheses.values(), strict=True)),
        },
        "by_length": buckets,
        "differ_most": [
            {
                "line": i + 1,
                "difference": differences[i],
                "source": sources[i],
                "reference": references[i],
                **{side: lines[i] for side, lines in hypotheses.items()},
            }
            for i in ends
        ],
    }


def _about(system: System) -> Report:
    found = system.run["beam_size"] is not None  # by a model, not in a file
    return {
        "report": str(system.path),
        "model": system.report["model"],
        "model_sha256": system.report["model_sha256"],
        "members": system.report.get("members"),
        "precision": system.report["config"].get("precision") if found else None,
        "source_sha256": system.report["source_sha256"],
        "hypothesis_sha256": system.run["hypothesis_sha256"],
        "search": reports.search_name(system.run),
        "alpha": system.run["alpha"],
        "hypotheses": system.run["hypotheses"],
    }


# ------------------------------------------------------------------------------- for people


def _name(side: Report) -> str:
    if side["model_sha256"] is None:
        return f"{side['report']}: {reports.model_name(side)}"
    search = f"{side['search']}, alpha {side['alpha']}, {side['precision']}"
    return f"{side['report']}: {search}, {reports.model_name(side)}"


def render(comparison: Report) -> str:
    """For a terminal: a row a score with 95% intervals and p-value, then who won how often."""
    lines = [
        *(f"{side.upper()}     {_name(comparison[side])}" for side in "ab"),
        f"data  {comparison['data']}: {comparison['sentences']:,} sentences",
        *(f"note  {note}" for note in comparison["notes"]),
        "",
        f"{'':<32}" + "".join(f"{name:>{n}}" for name, n in COLUMNS.items()),
    ]
    for score in comparison["scores"]:
        texts = zip(_row(score), COLUMNS.values(), strict=True)
        lines.append(f"{score['name']:<32}" + "".join(f"{text:>{n}}" for text, n in texts))
    lines += ["", _wins(comparison), "", "signatures"]
    lines += [f"  {score['name']}: {score['signature']}" for score in comparison["scores"]]
    return "\n".join(lines)


def markdown(comparison: Report) -> str:
    """comparison.md."""
    rows = [[score["name"], *_row(score)] for score in comparison["scores"]]
    lines = [
        "# Comparison",
        "",
        reports.code(comparison["command"]),
        "",
        f"- date: {comparison['date']}",
        *(f"- {side.upper()}: {_name(comparison[side])}" for side in "ab"),
        f"- data: {comparison['data']}, {comparison['sentences']:,} sentences, sha256 of the "
        f"references {comparison['reference_sha256'][:12]}",
        *(f"- {note}" for note in comparison["notes"]),
        "",
        reports.table(["", "A", "B", "B - A", "A, mean ± 95%", "B, mean ± 95%", "p"], rows),
        "",
        "Paired bootstrap resampling of the sentences by sacreBLEU; samples and seed stand in the "
        "signatures. p is the chance of so great a difference if only the choice of sentences made "
        "it; 0.05 is the usual limit. Equal scores have none, nor have samples that are all alike. "
        "It says nothing of what another seed of training would give.",
        "",
        "## Which scores these are",
        "",
        *reports.measure_list(comparison["scores"], comparison["target"], comparison["tokenized"]),
        "",
        "## Sentence by sentence",
        "",
        f"{_wins(comparison)} `{comparison['sentence_chrf']['signature']}`",
        "",
        "## By source length",
        "",
        _length_table(comparison),
        "",
    ]
    if comparison["differ_most"]:
        lines += ["## The sentences that differ most", ""]
        lines += ["By chrF, the greatest losses of B first, then its greatest gains."]
    for row in comparison["differ_most"]:
        texts = (f"{n}: {row[k]}" for n, k in zip(("source", "reference", "A", "B"),
                 ("source", "reference", "a", "b"), strict=True))  # fmt: skip
        lines += ["", reports.code(f"line {row['line']}: {row['difference']:+.1f}", *texts)]
    return "\n".join(lines) + "\n"


def _row(score: Report) -> list[str]:
    """A, B, their difference, both with their intervals, and p."""
    name, sides = score["name"], (score["a"], score["b"])
    return [
        *(reports.number(name, side["score"]) for side in sides),
        reports.number(name, sides[1]["score"] - sides[0]["score"], "+"),
        *(f"{reports.number(name, x['mean'])} ± {reports.number(name, x['ci'])}" for x in sides),
        "–" if score["p_value"] is None else f"{score['p_value']:.4f}",
    ]


def _wins(comparison: Report) -> str:
    wins = comparison["sentence_chrf"]
    if wins["same_text"] == comparison["sentences"]:
        return "Both have the same text in all sentences."
    return (
        f"Sentence chrF: B is better in {wins['b_better']:,} sentences, A in "
        f"{wins['a_better']:,}, equal in {wins['equal']:,} (the same text in "
        f"{wins['same_text']:,})."
    )


def _length_table(comparison: Report) -> str:
    buckets = comparison["by_length"]
    measures = list(buckets[0]["a"])
    header = ["source words", "sentences"]
    header += [f"{name}, {side}" for name in measures for side in "AB"]
    rows = []
    for bucket in buckets:
        values = [f"{bucket[side][name]:.2f}" for name in measures for side in "ab"]
        rows.append([bucket["words"], f"{bucket['sentences']:,}", *values])
    return reports.table(header, rows)


def run(paths: list[Any], run_dir: Path) -> None:
    """Write comparison.json, comparison.md and comparison.png to the run directory."""
    if len(paths) != 2 or not all(isinstance(path, str | int) for path in paths):
        named = ",".join(map(str, paths))
        raise ValueError(f"compare=[{named}]: name two reports, as compare=[FOLDER_A,FOLDER_B]")
    a, b = (load(Path(str(path))) for path in paths)  # a sweep calls its folders 0, 1, 2
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "-m", "mt.evaluate", *sys.argv[1:]]),
    }
    comparison = about | compare(a, b)
    run_dir.mkdir(parents=True, exist_ok=True)
    reports.write(run_dir / "comparison.md", markdown(comparison))
    reports.write_json(run_dir / "comparison.json", comparison)
    plots.draw_comparison(run_dir / "comparison.png", comparison)
    with console.reader_may_go():
        print(f"{render(comparison)}\n\ncomparison  {run_dir}/comparison.md")
