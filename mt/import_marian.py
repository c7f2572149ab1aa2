"""python -m mt.import_marian FOLDER OUT: import a MarianMTModel of transformers as a model folder.

FOLDER is what transformers saves and loads, such as a model of OPUS-MT (mt.model.marian_import).
The import needs no library beyond those of mt.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from mt.utils import console

with console.exit_at_interrupt():
    from mt.model import marian_import


def main(argv: Sequence[str] | None = None) -> int:
    parser = console.ArgumentParser(
        prog="mt.import_marian",
        description="Import a MarianMTModel of transformers as a model folder.",
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="the folder that transformers saves and loads")
    add("out", metavar="OUT", type=Path, help="model folder to write; it must not exist yet")
    add("--languages", nargs=2, metavar=("FROM", "TO"),
        help="default: the languages that the folder names")  # fmt: skip
    args = parser.parse_args(argv)

    def run() -> None:
        if args.out.exists():
            raise FileExistsError(f"{args.out}: exists already: name another folder")
        parameters = marian_import.convert(args.folder, args.out, args.languages)
        print(f"{args.out}: {parameters:,} parameters")

    return console.exit_status("mt.import_marian", run)


if __name__ == "__main__":
    sys.exit(main())
