"""Rewrite a model folder in fewer bytes: its weights in 16 or 8 bits, or in 32 again.

python scripts/ship_model.py RUN/model SMALL --storage int8
python scripts/ship_model.py RUN/model mt/everyday --card mt/everyday/README.md   # the bundled one
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from mt.utils import console

with console.exit_at_interrupt():
    import torch

    from mt.evaluation.report import write_json
    from mt.inference.options import search_defaults
    from mt.model import checkpoint, storage
    from mt.utils.json_io import read_json, read_regular

MAX_BYTES = 20_000_000  # of the bundled model's weights and tokenizer, so that a clone stays small


def read_card(file: Path) -> str:
    """The text of the card. Raises OSError or ValueError that names the file."""
    try:
        card = read_regular(file).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file}: not UTF-8") from None
    if not card.strip():
        raise ValueError(f"{file}: an empty card")
    return card


def is_exact(model: checkpoint.LoadedModel, kind: str) -> bool:
    """Whether the storage holds the weights of a model as they are."""
    if kind == "int8":
        return model.config.get("storage") == "int8"
    weights = model.model.state_dict().values()
    return kind == "float32" or all(torch.equal(w, w.half().float()) for w in weights)


def ship(args: argparse.Namespace) -> None:
    """Write the folder. Raises OSError or ValueError for what cannot be shipped."""
    options = {"beam_size": args.beam_size, "alpha": args.alpha}
    search = {name: value for name, value in options.items() if value is not None}
    search_defaults(search)  # raises an error for wrong values
    own = args.model / "README.md"
    card = args.card or (own if own.is_file() else None)
    text = card and read_card(card)
    if args.output.exists() and not (args.output / "model.safetensors").is_file():
        raise FileExistsError(f"{args.output} exists and is no model folder: not replaced")
    loaded = checkpoint.load(args.model)
    exact = is_exact(loaded, args.storage)
    if args.output.resolve() == args.model.resolve() and not exact:
        raise ValueError(
            f"{args.output}: its weights would lose digits in {args.storage}, and there is no "
            "copy of them: name another output"
        )
    training = dict(loaded.config.get("training") or {})
    if args.card:
        # They name paths; the card has the recipe.
        for name in ("command", "started from", "mean of models"):
            training.pop(name, None)
    try:
        stored = storage.pack(loaded.model.state_dict(), args.storage)
    except ValueError as error:
        raise ValueError(f"{args.model}: {error}") from None
    size = sum(w.nbytes for w in stored.values()) + len(loaded.tokenizer.proto)
    bundled = args.output.resolve() == checkpoint.BUNDLED_MODEL.resolve()
    if bundled and size > MAX_BYTES:
        raise ValueError(f"{args.model}: {size:,} bytes in {args.storage}, more than {MAX_BYTES:,}")
    checkpoint.save(
        args.output,
        loaded.model,
        loaded.tokenizer,
        loaded.config["max_length"],
        loaded.config.get("languages") or ["en", "de"],
        training,
        text,
        {**(loaded.config.get("search") or {}), **search},
        args.storage,
    )
    if exact and (calibration := loaded.config.get("confidence")):
        file = args.output / "config.json"
        write_json(file, read_json(file) | {"confidence": calibration})
    print(f"{args.output}: {size / 1e6:.1f} MB of weights and tokenizer")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("model", type=Path, help="model folder or checkpoint")
    add("output", type=Path, help="the folder to write, or to replace")
    add("--storage", default="float16", choices=storage.STORAGES,
        help="of the weights (default: float16)")  # fmt: skip
    add("--card", type=Path, help="the file that becomes its README.md (default: the model's own)")
    add("--beam-size", type=int, help="the beam size that suits it best, if not 4")
    add("--alpha", type=float, help="the length penalty that suits it best, if not 0.6")
    args = parser.parse_args(argv)
    return console.exit_status("ship_model", partial(ship, args))


if __name__ == "__main__":
    sys.exit(main())
