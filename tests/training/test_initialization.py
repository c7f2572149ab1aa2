"""Training that goes on from another model's weights (init_from)."""

import itertools
import re
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from train_helpers import PAIRS, ROOT, arguments, assert_same_weights, run, weights

from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint
from mt.model.marian import MarianTransformer
from mt.model.transformer import PAPER, Transformer
from mt.training import initialization

SHAPE = {"N": 2, "d_model": 24, "d_ff": 40, "h": 3, "P_drop": 0.3}  # not that of arguments()


@pytest.fixture
def model(tmp_path: Path, bpe: Tokenizer) -> Path:
    """A model folder in float16, as the bundled one."""
    torch.manual_seed(3)
    folder = tmp_path / "pretrained"
    transformer = Transformer(vocab_size=bpe.vocab_size, **SHAPE)
    checkpoint.save(folder, transformer, bpe, 64, ["en", "de"], {}, storage="float16")
    return folder


def command(corpus: Path, run_dir: Path, model: Any, **changes: Any) -> list[str]:
    """A command line that names no shape and no tokenizer, as the model has both."""
    dropped = ("model=", "model.N=", "model.d_model=", "model.d_ff=", "model.h=", "tokenizer.path=")
    values = {"init_from": model, "data.workers": 0} | changes
    return [a for a in arguments(corpus, run_dir, **values) if not a.startswith(dropped)]


STILL = {"trainer.max_steps": 1, "training.lr_factor": 1e-9}


def known_as(model: Path) -> str:
    return f"{model}, sha256 {checkpoint.digest(model)[:12]}"


