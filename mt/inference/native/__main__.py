"""Compile the C++ of translation for every kind of CPU, and print the files.

They are kept in the folder MT_NATIVE_FOLDER, else in the cache. With the same MT_NATIVE_FOLDER a
computer without a compiler takes them from there.
"""

import subprocess
import sys
from collections.abc import Sequence

from mt.inference.native.library import library
from mt.utils import console


def run() -> None:
    try:
        files = library.compile_for_every_cpu()
    except (RuntimeError, subprocess.SubprocessError) as error:
        raise OSError(str(error)) from error
    print(*files, sep="\n")


def main(argv: Sequence[str] | None = None) -> int:
    console.ArgumentParser(prog="mt.inference.native", description=__doc__).parse_args(argv)
    return console.exit_status("mt.inference.native", run)


if __name__ == "__main__":
    sys.exit(main())
