"""The record of an evaluation: scores by name and signature, by source length, by sentence.

report.json holds all but the sentences, of which sentences.*.jsonl has one a line; report.md
and the terminal show what a person wants to know. Nothing is translated here.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mt.evaluation import metrics

# Words of a source sentence, from and to.
LENGTHS = ((0, 0), (1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 50), (51, None))
NUM_WORST_SENTENCES = 10  # sentences that report.md shows

Element = TypeVar("Element")
Report = dict[str, Any]


def digest(lines: Sequence[str]) -> str:
    """SHA-256 of the lines as UTF-8, each with its line break: by it two reports find that they
    are about the same sentences."""
    return hashlib.sha256(text_of(lines).encode()).hexdigest()


def by_length(sources: Sequence[str]) -> dict[str, list[int]]:
    """Numbers of the sentences of each length of LENGTHS that occurs, in whitespace's words."""
    words = [len(source.split()) for source in sources]
    found: dict[str, list[int]] = {}
    for low, high in LENGTHS:
        name = f"{low}+" if high is None else f"{low}-{high}" if low < high else str(low)
        chosen = [i for i, n in enumerate(words) if n >= low and (high is None or n <= high)]
        if chosen:
            found[name] = chosen
    return found


def pick(items: Sequence[Element], which: Sequence[int]) -> list[Element]:
    return [items[i] for i in which]


