"""A trained model folder as the one that comes with the package: 16 bits a weight, its own card.

python scripts/ship_model.py RUN/model mt/everyday --card mt/everyday/README.md
"""

import argparse
import sys
from pathlib import Path

import torch

from mt.inference.options import SearchOptions
from mt.model import checkpoint
from mt.utils import console

MOST = 20_000_000  # bytes of weights that a clone should have to fetch


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make a model folder small enough to come along.")
    parser.add_argument("model", help="model folder of a run")
    parser.add_argument("output", type=Path, help="the folder to write, or to replace")
    parser.add_argument("--card", type=Path, required=True, help="what becomes its README.md")
    parser.add_argument("--beam-size", type=int, help="that suits it best, if not 4")
    parser.add_argument("--alpha", type=float, help="the same, if not 0.6")
    args = parser.parse_args(argv)
    given = {"beam_size": args.beam_size, "alpha": args.alpha}
    search = {name: value for name, value in given.items() if value is not None}

    def run() -> None:
        SearchOptions(**search)  # wrong ones show at once
        card = args.card.read_text("utf-8")
        if not card.strip():
            raise ValueError(f"{args.card}: an empty card")
        loaded = checkpoint.load(args.model)
        training = dict(loaded.config.get("training") or {})
        for name in ("command", "started from"):  # with their paths: the card has the recipe
            training.pop(name, None)
        if (size := 2 * sum(p.numel() for p in loaded.model.parameters())) > MOST:
            raise ValueError(f"{args.model}: {size:,} bytes in 16 bits, more than {MOST:,}")
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

    return console.status("ship_model", run)


if __name__ == "__main__":
    sys.exit(main())
