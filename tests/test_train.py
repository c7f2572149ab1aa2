"""The training program from its command line: a run directory, what it learns, ranks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from train_helpers import PAIRS, arguments, assert_same_weights, metrics, run, start, weights

from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.transformer import Transformer
from mt.training import setup


def test_a_small_model_learns_end_to_end(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run_dir = tmp_path / "run"
    changes = {
        "model.d_model": 64,
        "model.d_ff": 128,
        "model.P_drop": 0,
        "training.eps_ls": 0,
        "training.warmup_steps": 60,
        "trainer.max_steps": 440,
        "validate_every": 220,
        "checkpoint_every": 20,
        "average": 3,
    }
    assert run(arguments(corpus, run_dir, **changes), monkeypatch) == 0

    output = capsys.readouterr().out
    assert re.search(r"kept +400", output)
    assert re.search(r"validation at step 220: .* perplexity .* sacreBLEU", output)
    assert {path.name for path in run_dir.iterdir()} == {
        "checkpoints", "config.yaml", "logs", "model", "tokenizer.model", "tokenizer.vocab",
        "train.log",
    }  # fmt: skip
    assert sorted(path.name for path in (run_dir / "checkpoints").iterdir()) == [
        "best.ckpt",
        "last.ckpt",
        "step-00000400.ckpt",
        "step-00000420.ckpt",
        "step-00000440.ckpt",
    ]
    config = json.loads((run_dir / "model" / "config.json").read_text())
    assert config["training"]["steps"] == 440
    assert config["training"]["mean of checkpoints"].count("step-") == 3
    assert config["training"]["validation sacreBLEU"] > 60  # the validation pairs are trained on
    assert config["training"]["signature"].startswith("nrefs:1|case:mixed")
    first, last = metrics(run_dir, "val_ppl")[0], metrics(run_dir, "val_ppl")[-1]
    assert last < min(1.5, first)

    translator = Translator.load(run_dir / "model")
    results = translator.translate([english for english, _ in PAIRS[:20]], beam_size=4)
    correct = sum(
        result.text == german for result, (_, german) in zip(results, PAIRS, strict=False)
    )
    assert correct >= 10


@pytest.mark.parametrize(("average", "warned"), [(2, True), (1, False)])
def test_a_mean_that_is_worse_than_the_last_weights_gives_a_warning(
    average: int, warned: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Half-way the model knows far less than at the end."""
    run_dir = tmp_path / "run"
    every = {"validate_every": 20, "checkpoint_every": 20, "trainer.max_steps": 40}
    changes = {**every, "average": average, "training.warmup_steps": 20}
    assert run(arguments(corpus, run_dir, **changes), monkeypatch) == 0
    output = capsys.readouterr().out
    single, mean = metrics(run_dir, "val_ppl")[-2:]
    assert (round(mean, 3) > round(single, 3)) == warned
    worse = "the mean of 2 checkpoints is worse than the weights were at the last validation ("
    worse += f"perplexity {mean:.3f}, not {single:.3f}): they were still learning. Take average=1 "
    assert (worse in output) == warned
    newest = run_dir / "checkpoints" / "step-00000040.ckpt"
    assert (f"a single checkpoint too: --model {newest}\n" in output) == warned


