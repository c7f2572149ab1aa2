"""Random damage to everything that the program reads: a clear error, or a result that is right.

Each property runs with some examples, the same ones every time. ``-m slow`` runs them all for
MT_FUZZ_SECONDS (600) with new ones and prints how many there were.
"""

import hashlib
import io
import json
import logging
import os
import random
import resource
import signal
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch
from conftest import PAIRS
from fuzz.mutations import LINE, NUMBERS, TEXT, VALUES, damaged_bytes, damaged_json
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from mt import translate
from mt.data.readers import FileReader
from mt.data.tokenizer import Tokenizer, train
from mt.inference.options import SearchOptions, load_search_defaults
from mt.inference.translator import Translator
from mt.model import checkpoint, storage
from mt.utils import line_io

EXAMPLES = 15  # of each property in the default run
GIB = 2**30
SOURCES = [pair[0] for pair in PAIRS[:9]]


class Good(NamedTuple):
    """What is damaged: the files of a model folder, and what an interrupted run left."""

    folder: Path
    files: dict[str, bytes]
    resumable: dict[str, bytes]  # in a folder with the sources, ``in``
    whole: bytes  # the output of the run that is not interrupted


@pytest.fixture(scope="session")
def good(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Good:
    files = {path.name: path.read_bytes() for path in model_folder.iterdir()}
    folder = tmp_path_factory.mktemp("resumable")
    (folder / "in").write_text("".join(f"{line}\n" for line in SOURCES))
    (folder / "bad").write_bytes((folder / "in").read_bytes() + b"\xff\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_io, "BLOCK", 4)
        assert translate_file(model_folder, folder / "bad", folder / "out") == 2
    left = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "bad"}
    assert {".out.partial", ".out.partial.json"} <= left.keys()
    assert translate_file(model_folder, folder / "in", folder / "whole") == 0
    return Good(model_folder, files, left, (folder / "whole").read_bytes())


def translate_file(model: Path, source: Path, target: Path, *options: str) -> int:
    """mt.translate from file to file, in this process."""
    fixed = ["--model", str(model), "--workers", "1", "--input", str(source)]
    search = [] if "--score" in options else ["--beam-size", "1", "--max-length", "8"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger(), "handlers", [])  # main adds one
        return translate.main([*fixed, *search, "--output", str(target), *options])


# What must hold


@contextmanager
def limits(seconds: int = 60, memory: int = 2 * GIB) -> Iterator[None]:
    """Fail when the block takes more time or more memory."""

    def too_long(*_: object) -> None:
        raise AssertionError(f"took more than {seconds} s")

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)


@contextmanager
def clear_errors(*names: object) -> Iterator[None]:
    """Let errors pass that a program prints in one line; one of the ``names`` must be in it."""
    try:
        yield
    except (ValueError, OSError) as error:
        message = str(error)
        assert message.isprintable(), message
        assert len(message) < 2000, message
        assert not names or any(str(name) in message for name in names), message


def in_child(run: Callable[[], None]) -> None:
    """Run in a process of its own: native code that reads a crafted file may end its process.

    A child of ``fork`` must not use torch: the threads that torch waits for are not in it.
    """
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            run()
            status = 0
        os._exit(status)
    try:
        assert os.waitpid(child, 0)[1] == 0
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise


def check_model(path: Path) -> None:
    """A model loads and translates N lines into N lines, or is refused."""
    with clear_errors(path):
        translator = Translator.load(path, "cpu", workers=1)
        results = translator.translate([*SOURCES[:2], ""], beam_size=2, max_length=5)
        assert [result.source for result in results] == [*SOURCES[:2], ""]
        assert all(result.text.encode().count(b"\n") == 0 for result in results)


