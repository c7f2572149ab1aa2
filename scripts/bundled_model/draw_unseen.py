"""Draw the vectors of characters anew that no training text had.

python scripts/bundled_model/draw_unseen.py RUN/model OUTPUT

A vocabulary with byte fallback has a piece for each letter of Latin script and for common signs.
Those that never come in training all end with one vector, because they share every gradient: each
softmax makes them less likely. The model cannot tell them apart then, and texts that have them
later teach it slowly. With vectors like those of other pieces it copies most of them at once, and a
short training (init_from=OUTPUT) teaches the rest.
"""

import argparse
import sys
from pathlib import Path

from mt.utils import console

with console.exit_at_interrupt():
    import torch
    from torch import Tensor
    from torch.distributions import MultivariateNormal

    from mt.model import checkpoint

NEVER = "<0xC0>"  # a byte that no text in UTF-8 has
ALIKE = 0.95  # cosine; of vectors that were learned it is 0.7 at most


def unseen(pieces: list[str], vectors: Tensor) -> list[int]:
    """The ids of single characters whose vectors [V, d_model] are like that of NEVER.

    Raises ValueError for a vocabulary without bytes.
    """
    if NEVER not in pieces:
        raise ValueError("a vocabulary without bytes: it has no characters that training lacks")
    directions = torch.nn.functional.normalize(vectors, dim=1)
    alike = (directions @ directions[pieces.index(NEVER)] >= ALIKE).tolist()
    single = (len(piece.lstrip("▁")) == 1 for piece in pieces)
    return [i for i, found in enumerate(zip(alike, single, strict=True)) if all(found)]


def draw(vectors: Tensor, ids: list[int], seed: int) -> None:
    """Replace the rows ``ids`` by vectors with the mean and covariance of the others."""
    others = torch.ones(len(vectors), dtype=torch.bool)
    others[ids] = False
    learned = vectors[others].double()
    tiny = 1e-8 * torch.eye(vectors.shape[1], dtype=torch.double)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        drawn = MultivariateNormal(learned.mean(dim=0), learned.T.cov() + tiny).sample([len(ids)])
    vectors[ids] = drawn.to(vectors)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="model folder or checkpoint")
    parser.add_argument("output", type=Path, help="the model folder to write")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)

    def run() -> None:
        if args.output.exists():
            raise FileExistsError(f"{args.output} exists already: name another folder")
        loaded = checkpoint.load(args.model)
        pieces = loaded.tokenizer.all_pieces()
        vectors = loaded.model.embedding.weight.data
        ids = unseen(pieces, vectors)
        draw(vectors, ids, args.seed)
        checkpoint.save(
            args.output, loaded.model, loaded.tokenizer, loaded.config["max_length"],
            loaded.config.get("languages") or ["en", "de"], loaded.config.get("training") or {},
        )  # fmt: skip
        print(f"{len(ids)} drawn anew: {' '.join(pieces[i] for i in ids)}")

    return console.exit_status("draw_unseen", run)


if __name__ == "__main__":
    sys.exit(main())
