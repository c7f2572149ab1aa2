"""Weights in 16 or 8 bits: what is lost, what a folder declares, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from model_files import SENTENCES, assert_refused, save, tiny, without_hashes
from torch import Tensor

from mt.data import tokenizer as tokenizers
from mt.data.tokenizer import Tokenizer
from mt.inference.translator import Translator
from mt.model import checkpoint, storage
from mt.model.marian import MarianTransformer
from mt.model.transformer import Transformer

MATRIX, VECTOR = "encoder.0.feed_forward.W_1.weight", "encoder.0.feed_forward.W_1.bias"  # [32, 16]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizers.train(SENTENCES, 50)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return save(tmp_path / "model", tiny(), tokenizer, "int8")


def unpacked(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return storage.unpack_int8(Path("file"), storage.pack(weights, "int8"))


# What is kept


def test_a_weight_is_off_by_half_a_step_of_its_row_at_most() -> None:
    torch.manual_seed(0)
    W = torch.randn(50, 30) * torch.logspace(-6, 3, 50)[:, None]
    result = unpacked({"W": W, "b": W[0]})
    steps = W.abs().amax(dim=1, keepdim=True) / 127
    assert ((result["W"] - W).abs() <= 0.501 * steps).all()
    assert torch.equal(result["b"], W[0])
    error = (result["W"] - W).norm(dim=1) / W.norm(dim=1)
    assert (error < 0.01).all()  # as exact for small rows as for large ones


@pytest.mark.parametrize("value", [0.0, 1.0, -3e38, 1e-38])
def test_a_row_of_one_value_is_kept(value: float) -> None:
    W = torch.full([2, 3], value)
    torch.testing.assert_close(unpacked({"W": W})["W"], W, rtol=1e-6, atol=1e-38)


def test_packing_again_changes_nothing() -> None:
    once = unpacked(dict(tiny().state_dict()))
    for name, w in unpacked(once).items():
        torch.testing.assert_close(w, once[name], rtol=1e-6, atol=0)


@pytest.mark.parametrize("kept", storage.STORAGES)
def test_a_folder_loads_as_float32(tmp_path: Path, tokenizer: Tokenizer, kept: str) -> None:
    model = tiny()
    folder = save(tmp_path / "model", model, tokenizer, kept)
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    dtypes = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}
    assert stored[MATRIX].dtype == dtypes[kept]
    config = json.loads((folder / "config.json").read_text())
    is_int8 = kept == "int8"
    assert config["format"] == ("mt-model-2" if is_int8 else "mt-model-1")
    assert config.get("storage") == ("int8" if is_int8 else None)
    loaded = checkpoint.load(folder).model.state_dict()
    averaged = checkpoint.average([folder, folder])
    assert loaded.keys() == averaged.keys() == model.state_dict().keys()
    for name, w in model.state_dict().items():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], averaged[name])
        torch.testing.assert_close(loaded[name], w, rtol=1e-3, atol=float(w.abs().max()) / 200)


def test_every_matrix_of_every_model_is_stored_in_8_bits() -> None:
    sizes = {"vocab_size": 50, "N": 2, "d_model": 16, "d_ff": 32, "h": 2}
    for model in (Transformer(**sizes, learned_positions=9), MarianTransformer("gelu", **sizes)):
        stored = storage.pack(model.state_dict(), "int8")
        matrices = {name for name, w in model.state_dict().items() if w.dim() == 2}
        assert {name for name, w in stored.items() if w.dtype == torch.int8} == matrices
        assert all(w.dim() == 1 for name, w in stored.items() if name not in matrices)


def test_a_model_of_15_million_parameters_takes_16_mb() -> None:
    with torch.device("meta"):
        model = Transformer(16_000, N=6, d_model=256, d_ff=1024, h=4)
    weights = {name: torch.empty(w.shape).normal_() for name, w in model.state_dict().items()}
    assert sum(w.numel() for w in weights.values()) > 15e6
    assert len(safetensors.torch.save(storage.pack(weights, "int8"))) < 16e6


def test_the_file_may_go_when_the_model_is_loaded(folder: Path) -> None:
    """Its weights are no view of the file."""
    model = checkpoint.load(folder).model
    before = {name: w.clone() for name, w in model.state_dict().items()}
    with (folder / "model.safetensors").open("r+b") as file:
        file.write(b"\xff" * (folder / "model.safetensors").stat().st_size)
    assert all(torch.equal(w, before[name]) for name, w in model.state_dict().items())


def test_all_that_follows_takes_it_as_any_folder(folder: Path, tmp_path: Path) -> None:
    """A folder of the same weights in 32 bits translates alike, whatever the precision."""
    loaded = checkpoint.load(folder)
    plain = save(tmp_path / "plain", loaded.model, loaded.tokenizer)
    for precision in ("float32", "int8"):
        one, other = (
            Translator.load(path, "cpu", precision).translate(SENTENCES, max_length=8)
            for path in (folder, plain)
        )
        assert [result.n_best for result in one] == [result.n_best for result in other]


# What is refused


def rewrite(folder: Path, **changes: Tensor | None) -> None:
    without_hashes(folder)
    file = folder / "model.safetensors"
    state = safetensors.torch.load_file(file) | changes
    file.write_bytes(safetensors.torch.save({n: w for n, w in state.items() if w is not None}))


def with_value(value: float) -> Tensor:
    return torch.ones(32).index_fill(0, torch.tensor([7]), value)


NUMBERS = torch.full([32, 16], 127, dtype=torch.int8)
SCALES = f"the scales of '{MATRIX}' must be"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({f"{MATRIX}.scale": with_value(value)}, f"{SCALES} finite numbers above 0")
            for value in (torch.nan, torch.inf, -torch.inf, -1.0, 0.0)
        ),
        *(
            ({f"{MATRIX}.scale": scale}, f"{SCALES} float32 [32]")
            for scale in (
                torch.ones(31), torch.ones(0), torch.tensor(1.0), torch.ones(32).half(),
                torch.full([32], torch.inf).half(), torch.ones(32).int(), torch.ones(32).double(),
            )
        ),
        ({f"{MATRIX}.scale": torch.ones(32, 1)}, ".scale' is of type float32, must be int8"),
        ({f"{MATRIX}.scale": None}, f"lacks the scales of '{MATRIX}'"),
        ({f"{MATRIX}.scale": torch.full([32], 3e38), MATRIX: NUMBERS}, "not a finite number"),
        ({MATRIX: NUMBERS.float()}, f"'{MATRIX}' is of type float32, must be int8"),
        ({MATRIX: NUMBERS.to(torch.uint8)}, "is of type uint8, must be int8"),
        ({MATRIX: NUMBERS[:, :9].contiguous()}, "has the shape [32, 9]"),
        ({MATRIX: NUMBERS[0]}, "is of type int8, must be a floating-point type"),
        ({MATRIX: NUMBERS[None]}, "is of type int8, must be a floating-point type"),
        ({MATRIX: None}, f"lacks the weight '{MATRIX}'"),
        ({VECTOR: NUMBERS[:, 0].contiguous()}, "is of type int8, must be a floating-point type"),
        ({VECTOR: with_value(torch.nan)}, "not a finite number"),
        ({f"{VECTOR}.scale": torch.ones(32)}, f"holds the weight '{VECTOR}.scale'"),
        ({"x": NUMBERS}, "lacks the scales of 'x'"),
        ({"x": NUMBERS, "x.scale": torch.ones(32)}, "holds the weight 'x', which is not in a"),
        ({"\x1b[31m": NUMBERS}, "lacks the scales of"),
    ],
)  # fmt: skip
def test_odd_numbers_and_scales_are_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    rewrite(folder, **changes)
    assert_refused(folder, ValueError, message)


@pytest.mark.parametrize(
    ("stored", "declared", "message"),
    [
        ("int8", ("mt-model-1", None), "is of type int8, must be a floating-point type"),
        ("float16", ("mt-model-2", "int8"), "is of type float16, must be int8"),
        ("int8", ("mt-model-2", None), "storage is None, must be 'int8'"),
        ("int8", ("mt-model-2", ["int8"]), "storage is ['int8'], must be 'int8'"),
        ("int8", ("mt-model-2", "int4"), "storage is 'int4', must be 'int8'"),
        ("float32", ("mt-model-1", "int8"), "storage is 'int8', must be missing"),
    ],
)
def test_a_folder_is_what_it_declares(
    tmp_path: Path, tokenizer: Tokenizer, stored: str, declared: tuple[str, Any], message: str
) -> None:
    folder = save(tmp_path / "model", tiny(), tokenizer, stored)
    config = json.loads((folder / "config.json").read_text())
    config |= dict(zip(("format", "storage"), declared, strict=True))
    (folder / "config.json").write_text(json.dumps(config))
    assert_refused(folder, ValueError, message)


def test_the_hash_is_that_of_the_file_as_stored(folder: Path) -> None:
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert_refused(folder, ValueError, "damaged, or of another model")


@pytest.mark.parametrize("kept", ["float16", "int8"])
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_weight_that_cannot_be_stored_leaves_the_older_folder(
    folder: Path, tokenizer: Tokenizer, kept: str, value: float
) -> None:
    model, before = tiny(), (folder / "config.json").read_bytes()
    with torch.no_grad():
        model.get_parameter(MATRIX)[3, 4] = value
    with pytest.raises(ValueError, match=f"{MATRIX} has a weight that is too large for {kept}"):
        save(folder, model, tokenizer, kept)
    assert (folder / "config.json").read_bytes() == before


def test_an_unknown_storage_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="storage='int4': must be one of float32, float16, int8"):
        save(tmp_path / "model", tiny(), tokenizer, "int4")
    assert list(tmp_path.iterdir()) == []
