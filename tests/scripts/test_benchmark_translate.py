"""The arithmetic of the benchmarks, and what they do about toolkits that are missing or fail."""

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from script_helpers import BENCHMARKS, load_script, table_rows

from mt.model.marian import to_marian
from mt.model.transformer import Transformer


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "benchmark_translate")


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "benchmark_mixed")


def sample(engine: str, speed: float, disturbed: bool = False, beam: int = 1) -> dict[str, Any]:
    case = {"size": "small", "beam": beam, "batch": 64}
    return {"engine": engine, **case, "tokens_per_second": speed, "disturbed": disturbed}


def test_a_sample_is_disturbed_by_more_than_a_little_work_elsewhere(benchmark: ModuleType) -> None:
    disturbed = benchmark.benchmarking.disturbed
    assert not disturbed(0.15)
    assert disturbed(0.16)
    assert not disturbed(None)  # the system does not tell


def test_medians_leave_out_disturbed_samples_if_any_are_undisturbed(benchmark: ModuleType) -> None:
    speeds = [(10.0, True), (30.0, False), (40.0, False), (90.0, False)]
    typical = benchmark.reporting.typical
    mixed = typical([sample("mt-float32", *s) for s in speeds])
    assert mixed == {"median": 40.0, "least": 30.0, "most": 90.0, "samples": 3, "disturbed": 1}
    all_disturbed = typical([sample("mt-float32", s, True) for s in (10.0, 20.0)])
    expected = {"median": 15.0, "least": 10.0, "most": 20.0, "samples": 2, "disturbed": 2}
    assert all_disturbed == expected


def test_ratios_to_the_fastest_pytorch_toolkit_and_to_ctranslate2(
    benchmark: ModuleType,
) -> None:
    speeds = {"mt-float32": 300.0, "transformers": 100.0, "fairseq": 200.0}
    samples = [sample(name, speed) for name, speed in speeds.items()]
    samples += [sample("ctranslate2-float32", s) for s in (390.0, 400.0, 500.0)]
    samples += [sample("ctranslate2-int8-1x1", 900.0), sample("mt-float32", 50.0, beam=4)]
    results = benchmark.summarise(samples)
    assert [r["engine"] for r in results if r["beam"] == 1] == [
        "ctranslate2-int8-1x1",
        "ctranslate2-float32",
        "mt-float32",
        "fairseq",
        "transformers",
    ]
    keys = "to_fastest_pytorch_peer", "to_ctranslate2_float32"
    greedy, beam = ([r[key] for key in keys] for r in results if r["engine"] == "mt-float32")
    assert greedy == [1.5, 0.75]
    assert beam == [None, None]
    text = benchmark.reporting.sections(results, benchmark.title, benchmark.COLUMNS)
    assert table_rows(text.split("###")[1])["mt-float32"] == [
        "300",
        "300-300",
        "1.50",
        "0.75",
        "1",
        "0",
    ]
    assert "### small, beam 4, batch 64" in text


def test_sentences_are_the_same_for_all_and_fill_the_batches(benchmark: ModuleType) -> None:
    for batch, sizes in ((1, [1] * 8), (64, [64]), (3, [3, 3, 2])):
        work = list(benchmark.batches(8000, batch))
        assert [len(sentences) for sentences in work] == sizes
        assert work == list(benchmark.batches(8000, batch))


