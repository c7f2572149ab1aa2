"""The tensors of a batch, and its groups of sentences with similar lengths."""

import numpy as np
import pytest
import torch

from mt.data.batch_sampler import collate, group, pad


def test_collate_by_hand() -> None:
    sources = [np.array([5, 6, 7]), np.array([8])]
    targets = [np.array([9]), np.array([10, 11])]
    batch = collate(sources, targets)
    assert batch.src.padded().tolist() == [[5, 6, 7, 3], [8, 3, 0, 0]]
    assert batch.tgt.padded().tolist() == [[2, 9, 0], [2, 10, 11]]
    assert batch.tgt.ids[:5].tolist() == [2, 9, 2, 10, 11]
    assert batch.labels.tolist() == [9, 3, 10, 11, 3]
    assert (batch.src.tokens, batch.tgt.tokens) == (6, 5)


def test_collate_empty_sides_are_their_special_ids() -> None:
    none = np.array([], dtype=np.int32)
    batch = collate([none, np.array([5, 6])], [np.array([7]), none])
    assert batch.src.padded().tolist() == [[5, 6, 3], [3, 0, 0]]  # the longest first
    assert batch.tgt.padded().tolist() == [[2, 0], [2, 7]]
    assert batch.labels.tolist() == [3, 7, 3]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64])
def test_collate_makes_int64_of_any_integer(dtype: type) -> None:
    batch = collate([np.array([5], dtype)], [np.array([6, 7], dtype)])
    assert {t.dtype for t in (*batch.src[:3], *batch.tgt[:3], batch.labels)} == {torch.int64}
    assert batch.labels.tolist() == [6, 7, 3]


def test_an_id_of_padding_within_a_sentence_is_refused() -> None:
    with pytest.raises(AssertionError, match="within a sentence"):
        collate([np.array([5])], [np.array([6, 0, 7])])


def test_a_row_of_the_packed_targets_predicts_the_label_in_its_place() -> None:
    """Training relies on this: each sentence's ids, shifted by one, are its labels."""
    rng = np.random.default_rng(0)
    targets = [rng.integers(4, 100, n) for n in rng.integers(0, 9, 20)]
    batch = collate(targets, targets)
    labels = batch.labels.tolist()
    targets.sort(key=lambda target: -len(target))
    for row, target in zip(batch.tgt.rows.tolist(), targets, strict=True):
        row = row[: len(target) + 1]
        assert batch.tgt.ids[row].tolist() == [2, *target]
        assert [labels[i] for i in row] == [*target, 3]


def test_pad_by_hand() -> None:
    assert pad([[4], [5, 6, 7], []]).tolist() == [[4, 0, 0], [5, 6, 7], [0, 0, 0]]


def test_groups_by_hand() -> None:
    lengths = np.array([[10, 4], [8, 9], [3, 7], [7, 2], [5, 5]])
    by_one = [[(1, 10), (1, 8), (2, 7), (1, 5)], [(1, 4), (1, 9), (2, 7), (1, 5)]]
    assert group(lengths) == by_one  # 38 / 64: no cell of padding
    assert group(lengths[:1]) == [[(1, 10)], [(1, 4)]]
    like = np.full((70, 2), 9)
    like[20:] = 8  # 580 / 64: nine cells, of one each
    assert group(like) == [[(29, 9), (41, 8)]] * 2
