"""Two evaluations of the same test set side by side: is the difference more than chance?

Paired bootstrap resampling (Koehn 2004) by sacreBLEU's own test, so that its command line gives
the same p-values. An implementation of our own over the same statistics gave equal values, but for
10,000 sentences and five scores it was only 2.7 times faster: counting n-grams takes the time.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import sacrebleu
from sacrebleu.metrics import CHRF
from sacrebleu.significance import PairedTest, Result
from tqdm import tqdm

from mt.evaluation import metrics, plots
from mt.evaluation import report as reports
from mt.evaluation.metrics import NUM_BOOTSTRAP_SAMPLES, MetricSpec, format_score
from mt.evaluation.report import Report, Row
from mt.utils import console
from mt.utils.atomic import atomic_write
from mt.utils.json_io import parse_json, read_json, read_regular

NUM_EXTREME_SENTENCES = 10  # sentences of each direction that comparison.md shows
MOST_BYTES = 2**30  # of report.json and of a file of sentences; 100,000 of these have 80 MB
# Keys of report.json that a comparison reads, and their types.
NUMBER = (int, float, type(None))  # None when no model has translated
REPORT_KEYS: dict[str, Any] = {"model_sha256": (str, type(None)), "sentences": int}
REPORT_KEYS |= {"runs": list, "config": dict, "tokenized": bool}
REPORT_KEYS |= dict.fromkeys(("model", "data", "target", "source_sha256", "reference_sha256"), str)
RUN_KEYS: dict[str, Any] = {"beam_size": NUMBER, "alpha": NUMBER}
RUN_KEYS |= {"scores": list, "sentence_signatures": dict}
RUN_KEYS |= dict.fromkeys(("hypotheses", "sentence_scores", "hypothesis_sha256"), str)
SCORE_KEYS: dict[str, Any] = {"name": str, "value": (int, float), "signature": str}
MEMBER_KEYS: dict[str, Any] = {"model": str, "model_sha256": str}  # of an ensemble


class System(NamedTuple):
    """One search of a report."""

    path: Path
    report: Report
    run: Report  # one of report["runs"]
    rows: list[Row]  # its sentences

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


# ------------------------------------------------------------------------------------- reading


def load(path: Path) -> System:
    """The widest search of a report's folder or its report.json, or that of a hypotheses file.

    Raises FileNotFoundError or ValueError that says what is wrong with it.
    """
    file = path / "report.json" if path.is_dir() else path
    hypotheses = None
    if file.suffix != ".json":
        file, hypotheses = path.parent / "report.json", path.name
    if not path.exists() or not file.is_file():
        raise FileNotFoundError(f"{path}: no report there: name a folder that holds report.json")
    report = _read_report(file)
    runs = [run for run in report["runs"] if hypotheses in (None, run["hypotheses"])]
    if not runs:
        raise ValueError(f"{path}: no hypotheses that {file} knows")
    run = max(runs, key=lambda run: run["beam_size"] or 0)
    hashes = {"source": report["source_sha256"], "reference": report["reference_sha256"]}
    hashes["hypothesis"] = run["hypothesis_sha256"]
    texts = file.parent / run["hypotheses"]
    if texts.is_file() and sha256(texts.read_bytes()).hexdigest() != hashes["hypothesis"]:
        raise ValueError(f"{texts}: not what the report beside it scored: evaluate again")
    return System(path, report, run, _read_rows(file.parent / run["sentence_scores"], hashes))


def _read_report(file: Path) -> Report:
    report = read_json(file, MOST_BYTES)
    if _has_keys(report, REPORT_KEYS):
        runs, members = report["runs"], report.get("members") or []
        if (
            runs
            and all(_has_keys(run, RUN_KEYS) and reports.has_file_names(run) for run in runs)
            and all(_is_score(score) for run in runs for score in run["scores"])
            and isinstance(members, list)
            and all(_has_keys(member, MEMBER_KEYS) for member in members)
        ):
            return cast("Report", report)
    raise ValueError(f"{file}: not a report of this version: evaluate again")


def _has_keys(value: object, types: dict[str, Any]) -> bool:
    return isinstance(value, dict) and all(
        key in value and isinstance(value[key], kind) for key, kind in types.items()
    )


def _is_score(score: object) -> bool:
    """Whether it has the keys of a score; its value is no NaN."""
    return _has_keys(score, SCORE_KEYS) and abs(cast("Report", score)["value"]) < 1e9


def _read_rows(file: Path, hashes: dict[str, str]) -> list[Row]:
    """The sentences, if each of their sides has the hash that the report states."""
    try:
        rows = [parse_json(line) for line in read_regular(file, MOST_BYTES).splitlines()]
        intact = {side: reports.digest([row[side] for row in rows]) for side in hashes} == hashes
    except FileNotFoundError:
        raise ValueError(f"{file}: is missing, the report beside it names it") from None
    except (ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        raise ValueError(f"{file}: damaged, or not of the report beside it: evaluate again")
    return rows


# ----------------------------------------------------------------------------------- comparing


def check_comparable(a: System, b: System) -> None:
    """ValueError when the two have different references or were scored differently."""
    if a.report["reference_sha256"] != b.report["reference_sha256"]:
        raise ValueError(
            f"{a.path} and {b.path} have different references ({a.report['data']}, "
            f"{a.report['sentences']:,} sentences; {b.report['data']}, "
            f"{b.report['sentences']:,}): nothing to compare"
        )
    for key in ("tokenized", "target"):
        if a.report[key] != b.report[key]:
            raise ValueError(
                f"{a.path} and {b.path} are not scored alike: {key} is "
                f"{a.report[key]} and {b.report[key]}"
            )


def paired_bootstrap(spec: MetricSpec, a: list[str], b: list[str], references: list[str]) -> Report:
    """For each side its score, mean and half the width of its 95% interval; and the p-value.

    The p-value is None where sacreBLEU's would be its least and mean nothing: for equal scores,
    and when all samples are alike, as those of one sentence. Raises ValueError for a
    SACREBLEU_SEED that sacreBLEU does not accept.
    """
    metrics.bootstrap_seed()  # raises a clearer error than sacreBLEU
    systems: list[tuple[str, Sequence[str]]]
    systems = [("A", spec.preprocess_lines(a)), ("B", spec.preprocess_lines(b))]
    kinds, sides = {spec.name: spec.new_metric()}, [spec.preprocess_lines(references)]
    test = PairedTest(systems, kinds, sides, test_type="bs", n_samples=NUM_BOOTSTRAP_SAMPLES)
    signatures, results = test()
    [(key, signature)] = signatures.items()  # the key is a name of sacreBLEU's
    score: Report = {"name": spec.name, "signature": spec.full_signature(signature)}
    for side, result in zip("ab", cast("list[Result]", results[key]), strict=True):
        # float, because JSON does not know numpy's numbers
        score[side] = {name: float(getattr(result, name)) for name in ("score", "mean", "ci")}
        score["p_value"] = result.p_value  # the last one, B's; A as the baseline has none
    if score["a"]["score"] == score["b"]["score"] or score["a"]["ci"] == score["b"]["ci"] == 0:
        score["p_value"] = None
    return score


def comet_bootstrap(a: System, b: System) -> Report | None:
    """``paired_bootstrap`` of COMET; None unless one model has scored both with equal sources."""
    signatures = {system.run["sentence_signatures"].get("comet") for system in (a, b)}
    if len(signatures) != 1 or a.report["source_sha256"] != b.report["source_sha256"]:
        return None
    try:
        x, y = ([str(float(value)) for value in system.column("comet")] for system in (a, b))
    except (KeyError, TypeError, ValueError):
        return None
    score = paired_bootstrap(metrics.COMET, x, y, x)
    _, bootstrap = reports.split_signature(score["signature"])
    return score | {"signature": f"{signatures.pop()}|{bootstrap}"}


def unknown_scores(system: System, side: str, scores: list[Report]) -> list[str]:
    """Names of the computed scores that the system's report lacks, or has of another version.

    Raises ValueError when the report has a different value of a score than its texts give.
    """
    reported = {score["signature"]: score["value"] for score in system.run["scores"]}
    unknown = []
    for score in scores:
        name, (signature, _) = score["name"], reports.split_signature(score["signature"])
        value = score[side]["score"]
        if signature not in reported:
            unknown.append(name)
        elif abs(value - reported[signature]) > (0.005 if metrics.is_percentage(name) else 0.0005):
            raise ValueError(
                f"{system.path}: {name} is {format_score(name, reported[signature])} in the "
                f"report, but {format_score(name, value)} of its sentences: evaluate again"
            )
    return unknown


def compare(a: System, b: System) -> Report:
    """All of comparison.json but its date and command. Raises ValueError when it makes no sense."""
    check_comparable(a, b)
    systems, report = {"a": a, "b": b}, a.report
    specs = metrics.metric_specs(report["target"], report["tokenized"])
    references = a.column("reference")
    hypotheses = {side: system.column("hypothesis") for side, system in systems.items()}
    scores = [
        paired_bootstrap(spec, hypotheses["a"], hypotheses["b"], references)
        for spec in tqdm(specs, unit=" scores", disable=None)
    ]
    if comet := comet_bootstrap(a, b):
        scores.append(comet)
    sentence_chrf = _sentence_chrf(hypotheses, references)
    buckets = []
    for words, indices in reports.indices_by_length(a.column("source")).items():
        bucket: Report = {"words": words, "sentences": len(indices)}
        for side, lines in hypotheses.items():
            outputs, expected = reports.select(lines, indices), reports.select(references, indices)
            bucket[side] = {spec.name: spec.score(outputs, expected).value for spec in specs[:2]}
        buckets.append(bucket)
    return {
        "data": report["data"],
        "sentences": len(references),
        "notes": _notes(systems, scores),
        **{key: report[key] for key in ("reference_sha256", "target", "tokenized")},
        **{side: _summary(system) for side, system in systems.items()},
        "test": "paired bootstrap resampling, sacrebleu.significance.PairedTest",
        "versions": {"sacrebleu": sacrebleu.__version__},
        "scores": scores,
        "sentence_chrf": sentence_chrf,
        "by_length": buckets,
        "differ_most": _differ_most(sentence_chrf["differences"], a, b),
    }


def _notes(systems: Mapping[str, System], scores: list[Report]) -> list[str]:
    """What a reader must know to read the scores. Raises ValueError as ``unknown_scores``."""
    notes = []
    if len({system.report["source_sha256"] for system in systems.values()}) > 1:
        notes.append("the sources differ; lengths are A's")
    has_comet = any("comet" in s.run["sentence_signatures"] for s in systems.values())
    if has_comet and metrics.COMET.name not in {score["name"] for score in scores}:
        notes.append("COMET is left out: one model has not scored both with the same sources")
    for side, system in systems.items():
        if names := ", ".join(unknown_scores(system, side, scores)):
            notes.append(f"{side.upper()}'s report has {names} of another version or not at all")
    return notes


def _sentence_chrf(hypotheses: Mapping[str, list[str]], references: list[str]) -> Report:
    """Differences of the sentences' chrF, B minus A, and how often which side is better."""
    chrf = CHRF()
    a, b = (metrics.sentence_level(chrf, lines, references) for lines in hypotheses.values())
    differences = [round(y - x, 4) for x, y in zip(a, b, strict=True)]
    return {
        "signature": str(chrf.get_signature()),
        "differences": differences,
        "a_better": sum(d < 0 for d in differences),
        "b_better": sum(d > 0 for d in differences),
        "equal": sum(d == 0 for d in differences),
        "same_text": sum(x == y for x, y in zip(*hypotheses.values(), strict=True)),
    }


