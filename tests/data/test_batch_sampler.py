"""Which pairs share a batch, in what order, and on which rank."""

import gzip
import itertools
import math
import time

import numpy as np
import pytest
import torch
from conftest import SHARED

from mt.data.batch_sampler import Draw, TokenBudgetSampler, group, token_budget_splits
from mt.data.packing import pack

Lengths = tuple[np.ndarray, np.ndarray]


def natural_lengths(pairs: int, seed: int = 0) -> Lengths:
    """Lengths as in real text: log-normal, about 27 tokens, similar on both sides."""
    rng = np.random.default_rng(seed)
    src = rng.lognormal(3.2, 0.55, pairs).clip(1, 250)
    tgt = (src * rng.lognormal(0, 0.15, pairs)).clip(1, 250)
    return src.astype(int) + 1, tgt.astype(int) + 1


def sampler(lengths: Lengths, max_tokens: int = 300, **options) -> TokenBudgetSampler:
    return TokenBudgetSampler(*lengths, max_tokens=max_tokens, **{"seed": 1, **options})


def take(sampler: TokenBudgetSampler, batches: int) -> list[list[int]]:
    """The next ``batches`` batches, across epochs."""
    epochs = itertools.chain.from_iterable(iter(lambda: list(sampler), None))
    return [draw.indices for draw in itertools.islice(epochs, batches)]


# Splits by token budget


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "max_sentences", "ends"),
    [
        pytest.param([], 9, None, [], id="nothing"),
        pytest.param([(3, 3)] * 7, 9, None, [3, 6, 7], id="three by three fill nine"),
        pytest.param([(3, 3)] * 7, 8, None, [2, 4, 6, 7], id="one token less"),
        pytest.param([(2, 2), (2, 2), (5, 5)], 10, None, [2, 3], id="padded, not real size"),
        pytest.param([(1, 5), (5, 1), (1, 5)], 10, None, [2, 3], id="the longer side counts"),
        pytest.param([(2, 1), (2, 1), (2, 4)], 6, None, [2, 3], id="target alone overflows"),
        pytest.param([(5, 5), (99, 4), (5, 5)], 10, None, [1, 2, 3], id="over-long is alone"),
        pytest.param([(4, 99), (4, 99)], 10, None, [1, 2], id="two over-long, each alone"),
        pytest.param([(10, 10), (1, 1)], 10, None, [1, 2], id="just full"),
        pytest.param([(1, 1)] * 5, 100, 2, [2, 4, 5], id="at most two sentences"),
        pytest.param([(3, 3)] * 5, 6, 4, [2, 4, 5], id="the budget is reached first"),
        pytest.param([(9, 9)] * 2, 5, 1, [1, 2], id="one over-long sentence at a time"),
        pytest.param([(5, 5), (1, 1), (1, 1), (1, 1)], 10, None, [2, 4], id="longest first"),
    ],
)
def test_token_budget_splits_by_hand(
    lengths: list[tuple[int, int]], max_tokens: int, max_sentences: int | None, ends: list[int]
) -> None:
    array = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    assert token_budget_splits(array, max_tokens, max_sentences) == ends


def naive_splits(lengths: np.ndarray, max_tokens: int, max_sentences: int | None) -> list[int]:
    ends: list[int] = []
    start = 0
    for i in range(1, len(lengths)):
        longest = max(max(pair) for pair in lengths[start : i + 1].tolist())
        size = i + 1 - start
        if size * longest > max_tokens or size > (max_sentences or size):
            ends.append(i)
            start = i
    return [*ends, len(lengths)]


@pytest.mark.parametrize("max_sentences", [None, 1, 7])
@pytest.mark.parametrize("max_tokens", [1, 40, 100, 5000])
@pytest.mark.parametrize("sides", [1, 2])
def test_token_budget_splits_equal_a_naive_loop(
    max_tokens: int, max_sentences: int | None, sides: int
) -> None:
    rng = np.random.default_rng(max_tokens)
    for _ in range(10):
        lengths = rng.integers(1, 60, (rng.integers(1, 120), sides))
        expected = naive_splits(lengths, max_tokens, max_sentences)
        assert token_budget_splits(lengths, max_tokens, max_sentences) == expected


# The sampler: the batches of an epoch


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_ranks_share_an_epoch_without_overlap(world_size: int) -> None:
    lengths = natural_lengths(3000)
    ranks = [sampler(lengths, rank=r, world_size=world_size) for r in range(world_size)]
    assert abs(len(ranks[0]) * world_size - len(sampler(lengths))) <= world_size
    for epoch in range(3):
        plans = [[b.tolist() for b in s.plan(epoch)] for s in ranks]
        assert {len(plan) for plan in plans} == {len(ranks[0])}
        assert sorted(i for plan in plans for batch in plan for i in batch) == list(range(3000))


