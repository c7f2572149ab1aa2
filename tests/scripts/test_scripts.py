"""The small scripts under scripts/, most of them run in this process."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import ENVIRONMENT
from hydra.core.global_hydra import GlobalHydra
from script_helpers import SCRIPTS

from mt.data import phrasebook
from mt.data import tokenizer as tokenizers
from mt.data.tokenizer import Tokenizer
from mt.inference.options import SearchOptions, load_search_defaults
from mt.model import checkpoint
from mt.model.transformer import Transformer


def test_average_checkpoints_writes_the_mean(
    tmp_path: Path, small_tokenizer: Tokenizer, capsys: Any
) -> None:
    main = runpy.run_path(str(SCRIPTS / "average_checkpoints.py"))["main"]
    models = [Transformer(small_tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1) for _ in "ab"]
    tokenizers.save(small_tokenizer, tmp_path / "tokenizer.model")
    paths = [tmp_path / "checkpoints" / f"step-{i}.ckpt" for i in range(2)]
    paths[0].parent.mkdir()
    for path, model in zip(paths, models, strict=True):
        content = {
            "state_dict": {f"model.{name}": w for name, w in model.state_dict().items()},
            "hyper_parameters": {
                "model": model.config,
                "max_length": 9,
                "languages": ["en", "de"],
            },
            "global_step": 1,
        }
        torch.save(content, path)
    output = tmp_path / "mean"
    assert main([*map(str, paths), "--output", str(output)]) == 0
    mean = checkpoint.load(output).model.state_dict()
    for name, w in mean.items():
        both = (models[0].state_dict()[name] + models[1].state_dict()[name]) / 2
        torch.testing.assert_close(w, both)
    assert main([*map(str, paths), "--output", str(output)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_average_checkpoints_of_models_writes_their_mean(
    tmp_path: Path, small_tokenizer: Tokenizer, bpe: Tokenizer, capsys: Any
) -> None:
    main = runpy.run_path(str(SCRIPTS / "average_checkpoints.py"))["main"]

    def folder(name: str, tokenizer: Tokenizer, languages: str = "en de", **shape: Any) -> str:
        size = {"N": 1, "d_model": 8, "d_ff": 8, "h": 1} | shape
        model = Transformer(tokenizer.vocab_size, **size)
        checkpoint.save(tmp_path / name, model, tokenizer, 9, languages.split(), {"steps": 1})
        return str(tmp_path / name)

    one = folder("one", small_tokenizer)
    # Dropout is no part of a model.
    other = folder("other", small_tokenizer, P_drop=0.3, P_attention=0.1)
    output = tmp_path / "mean"
    assert main([one, other, one, "--output", str(output)]) == 0
    mean, first, second = (checkpoint.load(path) for path in (output, one, other))
    for name, w in mean.model.state_dict().items():
        weights = (loaded.model.state_dict()[name] for loaded in (first, second))
        torch.testing.assert_close(w, sum(a * b for a, b in zip(weights, (2, 1), strict=True)) / 3)
    named = [f"{path}, sha256 {checkpoint.digest(path)[:12]}" for path in (one, other, one)]
    assert mean.config["training"] == {"mean of models": ", ".join(named)}

    for unlike, what in (
        (folder("bpe", bpe), "tokenizer"),
        (folder("heads", small_tokenizer, h=2), "shape"),  # the weights' sizes are the same
        (folder("back", small_tokenizer, "de en"), "languages"),
    ):
        assert main([one, unlike, "--output", str(tmp_path / "none")]) == 2
        assert f"{one}: not the {what} of {unlike}" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_ship_model_halves_the_weights_and_takes_a_card(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    main = runpy.run_path(str(SCRIPTS / "ship_model.py"))["main"]
    card = tmp_path / "card.md"
    output = tmp_path / "everyday"
    arguments = [str(model_folder), str(output), "--card", str(card)]
    assert main(arguments) == 2
    assert "card.md" in capsys.readouterr().err
    assert not output.exists()
    card.write_text("# A card\n")
    assert main(arguments) == 0
    assert main([str(model_folder), str(output), "--card", str(output / "README.md")]) == 0
    assert (output / "README.md").read_text() == "# A card\n"
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (model_folder, output)]
    assert sizes[1] < 0.7 * sizes[0]
    before, shipped = checkpoint.load(model_folder), checkpoint.load(output)
    training = {k: v for k, v in before.config["training"].items() if k != "command"}
    changed = {"training": training, "sha256": shipped.config["sha256"]}
    assert shipped.config == before.config | changed
    for name, w in shipped.model.state_dict().items():
        assert w.dtype == torch.float32
        torch.testing.assert_close(w, before.model.state_dict()[name], atol=1e-3, rtol=1e-3)
    assert main([*arguments, "--alpha", "-1"]) == 2
    assert "alpha" in capsys.readouterr().err
    assert main([*arguments, "--alpha", "1.2"]) == 0
    assert checkpoint.load(output).config == {**shipped.config, "search": {"alpha": 1.2}}
    assert main([str(output), str(output), "--card", str(card), "--beam-size", "5"]) == 0
    assert load_search_defaults(output) == SearchOptions(5, 1.2)
    monkeypatch.setitem(main.__globals__, "MAX_BYTES", 1000)
    assert main(arguments) == 0  # the user's own may be larger
    monkeypatch.setattr(checkpoint, "BUNDLED_MODEL", output)
    assert main(arguments) == 2
    assert "bytes in float16, more than 1,000" in capsys.readouterr().err
    assert (output / "model.safetensors").exists()


def test_ship_model_makes_a_smaller_folder_of_a_users_own(
    tmp_path: Path, small_tokenizer: Tokenizer, capsys: Any
) -> None:
    main = runpy.run_path(str(SCRIPTS / "ship_model.py"))["main"]
    own, small = tmp_path / "model", tmp_path / "small"
    torch.manual_seed(0)
    model = Transformer(small_tokenizer.vocab_size, N=1, d_model=128, d_ff=256, h=4)
    facts = {"command": "python -m mt.train", "BLEU": 27.3}
    checkpoint.save(own, model, small_tokenizer, 9, ["en", "de"], facts, "# Mine\n")
    assert main([str(own), str(small), "--storage", "int8"]) == 0
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (own, small)]
    assert sizes[1] < 0.3 * sizes[0]
    assert f"{small}: 0.6 MB of weights and tokenizer\n" == capsys.readouterr().out
    assert (small / "README.md").read_text() == "# Mine\n"
    config = checkpoint.load(small).config
    assert (config["storage"], config["training"]) == ("int8", facts)
    assert main([str(small), str(small), "--storage", "float32"]) == 0  # it can grow again
    assert "storage" not in checkpoint.load(small).config
    (own / "README.md").unlink()
    assert main([str(own), str(small)]) == 0
    assert (small / "README.md").read_text().startswith("# en → de translation model\n")


def test_ship_model_replaces_model_folders_alone(
    tmp_path: Path, model_folder: Path, capsys: Any
) -> None:
    main = runpy.run_path(str(SCRIPTS / "ship_model.py"))["main"]
    card, folder = tmp_path / "card.md", tmp_path / "papers"
    card.write_text("# A card\n")
    folder.mkdir()
    (folder / "thesis").write_text("years of work")
    for output in (folder, card):
        assert main([str(model_folder), str(output), "--card", str(card)]) == 2
        assert "exists and is no model folder: not replaced\n" in capsys.readouterr().err
    assert (folder / "thesis").read_text() == "years of work"
    assert card.read_text() == "# A card\n"


CALIBRATION = {"intercept": 0.0, "probability": 1.0, "length_ratio": -1.0, "check_below": 0.4}


def test_ship_model_does_not_replace_what_it_reads(
    tmp_path: Path, model_folder: Path, capsys: Any
) -> None:
    main = runpy.run_path(str(SCRIPTS / "ship_model.py"))["main"]
    own = shutil.copytree(model_folder, tmp_path / "own")
    checkpoint.save(
        own, checkpoint.load(own).model, checkpoint.load(own).tokenizer, 9, ["en", "de"], {}
    )
    before = (own / "model.safetensors").read_bytes()
    for kind in ("float16", "int8"):
        assert main([str(own), str(own), "--storage", kind]) == 2
        assert f"would lose digits in {kind}" in capsys.readouterr().err
    config = own / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"confidence": CALIBRATION}))
    assert main([str(own), str(own), "--storage", "float32", "--alpha", "1.2"]) == 0
    assert json.loads(config.read_text())["confidence"] == CALIBRATION
    assert (own / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("damage", ["the card is no text", "a weight is too large"])
def test_ship_model_refuses_what_would_be_no_model(
    tmp_path: Path, model_folder: Path, capsys: Any, damage: str
) -> None:
    main = runpy.run_path(str(SCRIPTS / "ship_model.py"))["main"]
    card, model = tmp_path / "card.md", tmp_path / "model"
    loaded = checkpoint.load(model_folder)
    if damage == "a weight is too large":
        loaded.model.embedding.weight.data[7, 7] = 1e6
        card.write_text("# A card\n")
    else:
        card.write_bytes(b"\xff\xfe")
    checkpoint.save(model, loaded.model, loaded.tokenizer, 9, ["en", "de"], {})
    assert main([str(model), str(tmp_path / "out"), "--card", str(card)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("card.md: not UTF-8") or "too large for float16" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state_dict": {"net.weight": torch.ones(2)}}, "holds no weights of a Transformer"),
        ({"state_dict": None}, "not a training checkpoint of this project"),
        ({"hyper_parameters": None}, "not a training checkpoint of this project"),
        ({"hyper_parameters": {"max_length": 9}}, "'model' must be an object"),
        (
            {"hyper_parameters": {"max_length": 9, "model": {"vocab_size": 110, "N": 10**6}}},
            "N=1000000: must be",
        ),
        (None, "not a model folder"),  # the folder of the checkpoints
    ],
)
def test_average_checkpoints_refuses_what_is_none(
    tmp_path: Path,
    small_tokenizer: Tokenizer,
    capsys: Any,
    change: dict[str, Any] | None,
    message: str,
) -> None:
    main = runpy.run_path(str(SCRIPTS / "average_checkpoints.py"))["main"]
    model = Transformer(small_tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1)
    tokenizers.save(small_tokenizer, tmp_path / "tokenizer.model")
    content = {
        "state_dict": {f"model.{name}": w for name, w in model.state_dict().items()},
        "hyper_parameters": {"model": model.config, "max_length": 9, "languages": None},
        "global_step": 1,
    }
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    torch.save(content, folder / "good.ckpt")
    odd = folder / "odd.ckpt"
    torch.save(content | (change or {}), odd)
    paths = [str(folder / "good.ckpt"), str(odd if change else folder)]
    for order in (paths, paths[::-1], paths[1:]):
        assert main([*order, "--output", str(tmp_path / "mean")]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"average_checkpoints: error: {paths[1]}")
        assert message in line
        assert not (tmp_path / "mean").exists()
    assert main([paths[0], "--output", str(tmp_path / "mean")]) == 0
    assert checkpoint.load(tmp_path / "mean").config["languages"] == ["en", "de"]


def test_train_tokenizer_does_not_overwrite_a_tokenizer(
    tmp_path: Path, corpus_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    arguments = [
        "data=files",
        f"data.train={corpus_folder / 'train'}",
        "tokenizer.vocab_size=100",
        "tokenizer.path=mine.model",
    ]
    monkeypatch.setattr(sys, "argv", ["train_tokenizer", *arguments])

    def run() -> int:
        GlobalHydra.instance().clear()
        try:
            runpy.run_path(str(SCRIPTS / "train_tokenizer.py"), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    assert run() == 0
    assert Tokenizer.load("mine.model").vocab_size == 100
    assert run() == 2
    assert "mine.model exists" in capsys.readouterr().err
    assert not Path("outputs").exists()


@pytest.fixture
def wmt14(tmp_path: Path) -> Path:
    """A folder in the layout of the hub's wmt/wmt14: shards of translations, three splits."""
    pairs = phrasebook.phrases()
    folder = tmp_path / "wmt14" / "de-en"
    folder.mkdir(parents=True)
    for name, part in (
        ("train-00000-of-00002", pairs[:1000]),
        ("train-00001-of-00002", pairs[1000:1500]),
        ("validation-00000-of-00001", pairs[1500:1560]),
        ("test-00000-of-00001", pairs[1560:1600]),
    ):
        rows = [{"de": german, "en": english} for english, german in part]
        pq.write_table(pa.table({"translation": rows}), folder / f"{name}.parquet")
    return folder.parent