def test_a_run_begins_with_the_weights_shape_and_pieces_of_a_model(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    changes = STILL | {"model.P_drop": 0.05}
    assert run(command(corpus, tmp_path / "run", model, **changes), monkeypatch) == 0
    assert f"begins with the weights of {known_as(model)}: " in capsys.readouterr().out

    pretrained, trained = checkpoint.load(model), checkpoint.load(tmp_path / "run" / "model")
    for name, w in pretrained.model.state_dict().items():
        torch.testing.assert_close(trained.model.state_dict()[name], w, atol=1e-6, rtol=0)
    assert trained.model.config == pretrained.model.config | {"P_drop": 0.05}
    assert trained.tokenizer.proto == pretrained.tokenizer.proto
    assert trained.config["training"]["started from"] == known_as(model)
    kept = OmegaConf.load(tmp_path / "run" / "config.yaml")
    assert kept.model == SHAPE | {
        "P_drop": 0.05, "d_k": 8, "learned_positions": None, "compile": False,
        "architecture": "encoder_decoder", **PAPER,
    }  # fmt: skip


def test_a_resumed_run_does_not_need_the_pretrained_model_but_keeps_its_name(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    name = known_as(model)
    once = command(corpus, tmp_path / "once", model, **{"trainer.max_steps": 6})
    assert run(once, monkeypatch) == 0
    changes = {"trainer.max_steps": 3, "ckpt": "auto"}
    assert run(command(corpus, tmp_path / "twice", model, **changes), monkeypatch) == 0
    shutil.rmtree(model)
    changes["trainer.max_steps"] = 6
    assert run(command(corpus, tmp_path / "twice", model, **changes), monkeypatch) == 0
    assert_same_weights(tmp_path / "once", tmp_path / "twice")
    assert checkpoint.load(tmp_path / "twice" / "model").config["training"]["started from"] == name

    capsys.readouterr()
    changes["trainer.max_steps"] = 9
    for other in ("null", "everyday"):
        assert run(command(corpus, tmp_path / "twice", other, **changes), monkeypatch) == 2
        error = capsys.readouterr().err
        assert f"init_from={other}, but the run of {tmp_path / 'twice'}" in error
        assert error.endswith(f"has init_from={model}: give that again\n")


def test_the_former_name_works_and_says_so(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """On the command line and in a configuration from elsewhere; the run has the new name."""

    def former(*args: Any, **changes: Any) -> list[str]:
        return [a.replace("init_from=", "start_from=") for a in command(*args, **changes)]

    assert run(former(corpus, tmp_path / "run", model, **STILL), monkeypatch) == 0
    assert capsys.readouterr().out.count("start_from is now called init_from\n") == 1
    kept = OmegaConf.load(tmp_path / "run" / "config.yaml")
    assert kept.init_from == str(model)
    assert "start_from" not in kept

    own = tmp_path / "own.yaml"
    own.write_text(f"defaults: [train, _self_]\nstart_from: {model}\n")
    changes = {"trainer.max_steps": 2, "ckpt": "auto"}
    again = [a for a in command(corpus, tmp_path / "run", "", **changes) if "init_from" not in a]
    again = [f"--config-dir={tmp_path}", "--config-name=own", *again]
    assert run(again, monkeypatch) == 0
    assert "start_from is now called init_from" in capsys.readouterr().out

    assert run([*command(corpus, tmp_path / "x", model), "start_from=everyday"], monkeypatch) == 2
    assert "set init_from alone" in capsys.readouterr().err


def test_a_run_from_random_weights_is_not_resumed_as_another_models(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(arguments(corpus, tmp_path / "run"), monkeypatch) == 0
    assert run(command(corpus, tmp_path / "run", model, ckpt="auto"), monkeypatch) == 2
    assert "has init_from=null" in capsys.readouterr().err


def test_a_run_can_begin_with_a_checkpoint_and_with_the_bundled_model(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(command(corpus, tmp_path / "one", model), monkeypatch) == 0
    last = tmp_path / "one" / "checkpoints" / "last.ckpt"
    assert run(command(corpus, tmp_path / "two", last, **STILL), monkeypatch) == 0
    one, two = (weights(tmp_path / name)["model.embedding.weight"] for name in ("one", "two"))
    torch.testing.assert_close(one, two, atol=1e-6, rtol=0)

    assert run(command(corpus, tmp_path / "three", "everyday", **STILL), monkeypatch) == 0
    trained, bundled = (
        checkpoint.load(path) for path in (tmp_path / "three" / "model", checkpoint.BUNDLED_MODEL)
    )
    expected = known_as(checkpoint.BUNDLED_MODEL).replace(str(checkpoint.BUNDLED_MODEL), "everyday")
    assert trained.config["training"]["started from"] == expected
    assert trained.model.config["d_ff"] == bundled.model.config["d_ff"]
    assert trained.tokenizer.proto == bundled.tokenizer.proto


def test_a_mean_of_checkpoints_names_the_pretrained_model_too(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(command(corpus, tmp_path / "run", model, **STILL), monkeypatch) == 0
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    average = runpy.run_path(str(ROOT / "scripts" / "average_checkpoints.py"))["main"]
    assert average([str(last), "--output", str(tmp_path / "mean")]) == 0
    config = checkpoint.load(tmp_path / "mean").config
    assert config["training"]["started from"] == known_as(model)


@pytest.mark.parametrize(
    "override",
    ["model=big", "model.N=5", "variation=C_N2", "tokenizer.path=a.model",
     "tokenizer.vocab_size=500", "tokenizer.byte_fallback=true", "tokenizer.split_digits=false"],
)  # fmt: skip
def test_another_shape_or_tokenizer_is_refused_beside_a_pretrained_model(
    override: str,
    corpus: Path,
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    assert run([*command(corpus, tmp_path / "run", model), override], monkeypatch) == 2
    error = capsys.readouterr().err
    assert f"{override} cannot go with init_from" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_variation_that_keeps_the_shape_goes_with_a_pretrained_model(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_line = [*command(corpus, tmp_path / "run", model), "variation=D_eps_ls0"]
    assert run(command_line, monkeypatch) == 0


def test_weights_of_the_other_direction_are_warned_of(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(command(corpus, tmp_path / "same", model), monkeypatch) == 0
    assert "translates" not in (tmp_path / "same" / "train.log").read_text()
    settings = ["data.src=de", "data.tgt=en"]
    assert run([*command(corpus, tmp_path / "other", model), *settings], monkeypatch) == 0
    expected = "translates en to de, and this run learns de to en"
    assert expected in (tmp_path / "other" / "train.log").read_text()


def test_a_size_that_the_command_line_does_not_name_fits_the_text_and_is_found_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """conf/train.yaml has 37,000 pieces."""
    monkeypatch.chdir(tmp_path)

    def start(name: str, *settings: str) -> int:
        dropped = ("tokenizer.path=", "tokenizer.vocab_size=")
        command = arguments(corpus, tmp_path / name, **{"trainer.max_steps": 1})
        return run([*(a for a in command if not a.startswith(dropped)), *settings], monkeypatch)

    assert start("one") == 0
    [path] = Path("tokenizer").glob("files-37000-*.model")
    content, size = path.read_bytes(), Tokenizer.load(path).vocab_size
    out = capsys.readouterr().out
    assert f"too short for 37,000 pieces (tokenizer.vocab_size): {size:,} suit it\n" in out
    assert start("two") == 0
    out = capsys.readouterr().out
    assert "training a tokenizer" not in out
    assert f"tokenizer: {path}, {size:,} pieces\n" in out
    assert path.read_bytes() == content

    assert start("three", "tokenizer.vocab_size=37000") == 2
    error = f"tokenizer.vocab_size=37000, but {path} has {size} pieces: leave the size out, or"
    assert error in capsys.readouterr().err
    assert start("four", "tokenizer.vocab_size=36999") == 2
    error = capsys.readouterr().err
    assert "tokenizer.vocab_size=36999: too large for this training text, which supports" in error
    assert error.count("\n") == 1
    assert list(Path("tokenizer").glob("*.model")) == [path]


def config_of(tmp_path: Path, *overrides: str, **settings: Any) -> Any:
    """What ``load_or_train`` reads of a configuration, with numbers in the training text."""
    pairs = [(f"{source} {n}", f"{n} {target}") for n, (source, target) in enumerate(PAIRS, 1900)]
    reader = SimpleNamespace(pairs=lambda split: iter(pairs), identity=lambda split: [split])
    values = {"path": None, "vocab_size": 800, "byte_fallback": False, "split_digits": False}
    return SimpleNamespace(
        tokenizer=SimpleNamespace(**values | settings),
        data=SimpleNamespace(reader=reader, limit=None, cache_dir=str(tmp_path / "cache")),
        data_name="files",
        overrides=[f"tokenizer.{name}={settings[name]}" for name in settings] + list(overrides),
    )


def test_each_kind_of_tokenizer_has_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = set()
    for byte_fallback, split_digits in itertools.product((False, True), repeat=2):
        kind = {"byte_fallback": byte_fallback, "split_digits": split_digits}
        config = config_of(tmp_path, **kind)
        path = initialization.tokenizer_path(config)
        loaded = initialization.load_or_train(config, path)
        assert (loaded.byte_fallback, loaded.split_digits) == (byte_fallback, split_digits)
        assert initialization.load_or_train(config, path).proto == loaded.proto
        paths.add(path)

        for name, other in itertools.product(kind, (False, True)):
            asked = config_of(tmp_path, path=str(path), **{name: other})
            # The pieces of a text without numbers do not tell whether digits are split.
            if other == kind[name] or (name, other) == ("split_digits", False):
                initialization.load_or_train(asked, path)
                continue
            refusal = f"tokenizer.{name}={str(other).lower()}, but {path} was made otherwise: leave"
            with pytest.raises(ValueError, match=re.escape(refusal)):
                initialization.load_or_train(asked, path)
        asked.overrides = []  # a configuration file's setting gives way to the file, as a size does
        initialization.load_or_train(asked, path)
    assert len(paths) == 4


def test_a_run_with_bytes_and_digits(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["byte_fallback=true", "split_digits=true", "bpe_dropout=0.1", "vocab_size=800"]
    command = arguments(corpus, tmp_path / "run", **{"trainer.max_steps": 2, "data.noise": 0.2})
    command = [a for a in command if not a.startswith("tokenizer.path=")]
    command += [f"tokenizer.{setting}" for setting in settings]
    assert run(command, monkeypatch) == 0
    loaded = checkpoint.load(tmp_path / "run" / "model")
    assert loaded.tokenizer.byte_fallback
    assert loaded.tokenizer.split_digits
    assert loaded.model.config["vocab_size"] == 800


def test_the_learned_positions_of_the_pretrained_model_count(
    corpus: Path, tmp_path: Path, bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = tmp_path / "learned"
    transformer = Transformer(vocab_size=bpe.vocab_size, **SHAPE, learned_positions=40)
    checkpoint.save(folder, transformer, bpe, 39, ["en", "de"], {})
    assert run(command(corpus, tmp_path / "run", folder), monkeypatch) == 2
    assert "model.learned_positions=40: must be more than" in capsys.readouterr().err


def test_models_that_cannot_be_trained_are_refused(
    corpus: Path,
    tmp_path: Path,
    bpe: Tokenizer,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    imported = MarianTransformer(vocab_size=bpe.vocab_size, **SHAPE, activation="swish")
    diverged = checkpoint.load(model).model
    diverged.embedding.weight.data[3, 3] = float("nan")
    for transformer, message in (
        (imported, "an imported model"),
        (diverged, "not a finite number"),
    ):
        folder = tmp_path / "wrong"
        checkpoint.save(folder, transformer, bpe, 64, ["en", "de"], {})
        assert run(command(corpus, tmp_path / "run", folder), monkeypatch) == 2
        assert message in capsys.readouterr().err
