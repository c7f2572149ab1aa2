"""What the batches hold, which rank gets which, and where a resumed run starts."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mt.data import datamodule, phrasebook
from mt.data.batch_dataset import Augmentation, BatchDataset
from mt.data.batch_sampler import Batch, Draw
from mt.data.datamodule import TranslationData
from mt.data.preprocessing import PairFilter
from mt.data.readers import FileReader, PhrasebookReader
from mt.data.special_ids import EOS
from mt.data.text_reader import TextReader
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
    trainer = SimpleNamespace(global_rank=rank, world_size=world_size, accumulate_grad_batches=1)
    module.trainer = trainer  # type: ignore[assignment]
    return module


def set_up(bpe: Tokenizer, folder: Path, *ranks: int, **changes: Any) -> Any:
    module = data(bpe, folder, *ranks, **changes)
    module.setup("fit")
    return module


def sentences(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(row[row != 0].tolist()) for row in batch.src.padded()]


def test_an_epoch_gives_every_training_pair_once(bpe: Tokenizer, tmp_path: Path) -> None:
    module = set_up(bpe, tmp_path)
    batches = list(module.train_dataloader())
    rows = sorted(row for batch in batches for row in sentences(batch))
    texts = [source for source, _ in phrasebook.load("train")[:150]]
    assert rows == sorted((*ids, EOS) for ids in bpe.encode(texts))
    for batch in batches:
        for side in (batch.src, batch.tgt):
            assert side.tokens <= 200
            assert side.tokens == (side.ids != 0).sum()
        assert batch.tgt.tokens == len(batch.labels)


def test_two_workers_give_the_batches_of_none(bpe: Tokenizer, tmp_path: Path) -> None:
    drawn = {"bpe_dropout": 0.3, "noise": 0.4}
    none, two = (
        list(set_up(bpe, tmp_path, workers=workers, **drawn).train_dataloader())
        for workers in (0, 2)
    )
    assert all(torch.equal(a.src.ids, b.src.ids) for a, b in zip(none, two, strict=True))
    assert all(torch.equal(a.labels, b.labels) for a, b in zip(none, two, strict=True))


def init_late(parent: int, worker: int) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    worker_init_fn(parent, worker)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
def test_a_signal_does_not_end_a_worker_that_is_starting(
    bpe: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal for the whole process group may come then, and a loader fails without its worker."""
    monkeypatch.setattr(datamodule, "worker_init_fn", init_late)
    module = set_up(bpe, tmp_path, workers=2)
    assert len(list(module.train_dataloader())) == len(module._sampler(module.train, shuffle=True))
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_bpe_dropout_resegments_the_same_sentences_in_training_alone(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    def batches(dropout: float, epochs: int = 1) -> list[Batch]:
        module = set_up(bpe, tmp_path, bpe_dropout=dropout)
        loader = module.train_dataloader()
        return [batch for _ in range(epochs) for batch in loader]

    def texts(batches: list[Batch]) -> list[str]:
        rows = [row for batch in batches for row in batch.src.padded().tolist()]
        rows += [row for batch in batches for row in batch.tgt.padded().tolist()]
        return sorted(bpe.decode(rows))

    plain, sampled = batches(0.0), batches(0.3, epochs=2)
    once, twice = sampled[: len(plain)], sampled[len(plain) :]
    assert texts(once) == texts(twice) == texts(plain)
    tokens = [sum(batch.src.tokens for batch in epoch) for epoch in (plain, once, twice)]
    assert min(tokens[1:]) > 1.2 * tokens[0]
    pieces = [sorted(row for batch in epoch for row in sentences(batch)) for epoch in (once, twice)]
    assert pieces[0] != pieces[1]  # every epoch has different pieces
    assert all(batch.tgt.tokens == len(batch.labels) for batch in once)
    module = set_up(bpe, tmp_path, bpe_dropout=0.3)
    rows = [row for batch in module.val_dataloader() for row in sentences(batch)]
    validation = [source for source, _ in phrasebook.load("validation")[:40]]
    assert sorted(rows) == sorted((*ids, EOS) for ids in bpe.encode(validation))


def test_a_sentence_with_an_unknown_character_is_not_resegmented(bpe: Tokenizer) -> None:
    rows = [np.array(ids, np.uint16) for ids in bpe.encode(["Where is the 犬?", "Where is it?"])]
    prepared: Any = SimpleNamespace(fetch=lambda _: (rows, rows))
    batches = BatchDataset(prepared, Augmentation(bpe, bpe_dropout=0.9, noise=0.0, seed=1))
    padded = batches[Draw(0, [0, 1])].src.padded().tolist()
    whole, sampled = sorted(padded, key=lambda row: row[: len(rows[0])] != rows[0].tolist())
    assert whole[: len(rows[0])] == rows[0].tolist()
    assert sum(i != 0 for i in sampled) > len(rows[1]) + 1


def test_a_sentence_with_an_unknown_character_gets_no_noise(bpe: Tokenizer) -> None:
    texts = ["Where is the 犬?", *(source for source, _ in phrasebook.phrases()[:30])]
    rows = [np.array(ids, np.uint16) for ids in bpe.encode(texts)]
    prepared: Any = SimpleNamespace(fetch=lambda _: (rows, rows))
    batches = BatchDataset(prepared, Augmentation(bpe, bpe_dropout=0.0, noise=1.0, seed=1))
    noisy = [[i for i in row if i] for row in batches[Draw(0, range(31))].src.padded().tolist()]
    originals = [[*row.tolist(), EOS] for row in rows]
    assert originals[0] in noisy
    assert sum(row in noisy for row in originals) < 20


def test_the_only_pair_of_a_batch_is_drawn_anew_in_every_epoch(bpe: Tokenizer) -> None:
    rows = [np.array(ids, np.uint16) for ids in bpe.encode(["Where does your good friend live?"])]
    prepared: Any = SimpleNamespace(fetch=lambda _: (rows, rows))
    batches = BatchDataset(prepared, Augmentation(bpe, bpe_dropout=0.3, noise=0.0, seed=1))
    epochs = [batches[Draw(epoch, [0])].src.padded().tolist() for epoch in range(20)]
    assert len(set(map(str, epochs))) > 10
    again = [batches[Draw(epoch, [0])].src.padded().tolist() for epoch in reversed(range(20))]
    assert again[::-1] == epochs


@pytest.mark.parametrize("dropout", [1, -0.1, "much"])
def test_bpe_dropout_is_a_probability(bpe: Tokenizer, tmp_path: Path, dropout: Any) -> None:
    with pytest.raises(ValueError, match="bpe_dropout="):
        data(bpe, tmp_path, bpe_dropout=dropout)


@pytest.mark.parametrize("noise", [-0.1, 1.1, "much", None, True])
def test_noise_is_a_probability(bpe: Tokenizer, tmp_path: Path, noise: Any) -> None:
    with pytest.raises(ValueError, match=r"data\.noise="):
        data(bpe, tmp_path, noise=noise)


def test_every_epoch_a_different_share_of_the_training_sentences_gets_typing_noise(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    def epochs(noise: float) -> list[list[tuple[str, str]]]:
        module = set_up(bpe, tmp_path, noise=noise)
        loader = module.train_dataloader()
        return [[pair for batch in loader for pair in texts(batch)] for _ in range(2)]

    def texts(batch: Batch) -> list[tuple[str, str]]:
        sides = (bpe.decode(side.padded().tolist()) for side in (batch.src, batch.tgt))
        return list(zip(*sides, strict=True))

    clean, noisy = epochs(0.0)[0], epochs(0.4)
    share = [len(set(epoch) - set(clean)) / len(clean) for epoch in noisy]
    assert all(0.2 < changed < 0.45 for changed in share)
    assert sorted(noisy[0]) != sorted(noisy[1])
    for epoch in noisy:  # with the same targets
        assert sorted(target for _, target in epoch) == sorted(target for _, target in clean)
    module = set_up(bpe, tmp_path, noise=1.0)
    rows = [row for batch in module.val_dataloader() for row in sentences(batch)]
    validation = [source for source, _ in phrasebook.load("validation")[:40]]
    assert sorted(rows) == sorted((*ids, EOS) for ids in bpe.encode(validation))


def test_ranks_share_the_epoch_and_the_validation(bpe: Tokenizer, tmp_path: Path) -> None:
    shares, validation = [], []
    for rank in (0, 1):
        module = set_up(bpe, tmp_path, rank, 2)
        shares.append([row for batch in module.train_dataloader() for row in sentences(batch)])
        validation += [row for batch in module.val_dataloader() for row in sentences(batch)]
    assert not set(shares[0]) & set(shares[1])
    assert len(validation) == 40


def test_a_resumed_run_continues_after_the_batches_it_has_seen(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    first = set_up(bpe, tmp_path)
    batches = [batch.src.ids for batch in first.train_dataloader()]
    first.batches_seen = 3
    resumed = set_up(bpe, tmp_path)
    resumed.load_state_dict(first.state_dict())
    rest = [batch.src.ids for batch in resumed.train_dataloader()]
    assert len(rest) == len(batches) - 3
    assert all(torch.equal(*ids) for ids in zip(rest, batches[3:], strict=True))


def test_different_batches_resume_at_about_the_same_place(
    bpe: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = set_up(bpe, tmp_path)
    first.batches_seen = 8
    resumed = set_up(bpe, tmp_path, world_size=2)
    resumed.load_state_dict(first.state_dict())
    assert resumed.batches_seen == 4
    assert "about the same place" in caplog.text
    assert "pairs" not in caplog.text


def test_a_warning_reports_a_checkpoint_of_different_batches(
    bpe: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, resumed = set_up(bpe, tmp_path), set_up(bpe, tmp_path)
    resumed.load_state_dict(first.state_dict())
    assert not caplog.text
    first.batches_seen = 50
    state = first.state_dict()
    resumed.load_state_dict(state | {"epoch_length": 2 * resumed.epoch_length})
    assert resumed.batches_seen == 25
    assert "the batching has changed" in caplog.text
    caplog.clear()
    del state["epoch_length"]
    resumed.load_state_dict(state)
    assert resumed.batches_seen == 50
    assert "the batching has changed" in caplog.text


def test_a_warning_reports_different_training_pairs(
    bpe: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, resumed = set_up(bpe, tmp_path), set_up(bpe, tmp_path, limit=100)
    resumed.load_state_dict(first.state_dict())
    assert "from a run on 150 pairs, these are 100" in caplog.text
    caplog.clear()
    state = first.state_dict()
    assert state["lengths"] != resumed.state_dict()["lengths"]
    first.load_state_dict(state | {"lengths": "of the same pairs in another order"})
    assert "the training pairs or their order have changed" in caplog.text
    caplog.clear()
    del state["lengths"]  # of an older version
    first.load_state_dict(state)
    assert not caplog.text


def test_a_rank_without_a_validation_pair_is_an_error(bpe: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 pairs are too few for 2 devices"):
        data(bpe, tmp_path, world_size=2, validation_limit=1).setup("fit")


def test_the_references_are_the_untouched_texts(bpe: Tokenizer, tmp_path: Path) -> None:
    module = data(bpe, tmp_path)
    module.setup("validate")
    source, target = module.validation_texts
    assert list(zip(source, target, strict=True)) == phrasebook.load("validation")[:40]


def test_validation_loses_only_pairs_that_cannot_be_used(bpe: Tokenizer, tmp_path: Path) -> None:
    module = data(bpe, tmp_path)
    module.pair_filter = PairFilter(max_length=12, max_ratio=1.2)
    module.setup("fit")
    assert module.train.report["dropped"]["max_ratio"] > 0
    assert module.train.report["dropped"]["max_length"] > 0
    assert module.validation.report["dropped"]["max_ratio"] == 0
    assert module.validation.report["dropped"]["max_length"] > 0


@pytest.mark.parametrize(
    ("reader", "suffixes"),
    [(FileReader, (".en", ".de")), (TextReader, (".txt",))],
)
def test_validation_sentences_that_are_in_the_training_data_are_counted(
    bpe: Tokenizer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    reader: Any,
    suffixes: tuple[str, ...],
) -> None:
    for suffix in suffixes:
        (tmp_path / f"train{suffix}").write_text("A man.\nA dog.\nA cat.\n")
        # Blanks at the ends do not make another sentence.
        (tmp_path / f"validation{suffix}").write_text("A dog. \nA bird.\nA man.\n")
        (tmp_path / f"other{suffix}").write_text("A bird.\n")
    end = "" if len(suffixes) == 2 else suffixes[0]

    def prepare(validation: str) -> None:
        module = data(bpe, tmp_path)
        files = {name: str(tmp_path / f"{name}{end}") for name in ("train", validation)}
        module.pair_filter = PairFilter(empty=False)  # a text's sources are empty
        module.reader = reader(train=files["train"], validation=files[validation])
        with caplog.at_level("WARNING", "mt"):
            module.prepare_data()
            module.prepare_data()  # as Lightning does before it validates

    prepare("other")
    assert caplog.messages == []
    prepare("validation")
    message = "2 of the 3 source sentences of validation are in the training data as well"
    assert [text.startswith(message) for text in caplog.messages] == [True]
