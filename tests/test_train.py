"""The training program from its command line: a run directory, resume, interruption, ranks."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

from mt import checkpoint, phrasebook, tokenizer, train
from mt.translator import Translator

ROOT = Path(train.__file__).parents[1]
PAIRS = [pair for pair in phrasebook.phrases() if len(pair[0].split()) <= 6][:400]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.en, train.de, valid.en, valid.de and a tokenizer, bpe.model."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, pairs in (("train", PAIRS), ("valid", PAIRS[:20])):
        for side, suffix in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{suffix}").write_text(lines, encoding="utf-8")
    sentences = (side for pair in PAIRS for side in pair)
    tokenizer.save(tokenizer.train(sentences, 400), folder / "bpe.model")
    return folder


def arguments(corpus: Path, run_dir: Path, **changes: Any) -> list[str]:
    """A command line for seconds of training; an epoch is about seven batches."""
    values: dict[str, Any] = {
        "data": "files",
        "data.train": corpus / "train",
        "data.validation": corpus / "valid",
        "data.cache_dir": corpus / "cache",
        "tokenizer.path": corpus / "bpe.model",
        "model": "tiny",
        "model.N": 1,
        "model.d_model": 16,
        "model.d_ff": 32,
        "model.h": 2,
        "data.tokens_per_step": 800,
        "training.warmup_steps": 50,
        "search.beam_size": 1,
        "validate_every": 100,
        "checkpoint_every": 100,
        "trainer.max_steps": 12,
        "trainer.accelerator": "cpu",
        "trainer.devices": 1,
        "hydra.run.dir": run_dir,
    }
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    return [f"{name}={value}" for name, value in values.items()]


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of mt.train, run in this process."""
    monkeypatch.setattr(sys, "argv", ["mt.train", *arguments])
    GlobalHydra.instance().clear()
    with pytest.raises(SystemExit) as end:
        train.main()
    return int(end.value.code or 0)


def start(arguments: list[str], cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "mt.train", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    path = run_dir / "checkpoints" / "last.ckpt"
    return torch.load(path, weights_only=True)["state_dict"]


def assert_same_weights(one: Path, other: Path) -> None:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


def metrics(run_dir: Path, column: str) -> list[float]:
    (file,) = run_dir.glob("logs/version_*/metrics.csv")
    header, *rows = (line.split(",") for line in file.read_text().splitlines())
    values = [row[header.index(column)] for row in rows]
    return [float(value) for value in values if value]


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
        "trainer.max_steps": 280,
        "validate_every": 140,
        "checkpoint_every": 20,
        "average": 3,
    }
    assert run(arguments(corpus, run_dir, **changes), monkeypatch) == 0

    output = capsys.readouterr().out
    assert re.search(r"kept +400", output)
    assert re.search(r"validation at step 140: .* perplexity .* sacreBLEU", output)
    assert {path.name for path in run_dir.iterdir()} == {
        "checkpoints", "config.yaml", "logs", "model", "tokenizer.model", "tokenizer.vocab",
        "train.log",
    }  # fmt: skip
    assert sorted(path.name for path in (run_dir / "checkpoints").iterdir()) == [
        "best.ckpt",
        "last.ckpt",
        "step-00000240.ckpt",
        "step-00000260.ckpt",
        "step-00000280.ckpt",
    ]
    config = json.loads((run_dir / "model" / "config.json").read_text())
    assert config["training"]["steps"] == 280
    assert config["training"]["mean of checkpoints"].count("step-") == 3
    assert config["training"]["validation sacreBLEU"] > 60  # the validation pairs are trained on
    assert config["training"]["signature"].startswith("nrefs:1|case:mixed")
    first, last = metrics(run_dir, "val_ppl")[0], metrics(run_dir, "val_ppl")[-1]
    assert last < 2 < first

    translator = Translator.load(run_dir / "model")
    results = translator.translate([english for english, _ in PAIRS[:20]], beam_size=4)
    right = sum(result.text == german for result, (_, german) in zip(results, PAIRS, strict=False))
    assert right >= 10