@pytest.mark.skipif(importlib.util.find_spec("joeynmt") is not None, reason="joeynmt is here")
def test_a_toolkit_that_is_not_installed_is_skipped_with_a_message(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    command = [sys.executable, str(BENCHMARKS / "benchmark_translate.py"), "--peers", "joeynmt"]
    command += ["--rounds", "1", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "joeynmt: skipped, joeynmt not installed\n"
    assert done.stdout == "nothing was measured\n"
    report = json.loads(output.read_text())
    assert report["skipped"] == {"joeynmt": "joeynmt not installed"}
    assert report["machine"]["cores"] > 0


def test_a_worker_that_fails_leaves_its_lines_and_the_last_of_its_error(
    benchmark: ModuleType,
) -> None:
    code = """print('words'); print('{"tokens": 1}'); raise ValueError("no such thing")"""
    run_worker = benchmark.benchmarking.run_worker
    outcome = run_worker([sys.executable, "-c", code], 1)
    assert outcome == ([{"tokens": 1}], "ValueError: no such thing")
    records, error = run_worker(["/no/such/python"], 1)
    assert not records
    assert error == "No such file or directory: python"


def test_a_worker_that_hangs_leaves_its_lines(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark.benchmarking, "TIMEOUT", 0.5)
    code = """print('{"tokens": 1}', flush=True); import time; time.sleep(60)"""
    outcome = benchmark.benchmarking.run_worker([sys.executable, "-c", code], 1)
    assert outcome == ([{"tokens": 1}], "not done after 0.5 seconds")


def test_the_case_that_failed_is_not_tried_again_and_others_go_on(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def worker(
        command: Sequence[str], threads: int, variables: None
    ) -> tuple[list[dict[str, Any]], str]:
        name = command[command.index("--worker") + 1]
        cases = json.loads(command[command.index("--cases") + 1])
        started.append((name, cases))
        if name == "sockeye":
            return [], "ImportError: broken"
        beams = [beam for _, beam, _ in cases]
        good = [beam for beam in beams if name != "fairseq" or beam < 4]
        samples = [{**sample(name, 5.0, beam=beam), "tokens": 5} for beam in good]
        return samples, "KilledError" if len(good) < len(beams) else ""

    monkeypatch.setattr(benchmark.benchmarking, "run_worker", worker)
    args = benchmark.parse(["--sizes", "small", "--batches", "64", "--rounds", "2"])
    rounds = benchmark.measure(args, ["transformers", "fairseq", "sockeye"], "scratch")
    both = [["small", 1, 64], ["small", 4, 64]]
    first = [("transformers", both), ("fairseq", both), ("sockeye", both)]
    assert started == [*first, ("transformers", both), ("fairseq", both[:1])]
    assert [e["error"] for e in rounds.errors] == ["KilledError", "ImportError: broken"]
    assert len(rounds.samples) == 6


def test_the_command_line_hides_the_folders_of_interpreters(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        ["/home/me/scripts/b.py", "--python", "fairseq=/home/me/bin/python3", "/home/me/a"],
    )
    assert benchmark.reporting.command_line() == "b.py --python fairseq=python3 a"


def test_without_matplotlib_a_message_replaces_the_picture(
    benchmark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    picture = tmp_path / "speed.png"
    results = benchmark.summarise([sample("mt-float32", 1.0)])
    benchmark.reporting.draw_bars(results, benchmark.title, "tokens", str(picture))
    assert "matplotlib is not installed" in capsys.readouterr().err
    assert not picture.exists()


def test_a_file_is_compared_by_speed_and_by_translations(mixed: ModuleType) -> None:
    seconds = {"mt": 2.0, "transformers": 8.0}
    samples = [
        {**sample(name, 80 / s, beam=4), "seconds": s, "tokens": 80} for name, s in seconds.items()
    ]
    translations = {("mt", 4): ["a", "b"], ("transformers", 4): ["a", "c"]}
    first, second = results = mixed.summarise(samples, translations)
    assert (first["engine"], first["to_transformers"], first["same"]) == ("mt", 4.0, 1.0)
    assert (second["engine"], second["to_transformers"], second["same"]) == ("transformers", 1, 0.5)
    assert first["to_ctranslate2-float32"] is None
    text = mixed.reporting.sections(results, mixed.title, mixed.COLUMNS)
    assert table_rows(text)["mt"] == ["2.0", "40", "4.00", "-", "100.0%", "-", "1", "0"]


def test_marian_with_mt_s_weights_gives_mt_s_logits(mixed: ModuleType) -> None:
    pytest.importorskip("transformers")
    model = Transformer(60, N=2, d_model=32, d_ff=64, h=4).eval()
    with torch.no_grad():
        for name, w in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                w.add_(torch.randn_like(w) / 4)  # so that every weight matters
    weights, size = to_marian(model, torch.zeros(60)), mixed.Size(32, 64, 4, 2, 60)
    marian = mixed.filled_marian(weights, size, positions=20)
    src = mixed.padded([[5, 6, 7, 8], [9, 10]], mixed.EOS, mixed.PAD)
    tgt = torch.tensor([[2, 11, 12, 13], [2, 14, 0, 0]])
    with torch.inference_mode():
        logits = model(src, tgt)
    check = {"src": src, "tgt": tgt, "logits": logits}
    assert mixed.difference(marian, check) < mixed.TOLERANCE
    weights["model.decoder.layers.1.fc2.bias"][0] += 1  # the check must notice
    wrong = mixed.filled_marian(weights, size, positions=20)
    assert mixed.difference(wrong, check) > mixed.TOLERANCE
