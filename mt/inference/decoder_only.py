"""``mt.model.decoder_only`` made ready to translate: the source is read once, then a token a step.

The keys and values of the source stand at the beginning of the cache in which each step writes its
own (``mt.inference.cache``). All hypotheses of a sentence see them.

Shapes: as in ``mt.inference.incremental``.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mt.data.special_ids import BOS, PAD
from mt.inference.cache import Index, State, keys_values
from mt.inference.incremental import (
    InferenceEncoderLayer,
    InferenceModel,
    InferenceStacks,
    final_norm,
)
from mt.model.decoder_only import DecoderOnly
from mt.model.transformer import Stacks, Transformer


class DecoderOnlyModel(InferenceStacks):
    """A decoder-only model as the search wants it, like ``InferenceModel`` with its encoder."""

    def __init__(self, model: DecoderOnly, precision: str = "float32") -> None:
        super().__init__(model, precision)
        shape = self.make, self.h, model.scale, self.dtype
        self.decoder = [_Layer(layer, *shape) for layer in model.decoder]
        self.decoder_norm = final_norm(model.decoder_norm, self.dtype)

    def start(self, src: Tensor) -> "PromptState":
        B, S = src.shape
        mask = None
        if S > 1:  # what stands after a source is padding, which no token of it sees
            mask = torch.full((S, S), -torch.inf, dtype=self.dtype, device=self.device).triu(1)
        x = self.embed(src, 0)
        caches = []
        for layer in self.decoder:
            x, new = layer.read(x, B, mask)
            caches.append(new)
        return PromptState(torch.stack(caches), (src != PAD).sum(dim=1).tolist())

    def step(self, tokens: Tensor, state: "PromptState", parents: Tensor | None = None) -> Tensor:
        B, w = tokens.shape
        x = self.embed(tokens.view(-1, 1), state.positions(w))
        step = state.advance(w, parents)
        for layer, cache, K, V in zip(
            self.decoder, step.caches, step.keys, step.values, strict=True
        ):
            x = layer.step(x, B, cache, step.written, K, V, step.mask)
        return self.vocabulary(self.decoder_norm(x)).float().view(B, w, -1)

    def cross_attention_weights(
        self, src: Tensor, outputs: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        """The attention to the source by which each token of ``outputs`` was predicted.

        As ``InferenceModel.cross_attention_weights``: [N, h, T, S] for each sentence. A row sums to
        one over the source alone, as if the target were not there.
        """
        results = []
        for row, output in zip(src.tolist(), outputs, strict=True):
            source = [token for token in row if token != PAD]
            ids, S = torch.tensor([[*source, BOS, *output]], device=self.device), len(source)
            mask = torch.full((ids.shape[1],) * 2, -torch.inf, dtype=self.dtype, device=self.device)
            mask.triu_(1)
            x = self.embed(ids, 0)
            weights = []
            for layer in self.decoder:
                Q, new = layer.self_attention.project(x, 1)
                K, V = keys_values(new)
                scores = Q[0, :, S:] @ K[0, :, :S].transpose(1, 2) * layer.self_attention.scale
                weights.append(scores.float().softmax(dim=-1))
                x = layer.feed_forward(layer.self_attention(x, Q, K, V, mask))
            results.append(torch.stack(weights).cpu())
        return results


class PromptState(State):
    """A cache that begins with the sources: the first slots of each sentence."""

    def __init__(self, prompts: Tensor, lengths: list[int]) -> None:
        super().__init__(prompts[:, :, :0], lengths)
        self._self_cache = prompts  # [N, B, S, 2h, width]
        self.slots_used = S = prompts.shape[2]
        if min(lengths) < S:
            self.past_mask = self._prompt_mask(S)

    def _prompt_mask(self, slots: int) -> Tensor:
        """[B, 1, slots] that shows the sources of these lengths, and nothing else."""
        device = self._self_cache.device
        lengths = torch.tensor(self.source_lengths, device=device)
        hidden = torch.arange(slots, device=device) >= lengths[:, None, None]
        return self._self_cache.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)

    def _view_sources(self) -> None:
        """The sources lie in the cache of the step: there is nothing else to view."""

    def positions(self, w: int) -> int | Tensor:
        ages = [
            length + self.length - joined_at
            for length, joined_at in zip(self.source_lengths, self.joined_at, strict=True)
        ]
        if ages.count(ages[0]) == len(ages):
            return ages[0]
        return torch.tensor(ages, device=self._self_cache.device).repeat_interleave(w)

    def join(self, other: State) -> None:
        assert isinstance(other, PromptState)
        n, S = len(self.joined_at), other.slots_used
        self._past_mask()  # from now on the sentences see different slots
        self._make_room(S)
        self._self_cache[:, :n, self.slots_used : S] = 0
        self.slots_used = max(self.slots_used, S)
        super().join(other)
        assert self.past_mask is not None
        self._self_cache[:, n : len(self.joined_at), :S] = other._self_cache
        slots = self.past_mask.shape[2]
        self.past_mask[n:] = other._prompt_mask(slots)


class _Layer(InferenceEncoderLayer):
    """Causal self-attention and feed-forward, for a whole source or a step."""

    def step(
        self, x: Tensor, B: int, cache: Tensor, index: Index, K: Tensor, V: Tensor,
        mask: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """x [R, d_model] -> [R, d_model]; see ``_DecoderLayer`` of the other architecture."""
        Q, new = self.self_attention.project(x, B)
        cache[index] = new
        return self.feed_forward(self.self_attention(x, Q, K, V, mask))


def make_inference(model: Stacks, precision: str) -> InferenceStacks:
    """The model as the search wants it. Raises ValueError as ``InferenceModel``."""
    if isinstance(model, DecoderOnly):
        return DecoderOnlyModel(model, precision)
    assert isinstance(model, Transformer)
    return InferenceModel(model, precision)
