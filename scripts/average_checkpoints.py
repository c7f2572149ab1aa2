"""Average training checkpoints, or models, into a model folder.

python scripts/average_checkpoints.py RUN/checkpoints/step-*.ckpt --output FOLDER
python scripts/average_checkpoints.py RUN1/model RUN2/model --output FOLDER

The checkpoints of one run are averaged as in 6.1 of the paper. The models of runs of which each
began with the one before (init_from) can have a mean that is better than the last of them
(Wortsman et al., CVPR 2022).
"""

import argparse
import sys
from pathlib import Path

from mt.utils import console

with console.exit_at_interrupt():
    from mt.model import checkpoint
    from mt.model.checkpoint import LoadedModel
    from mt.model.transformer import shape_of


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", help="RUN/checkpoints/*.ckpt, or model folders")
    parser.add_argument("--output", required=True, help="the model folder to write")
    args = parser.parse_args(argv)

    return console.exit_status("average_checkpoints", lambda: average(args.paths, args.output))


def average(paths: list[str], output: str) -> None:
    """Write the mean as a model folder. ValueError or OSError when there is none."""
    if Path(output).exists():
        raise FileExistsError(f"{output} exists already: name another folder")
    last = checkpoint.load(paths[-1])
    for path in paths[:-1]:
        check_alike(checkpoint.load(path), last)
    last.model.load_state_dict(checkpoint.average(paths))
    if any(Path(path).is_dir() for path in paths):
        hashed = [f"{path}, sha256 {checkpoint.digest(path)[:12]}" for path in paths]
        training = {"mean of models": ", ".join(hashed)}
    else:
        training = {"averaged checkpoints": ", ".join(Path(path).stem for path in paths)}
    if started_from := last.config["training"].get("started from"):
        training["started from"] = started_from
    max_length, languages = last.config["max_length"], last.config.get("languages") or ["en", "de"]
    checkpoint.save(output, last.model, last.tokenizer, max_length, languages, training)
    print(f"{output}: the mean of {len(paths)}")


def check_alike(model: LoadedModel, last: LoadedModel) -> None:
    """ValueError when the weights of the two models do not mean the same."""
    if model.tokenizer.proto != last.tokenizer.proto:
        raise ValueError(f"{model.path}: not the tokenizer of {last.path}")
    if shape_of(model.model.config) != shape_of(last.model.config):
        raise ValueError(f"{model.path}: not the shape of {last.path}")
    if model.config.get("languages") != last.config.get("languages"):
        raise ValueError(f"{model.path}: not the languages of {last.path}")


if __name__ == "__main__":
    sys.exit(main())
