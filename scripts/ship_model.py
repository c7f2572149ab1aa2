"""Make the bundled model from a trained model folder: 16 bits a weight, and a card of its own.

python scripts/ship_model.py RUN/model mt/everyday --card mt/everyday/README.md
"""

import argparse
import sys
from pathlib import Path

from mt.utils import console

with console.exit_at_interrupt():
    import torch

    from mt.inference.options import search_defaults
    from mt.model import checkpoint
    from mt.utils.json_io import read_regular

MAX_BYTES = 20_000_000  # of weights, so that a clone stays small


def read_card(file: Path) -> str:
    """The text of the card. Raises OSError or ValueError that names the file."""
    try:
        card = read_regular(file).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file}: not UTF-8") from None
    if not card.strip():
        raise ValueError(f"{file}: an empty card")
    return card


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
        search_defaults(search)  # raises an error for wrong values
        card = read_card(args.card)
        if args.output.exists() and not (args.output / "model.safetensors").is_file():
            raise FileExistsError(f"{args.output} exists and is no model folder: not replaced")
        loaded = checkpoint.load(args.model)
        training = dict(loaded.config.get("training") or {})
        for name in ("command", "started from"):  # they name paths; the card has the recipe
            training.pop(name, None)
        if (size := 2 * sum(p.numel() for p in loaded.model.parameters())) > MAX_BYTES:
            raise ValueError(f"{args.model}: {size:,} bytes in 16 bits, more than {MAX_BYTES:,}")
        loaded.model.to(torch.float16)
        if not all(weight.isfinite().all() for weight in loaded.model.parameters()):
            raise ValueError(f"{args.model}: has a weight that is too large for 16 bits")
        checkpoint.save(
            args.output,
            loaded.model,
            loaded.tokenizer,
            loaded.config["max_length"],
            loaded.config.get("languages") or ["en", "de"],
            training,
            card,
            {**(loaded.config.get("search") or {}), **search},
        )
        print(f"{args.output}: {size / 1e6:.1f} MB of weights")

    return console.exit_status("ship_model", run)


if __name__ == "__main__":
    sys.exit(main())
