"""Average training checkpoints, or models, into a model folder.

python scripts/average_checkpoints.py RUN/checkpoints/step-*.ckpt --output FOLDER
python scripts/average_checkpoints.py RUN1/model RUN2/model --output FOLDER

Checkpoints of one run, as in 6.1 of the paper; or the models of runs that went on from each other
(start_from), whose mean can be better than the last of them (Wortsman et al., CVPR 2022).
"""

import argparse
import sys
from pathlib import Path

from mt.model import checkpoint
from mt.model.checkpoint import LoadedModel
from mt.utils import console


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", help="RUN/checkpoints/*.ckpt, or model folders")
    parser.add_argument("--output", required=True, help="the model folder to write")
    args = parser.parse_args(argv)

    def run() -> None:
        if Path(args.output).exists():
            raise FileExistsError(f"{args.output} exists already")
        last = checkpoint.load(args.paths[-1])
        for path in args.paths[:-1]:
            check_alike(checkpoint.load(path), last)
        last.model.load_state_dict(checkpoint.average(args.paths))
        if any(Path(path).is_dir() for path in args.paths):
            about = {
                "mean of models": ", ".join(
                    f"{path}, sha256 {checkpoint.digest(path)[:12]}" for path in args.paths
                )
            }
        else:
            about = {"averaged checkpoints": ", ".join(Path(path).stem for path in args.paths)}
        if started_from := last.config["training"].get("started from"):
            about["started from"] = started_from
        checkpoint.save(
            args.output,
            last.model,
            last.tokenizer,
            last.config["max_length"],
            last.config["languages"],
            about,
        )
        print(f"{args.output}: the mean of {len(args.paths)}")

    return console.status("average_checkpoints", run)


def check_alike(one: LoadedModel, other: LoadedModel) -> None:
    """ValueError when their weights do not mean the same."""
    if one.tokenizer.proto != other.tokenizer.proto:
        raise ValueError(f"{one.path}: not the tokenizer of {other.path}")
    shapes = [{**loaded.model.config, "P_drop": None} for loaded in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{one.path}: not the shape of {other.path}")
    if one.config["languages"] != other.config["languages"]:
        raise ValueError(f"{one.path}: not the languages of {other.path}")


if __name__ == "__main__":
    sys.exit(main())
