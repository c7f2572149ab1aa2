"""The corpus as Lightning wants it: prepared once, then batches for each rank."""

import functools
import logging
import os
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset

from mt import corpus
from mt.batching import Batch, TokenBudgetSampler, collate
from mt.corpus import Cleaning, PreparedCorpus
from mt.processes import begin_worker
from mt.sources import Source
from mt.tokenizer import UNK, Tokenizer, check_dropout

log = logging.getLogger("mt")


PATIENCE = 300  # seconds to wait for a worker's batch


class TranslationData(pl.LightningDataModule):
    """Training and validation batches of a source.

    ``max_tokens`` bounds the padded tokens a side in a batch; ``cleaning`` is for training,
    validation drops only what is empty or too long. ``limit`` takes the first pairs of the
    training split, ``validation_limit`` of the validation split. ``bpe_dropout`` is the chance of
    a merge left out whenever a training batch is made (``Tokenizer.sample``).

    Raises ValueError when that is no such chance.
    """

    def __init__(
        self,
        source: Source,
        tokenizer: Tokenizer,
        cleaning: Cleaning,
        max_tokens: int,
        cache_dir: str,
        seed: int,
        workers: int = 0,
        limit: int | None = None,
        validation_limit: int | None = None,
        bpe_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_dropout(bpe_dropout)
        self.bpe_dropout = bpe_dropout
        self.source, self.tokenizer, self.cleaning = source, tokenizer, cleaning
        self.max_tokens, self.cache_dir, self.seed = max_tokens, cache_dir, seed
        self.workers, self.limit, self.validation_limit = workers, limit, validation_limit
        self.batches_seen = 0  # by this rank over all epochs; a resumed run goes on behind them
        self._reported = False

    def _prepare(self, split: str) -> PreparedCorpus:
        cleaning, limit = self.cleaning, self.limit
        if split != "train":
            cleaning = Cleaning(empty=cleaning.empty, max_length=cleaning.max_length)
            limit = self.validation_limit
        return corpus.prepare(self.source, split, self.tokenizer, cleaning, self.cache_dir, limit)

    def prepare_data(self) -> None:
        if not self._reported:  # Lightning calls this again before it validates
            for split in ("train", "validation"):
                log.info(corpus.table(self._prepare(split).report))
        self._reported = True

    def setup(self, stage: str) -> None:
        """Open what is prepared; ValueError when a split has fewer pairs than there are ranks."""
        if not hasattr(self, "validation"):
            self.validation = self._prepare("validation")
            self._validation_sampler = self._sampler(self.validation, shuffle=False)
            self.validation_texts = corpus.texts(self.source, "validation", self.validation_limit)
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
            f"an epoch is {len(sampler):,} batches of at most {self.max_tokens:,} tokens a side "
            f"on each of {sampler.world_size} device(s), {sampler.left_over} batch(es) left over"
        )
        sampling = (self.tokenizer, self.bpe_dropout, self.seed) if self.bpe_dropout else None
        return self._loader(_Batches(self.train, sampling), sampler)

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
        return DataLoader(
            batches,
            sampler=sampler,
            batch_size=None,
            num_workers=self.workers,
            worker_init_fn=functools.partial(begin_worker, os.getpid()),
            persistent_workers=self.workers > 0,
            # A fork of a process with threads can deadlock: an error, and ckpt=last, end the wait.
            timeout=PATIENCE if self.workers else 0,
            pin_memory=torch.cuda.is_available(),
        )

    def state_dict(self) -> dict[str, Any]:
        assert self.trainer is not None
        return {
            "batches_seen": self.batches_seen,
            "max_tokens": self.max_tokens,
            "world_size": self.trainer.world_size,
            "pairs": len(self.train),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        assert self.trainer is not None
        then = state_dict["max_tokens"] * state_dict["world_size"]
        now = self.max_tokens * self.trainer.world_size
        self.batches_seen = state_dict["batches_seen"] * then // now
        if (pairs := state_dict["pairs"]) != len(self.train):
            log.warning(
                f"the checkpoint is of a run on {pairs:,} pairs, these are {len(self.train):,}: "
                "its place in the epoch means other ones"
            )
        if then != now:
            log.warning(
                "max_tokens or the number of devices has changed since the checkpoint: the "
                "current epoch goes on at about the same place, not exactly"
            )


class _Batches(Dataset[Batch]):
    """``sampling``: tokenizer, the chance of a merge left out, seed; None: no sampling."""

    def __init__(
        self, prepared: PreparedCorpus, sampling: tuple[Tokenizer, float, int] | None = None
    ) -> None:
        self.prepared, self.sampling = prepared, sampling

    def __getitem__(self, indices: list[int]) -> Batch:
        src, tgt = self.prepared.fetch(indices)
        if self.sampling is None:
            return collate(src, tgt)
        # The batch's own seed: the same again when a run resumes or other workers make it.
        entropy = np.random.SeedSequence((self.sampling[2], *indices))
        seeds = entropy.generate_state(2).tolist()
        return collate(self._sample(src, seeds[0]), self._sample(tgt, seeds[1]))

    def _sample(self, rows: list[np.ndarray], seed: int) -> list[np.ndarray]:
        """The same sentences in other pieces; one with a character of no piece stays as it is."""
        assert self.sampling is not None
        tokenizer, dropout, _ = self.sampling
        texts = tokenizer.decode([row.tolist() for row in rows])
        sampled = tokenizer.sample(texts, dropout, seed)
        return [
            row if UNK in row else np.array(ids, dtype=row.dtype)
            for row, ids in zip(rows, sampled, strict=True)
        ]