# With batches of 270 tokens an epoch has an odd number of them: its last step accumulates one.
@pytest.mark.parametrize("max_tokens", [800, 400, 270])
@pytest.mark.parametrize("stop", [3, 7, 10])
def test_a_resumed_run_ends_bit_for_bit_like_an_undisturbed_one(
    stop: int, max_tokens: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"data.max_tokens": max_tokens, "validate_every": 5}
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    assert run(arguments(corpus, straight, **changes), monkeypatch) == 0
    short = {**changes, "trainer.max_steps": stop}
    assert run(arguments(corpus, resumed, **short), monkeypatch) == 0
    assert run([*arguments(corpus, resumed, **changes), "ckpt=last"], monkeypatch) == 0
    assert_same_weights(straight, resumed)


@pytest.mark.parametrize("name", ["step-00000003", "step-00000006", "best"])
@pytest.mark.parametrize("max_tokens", [800, 270])
def test_every_checkpoint_of_a_run_leads_to_the_same_end(
    name: str, max_tokens: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {
        "data.max_tokens": max_tokens,
        "validate_every": 4,
        "checkpoint_every": 3,
        "average": 10,
    }
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(arguments(corpus, first, **changes), monkeypatch) == 0
    shutil.copytree(first, second)
    ckpt = second / "checkpoints" / f"{name}.ckpt"
    assert run([*arguments(corpus, second, **changes), f"ckpt={ckpt}"], monkeypatch) == 0
    assert_same_weights(first, second)


@pytest.mark.parametrize("checkpoint_every", [3, 7])  # 7: the last batch of an epoch
def test_the_model_is_the_mean_of_the_checkpoints_that_its_card_names(
    checkpoint_every: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"checkpoint_every": checkpoint_every, "trainer.max_steps": 22, "average": 3}
    assert run(arguments(corpus, tmp_path / "run", **changes), monkeypatch) == 0
    last = 22 // checkpoint_every * checkpoint_every
    steps = [last - checkpoint_every, last, 22]
    names = [f"step-{step:08d}" for step in steps]
    found = sorted(path.stem for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert found == names
    loaded = checkpoint.load(tmp_path / "run" / "model")
    assert loaded.config["training"]["mean of checkpoints"] == ", ".join(names)
    paths = [tmp_path / "run" / "checkpoints" / f"{name}.ckpt" for name in names]
    mean = checkpoint.average(paths)
    assert all(torch.equal(mean[name], w) for name, w in loaded.model.state_dict().items())


def test_checkpoints_of_an_abandoned_end_are_not_averaged(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"checkpoint_every": 2, "average": 9}
    args = arguments(corpus, tmp_path / "run", **changes)
    assert run(args, monkeypatch) == 0
    ckpt = tmp_path / "run" / "checkpoints" / "step-00000004.ckpt"
    again = [*args, f"ckpt={ckpt}", "trainer.max_steps=8"]
    assert run(again, monkeypatch) == 0
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    names = ", ".join(f"step-{step:08d}" for step in (2, 4, 6, 8))
    assert config["training"]["mean of checkpoints"] == names


def test_a_new_run_does_not_mix_with_an_old_one(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run(args, monkeypatch) == 0
    before = weights(tmp_path / "run")
    assert run([*args, "seed=2"], monkeypatch) == 2
    assert "holds a run: add ckpt=last" in capsys.readouterr().err
    assert all(torch.equal(before[name], w) for name, w in weights(tmp_path / "run").items())


def test_a_resumed_run_keeps_its_own_tokenizer(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    other = tokenizer.train((german for _, german in PAIRS), 400)
    tokenizer.save(other, tmp_path / "other.model")
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=1)
    assert run(args, monkeypatch) == 0
    again = [*args, "ckpt=last", "trainer.max_steps=2"]
    assert run([*again, f"tokenizer.path={tmp_path / 'other.model'}"], monkeypatch) == 2
    assert "is not the run's own" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)  # where there is no tokenizer/ to find one in
    assert run([*again, "tokenizer.path=null"], monkeypatch) == 0
    assert not Path("tokenizer").exists()


def test_the_newest_run_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert train._run_dir(None, "outputs/new") == "outputs/new"
    assert train._run_dir("last", "outputs/new") == "outputs/new"
    for age, name in enumerate(("b", "a")):
        file = Path("outputs") / "x" / name / "checkpoints" / "last.ckpt"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        os.utime(file, (1000 + age, 1000 + age))
    assert train._run_dir("last", "outputs/new") == "outputs/x/a"
    assert train._run_dir("outputs/x/b/checkpoints/last.ckpt", "new") == str(
        tmp_path / "outputs/x/b"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("trainer.max_steps=-1", "trainer.max_steps=-1"),
        ("+trainer.accumulate_grad_batches=3", "trainer.accumulate_grad_batches is mt.train's"),
        ("+trainer.max_epochs=1", "trainer.max_epochs is mt.train's"),
        ("+trainer.limit_train_batches=3", "trainer.limit_train_batches is mt.train's"),
        ("data.limit=1 trainer.devices=2", "too few for 2 devices"),
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


def test_a_run_goes_on_in_its_own_folder(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(arguments(corpus, tmp_path / "a", trainer__max_steps=1), monkeypatch) == 0
    args = [*arguments(corpus, tmp_path / "b"), f"ckpt={tmp_path / 'a/checkpoints/last.ckpt'}"]
    assert run(args, monkeypatch) == 2
    assert "leave out hydra.run.dir" in capsys.readouterr().err


def test_a_checkpoint_outside_of_a_run_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "x.ckpt").write_bytes(b"")
    args = arguments(corpus, tmp_path / "run")
    assert run([*args, f"ckpt={tmp_path / 'x.ckpt'}"], monkeypatch) == 2
    assert "RUN/checkpoints/NAME.ckpt" in capsys.readouterr().err


def test_another_seed_gives_other_weights(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        changes = {"seed": seed, "trainer.max_steps": 2}
        run(arguments(corpus, tmp_path / str(seed), **changes), monkeypatch)
    with pytest.raises(AssertionError):
        assert_same_weights(tmp_path / "1", tmp_path / "2")


def test_a_finished_run_says_that_nothing_is_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    args = arguments(corpus, tmp_path / "run", trainer__max_steps=2)
    assert run(args, monkeypatch) == 0
    assert run([*args, "ckpt=last"], monkeypatch) == 2
    assert "trainer.max_steps=2 is a total" in capsys.readouterr().err
    assert run([*args, "ckpt=last", "model.d_ff=64", "trainer.max_steps=4"], monkeypatch) == 2
    assert "another model" in capsys.readouterr().err


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
    assert train.split_step(tokens_per_step, max_tokens, devices) == expected


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
    assert (
        "an epoch is 1 batches of at most 2,000 tokens a side on each of 2 device(s), 0" in output
    )
    assert run(arguments(corpus, one, **changes), monkeypatch) == 0
    for name, w in weights(one).items():
        torch.testing.assert_close(weights(two)[name], w, atol=1e-5, rtol=1e-3, msg=name)
    for column in ("val_loss", "val_ppl", "val_bleu"):
        assert metrics(two, column) == pytest.approx(metrics(one, column), rel=1e-4)


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


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_with_its_status(signum: int, corpus: Path, tmp_path: Path) -> None:
    changes = {"trainer.max_steps": 100_000, "checkpoint_every": 10_000}
    process = start(arguments(corpus, tmp_path / "run", **changes), tmp_path)
    deadline = time.monotonic() + 60
    assert process.stdout is not None
    for line in process.stdout:  # Progress has announced the training: its handlers are set
        if "parameters for 100,000 steps" in line or time.monotonic() > deadline:
            break
    time.sleep(1)
    process.send_signal(signum)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signum, output
    assert "resume with ckpt=last" in output
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] > 0
    assert Translator.load(tmp_path / "run" / "model").translate(["Hello."])[0].source == "Hello."