def write_folder(folder: Path, files: dict[str, bytes], hashed: bool = True) -> None:
    """A model folder; with ``hashed`` its configuration vouches for the damaged files."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    if hashed:
        config = json.loads(files["config.json"])
        for name in config["sha256"]:
            config["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
        (folder / "config.json").write_text(json.dumps(config))


# The properties: of each the strategy that makes its cases, and what must hold for a case


def configs(good: Good) -> st.SearchStrategy[str]:
    return damaged_json(json.loads(good.files["config.json"]))


def check_config(good: Good, folder: Path, case: str) -> None:
    """config.json of a model folder, and mt.json of an export."""
    write_folder(folder, good.files)
    (folder / "config.json").write_text(case, "utf-8", "surrogatepass")
    check_model(folder)
    (folder / "mt.json").write_text(case, "utf-8", "surrogatepass")
    with clear_errors(folder):
        load_search_defaults(folder)


@st.composite
def weights(draw: st.DrawFn, good: Good) -> tuple[str, bytes]:
    """The storage that the folder declares, and the file."""
    kept = draw(st.sampled_from(["float32", "int8"]))
    state = storage.pack(safetensors.torch.load(good.files["model.safetensors"]), kept)
    if draw(st.booleans()):
        return kept, draw(damaged_bytes(safetensors.torch.save(state)))
    name = draw(st.sampled_from(sorted(state)))
    shape = draw(st.just(list(state[name].shape)) | st.lists(st.integers(0, 40), max_size=3))
    dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64]
    w = torch.full(shape, 0.1, dtype=torch.float64)
    if w.numel():
        value = draw(st.floats() | st.sampled_from([3e38, 1e30, torch.nan, -torch.inf]))
        w.view(-1)[draw(st.integers(0, w.numel() - 1)) :] = value
    state[draw(st.just(name) | st.text())] = w.to(draw(st.sampled_from(dtypes)))
    return kept, safetensors.torch.save(state)


def check_weights(good: Good, folder: Path, case: tuple[str, bytes]) -> None:
    config = json.loads(good.files["config.json"])
    if case[0] == "int8":
        config |= {"format": checkpoint.FORMATS[1], "storage": "int8"}
    changed = {"config.json": json.dumps(config).encode(), "model.safetensors": case[1]}
    write_folder(folder, {**good.files, **changed})
    check_model(folder)


def tokenizers(good: Good) -> st.SearchStrategy[bytes]:
    of_bytes = train([text for pair in PAIRS for text in pair], 700, False, byte_fallback=True)
    return damaged_bytes(good.files["tokenizer.model"]) | damaged_bytes(of_bytes.proto)


def check_tokenizer(good: Good, folder: Path, case: bytes) -> None:
    """SentencePiece, too, neither crashes nor gives what is no text."""
    write_folder(folder, {**good.files, "tokenizer.model": case})

    def use() -> None:
        with clear_errors():
            tokenizer = Tokenizer(case)
            rows = tokenizer.encode([*SOURCES[:1], "ﬁ ① 汉字 Ä \u0308", "x" * 50])
            assert [len(tokenizer.pieces(row)) for row in rows] == list(map(len, rows))
            for text in tokenizer.decode([*rows, list(range(tokenizer.vocab_size))]):
                text.encode()

    in_child(use)
    check_model(folder)


@st.composite
def checkpoints(draw: st.DrawFn, good: Good) -> bytes:
    """A training checkpoint with odd values, a damaged pickle in a sound archive, or damage."""
    state = {
        f"model.{name}": w
        for name, w in safetensors.torch.load(good.files["model.safetensors"]).items()
    }
    config = json.loads(good.files["config.json"])
    content: dict[Any, Any] = {
        "state_dict": state,
        "global_step": 7,
        "hyper_parameters": {"max_length": 40, **{k: config[k] for k in ("model", "languages")}},
    }
    place = draw(st.sampled_from([content, content["hyper_parameters"], state]))
    if draw(st.booleans()):
        place[draw(st.sampled_from(sorted(place)) | TEXT)] = draw(VALUES)
    stream = io.BytesIO()
    torch.save(content, stream)
    if draw(st.booleans()):
        return draw(st.just(stream.getvalue()) | damaged_bytes(stream.getvalue()))
    result = io.BytesIO()
    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(result, "w") as new:
        for part in old.namelist():
            data = old.read(part)
            new.writestr(part, draw(damaged_bytes(data)) if part.endswith(".pkl") else data)
    return result.getvalue()


def check_checkpoint(good: Good, folder: Path, case: bytes) -> None:
    path = folder / "run" / "checkpoints" / "step.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(case)
    (folder / "run" / "tokenizer.model").write_bytes(good.files["tokenizer.model"])
    check_model(path)
    with clear_errors(path):
        checkpoint.average([path])


def options(good: Good) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from([field.name for field in fields(SearchOptions)])
    return st.dictionaries(names, st.integers(-1, 12) | st.floats(0, 3) | NUMBERS | VALUES)


def check_options(good: Good, folder: Path, case: dict[str, Any]) -> None:
    with clear_errors(*case):
        chosen = SearchOptions(**case)
        if chosen.width > 20 or (chosen.max_length or 0) > 50 or chosen.min_length > 50:
            return  # allowed, and long
        translator = Translator.load(good.folder, "cpu", workers=1)
        results = translator.translate(SOURCES[:2], chosen)
        assert [len(result.n_best) for result in results] == [chosen.n_best] * 2


FILE_OPTIONS = [[], ["--json", "--tokens"], ["--split"], ["--prefix", "Der"], ["--score", "FILE"]]


def files(good: Good) -> st.SearchStrategy[tuple[bytes, list[str]]]:
    text = st.lists(LINE, max_size=5).map("\n".join)
    content = (text | text.map(lambda lines: f"{lines}\n")).map(str.encode)
    return st.tuples(content | st.binary(max_size=40), st.sampled_from(FILE_OPTIONS))


def check_file(good: Good, folder: Path, case: tuple[bytes, list[str]]) -> None:
    """N lines in, N lines out; or no output at all where a line is not UTF-8."""
    content, arguments = case
    source, target = folder / "in", folder / "out"
    source.write_bytes(content)
    targets = folder / "targets"
    targets.write_bytes(content)
    arguments = [str(targets) if argument == "FILE" else argument for argument in arguments]
    status = translate_file(good.folder, source, target, *arguments)
    try:
        lines = [line.removesuffix("\r") for line in content.decode().split("\n")]
    except UnicodeDecodeError:
        assert status == 2
        assert not target.exists()
        return
    assert status == 0
    lines = lines[:-1] if lines[-1] == "" else lines
    rows = target.read_bytes().decode().split("\n")
    assert rows.pop() == ""
    assert len(rows) == len(lines)
    if "--json" in arguments:
        assert [json.loads(row)["source"] for row in rows] == lines


def texts(good: Good) -> st.SearchStrategy[list[str]]:
    return st.lists(TEXT | LINE | st.text(), max_size=4)


def check_text(good: Good, folder: Path, case: list[str]) -> None:
    """Any text from Python: whatever it holds, the result is one line for each."""
    translator = Translator.load(good.folder, "cpu", workers=1)
    settings = {"beam_size": 1, "max_length": 5}
    for split in (False, True):
        results = translator.translate(case, split=split, **settings)
        assert [result.source for result in results] == case
        for result in results:
            assert len(result.text.splitlines()) <= 1
            result.text.encode()
    scores = translator.score(case, case[::-1])
    assert all(result.log_prob <= 0 for result in scores)
    for text in case:
        translated = translator.translate_text(text, **settings)
        assert translated.count("\n") == text.count("\n")


@st.composite
def left_overs(draw: st.DrawFn, good: Good) -> dict[str, bytes]:
    """What an interrupted run left, damaged."""
    left = dict(good.resumable)
    name = draw(st.sampled_from([".out.partial", ".out.partial.json"]))
    if name.endswith(".json") and draw(st.booleans()):
        left[name] = draw(damaged_json(json.loads(left[name]))).encode("utf-8", "surrogatepass")
    else:
        left[name] = draw(damaged_bytes(left[name]))
    return left


def check_resume(good: Good, folder: Path, case: dict[str, bytes]) -> None:
    """The whole output, or an error that leaves no output; then a new run gives the whole."""
    for name, content in case.items():
        (folder / name).write_bytes(content)
    status = translate_file(good.folder, folder / "in", folder / "out", "--resume")
    assert status in (0, 2)
    assert (folder / "out").exists() == (status == 0)
    if status == 2:
        anew = translate_file(good.folder, folder / "in", folder / "out", "--restart")
        assert anew == 0
    assert (folder / "out").read_bytes() == good.whole


def corpora(good: Good) -> st.SearchStrategy[tuple[str, bytes, bytes]]:
    line = LINE | st.tuples(LINE, LINE).map("\t".join) | VALUES.map(json.dumps)
    record = st.fixed_dictionaries({"en": TEXT | VALUES, "de": TEXT | VALUES}).map(json.dumps)
    text = st.lists(line | record, max_size=4).map("\n".join)
    content = text.map(lambda lines: lines.encode("utf-8", "surrogatepass")) | st.binary()
    kind = st.sampled_from(["corpus", "corpus.tsv", "corpus.jsonl", "corpus.tsv.gz"])
    return st.tuples(kind, content, content)


def check_corpus(good: Good, folder: Path, case: tuple[str, bytes, bytes]) -> None:
    """A corpus gives pairs of texts, or an error that names its file."""
    name, source, target = case
    path = folder / name
    if name == "corpus":
        path.with_suffix(".en").write_bytes(source)
        path.with_suffix(".de").write_bytes(target)
    else:
        path.write_bytes(source)
    with clear_errors(path):
        reader = FileReader(str(path))
        for pair in reader.pairs("train"):
            assert [type(side) for side in pair] == [str, str]


PROPERTIES = {
    "config": (configs, check_config),
    "weights": (weights, check_weights),
    "tokenizer": (tokenizers, check_tokenizer),
    "checkpoint": (checkpoints, check_checkpoint),
    "options": (options, check_options),
    "file": (files, check_file),
    "text": (texts, check_text),
    "resume": (left_overs, check_resume),
    "corpus": (corpora, check_corpus),
}


def run(name: str, good: Good, examples: int, number: int) -> None:
    """Check a property on so many examples, which the seed ``number`` chooses."""
    strategy, check = PROPERTIES[name]

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, print_blob=False,
        phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy(good))
    def holds(case: Any) -> None:
        with tempfile.TemporaryDirectory() as folder, limits():
            check(good, Path(folder), case)

    holds()


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.filterwarnings("ignore")
def test_fuzz(name: str, good: Good) -> None:
    run(name, good, EXAMPLES, 0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.filterwarnings("ignore")
def test_fuzz_for_minutes(name: str, good: Good, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = float(os.environ.get("MT_FUZZ_SECONDS", "600")) / len(PROPERTIES)
    first = random.SystemRandom().randrange(2**32)
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        run(name, good, 50, first + rounds)
        rounds += 1
        capsys.readouterr()  # what the programs have printed
    with capsys.disabled():
        print(f"\n{name}: {50 * rounds:,} examples hold, seeds from {first}", flush=True)
