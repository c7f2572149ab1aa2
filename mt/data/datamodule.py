"""The corpus as a LightningDataModule: prepared once, then served in batches to each rank."""

import functools
import hashlib
import logging
import os
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from mt.data import preprocessing
from mt.data.batch_dataset import Augmentation, BatchDataset
from mt.data.batch_sampler import Batch, TokenBudgetSampler
from mt.data.corpus_reader import CorpusReader
from mt.data.prepared_corpus import PreparedCorpus
from mt.data.preprocessing import PairFilter
from mt.data.tokenizer import Tokenizer
from mt.utils.checks import check_number
from mt.utils.processes import starting_workers, worker_init_fn

log = logging.getLogger("mt")


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
            corpora = []
            for split in ("train", "validation"):
                corpora.append(self._prepare(split))
                log.info(preprocessing.format_report(corpora[-1].report))
            train, validation = corpora
            num_known = np.isin(validation.fingerprints(), train.fingerprints()).sum()
            if num_known:
                log.warning(
                    f"{num_known:,} of the {len(validation):,} source sentences of validation are "
                    "in the training data as well: the scores may be better than those of new text"
                )
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
        assert self.trainer is not None
        log.info(
            f"an epoch is {len(sampler):,} batches on each of {sampler.world_size} device(s), "
            f"{sampler.dropped_batches} left over, of {sampler.mean_tokens:,.0f} tokens a side on "
            f"average and at most {self.max_tokens:,}; a step takes "
            f"{self.trainer.accumulate_grad_batches:,} of them on each"
        )
        if sampler.num_oversize:
            log.warning(
                f"{sampler.num_oversize:,} pairs are longer than that, and each is a batch of its "
                "own: raise data.tokens_per_step and data.max_tokens"
            )
        augment = None
        if self.bpe_dropout or self.noise:
            augment = Augmentation(self.tokenizer, self.bpe_dropout, self.noise, self.seed)
        return self._loader(BatchDataset(self.train, augment), sampler, self.workers)

    def val_dataloader(self) -> DataLoader[Batch]:
        # Without workers: they would hold memory all along, for work of milliseconds.
        return self._loader(BatchDataset(self.validation), self._validation_sampler, workers=0)

    def _sampler(self, corpus: PreparedCorpus, shuffle: bool) -> TokenBudgetSampler:
        assert self.trainer is not None
        return TokenBudgetSampler(
            *corpus.lengths(), self.max_tokens, self.seed, self.trainer.global_rank,
            self.trainer.world_size, shuffle,
        )  # fmt: skip

    def _loader(
        self, dataset: BatchDataset, sampler: TokenBudgetSampler, workers: int
    ) -> DataLoader[Batch]:
        # With batch_size=None the data set receives the sampler's lists whole and collates them.
        # Workers are spawned: a fork of a process with threads, as training is, can deadlock.
        return _Loader(
            dataset, sampler=sampler, batch_size=None, pin_memory=torch.cuda.is_available(),
            num_workers=workers, persistent_workers=workers > 0,
            multiprocessing_context="spawn" if workers else None,
            worker_init_fn=functools.partial(worker_init_fn, os.getpid()),
        )  # fmt: skip

    @functools.cached_property
    def _hash_of_lengths(self) -> str:
        """Of the lengths of all training pairs, in order: other pairs hardly have the same."""
        hashed = hashlib.sha256()
        for lengths in self.train.lengths():
            hashed.update(np.asarray(lengths, dtype="<i8").tobytes())
        return hashed.hexdigest()

    def state_dict(self) -> dict[str, Any]:
        assert self.trainer is not None
        return {
            "batches_seen": self.batches_seen,
            "max_tokens": self.max_tokens,
            "world_size": self.trainer.world_size,
            "pairs": len(self.train),
            "lengths": self._hash_of_lengths,
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
        elif state_dict.get("lengths", self._hash_of_lengths) != self._hash_of_lengths:
            log.warning(
                "the training pairs or their order have changed since the checkpoint: the current "
                "epoch resumes among different pairs"
            )
        elif saved_budget != budget or length != saved_length:
            log.warning(
                "max_tokens, the number of devices or the batching has changed since the "
                "checkpoint: the current epoch resumes at about the same place, not exactly"
            )


class _Loader(DataLoader[Batch]):
    """Starts its workers safe from signals."""

    def __iter__(self) -> Any:
        with starting_workers() if self.num_workers else nullcontext():
            return super().__iter__()
