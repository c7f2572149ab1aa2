"""What all tests share: one thread, no network, and a cache that ends with the test."""

import io
import itertools
import json
import logging
import os
import runpy
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pytest
import torch

from mt import translate
from mt.data import phrasebook
from mt.data import tokenizer as tokenizers
from mt.data.tokenizer import Tokenizer
from mt.inference.native import library as translation
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.native import library as training
from mt.model.transformer import Transformer
from mt.utils import native
from mt.utils.native import NativeLibrary

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)
pytest.register_assert_rewrite("evaluate_helpers", "export_helpers", "translate_helpers")

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}  # of a program

# A small English-German corpus: enough text for a vocabulary of VOCAB_SIZE pieces.
PAIRS = [
    (f"{subject} {verb} {thing}.", f"{subjekt} {verbum} {ding}.")
    for (subject, subjekt), (verb, verbum), (thing, ding) in itertools.product(
        [("The bear", "Der Bär"), ("A bird", "Ein Vogel"), ("My friend", "Mein Freund")],
        [("hears", "hört"), ("opens", "öffnet"), ("carries", "trägt"), ("finds", "findet")],
        [("the door", "die Tür"), ("an apple", "einen Apfel"), ("the key", "den Schlüssel")],
    )
]
VOCAB_SIZE = 110
MAX_LENGTH = 40  # of the model in model_folder


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Processes must agree on the names of tests, and files may hold the time of their making."""
    return argname if isinstance(val, bytes | str) and len(val) > 80 else None


@pytest.fixture(scope="session", autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache for all tests, not the user's: the C++ is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def loaded(library: NativeLibrary) -> Any:
    """The C++; without a compiler or such a CPU the test is skipped."""
    cpp = library()
    if cpp is None:
        pytest.skip("this computer cannot compile or run the C++")
    return cpp


@pytest.fixture(scope="session")
def native_library() -> Any:
    """The C++ of translation."""
    return loaded(translation.library)


@pytest.fixture(scope="session")
def training_library() -> Any:
    """The C++ of training."""
    return loaded(training.library)


@pytest.fixture
def each_instruction_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[Iterator[None]]:
    """To loop over: the C++ is that for AVX2 in the first round and for AVX512 in the second."""
    libraries = (translation.library, training.library)
    for library in libraries:
        loaded(library)
    if native._best_features() != native.AVX512:
        pytest.skip("this CPU has no AVX512-VNNI")

    def rounds() -> Iterator[None]:
        for features in (native.AVX2, native.AVX512):
            monkeypatch.setattr(native, "_best_features", lambda features=features: features)
            for library in libraries:
                library.cache_clear()
            yield

    yield rounds()
    for library in libraries:
        library.cache_clear()


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """Undo what a program, or a fixture of several tests, has set for its whole process."""
    torch.manual_seed(0)
    log, root = logging.getLogger("mt"), logging.getLogger()
    log.level, log.propagate, log.handlers[:] = logging.NOTSET, True, []
    for handler in [h for h in root.handlers if type(h) is logging.StreamHandler]:
        root.removeHandler(handler)  # pytest's own are of other kinds
    yield
    log.level, log.propagate, log.handlers[:] = logging.NOTSET, True, []


@pytest.fixture(scope="session")
def worked_examples() -> dict[str, Any]:
    """Published worked examples of the Transformer; each says what it shows and its source."""
    path = Path(__file__).parent / "golden" / "worked_examples.json"
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="session")
def small_tokenizer() -> Tokenizer:
    """A vocabulary of PAIRS."""
    return tokenizers.train(itertools.chain.from_iterable(PAIRS), VOCAB_SIZE)


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    """A vocabulary of the phrasebook's hand-written pairs."""
    return tokenizers.train(itertools.chain.from_iterable(phrasebook.phrases()), 300)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, small_tokenizer: Tokenizer) -> Path:
    """The folder of a tiny random model: it babbles, but differently for every source."""
    torch.manual_seed(0)
    model = Transformer(VOCAB_SIZE, N=1, d_model=32, d_ff=64, h=4)
    with torch.no_grad():
        model.embedding.weight[3] *= 4  # eos comes a little sooner
    folder = tmp_path_factory.mktemp("small") / "model"
    checkpoint.save(folder, model, small_tokenizer, MAX_LENGTH, ["en", "de"], {"steps": 0})
    return folder


