"""A corpus as a data set of batches, which a loader's worker makes.

A worker imports this module, so that it must load no more than batches need.
"""

import random
from typing import NamedTuple

import numpy as np
from torch.utils.data import Dataset

from mt.data import augmentation
from mt.data.batch_sampler import Batch, Draw, collate
from mt.data.prepared_corpus import PreparedCorpus
from mt.data.special_ids import UNK
from mt.data.tokenizer import Tokenizer

FEW = 5  # pairs of a batch
Sides = tuple[list[np.ndarray], list[np.ndarray]]  # ids of the source and the target sentences


class Augmentation(NamedTuple):
    """Changes training pairs at random whenever a batch of them is made."""

    tokenizer: Tokenizer
    bpe_dropout: float
    noise: float
    seed: int

    def __call__(self, sides: Sides, draw: Draw) -> Sides:
        """The pairs that were drawn, changed: in another way in each epoch."""
        # Seeds of the batch itself: a resumed run and any worker make the same batch. Many pairs
        # come in another order in every epoch, few may come again as they were.
        numbers = draw.indices if len(draw.indices) > FEW else (draw.epoch, *draw.indices)
        entropy = np.random.SeedSequence((self.seed, *numbers))
        *bpe_seeds, noise_seed = entropy.generate_state(3).tolist()
        source, target = sides
        if self.noise:
            source = self._add_noise(source, random.Random(noise_seed))
        if self.bpe_dropout:
            source, target = map(self._resegment, (source, target), bpe_seeds)
        return source, target

    def _add_noise(self, rows: list[np.ndarray], rng: random.Random) -> list[np.ndarray]:
        """Typing noise in a share of the sentences; one that pieces cannot spell stays as it is."""
        chosen = [i for i in range(len(rows)) if rng.random() < self.noise]
        texts = self.tokenizer.decode([rows[i].tolist() for i in chosen])
        noisy = self.tokenizer.encode([augmentation.add_typing_noise(text, rng) for text in texts])
        rows = list(rows)
        for i, ids in zip(chosen, noisy, strict=True):
            if ids and UNK not in ids and UNK not in rows[i]:
                rows[i] = np.array(ids, rows[i].dtype)
        return rows

    def _resegment(self, rows: list[np.ndarray], seed: int) -> list[np.ndarray]:
        """The same sentences in different pieces; one with an unknown character stays as it is."""
        texts = self.tokenizer.decode([row.tolist() for row in rows])
        sampled = self.tokenizer.sample(texts, self.bpe_dropout, seed)
        return [
            row if UNK in row else np.array(ids, dtype=row.dtype)
            for row, ids in zip(rows, sampled, strict=True)
        ]


class BatchDataset(Dataset[Batch]):
    """Maps the numbers of pairs to their batch."""

    def __init__(self, corpus: PreparedCorpus, augment: Augmentation | None = None) -> None:
        self.corpus, self.augment = corpus, augment

    def __getitem__(self, draw: Draw) -> Batch:
        sides = self.corpus.fetch(draw.indices)
        return collate(*(self.augment(sides, draw) if self.augment else sides))
