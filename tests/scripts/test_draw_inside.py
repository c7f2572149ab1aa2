"""docs/inside.md says what the bundled model computes now, and shows all pictures."""

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script_helpers import load_script

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "inside.md"
NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e-\d+)?")
MOST_BYTES = 150_000


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "draw_inside")


@pytest.fixture
def report(script: ModuleType) -> dict[str, Any]:
    return script.bundled_report()


def split(text: str) -> tuple[str, list[float]]:
    """A text without its numbers and line ends, and the numbers."""
    text = " ".join(text.split("## Training seen")[0].split())
    numbers = NUMBER.findall(text)
    return NUMBER.sub("#", text), [float(n.replace("−", "-").replace(",", "")) for n in numbers]


def test_the_page_is_that_of_the_bundled_model(script: ModuleType, report: dict[str, Any]) -> None:
    words, numbers = split(PAGE.read_text("utf-8"))
    expected_words, expected = split(script.render(report))
    assert words == expected_words, "run scripts/draw_inside.py again"
    # other processors round the last digit otherwise
    assert numbers == pytest.approx(expected, rel=0.02, abs=0.02)


def test_numbers_of_the_page_are_those_of_the_report(
    script: ModuleType, report: dict[str, Any]
) -> None:
    values = script.values_of(report)
    log_prob = float(values["log_prob"].replace("−", "-"))
    assert log_prob == pytest.approx(report["target"]["log_prob"], abs=1e-3)
    pruned = [node for node in report["tree"]["nodes"] if node["state"] == "pruned"]
    assert int(values["num_pruned"]) == len(pruned)
    best = values["finished_table"].splitlines()[2].split(" | ")
    assert best[0] == f"| `{' '.join(report['target']['pieces'])}`"
    total, penalty, score = (float(x.strip("| ").replace("−", "-")) for x in best[1:])
    assert total / penalty == pytest.approx(score, abs=2e-3)


def test_published_examples_agree_within_their_tolerance(
    script: ModuleType, worked_examples: dict[str, Any]
) -> None:
    differences = script.differences(worked_examples)
    assert differences.keys() == worked_examples.keys() - {"shapes_base"}
    for name, difference in differences.items():
        assert difference <= worked_examples[name]["tolerance"], name
    wrong = json.loads(json.dumps(worked_examples))
    wrong["attention_d3"]["weights"][0][0] += 0.1
    assert script.differences(wrong)["attention_d3"] == pytest.approx(0.1, abs=1e-3)


def test_a_placeholder_without_a_value_is_an_error(
    script: ModuleType, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "page.md").write_text("The model has {{nothing}}.", "utf-8")
    monkeypatch.setattr(script, "TEMPLATE", tmp_path / "page.md")
    with pytest.raises(KeyError, match="nothing"):
        script.render(report)


def test_each_picture_has_words_for_those_who_cannot_see_it() -> None:
    shown = re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", PAGE.read_text("utf-8"))
    files = {f"inside/{path.name}": path for path in (PAGE.parent / "inside").iterdir()}
    assert {path for _, path in shown} == files.keys()
    assert all(len(text) > 30 for text, _ in shown)
    assert all(path.stat().st_size <= MOST_BYTES for path in files.values())


def test_the_training_section_has_a_row_for_each_checkpoint(
    script: ModuleType, report: dict[str, Any]
) -> None:
    assert script.training_section([]) == ""
    page = script.render(report, [report, report])
    section = page.split("## Training seen")[1]
    assert section.count("| `everyday` |") == 2
    assert len([line for line in page.splitlines() if len(line) > 100 and line[0] not in "|!"]) == 0
