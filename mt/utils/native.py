"""C++ of this package as a library, compiled at its first use and kept in the cache.

It needs Linux, a CPU with AVX2 and, once, a C++ compiler. With AVX512-VNNI it is faster and has the
same results. The environment variable MT_NATIVE=0 turns it off. Where it is missing, its users
compute with PyTorch. MT_NATIVE_FOLDER is a folder that ``mt.compile`` has written, for computers
without a compiler.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mt.utils.atomic import atomic_path
from mt.utils.cache import cache_folder

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
HEADERS = [HERE / name for name in ("vectors.h", "avx512.h", "avx2.h")]
AVX2 = ("avx2", "fma")  # features of the CPU, which avx2.h uses
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", *AVX2)  # avx512.h
# Compilers fuse a product and a sum as they like, if one lets them, and results differ.
OPTIONS = ["-O3", "-ffp-contract=off", "-std=c++17", "-shared", "-fPIC"]
COMPILERS = ("c++", "g++", "clang++")
TIMEOUT = 300  # seconds; a compilation takes about ten

Pointer, Int, Float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


_MAY_COMPILE = ContextVar("may compile", default=True)


@contextmanager
def compiling(allowed: bool) -> Iterator[None]:
    """Unless it is ``allowed``, no library that must be compiled first can be had in this block."""
    token = _MAY_COMPILE.set(allowed)
    try:
        yield
    finally:
        _MAY_COMPILE.reset(token)


class NativeLibrary:
    """Call it to get the library, or None where it cannot be had, which the log explains.

    ``functions`` has the types of each function's arguments, as the C++ declares them, and
    ``purpose`` says what is slower without them. ``sources`` may include headers.
    """

    def __init__(
        self, purpose: str, sources: Sequence[Path], functions: Mapping[str, tuple[Any, ...]]
    ) -> None:
        self.purpose, self.sources, self.functions = purpose, sources, functions
        self.cache_clear()

    def cache_clear(self) -> None:
        """Forget the library, as in a new process."""
        self._library: ctypes.CDLL | None = None
        self._tried = False

    def __call__(self) -> ctypes.CDLL | None:
        if not self._tried and (_MAY_COMPILE.get() or self._is_compiled()):
            self._library = self._load()
            self._tried = True  # last, for other threads
        return self._library

    def compile_for_every_cpu(self, folder: Path) -> list[Path]:
        """Its files in ``folder``, one for each kind of CPU; those that are missing are compiled.

        Raises OSError or subprocess.SubprocessError.
        """
        if sys.platform != "linux" or platform.machine() != "x86_64":
            raise OSError("the C++ is for Linux on x86-64: nothing is compiled on this computer")
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(0o755)  # whatever the umask
        _check_owner(folder)
        return [_made(folder, self.sources, _options(features)) for features in (AVX2, AVX512)]

    def _load(self) -> ctypes.CDLL | None:
        if os.environ.get("MT_NATIVE") == "0":
            return None
        try:
            loaded = ctypes.CDLL(str(_compiled(self.sources, _best_features())))
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            log.info(f"{self.purpose} is computed by PyTorch, which is slower: {error}")
            return None
        for name, arguments in self.functions.items():
            getattr(loaded, name).argtypes = arguments
        return loaded

    def _is_compiled(self) -> bool:
        try:
            name = _library_name(self.sources, _options(_best_features()))
            return any((folder / name).is_file() for folder in _folders())
        except (OSError, RuntimeError):
            return False


def _best_features() -> tuple[str, ...]:
    """Those that the C++ shall use. OSError where the CPU has too few."""
    features = _cpu_features()
    missing = set(AVX2) - features
    if missing:
        raise OSError(f"this CPU lacks {', '.join(sorted(missing))}")
    return AVX512 if set(AVX512) <= features else AVX2


def _cpu_features() -> set[str]:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return set(next((line for line in file if line.startswith("flags")), "").split())


def _folders() -> Iterator[Path]:
    """Where libraries may be. RuntimeError, when the cache is asked for, without a home."""
    if named := os.environ.get("MT_NATIVE_FOLDER"):
        yield Path(named)
    yield cache_folder("native")


def _compiled(sources: Sequence[Path], features: Sequence[str]) -> Path:
    """The library's file. Raises OSError and others."""
    options = _options(features)
    if named := os.environ.get("MT_NATIVE_FOLDER"):
        file = Path(named) / _library_name(sources, options)
        if file.is_file():
            try:
                _check_owner(file.parent)
            except OSError as error:
                log.warning(f"MT_NATIVE_FOLDER is not used: {error}")
                raise
            return file
        log.warning(
            f"MT_NATIVE_FOLDER={named} has no C++ of this version of mt for this CPU: "
            "python -m mt.compile writes it"
        )
    cache = cache_folder("native")
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(cache)
    return _made(cache, sources, options)


def _check_owner(folder: Path) -> None:
    """OSError where another user but root may write, whose program would run here."""
    status = folder.stat()
    if status.st_uid not in (0, os.getuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(
            f"{folder}: must be yours or root's, and nobody else may write there, because its "
            "programs run here"
        )


def _made(folder: Path, sources: Sequence[Path], options: Sequence[str]) -> Path:
    """The library's file, which is compiled if it is missing."""
    file = folder / _library_name(sources, options)
    if not file.is_file():
        log.info(f"compiling C++, once: {file}")
        with atomic_path(file) as partial:
            if file.is_file():  # another process was faster
                shutil.copy2(file, partial)
            else:
                _compile(sources, options, partial)
    return file


def _options(features: Sequence[str]) -> list[str]:
    return OPTIONS + [f"-m{feature.replace('_', '')}" for feature in features]


def _library_name(sources: Sequence[Path], options: Sequence[str]) -> str:
    """It changes with sources and options."""
    content = b"".join(path.read_bytes() for path in [*HEADERS, *sources])
    content += repr(options).encode()
    return f"{hashlib.sha256(content).hexdigest()[:16]}.so"


def _compile(sources: Sequence[Path], options: Sequence[str], target: Path) -> None:
    compiler, english = _find_compiler(), {**os.environ, "LC_ALL": "C"}
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, timeout=TIMEOUT, env=english
    )
    # Clang's OpenMP is another than PyTorch's, and some pairs of them end the program.
    openmp = [] if "clang" in version.stdout else ["-fopenmp"]
    files = [str(path) for path in sources if path.suffix == ".cpp"]
    command = [*compiler, *options, f"-I{HERE}", *openmp, *files, "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=english)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "")
        raise OSError(f"{shlex.join(compiler)} fails: {reason or done.returncode}")


def _find_compiler() -> list[str]:
    value = os.environ.get("CXX", "")
    try:
        named = shlex.split(value)
    except ValueError as error:
        raise OSError(f"CXX={value}: {error}") from None
    for compiler in [named] if named else [[name] for name in COMPILERS]:
        if shutil.which(compiler[0]):
            return compiler
    missing = f"CXX={value}: no such program" if named else "there is no C++ compiler: install g++"
    raise OSError(missing)