def test_every_batch_gets_one_pair_of_each_stratum() -> None:
    """By hand: 20 pairs of two tokens and 20 of one make four batches of at most 16 tokens."""
    lengths = np.array([1] * 20 + [2] * 20)
    s = sampler((lengths, np.ones_like(lengths)), max_tokens=16)
    assert (len(s), s.mean_tokens) == (4, 15)
    rank = {pair: i for i, pair in enumerate(s.sorted.tolist())}
    for epoch in range(9):
        for batch in s.plan(epoch):
            assert sorted(lengths[batch].tolist()) == [1] * 5 + [2] * 5
            assert sorted(rank[pair] // 4 for pair in batch.tolist()) == list(range(10))


@pytest.mark.parametrize("max_tokens", [300, 1000, 4096])
def test_only_a_single_pair_exceeds_the_budget(max_tokens: int) -> None:
    src, tgt = natural_lengths(3000)
    src[17], tgt[23] = 5000, 4097
    s = sampler((src, tgt), max_tokens=max_tokens)
    for plan in (s.plan(0), s.plan(1)):
        beyond = [b for b in plan if max(src[b].sum(), tgt[b].sum()) > max_tokens]
        assert sorted(b.tolist() for b in beyond) == [[17], [23]]


@pytest.mark.parametrize("max_tokens", [300, 512, 1000, 2048, 4096])
@pytest.mark.parametrize("outlier", [250, 900, 4000])
def test_the_budget_is_used_however_long_the_longest_pair(max_tokens: int, outlier: int) -> None:
    src, tgt = natural_lengths(20_000)
    src[17] = outlier
    assert sampler((src, tgt), max_tokens=max_tokens).mean_tokens > 0.8 * max_tokens


def test_any_pairs_come_once_and_ranks_have_equally_many_batches() -> None:
    """Lengths about an eighth of the budget: long pairs, stratified ones, or both."""
    rng = np.random.default_rng(0)
    epochs_with_dropped = 0
    for _ in range(300):
        world_size, max_tokens = int(rng.integers(1, 5)), int(rng.integers(1, 200))
        pairs = int(rng.integers(world_size, 60))
        lengths = rng.integers(1, 30, pairs), rng.integers(1, 30, pairs)
        options = {"max_tokens": max_tokens, "world_size": world_size}
        ranks = [sampler(lengths, rank=rank, **options) for rank in range(world_size)]
        plans = [rank.plan(0) for rank in ranks]
        assert {len(plan) for plan in plans} == {len(ranks[0])} != {0}
        batches = list(itertools.chain(*plans))
        assert all(len(b) == 1 or max(s[b].sum() for s in lengths) <= max_tokens for b in batches)
        assert all(len(batch) for batch in batches)
        seen = np.concatenate(batches)
        assert len(set(seen)) == len(seen)
        assert (len(seen) < pairs) == (ranks[0].dropped_batches > 0)
        assert ranks[0].dropped_batches < world_size
        epochs_with_dropped += ranks[0].dropped_batches > 0
    assert epochs_with_dropped


@pytest.mark.parametrize("max_tokens", [1000, 4096])
def test_little_is_padding(max_tokens: int) -> None:
    src, tgt = natural_lengths(20_000)
    batches = [draw.indices for draw in sampler((src, tgt), max_tokens=max_tokens)]
    padded = sum(cells(src[b], tgt[b]) for b in batches)
    assert 1 - (src.sum() + tgt.sum()) / padded < 0.2


@pytest.mark.parametrize("max_tokens", [1000, 4096, 25_000])
def test_groups_are_few(max_tokens: int) -> None:
    src, tgt = natural_lengths(20_000)
    for batch in sampler((src, tgt), max_tokens=max_tokens).plan(0):
        assert len(grouped(src[batch], tgt[batch])[0]) <= 8


def test_a_batch_is_of_all_lengths_and_uses_the_budget() -> None:
    src, tgt = natural_lengths(20_000)
    batches = [draw.indices for draw in sampler((src, tgt), max_tokens=4096)]
    tokens = np.array([max(src[b].sum(), tgt[b].sum()) for b in batches])
    assert tokens.max() <= 4096
    assert tokens.mean() > 0.9 * 4096
    assert tokens.std() < 0.02 * 4096
    means = np.array([src[b].mean() for b in batches])
    assert means.std() < 0.02 * means.mean()


def test_a_pair_shares_its_batch_with_different_pairs_every_epoch() -> None:
    src, tgt = natural_lengths(20_000)
    several = sampler((src, tgt), max_tokens=4096)
    first, second = ({i: set(b.tolist()) for b in several.plan(e) for i in b} for e in (0, 1))
    shared = [len(first[i] & second[i]) / len(first[i]) for i in range(0, 20_000, 97)]
    assert np.mean(shared) < 0.2


def test_a_million_pairs_are_planned_quickly() -> None:
    lengths = natural_lengths(1_000_000)
    start = time.process_time()
    plan = sampler(lengths, max_tokens=25_000).plan(0)
    assert time.process_time() - start < 3
    assert sum(map(len, plan)) == 1_000_000


# The sampler: order


def test_an_epoch_follows_from_seed_and_epoch_alone() -> None:
    lengths = natural_lengths(2000)
    first, second, different = sampler(lengths), sampler(lengths), sampler(lengths, seed=2)
    list(second)  # what was iterated before makes no difference
    for epoch in (0, 1, 5):
        plan = [b.tolist() for b in first.plan(epoch)]
        assert plan == [b.tolist() for b in second.plan(epoch)]
        assert plan != [b.tolist() for b in different.plan(epoch)]


def test_long_pairs_change_their_order_and_dropped_batches_change_every_epoch() -> None:
    lengths = (np.full(90, 200),) * 2
    ranks = [sampler(lengths, rank=rank, world_size=4) for rank in range(4)]
    assert {len(rank) for rank in ranks} == {22}
    assert {rank.dropped_batches for rank in ranks} == {2}
    epochs = [[int(pair) for rank in ranks for (pair,) in rank.plan(e)] for e in range(9)]
    assert len({tuple(epoch) for epoch in epochs}) == 9
    assert all(len(set(epoch)) == 88 for epoch in epochs)
    assert set(itertools.chain(*epochs)) == set(range(90))


@pytest.mark.parametrize("length", [2, 100])
def test_a_batch_of_the_same_pairs_is_not_the_same_list(length: int) -> None:
    """The list seeds what BPE-dropout draws for a batch."""
    s = sampler((np.full(20, length),) * 2, max_tokens=2000)
    (first,), (second,) = s.plan(0), s.plan(1)
    assert set(first) == set(second)
    assert first.tolist() != second.tolist()


def test_epochs_have_different_batches() -> None:
    s = sampler(natural_lengths(2000))
    epochs = [[b.tolist() for b in s.plan(epoch)] for epoch in range(3)]
    for first, second in itertools.combinations(epochs, 2):
        assert {frozenset(b) for b in first} != {frozenset(b) for b in second}


def test_iterating_twice_gives_epoch_0_then_1() -> None:
    s = sampler(natural_lengths(500))
    first, second = ([b.tolist() for b in s.plan(epoch)] for epoch in (0, 1))
    assert list(s) == [Draw(0, batch) for batch in first]
    assert list(s) == [Draw(1, batch) for batch in second]
    assert len(first) == len(second) == len(s)


@pytest.mark.parametrize("world_size", [1, 3])
def test_skip_continues_exactly_where_the_first_run_stood(world_size: int) -> None:
    lengths = natural_lengths(200)
    options = {"rank": world_size - 1, "world_size": world_size}
    epoch = len(sampler(lengths, **options))
    whole = take(sampler(lengths, **options), 3 * epoch)
    for seen in {0, 1, epoch // 2, epoch - 1, epoch, epoch + 1, 2 * epoch, 3 * epoch - 1}:
        resumed = sampler(lengths, **options)
        resumed.skip(seen)
        assert take(resumed, 3 * epoch - seen) == whole[seen:], seen


def test_skip_leaves_an_iterators_remaining_epoch_shorter() -> None:
    s = sampler(natural_lengths(200))
    s.skip(len(s) - 2)
    assert len(list(s)) == 2
    assert len(list(s)) == len(s)


# The sampler: validation


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_validation_covers_everything_once(world_size: int) -> None:
    lengths = natural_lengths(1000)
    ranks = [
        sampler(lengths, rank=r, world_size=world_size, shuffle=False) for r in range(world_size)
    ]
    batches = [[draw.indices for draw in s] for s in ranks]
    assert sorted(itertools.chain(*itertools.chain(*batches))) == list(range(1000))
    assert [len(b) for b in batches] == [len(s) for s in ranks]
    assert max(map(len, batches)) - min(map(len, batches)) <= 1


def test_validation_is_the_same_every_epoch_and_for_every_seed() -> None:
    lengths = natural_lengths(500)
    s = sampler(lengths, shuffle=False)
    epochs = [[draw.indices for draw in s] for _ in range(2)]
    assert epochs[0] == epochs[1] == take(sampler(lengths, seed=7, shuffle=False), len(s))


# The sampler: errors


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("pairs", "world_size"), [(4, 4), (5, 4), (7, 2), (9, 4), (11, 3)])
def test_however_few_the_pairs_every_rank_has_a_batch(
    pairs: int, world_size: int, shuffle: bool
) -> None:
    """A rank without a batch would leave the other ranks waiting."""
    lengths = np.full(pairs, 10), np.full(pairs, 10)
    ranks = [
        sampler(lengths, max_tokens=1000, rank=rank, world_size=world_size, shuffle=shuffle)
        for rank in range(world_size)
    ]
    assert all(len(rank) > 0 for rank in ranks)
    assert sorted(i for rank in ranks for draw in rank for i in draw.indices) == list(range(pairs))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("pairs", [0, 3])
def test_fewer_pairs_than_ranks_is_an_error_on_every_rank(pairs: int, shuffle: bool) -> None:
    lengths = np.full(pairs, 10), np.full(pairs, 10)
    for rank in range(4):
        with pytest.raises(ValueError, match=f"{pairs} pairs are too few for 4 devices"):
            sampler(lengths, rank=rank, world_size=4, shuffle=shuffle)


@pytest.mark.parametrize("max_tokens", [0, -1, "x", "4096", 2.5, None, True])
def test_max_tokens_must_be_a_whole_number(max_tokens: object) -> None:
    with pytest.raises(ValueError, match=f"max_tokens={max_tokens!r}: must be a whole number"):
        sampler(natural_lengths(10), max_tokens=max_tokens)  # type: ignore[arg-type]


# Padding


def cells(src: np.ndarray, tgt: np.ndarray) -> int:
    """The positions that attention computes for a batch, on both sides."""
    return sum(number * width for side in grouped(src, tgt) for number, width in side)


def grouped(src: np.ndarray, tgt: np.ndarray) -> list[list[tuple[int, int]]]:
    """A batch's groups, as collate makes them."""
    lengths = np.stack((src, tgt), axis=1)
    return group(lengths[np.argsort(-lengths.max(axis=1), kind="stable")])


def share_of_real_rows(src: np.ndarray, tgt: np.ndarray, max_tokens: int) -> float:
    """The share of the rows that the layers compute in an epoch that is no padding."""
    batches = TokenBudgetSampler(src, tgt, max_tokens, seed=1).plan(0)
    tokens = [int(side[batch].sum()) for batch in batches for side in (src, tgt)]
    rows = [len(pack(torch.ones(1, n, dtype=torch.long)).ids) for n in tokens]
    positions = [cells(src[batch], tgt[batch]) for batch in batches]
    assert sum(tokens) / sum(positions) > 0.75  # only attention has these
    return sum(tokens) / sum(rows)


@pytest.mark.parametrize("max_tokens", [2048, 6250, 25000])
def test_at_least_95_of_100_positions_are_real_with_the_lengths_of_news(max_tokens: int) -> None:
    rng = np.random.default_rng(0)
    src = np.exp(rng.normal(math.log(27) - 0.15, 0.55, 50_000)).round().clip(1, 250)
    tgt = (src * np.exp(rng.normal(0.02, 0.2, 50_000))).round().clip(1, 250)
    assert share_of_real_rows(*(side.astype(int) + 1 for side in (src, tgt)), max_tokens) > 0.97


@pytest.mark.parametrize("max_tokens", [2048, 25000])
def test_at_least_95_of_100_positions_are_real_in_real_text(max_tokens: int) -> None:
    paths = [SHARED / "data" / "general" / f"train.{side}.gz" for side in ("en", "de")]
    if not all(path.is_file() for path in paths):
        pytest.skip("the text is not here")
    lengths = []
    for path in paths:
        with gzip.open(path, "rb") as file:  # about three pieces to two words
            lines = itertools.islice(file, 40_000)
            lengths.append(np.array([3 * len(line.split()) // 2 + 1 for line in lines]))
    fit = np.maximum(*lengths) <= 256
    assert share_of_real_rows(lengths[0][fit], lengths[1][fit], max_tokens) > 0.97


def test_pairs_beyond_the_budget_are_counted() -> None:
    lengths = np.array([5, 30, 31, 80]), np.array([5, 20, 10, 2])
    assert [sampler(lengths, n).num_oversize for n in (80, 79, 30, 4)] == [0, 1, 2, 4]
