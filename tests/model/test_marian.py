"""Weights converted to Marian and back, with transformers' MarianMTModel as the oracle."""

import json
import math
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import PAIRS
from marian_files import marian_model, transformers

from mt import import_marian
from mt.data import tokenizer
from mt.data.batch_sampler import pad
from mt.data.special_ids import BOS, EOS
from mt.inference.incremental import InferenceModel
from mt.inference.translator import Translator
from mt.model import checkpoint, marian, marian_import
from mt.model.layers import ACTIVATIONS
from mt.model.transformer import Transformer

SOURCES = pad([[5, 6, 7, 8, EOS], [9, 10, EOS], [4, 11, 12, 13, EOS]])
TARGETS = pad([[BOS, 20, 21, 22], [BOS, 23], [BOS, 24, 25]])
LINES = [source for source, _ in PAIRS]


def assert_same(actual: torch.Tensor, expected: torch.Tensor, tgt: torch.Tensor) -> None:
    torch.testing.assert_close(actual[tgt > 0], expected[tgt > 0], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("N", "d_model", "h"), [(1, 32, 4), (3, 48, 3)])
def test_our_weights_in_marian_are_the_same_function(N: int, d_model: int, h: int) -> None:
    torch.manual_seed(1)
    model = Transformer(110, N=N, d_model=d_model, d_ff=64, h=h).eval()
    for weight in model.parameters():  # also LayerNorms, which begin as ones and zeros
        torch.nn.init.normal_(weight, std=0.3)
    bias = torch.randn(110)
    oracle = transformers.MarianMTModel(
        transformers.MarianConfig(**marian.marian_config(model, 64))
    )
    keys = oracle.load_state_dict(marian.to_marian(model, bias), strict=False)
    assert not keys.unexpected_keys
    oracle.tie_weights()
    with torch.no_grad():
        expected = oracle.eval()(
            input_ids=SOURCES, attention_mask=SOURCES.ne(0), decoder_input_ids=TARGETS
        ).logits
    actual = model(SOURCES, TARGETS).detach()
    assert_same(actual + bias, expected, TARGETS)
    assert actual[TARGETS > 0].std() > 0.5  # and not because nothing depends on anything


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_a_marian_model_of_random_weights_gives_its_logits(activation: str) -> None:
    oracle = marian_model(marian.FUNCTIONS[activation])
    config = oracle.config.to_dict()
    order = marian.order_of_ids(config, unk_id=1)
    assert order[:4] == [109, 1, 109, 0]
    model = marian.from_marian(config, oracle.state_dict(), order)
    to_marian_ids = torch.tensor(order)
    src, tgt = to_marian_ids[SOURCES], to_marian_ids[TARGETS]
    with torch.no_grad():
        expected = oracle(input_ids=src, attention_mask=SOURCES.ne(0), decoder_input_ids=tgt).logits
    assert_same(model(SOURCES, TARGETS).detach(), expected[..., to_marian_ids], TARGETS)
    decoder = InferenceModel(model)  # and a token at a time, with its cache
    state = decoder.start(SOURCES)
    for t in range(TARGETS.shape[1]):
        step = decoder.step(TARGETS[:, t : t + 1], state)[:, 0]
        alive = TARGETS[:, t] > 0
        torch.testing.assert_close(
            step[alive], expected[alive, t][:, to_marian_ids], atol=1e-4, rtol=0
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_layers": 3}, "encoder_layers and decoder_layers"),
        ({"decoder_attention_heads": 2}, "encoder_attention_heads"),
        ({"decoder_ffn_dim": 32}, "encoder_ffn_dim"),
        ({"normalize_before": True}, "pre-LN"),
        ({"scale_embedding": False}, "scale_embedding is false"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is false"),
        ({"activation_function": "tanh"}, "activation='tanh'"),
    ],
)
def test_what_is_not_our_function_is_refused(changes: dict[str, Any], message: str) -> None:
    oracle = marian_model()
    config = oracle.config.to_dict() | changes
    with pytest.raises(ValueError, match=message):
        marian.from_marian(config, oracle.state_dict(), list(range(110)))


