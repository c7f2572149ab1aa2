"""A prepared corpus as training reads it.

It needs pyarrow alone: a loader's worker, which imports this module, starts sooner and smaller.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


class PreparedCorpus:
    """Token ids of a cleaned split in a memory-mapped Arrow file, without special ids.

    Pickled, it is the path of its folder: another process maps the same file. Raises OSError when
    a file is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.report: dict[str, Any] = json.loads((folder / "report.json").read_text())
        with pa.memory_map(str(folder / "pairs.arrow")) as file:
            self._blocks = pa.ipc.open_stream(file).read_all().to_batches()
        self._starts = np.cumsum([0, *map(len, self._blocks)])  # of each block, and the end

    def __reduce__(self) -> tuple[type["PreparedCorpus"], tuple[Path]]:
        return PreparedCorpus, (self._folder,)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of each source and each target, with eos: [pairs] each.

        They have a file of their own, because counting ids would read all ids into memory.
        """
        src, tgt = np.load(self._folder / "lengths.npy").astype(np.int32) + 1
        return src, tgt

    def fingerprints(self) -> np.ndarray:
        """A hash of each source, or of the target where the source is empty: [pairs], uint64."""
        fingerprints: np.ndarray = np.load(self._folder / "fingerprints.npy")
        return fingerprints

    def fetch(self, indices: list[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Source and target ids of the pairs with these indices, not to be written to."""
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        places = list(
            zip(numbers.tolist(), (indices - self._starts[numbers]).tolist(), strict=True)
        )
        src, tgt = (
            [self._blocks[block].column(name)[row].values.to_numpy() for block, row in places]
            for name in ("src", "tgt")
        )
        return src, tgt
