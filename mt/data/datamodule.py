"""The corpus as Lightning wants it: prepared once, then batches for each rank."""

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
from mt.data.tokenizer import Tokenizer, check_dropout
from mt.utils.processes import block_signals, worker_init_fn

log = logging.getLogger("mt")

Sides = tuple[list[np.ndarray], list[np.ndarray]]  # ids of B sources, and of their targets
WORKER_TIMEOUT = 300  # seconds to wait for a worker's batch


class TranslationData(pl.LightningDataModule):
    """Training and validation batches of a source.

    ``max_tokens`` bounds the tokens a side in a batch; ``cleaning`` is for training,
    validation drops only what is empty or too long. ``limit`` takes the first pairs of the
    training split, ``validation_limit`` of the validation split. Whenever a training batch is
    made, ``bpe_dropout`` is the chance of a merge left out (``Tokenizer.sample``), ``noise`` that
    of a source being typed carelessly (``mt.data.augmentation``).

    Raises ValueError when one is no such chance.
    """

    def __init__(
        self,
        source: CorpusReader,
        tokenizer: Tokenizer,
        cleaning: PairFilter,
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
        check_dropout(bpe_dropout)
        augmentation.check_noise(noise)
        self.bpe_dropout, self.noise = bpe_dropout, noise
        self.source, self.tokenizer, self.cleaning = source, tokenizer, cleaning
        self.max_tokens, self.cache_dir, self.seed = max_tokens, cache_dir, seed
        self.workers, self.limit, self.validation_limit = workers, limit, validation_limit
        self.batches_seen = 0  # by this rank over all epochs; a resumed run goes on behind them
        self._reported = False

    def _prepare(self, split: str) -> PreparedCorpus:
        cleaning, limit = self.cleaning, self.limit
        if split != "train":
            cleaning = PairFilter(empty=cleaning.empty, max_length=cleaning.max_length)
            limit = self.validation_limit
        return preprocessing.prepare(
            self.source, split, self.tokenizer, cleaning, self.cache_dir, limit
        )

    def prepare_data(self) -> None:
        if not self._reported:  # Lightning calls this again before it validates
            for split in ("train", "validation"):
                log.info(preprocessing.table(self._prepare(split).report))
        self._reported = True

    def setup(self, stage: str) -> None:
        """Open what is prepared; ValueError when a split has fewer pairs than there are ranks."""
        if not hasattr(self, "validation"):
            self.validation = self._prepare("validation")
            self._validation_sampler = self._sampler(self.validation, shuffle=False)
            self.validation_texts = preprocessing.texts(
                self.source, "validation", self.validation_limit
            )
        if stage == "fit" and not hasattr(self, "train"):
            self.train = self._prepare("train")
            self._train_sampler = self._sampler(self.train, shuffle=True)

    @property
    def epoch_length(self) -> int:
        """Batches an epoch on each rank."""
        return len(self._train_sampler)

    def train_dataloader(self) -> DataLoader[Batch]:
        sampler = self._train_sampler
        sampler.skip(self.batches_seen)
        log.info(
            f"an epoch is {len(sampler):,} batches on each of {sampler.world_size} device(s), "
            f"{sampler.dropped_batches} left over, of {sampler.mean_tokens:,.0f} tokens a side in the "
            f"mean and at most {self.max_tokens:,}"
        )
        changes = None
        if self.bpe_dropout or self.noise:
            changes = _Changes(self.tokenizer, self.bpe_dropout, self.noise, self.seed)
        return self._loader(_Batches(self.train, changes), sampler)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(_Batches(self.validation), self._validation_sampler)

    def _sampler(self, prepared: PreparedCorpus, shuffle: bool) -> TokenBudgetSampler:
        assert self.trainer is not None
        return TokenBudgetSampler(
            *prepared.lengths(),
            max_tokens=self.max_tokens,
            seed=self.seed,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
            shuffle=shuffle,
        )

    def _loader(self, batches: "_Batches", sampler: TokenBudgetSampler) -> DataLoader[Batch]:
        # batch_size=None: the sampler's lists go to the data set whole, which collates them.
        return _Loader(
            batches,
            sampler=sampler,
            batch_size=None,
            num_workers=self.workers,
            worker_init_fn=functools.partial(worker_init_fn, os.getpid()),
            persistent_workers=self.workers > 0,
            # A fork of a process with threads can deadlock: an error, and ckpt=last, end the wait.
            timeout=WORKER_TIMEOUT if self.workers else 0,
            pin_memory=torch.cuda.is_available(),
        )

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
        then = state_dict["max_tokens"] * state_dict["world_size"]
        now = self.max_tokens * self.trainer.world_size
        length, before = self.epoch_length, state_dict.get("epoch_length")
        # The same share of the epochs; versions that did not keep an epoch's length: about that.
        there, here = (before, length) if before else (now, then)
        self.batches_seen = state_dict["batches_seen"] * here // there
        if (pairs := state_dict["pairs"]) != len(self.train):
            log.warning(
                f"the checkpoint is of a run on {pairs:,} pairs, these are {len(self.train):,}: "
                "its place in the epoch means other ones"
            )
        elif then != now or length != before:
            log.warning(
                "max_tokens, the number of devices or how batches are made has changed since the "
                "checkpoint: the current epoch goes on at about the same place, not exactly"
            )


class _Loader(DataLoader[Batch]):
    """Starts its workers while signals wait."""

    def __iter__(self) -> Any:
        with block_signals():
            return super().__iter__()


class _Changes(NamedTuple):
    """What happens to training pairs whenever a batch of them is made."""

    tokenizer: Tokenizer
    bpe_dropout: float
    noise: float
    seed: int

    def __call__(self, sides: Sides, indices: list[int]) -> Sides:
        """The pairs of these numbers, changed."""
        # The batch's own seeds: the same again when a run resumes or other workers make it.
        entropy = np.random.SeedSequence((self.seed, *indices))
        *seeds, careless = entropy.generate_state(3).tolist()
        source, target = sides
        if self.noise:
            source = self._typed(source, random.Random(careless))
        if self.bpe_dropout:
            source, target = (
                self._sample(rows, seed) for rows, seed in zip((source, target), seeds, strict=True)
            )
        return source, target

    def _typed(self, rows: list[np.ndarray], rng: random.Random) -> list[np.ndarray]:
        """A share of the sentences typed carelessly, if pieces can spell that."""
        chosen = [i for i in range(len(rows)) if rng.random() < self.noise]
        texts = self.tokenizer.decode([rows[i].tolist() for i in chosen])
        typed = self.tokenizer.encode([augmentation.add_typing_noise(text, rng) for text in texts])
        rows = list(rows)
        for i, ids in zip(chosen, typed, strict=True):
            if ids and UNK not in ids:
                rows[i] = np.array(ids, rows[i].dtype)
        return rows

    def _sample(self, rows: list[np.ndarray], seed: int) -> list[np.ndarray]:
        """The same sentences in other pieces; one with a character of no piece stays as it is."""
        texts = self.tokenizer.decode([row.tolist() for row in rows])
        sampled = self.tokenizer.sample(texts, self.bpe_dropout, seed)
        return [
            row if UNK in row else np.array(ids, dtype=row.dtype)
            for row, ids in zip(rows, sampled, strict=True)
        ]


class _Batches(Dataset[Batch]):
    def __init__(self, prepared: PreparedCorpus, changes: _Changes | None = None) -> None:
        self.prepared, self.changes = prepared, changes

    def __getitem__(self, indices: list[int]) -> Batch:
        pairs = self.prepared.fetch(indices)
        return collate(*(self.changes(pairs, indices) if self.changes else pairs))
