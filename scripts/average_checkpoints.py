"""Average training checkpoints into a model folder (6.1 of the paper).

python scripts/average_checkpoints.py RUN/checkpoints/step-*.ckpt --output FOLDER
"""

import argparse
import sys
from pathlib import Path

from mt import checkpoint, errors


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Average checkpoints into a model folder.")
    parser.add_argument("checkpoints", nargs="+", help="RUN/checkpoints/*.ckpt of one run")
    parser.add_argument("--output", required=True, help="the model folder to write")
    args = parser.parse_args(argv)

    def run() -> None:
        if Path(args.output).exists():
            raise FileExistsError(f"{args.output} exists already")
        loaded = checkpoint.load(args.checkpoints[-1])
        loaded.model.load_state_dict(checkpoint.average(args.checkpoints))
        names = ", ".join(Path(p).stem for p in args.checkpoints)
        about = {"averaged checkpoints": names}
        if started_from := loaded.config["training"].get("started from"):
            about["started from"] = started_from
        checkpoint.save(
            args.output,
            loaded.model,
            loaded.tokenizer,
            loaded.config["max_length"],
            loaded.config["languages"],
            about,
        )
        print(f"{args.output}: the mean of {len(args.checkpoints)} checkpoints")

    return errors.status("average_checkpoints", run)


if __name__ == "__main__":
    sys.exit(main())