def _differ_most(differences: list[float], a: System, b: System) -> list[Report]:
    """The sentences where B loses most, then those where it gains most."""
    order = sorted(range(len(differences)), key=lambda i: differences[i])
    extremes = [i for i in order[:NUM_EXTREME_SENTENCES] if differences[i] < 0]
    extremes += [i for i in reversed(order[-NUM_EXTREME_SENTENCES:]) if differences[i] > 0]
    return [
        {"line": i + 1, "difference": differences[i]}
        | {side: a.rows[i][side] for side in ("source", "reference")}
        | {"a": a.rows[i]["hypothesis"], "b": b.rows[i]["hypothesis"]}
        for i in extremes
    ]


def _summary(system: System) -> Report:
    report, run = system.report, system.run
    by_model = run["beam_size"] is not None  # else the translations were in a file
    return {
        "report": str(system.path),
        **{key: report.get(key) for key in ("model", "model_sha256", "members", "source_sha256")},
        **{key: run[key] for key in ("hypothesis_sha256", "alpha", "hypotheses")},
        "precision": report["config"].get("precision") if by_model else None,
        "search": reports.search_name(run),
    }


# ------------------------------------------------------------------------------ rendering


def _name(side: Report) -> str:
    if side["model_sha256"] is None:
        return f"{side['report']}: {reports.model_name(side)}"
    search = f"{side['search']}, alpha {side['alpha']}, {side['precision']}"
    return f"{side['report']}: {search}, {reports.model_name(side)}"


