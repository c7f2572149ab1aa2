"""mt.export: what its gate accepts and refuses, and each export run by its own engine."""

import copy
import importlib
import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Done, babbler

from mt.data import phrasebook
from mt.data.tokenizer import Tokenizer
from mt.export import __main__, common, parity
from mt.inference.beam_search import search
from mt.inference.confidence import Calibration, calibration_of
from mt.inference.linear import saturates
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.decoder_only import DecoderOnly
from mt.model.marian import MarianTransformer
from mt.model.transformer import Transformer
from mt.utils import line_io

for name in itertools.chain.from_iterable(__main__.FORMATS.values()):
    pytest.importorskip(name)
from mt.export.ctranslate2 import Engine  # noqa: E402

LINES = [source for source, _ in itertools.islice(phrasebook.load("test"), 40)]
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


@pytest.fixture(scope="module")
def model(bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    checkpoint.save(folder, babbler(bpe.vocab_size), bpe, 40, ["en", "de"], {})
    return folder


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    return Translator.load(model, "cpu")


@pytest.fixture(autouse=True)
def _few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "NUM_SENTENCES", 30)


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_TRACEBACK", raising=False)

    def call(*arguments: str | Path) -> Done:
        try:
            code = __main__.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return call


Run = Callable[..., Done]


def written(run: Run, model: Path, form: str, precision: str = "float32") -> Path:
    done = run("--to", form, "--precision", precision, model, "out")
    assert done.code == 0, done.err
    return Path("out")


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


