"""Two reports side by side: sacreBLEU's own p-values, and reports that cannot be compared."""

import contextlib
import functools
import json
import math
import operator
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from conftest import write_lines

from mt.evaluation import compare, metrics, plots, report
from mt.utils.atomic import atomic_write

WORDS = ["der", "die", "das", "Das", "Hund", "hund", "Katze-Maus", "sieht", "„Ja“",
         "nicht,", "gut."]  # fmt: skip
COUNT = 40


def spoil(line: str, share: float, chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) if chance.random() < share else w for w in line.split())


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    """References, and two systems of which b is the better; one line of them is blank."""
    chance = random.Random(1)
    references = [" ".join(chance.choices(WORDS, k=chance.randint(3, 14))) for _ in range(COUNT)]
    references[5] = ""
    references[6] += "-gut, ja."
    a, b = ([spoil(line, share, chance) for line in references] for share in (0.35, 0.3))
    a[7] = b[7] = ""
    return {"references": references, "sources": references[::-1], "a": a, "b": b}


def compared(a: Path, b: Path) -> dict[str, Any]:
    """comparison.json of two reports."""
    return compare.compare(compare.load(a), compare.load(b)) | {"command": "", "date": ""}


def alter(file: Path) -> int:
    """Change a translation, but not its scores."""
    text = file.read_text("utf-8")
    return file.write_text(text.replace('"hypothesis": "', '"hypothesis": "Quatsch ', 1), "utf-8")


def with_value(folder: Path, where: tuple[Any, ...], value: Any) -> Path:
    """Change one value of the folder's report."""
    content = json.loads((folder / "report.json").read_text("utf-8"))
    *path, last = where
    functools.reduce(operator.getitem, path, content)[last] = value
    report.write_json(folder / "report.json", content)
    return folder


def write_report(
    folder: Path,
    texts: dict[str, list[str]],
    searches: dict[int, list[str]],
    tokenized: bool = False,
    target: str = "de",
) -> Path:
    """The part of mt.evaluate's files that a comparison needs, of searches by beam size."""
    folder.mkdir(parents=True)
    runs = []
    for beam_size, hypotheses in searches.items():
        run, rows = report.score_output(
            texts["sources"], texts["references"], hypotheses, target, tokenized
        )
        names = {
            "hypotheses": f"hypotheses.beam{beam_size}.txt",
            "sentence_scores": f"sentences.beam{beam_size}.jsonl",
        }
        write_lines(folder / names["hypotheses"], hypotheses)
        atomic_write(folder / names["sentence_scores"], report.json_lines(rows))
        runs.append({"beam_size": beam_size, "alpha": 0.6} | run | names)
    content = {
        "model": f"{folder.name}/model",
        "config": {"precision": "float32"},
        "model_sha256": "5" * 64,
        "data": "words",
        "sentences": len(texts["references"]),
        "source_sha256": report.digest(texts["sources"]),
        "reference_sha256": report.digest(texts["references"]),
        "target": target,
        "tokenized": tokenized,
        "runs": runs,
    }
    report.write_json(folder / "report.json", content)
    return folder


@pytest.fixture(scope="module")
def reports(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, list[str]]
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("reports")
    a = write_report(folder / "a", texts, {1: texts["a"]})
    return a, write_report(folder / "b", texts, {1: texts["a"], 4: texts["b"]})