def render(comparison: Report) -> str:
    """For a terminal: each score with its 95% intervals and p, then which side is better."""
    header, scores = ["", "A", "B", "B - A", "A, 95%", "B, 95%", "p"], comparison["scores"]
    facts = [
        *(f"{side.upper()}     {_name(comparison[side])}" for side in "ab"),
        f"data  {comparison['data']}: {comparison['sentences']:,} sentences",
        *(f"note  {note}" for note in comparison["notes"]),
    ]
    parts = [
        "\n".join(facts),
        reports.table(header, list(map(_row, scores)), "plain"),
        _wins(comparison),
        reports.signature_list(scores),
    ]
    return "\n\n".join(parts)


def markdown(comparison: Report) -> str:
    """comparison.md."""
    header = ["", "A", "B", "B - A", "A, mean ± 95%", "B, mean ± 95%", "p"]
    scores, buckets = comparison["scores"], comparison["by_length"]
    columns = {
        f"{name}, {side.upper()}": [format_score(name, bucket[side][name]) for bucket in buckets]
        for name in buckets[0]["a"]
        for side in "ab"
    }
    facts = [
        f"date: {comparison['date']}",
        *(f"{side.upper()}: {_name(comparison[side])}" for side in "ab"),
        f"data: {comparison['data']}, {comparison['sentences']:,} sentences, sha256 of the "
        f"references {comparison['reference_sha256'][:12]}",
        *comparison["notes"],
    ]
    parts = [
        "# Comparison",
        reports.indented_code(comparison["command"]),
        reports.bullets(facts),
        reports.table(header, list(map(_row, scores))),
        "Paired bootstrap resampling of the sentences by sacreBLEU; samples and seed are in the "
        "signatures. "
        "p is the probability of so large a difference if only the choice of sentences caused it; "
        "0.05 is the usual limit. There is no p for equal scores or identical samples. "
        "It says nothing of what another seed of training would give.",
        "## Which scores these are",
        reports.metric_list(scores, comparison["target"], comparison["tokenized"]),
        "## Sentence by sentence",
        f"{_wins(comparison)} `{comparison['sentence_chrf']['signature']}`",
        "## By source length",
        reports.length_table(buckets, columns),
    ]
    if comparison["differ_most"]:
        parts.append("## The sentences that differ most")
        parts.append("By chrF, the greatest losses of B first, then its greatest gains.")
    for row in comparison["differ_most"]:
        names = {"source": "source", "reference": "reference", "A": "a", "B": "b"}
        texts = (f"{name}: {row[key]}" for name, key in names.items())
        parts.append(reports.indented_code(f"line {row['line']}: {row['difference']:+.1f}", *texts))
    return reports.paragraphs(parts)


