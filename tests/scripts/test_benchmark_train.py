"""The arithmetic of the training benchmark, and whether the steps that it measures train."""

import importlib
import importlib.metadata
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from script_helpers import load_script, table_rows


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "benchmark_train")


@pytest.fixture
def work(benchmark: ModuleType) -> ModuleType:
    return importlib.import_module("benchmark_work")


@pytest.fixture
def steps(benchmark: ModuleType) -> ModuleType:
    return importlib.import_module("benchmark_steps")


def sample(engine: str, speed: float, **changes: Any) -> dict[str, Any]:
    values = {"size": "small", "tokens_per_second": speed, "memory_mb": 500, "disturbed": False}
    return {"engine": engine, **values, "dropout_elements": 2_500_000, **changes}


def equal_pairs(length: int) -> list[tuple[list[int], list[int]]]:
    return [(list(range(10, 10 + length)), list(range(30, 30 + length)))] * 16


def test_the_work_of_a_step_is_counted_without_padding(work: ModuleType) -> None:
    batches = [[([10], [11, 12]), ([10, 11, 12], [13])], [([10], [11])]]
    counted = work.work_in(batches)
    assert counted == work.Work(2 + 4 + 2, 3 + 2 + 2, 4 + 16 + 4, 6 + 3 + 3, 6 + 8 + 4)
    assert counted.tokens == 15
    # Sources of 2 and 4 with targets of 3 and 2 fill 8 + 6 cells; the last batch has no padding.
    assert work.padding(batches) == pytest.approx(1 - 15 / 18)


def test_the_operations_of_a_step_are_those_of_its_products(work: ModuleType) -> None:
    d, f, N, V = 6, 10, 2, 50
    S, T = 3, 4  # tokens of one pair
    weights = N * S * (4 * d * d + 2 * d * f)  # the encoder
    weights += N * T * (4 * d * d + 2 * d * f) + N * (T + S) * 2 * d * d  # the decoder
    compared = sum(1 for _ in range(S) for _ in range(S)) + T * S
    compared += sum(1 for i in range(T) for j in range(T) if j <= i)
    expected = 6 * (weights + N * compared * 2 * d + T * d * V)
    pairs = [([10] * (S - 1), [11] * (T - 1))]
    assert work.step_flops(work.Size(d, f, 2, N, V), work.work_in([pairs])) == expected
    products = work.products(work.Size(d, f, 2, N, V))
    n = 7  # positions on each side; without attention, only the products with weights count
    operations = sum(k * m * count for (k, m), count in products.items())
    no_attention = work.Work(n, n, 0, 0, 0)
    assert 6 * n * operations == work.step_flops(work.Size(d, f, 2, N, V), no_attention)


def test_sentences_have_a_corpus_s_lengths_and_are_the_same_every_time(work: ModuleType) -> None:
    batches = work.draw_batches(8000, 500, 40)
    assert batches == work.draw_batches(8000, 500, 40)
    assert len(batches) == 40
    longest = [max(len(s) for side in zip(*b, strict=True) for s in side) for b in batches]
    assert all(
        len(b) * (n + 1) <= 500 or len(b) == 1 for b, n in zip(batches, longest, strict=True)
    )
    lengths = [len(src) for b in batches for src, _ in b]
    assert 20 < sum(lengths) / len(lengths) < 34
    assert all(10 <= i < 8000 for b in batches for pair in b for side in pair for i in side)