@pytest.fixture
def _two_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of something else: each metric takes a thousand samples."""
    all_specs = metrics.metric_specs
    monkeypatch.setattr(metrics, "metric_specs", lambda *options: all_specs(*options)[:2])


@pytest.fixture(scope="module")
def comparison(reports: tuple[Path, Path]) -> dict[str, Any]:
    """The comparison of the two."""
    return compared(*reports)


def sacrebleu_says(
    folder: Path, references: list[str], a: list[str], b: list[str], *options: str
) -> list[list[str]]:
    """What ``python -m sacrebleu REFERENCES -i A B --paired-bs`` prints.

    Rows of [score, mean, interval], first those of A, a score each, then those of B, then all p.
    """
    names = [
        str(write_lines(folder / name, lines))
        for name, lines in (("cli.ref", references), ("cli.a", a), ("cli.b", b))
    ]
    command = [sys.executable, "-m", "sacrebleu", names[0], "-i", *names[1:], "--paired-bs"]
    done = subprocess.run(
        [*command, "-f", "text", "-w", "4", *options],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    table = done.stdout.split("Paired bootstrap")[0]  # its JSON output fails at numpy's numbers
    systems = re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)", table)
    return [[*system] for system in systems] + [re.findall(r"p = ([\d.]+)", table)]


def printed(scores: list[dict[str, Any]]) -> list[list[str]]:
    """A comparison's scores as sacreBLEU's command line prints them."""
    sides = [
        [f"{score[side][key]:.4f}" for key in ("score", "mean", "ci")]
        for side in "ab"
        for score in scores
    ]
    return [*sides, [f"{score['p_value']:.4f}" for score in scores]]


def test_the_p_values_are_those_of_sacrebleus_command_line(
    comparison: dict[str, Any], texts: dict[str, list[str]], tmp_path: Path
) -> None:
    scores = comparison["scores"]
    names = ["sacreBLEU", "chrF", "TER", "tokenised BLEU, compound-split", "lc-tok BLEU"]
    assert [score["name"] for score in scores] == names
    sides = [texts[name] for name in ("references", "a", "b")]
    assert sacrebleu_says(tmp_path, *sides, "-m", "bleu", "chrf", "ter") == printed(scores[:3])
    assert len({score["p_value"] for score in scores}) == len(scores)
    assert scores[0]["signature"].startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "form"), [(3, metrics._CompoundSplitter()), (4, metrics.LcNormTok("de"))]
)
def test_they_are_so_for_text_in_another_form(
    comparison: dict[str, Any], texts: dict[str, list[str]], tmp_path: Path, number: int, form: Any
) -> None:
    sides = [[form(line) for line in texts[name]] for name in ("references", "a", "b")]
    options = ["-m", "bleu", "-tok", "none", "--smooth-method", "none", "--force"]
    assert sacrebleu_says(tmp_path, *sides, *options) == printed([comparison["scores"][number]])
    assert "|pre:" in comparison["scores"][number]["signature"]


def test_the_seed_is_sacrebleus(
    reports: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = map(compare.load, reports)
    spec = metrics.metric_specs()[0]
    lists = a.column("hypothesis"), b.column("hypothesis"), a.column("reference")
    first = compare.paired_bootstrap(spec, *lists)
    assert compare.paired_bootstrap(spec, *lists) == first
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = compare.paired_bootstrap(spec, *lists)
    assert "seed:7" in other["signature"]
    assert other["p_value"] != first["p_value"]


@pytest.mark.parametrize("seed", ["0", "abc", "-1", ""])
def test_what_is_no_seed(seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """sacreBLEU states 0 as its seed, but draws without one."""
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(ValueError, match=f"SACREBLEU_SEED={seed}: must be a whole number above 0"):
        compare.paired_bootstrap(metrics.metric_specs()[0], ["a"], ["b"], ["a"])


def test_samples_that_are_all_alike_say_nothing(texts: dict[str, list[str]]) -> None:
    alone = [["der Hund sieht die Katze"], ["der Hund sieht das"], ["der Hund sieht das"]]
    score = compare.paired_bootstrap(metrics.metric_specs()[0], *alone)
    assert score["a"]["score"] != score["b"]["score"]
    assert score["p_value"] is None
    several = ([*alone[i], *texts[name]] for i, name in enumerate(("a", "b", "references")))
    assert compare.paired_bootstrap(metrics.metric_specs()[0], *several)["p_value"] is not None


@pytest.mark.usefixtures("_two_metrics")
def test_a_report_that_was_changed(
    tmp_path: Path, reports: tuple[Path, Path], texts: dict[str, list[str]]
) -> None:
    """Corpus scores are checked against the report; the sentences' scores are computed anew."""
    b = shutil.copytree(reports[1], tmp_path / "b")
    file = b / "sentences.beam4.jsonl"
    rows = [json.loads(line) | {"chrf": 100.0} for line in file.read_text("utf-8").splitlines()]
    atomic_write(file, report.json_lines(rows))
    a, forged = compare.load(reports[0]), compare.load(b)
    honest = compared(*reports)
    assert compare.compare(a, forged)["sentence_chrf"] == honest["sentence_chrf"]
    with_value(b, ("runs", 1, "scores", 0, "value"), 99.9)
    with pytest.raises(ValueError, match=r"b: sacreBLEU is 99.90 in the report, but [\d.]+ of its"):
        compare.compare(a, compare.load(b))


