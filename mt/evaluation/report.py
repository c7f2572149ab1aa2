"""The report of an evaluation: scores by name and signature, by source length, by sentence.

report.json holds everything but the sentences; these are in sentences.*.jsonl, one a line.
report.md and the terminal show what a person wants to know. Nothing is translated here.
"""

import contextlib
import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from tabulate import tabulate

from mt.evaluation import metrics
from mt.evaluation.comet import Comet
from mt.evaluation.metrics import format_score
from mt.utils.atomic import atomic_path, atomic_write
from mt.utils.json_io import json_text, read_json

# Ranges of the number of words in a source sentence.
LENGTHS = ((0, 0), (1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 50), (51, None))
NUM_WORST_SENTENCES = 10  # sentences that report.md shows
OUTPUT_KINDS = ("hypotheses", "sentence_scores")
OUTPUT_NAMES = r"(hypotheses|sentences)\.(beam\d+|given)\.(txt|jsonl)"  # files that a report names

Element = TypeVar("Element")
Report = dict[str, Any]  # report.json, or a part of it such as one of its "runs"
Row = dict[str, Any]  # a line of sentences.*.jsonl


def origin() -> Report:
    """When and by which command a report or a comparison is made."""
    command = shlex.join(["python", "-m", "mt.evaluate", *sys.argv[1:]])
    return {"date": time.strftime("%Y-%m-%d"), "command": command}


def digest(lines: Sequence[str]) -> str:
    """SHA-256 of the lines as UTF-8, each with a line break.

    Two reports compare it to see whether they are about the same sentences.
    """
    return hashlib.sha256(join_lines(lines).encode()).hexdigest()


def indices_by_length(sources: Sequence[str]) -> dict[str, list[int]]:
    """Indices of the sentences in each range of LENGTHS that occurs; words are split at blanks."""
    lengths = [len(source.split()) for source in sources]
    buckets: dict[str, list[int]] = {}
    for low, high in LENGTHS:
        name = f"{low}+" if high is None else f"{low}-{high}" if low < high else str(low)
        indices = [i for i, n in enumerate(lengths) if n >= low and (high is None or n <= high)]
        if indices:
            buckets[name] = indices
    return buckets


def select(items: Sequence[Element], indices: Sequence[int]) -> list[Element]:
    return [items[i] for i in indices]


def score_output(
    sources: list[str],
    references: list[str],
    hypotheses: list[str],
    target: str = "de",
    tokenized: bool = False,
) -> tuple[Report, list[Row]]:
    """The scores of one system's output as JSON types, and a row for every sentence.

    Length ratios are tokens of the hypotheses over those of the references. Raises ValueError when
    there are no sentences.
    """
    scores = metrics.all_scores(hypotheses, references, target, tokenized)
    sentences, signatures = metrics.sentence_scores(hypotheses, references, target, tokenized)
    main_metrics = metrics.metric_specs(target, tokenized)[:2]
    buckets = []
    num_tokens = num_reference_tokens = 0
    for name, indices in indices_by_length(sources).items():
        outputs, expected = select(hypotheses, indices), select(references, indices)
        tokens, reference_tokens = metrics.token_counts(outputs, expected, target, tokenized)
        num_tokens += tokens
        num_reference_tokens += reference_tokens
        bucket: Report = {"words": name, "sentences": len(indices)}
        bucket["scores"] = {spec.name: spec.score(outputs, expected).value for spec in main_metrics}
        buckets.append(bucket | {"length_ratio": _ratio(tokens, reference_tokens)})
    run = {
        "scores": [score._asdict() for score in scores],
        "intervals": metrics.bootstrap_signature() if len(sources) > 1 else None,
        "length_ratio": _ratio(num_tokens, num_reference_tokens),
        "tokens": {"hypotheses": num_tokens, "references": num_reference_tokens},
        "by_length": buckets,
        "sentence_signatures": signatures,
        "hypothesis_sha256": digest(hypotheses),
    }
    rows = [
        {"line": i + 1, "source": source, "reference": reference, "hypothesis": hypothesis}
        | {name: round(values[i], 4) for name, values in sentences.items()}
        for i, (source, reference, hypothesis) in enumerate(
            zip(sources, references, hypotheses, strict=True)
        )
    ]
    return run, rows


def add_comet(
    comet: Comet, report: Report, sentences: list[list[Row]], languages: tuple[str, str]
) -> None:
    """Add COMET to all runs and sentences. If it fails, add nothing and raise ValueError."""
    results = []
    for rows in sentences:
        sides = [[row[name] for row in rows] for name in ("source", "hypothesis", "reference")]
        if report["tokenized"]:  # COMET was trained on text as people write it
            forms = [metrics.Detokenized(languages[side]) for side in (0, 1, 1)]
            sides = [[form(line) for line in side] for form, side in zip(forms, sides, strict=True)]
        results.append(comet(*sides))
    for run, rows, (score, values) in zip(report["runs"], sentences, results, strict=True):
        run["scores"].append(score._asdict())
        run["sentence_signatures"]["comet"] = score.signature
        for row, value in zip(rows, values, strict=True):
            row["comet"] = round(value, 4)


