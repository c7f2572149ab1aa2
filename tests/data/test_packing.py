"""Packed sentences, and how attention's heads see them."""

from typing import Any

import pytest
import torch

from mt.data.packing import MULTIPLE, Packed, pack
from mt.model.attention_layout import AttentionLayout
from mt.model.transformer import Transformer

IDS = torch.tensor([[5, 6, 7, 8], [9, 0, 0, 0], [10, 11, 0, 0]])


def test_pack_by_hand() -> None:
    packed = pack(IDS)
    assert packed.tokens == 7
    assert len(packed.ids) == len(packed.positions) == MULTIPLE
    assert packed.ids[:8].tolist() == [5, 6, 7, 8, 9, 10, 11, 0]
    assert not packed.ids[7:].any()
    assert packed.positions[:7].tolist() == [0, 1, 2, 3, 0, 0, 1]
    assert packed.groups == ((3, 4),)
    assert packed.rows.tolist() == [[0, 1, 2, 3], [4, 7, 7, 7], [5, 6, 7, 7]]
    assert torch.equal(packed.padded(), IDS)


@pytest.mark.parametrize("tokens", [1, MULTIPLE - 1, MULTIPLE, MULTIPLE + 1])
def test_rows_are_a_multiple_and_one_at_least_is_padding(tokens: int) -> None:
    packed = pack(torch.full((1, tokens), 5))
    assert len(packed.ids) % MULTIPLE == 0
    assert tokens < len(packed.ids) <= tokens + MULTIPLE
    assert int(packed.rows.max()) == tokens - 1


def plain_split(x: torch.Tensor, packed: Packed, h: int, parts: int) -> list[torch.Tensor]:
    """By reshaping the padded matrix."""
    padded = x[packed.rows]  # [B, T, parts * h * d_k]
    return [part.unflatten(-1, (h, -1)).transpose(1, 2) for part in padded.chunk(parts, dim=-1)]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_split_and_merge_are_reshaping_the_padded_matrix(parts: int) -> None:
    h, d_k = 3, 5
    packed = pack(IDS)
    heads = AttentionLayout(packed, h)
    x = torch.randn(len(packed.ids), parts * h * d_k)
    (found,) = heads.to_heads(x, (h * d_k,) * parts)
    for one, other in zip(found, plain_split(x, packed, h, parts), strict=True):
        assert one.shape == (3, h, 4, d_k)
        assert torch.equal(one, other)
    merged = heads.from_heads(found[:1])
    assert torch.equal(merged[:7], x[:7, : h * d_k])
    (mask,) = heads.masks
    assert mask[:, 0, 0].tolist() == (IDS != 0).tolist()


@pytest.mark.parametrize("sizes", [(6, 6, 6), (6, 6, 15)])
def test_groups_are_as_wide_as_their_own_longest(sizes: tuple[int, ...]) -> None:
    h = 3
    packed = pack(IDS, 0, [(1, 4), (2, 2)])
    heads = AttentionLayout(packed, h)
    x = torch.randn(len(packed.ids), sum(sizes))
    found = heads.to_heads(x, sizes)
    for first, second, part in zip(*found, x.split(sizes, dim=1), strict=True):
        (whole,) = plain_split(part, packed, h, 1)
        assert torch.equal(first, whole[:1])
        assert torch.equal(second, whole[1:, :, :2])
    merged = heads.from_heads([first[0] for first in found])
    assert torch.equal(merged[:7], x[:7, : sizes[0]])
    assert [mask[:, 0, 0].tolist() for mask in heads.masks] == [
        [[True] * 4], [[True, False], [True, True]]
    ]  # fmt: skip


def test_parts_of_unlike_sizes_are_split_one_by_one() -> None:
    h, sizes = 3, (6, 6, 15)  # d_k 2, d_v 5
    packed = pack(IDS)
    x = torch.randn(len(packed.ids), sum(sizes))
    (found,) = AttentionLayout(packed, h).to_heads(x, sizes)
    for one, part in zip(found, x.split(sizes, dim=1), strict=True):
        assert torch.equal(one, plain_split(part, packed, h, 1)[0])


def test_gradients_of_split_and_merge_are_those_of_plain_indexing() -> None:
    h, d_k, parts = 2, 3, 2
    packed = pack(IDS)
    heads = AttentionLayout(packed, h)
    x = torch.randn(len(packed.ids), parts * h * d_k, dtype=torch.float64)
    factors = torch.randn(parts, 3, h, 4, d_k, dtype=torch.float64)
    factors = factors * (IDS != 0)[:, None, :, None]  # nothing comes from cells of padding
    found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    (torch.stack(heads.to_heads(found, (h * d_k,) * parts)[0]) * factors).sum().backward()
    (torch.stack(plain_split(wanted, packed, h, parts)) * factors).sum().backward()
    assert found.grad is not None
    torch.testing.assert_close(found.grad, wanted.grad)
    assert not found.grad[7:].any()

    z = torch.randn(3, h, 4, d_k, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(7, h * d_k, dtype=torch.float64)
    (heads.from_heads([z])[:7] * weights).sum().backward()
    plain = torch.zeros(3, 4, h * d_k, dtype=torch.float64)
    plain[IDS != 0] = weights
    torch.testing.assert_close(z.grad, plain.unflatten(-1, (h, d_k)).transpose(1, 2))


def gradients(model: Transformer, pairs: list[tuple[Any, Any]]) -> list[torch.Tensor]:
    model.zero_grad()
    src, tgt = (
        torch.nn.utils.rnn.pad_sequence(side, batch_first=True) for side in zip(*pairs, strict=True)
    )
    target = pack(tgt)
    states = model.states(pack(src), target)[: target.tokens]
    model.project(states).logsumexp(dim=-1).square().sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_a_batch_has_the_gradients_of_its_sentences_taken_one_by_one() -> None:
    """No padding, neither of sentences nor behind them, takes part."""
    model = Transformer(40, N=2, d_model=16, d_ff=32, h=4, P_drop=0.0).double()
    lengths = [(7, 3), (1, 9), (5, 5), (2, 1)]
    pairs = [(torch.randint(4, 40, (s,)), torch.randint(4, 40, (t,))) for s, t in lengths]
    together = gradients(model, pairs)
    alone = [gradients(model, [pair]) for pair in pairs]
    assert len(together) == len(list(model.parameters()))
    for found, *parts in zip(together, *alone, strict=True):
        torch.testing.assert_close(found, torch.stack(parts).sum(0), atol=1e-10, rtol=1e-10)