@pytest.mark.parametrize("checkpoint_every", [3, 7])  # 7: the last batch of an epoch
def test_the_model_is_the_mean_of_the_checkpoints_that_its_card_names(
    checkpoint_every: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"checkpoint_every": checkpoint_every, "trainer.max_steps": 22, "average": 3}
    assert run(arguments(corpus, tmp_path / "run", **changes), monkeypatch) == 0
    last = 22 // checkpoint_every * checkpoint_every
    steps = [last - checkpoint_every, last, 22]
    names = [f"step-{step:08d}" for step in steps]
    paths = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert [path.stem for path in paths] == names
    loaded = checkpoint.load(tmp_path / "run" / "model")
    assert loaded.config["training"]["mean of checkpoints"] == ", ".join(names)
    mean = checkpoint.average(paths)
    assert all(torch.equal(mean[name], w) for name, w in loaded.model.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("trainer.max_steps=-1", "trainer.max_steps=-1"),
        ("+trainer.accumulate_grad_batches=3", "trainer.accumulate_grad_batches is set by"),
        ("+trainer.max_epochs=1", "trainer.max_epochs is set by"),
        ("+trainer.limit_train_batches=3", "trainer.limit_train_batches is set by"),
        ("data.limit=1 trainer.devices=2", "too few for 2 devices"),
        ("data.validation_limit=1 trainer.devices=2", "too few for 2 devices"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    change: str,
    message: str,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    args = arguments(corpus, tmp_path / "run")
    assert run([*args, *change.split()], monkeypatch) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_from_before_the_variations_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "check_state", lambda *_: None)
    shape = {"vocab_size": 9, "N": 1, "d_model": 8, "d_ff": 8, "h": 2, "P_drop": 0.1}
    saved = {"global_step": 3, "hyper_parameters": {"model": shape}}
    config: Any = SimpleNamespace(ckpt="last", trainer={"max_steps": 5})
    modules: list[Any] = [
        SimpleNamespace(model=Transformer(**shape, d_k=d_k), languages=["en", "de"])
        for d_k in (4, 3)
    ]
    setup._check_resume(config, tmp_path / "last.ckpt", saved, modules[0])
    saved["hyper_parameters"]["languages"] = ["de", "en"]
    with pytest.raises(ValueError, match="learns de to en, not en to de"):
        setup._check_resume(config, tmp_path / "last.ckpt", saved, modules[0])
    with pytest.raises(ValueError, match="is of another model"):
        setup._check_resume(config, tmp_path / "last.ckpt", saved, modules[1])


def test_another_seed_gives_other_weights(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        changes = {"seed": seed, "trainer.max_steps": 2}
        run(arguments(corpus, tmp_path / str(seed), **changes), monkeypatch)
    with pytest.raises(AssertionError):
        assert_same_weights(tmp_path / "1", tmp_path / "2")


def test_accumulated_micro_batches_are_the_step_in_parts(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step over two batches moves the weights as one step over both at once would."""
    few = tmp_path / "few"
    for suffix in ("en", "de"):
        lines = (corpus / f"train.{suffix}").read_text(encoding="utf-8").splitlines()[:24]
        few.with_suffix(f".{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    changes = {"data.train": few, "model.P_drop": 0, "trainer.max_steps": 1}
    for name, max_tokens in (("whole", 800), ("parts", 150)):
        more = {**changes, "data.max_tokens": max_tokens, "data.tokens_per_step": 800}
        assert run(arguments(corpus, tmp_path / name, **more), monkeypatch) == 0
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("tokens_per_step", "max_tokens", "devices", "expected"),
    [
        (25_000, 6_250, 4, (1, 6_250)),
        (25_000, 25_000, 1, (1, 25_000)),
        (25_000, 6_250, 1, (4, 6_250)),
        (25_000, 4_096, 1, (7, 3_572)),
        (100, 4_096, 3, (1, 34)),
    ],
)
def test_a_step_is_split_over_devices_and_micro_batches(
    tokens_per_step: int, max_tokens: int, devices: int, expected: tuple[int, int]
) -> None:
    assert setup.split_step(tokens_per_step, max_tokens, devices) == expected


def test_two_ranks_take_the_step_of_one(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same step on one device and on two: the same weights, loss, perplexity and BLEU.

    Adam divides gradients by their size and would hide a wrong factor; a large eps shows it.
    """
    few = {"data.limit": 40, "data.validation_limit": 7, "model.P_drop": 0, "trainer.max_steps": 1}
    whole = {"data.max_tokens": 4000, "data.tokens_per_step": 4000}
    large = {"training.eps": 0.9, "training.warmup_steps": 1, **whole}
    changes = {**few, **large, "validate_every": 1, "trainer.log_every_n_steps": 1}
    one, two = tmp_path / "one", tmp_path / "two"
    process = start(arguments(corpus, two, **changes, trainer__devices=2), tmp_path)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "an epoch is 1 batches on each of 2 device(s), 0 left over, of " in output
    assert "tokens a side on average and at most 2,000; a step takes 1 of them on each\n" in output
    assert run(arguments(corpus, one, **changes), monkeypatch) == 0
    for name, w in weights(one).items():
        torch.testing.assert_close(weights(two)[name], w, atol=1e-5, rtol=1e-3, msg=name)
    for column in ("val_loss", "val_ppl", "val_bleu"):
        assert metrics(two, column) == pytest.approx(metrics(one, column), rel=1e-4)


@pytest.mark.slow
def test_two_ranks_share_one_run_directory(corpus: Path, tmp_path: Path) -> None:
    changes = {"trainer.devices": 2, "trainer.max_steps": 4, "data.validation_limit": 3}
    process = start(arguments(corpus, tmp_path / "run", **changes), tmp_path)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert output.count("run directory:") == 1
    assert output.count("validation at the end") == 1
    assert "terminate called" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert not list((tmp_path / "run").rglob("*ddp*"))
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_the_tokenizer_is_trained_when_it_is_not_there(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    args += ["tokenizer.path=null", "tokenizer.vocab_size=300"]
    assert run(args, monkeypatch) == 0
    (model,) = Path("tokenizer").glob("*.model")
    assert re.fullmatch(r"files-300-[0-9a-f]{8}\.model", model.name)
    assert model.with_suffix(".vocab").read_text(encoding="utf-8").count("\n") == 300
    assert Translator.load(tmp_path / "run" / "model").tokenizer.vocab_size == 300


@pytest.mark.parametrize(
    ("precision", "has_instructions", "warns"),
    [("bf16-mixed", False, True), ("bf16-mixed", True, False), ("32-true", False, False)],
)
def test_bfloat16_on_a_cpu_without_its_instructions_warns(
    precision: str,
    has_instructions: bool,
    warns: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(setup.log, "warning", warnings.append)
    monkeypatch.setattr(setup, "can_multiply_bfloat16", lambda: has_instructions)
    settings = {"accelerator": "cpu", "devices": 1, "max_steps": 1, "precision": precision}
    setup._warn_of_slow_training(setup.make_trainer(settings, tmp_path, []))
    assert ["32-true" in warning for warning in warnings] == [True] * warns


@pytest.mark.parametrize(("devices", "warns"), [(2, True), (1, False)])
def test_more_processes_than_cores_warn(
    devices: int, warns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(setup.log, "warning", warnings.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    settings = {"accelerator": "cpu", "devices": devices, "max_steps": 1}
    setup._warn_of_slow_training(setup.make_trainer(settings, tmp_path, []))
    matches = [warning.startswith("trainer.devices=2 processes share 1") for warning in warnings]
    assert matches == [True] * warns


def test_training_goes_on_without_a_reader_of_its_output(tmp_path: Path) -> None:
    code = (
        "from mt.training import setup; setup.set_up_logging();"
        "[setup.log.info('line %d', i) for i in range(3)];"
        "open('done', 'w').close()"
    )
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert (tmp_path / "done").exists()


def test_a_damaged_checkpoint_names_another_one(tmp_path: Path) -> None:
    for name in ("last", "step-00000002", "step-00000004"):
        (tmp_path / f"{name}.ckpt").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"ckpt=.*step-00000004\.ckpt is another one of this run"):
        setup._read_checkpoint(tmp_path / "last.ckpt")
