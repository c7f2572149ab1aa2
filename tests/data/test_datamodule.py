"""Batches for Lightning: what they hold, which rank gets which, and where a resumed run starts."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mt.data import datamodule, phrasebook
from mt.data.batch_sampler import Batch
from mt.data.datamodule import TranslationData, _Batches, _Changes
from mt.data.preprocessing import PairFilter
from mt.data.readers import PhrasebookReader
from mt.data.special_ids import EOS
from mt.data.tokenizer import Tokenizer
from mt.utils.processes import worker_init_fn


def data(bpe: Tokenizer, folder: Path, rank: int = 0, world_size: int = 1, **changes: Any) -> Any:
    options: dict[str, Any] = {
        "max_tokens": 200,
        "cache_dir": str(folder / "cache"),
        "seed": 1,
        "limit": 150,
        "validation_limit": 40,
        **changes,
    }
    module = TranslationData(PhrasebookReader(), bpe, PairFilter(), **options)
    module.trainer = SimpleNamespace(global_rank=rank, world_size=world_size)  # type: ignore[assignment]
    return module


def sentences(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(row[row != 0].tolist()) for row in batch.src.padded()]


def test_an_epoch_gives_every_training_pair_once(bpe: Tokenizer, tmp_path: Path) -> None:
    module = data(bpe, tmp_path)
    module.setup("fit")
    batches = list(module.train_dataloader())
    found = sorted(row for batch in batches for row in sentences(batch))
    texts = [source for source, _ in phrasebook.load("train")[:150]]
    assert found == sorted((*ids, EOS) for ids in bpe.encode(texts))
    for batch in batches:
        for side in (batch.src, batch.tgt):
            assert side.tokens <= 200
            assert side.tokens == (side.ids != 0).sum()
        assert batch.tgt.tokens == len(batch.labels)


def test_two_workers_give_the_batches_of_none(bpe: Tokenizer, tmp_path: Path) -> None:
    found = []
    for workers in (0, 2):
        module = data(bpe, tmp_path, workers=workers)
        module.setup("fit")
        found.append([batch.src.ids for batch in module.train_dataloader()])
    assert len(found[0]) == len(found[1])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_signal_before_a_worker_has_begun_does_not_end_it(
    bpe: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one for the whole process group may come: a loader without its worker fails."""

    def begin_late(parent: int, worker: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        worker_init_fn(parent, worker)
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())

    monkeypatch.setattr(datamodule, "worker_init_fn", begin_late)
    module = data(bpe, tmp_path, workers=2)
    module.setup("fit")
    assert len(list(module.train_dataloader())) == len(module._sampler(module.train, shuffle=True))
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_bpe_dropout_splits_the_same_sentences_anew_in_training_alone(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    def batches(dropout: float, epochs: int = 1, workers: int = 0) -> list[Batch]:
        module = data(bpe, tmp_path, bpe_dropout=dropout, workers=workers)
        module.setup("fit")
        loader = module.train_dataloader()
        return [batch for _ in range(epochs) for batch in loader]

    def texts(batches: list[Batch]) -> list[str]:
        rows = [row for batch in batches for row in batch.src.padded().tolist()]
        rows += [row for batch in batches for row in batch.tgt.padded().tolist()]
        return sorted(bpe.decode(rows))

    plain, sampled = batches(0.0), batches(0.3, epochs=2)
    once, twice = sampled[: len(plain)], sampled[len(plain) :]
    assert texts(once) == texts(twice) == texts(plain)
    tokens = [sum(batch.src.tokens for batch in some) for some in (plain, once, twice)]
    assert min(tokens[1:]) > 1.2 * tokens[0]
    pieces = [sorted(row for batch in some for row in sentences(batch)) for some in (once, twice)]
    assert pieces[0] != pieces[1]  # other pieces in another epoch
    assert all(batch.tgt.tokens == len(batch.labels) for batch in once)
    again = batches(0.3, workers=2)
    assert all(torch.equal(a.src.ids, b.src.ids) for a, b in zip(once, again, strict=True))
    assert all(torch.equal(a.labels, b.labels) for a, b in zip(once, again, strict=True))
    module = data(bpe, tmp_path, bpe_dropout=0.3)
    module.setup("fit")
    rows = [row for batch in module.val_dataloader() for row in sentences(batch)]
    validation = [source for source, _ in phrasebook.load("validation")[:40]]
    assert sorted(rows) == sorted((*ids, EOS) for ids in bpe.encode(validation))


def test_a_sentence_with_a_character_of_no_piece_stays_as_it_is(bpe: Tokenizer) -> None:
    rows = [np.array(ids, np.uint16) for ids in bpe.encode(["Where is the 犬?", "Where is it?"])]
    prepared: Any = SimpleNamespace(fetch=lambda _: (rows, rows))
    batches = _Batches(prepared, _Changes(bpe, bpe_dropout=0.9, noise=0.0, seed=1))
    found = batches[[0, 1]].src.padded()
    whole, sampled = sorted(found.tolist(), key=lambda row: row[: len(rows[0])] != rows[0].tolist())
    assert whole[: len(rows[0])] == rows[0].tolist()
    assert sum(i != 0 for i in sampled) > len(rows[1]) + 1


@pytest.mark.parametrize("wrong", [1, -0.1, "much"])
def test_bpe_dropout_is_a_probability(bpe: Tokenizer, tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="bpe_dropout="):
        data(bpe, tmp_path, bpe_dropout=wrong)


def test_a_share_of_the_training_sentences_is_typed_carelessly_other_ones_every_epoch(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    def epochs(noise: float, workers: int = 0) -> list[list[tuple[str, str]]]:
        module = data(bpe, tmp_path, noise=noise, workers=workers)
        module.setup("fit")
        loader = module.train_dataloader()
        return [[pair for batch in loader for pair in texts(batch)] for _ in range(2)]

    def texts(batch: Batch) -> list[tuple[str, str]]:
        sides = (bpe.decode(side.padded().tolist()) for side in (batch.src, batch.tgt))
        return list(zip(*sides, strict=True))

    neat, careless = epochs(0.0)[0], epochs(0.4)
    share = [len(set(epoch) - set(neat)) / len(neat) for epoch in careless]
    assert all(0.2 < changed < 0.45 for changed in share)
    assert sorted(careless[0]) != sorted(careless[1])
    for epoch in careless:  # translations are what they were
        assert sorted(target for _, target in epoch) == sorted(target for _, target in neat)
    assert epochs(0.4, workers=2)[0] == careless[0]
    module = data(bpe, tmp_path, noise=1.0)
    module.setup("fit")
    rows = [row for batch in module.val_dataloader() for row in sentences(batch)]
    validation = [source for source, _ in phrasebook.load("validation")[:40]]
    assert sorted(rows) == sorted((*ids, EOS) for ids in bpe.encode(validation))


def test_ranks_share_the_epoch_and_the_validation(bpe: Tokenizer, tmp_path: Path) -> None:
    shares, validation = [], []
    for rank in (0, 1):
        module = data(bpe, tmp_path, rank, 2)
        module.setup("fit")
        shares.append([row for batch in module.train_dataloader() for row in sentences(batch)])
        validation += [row for batch in module.val_dataloader() for row in sentences(batch)]
    assert not set(shares[0]) & set(shares[1])
    assert len(validation) == 40


def test_a_resumed_run_goes_on_behind_the_batches_it_has_seen(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    first = data(bpe, tmp_path)
    first.setup("fit")
    batches = [batch.src.ids for batch in first.train_dataloader()]
    first.batches_seen = 3
    resumed = data(bpe, tmp_path)
    resumed.setup("fit")
    resumed.load_state_dict(first.state_dict())
    rest = [batch.src.ids for batch in resumed.train_dataloader()]
    assert len(rest) == len(batches) - 3
    assert all(torch.equal(one, other) for one, other in zip(rest, batches[3:], strict=True))


def test_other_batches_resume_at_about_the_same_place(
    bpe: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = data(bpe, tmp_path)
    first.setup("fit")
    first.batches_seen = 8
    resumed = data(bpe, tmp_path, world_size=2)
    resumed.setup("fit")
    resumed.load_state_dict(first.state_dict())
    assert resumed.batches_seen == 4
    assert "about the same place" in caplog.text
    assert "pairs" not in caplog.text


def test_a_checkpoint_of_a_version_that_made_other_batches_is_told(
    bpe: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, resumed = data(bpe, tmp_path), data(bpe, tmp_path)
    for module in (first, resumed):
        module.setup("fit")
    resumed.load_state_dict(first.state_dict())
    assert not caplog.text
    first.batches_seen = 50
    state = first.state_dict()
    resumed.load_state_dict(state | {"epoch_length": 2 * resumed.epoch_length})
    assert resumed.batches_seen == 25
    assert "how batches are made has changed" in caplog.text
    caplog.clear()
    del state["epoch_length"]
    resumed.load_state_dict(state)
    assert resumed.batches_seen == 50
    assert "how batches are made has changed" in caplog.text


def test_other_training_pairs_are_told(
    bpe: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, resumed = data(bpe, tmp_path), data(bpe, tmp_path, limit=100)
    for module in (first, resumed):
        module.setup("fit")
    resumed.load_state_dict(first.state_dict())
    assert "of a run on 150 pairs, these are 100" in caplog.text


def test_a_rank_without_a_validation_pair_shows_at_once(bpe: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 pairs are too few for 2 devices"):
        data(bpe, tmp_path, world_size=2, validation_limit=1).setup("fit")


def test_the_references_are_the_untouched_texts(bpe: Tokenizer, tmp_path: Path) -> None:
    module = data(bpe, tmp_path)
    module.setup("validate")
    source, target = module.validation_texts
    assert list(zip(source, target, strict=True)) == phrasebook.load("validation")[:40]


def test_training_is_cleaned_and_validation_only_of_what_cannot_be_used(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    module = data(bpe, tmp_path)
    module.cleaning = PairFilter(max_length=12, max_ratio=1.2)
    module.setup("fit")
    assert module.train.report["dropped"]["max_ratio"] > 0
    assert module.train.report["dropped"]["max_length"] > 0
    assert module.validation.report["dropped"]["max_ratio"] == 0
    assert module.validation.report["dropped"]["max_length"] > 0