def _ratio(tokens: int, reference_tokens: int) -> float | None:
    return round(tokens / reference_tokens, 4) if reference_tokens else None


# ------------------------------------------------------------------------------ rendering


def search_name(run: Report) -> str:
    if run["beam_size"] is None:
        return "as given"
    return "greedy" if run["beam_size"] == 1 else f"beam {run['beam_size']}"


def model_name(report: Report) -> str:
    """The translator: a model with its hash, each model of an ensemble, or a file."""
    if members := report.get("members"):
        return " + ".join(model_name(member) for member in members)
    if report["model_sha256"] is None:
        return f"the translations in {report['model']}"
    return f"{report['model']} (sha256 {report['model_sha256'][:12]})"


def split_signature(signature: str) -> tuple[str, str]:
    """A score's own signature, and the bootstrap's part of it."""
    parts = signature.split("|")
    bootstrap = [part for part in parts if part.startswith(("bs:", "seed:"))]
    return "|".join(part for part in parts if part not in bootstrap), "|".join(bootstrap)


def render(report: Report) -> str:
    """The report for a terminal: one row for each score, one column for each search; signatures."""
    runs, tokens = report["runs"], report["source_tokens"]
    size = f"{report['sentences']:,} sentences"
    if tokens is not None:  # a model has tokenised the text
        size += f", {tokens:,} source tokens"
    text = (
        f"model   {model_name(report)}\n"
        f"data    {report['data']}: {size}\n\n"
        f"{table(['', *map(search_name, runs)], _score_rows(runs), 'plain')}\n\n"
        f"{signature_list(runs[0]['scores'])}"
    )
    if signature := runs[0]["intervals"]:
        text += f"\n  ± (half the width of the 95% interval): {signature}"
    return text


def markdown(report: Report, sentences: list[Row]) -> str:
    """report.md; ``sentences`` are the rows of the last search."""
    runs, buckets = report["runs"], report["runs"][0]["by_length"]
    names = [search_name(run) for run in runs]
    searched = runs[0]["beam_size"] is not None  # else the translations were in a file
    form = "tokenised already, scored as it is" if report["tokenized"] else "as people write it"
    sentence_signatures = runs[-1]["sentence_signatures"]
    columns = {
        f"{metric}, {name}": [format_score(metric, b["scores"][metric]) for b in run["by_length"]]
        for metric in buckets[0]["scores"]
        for name, run in zip(names, runs, strict=True)
    }
    for name, run in zip(names, runs, strict=True):
        columns[f"ratio, {name}"] = [_ratio_text(b["length_ratio"]) for b in run["by_length"]]
    facts = [
        f"date: {report['date']}",
        f"machine: {report['machine']}",
        f"model: {model_name(report)}",
        f"data: {report['data']}, {report['sentences']:,} sentences, text {form}",
        f"sha256 of the sources {report['source_sha256'][:12]}, "
        f"of the references {report['reference_sha256'][:12]}",
    ]
    if searched:
        facts += [
            f"search: alpha {runs[0]['alpha']}, precision {report['config']['precision']}",
            f"tokenizer: sha256 {report['tokenizer_sha256'][:12]}",
        ]
    intervals = runs[0]["intervals"] and (
        "± is half the width of the 95% interval of sacreBLEU's bootstrap over the sentences, "
        f"`{runs[0]['intervals']}`, which lies around the mean of its samples: what another choice "
        "of sentences could give, not what another seed of training could."
    )
    parts = [
        f"# Evaluation of {report['model']}",
        indented_code(report["command"]),
        bullets(facts),
        table(["", *names], _score_rows(runs)),
        intervals,
        "The length ratio is tokens of the hypotheses over tokens of the references, as the first "
        "BLEU above counts them." + (" Output tokens are the model's pieces." if searched else ""),
        "## Which scores these are",
        metric_list(runs[0]["scores"], report["target"], report["tokenized"]),
        "## By source length",
        length_table(buckets, columns),
        "## Sentence by sentence",
        _quantile_table(sentences, sentence_signatures, names[-1]),
        bullets(f"sentence {name}: `{text}`" for name, text in sentence_signatures.items()),
        f"The {min(NUM_WORST_SENTENCES, len(sentences))} with the lowest chrF, {names[-1]}; "
        f"all are in {runs[-1]['sentence_scores']}.",
    ]
    for row in sorted(sentences, key=lambda row: row["chrf"])[:NUM_WORST_SENTENCES]:
        scores = (f"{name} {format_score(name, row[name])}" for name in sentence_signatures)
        texts = (f"{name}: {row[name]}" for name in ("source", "reference", "hypothesis"))
        parts.append(indented_code(f"line {row['line']}: {', '.join(scores)}", *texts))
    return paragraphs(parts)