# The gate


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface"])
def test_another_function_is_not_let_through(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    engine = __main__.engine_of(form)
    write = engine.write

    def wrong(loaded: Any, folder: Path, precision: str) -> None:
        loaded = copy.deepcopy(loaded)
        with torch.no_grad():
            loaded.model.decoder[0].feed_forward.W_1.bias += 0.5
        write(loaded, folder, precision)

    monkeypatch.setattr(engine, "write", wrong)
    done = run("--to", form, model, "out")
    assert done.code == 2
    [line] = done.err.splitlines()
    assert "of 30 sentences are translated differently" in line
    assert "first in sentence 1, " in line
    assert "Traceback" not in done.err
    assert list(Path().iterdir()) == []


class Fake:
    """An engine that is our own but for what a test changes."""

    computes_in = "float32"

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.pieces: Callable[[int, list[int]], list[int]] = lambda i, ids: ids
        self.output: Callable[[int, list[int]], list[int]] = lambda i, ids: ids
        self.count = itertools.count()

    def encode(self, sentences: list[str]) -> list[list[int]]:
        rows = self.translator.tokenizer.encode(list(sentences))
        return [self.pieces(i, ids) for i, ids in enumerate(rows)]

    def decode(self, ids: list[list[int]]) -> list[str]:
        return self.translator.tokenizer.decode(ids)

    def greedy(self, sources: list[list[int]]) -> list[list[int]]:
        results = self.translator.search(sources, SearchOptions(beam_size=1), [[] for _ in sources])
        return [self.output(next(self.count), hypotheses[0].ids) for hypotheses in results]


def test_a_model_of_no_use_is_told(run: Run, bpe: Tokenizer) -> None:
    """Its export may be right all the same: nobody would see it in the number of equal outputs."""
    silent = babbler(bpe.vocab_size)
    with torch.no_grad():
        silent.decoder[-1].add_norm[-1].norm.weight.zero_()
        silent.decoder[-1].add_norm[-1].norm.bias.fill_(1)
        silent.embedding.weight[3] = 10  # eos
    checkpoint.save("silent", silent, bpe, 40, ["en", "de"], {})
    done = run("--to", "ctranslate2", "silent", "out")
    assert done.code == 0
    expected = "30 of 30 greedy translations are ours (1 different ones, the same for every"
    assert expected in done.out
    assert json.loads(Path("out/parity.json").read_text())["different outputs"] == 1


def test_the_first_difference_is_named(translator: Translator) -> None:
    fake = Fake(translator)
    assert parity.check(translator, fake, LINES, LINES, exact=True)["equal greedy outputs"] == 40
    fake = Fake(translator)
    fake.output = lambda i, ids: ids if i < 27 else [*ids[:2], 7, *ids[3:]]
    [result] = translator.translate([LINES[27]], beam_size=1)
    pieces = result.parts[0].output
    with pytest.raises(parity.Difference) as error:
        parity.check(translator, fake, LINES, LINES, exact=True)
    assert f"first in sentence 28, {LINES[27]!r}, token 3, " in str(error.value)
    assert f"after {' '.join(pieces[:2])!r}" in str(error.value)
    assert f"ours {pieces[2]!r}" in str(error.value)


def test_an_output_that_ends_early_is_a_difference(translator: Translator) -> None:
    fake = Fake(translator)
    fake.output = lambda i, ids: ids[:-1] if i == 4 else ids
    with pytest.raises(parity.Difference, match=r"1 of 40 .* sentence 5, .*'</s>', ours"):
        parity.check(translator, fake, LINES, LINES, exact=True)


def test_another_tokenizer_is_a_difference(translator: Translator) -> None:
    fake = Fake(translator)
    fake.pieces = lambda i, ids: ids[::-1] if i == 2 else ids
    with pytest.raises(parity.Difference, match=r"sentence 3, .*: its tokenizer gives"):
        parity.check(translator, fake, LINES, LINES, exact=False)


def test_a_reduced_precision_is_held_to_bleu(translator: Translator) -> None:
    outputs = [result.text for result in translator.translate(LINES, beam_size=1)]
    fake = Fake(translator)
    fake.output = lambda i, ids: [*ids[:-1], 7] if i == 4 else ids  # of 40 babbled lines
    result = parity.check(translator, fake, LINES, LINES[::-1], exact=False)
    assert result["equal greedy outputs"] == 39
    assert result["BLEU of one against the other"] < 100
    fake = Fake(translator)
    fake.output = lambda i, ids: [7] if i % 2 else ids
    with pytest.raises(parity.Difference, match=r"20 of 40 .* BLEU \d+\.\d\d, ours 100.00"):
        parity.check(translator, fake, LINES, outputs, exact=False)


def test_two_that_are_equally_bad_are_not_alike(translator: Translator) -> None:
    """BLEU is near 0 for any babble: it alone would let all through."""
    fake = Fake(translator)
    fake.output = lambda i, ids: ids[::-1]
    with pytest.raises(parity.Difference, match="of one against the other"):
        parity.check(translator, fake, LINES, LINES, exact=False)


def test_another_way_back_to_text_is_a_difference(translator: Translator) -> None:
    fake = Fake(translator)
    fake.decode = lambda ids: [  # type: ignore[method-assign]
        text.replace("e", "a", 1) for text in translator.tokenizer.decode(ids)
    ]
    with pytest.raises(parity.Difference, match=r"by its tokenizer, .* by ours"):
        parity.check(translator, fake, LINES, LINES, exact=True)


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


# mt.translate --engine ctranslate2


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ct2")
    __main__.engine_of("ctranslate2").write(checkpoint.load(model), folder, "float32")
    return folder


@pytest.fixture
def ct2(run_translate: Run, exported: Path) -> Run:
    def call(*arguments: str | Path, stdin: bytes = b"") -> Done:
        fixed = ("--engine", "ctranslate2", "--device", "cpu", "--model", exported)
        return run_translate(*fixed, *arguments, stdin=stdin)

    return call


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--min-length 40",
        "--min-length 100",
        "--max-length 3",
        "--no-repeat-ngram 2",
        "--prefix Der",
        "--split",
        "--batch-size 7 --workers 2",
    ],
)
def test_greedy_is_ours_with_any_option(
    ct2: Run, run_translate: Run, model: Path, options: str
) -> None:
    lines = "".join(f"{line}\n" for line in [*LINES, "", f"{LINES[0]} {LINES[1]}"]).encode()
    settings = ("--beam-size", "1", *options.split())
    expected = run_translate("--model", model, "--device", "cpu", *settings, stdin=lines)
    assert expected.code == 0
    assert ct2(*settings, stdin=lines) == expected


def test_n_best_and_json(ct2: Run) -> None:
    done = ct2("--n-best", "2", *LINES[:3])
    assert [line.split("\t")[0] for line in done.out.splitlines()] == list("112233")
    [row] = [json.loads(line) for line in ct2("--json", LINES[0]).out.splitlines()]
    assert row.keys() == {"source", "translation", "score"}
    assert row["score"] < 0


