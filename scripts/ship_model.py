"""Make the bundled model from a trained model folder: 16 bits a weight, and a card of its own.

python scripts/ship_model.py RUN/model mt/everyday --card mt/everyday/README.md
"""

import argparse
import sys
from pathlib import Path

import torch

from mt.inference.options import SearchOptions
from mt.model import checkpoint
from mt.utils import console

MAX_BYTES = 20_000_000  # of weights, so that a clone stays small


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("model", help="model folder of a run")
    add("output", type=Path, help="the folder to write, or to replace")
    add("--card", type=Path, required=True, help="the file that becomes its README.md")
    add("--beam-size", type=int, help="the beam size that suits it best, if not 4")
    add("--alpha", type=float, help="the length penalty that suits it best, if not 0.6")
    args = parser.parse_args(argv)
    options = {"beam_size": args.beam_size, "alpha": args.alpha}
    search = {name: value for name, value in options.items() if value is not None}

    def run() -> None:
        SearchOptions(**search)  # raises an error for wrong values
        card = args.card.read_text("utf-8")
        if not card.strip():
            raise ValueError(f"{args.card}: an empty card")
        loaded = checkpoint.load(args.model)
        training = dict(loaded.config.get("training") or {})
        for name in ("command", "started from"):  # they name paths; the card has the recipe
            training.pop(name, None)
        if (size := 2 * sum(p.numel() for p in loaded.model.parameters())) > MAX_BYTES:
            raise ValueError(f"{args.model}: {size:,} bytes in 16 bits, more than {MAX_BYTES:,}")
        checkpoint.save(
            args.output,
            loaded.model.to(torch.float16),
            loaded.tokenizer,
            loaded.config["max_length"],
            loaded.config.get("languages") or ["en", "de"],
            training,
            card,
            {**loaded.config.get("search", {}), **search},
        )
        print(f"{args.output}: {size / 1e6:.1f} MB of weights")

    return console.exit_status("ship_model", run)


if __name__ == "__main__":
    sys.exit(main())