def _score_rows(runs: list[Report]) -> list[list[str]]:
    """Rows of a name and a text for each run; tokens and speed only where a model searched."""
    rows = [
        [score["name"], *(_with_interval(run["scores"][i]) for run in runs)]
        for i, score in enumerate(runs[0]["scores"])
    ]
    rows.append(["length ratio", *(_ratio_text(run["length_ratio"]) for run in runs)])
    for key, name in (("output_tokens", "output tokens"), ("tokens_per_second", "tokens/s")):
        if all(key in run for run in runs):
            rows.append([name, *(f"{run[key]:,.0f}" for run in runs)])
    return rows


def _with_interval(score: Report) -> str:
    name, half_width = score["name"], score["interval"]
    text = format_score(name, score["value"])
    return text if half_width is None else f"{text} ± {format_score(name, half_width)}"


def _ratio_text(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3f}"


def paragraphs(parts: Iterable[str | None]) -> str:
    """A text in Markdown: its parts, except empty ones, with a blank line between two."""
    return "\n\n".join(part for part in parts if part) + "\n"


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def metric_list(scores: list[Report], target: str, tokenized: bool) -> str:
    """A line of Markdown for each score: its description and its signature."""
    specs = [*metrics.metric_specs(target, tokenized), metrics.COMET]
    descriptions = {spec.name: spec.description for spec in specs}
    return bullets(f"{s['name']}: {descriptions[s['name']]}. `{s['signature']}`" for s in scores)


def signature_list(scores: list[Report]) -> str:
    """For a terminal."""
    return "\n".join(["signatures", *(f"  {s['name']}: {s['signature']}" for s in scores)])


def table(header: list[str], rows: list[list[str]], form: str = "pipe") -> str:
    """A table for Markdown, or ``plain`` for a terminal; all columns but the first are numbers."""
    sides = ("left", *["right"] * (len(header) - 1))
    return tabulate(rows, header, form, disable_numparse=True, colalign=sides)


def indented_code(*lines: str) -> str:
    """Lines that Markdown shows as they are."""
    return "\n".join("    " + " ".join(line.split()) for line in lines)


def length_table(buckets: list[Report], columns: dict[str, list[str]]) -> str:
    """A row for each range of source lengths; ``columns`` have a text for each row."""
    texts = zip(*columns.values(), strict=True)
    rows = [
        [b["words"], f"{b['sentences']:,}", *row] for b, row in zip(buckets, texts, strict=True)
    ]
    return table(["source words", "sentences", *columns], rows)


def _quantile_table(sentences: list[Row], names: Iterable[str], search: str) -> str:
    header = [f"sentence scores, {search}", "min", "25%", "median", "75%", "max"]
    places = [round(part * (len(sentences) - 1)) for part in (0, 0.25, 0.5, 0.75, 1)]
    rows = []
    for name in names:
        values = sorted(row[name] for row in sentences)
        rows.append([f"sentence {name}", *(format_score(name, values[i]) for i in places)])
    return table(header, rows)


# ---------------------------------------------------------------------------------- on disk


def is_report_name(name: str) -> bool:
    """Whether a report may have a file of this name."""
    return (
        re.fullmatch(r"report\..+|(hypotheses|sentences|unfinished)\..+|.+\.png", name) is not None
    )


def report_files(folder: Path) -> set[str]:
    """Names of the files of the report in ``folder``, none when it holds no report.json.

    Raises ValueError when report.json is not a report of mt.evaluate.
    """
    file = folder / "report.json"
    if not file.exists():
        return set()
    with contextlib.suppress(ValueError, TypeError, KeyError):
        runs = read_json(file)["runs"]
        if runs and all(has_file_names(run) for run in runs):
            return {run[kind] for run in runs for kind in OUTPUT_KINDS}
    raise ValueError(
        f"{file}: no report of mt.evaluate: name another hydra.run.dir, or it would be lost"
    )


def has_file_names(run: Report) -> bool:
    """Whether the run names its files as ``save`` does: no file elsewhere."""
    return all(re.fullmatch(OUTPUT_NAMES, str(run[kind])) for kind in OUTPUT_KINDS)


def save(folder: Path, report: Report, sentences: list[list[Row]], replaced: set[str]) -> None:
    """Write all files of a report except its plots; remove the other files of ``replaced``.

    ``sentences`` are the rows of each run. Every file is complete before the first one is renamed.
    """
    texts = {}
    for run, rows in zip(report["runs"], sentences, strict=True):
        texts[run["hypotheses"]] = join_lines(row["hypothesis"] for row in rows)
        texts[run["sentence_scores"]] = json_lines(rows)
    texts["report.md"] = markdown(report, sentences[-1])
    texts["report.json"] = json_text(report)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for name, text in reversed(texts.items()):  # renamed in the order of ``texts``
            stack.enter_context(atomic_path(folder / name)).write_bytes(text.encode())
    for name in replaced - texts.keys():
        (folder / name).unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    atomic_write(path, json_text(content))


def join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def json_lines(rows: list[Row]) -> str:
    return join_lines(json.dumps(row, ensure_ascii=False) for row in rows)