def with_comet(original: Path, folder: Path, gain: float, model: str = "m") -> Path:
    """A copy of the report with COMET of 0.8, 0.8 + gain or 0.8 + 2 * gain for its sentences."""
    shutil.copytree(original, folder)
    content = json.loads((folder / "report.json").read_text("utf-8"))
    signature = f"comet:2|model:{model}"
    for run in content["runs"]:
        file = folder / run["sentence_scores"]
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        values = [0.8 + gain * (row["line"] % 3) for row in rows]
        rows = [row | {"comet": value} for row, value in zip(rows, values, strict=True)]
        atomic_write(file, report.json_lines(rows))
        mean = {"name": "COMET", "value": sum(values) / len(values), "signature": signature}
        run["scores"].append(mean)
        run["sentence_signatures"]["comet"] = signature
    report.write_json(folder / "report.json", content)
    return folder


@pytest.mark.usefixtures("_two_metrics")
def test_comet_when_one_model_has_scored_both(
    tmp_path: Path, reports: tuple[Path, Path], texts: dict[str, list[str]]
) -> None:
    a = with_comet(reports[0], tmp_path / "a", 0)
    b = with_comet(reports[1], tmp_path / "b", 0.01)
    comparison = compared(a, b)
    *_, comet = comparison["scores"]
    assert comparison["notes"] == []
    assert comet["signature"] == "comet:2|model:m|bs:1000|seed:12345"
    assert comet["a"]["score"] == pytest.approx(0.8)
    gains = [0.01 * (line % 3) for line in range(1, COUNT + 1)]
    assert comet["b"]["score"] == pytest.approx(0.8 + sum(gains) / COUNT)
    assert comet["b"]["mean"] == pytest.approx(comet["b"]["score"], abs=0.001)
    assert comet["p_value"] < 0.01
    assert "| COMET | 0.8000 | 0.81" in re.sub(" +", " ", compare.markdown(comparison))

    with_value(b, ("runs", 1, "scores", -1, "value"), 0.9)
    with pytest.raises(ValueError, match=r"COMET is 0\.9000 in the report, but 0\.81"):
        compare.compare(compare.load(a), compare.load(b))
    other = with_comet(reports[1], tmp_path / "other", 0.01, "other")
    sources = write_report(
        tmp_path / "plain", texts | {"sources": texts["references"]}, {1: texts["b"]}
    )
    elsewhere = with_comet(sources, tmp_path / "elsewhere", 0.01)
    for second in (other, elsewhere, reports[1]):
        comparison = compared(a, second)
        assert "COMET" not in {score["name"] for score in comparison["scores"]}
        for text in (compare.markdown(comparison), compare.render(comparison)):
            assert "COMET is left out: one model has not scored both" in text


@pytest.mark.usefixtures("_two_metrics")
def test_scores_of_another_version_are_told(tmp_path: Path, reports: tuple[Path, Path]) -> None:
    b = shutil.copytree(reports[1], tmp_path / "b")
    with_value(b, ("runs", 1, "scores", 0, "signature"), "nrefs:1|version:1.0")
    comparison = compared(reports[0], b)
    assert comparison["notes"] == ["B's report has sacreBLEU of another version or not at all"]


