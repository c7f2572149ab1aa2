"""python -m mt.compile FOLDER: compile the C++ for computers without a compiler.

With MT_NATIVE_FOLDER=FOLDER in their environment the programs take it from there. They do not need
this where a compiler is: there the C++ is compiled at its first use (``mt.utils.native``).
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mt.inference.native import library as translation
from mt.model.native import library as training
from mt.utils import console

LIBRARIES = (translation.library, training.library)


def compile_into(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: is a file: name a folder")
    for library in LIBRARIES:
        try:
            files = library.compile_for_every_cpu(folder)
        except subprocess.SubprocessError as error:
            raise OSError(str(error)) from error
        for file in files:
            print(f"{file}: {library.purpose}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = console.ArgumentParser(
        prog="mt.compile",
        description="Compile the C++ that translates and trains for computers without a compiler, "
        "which find it by MT_NATIVE_FOLDER=FOLDER: for CPUs with AVX2 and with AVX512-VNNI.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="it is made if it is missing")
    args = parser.parse_args(argv)
    return console.exit_status("mt.compile", lambda: compile_into(args.folder))


if __name__ == "__main__":
    sys.exit(main())
