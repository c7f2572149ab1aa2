"""How attention's heads see packed sentences: like the padded matrix, reshaped."""

import pytest
import torch
from torch import Tensor

from mt.data.packing import Packed, pack
from mt.model import reference
from mt.model.attention_layout import AttentionLayout

IDS = torch.tensor([[5, 6, 7, 8], [9, 0, 0, 0], [10, 11, 0, 0]])
TOKENS = 7


def split_padded(x: Tensor, packed: Packed, h: int, parts: int) -> list[Tensor]:
    """By reshaping the padded matrix."""
    padded = x[packed.rows]  # [B, T, parts * h * d_k]
    return [part.unflatten(-1, (h, -1)).transpose(1, 2) for part in padded.chunk(parts, dim=-1)]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_to_heads_and_from_heads_are_reshaping_the_padded_matrix(parts: int) -> None:
    h, d_k = 3, 5
    packed = pack(IDS)
    layout = AttentionLayout(packed, h, d_k)
    x = torch.randn(len(packed.ids), parts * h * d_k)
    (heads,) = layout.to_heads(x, (h * d_k,) * parts)
    for part, expected in zip(heads, split_padded(x, packed, h, parts), strict=True):
        assert part.shape == (3, h, 4, d_k)
        assert torch.equal(part, expected)
    rows = layout.from_heads(heads[:1])
    assert torch.equal(rows[:TOKENS], x[:TOKENS, : h * d_k])
    (mask,) = layout.masks
    assert mask[:, 0, 0].tolist() == (IDS != 0).tolist()


@pytest.mark.parametrize("sizes", [(6, 6, 6), (6, 6, 15)])
def test_groups_are_as_wide_as_their_own_longest(sizes: tuple[int, ...]) -> None:
    h = 3
    packed = pack(IDS, [(1, 4), (2, 2)])
    layout = AttentionLayout(packed, h, sizes[0] // h)
    x = torch.randn(len(packed.ids), sum(sizes))
    groups = layout.to_heads(x, sizes)
    for first, second, part in zip(*groups, x.split(sizes, dim=1), strict=True):
        (whole,) = split_padded(part, packed, h, 1)
        assert torch.equal(first, whole[:1])
        assert torch.equal(second, whole[1:, :, :2])
    rows = layout.from_heads([heads[0] for heads in groups])
    assert torch.equal(rows[:TOKENS], x[:TOKENS, : sizes[0]])
    assert [mask[:, 0, 0].tolist() for mask in layout.masks] == [
        [[True] * 4], [[True, False], [True, True]]
    ]  # fmt: skip


def test_parts_of_unlike_sizes_are_split_one_by_one() -> None:
    h, sizes = 3, (6, 6, 15)  # d_k 2, d_v 5
    packed = pack(IDS)
    x = torch.randn(len(packed.ids), sum(sizes))
    (heads,) = AttentionLayout(packed, h, d_k=2).to_heads(x, sizes)
    for head, part in zip(heads, x.split(sizes, dim=1), strict=True):
        assert torch.equal(head, split_padded(part, packed, h, 1)[0])


def test_gradients_of_to_heads_and_from_heads_are_those_of_plain_indexing() -> None:
    h, d_k, parts = 2, 3, 2
    packed = pack(IDS)
    layout = AttentionLayout(packed, h, d_k)
    x = torch.randn(len(packed.ids), parts * h * d_k, dtype=torch.float64)
    factors = torch.randn(parts, 3, h, 4, d_k, dtype=torch.float64)
    factors = factors * (IDS != 0)[:, None, :, None]  # nothing comes from cells of padding
    gathered, indexed = x.clone().requires_grad_(), x.clone().requires_grad_()
    (torch.stack(layout.to_heads(gathered, (h * d_k,) * parts)[0]) * factors).sum().backward()
    (torch.stack(split_padded(indexed, packed, h, parts)) * factors).sum().backward()
    assert gathered.grad is not None
    torch.testing.assert_close(gathered.grad, indexed.grad)
    assert not gathered.grad[TOKENS:].any()

    z = torch.randn(3, h, 4, d_k, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(TOKENS, h * d_k, dtype=torch.float64)
    (layout.from_heads([z])[:TOKENS] * weights).sum().backward()
    plain = torch.zeros(3, 4, h * d_k, dtype=torch.float64)
    plain[IDS != 0] = weights
    torch.testing.assert_close(z.grad, plain.unflatten(-1, (h, d_k)).transpose(1, 2))


@pytest.mark.parametrize("groups", [None, [(1, 4), (2, 2)]])
@pytest.mark.parametrize(("d_k", "d_v"), [(4, 4), (2, 5), (5, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_each_sentence_alone(
    causal: bool, d_k: int, d_v: int, groups: list[tuple[int, int]] | None
) -> None:
    h, sizes = 3, [3 * d_k, 3 * d_k, 3 * d_v]
    packed = pack(IDS, groups)
    layout = AttentionLayout(packed, h, d_k)
    QKV = torch.randn(len(packed.ids), sum(sizes))
    own = layout.attend(QKV, causal=causal)
    Q, K, V = QKV.split(sizes, dim=1)
    across = layout.attend_to(layout, Q, torch.cat((K, V), dim=1))
    assert own.shape == across.shape == (len(packed.ids), h * d_v)
    for start, end in ((0, 4), (4, 5), (5, 7)):  # the three sentences
        q, k, v = (x[start:end].unflatten(1, (h, -1)).transpose(0, 1) for x in (Q, K, V))
        mask = torch.ones(end - start, end - start, dtype=torch.bool)
        expected = reference.attention(q, k, v, mask.tril() if causal else mask)
        torch.testing.assert_close(own[start:end], expected.transpose(0, 1).flatten(1))
        if not causal:
            torch.testing.assert_close(across[start:end], own[start:end])
