"""mt.export: every format is written and proved, and what it refuses."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import babbler
from export_helpers import LINES, Run, written

from mt.data import phrasebook
from mt.data.tokenizer import Tokenizer
from mt.export import __main__, parity
from mt.inference.beam_search import search
from mt.inference.linear import saturates
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.decoder_only import DecoderOnly
from mt.model.marian import MarianTransformer
from mt.model.transformer import Transformer

pytest_plugins = ["export_helpers"]
PRECISIONS = [
    ("ctranslate2", "float32"),
    ("ctranslate2", "float16"),
    ("ctranslate2", "int8"),
    ("ctranslate2", "int8_bfloat16"),
    ("huggingface", "float32"),
    ("huggingface", "float16"),
    ("huggingface", "bfloat16"),
    pytest.param("onnx", "float32", marks=pytest.mark.slow),  # twenty seconds
]


# Every format


@pytest.mark.parametrize(("form", "precision"), PRECISIONS)
def test_an_export_is_written_and_proved(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, form: str, precision: str
) -> None:
    if precision.startswith("int8") and saturates():
        pytest.skip("CTranslate2's products of 8 bits saturate on this CPU, too much for babble")
    monkeypatch.setattr(parity, "MIN_LIKENESS", 5.0)  # babble drifts apart sooner than sense
    Path("own.en").write_text("".join(f"{line}\n" for line in LINES))
    own = ("--src", "own.en", "--ref", "own.en")
    done = run("--to", form, "--precision", precision, *own, model, "out")
    Path("own.en").unlink()
    assert (done.code, done.err) == (0, "")
    report = json.loads(Path("out/parity.json").read_text())
    exact = precision == "float32"
    number = 30 if exact else len(LINES)
    assert (report["format"], report["precision"], report["sentences"]) == (form, precision, number)
    assert report["model_sha256"] == checkpoint.digest(model)
    assert report["computed in"]
    equal = report["equal greedy outputs"]
    assert equal == number if exact else equal >= 3
    assert report["different outputs"] > 10
    assert f"out: {form}, {precision}" in done.out
    assert f"{equal} of {number}" in done.out
    card = Path("out/README.md").read_text("utf-8")
    assert "This folder is an export, loaded with " in card
    assert (model / "README.md").read_text("utf-8").splitlines()[-1] in card
    modes = {path.stat().st_mode & 0o777 for path in Path("out").rglob("*") if path.is_file()}
    assert len(modes) == 1  # whoever reads one file reads them all
    assert [path.name for path in Path().iterdir()] == ["out"]
    assert run("--to", form, model, "out").err.endswith("exists already: name another folder\n")


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface"])
def test_a_reduced_precision_is_smaller(run: Run, model: Path, form: str) -> None:
    sizes = []
    for precision in ("float32", "float16"):
        engine = __main__.engine_of(form)
        folder = Path(precision)
        folder.mkdir()
        engine.write(checkpoint.load(model), folder, precision)
        [weights] = (file for file in folder.iterdir() if file.stem == "model")
        sizes.append(weights.stat().st_size)
    assert sizes[1] < 0.6 * sizes[0]


# The command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--to ctranslate2 nowhere out", "nowhere: no such model folder"),
        ("--to onnx --precision int8 {model} out", "--precision int8: onnx is written in float32"),
        ("--to ctranslate2 --src a {model} out", "--src and --ref go together"),
        ("--to ctranslate2 --src a --ref b {model} out", "error: a: no such file or directory"),
        ("--to ctranslate2 latest out", "no model folder under outputs/"),
        ("--to tensorflow {model} out", "invalid choice: 'tensorflow'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    run: Run, model: Path, arguments: str, message: str
) -> None:
    done = run(*arguments.format(model=model).split())
    assert done.code == 2
    assert message in done.err.splitlines()[-1]
    assert not Path("out").exists()


def test_too_few_sentences_prove_nothing(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phrasebook, "load", lambda split: [("A door", "Eine Tür")])
    message = "the phrasebook: 1 sentences that are neither blank nor too long"
    assert message in run("--to", "ctranslate2", model, "out").err
    long = " ".join(LINES[:20])
    Path("a").write_text("".join(f"{line}\n" for line in [*LINES[:29], "", long]))
    Path("b").write_text("".join(f"{line}\n" for line in LINES[:31]))
    own = ("--src", "a", "--ref", "b")
    done = run("--to", "ctranslate2", *own, model, "out")
    assert done.code == 2
    assert "a: 29 sentences that are neither blank nor too long" in done.err
    Path("b").write_text("one\n")
    assert "a has 31 lines, b 1" in run("--to", "ctranslate2", *own, model, "out").err


@pytest.mark.parametrize(
    ("languages", "message"), [(["de", "en"], None), (["en", "fi"], "name sentences to compare on")]
)
def test_other_languages(
    run: Run, bpe: Tokenizer, languages: list[str], message: str | None
) -> None:
    checkpoint.save("other", babbler(bpe.vocab_size), bpe, 40, languages, {})
    done = run("--to", "ctranslate2", "other", "out")
    if message is None:
        assert "30 of 30" in done.out
    else:
        assert (done.code, message in done.err) == (2, True)


def test_what_an_engine_raises_is_told_in_a_line_and_nothing_stays(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = __main__.engine_of("ctranslate2")
    for error, code in ((IndexError("of its own"), 2), (KeyboardInterrupt(), 130)):

        def fail(*_: Any, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(engine.Engine, "greedy", fail)
        done = run("--to", "ctranslate2", model, "out")
        assert done.code == code
        assert done.err == ("mt.export: error: ctranslate2: of its own\n" if code == 2 else "")
        assert list(Path().iterdir()) == []


def test_a_missing_package_is_named(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__main__.FORMATS, "ctranslate2", ("a_package_that_is_not_there",))
    assert "pip install 'ctranslate2<" in run("--to", "ctranslate2", model, "out").err


SHAPES = {"narrow": {"d_k": 4}, "learned": {"learned_positions": 41}}


@pytest.mark.parametrize(
    ("form", "shape", "message"),
    [
        ("ctranslate2", "narrow", "d_k=4, CTranslate2's is d_model / h"),
        ("huggingface", "narrow", "d_k=4, Marian's is d_model / h"),
        ("onnx", "narrow", "d_k=4, the export's is d_model / h"),
        ("huggingface", "learned", "learned positions, Marian's are sinusoids"),
        ("ctranslate2", "learned", None),  # also after the last learned one
        pytest.param("onnx", "learned", None, marks=pytest.mark.slow),
    ],
)
def test_a_shape_of_its_own(
    run: Run, bpe: Tokenizer, form: str, shape: str, message: str | None
) -> None:
    torch.manual_seed(0)
    odd = Transformer(bpe.vocab_size, N=1, d_model=32, d_ff=64, h=4, **SHAPES[shape])
    checkpoint.save("odd", odd, bpe, 40, ["en", "de"], {})
    done = run("--to", form, "odd", "out")
    if message is None:
        assert "30 of 30" in done.out
    else:
        assert (done.code, message in done.err) == (2, True)


VARIANTS = {  # settings -> the formats that can hold them
    "norm=pre": ["ctranslate2", "onnx"],
    "activation=gelu": ["ctranslate2", "huggingface", "onnx"],
    "activation=gelu_tanh": ["ctranslate2", "huggingface", "onnx"],
    "tied_embeddings=false": ["ctranslate2", "onnx"],
    "scaled_scores=false": ["onnx"],
    "norm=pre activation=gelu tied_embeddings=false": ["ctranslate2", "onnx"],
}


@pytest.mark.parametrize(
    ("form", "variant"),
    [
        pytest.param(form, variant, marks=pytest.mark.slow if form == "onnx" else ())
        for form, variant in itertools.product(__main__.FORMATS, VARIANTS)
    ],
)
def test_a_variant_is_proved_or_refused_in_a_line(
    run: Run, bpe: Tokenizer, form: str, variant: str
) -> None:
    pairs = (setting.split("=") for setting in variant.split())
    settings = {name: False if value == "false" else value for name, value in pairs}
    checkpoint.save("own", babbler(bpe.vocab_size, **settings), bpe, 40, ["en", "de"], {})
    done = run("--to", form, "own", "out")
    if form in VARIANTS[variant]:
        assert (done.code, done.err) == (0, "")
        assert "30 of 30" in done.out
    else:
        assert done.code == 2
        assert re.search(r"error: own: \w+=\w+, \w+ cannot be told so\n\Z", done.err)
        assert not Path("out").exists()


@pytest.mark.parametrize("form", __main__.FORMATS)
def test_a_decoder_alone_is_refused(run: Run, bpe: Tokenizer, form: str) -> None:
    alone = DecoderOnly(bpe.vocab_size, N=1, d_model=16, d_ff=16, h=2)
    checkpoint.save("own", alone, bpe, 40, ["en", "de"], {})
    done = run("--to", form, "own", "out")
    assert done.code == 2
    assert "error: own: a decoder-only model, " in done.err
    assert not Path("out").exists()


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface"])
def test_an_imported_model_is_not_exported(run: Run, bpe: Tokenizer, form: str) -> None:
    imported = MarianTransformer("relu", vocab_size=300, N=1, d_model=32, d_ff=64, h=4)
    checkpoint.save("imported", imported, bpe, 40, ["en", "de"], {})
    done = run("--to", form, "imported", "out")
    assert (done.code, "imported: an imported model" in done.err) == (2, True)


# In other programs


def test_transformers_alone_translates_from_text_to_text(
    run: Run, model: Path, translator: Translator
) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = written(run, model, "huggingface")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    marian = AutoModelForSeq2SeqLM.from_pretrained(folder)
    batch = tokenizer(LINES[:10], return_tensors="pt", padding=True)
    ids = marian.generate(**batch, num_beams=1, max_new_tokens=20)
    expected = translator.translate(LINES[:10], beam_size=1, max_length=20)
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == [
        result.text for result in expected
    ]


@pytest.mark.slow
def test_our_search_runs_on_onnx(run: Run, model: Path, translator: Translator) -> None:
    from mt.export import onnx

    engine = onnx.Engine(written(run, model, "onnx"))
    src = translator.pad_sources(translator.tokenizer.encode(LINES))
    short = {"max_length": 30}  # the longer they babble, the more hangs on the last digit
    for options in (
        SearchOptions(beam_size=4, n_best=2, **short),
        SearchOptions(samples=3, seed=1, **short),
    ):
        expected, outputs = (search(model, src, options) for model in (translator.model, engine))
        equal = [
            [h.ids for h in a] == [h.ids for h in b] for a, b in zip(expected, outputs, strict=True)
        ]
        assert sum(equal) >= 34  # of 40: the last digit may choose a sample