def test_ratios_and_the_share_of_the_matrix_rate(benchmark: ModuleType) -> None:
    speeds = {"mt-float32": 300.0, "fairseq-float32": 200.0, "joeynmt-float32": 100.0}
    samples = [sample(name, speed) for name, speed in speeds.items()]
    samples += [sample("mt-bfloat16", s) for s in (590.0, 600.0, 900.0)]
    samples.append(sample("transformers-bfloat16", 400.0, disturbed=True, dropout_elements=None))
    rate = {"gflops_per_second": {"float32": {"all": 60.0}}, "disturbed": False}
    disturbed = {"gflops_per_second": {"float32": {"all": 10.0}}, "disturbed": True}
    rates = benchmark.matrix_rates([rate, disturbed])
    assert rates == {"float32": {"all": 60.0}}
    assert benchmark.matrix_rates([]) == {}
    sizes = {"small": {"flops_per_token": 1e8, "matrix_rates": rates}}
    results = benchmark.summarise(samples, sizes)
    assert [r["engine"] for r in results[:3]] == [
        "mt-bfloat16", "transformers-bfloat16", "mt-float32",
    ]  # fmt: skip
    fast, reference, mt_float32 = results[:3]
    assert (fast["to_best_float32_peer"], fast["to_transformers_bfloat16"]) == (3.0, 1.5)
    assert fast["share_of_matrix_rate"] is None  # no rate of bfloat16 was measured
    ratios = mt_float32["to_best_float32_peer"], mt_float32["to_transformers_bfloat16"]
    assert ratios == (1.5, None)
    assert (mt_float32["gflops_per_second"], mt_float32["share_of_matrix_rate"]) == (30.0, 0.5)
    assert reference["disturbed"] == 1
    rows = table_rows(benchmark.reporting.sections(results, lambda _: "", benchmark.COLUMNS))
    assert rows["mt-float32"] == ["300", "300-300", "1.50", "-", "50%", "500", "2.5", "1", "0"]


@pytest.mark.parametrize("name", ["mt-float32", "nn.Transformer-float32"])
def test_an_untrained_model_s_loss_is_near_ln_v_and_falls_on_one_batch(
    benchmark: ModuleType, steps: ModuleType, work: ModuleType, name: str
) -> None:
    size, losses = work.SIZES["tiny"], []
    torch.manual_seed(0)
    batches = [equal_pairs(9)] * 40
    if name.startswith("mt-"):  # needs a warm-up that fits 40 steps
        steps.fit(steps.mt_module(size, warmup_steps=20), batches, losses.append, "cpu", "float32")
    else:
        steps.ENGINES[name].build(size, "cpu")(batches, losses.append)
    values = [float(loss) for loss in losses]
    assert len(values) == 40
    assert 0.7 * math.log(size.vocabulary) < values[0] < 1.4 * math.log(size.vocabulary)
    assert sum(values[-5:]) < sum(values[:5]) - 1


@pytest.mark.parametrize("name", ["mt-float32", "nn.Transformer-float32", "mt-bfloat16"])
def test_dropout_is_in_the_paper_s_two_places(
    benchmark: ModuleType, work: ModuleType, name: str
) -> None:
    size, batches = work.SIZES["tiny"], [equal_pairs(7)] * 4  # 128 tokens on each side, no padding
    measured = work.measure_engine(name, size, batches, 1, "cpu")
    expected = work.dropout_elements(size, work.work_in(batches[-1:]))
    assert expected == 128 * 7 * size.d_model
    if name.startswith("mt-"):  # adds rows that fill up a matrix
        assert expected <= measured["dropout_elements"] <= 1.5 * expected
    else:
        assert measured["dropout_elements"] == expected
    assert (measured["steps"], measured["tokens"]) == (2, 2 * 256)
    assert measured["memory_mb"] > 50


