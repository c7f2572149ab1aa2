"""What the tests of exports share: a model, mt.export in this process, and sentences."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, babbler

from mt.data import phrasebook
from mt.data.tokenizer import Tokenizer
from mt.export import __main__
from mt.inference.translator import Translator
from mt.model import checkpoint

for name in itertools.chain.from_iterable(__main__.FORMATS.values()):
    pytest.importorskip(name)

LINES = [source for source, _ in itertools.islice(phrasebook.load("test"), 40)]
Run = Callable[..., Done]


@pytest.fixture(scope="session")
def model(bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    checkpoint.save(folder, babbler(bpe.vocab_size), bpe, 40, ["en", "de"], {})
    return folder


@pytest.fixture(scope="session")
def translator(model: Path) -> Translator:
    return Translator.load(model, "cpu")


@pytest.fixture
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "NUM_SENTENCES", 30)


@pytest.fixture
def run(
    few_sentences: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
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


def written(run: Run, model: Path, form: str, precision: str = "float32") -> Path:
    done = run("--to", form, "--precision", precision, model, "out")
    assert done.code == 0, done.err
    return Path("out")