def reproduce(cwd: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", SCRIPTS / "reproduce.sh", *arguments],
        cwd=cwd,
        env={**ENVIRONMENT, "PATH": path, "MT_CACHE": str(cwd / "cache")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.slow
def test_the_papers_experiment_from_data_to_report(wmt14: Path, tmp_path: Path) -> None:
    limits = ["--limit", "1200", "tokenizer.vocab_size=600", "trainer.max_steps=6"]
    small = ["model.d_model=16", "model.d_ff=16", "checkpoint_every=2", "average=2"]
    machine = ["trainer.accelerator=cpu", "trainer.devices=1", f"data.path={wmt14}"]
    done = reproduce(tmp_path, "base", *limits, *small, *machine)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "outputs" / "reproduce-base-1200"
    mean, model = (checkpoint.load(run / name) for name in ("average", "model"))
    assert model.config["training"]["steps"] == 6
    assert model.config["training"]["training pairs"] == 1200
    for name, w in model.model.state_dict().items():
        assert torch.equal(mean.model.state_dict()[name], w)
    report = re.sub(" +", " ", (run / "report.md").read_text(encoding="utf-8"))
    for text in (
        "The paper: 27.3, tokenised BLEU with compounds split",
        "(test): 40 sentences",
        "tokenised BLEU, compound-split",
        "greedy beam 4",
        "pairs read 1,200",
        "mean of checkpoints: step-00000004, step-00000006",
    ):
        assert text in report, text
    assert not (run / ".report.md").exists()


@pytest.mark.parametrize("arguments", [[], ["small"], ["base", "--limit"], ["big", "--limit", "x"]])
def test_reproduce_prints_its_usage(arguments: list[str], tmp_path: Path) -> None:
    done = reproduce(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: scripts/reproduce.sh base|big")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["benchmark_mixed", "benchmark_train", "benchmark_translate"])
def test_other_toolkits_interpreters_can_read_the_benchmarks(name: str) -> None:
    missing = "sys.modules.update(dict.fromkeys(('mt', 'torch', 'numpy')))"
    subprocess.run(
        [sys.executable, "-c", f"import sys; {missing}; import {name}"],
        cwd=SCRIPTS / "benchmarks",
        check=True,
    )