def test_an_engine_with_a_wrong_loss_fails(
    steps: ModuleType, work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = steps.ENGINES["fairseq-float32"]._replace(
        builder=lambda *_: steps.loop(lambda pairs: 0.1)
    )
    monkeypatch.setitem(steps.ENGINES, "fairseq-float32", wrong)
    with pytest.raises(ValueError, match=r"loss 0\.10, then 0\.10: not near 5\.30"):
        work.measure_engine("fairseq-float32", work.SIZES["tiny"], [equal_pairs(3)] * 3, 1, "cpu")


def test_rounds_are_interleaved_and_failures_are_not_tried_again(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = []

    def worker(
        command: Sequence[str], threads: int, variables: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], str]:
        name, size = (command[command.index(option) + 1] for option in ("--worker", "--sizes"))
        started.append((name, size))
        assert variables == {"MALLOC_ARENA_MAX": "1=2"}
        if name == "sockeye-float32":
            return [{"skipped": "sockeye not installed"}], ""
        if name == "fairseq-float32" and size == "base":
            return [{"versions": {"fairseq": "0"}}], "KilledError"
        if name == benchmark.RATES:
            rates = {"float32": {"all": 50.0}, "bfloat16": {"all": 90.0}}
            return [{"gflops_per_second": rates, "disturbed": False}], ""
        return [{**sample(name, 5.0), "size": size, "first_loss": 8.0}], ""

    monkeypatch.setattr(benchmark.benchmarking, "run_worker", worker)
    output = tmp_path / "train.json"
    options = ["--engines", "sockeye,mt-float32,fairseq-float32", "--rounds", "2", "--steps", "2"]
    options += ["--max-tokens", "100", "--environment", "MALLOC_ARENA_MAX=1=2"]
    assert benchmark.main([*options, "--output", str(output)]) == 0
    both = ["matrix rate", "mt-float32", "fairseq-float32"]
    first = [(name, "small") for name in [*both, "sockeye-float32"]]
    first += [(name, "base") for name in both]
    second = [(name, "small") for name in both] + [(name, "base") for name in both[:2]]
    assert started == first + second
    report = json.loads(output.read_text())
    assert report["environment"] == ["MALLOC_ARENA_MAX=1=2"]
    assert report["skipped"] == {"sockeye-float32": "sockeye not installed"}
    assert [e["error"] for e in report["errors"]] == ["KilledError"]
    assert [len(report[key]) for key in ("samples", "matrix_samples", "results")] == [6, 4, 3]
    assert report["work"]["base"]["matrix_rates"]["bfloat16"] == {"all": 90.0}


def test_a_worker_measures_an_engine_and_the_matrices(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "work.json"
    path.write_text(json.dumps([equal_pairs(4)] * 3))
    options = ["--sizes", "tiny", "--work", str(path), "--warm", "1"]
    options += ["--threads", str(torch.get_num_threads())]
    for name in ("nn.Transformer-float32", benchmark.RATES):
        assert benchmark.main([*options, "--worker", name]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["versions"]["torch"] == importlib.metadata.version("torch")
    assert lines[1]["tokens_per_second"] > 0
    assert lines[3]["rows"] == 16 * 5
    rates = lines[3]["gflops_per_second"]["float32"]
    assert {"80x32x96", "80x96x32", "96x80x32", "80x32x200", "all"} <= rates.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "huge"], "--sizes: 'huge' is none of small, base, big"),
        (["--engines", "marian"], "--engines: 'marian' is none of fairseq, "),
        (["--engines", "fairseq-float32", "--device", "cuda"], "does not run on a GPU here"),
        (["--environment", "MALLOC"], "--environment: 'MALLOC' is not of the form NAME="),
        (["--warm", "0"], "--warm: must be at least 1"),
    ],
)
def test_a_wrong_option_is_reported(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    with pytest.raises(SystemExit):
        benchmark.parse(options)
    assert message in capsys.readouterr().err


def test_a_gpu_has_its_own_sizes_batches_and_engines(benchmark: ModuleType) -> None:
    args = benchmark.parse(["--device", "cuda"])
    assert (args.sizes, args.max_tokens) == (["base", "big"], 25000)
    assert args.engines[:2] == ["mt-bfloat16", "mt-compiled-bfloat16"]
    assert "mt-compiled-bfloat16" not in benchmark.parse(["--engines", "mt"]).engines
    chosen = benchmark.parse(["--engines", "mt-compiled-bfloat16"]).engines
    assert chosen == ["mt-compiled-bfloat16"]


def test_the_time_of_a_step_goes_to_its_parts(
    work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script(monkeypatch, "profile_train")
    events, seconds = script.profile(work.SIZES["tiny"], [equal_pairs(9)] * 3, 2, "float32")
    module = sys.modules["mt.training.lightning_module"]
    assert module.smoothed_cross_entropy.__module__ == "mt.training.loss"  # is restored
    spent = script.microseconds(events, seconds)
    assert sum(spent[group] for group in script.GROUPS) == pytest.approx(seconds * 1e6)
    assert all(spent[group] > 0 for group in script.GROUPS)
    assert 0 < spent["loss over the vocabulary: products"] < spent["loss over the vocabulary"]
    # A gradient belongs to the part of its operation.
    places = [script._place(event) for event in events if event.name in script.LAYER_PRODUCTS]
    assert any(node is not None for _, node in places)
