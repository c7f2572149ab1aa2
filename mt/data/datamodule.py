"""The corpus as a LightningDataModule: prepared once, then served in batches to each rank."""

import functools
import logging
import os
import random
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset

from mt.data import augmentation, preprocessing
from mt.data.batch_sampler import Batch, TokenBudgetSampler, collate
from mt.data.preprocessing import PairFilter, PreparedCorpus
from mt.data.readers import CorpusReader
from mt.data.special_ids import UNK
from mt.data.tokenizer import Tokenizer
from mt.utils.checks import check_number
from mt.utils.processes import block_signals, worker_init_fn

log = logging.getLogger("mt")

Sides = tuple[list[np.ndarray], list[np.ndarray]]  # ids of the source and the target sentences
WORKER_TIMEOUT = 300  # seconds to wait for a worker's batch


class TranslationData(pl.LightningDataModule):
    """Training and validation batches of a corpus.

    ``max_tokens`` bounds each side of a batch. ``pair_filter`` cleans the training split; the
    validation split loses only pairs that are empty or too long. ``limit`` and
    ``validation_limit`` take the first pairs of a split. ``bpe_dropout`` is the probability that
    ``Tokenizer.sample`` skips a merge, ``noise`` the probability that a source sentence gets typing
    noise (``mt.data.augmentation``); both are drawn anew whenever a training batch is made.

    Raises ValueError when ``bpe_dropout`` or ``noise`` is not a probability.
    """

    def __init__(
        self,
        reader: CorpusReader,
        tokenizer: Tokenizer,
        pair_filter: PairFilter,
        max_tokens: int,
        cache_dir: str,
        seed: int,
        workers: int = 0,
        limit: int | None = None,
        validation_limit: int | None = None,
        bpe_dropout: float = 0.0,
        noise: float = 0.0,
    ) -> None:
        super().__init__()
        check_number("bpe_dropout", bpe_dropout, 0, below=1)
        check_number("data.noise", noise, 0, 1)
        self.bpe_dropout, self.noise = bpe_dropout, noise
        self.reader, self.tokenizer, self.pair_filter = reader, tokenizer, pair_filter
        self.max_tokens, self.cache_dir, self.seed = max_tokens, cache_dir, seed
        self.workers, self.limit, self.validation_limit = workers, limit, validation_limit
        self.batches_seen = 0  # by this rank over all epochs; a resumed run continues after them
        self._reported = False

    def _prepare(self, split: str) -> PreparedCorpus:
        pair_filter, limit = self.pair_filter, self.limit
        if split != "train":
            pair_filter = PairFilter(empty=pair_filter.empty, max_length=pair_filter.max_length)
            limit = self.validation_limit
        return preprocessing.prepare(
            self.reader, split, self.tokenizer, pair_filter, self.cache_dir, limit
        )

    def prepare_data(self) -> None:
        if not self._reported:  # Lightning calls this again before it validates
            for split in ("train", "validation"):
                log.info(preprocessing.format_report(self._prepare(split).report))
        self._reported = True

    def setup(self, stage: str) -> None:
        """Open the prepared splits; ValueError when one has fewer pairs than there are ranks."""
        if not hasattr(self, "validation"):
            self.validation = self._prepare("validation")
            self._validation_sampler = self._sampler(self.validation, shuffle=False)
            self.validation_texts = preprocessing.texts(
                self.reader, "validation", self.validation_limit
            )
        if stage == "fit" and not hasattr(self, "train"):
            self.train = self._prepare("train")
            self._train_sampler = self._sampler(self.train, shuffle=True)

    @property
    def epoch_length(self) -> int:
        """Batches of an epoch on each rank."""
        return len(self._train_sampler)

    def train_dataloader(self) -> DataLoader[Batch]:
        sampler = self._train_sampler
        sampler.skip(self.batches_seen)
        log.info(
            f"an epoch is {len(sampler):,} batches on each of {sampler.world_size} device(s), "
            f"{sampler.dropped_batches} left over, of {sampler.mean_tokens:,.0f} tokens a side on "
            f"average and at most {self.max_tokens:,}"
        )
        augment = None
        if self.bpe_dropout or self.noise:
            augment = _Augmentation(self.tokenizer, self.bpe_dropout, self.noise, self.seed)
        return self._loader(_BatchDataset(self.train, augment), sampler)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(_BatchDataset(self.validation), self._validation_sampler)

    def _sampler(self, corpus: PreparedCorpus, shuffle: bool) -> TokenBudgetSampler:
        assert self.trainer is not None
        return TokenBudgetSampler(
            *corpus.lengths(), self.max_tokens, self.seed, self.trainer.global_rank,
            self.trainer.world_size, shuffle,
        )  # fmt: skip

    def _loader(self, dataset: "_BatchDataset", sampler: TokenBudgetSampler) -> DataLoader[Batch]:
        # With batch_size=None the data set receives the sampler's lists whole and collates them.
        return _SignalSafeLoader(
            dataset, sampler=sampler, batch_size=None, pin_memory=torch.cuda.is_available(),
            num_workers=self.workers, persistent_workers=self.workers > 0,
            worker_init_fn=functools.partial(worker_init_fn, os.getpid()),
            # A fork of a process with threads can deadlock: the error lets ckpt=last go on.
            timeout=WORKER_TIMEOUT if self.workers else 0,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        assert self.trainer is not None
        return {
            "batches_seen": self.batches_seen,
            "max_tokens": self.max_tokens,
            "world_size": self.trainer.world_size,
            "pairs": len(self.train),
            "epoch_length": self.epoch_length,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        assert self.trainer is not None
        saved_budget = state_dict["max_tokens"] * state_dict["world_size"]
        budget = self.max_tokens * self.trainer.world_size
        saved_length, length = state_dict.get("epoch_length"), self.epoch_length
        # Keep the share of the epochs. A checkpoint without epoch_length gives it approximately.
        ratio = (length, saved_length) if saved_length else (saved_budget, budget)
        self.batches_seen = state_dict["batches_seen"] * ratio[0] // ratio[1]
        if (pairs := state_dict["pairs"]) != len(self.train):
            log.warning(
                f"the checkpoint comes from a run on {pairs:,} pairs, these are "
                f"{len(self.train):,}: the current epoch resumes among different pairs"
            )
        elif saved_budget != budget or length != saved_length:
            log.warning(
                "max_tokens, the number of devices or the batching has changed since the "
                "checkpoint: the current epoch resumes at about the same place, not exactly"
            )


class _SignalSafeLoader(DataLoader[Batch]):
    """Starts its workers while signals are blocked."""

    def __iter__(self) -> Any:
        with block_signals():
            return super().__iter__()


class _Augmentation(NamedTuple):
    """Changes training pairs at random whenever a batch of them is made."""

    tokenizer: Tokenizer
    bpe_dropout: float
    noise: float
    seed: int

    def __call__(self, sides: Sides, indices: list[int]) -> Sides:
        """The pairs with these indices, changed."""
        # Seeds of the batch itself: a resumed run and any worker make the same batch.
        entropy = np.random.SeedSequence((self.seed, *indices))
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
            if ids and UNK not in ids:
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


class _BatchDataset(Dataset[Batch]):
    """Maps a list of pair numbers to their batch."""

    def __init__(self, corpus: PreparedCorpus, augment: _Augmentation | None = None) -> None:
        self.corpus, self.augment = corpus, augment

    def __getitem__(self, indices: list[int]) -> Batch:
        sides = self.corpus.fetch(indices)
        return collate(*(self.augment(sides, indices) if self.augment else sides))