def score(
    sources: list[str],
    references: list[str],
    hypotheses: list[str],
    target: str = "de",
    tokenized: bool = False,
) -> tuple[Report, list[dict[str, Any]]]:
    """All that is to be said of the hypotheses, in JSON's types, and a row for every sentence.

    Length ratios are tokens of the hypotheses over those of the references. Raises ValueError when
    there are no sentences.
    """
    scores = metrics.all_scores(hypotheses, references, target, tokenized)
    sentences, signatures = metrics.sentence_scores(hypotheses, references, tokenized)
    first_two = metrics.metric_specs(target, tokenized)[:2]
    buckets = []
    tokens = reference_tokens = 0
    for name, which in by_length(sources).items():
        ours, theirs = pick(hypotheses, which), pick(references, which)
        counts = metrics.token_counts(ours, theirs, tokenized)
        tokens, reference_tokens = tokens + counts[0], reference_tokens + counts[1]
        buckets.append(
            {
                "words": name,
                "sentences": len(which),
                "scores": {each.name: each.score(ours, theirs).value for each in first_two},
                "length_ratio": _ratio(*counts),
            }
        )
    record = {
        "scores": [each._asdict() for each in scores],
        "intervals": metrics.bootstrap_signature() if len(sources) > 1 else None,
        "length_ratio": _ratio(tokens, reference_tokens),
        "tokens": {"hypotheses": tokens, "references": reference_tokens},
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
    return record, rows


def comet_scores(
    rows: list[dict[str, Any]],
    comet: metrics.Comet,
    languages: tuple[str, str] = ("en", "de"),
    tokenized: bool = False,
) -> tuple[metrics.Score, list[float]]:
    """COMET of the sentences of ``score``: in all, and of each. ValueError when it fails."""
    sides = [[row[name] for row in rows] for name in ("source", "hypothesis", "reference")]
    if tokenized:  # it was trained on text as people write it
        forms = [metrics.Detokenized(languages[side]) for side in (0, 1, 1)]
        sides = [[form(line) for line in side] for form, side in zip(forms, sides, strict=True)]
    return comet(*sides)


def add_comet(
    record: Report, rows: list[dict[str, Any]], found: tuple[metrics.Score, list[float]]
) -> None:
    """What ``comet_scores`` has found, into what ``score`` has returned."""
    whole, sentences = found
    record["scores"].append(whole._asdict())
    record["sentence_signatures"]["comet"] = whole.signature
    for row, value in zip(rows, sentences, strict=True):
        row["comet"] = round(value, 4)


def _ratio(tokens: int, reference_tokens: int) -> float | None:
    return round(tokens / reference_tokens, 4) if reference_tokens else None


# ------------------------------------------------------------------------------- for people


def search_name(run: Report) -> str:
    if run["beam_size"] is None:
        return "as given"
    return "greedy" if run["beam_size"] == 1 else f"beam {run['beam_size']}"


def model_name(report: Report) -> str:
    """What has translated: a model with its hash, each of several, or the file that was there."""
    if members := report.get("members"):
        return " + ".join(model_name(member) for member in members)
    if report["model_sha256"] is None:
        return f"the translations in {report['model']}"
    return f"{report['model']} (sha256 {report['model_sha256'][:12]})"


def number(name: str, value: float, sign: str = "") -> str:
    """A score as it is shown: COMET goes from 0 to 1, the others to 100."""
    return f"{value:{sign}.{4 if name == 'COMET' else 2}f}"


def split_signature(signature: str) -> tuple[str, str]:
    """A score's own signature, and the bootstrap's part of it."""
    parts = signature.split("|")
    test = [part for part in parts if part.startswith(("bs:", "seed:"))]
    return "|".join(part for part in parts if part not in test), "|".join(test)


def render(report: Report) -> str:
    """The report for a terminal: a row a score, a column a search, then the signatures."""
    runs = report["runs"]
    tokens = report["source_tokens"]  # None where no model has cut the text
    lines = [
        f"model   {model_name(report)}",
        f"data    {report['data']}: {report['sentences']:,} sentences"
        + ("" if tokens is None else f", {tokens:,} source tokens"),
        "",
        " " * 32 + "".join(f"  {search_name(run):>14}" for run in runs),
    ]
    for i, each in enumerate(runs[0]["scores"]):
        values = (_with_interval(run["scores"][i]) for run in runs)
        lines.append(f"{each['name']:<32}" + "".join(f"  {value:>14}" for value in values))
    lines += [f"{name:<32}" + "".join(f"  {x:>14}" for x in row) for name, *row in _lengths(runs)]
    lines += ["", "signatures"]
    lines += [f"  {each['name']}: {each['signature']}" for each in runs[0]["scores"]]
    if runs[0]["intervals"]:
        lines.append(f"  ± (half the width of the 95% interval): {runs[0]['intervals']}")
    return "\n".join(lines)


def markdown(report: Report, sentences: list[dict[str, Any]]) -> str:
    """report.md; ``sentences`` are the rows of the last search."""
    runs = report["runs"]
    names = [search_name(run) for run in runs]
    rows: list[list[str]] = [
        [each["name"], *(_with_interval(run["scores"][i]) for run in runs)]
        for i, each in enumerate(runs[0]["scores"])
    ]
    rows += _lengths(runs)
    form = "tokenised already, scored as it is" if report["tokenized"] else "as people write it"
    lines = [
        f"# Evaluation of {report['model']}",
        "",
        code(report["command"]),
        "",
        f"- date: {report['date']}",
        f"- machine: {report['machine']}",
        f"- model: {model_name(report)}",
        f"- data: {report['data']}, {report['sentences']:,} sentences, text {form}",
        f"- sha256 of the sources {report['source_sha256'][:12]}, "
        f"of the references {report['reference_sha256'][:12]}",
        *_how_searched(report),
        "",
        table(["", *names], rows),
        "",
        *_about_intervals(runs[0]["intervals"]),
        "The length ratio is tokens of the hypotheses over tokens of the references, as the first "
        "BLEU above counts them."
        + ("" if runs[0]["beam_size"] is None else " Output tokens are the model's pieces."),
        "",
        "## Which scores these are",
        "",
        *measure_list(runs[0]["scores"], report["target"], report["tokenized"]),
        "",
        "## By source length",
        "",
        _length_table(runs),
        "",
        "## Sentence by sentence",
        "",
        _quantile_table(sentences, names[-1]),
        "",
        *(f"- sentence {k}: `{v}`" for k, v in runs[-1]["sentence_signatures"].items()),
        "",
        f"The {min(NUM_WORST_SENTENCES, len(sentences))} of least chrF, {names[-1]}; "
        f"all are in {runs[-1]['sentence_scores']}.",
    ]
    for row in sorted(sentences, key=lambda row: row["chrf"])[:NUM_WORST_SENTENCES]:
        values = ", ".join(f"{name} {row[name]:.1f}" for name in ("chrf", "bleu", "ter"))
        lines += ["", code(f"line {row['line']}: {values}", *_texts(row))]
    return "\n".join(lines) + "\n"


def _with_interval(score: Report) -> str:
    name, half = score["name"], score["interval"]
    shown = number(name, score["value"])
    return shown if half is None else f"{shown} ± {number(name, half)}"


def _about_intervals(signature: str | None) -> list[str]:
    if signature is None:
        return []
    return [
        "± is half the width of the 95% interval of sacreBLEU's bootstrap over the sentences, "
        f"`{signature}`, which lies around the mean of its samples: what another choice of "
        "sentences could give, not what another seed of training could.",
        "",
    ]


def measure_list(scores: list[Report], target: str, tokenized: bool) -> list[str]:
    """A line of Markdown for each score: what it is and its signature."""
    about = {each.name: each.about for each in metrics.metric_specs(target, tokenized)}
    about["COMET"] = "a learned score that sees the source too; comparable for one model only"
    return [f"- {s['name']}: {about[s['name']]}. `{s['signature']}`" for s in scores]


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; all columns but the first are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def code(*lines: str) -> str:
    """Lines shown as they are: Markdown has no meaning in them."""
    return "\n".join("    " + " ".join(line.split()) for line in lines)


def _lengths(runs: list[Report]) -> list[list[str]]:
    """Rows of a name and a text for each run; those of tokens and speed where a model searched."""
    rows = [["length ratio", *(_text(run["length_ratio"]) for run in runs)]]
    for key, name in (("output_tokens", "output tokens"), ("tokens_per_second", "tokens/s")):
        if all(key in run for run in runs):
            rows.append([name, *(f"{run[key]:,.0f}" for run in runs)])
    return rows


def _how_searched(report: Report) -> list[str]:
    if report["runs"][0]["beam_size"] is None:
        return []
    return [
        f"- search: alpha {report['runs'][0]['alpha']}, precision {report['config']['precision']}",
        f"- tokenizer: sha256 {report['tokenizer_sha256'][:12]}",
    ]


def _texts(row: dict[str, Any]) -> list[str]:
    return [f"{name}: {row[name]}" for name in ("source", "reference", "hypothesis")]


def _text(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3f}"


def _length_table(runs: list[Report]) -> str:
    measures = list(runs[0]["by_length"][0]["scores"])
    header = ["source words", "sentences"]
    header += [f"{what}, {search_name(run)}" for what in (*measures, "ratio") for run in runs]
    rows = []
    for buckets in zip(*(run["by_length"] for run in runs), strict=True):
        row = [buckets[0]["words"], f"{buckets[0]['sentences']:,}"]
        row += [f"{b['scores'][what]:.2f}" for what in measures for b in buckets]
        rows.append([*row, *(_text(b["length_ratio"]) for b in buckets)])
    return table(header, rows)


def _quantile_table(sentences: list[dict[str, Any]], search: str) -> str:
    header = [f"of the sentences, {search}", "least", "1/4 have less", "half", "3/4", "greatest"]
    rows = []
    for name in ("bleu", "chrf", "ter", "comet"):
        if name in sentences[0]:
            values = sorted(row[name] for row in sentences)
            places = [round(part * (len(values) - 1)) for part in (0, 0.25, 0.5, 0.75, 1)]
            rows.append([f"sentence {name}", *(number(name.upper(), values[i]) for i in places)])
    return table(header, rows)


# ---------------------------------------------------------------------------------- on disk


def write(path: Path, text: str) -> None:
    """The whole file or none."""
    write_all(path.parent, {path.name: text})


def write_all(folder: Path, texts: dict[str, str]) -> None:
    """All files or none, as far as a file system lets it: they are whole before one is replaced."""
    for name, text in texts.items():
        (folder / f".{name}").write_text(text, encoding="utf-8", newline="\n")
    for name in texts:
        os.replace(folder / f".{name}", folder / name)


def write_json(path: Path, content: Report) -> None:
    write(path, json_text(content))


def json_text(content: Report) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def text_of(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def json_lines(rows: list[dict[str, Any]]) -> str:
    return text_of(json.dumps(row, ensure_ascii=False) for row in rows)