@pytest.mark.usefixtures("_two_metrics")
def test_the_folders_of_a_sweep_are_numbers(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plots, "draw_comparison", lambda path, _: path.write_bytes(b"png"))
    for number, path in enumerate(reports):
        shutil.copytree(path, tmp_path / str(number))
    compare.run([0, 1], tmp_path / "out")
    assert (tmp_path / "out" / "comparison.md").exists()


def test_what_a_comparison_says(
    comparison: dict[str, Any], reports: tuple[Path, Path], texts: dict[str, list[str]]
) -> None:
    a, b = map(compare.load, reports)
    chrf = [[sacrebleu.sentence_chrf(h, [r]).score for h, r in zip(texts[side], texts["references"],
            strict=True)] for side in "ab"]  # fmt: skip
    differences = [round(y - x, 3) for x, y in zip(*chrf, strict=True)]
    wins = comparison["sentence_chrf"]
    assert wins["b_better"] == sum(d > 0 for d in differences) > 5
    assert wins["a_better"] == sum(d < 0 for d in differences) > 5
    assert wins["equal"] == differences.count(0) >= wins["same_text"] >= 1
    extremes = comparison["differ_most"]
    assert len(extremes) == 2 * compare.NUM_EXTREME_SENTENCES
    assert extremes[0]["difference"] == pytest.approx(min(differences), abs=0.001)
    assert extremes[compare.NUM_EXTREME_SENTENCES]["difference"] == pytest.approx(
        max(differences), abs=0.001
    )
    for row in extremes:
        i = row["line"] - 1
        assert (row["a"], row["b"]) == (texts["a"][i], texts["b"][i])
        assert row["difference"] == pytest.approx(differences[i], abs=0.001)
    for side, system in (("a", a), ("b", b)):
        expected = [(x["words"], x["sentences"], x["scores"]) for x in system.run["by_length"]]
        assert [(x["words"], x["sentences"], x[side]) for x in comparison["by_length"]] == expected
    assert (comparison["a"]["search"], comparison["b"]["search"]) == ("greedy", "beam 4")


def test_a_search_can_be_chosen(reports: tuple[Path, Path], texts: dict[str, list[str]]) -> None:
    _, b = reports
    assert compare.load(b).column("hypothesis") == texts["b"]
    assert compare.load(b / "report.json").run["beam_size"] == 4
    greedy = compare.load(b / "hypotheses.beam1.txt")
    assert greedy.run["beam_size"] == 1
    assert greedy.column("hypothesis") == texts["a"]


@pytest.mark.usefixtures("_two_metrics")
def test_the_same_text_twice(reports: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    same = compared(reports[0], reports[0])
    assert same["differ_most"] == []
    assert all(score["p_value"] is None for score in same["scores"])
    assert "the same text in all" in compare.render(same)
    shown = compare.markdown(same)
    assert len(re.findall(r"\| +– \|", shown)) == len(same["scores"])
    assert "differ most" not in shown
    plots.draw_comparison(tmp_path / "same.png", same)
    assert (tmp_path / "same.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"references": ["x"] * COUNT}, "have different references"),
        ({"tokenized": True}, "not scored alike: tokenized is False and True"),
        ({"target": "en"}, "not scored alike: target is de and en"),
    ],
)
def test_what_is_not_comparable(
    tmp_path: Path, texts: dict[str, list[str]], changes: dict[str, Any], message: str
) -> None:
    options = {key: changes[key] for key in ("tokenized", "target") if key in changes}
    other = texts | {key: value for key, value in changes.items() if key not in options}
    a = compare.load(write_report(tmp_path / "a", texts, {1: texts["a"]}))
    b = compare.load(write_report(tmp_path / "b", other, {1: texts["b"]}, **options))
    with pytest.raises(ValueError, match=message):
        compare.compare(a, b)