def test_a_line_too_long_is_cut(ct2: Run) -> None:
    done = ct2("--no-split", " ".join(LINES[:6]))
    assert len(done.out.splitlines()) == 1
    assert "translated in" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--samples 2 hello", "--samples is not for --engine ctranslate2"),
        ("--mbr hello", "--mbr is not for"),
        ("--json --tokens hello", "--tokens is not for"),
        ("--json --attention hello", "--attention is not for"),
        ("--score file", "--score is not for"),
        ("--model other hello", "wants one --model"),
        ("--device nowhere hello", "device 'nowhere' cannot be used"),
        ("--workers 0 hello", "workers=0: must be a whole number from 1"),
        ("--max-length 600 --min-length 600 hello", "No position encodings"),
    ],
)
def test_what_this_engine_has_not_is_refused(ct2: Run, arguments: str, message: str) -> None:
    done = ct2(*arguments.split())
    assert done.code == 2
    assert message in done.err.splitlines()[-1]


def test_a_folder_of_the_other_kind_is_named(
    run_translate: Run, model: Path, exported: Path
) -> None:
    done = run_translate("--model", exported, "hello")
    assert done.code == 2
    assert "mt.translate takes it with --engine ctranslate2" in done.err
    done = run_translate("--engine", "ctranslate2", "--model", model, "hello")
    assert done.code == 2
    assert "not written by mt.export --to ctranslate2, model.bin is missing" in done.err
    alone = run_translate("--engine", "ctranslate2", "hello")
    assert (alone.code, "wants one --model" in alone.err) == (2, True)


def cut(content: bytes) -> bytes:
    return content[:20]


def flipped(content: bytes) -> bytes:
    """One bit of a weight is another."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def renamed(content: bytes) -> bytes:
    """A weight is not found."""
    return content.replace(b"encoder/layer_0", b"encoder/layer_9")


def about(**values: Any) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | values).encode()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.bin", cut, "model.bin: damaged"),
        ("model.bin", flipped, "model.bin: damaged"),
        ("model.bin", renamed, "model.bin: damaged"),
        ("tokenizer.model", cut, "tokenizer.model"),
        ("mt.json", cut, "mt.json: not JSON"),
        ("mt.json", lambda _: b"[" * 100_000, "mt.json: not JSON: nested too deeply"),
        ("mt.json", lambda _: b"{}", "mt.json: max_length=None: must be"),
        ("mt.json", lambda _: b"[]", "mt.json: not a JSON object"),
        ("mt.json", about(max_length=float("inf")), "max_length=inf: must be"),
        ("mt.json", about(max_length=10**12), "max_length=1000000000000: must be"),
        ("mt.json", about(search={"beam_size": 10_000}), "beam_size=10000: must be"),
    ],
)
@pytest.mark.parametrize("hashes", [True, False])  # a folder that is older, or made to do harm
def test_a_damaged_folder_is_named(
    run_translate: Run,
    exported: Path,
    tmp_path: Path,
    name: str,
    damage: Callable[[bytes], bytes],
    message: str,
    hashes: bool,
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "damaged"))
    if not hashes:
        (folder / "mt.json").write_bytes(about(sha256=None)((folder / "mt.json").read_bytes()))
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    done = run_translate("--engine", "ctranslate2", "--model", folder, "hello")
    if damage is flipped and not hashes:
        return  # it may translate
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert str(folder) in done.err
    if hashes:
        assert re.search(message, done.err)


@pytest.mark.parametrize("name", ["mt.json", "tokenizer.model", "model.bin"])
def test_a_pipe_in_a_folder_is_not_waited_for(
    run_translate: Run, exported: Path, tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "damaged"))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    done = run_translate("--engine", "ctranslate2", "--model", folder, "hello")
    assert done.code == 2
    assert f"{name} is missing" in done.err


def test_a_damaged_onnx_folder_is_named(tmp_path: Path, model: Path) -> None:
    from mt.export import onnx

    with pytest.raises(FileNotFoundError, match=r"encoder\.onnx is missing"):
        onnx.Engine(tmp_path)
    for name in onnx.FILES:
        (tmp_path / name).write_bytes(b"{}")
    shutil.copy(model / "tokenizer.model", tmp_path)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        onnx.Engine(tmp_path)


def test_an_interrupted_output_goes_on_with_its_own_engine(
    ct2: Run, run_translate: Run, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    fixed = ("--input", "in", "--output", "out", "--beam-size", "1")
    whole = run_translate("--model", model, "--device", "cpu", *fixed)
    assert whole.code == 0
    expected = (tmp_path / "out").read_text()
    (tmp_path / "out").unlink()
    monkeypatch.setattr(line_io, "BLOCK", 10)
    calls = itertools.count()
    original_search = Engine.search

    def stopped(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return original_search(*arguments)

    monkeypatch.setattr(Engine, "search", stopped)
    assert ct2(*fixed).code == 130
    monkeypatch.setattr(Engine, "search", original_search)
    other = run_translate("--model", model, "--device", "cpu", *fixed, "--resume")
    assert other.code == 2
    assert ct2(*fixed, "--resume") == Done(0, "", "")
    assert (tmp_path / "out").read_text() == expected


CALIBRATION = Calibration(-1.5, 3.0, -0.5, 0.4)


@pytest.fixture(scope="module")
def all_forms(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each format, of a model with an alpha and a calibration of its own."""
    folder = tmp_path_factory.mktemp("all_forms")
    shutil.copytree(model, folder / "own")
    file = folder / "own" / "config.json"
    own = {"search": {"alpha": 1.2}, "confidence": asdict(CALIBRATION)}
    file.write_text(json.dumps(json.loads(file.read_text()) | own))
    loaded = checkpoint.load(folder / "own")
    for form in __main__.FORMATS:
        if form == "onnx" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
            pytest.skip("this PyTorch cannot write ONNX")
        (folder / form).mkdir()
        __main__.engine_of(form).write(loaded, folder / form, "float32")
    return folder


