"""Training that goes on from another model's weights (start_from)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from training import arguments, assert_same_weights, run, weights

from mt import checkpoint
from mt.marian import MarianTransformer
from mt.model import Transformer
from mt.tokenizer import Tokenizer

SHAPE = {"N": 2, "d_model": 24, "d_ff": 40, "h": 3, "P_drop": 0.3}  # not that of arguments()


@pytest.fixture
def model(tmp_path: Path, bpe: Tokenizer) -> Path:
    """A model folder, in float16 as the one that ships."""
    torch.manual_seed(3)
    folder = tmp_path / "parent"
    transformer = Transformer(vocab_size=bpe.vocab_size, **SHAPE).half()
    checkpoint.save(folder, transformer, bpe, 64, ["en", "de"], {})
    return folder


def begin(corpus: Path, run_dir: Path, model: Path, **changes: Any) -> list[str]:
    values = {"start_from": model, "tokenizer.path": "null", "data.workers": 0} | changes
    return arguments(corpus, run_dir, **values)


def test_a_run_begins_with_the_weights_shape_and_pieces_of_a_model(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    still = {"trainer.max_steps": 1, "training.lr_factor": 1e-9, "model.P_drop": 0.05}
    assert run(begin(corpus, tmp_path / "run", model, **still), monkeypatch) == 0
    assert str(model) in capsys.readouterr().out

    parent, child = checkpoint.load(model), checkpoint.load(tmp_path / "run" / "model")
    for name, w in parent.model.state_dict().items():
        torch.testing.assert_close(child.model.state_dict()[name], w, atol=1e-6, rtol=0)
    assert child.model.config == parent.model.config | {"P_drop": 0.05}
    assert child.tokenizer.proto == parent.tokenizer.proto
    expected = f"{model}, sha256 {checkpoint.digest(model)[:12]}"
    assert child.config["training"]["started from"] == expected
    kept = OmegaConf.load(tmp_path / "run" / "config.yaml")
    assert (kept.model.N, kept.model.d_model, kept.model.h) == (2, 24, 3)


def test_a_resumed_run_goes_on_from_its_own_weights(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = begin(corpus, tmp_path / "once", model, **{"trainer.max_steps": 6})
    assert run(once, monkeypatch) == 0
    for steps in (3, 6):
        changes = {"trainer.max_steps": steps, "ckpt": "auto"}
        assert run(begin(corpus, tmp_path / "twice", model, **changes), monkeypatch) == 0
    assert_same_weights(tmp_path / "once", tmp_path / "twice")
    first = checkpoint.load(model).model.state_dict()["embedding.weight"]
    assert not torch.equal(weights(tmp_path / "once")["model.embedding.weight"], first)


def test_a_checkpoint_and_the_model_that_ships_can_be_started_from(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(begin(corpus, tmp_path / "one", model), monkeypatch) == 0
    last = tmp_path / "one" / "checkpoints" / "last.ckpt"
    still = {"trainer.max_steps": 1, "training.lr_factor": 1e-9}
    assert run(begin(corpus, tmp_path / "two", last, **still), monkeypatch) == 0
    ours, theirs = (weights(tmp_path / name)["model.embedding.weight"] for name in ("one", "two"))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)

    assert run(begin(corpus, tmp_path / "three", Path("everyday"), **still), monkeypatch) == 0
    child, shipped = (
        checkpoint.load(path) for path in (tmp_path / "three" / "model", checkpoint.SHIPPED)
    )
    assert child.config["training"]["started from"].startswith("everyday, sha256 ")
    assert child.model.config["d_ff"] == shipped.model.config["d_ff"]
    assert child.tokenizer.proto == shipped.tokenizer.proto


def test_a_tokenizer_of_ones_own_is_refused_beside_a_model(
    corpus: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    named = begin(corpus, tmp_path / "run", model, **{"tokenizer.path": "some.model"})
    assert run(named, monkeypatch) == 2
    error = capsys.readouterr().err
    assert "tokenizer.path=some.model cannot go with start_from" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_an_imported_model_is_refused(
    corpus: Path,
    tmp_path: Path,
    bpe: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    imported = MarianTransformer(vocab_size=bpe.vocab_size, **SHAPE, activation="swish")
    folder = tmp_path / "marian"
    checkpoint.save(folder, imported, bpe, 64, ["en", "de"], {})
    assert run(begin(corpus, tmp_path / "run", folder), monkeypatch) == 2
    assert "an imported model, which cannot be trained" in capsys.readouterr().err
