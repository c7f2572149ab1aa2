"""Packed sentences: a batch without padding."""

from typing import Any

import pytest
import torch

from mt.data.packing import MULTIPLE, pack
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
    """No padding takes part, neither that of sentences nor that after the last one."""
    model = Transformer(40, N=2, d_model=16, d_ff=32, h=4, P_drop=0.0).double()
    lengths = [(7, 3), (1, 9), (5, 5), (2, 1)]
    pairs = [(torch.randint(4, 40, (s,)), torch.randint(4, 40, (t,))) for s, t in lengths]
    together = gradients(model, pairs)
    one_by_one = [gradients(model, [pair]) for pair in pairs]
    assert len(together) == len(list(model.parameters()))
    for batch_gradient, *parts in zip(together, *one_by_one, strict=True):
        torch.testing.assert_close(batch_gradient, sum(parts), atol=1e-10, rtol=1e-10)
