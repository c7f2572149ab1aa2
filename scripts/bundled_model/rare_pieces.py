"""Let a model's tokenizer spell rare pieces in shorter ones, as Sennrich et al. (2017) advise.

python scripts/bundled_model/rare_pieces.py MODEL data/train.tsv --least 100 --output FOLDER

A piece that training has hardly seen, a name above all, is one of which the model knows nothing:
it translates it as another one. Spelt in frequent pieces, the name is copied. The pieces keep their
ids and the model its weights; nothing is trained (arXiv:1708.00726, 3.2: vocabulary threshold).
"""

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np

from mt.utils import console

with console.exit_at_interrupt():
    from sentencepiece import sentencepiece_model_pb2

    from mt.data.tokenizer import Tokenizer
    from mt.model import checkpoint
    from mt.utils.checks import check_int
    from mt.utils.line_io import read_lines

NORMAL, UNUSED = 1, 5  # types of pieces, in SentencePiece's sentencepiece_model.proto
SPACE = "▁"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="model folder or checkpoint")
    parser.add_argument("text", type=Path, help="what it was trained on: lines SOURCE, tab, TARGET")
    parser.add_argument("--least", type=int, default=100, help="occurrences (default 100)")
    parser.add_argument("--output", type=Path, required=True, help="the model folder to write")
    args = parser.parse_args(argv)

    def run() -> None:
        check_int("least", args.least)
        if args.output.exists():
            raise FileExistsError(f"{args.output} exists already: name another folder")
        loaded = checkpoint.load(args.model)
        counts = count(loaded.tokenizer, args.text)
        proto, number = without_rare(loaded.tokenizer.proto, counts, args.least)
        config = loaded.config
        checkpoint.save(
            args.output,
            loaded.model,
            Tokenizer(proto),
            config["max_length"],
            config["languages"],
            config["training"],
            search=config.get("search"),
        )
        print(f"{args.output}: {number:,} pieces of less than {args.least:,} occurrences are spelt")

    return console.exit_status("rare_pieces", run)


def count(tokenizer: Tokenizer, text: Path) -> np.ndarray:
    """How often each piece comes in the sources and targets, [vocab_size]."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    lines = read_lines(text)
    while block := list(itertools.islice(lines, 20_000)):
        sides = [side for line in block for side in line.split("\t")[:2]]
        ids = itertools.chain.from_iterable(tokenizer.encode(sides))
        counts += np.bincount(np.fromiter(ids, np.int64), minlength=len(counts))
    return counts


def without_rare(proto: bytes, counts: np.ndarray, least: int) -> tuple[bytes, int]:
    """A tokenizer that does not use rare pieces of more than one character, and their number."""
    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    rare = [
        piece
        for piece, number in zip(model.pieces, counts, strict=True)
        if number < least and piece.type == NORMAL and len(piece.piece.removeprefix(SPACE)) > 1
    ]
    for piece in rare:
        piece.type = UNUSED
    return model.SerializeToString(), len(rare)


if __name__ == "__main__":
    sys.exit(main())
