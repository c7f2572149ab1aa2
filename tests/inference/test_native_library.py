"""The C++ is compiled once; where it cannot be, PyTorch computes."""

import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import babbler

from mt.compile import LIBRARIES
from mt.compile import main as compile_for_others
from mt.inference.beam_search import search
from mt.inference.incremental import InferenceModel
from mt.inference.linear import Int8Linear, linear_ops
from mt.inference.native.library import SOURCES, library
from mt.inference.options import SearchOptions
from mt.model.transformer import Transformer
from mt.training import loss as training_loss
from mt.utils import native
from mt.utils.cache import cache_folder

SOURCE = torch.tensor([[5, 6, 7, 3]])


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As in a new process, whose cache is empty."""
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
    for name in ("MT_NATIVE", "MT_NATIVE_FOLDER"):
        monkeypatch.delenv(name, raising=False)
    library.cache_clear()
    yield tmp_path / "cache" / "native"
    library.cache_clear()


def compiler(path: Path, script: str) -> str:
    path.write_text(f'#!/bin/sh\nfor last; do :; done\n[ "$last" = --version ] && exit\n{script}\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def copying(
    native_library: Any, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that takes no time: it copies what was compiled before."""
    script = compiler(tmp_path / "copying", f'cp "{native_library._name}" "$last"')
    monkeypatch.setenv("CXX", script)


def test_it_is_compiled_once(native_library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    assert library() is not None  # another test may have compiled it into a cache of its own

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "run", never)
    library.cache_clear()
    assert library() is not None


def no_features() -> set[str]:
    return set()


