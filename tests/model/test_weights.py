"""Weights that anybody may have written are checked before they are used."""

import io
import pickle
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from model_files import (
    SENTENCES,
    assert_refused,
    save,
    tiny,
    training_checkpoint,
    without_hashes,
)

from mt.data import tokenizer as tokenizers
from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizers.train(SENTENCES, 50)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return save(tmp_path / "model", tiny(), tokenizer)


@pytest.fixture
def run(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A training run's folder with its tokenizer and one checkpoint, step7.ckpt."""
    training_checkpoint(tmp_path / "run" / "checkpoints" / "step7.ckpt", tiny())
    tokenizers.save(tokenizer, tmp_path / "run" / "tokenizer.model")
    return tmp_path / "run"


def replace_weight(folder: Path, name: str, w: torch.Tensor) -> None:
    without_hashes(folder)
    file = folder / "model.safetensors"
    try:
        safetensors.torch.save({name: w})
    except KeyError as error:
        pytest.skip(f"this safetensors cannot write {error}")
    file.write_bytes(safetensors.torch.save(safetensors.torch.load_file(file) | {name: w}))


NAME = "encoder.0.feed_forward.W_1.bias"
ODD_WEIGHTS = {
    "has a value that is not a finite number": [
        torch.full([32], torch.nan),
        torch.zeros(32).index_fill(0, torch.tensor([7]), torch.inf),
        torch.zeros(32).index_fill(0, torch.tensor([31]), -torch.inf).bfloat16(),
        torch.full([32], 1e300, dtype=torch.float64),  # inf as float32
    ],
    "must be a floating-point type": [
        torch.zeros(32, dtype=dtype)
        for dtype in (torch.int8, torch.uint8, torch.int64, torch.bool, torch.complex64)
        + ((torch.float8_e4m3fn,) if hasattr(torch, "float8_e4m3fn") else ())
    ],
    "has the shape": [torch.zeros(31), torch.zeros(32, 1), torch.zeros(0), torch.tensor(0.0)],
}


@pytest.mark.parametrize(
    ("w", "message"),
    [(w, message) for message, weights in ODD_WEIGHTS.items() for w in weights],
    ids=lambda value: value if isinstance(value, str) else str(value.dtype),
)
@pytest.mark.parametrize("read", [checkpoint.load, lambda path: checkpoint.average([path])])
def test_odd_weights_are_refused(
    folder: Path, run: Path, w: torch.Tensor, message: str, read: Callable[[Path], object]
) -> None:
    """Of a model folder and of a training checkpoint, loaded or averaged."""
    replace_weight(folder, NAME, w)
    state = {f"model.{name}": weight for name, weight in tiny().state_dict().items()}
    path = run / "checkpoints" / "odd.ckpt"
    training_checkpoint(path, tiny(), state_dict=state | {f"model.{NAME}": w})
    if message == "has the shape" and read is not checkpoint.load:
        read = lambda odd: checkpoint.average([run / "checkpoints" / "step7.ckpt", odd])  # noqa: E731
        message = "not the same model"
    for odd in (folder, path):
        with pytest.raises(ValueError, match=message) as caught:
            read(odd)
        assert str(odd) in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_every_floating_type_load_as_float32(folder: Path, dtype: torch.dtype) -> None:
    replace_weight(folder, NAME, torch.full([32], 0.5, dtype=dtype))
    w = checkpoint.load(folder).model.state_dict()[NAME]
    assert w.dtype == torch.float32
    assert w.eq(0.5).all()


def test_a_weight_that_no_model_has_is_refused(folder: Path) -> None:
    replace_weight(folder, "\x1b]0;evil\x07" + "x" * 1000, torch.zeros(1))
    text = assert_refused(folder, ValueError, "which is not in a model of its configuration")
    assert len(text) < 400


@pytest.mark.parametrize(
    "w",
    [
        torch.zeros(1).expand(10**12),  # four bytes in the file
        torch.zeros(32).to_sparse(),
        torch.zeros(32, device="meta"),
        torch.nested.nested_tensor([torch.zeros(3), torch.zeros(2)]),
    ],
    ids=["expanded", "sparse", "meta", "nested"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_that_is_not_plain_is_refused(run: Path, w: torch.Tensor) -> None:
    state = {f"model.{name}": weight for name, weight in tiny().state_dict().items()}
    path = run / "checkpoints" / "odd.ckpt"
    training_checkpoint(path, tiny(), state_dict=state | {f"model.{NAME}": w})
    for read in (checkpoint.load, lambda odd: checkpoint.average([odd])):
        with pytest.raises(ValueError, match=r"odd\.ckpt: .*(not a plain tensor|not a readable)"):
            read(path)


@pytest.mark.parametrize("kept", [0, 10, 2000, -100])
def test_a_truncated_checkpoint_is_refused_with_a_reason(run: Path, kept: int) -> None:
    path = run / "checkpoints" / "step7.ckpt"
    path.write_bytes(path.read_bytes()[:kept])
    text = assert_refused(path, ValueError, "step7.ckpt: not a readable checkpoint")
    assert not text.rstrip().endswith(":")


@pytest.mark.parametrize("position", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("length", [1, 1000])
def test_a_damaged_checkpoint_is_refused(run: Path, position: float, length: int) -> None:
    """Bytes that change in the middle of its weights change neither its form nor its size."""
    path = run / "checkpoints" / "step7.ckpt"
    model = tiny(d_ff=1024)  # the weights are most of the file
    content = bytearray(training_checkpoint(path, model).read_bytes())
    start = int(len(content) * position)
    content[start : start + length] = bytes(b ^ 0x55 for b in content[start : start + length])
    path.write_bytes(content)
    assert_refused(path, ValueError, "step7.ckpt: not a readable checkpoint: it is damaged")


def tar_of_a_checkpoint(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"))


def compressed_checkpoint(path: Path) -> None:
    content = io.BytesIO()
    torch.save({"state_dict": {"model.x": torch.zeros(10**6)}}, content)
    with zipfile.ZipFile(content) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "write",
    [
        lambda path: torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path),
        lambda path: torch.save(tiny().state_dict(), path, _use_new_zipfile_serialization=False),
        lambda path: path.write_bytes(pickle.dumps({"state_dict": {}})),
        lambda path: path.write_bytes(b"PK\x03\x04 and nothing of an archive"),
        lambda path: zipfile.ZipFile(path, "w").close(),
        tar_of_a_checkpoint,
        compressed_checkpoint,
    ],
    ids=["TorchScript", "legacy", "pickle", "PK", "empty zip", "tar", "compressed"],
)
def test_other_archives_are_refused_without_advice_to_run_their_code(
    run: Path, write: Callable[[Path], None]
) -> None:
    path = run / "checkpoints" / "other.ckpt"
    write(path)
    text = assert_refused(path, ValueError, "other.ckpt: not a readable checkpoint")
    assert "weights_only" not in text


class Malicious:
    """Unpickled, it makes a file; it might do anything else."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.target), "w")


@pytest.mark.parametrize("read", [checkpoint.load, lambda path: checkpoint.average([path])])
def test_a_malicious_checkpoint_runs_nothing(run: Path, tmp_path: Path, read) -> None:
    victim = tmp_path / "victim"
    path = training_checkpoint(run / "checkpoints" / "evil.ckpt", tiny(), x=Malicious(victim))
    with pytest.raises(ValueError, match=re.escape(f"{path}: not a readable checkpoint")):
        read(path)
    assert not victim.exists()
    torch.load(path, weights_only=False)
    assert victim.exists(), "the test's pickle is harmless and proves nothing"


def test_a_bare_malicious_pickle_runs_nothing(run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    path = run / "checkpoints" / "evil.ckpt"
    path.write_bytes(pickle.dumps(Malicious(victim), protocol=2))
    assert_refused(path, ValueError, "not a readable checkpoint")
    assert not victim.exists()


def test_nobody_is_advised_to_load_a_malicious_checkpoint(run: Path, tmp_path: Path) -> None:
    """As torch's own message does: it explains how to load the file all the same."""
    path = training_checkpoint(run / "checkpoints" / "evil.ckpt", tiny(), x=Malicious(tmp_path))
    text = assert_refused(path, ValueError, "not a readable checkpoint")
    assert not re.search("can still be loaded|will likely succeed|False", text)