def _row(score: Report) -> list[str]:
    """The score's name, A, B, their difference, both with their intervals, and p."""
    form, sides = partial(format_score, score["name"]), (score["a"], score["b"])
    return [
        score["name"],
        *(form(side["score"]) for side in sides),
        form(sides[1]["score"] - sides[0]["score"], "+"),
        *(f"{form(side['mean'])} ± {form(side['ci'])}" for side in sides),
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


def run(paths: list[Any], run_dir: Path) -> None:
    """Write comparison.json, comparison.md and comparison.png to the run directory.

    Raises ValueError or OSError that says which of the two reports cannot be compared.
    """
    if len(paths) != 2 or not all(isinstance(path, str | int) for path in paths):
        names = ",".join(map(str, paths))
        raise ValueError(f"compare=[{names}]: name two reports, as compare=[FOLDER_A,FOLDER_B]")
    a, b = (load(Path(str(path))) for path in paths)  # a sweep calls its folders 0, 1, 2
    comparison = reports.origin() | compare(a, b)
    run_dir.mkdir(parents=True, exist_ok=True)
    atomic_write(run_dir / "comparison.md", markdown(comparison))
    reports.write_json(run_dir / "comparison.json", comparison)
    plots.draw_comparison(run_dir / "comparison.png", comparison)
    with console.ignore_broken_pipe():
        print(f"{render(comparison)}\n\ncomparison  {run_dir}/comparison.md")