@pytest.mark.parametrize("name", ["model.encoder.layernorm_embedding.weight", "lm_head.bias"])
def test_a_weight_of_no_use_is_not_left_out_in_silence(name: str) -> None:
    oracle = marian_model()
    weights = oracle.state_dict() | {name: torch.ones(32)}
    with pytest.raises(ValueError, match=f"weights that no Marian model has: {name}"):
        marian.from_marian(oracle.config.to_dict(), weights, list(range(110)))


# Folders


def test_an_imported_folder_translates_as_transformers_does(
    marian_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_marian.main([str(marian_folder), str(tmp_path / "model")]) == 0
    assert "parameters" in capsys.readouterr().out
    translator = Translator.load(tmp_path / "model", "cpu")
    results = translator.translate(LINES, beam_size=1, max_length=20)
    oracle = transformers.MarianMTModel.from_pretrained(marian_folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(marian_folder)
    batch = tokens(LINES, return_tensors="pt", padding=True)
    generated = oracle.generate(
        **batch, num_beams=1, do_sample=False, max_new_tokens=20, forced_eos_token_id=None
    )
    texts = tokens.batch_decode(generated, skip_special_tokens=True)
    assert [result.text for result in results] == [" ".join(text.split()) for text in texts]
    assert len(set(texts)) > 10
    assert translator.max_length == 63
    loaded = checkpoint.load(tmp_path / "model")
    assert loaded.config["languages"] == ["en", "de"]
    assert loaded.config["training"] == {"imported from": marian_folder.name}
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"- imported from: {marian_folder.name}" in card
    assert "trained" not in card


@pytest.mark.parametrize("zipped", [True, False])
def test_older_weights_are_read_and_languages_can_be_named(
    marian_folder: Path, tmp_path: Path, zipped: bool
) -> None:
    folder = tmp_path / "older"
    folder.mkdir()
    for file in marian_folder.iterdir():
        if file.name not in ("model.safetensors", "tokenizer_config.json"):
            (folder / file.name).write_bytes(file.read_bytes())
    weights = transformers.MarianMTModel.from_pretrained(marian_folder).state_dict()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    assert import_marian.main([str(folder), str(tmp_path / "b"), "--languages", "en", "fi"]) == 0
    marian_import.convert(marian_folder, tmp_path / "a")
    one, other = (checkpoint.load(tmp_path / name) for name in "ab")
    assert other.config["languages"] == ["en", "fi"]
    for name, w in one.model.state_dict().items():
        assert torch.equal(w, other.model.state_dict()[name])


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_an_imported_model_translates_in_every_precision(
    marian_folder: Path, tmp_path: Path, precision: str
) -> None:
    marian_import.convert(marian_folder, tmp_path / "model")
    exact, rough = (
        [
            result.text
            for result in Translator.load(tmp_path / "model", "cpu", kind).translate(
                LINES, max_length=5
            )
        ]
        for kind in ("float32", precision)
    )
    assert sum(a == b for a, b in zip(exact, rough, strict=True)) > len(LINES) // 2


def test_prefix_and_score_use_the_targets_pieces(marian_folder: Path, tmp_path: Path) -> None:
    marian_import.convert(marian_folder, tmp_path / "model")
    translator = Translator.load(tmp_path / "model", "cpu")
    results = translator.translate(LINES[:4], beam_size=1, max_length=12)
    scored = translator.score(LINES[:4], [result.text for result in results])
    german = translator.tokenizer.encode_target(["Der Bär öffnet"])
    assert german != translator.tokenizer.encode(["Der Bär öffnet"])
    [forced] = translator.translate(LINES[:1], prefixes=["Der Bär öffnet"], max_length=12)
    assert list(forced.parts[0].output[: len(german[0])]) == translator.tokenizer.pieces(german[0])
    assert all(len(pair.parts[0].log_probs) == len(pair.parts[0].output) + 1 for pair in scored)


def test_a_line_with_unknown_characters_is_translated(marian_folder: Path, tmp_path: Path) -> None:
    marian_import.convert(marian_folder, tmp_path / "model")
    tokens = Translator.load(tmp_path / "model", "cpu").tokenizer
    [ids] = tokens.encode(["The bear sees a 熊."])
    assert 1 in ids
    with pytest.raises(ValueError, match="cannot leave merges out"):
        tokens.sample(["The bear"], 0.1, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "broken/config.json: no such file"),
        ("config.json", "[" * 100_000, "broken/config.json: not JSON: nested too deeply"),
        (
            "config.json",
            {"encoder_layers": 10**6, "decoder_layers": 10**6},
            "layers.2.* is missing",
        ),
        ("config.json", {"d_model": 10**12}, "d_model=1000000000000: must be"),
        ("config.json", {"d_model": 2**22}, "has the shape"),
        ("config.json", {"vocab_size": 10**12}, "vocab_size=1000000000000: must be"),
        ("config.json", {"vocab_size": 2**24}, "vocab.json: .* ids of config.json are missing"),
        ("config.json", {"vocab_size": 20}, "pad_token_id=.*: must be a whole number from 0 to 19"),
        ("config.json", {"encoder_ffn_dim": 2**24, "decoder_ffn_dim": 2**24}, "has the shape"),
        ("config.json", {"encoder_layers": [2]}, r"encoder_layers=\[2\]: must be a whole number"),
        ("config.json", {"max_position_embeddings": 0}, "from 2 to"),
        ("config.json", {"max_position_embeddings": 10**9}, "from 2 to"),
        ("config.json", {"dropout": "much"}, "P_drop='much': must be a number"),
        ("config.json", {"activation_function": ["relu"]}, r"activation=\['relu'\]: must be one"),
        ("config.json", {"activation_function": "\x1b[2J"}, r"activation='\\x1b\[2J'"),
        ("config.json", "{", "not JSON"),
        ("config.json", "[]", "not a JSON object"),
        ("config.json", '{"model_type": "bart"}', "not of a Marian model"),
        ("config.json", '{"model_type": "marian"}', "vocab_size=None: must be a whole number"),
        ("tokenizer_config.json", None, "does not say its languages; .*--languages"),
        ("vocab.json", '{"a": 0}', "holds no <unk>"),
        ("vocab.json", '{"<unk>": 1}', "of the 1[0-9]+ ids of config.json are missing"),
        ("vocab.json", '{"<unk>": 500}', "holds no <unk>"),
        ("vocab.json", '{"<unk>": 1, "a": [2]}', r"vocab.json: 'a'=\[2\]: must be a whole number"),
        ("vocab.json", '{"<unk>": 1, "<unk>": 2}', "the key '<unk>' comes twice"),
        ("vocab.json", None, "vocab.json: no such file"),
        ("tokenizer_config.json", '{"source_lang": "en", "target_lang": 7}', "does not say its"),
        ("model.safetensors", None, "neither model.safetensors nor"),
        ("model.safetensors", "nothing", "damaged"),
        ("source.spm", None, "broken/source.spm: no such file"),
        ("source.spm", "nothing", "not a pair of SentencePiece models"),
    ],
)
def test_a_folder_that_is_no_marian_model_is_refused_in_a_line(
    marian_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str | dict[str, Any] | None,
    message: str,
) -> None:
    folder = copy_of(marian_folder, tmp_path)
    if isinstance(content, dict):
        content = json.dumps(json.loads((folder / name).read_text()) | content)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    assert_refused(folder, message, capsys)


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "pytorch_model.bin"])
def test_a_pipe_is_not_waited_for(
    marian_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = copy_of(marian_folder, tmp_path)
    (folder / ("model.safetensors" if name == "pytorch_model.bin" else name)).unlink()
    os.mkfifo(folder / name)
    assert_refused(folder, "not a regular file|neither model.safetensors nor", capsys)


def as_torchscript(weights: dict[str, torch.Tensor], file: Path) -> None:
    torch.jit.script(torch.nn.Linear(1, 1)).save(file)


def as_tar(weights: dict[str, torch.Tensor], file: Path) -> None:
    with tarfile.open(file, "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            archive.addfile(tarfile.TarInfo(name))


def with_code(weights: dict[str, torch.Tensor], file: Path) -> None:
    torch.save(weights | {"code": print}, file)


def with_damage(weights: dict[str, torch.Tensor], file: Path) -> None:
    torch.save(weights, file)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def not_a_dict(weights: dict[str, torch.Tensor], file: Path) -> None:
    torch.save(list(weights.values()), file)


def not_tensors(weights: dict[str, torch.Tensor], file: Path) -> None:
    torch.save(weights | {"version": 1}, file)


def of_integers(weights: dict[str, torch.Tensor], file: Path) -> None:
    torch.save({name: w.to(torch.int8) for name, w in weights.items()}, file)


def with_nan(weights: dict[str, torch.Tensor], file: Path) -> None:
    weights["final_logits_bias"][0, 3] = math.nan
    torch.save(weights, file)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    ("save", "message"),
    [
        (as_torchscript, "not a readable checkpoint"),
        (as_tar, "not a readable checkpoint"),
        (with_code, "or holds code beside its weights"),
        (with_damage, "not a readable checkpoint: it is damaged"),
        (not_a_dict, "not the weights of a model"),
        (not_tensors, "not the weights of a model"),
        (of_integers, "is of type int8, must be a floating-point type"),
        (with_nan, "'final_logits_bias' has a value that is not a finite number"),
    ],
)
def test_weights_that_nobody_should_load(
    marian_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    save: Callable[[dict[str, torch.Tensor], Path], None],
    message: str,
) -> None:
    folder = copy_of(marian_folder, tmp_path)
    (folder / "model.safetensors").unlink()
    save(transformers.MarianMTModel.from_pretrained(marian_folder).state_dict(),
         folder / "pytorch_model.bin")  # fmt: skip
    line = assert_refused(folder, message, capsys)
    assert "pytorch_model.bin" in line
    assert "weights_only" not in line


def test_a_name_of_the_hub_is_told_how_to_become_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    message = "ORG/NAME: no such folder; .* hf download ORG/NAME --local-dir FOLDER"
    assert_refused(Path("ORG/NAME"), message, capsys)


def copy_of(marian_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(marian_folder, tmp_path / "broken"))


def assert_refused(folder: Path, message: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    model = Path(f"{folder}-imported")
    assert import_marian.main([str(folder), str(model)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line
    assert len(line) < 500
    assert not model.exists()
    return line


def test_an_import_overwrites_nothing(
    marian_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_marian.main([str(marian_folder), str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_pair_of_tokenizers_survives_its_file(tmp_path: Path) -> None:
    sides = [tokenizer.train([pair[side] for pair in PAIRS], 90) for side in (0, 1)]
    spelled = [*marian_import.NAMES, *dict.fromkeys(
        piece for side in sides for piece in side.pieces(list(range(4, 90)))
    )]  # fmt: skip
    pair = tokenizer.PairTokenizer.make(sides[0].proto, sides[1].proto, spelled)
    (tmp_path / "pair.model").write_bytes(pair.proto)
    again = tokenizer.Tokenizer.load(tmp_path / "pair.model")
    assert again.proto == pair.proto
    english, german = ([pair[side] for pair in PAIRS] for side in (0, 1))
    pieces = [again.pieces(ids) for ids in again.encode(english)]
    assert pieces == [sides[0].pieces(ids) for ids in sides[0].encode(english)]
    ids = {piece: i for i, piece in enumerate(spelled)}
    rows = [[ids[piece] for piece in sides[1].pieces(row)] for row in sides[1].encode(german)]
    assert again.decode([[BOS, *row, EOS, 0] for row in rows]) == german
