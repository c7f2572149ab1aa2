"""scripts/gpu_report.py: records that are kept, steps that fail, and what needs a GPU."""

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import load_script

from mt.utils.json_io import read_json


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "gpu_report")


def test_a_step_is_kept_one_that_fails_leaves_its_last_line_and_can_be_repeated(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def works(report: object) -> dict[str, bool]:
        calls.append("works")
        return {"done": True}

    def fails(report: object) -> dict[str, bool]:
        calls.append("fails")
        code = "print('first'); print('out of memory'); raise SystemExit(3)"
        report.run("fails", [sys.executable, "-c", code])  # type: ignore[attr-defined]
        return {}

    monkeypatch.setattr(script, "STEPS", {"fails": fails, "works": works})
    output = tmp_path / "gpu.json"
    command = ["--folder", f"{tmp_path / 'work'}", "--dry-run", "--output", f"{output}"]
    command += ["--steps", "fails,works"]
    assert script.main(command) == 2
    steps = read_json(output)["steps"]
    assert steps["fails"]["failed"] == "out of memory"
    assert steps["works"]["done"]
    assert script.main(command) == 2
    assert calls == ["fails", "works"]
    assert script.main([*command, "--again"]) == 2
    assert calls == ["fails", "works", "fails"]


def test_a_rank_does_not_wait_for_one_that_has_failed(script: ModuleType, tmp_path: Path) -> None:
    report = script.Report(tmp_path, True)
    codes = "import time; time.sleep(60)", "raise SystemExit('no port')"
    programs = [report.start("ranks", [sys.executable, "-c", code]) for code in codes]
    begin = time.monotonic()
    with pytest.raises(script.StepFailed, match="no port"):
        report.wait("ranks", programs)
    assert time.monotonic() - begin < 30


def test_a_folder_with_other_files_is_left_alone(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "tests" / "mine.py"
    mine.parent.mkdir()
    mine.touch()
    assert script.main(["--folder", f"{tmp_path}", "--dry-run", "--steps", "tests"]) == 2
    assert "holds other files, name a new folder" in capsys.readouterr().err
    assert mine.exists()


def test_losses_are_read_by_step_and_compared(script: ModuleType, tmp_path: Path) -> None:
    for version, rows in enumerate(("0,2.0\n1,1.0\n1,\n", "1,1.5\n2,0.5\n")):
        folder = tmp_path / "logs" / f"version_{version}"
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text(f"step,train_loss\n{rows}")
    assert script.losses(tmp_path) == [2.0, 1.5, 0.5]  # a resumed run repeats its step 1
    assert script.difference([2.0, 1.0], [2.0, 1.1]) == pytest.approx(0.1)
    with pytest.raises(script.StepFailed, match="2 losses and 1"):
        script.difference([2.0, 1.0], [2.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "train-small", "--dry-run"], "'train-small' is none of tests, learning"),
        ([], "no GPU that torch can use: --dry-run"),
    ],
)
def test_what_cannot_run_is_refused(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], options: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert script.main(["--folder", f"{tmp_path}", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("step", "option"), [("everyday", "--text"), ("multi30k", "--multi30k")])
def test_a_step_that_needs_text_says_so(
    script: ModuleType, tmp_path: Path, step: str, option: str
) -> None:
    assert script.main(["--folder", f"{tmp_path}", "--dry-run", "--steps", step]) == 2
    assert read_json(tmp_path / f"{step}.json")["failed"] == f"give {option} FOLDER"


def test_the_recipe_of_the_bundled_model_is_trained_in_parts_and_scored(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(report: object, step: str, command: list[object]) -> None:
        commands.append([str(part) for part in command])
        model = tmp_path / "work" / "trainings" / "everyday" / "model"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_text('{"training": {"steps": 73}}')

    monkeypatch.setattr(script.Report, "run", run)
    monkeypatch.setattr(script.Report, "score", lambda report, step, model, pairs: 1.5)
    monkeypatch.setattr(script, "learning_curves", lambda *_: {"train_loss": [(50, 3.0)]})
    (tmp_path / "validation.themes.tsv").touch()
    record = script.everyday(script.Report(tmp_path / "work", True, tmp_path, minutes=6))
    limits = [part for command in commands for part in command if "max_time" in part]
    assert [limit.partition("=")[2] for limit in limits] == [
        "00:00:04:12",
        "00:00:01:12",
        "00:00:00:36",
    ]
    assert commands[-1][1].endswith("ship_model.py")
    assert record["updates"] == 73
    assert set(record["sacreBLEU"]) == {"validation.tatoeba", "validation.themes.tsv"}