@pytest.mark.usefixtures("_two_metrics")
def test_other_sources_are_told(tmp_path: Path, texts: dict[str, list[str]]) -> None:
    a = write_report(tmp_path / "a", texts, {1: texts["a"]})
    b = write_report(tmp_path / "b", texts | {"sources": texts["references"]}, {1: texts["b"]})
    comparison = compared(a, b)
    for text in (compare.markdown(comparison), compare.render(comparison)):
        assert "the sources differ; lengths are A's" in text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f / "gone", "gone: no report there"),
        (lambda f: f.parent, "no report there"),
        (lambda f: f / "hypotheses.beam9.txt", "no report there"),
        (lambda f: f / "sentences.beam1.jsonl", "no hypotheses that .* knows"),
        (lambda f: (f / "report.json").write_text("{") and f, "not JSON"),
        (lambda f: (f / "report.json").write_text('{"runs": [1]}') and f, "not a report of this"),
        (lambda f: (f / "report.json").write_text("[]") and f, "not a report of this"),
        (lambda f: (f / "sentences.beam1.jsonl").write_text('{"a": 1}\n') and f, "damaged"),
        (lambda f: (f / "sentences.beam1.jsonl").write_text("") or f, "damaged"),
        (
            lambda f: alter(f / "sentences.beam1.jsonl") and f,
            "damaged, or not of the report",
        ),
        (lambda f: (f / "hypotheses.beam1.txt").write_text("x\n") and f, "not what the report"),
        (lambda f: (f / "sentences.beam1.jsonl").unlink() or f, "jsonl: is missing, the report"),
        (lambda f: (f / "report.json").write_text("[" * 100_000) and f, "not JSON"),
        (lambda f: with_value(f, ("runs",), 5), "not a report of this version"),
        (lambda f: with_value(f, ("model_sha256",), 5), "not a report of this version"),
        (lambda f: with_value(f, ("runs", 0, "hypotheses"), 5), "not a report of this version"),
        (lambda f: with_value(f, ("runs", 0, "scores"), [{}]), "not a report of this version"),
    ],
)
def test_reports_that_cannot_be_read(
    tmp_path: Path, reports: tuple[Path, Path], damage: Any, message: str
) -> None:
    folder = shutil.copytree(reports[0], tmp_path / "a")
    with pytest.raises((ValueError, OSError), match=message):
        compare.load(damage(folder))


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The place of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        yield (key,)
        if isinstance(part, dict | list):
            yield from ((key, *rest) for rest in places(part))


@pytest.mark.parametrize("value", [None, math.nan, 10**400, ["x"], "/dev/zero"])
def test_no_value_of_a_report_breaks_a_comparison(
    tmp_path: Path, texts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.setattr(compare, "NUM_BOOTSTRAP_SAMPLES", 2)
    a = write_report(tmp_path / "a", {side: lines[:2] for side, lines in texts.items()},
                     {1: texts["a"][:2]})  # fmt: skip
    b = shutil.copytree(a, tmp_path / "b")
    content = (a / "report.json").read_text("utf-8")
    refused = 0
    for place in list(places(json.loads(content))):
        with_value(a, place, value)
        try:
            comparison = compared(a, b)
            compare.render(comparison)
            compare.markdown(comparison)
        except (ValueError, OSError):
            refused += 1
        with contextlib.suppress(ValueError):
            report.report_files(a)
        (a / "report.json").write_text(content, "utf-8")
    assert refused > 20


@pytest.mark.parametrize("paths", [[], ["a"], ["a", "b", "c"], ["a", None]])
def test_two_reports_are_compared(paths: list[Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name two reports, as compare="):
        compare.run(paths, tmp_path)


@pytest.mark.usefixtures("_two_metrics")
def test_what_is_written(
    reports: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(plots, "draw_comparison", lambda path, *_: path.write_bytes(b"png"))
    out = tmp_path / "out"
    compare.run([str(path) for path in reports], out)
    names = ["comparison.json", "comparison.md", "comparison.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    content = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    shown = (out / "comparison.md").read_text(encoding="utf-8"), capsys.readouterr().out
    for text in shown:
        for score in content["scores"]:
            assert score["signature"] in text
            assert f"{score['p_value']:.4f}" in text
        assert "B is better in" in text
