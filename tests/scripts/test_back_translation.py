"""scripts/back_translation.py: which text each model is trained on, and what is reported."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import load_script, table_rows
from train_helpers import run as run_training

from mt.utils.json_io import read_json

SMALL = [
    "model.N=1", "model.d_model=16", "model.d_ff=32", "model.h=2", "tokenizer.vocab_size=300",
    "data.tokens_per_step=400", "validate_every=5", "checkpoint_every=5", "average=1",
    "trainer.precision=32-true", "trainer.accelerator=cpu",
]  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Trainings run in this process; the reverse model's translations are capitals."""
    script = load_script(monkeypatch, "back_translation")
    script.programs = []  # type: ignore[attr-defined]

    def run_program(arguments: list[str], log: Path, threads: int | None = None) -> None:
        program, *arguments = arguments
        script.programs.append((program, arguments))  # type: ignore[attr-defined]
        if program == "mt.train":
            assert run_training(arguments, monkeypatch) == 0
            return
        options = dict(zip(arguments[1::2], arguments[2::2], strict=False))
        lines = Path(arguments[arguments.index("--input") + 1]).read_text("utf-8").splitlines()
        if arguments[0] == "translate":
            assert options["--column"] == "de=en"
            lines = [json.dumps({"de": line, "en": line.upper()}) for line in lines]
        Path(arguments[-1]).write_text("".join(f"{line}\n" for line in lines))

    monkeypatch.setattr(script, "run_program", run_program)
    return script


def test_the_text_is_translated_back_and_trained_on(
    script: ModuleType, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefixes = (("train", "train"), ("validation", "valid"), ("test", "valid"))
    command = [
        *(f"--{split}={corpus / name}" for split, name in prefixes),
        *(f"--folder={tmp_path / 'runs'}", "--pairs", "100", "--steps", "5"),
        f"--output={tmp_path / 'out.json'}",
    ]
    settings = ["--", *SMALL, f"data.cache_dir={corpus / 'cache'}"]
    assert script.main([*command, *settings]) == 0, capsys.readouterr().err
    data = tmp_path / "runs" / "data"
    back = [json.loads(line) for line in (data / "both" / "back.jsonl").open()]
    everything = [json.loads(line) for line in (data / "all" / "all.jsonl").open()]
    assert [row["de"] for row in back] == [row["de"] for row in everything[100:]]
    assert all(row["en"] == row["de"].upper() for row in back)
    assert (data / "both" / "real.jsonl").read_text() == (data / "real" / "real.jsonl").read_text()
    reverse = next(a for _, a in script.programs if "data.src=de" in a)  # type: ignore[attr-defined]
    assert "data.tgt=en" in reverse
    assert any("reverse" in word for word in reverse)
    report = read_json(tmp_path / "out.json")
    assert [row["name"] for row in report["rows"]] == ["real", "both", "all"]
    assert report["pairs"] == 100
    rows = table_rows(capsys.readouterr().out)
    assert (rows["real"][0], rows["both"][0]) == ("100", str(len(everything)))

    done = len(script.programs)  # type: ignore[attr-defined]
    assert script.main([*command, *settings]) == 0
    assert len(script.programs) == done  # type: ignore[attr-defined]
    assert script.main([*command, "--seed", "2", *settings]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'runs'} was made with {{" in error
    assert error.endswith("}: name another --folder\n")
    assert script.main([*command, "--pairs", "400", *settings]) == 2
    assert "leave some as text" in capsys.readouterr().err