def no_home(folder: Path, patch: pytest.MonkeyPatch) -> None:
    def expanduser(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    patch.delenv("MT_CACHE")
    patch.setattr(Path, "expanduser", expanduser)


def no_linux() -> set[str]:
    raise FileNotFoundError(2, "No such file or directory", "/proc/cpuinfo")


def at_a_file(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.parent.write_text("")


def others_may_write(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def nothing_installed(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("CXX", raising=False)
    patch.setenv("PATH", str(folder))


def a_compiler_that(script: str) -> Any:
    def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(native, "TIMEOUT", 0.3)
        patch.setenv("CXX", compiler(folder.parent.parent / "compiler", script))

    return prepare


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (
            lambda _, patch: patch.setattr(native, "_cpu_features", no_features),
            "this CPU lacks avx2, fma",
        ),
        (lambda _, patch: patch.setattr(native, "_cpu_features", no_linux), "/proc/cpuinfo"),
        (lambda _, patch: patch.setenv("CXX", "/no/cc"), "CXX=/no/cc: no such program"),
        (lambda _, patch: patch.setenv("CXX", "g++ 'x"), "CXX=g++ 'x: No closing quotation"),
        (nothing_installed, "no C++ compiler: install g++"),
        (a_compiler_that("echo 'step.cpp: error: no' >&2; exit 1"), "step.cpp: error: no"),
        (a_compiler_that("exec sleep 5"), "timed out"),
        (a_compiler_that('echo nonsense > "$last"'), "file too short"),
        (at_a_file, "cache"),
        (no_home, "you have no home folder: set MT_CACHE"),
        (others_may_write, "nobody else may write there"),
    ],
)
def test_where_it_cannot_be_had_pytorch_computes(
    prepare: Any,
    reason: str,
    empty_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(native, "_cpu_features", lambda: set(native.AVX2))
    prepare(empty_cache, monkeypatch)
    with caplog.at_level(logging.INFO):
        model = InferenceModel(babbler(40), "int8")
    assert isinstance(model.vocabulary, Int8Linear)
    assert not model.exact
    last = caplog.records[-1]
    assert last.levelno == logging.INFO
    assert last.message.startswith("translation is computed by PyTorch, which is slower: ")
    assert reason in last.message
    assert "\n" not in last.message
    assert search(model, SOURCE, SearchOptions(beam_size=2, max_length=4))[0][0].ids
    assert not empty_cache.is_dir() or not list(empty_cache.glob(".*partial"))


def test_it_can_be_turned_off(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MT_NATIVE", "0")
    make, _ = linear_ops("int8", torch.device("cpu"))
    assert isinstance(make(torch.randn(4, 8)), Int8Linear)
    assert not caplog.records
    assert not empty_cache.exists()


def test_bfloat16_does_not_ask_for_it(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> set[str]:
        raise AssertionError("asked for")

    monkeypatch.setattr(native, "_cpu_features", never)
    InferenceModel(babbler(40), "bfloat16")
    assert not empty_cache.exists()


@pytest.mark.slow
def test_who_does_not_wait_gets_what_is_compiled(copying: None, empty_cache: Path) -> None:
    with native.compiling(allowed=False):
        assert InferenceModel(babbler(40)).native is None
    assert not empty_cache.exists()
    assert InferenceModel(babbler(40)).native is not None
    library.cache_clear()
    with native.compiling(allowed=False):
        assert InferenceModel(babbler(40)).native is not None


def test_without_such_a_cpu_there_is_nothing_to_wait_for(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_cpu_features", no_linux)
    with native.compiling(allowed=False):
        assert library() is None


def test_a_sentence_that_is_typed_waits_for_no_compiler(
    copying: None, empty_cache: Path, run_translate: Callable[..., Any]
) -> None:
    typed = run_translate("Where do you live?", "--device", "cpu")
    assert not list(empty_cache.parent.glob("native/*.so"))
    read = run_translate("--device", "cpu", stdin=b"Where do you live?\n")
    assert len(list(empty_cache.glob("*.so"))) == 1
    assert typed.out == read.out == "Wo wohnen Sie?\n"


def test_two_at_once_compile_a_whole_file(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = empty_cache.parent.parent / "count"
    script = f'echo >> {count}; printf wh > "$last"; sleep 0.1; printf ole >> "$last"'
    monkeypatch.setenv("CXX", compiler(empty_cache.parent.parent / "compiler", script))
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(native._compiled, SOURCES, native.AVX2) for _ in range(2))
    assert first.result() == second.result()
    assert first.result().read_text() == "whole"
    assert count.read_text() == "\n", "it was compiled twice"
    assert os.listdir(empty_cache) == [first.result().name]
    assert empty_cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("cpu", "used"),
    [
        ({"avx2", "fma", "avx512f"}, native.AVX2),
        ({*native.AVX512, "amx_int8"}, native.AVX512),
    ],
)
def test_the_best_instructions_of_the_cpu_are_used(
    cpu: set[str], used: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_cpu_features", lambda: cpu)
    assert native._best_features() == used


@pytest.mark.slow  # eight compilations
def test_a_computer_without_a_compiler_takes_what_was_compiled_for_every_cpu(
    native_library: Any,
    empty_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also for those that this computer cannot run."""
    folder = tmp_path / "compiled"
    assert compile_for_others([str(folder)]) == 0
    files = [Path(line.partition(":")[0]) for line in capsys.readouterr().out.splitlines()]
    assert len(set(files)) == 2 * len(LIBRARIES)  # for AVX2 and AVX-512
    assert sorted(folder.iterdir()) == sorted(files)
    nothing_installed(tmp_path / "empty", monkeypatch)
    assert compile_for_others([str(folder)]) == 0  # nothing is missing
    monkeypatch.setenv("MT_NATIVE_FOLDER", str(folder))
    for library_of in LIBRARIES:
        library_of.cache_clear()
        with native.compiling(allowed=False):
            assert library_of() is not None
        library_of.cache_clear()
    assert not empty_cache.exists()
    assert not caplog.records


def test_a_folder_without_the_library_is_told(
    native_library: Any,
    empty_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MT_NATIVE_FOLDER", str(tmp_path / "none"))
    nothing_installed(tmp_path / "empty", monkeypatch)
    assert library() is None
    assert "none has no C++ of this version of mt for this CPU: python -m mt.com" in caplog.text


def test_without_a_compiler_nothing_is_compiled_for_others(
    empty_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(native, "sys", SimpleNamespace(platform="linux"))
    monkeypatch.setattr(native.platform, "machine", lambda: "x86_64")
    nothing_installed(empty_cache, monkeypatch)
    assert compile_for_others([str(tmp_path / "new")]) == 2
    error = "mt.compile: error: there is no C++ compiler: install g++\n"
    assert capsys.readouterr() == ("", error)
    monkeypatch.setattr(native.platform, "machine", lambda: "aarch64")
    assert compile_for_others([str(tmp_path / "other")]) == 2
    assert "the C++ is for Linux on x86-64" in capsys.readouterr().err


@pytest.mark.parametrize(("owner", "trusted"), [(0, True), (1, False), (65534, True)])
def test_libraries_of_other_users_are_not_run(
    owner: int, trusted: bool, native_library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, folder = Path.stat, cache_folder("native")

    def stat(path: Path, **options: Any) -> Any:
        status = real(path, **options)
        return os.stat_result((*status[:4], owner, *status[5:])) if path == folder else status

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    library.cache_clear()
    assert (library() is not None) is trusted
    library.cache_clear()


def test_avx2_and_avx512_give_the_same_bits(each_instruction_set: Iterator[None]) -> None:
    sources, targets = torch.randint(4, 40, (5, 30)), torch.randint(333, (5,))
    rows = 5 * torch.randn(7, 333)
    model = Transformer(vocab_size=40, N=2, d_model=32, d_ff=64, h=2).eval()
    results, losses = [], []
    for _ in each_instruction_set:
        for dtype in (torch.float32, torch.bfloat16):
            losses.append(training_loss._losses(rows.to(dtype, copy=True), targets, 0.1, True))
        for precision in ("float32", "int8"):
            decoder = InferenceModel(model, precision)
            assert decoder.native is not None
            state = decoder.start(sources)
            logits = [decoder.step(torch.full((5, 1), token), state) for token in range(4, 40)]
            searched = search(decoder, sources, SearchOptions(beam_size=4))
            results.append((torch.stack(logits), searched))
    for (logits, searched), (others, otherwise) in zip(results[:2], results[2:], strict=True):
        assert torch.equal(logits, others)
        assert searched == otherwise
    for (gradient, *sums), (other, *others) in zip(losses[:2], losses[2:], strict=True):
        assert torch.equal(gradient, other)
        assert sums == others