def test_it_searches_as_the_model_says(all_forms: Path) -> None:
    for form in ("ctranslate2", "onnx"):
        options = __main__.engine_of(form).Engine(all_forms / form).options
        assert (options.beam_size, options.alpha) == (4, 1.2)
    config = json.loads((all_forms / "huggingface" / "generation_config.json").read_text())
    assert (config["num_beams"], config["length_penalty"]) == (4, pytest.approx(0.9))


def test_it_is_as_sure_as_the_model(all_forms: Path) -> None:
    for form in ("own", "ctranslate2", "onnx"):
        file = "mt.json" if form == "ctranslate2" else "config.json"
        config = json.loads((all_forms / form / file).read_text())
        assert calibration_of(config["confidence"]) == CALIBRATION


def test_no_file_names_a_place_of_this_machine(all_forms: Path) -> None:
    """Torch writes stack traces and module names beside the nodes of an ONNX file."""
    places = {str(Path(common.__file__).parents[2]), str(Path.home()), str(all_forms)}
    for file in (file for form in __main__.FORMATS for file in (all_forms / form).iterdir()):
        content = file.read_bytes()
        for word in (*places, "stack_trace", "site-packages", "mt.export"):
            assert word.encode() not in content, (file.name, word)
        if file.suffix == ".onnx":
            onnx = importlib.import_module("onnx")
            onnx.checker.check_model(file, full_check=True)
            nodes = onnx.load(file).graph.node
            assert nodes
            assert not any(node.metadata_props or node.doc_string for node in nodes)


def test_length_penalties_grow_alike_at_typical_lengths() -> None:
    alpha, n = 1.2, common.TYPICAL_LENGTH
    own = [alpha * math.log((5 + length) / 6) for length in (n - 0.01, n + 0.01)]
    power = common.length_exponent(alpha)
    engine = [power * math.log(length) for length in (n - 0.01, n + 0.01)]
    assert own[1] - own[0] == pytest.approx(engine[1] - engine[0], rel=1e-4)


def test_from_a_program(exported: Path, translator: Translator) -> None:
    engine = Engine(exported, workers=2)
    expected = translator.translate(LINES, beam_size=1)
    results = engine.translate(LINES, beam_size=1)
    assert [result.text for result in results] == [result.text for result in expected]
    assert all(math.isnan(result.log_prob) for result in results)
    for call in (
        lambda: engine.score(["a"], ["b"]),
        lambda: engine.translate(["a"], samples=2),
        lambda: engine.translate(["a"], attention=True),
    ):
        with pytest.raises(ValueError, match="CTranslate2"):
            call()


def test_the_card_of_an_export_says_how_it_is_loaded() -> None:
    front = "---\n# a comment\nlibrary_name: mt\n---\n"
    card = f"{front}\n# A model\n\n[`a.json`](../a.json 'b'), ![it](p.png), [paper](https://x.y)\n"
    changed = __main__.card_of_export(card, "huggingface")
    assert changed.startswith(
        front.replace(": mt", ": transformers") + "\nThis folder is an export"
    )
    assert "MarianMTModel.from_pretrained(FOLDER)`" in changed
    assert changed.endswith("card.\n\n# A model\n\n`a.json`, it, [paper](https://x.y)\n")
    assert __main__.card_of_export("A model\n", "onnx").startswith("This folder is an export")
    loaded = "This folder is an export, loaded with `mt.export.onnx.Engine(FOLDER)`.\n"
    assert __main__.card_of_export("", "onnx") == loaded  # a checkpoint has no card