def babbler(vocab_size: int, seed: int = 0, h: int = 2, **settings: Any) -> Transformer:
    """A tiny random model whose outputs have many lengths and differ for every source."""
    torch.manual_seed(seed)
    model = Transformer(vocab_size, N=1, d_model=32, d_ff=64, h=h, **settings).eval()
    with torch.no_grad():
        model.embedding.weight[3] *= 3  # eos comes a little sooner
        for layer in model.decoder:  # else it repeats its input
            layer.feed_forward.W_2.weight *= 6
            layer.cross_attention.W_O.weight *= 3
    return model


@pytest.fixture(scope="session")
def babbling(bpe: Tokenizer) -> Translator:
    return Translator(babbler(bpe.vocab_size), bpe, max_length=80)


@pytest.fixture(scope="session")
def everyday() -> Translator:
    """The bundled model. Tests undo what they change of it."""
    return Translator.load(device="cpu", workers=1)


def write_lines(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def corpus_folder(tmp_path: Path) -> Path:
    """PAIRS as files: train, validation and test, each with .en and .de."""
    folder = tmp_path / "corpus"
    for name, pairs in (("train", PAIRS), ("validation", PAIRS[:6]), ("test", PAIRS[6:10])):
        write_lines(folder / f"{name}.en", [pair[0] for pair in pairs])
        write_lines(folder / f"{name}.de", [pair[1] for pair in pairs])
    return folder


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run_translate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """mt.translate in tmp_path, inside this process; ``stdin`` is what the pipe brings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_TRACEBACK", raising=False)

    def call(*arguments: str | Path, stdin: bytes | BinaryIO | None = b"") -> Done:
        with tempfile.TemporaryFile() as file:
            file.write(stdin if isinstance(stdin, bytes) else b"")
            file.seek(0)
            stream = file if isinstance(stdin, bytes) else stdin
            pipe = None if stream is None else io.TextIOWrapper(stream)
            monkeypatch.setattr(sys, "stdin", pipe)
            monkeypatch.setattr(logging.getLogger(), "handlers", [])
            capsys.readouterr()
            try:
                code = translate.main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = int(end.code or 0)
            return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def greedy(run_translate: Callable[..., Done], model_folder: Path) -> Callable[..., Done]:
    def call(*arguments: str | Path, stdin: bytes | BinaryIO = b"") -> Done:
        fixed = ("--model", model_folder, "--beam-size", "1", "--device", "cpu")
        return run_translate(*fixed, *arguments, stdin=stdin)

    return call


@pytest.fixture
def run_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Done]]:
    """``python -m MODULE ARGUMENTS`` in tmp_path, inside this process, which is faster."""
    from hydra.core.global_hydra import GlobalHydra

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    log, root = logging.getLogger("mt"), logging.getLogger()
    before = log.level, log.propagate, list(log.handlers), root.level, list(root.handlers)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    full_error = os.environ.pop("HYDRA_FULL_ERROR", None)

    def run(module: str, *arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", [module, *arguments])
        GlobalHydra.instance().clear()
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*found in sys.modules.*", RuntimeWarning)
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=False)
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    yield run
    GlobalHydra.instance().clear()
    log.level, log.propagate, log.handlers[:], root.level, root.handlers[:] = before
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.environ.pop("HYDRA_FULL_ERROR", None)
    if full_error is not None:
        os.environ["HYDRA_FULL_ERROR"] = full_error


@pytest.fixture(scope="session")
def marian_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model as transformers stores it; a test that changes it takes a copy."""
    from marian_files import write_marian

    return write_marian(tmp_path_factory.mktemp("marian"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.en, train.de, valid.en, valid.de and a tokenizer, bpe.model."""
    from train_helpers import PAIRS

    folder = tmp_path_factory.mktemp("corpus")
    for name, pairs in (("train", PAIRS), ("valid", PAIRS[:20])):
        for side, suffix in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{suffix}").write_text(lines, encoding="utf-8")
    sentences = (side for pair in PAIRS for side in pair)
    tokenizers.save(tokenizers.train(sentences, 400), folder / "bpe.model")
    return folder
