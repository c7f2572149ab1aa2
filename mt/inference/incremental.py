"""The trained Transformer made ready to translate: the function of ``mt.model``, a token at a time.

What makes it fast: keys and values are kept, the source's once a sentence and shared by its
hypotheses; residuals are added inside the matrix product before them; and when hypotheses change
places, a mask moves instead of the cache.

Shapes: B sentences, w hypotheses of each, R = B * w rows, T positions at a time (S in the encoder,
w in the decoder, where a sentence's hypotheses stand side by side), S source length, V vocabulary,
h heads, d_v = d_model / h. Keys and values are kept side by side, so that ``width`` is that of
both: d_k, which is d_v, or the larger of the two, where what is missing of the other is zeros.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.inference.linear import BlockedLinear, LinearOp, can_pack, linear_ops
from mt.model.transformer import AddNorm, FeedForward, Transformer, positional_encoding


class InferenceModel:
    """A Transformer as the search wants it (``mt.inference.beam_search.SearchModel``).

    ``precision`` float32 is exact; bfloat16 has weights and activations in it; int8 multiplies
    8-bit weights with activations rounded as they come, on the CPU. The weights are those of now:
    after more training a new Decoder is due. Where positions are learned, those behind the last are
    as the last.

    Raises ValueError for another precision, or for int8 on another device than the CPU.
    """

    def __init__(self, model: Transformer, precision: str = "float32") -> None:
        weight = model.embedding.weight.detach()
        self.device, self.precision = weight.device, precision
        self.pad_id, self.d_model, self.h = model.pad_id, model.d_model, model.h
        make, self.dtype = linear_ops(precision, self.device)
        self.encoder = [_EncoderLayer(layer, make, self.h, self.dtype) for layer in model.encoder]
        self.decoder = [_DecoderLayer(layer, make, self.h, self.dtype) for layer in model.decoder]
        self.embedding = weight.to(self.dtype)
        self.learned = None if model.positions is None else model.positions.weight.detach()
        self.positions = torch.empty(0, self.d_model)
        # By far the largest matrix: packing pays also in float32, where for others it does not.
        pack = precision == "float32" and can_pack(self.device)
        bias = getattr(model, "output_bias", None)  # of an imported model
        bias = None if bias is None else bias.detach().float()
        self.vocabulary: LinearOp = (
            BlockedLinear(self.embedding, bias) if pack else make(weight, bias)
        )

    def start(self, src: Tensor) -> "State":
        """Encode source ids [B, S], ending in eos and padded behind; nothing is decoded yet."""
        padding = src == self.pad_id
        mask = None
        if padding.any():
            mask = torch.zeros(padding.shape, dtype=self.dtype, device=self.device)
            mask = mask.masked_fill_(padding, -torch.inf)[:, None, None]
        x = self._embed(src, 0)
        for layer in self.encoder:
            x = layer(x, len(src), mask)
        cross = [layer.cross_attention.keys_values(x, len(src)) for layer in self.decoder]
        return State(torch.stack(cross), mask)

    def step(self, tokens: Tensor, state: "State", parents: Tensor | None = None) -> Tensor:
        """Last tokens [B, w] -> float32 logits of the next ones [B, w, V]; ``state`` moves on.

        Hypothesis i of a sentence continues the hypothesis ``parents`` [B, w] of the step before,
        of which there may have been more or fewer. A sentence that has had but one hypothesis at
        every step, as in greedy search, needs no parents.
        """
        B, w = tokens.shape
        x = self._embed(tokens.view(-1, 1), state.length)
        new, keys, values, mask = state.advance(w, parents)
        layers = zip(self.decoder, new, keys, values, *state.sources, strict=True)
        for layer, *caches in layers:
            x = layer(x, B, *caches, mask, state)
        return self.vocabulary(x).float().view(B, w, -1)

    def attention(self, src: Tensor, outputs: Sequence[Sequence[int]], bos: int) -> list[Tensor]:
        """How each token of given outputs looked at its source [B, S]: [N, h, T, S] a sentence.

        The weights of the cross-attention (3.2.3) by which each token was predicted, eos behind
        them included; S is each source's own length.
        """
        T = max(map(len, outputs), default=0) + 1
        given = [[bos, *ids] + [bos] * (T - 1 - len(ids)) for ids in outputs]
        state = self.start(src)
        state.weights = []
        for tokens in torch.tensor(given, device=self.device).T:
            self.step(tokens[:, None], state)
        weights = torch.stack(state.weights).unflatten(0, (T, -1))[:, :, :, :, 0]  # [T, N, B, h, S]
        weights = weights.permute(2, 1, 3, 0, 4).float().cpu()
        lengths = (src != self.pad_id).sum(dim=1).tolist()
        return [
            weights[b, :, :, : len(ids) + 1, : lengths[b]].clone() for b, ids in enumerate(outputs)
        ]

    def _embed(self, ids: Tensor, position: int) -> Tensor:
        """Ids [B, T], the first at ``position`` -> [B * T, d_model] (3.4, 3.5)."""
        end = position + ids.shape[1]
        table = self.positions  # which another thread may be replacing
        if end > len(table):
            table = position_table(self.learned, 2 * end + 100, self.d_model)
            table = self.positions = table.to(self.device, self.dtype)
        x = torch.embedding(self.embedding, ids)
        x = torch.add(table[position:end], x, alpha=math.sqrt(self.d_model))
        return x.flatten(0, 1)


def position_table(learned: Tensor | None, n: int, d_model: int) -> Tensor:
    """The first n positions [n, d_model]: sinusoids, or those learned, the last again behind it."""
    positions = torch.arange(n)
    if learned is None:
        return positional_encoding(positions, d_model)
    return learned[positions.clamp(max=len(learned) - 1)]


class State:
    """What a decoding step needs of those before it.

    A step of w hypotheses a sentence fills w slots of the cache, and there they stay. Which slots
    are a hypothesis's own past is said by a mask, zero there and -inf elsewhere: hypotheses change
    places by moving its few numbers, not the keys and values of every layer.
    """

    def __init__(self, cross: Tensor, source_mask: Tensor | None) -> None:
        self.cross = cross  # [N, B, S, 2h, width]: the keys of all heads, then their values
        self.source_mask = source_mask  # [B, 1, 1, S], or None when there is no padding
        self.sources = _by_layer(cross)
        self.own = torch.empty_like(cross[:, :, :1])  # as ``cross``, with slots for S
        self.past: Tensor | None = None  # [B, w, capacity]; None: every slot is of everybody's past
        self.slots = 0  # in use
        self.length = 0  # steps taken
        self.weights: list[Tensor] | None = None  # of cross-attention, kept when it is a list

    def advance(self, w: int, parents: Tensor | None) -> tuple[Any, Any, Any, Tensor | None]:
        """Room for w hypotheses: by layer the new slots, all keys, all values; and the mask."""
        start, self.slots = self.slots, self.slots + w
        self.length += 1
        if self.slots > self.own.shape[2]:
            # What is not used costs nothing but addresses; to enlarge twice costs time.
            self._enlarge(start, w * (3 * self.cross.shape[2] // 2 + 8))
        if parents is not None:
            if self.past is None:
                shape = (len(parents), 1, self.own.shape[2])
                self.past = self.own.new_full(shape, -torch.inf)
                self.past[:, :, :start] = 0
            sentences = torch.arange(len(parents), device=parents.device)[:, None]
            self.past = self.past[sentences, parents]
            self.past[:, :, start : self.slots].diagonal(dim1=1, dim2=2).zero_()
        mask = None if self.past is None else self.past[:, None, :, : self.slots]
        new = self.own[:, :, start : self.slots].unbind(0)  # [B, w, 2h, width] each
        keys, values = _by_layer(self.own[:, :, : self.slots])
        return new, keys, values, mask

    def _enlarge(self, used: int, more: int) -> None:
        N, B, capacity, *rest = self.own.shape
        larger = self.own.new_empty(N, B, used + more, *rest)
        larger[:, :, :used] = self.own[:, :, :used]
        self.own = larger
        if self.past is not None:
            self.past = F.pad(self.past, (0, used + more - capacity), value=-torch.inf)

    def select(self, order: list[int]) -> None:
        """Sentence i is from now on the one that was ``order[i]``; no other one is copied."""
        moved = [i for i, old in enumerate(order) if i != old]
        if moved:
            device = self.own.device
            to = torch.tensor(moved, device=device)
            origin = torch.tensor([order[i] for i in moved], device=device)
            for cache in (self.own[:, :, : self.slots], self.cross):
                cache[:, to] = cache[:, origin]
            for mask in (self.source_mask, self.past):
                if mask is not None:
                    mask[to] = mask[origin]
        n = len(order)
        self.own, self.cross = self.own[:, :n], self.cross[:, :n]
        self.sources = _by_layer(self.cross)
        self.source_mask = None if self.source_mask is None else self.source_mask[:n]
        self.past = None if self.past is None else self.past[:n]


_SMALL = 1e-30  # the probabilities below it are summed as logarithms, for float32 ends at 1e-38


class Ensemble:
    """Several Decoders of one vocabulary as one: the mean of their probabilities."""

    def __init__(self, models: Sequence[InferenceModel]) -> None:
        self.models = models

    def start(self, src: Tensor) -> "_States":
        return _States([model.start(src) for model in self.models])

    def step(self, tokens: Tensor, state: "_States", parents: Tensor | None = None) -> Tensor:
        pairs = zip(self.models, state.states, strict=True)
        said = [model.step(tokens, each, parents) for model, each in pairs]
        total, height = torch.zeros(()), torch.zeros(())
        for logits in said:
            probs = logits.softmax(dim=-1)
            # The log of the sum under the softmax, of which logsumexp is a slow way.
            height = height + logits.amax(-1, True) - probs.amax(-1, True).log()
            total = probs.add_(total)
        if total.amin() > _SMALL:
            log_p = total.log_()
        else:
            log_p = torch.stack([logits.log_softmax(dim=-1) for logits in said]).logsumexp(dim=0)
        # Of the height of the models' own logits: the repetition penalty asks for their sign.
        return log_p.add_(height / len(said) - math.log(len(said)))


class _States(NamedTuple):
    states: list[State]

    def select(self, order: list[int]) -> None:
        for state in self.states:
            state.select(order)


class _EncoderLayer:
    def __init__(
        self, layer: Any, make: Callable[..., LinearOp], h: int, dtype: torch.dtype
    ) -> None:
        self.self_attention = _Attention(layer.self_attention, layer.add_norm[0], make, h, dtype)
        self.feed_forward = _FeedForward(layer.feed_forward, layer.add_norm[1], make, dtype)

    def __call__(self, x: Tensor, B: int, mask: Tensor | None) -> Tensor:
        Q, new = self.self_attention.project(x, B)
        return self.feed_forward(self.self_attention(x, Q, *_keys_values(new), mask))


class _DecoderLayer:
    def __init__(
        self, layer: Any, make: Callable[..., LinearOp], h: int, dtype: torch.dtype
    ) -> None:
        self.self_attention = _Attention(layer.self_attention, layer.add_norm[0], make, h, dtype)
        self.cross_attention = _Attention(layer.cross_attention, layer.add_norm[1], make, h, dtype)
        self.feed_forward = _FeedForward(layer.feed_forward, layer.add_norm[2], make, dtype)

    def __call__(
        self,
        x: Tensor,
        B: int,
        slots: Tensor,
        K: Tensor,
        V: Tensor,
        source_K: Tensor,
        source_V: Tensor,
        mask: Tensor | None,
        state: State,
    ) -> Tensor:
        """x [R, d_model]; ``slots`` [B, w, 2h, width] are the place of this step in K and V."""
        Q, new = self.self_attention.project(x, B)
        slots.copy_(new)
        x = self.self_attention(x, Q, K, V, mask)
        Q = self.cross_attention.query(x, B)
        if state.weights is not None:
            scores = Q @ source_K.transpose(2, 3) * self.cross_attention.scale
            scores = scores if state.source_mask is None else scores + state.source_mask
            state.weights.append(scores.softmax(dim=-1))  # [B, h, w, S]
        return self.feed_forward(self.cross_attention(x, Q, source_K, source_V, state.source_mask))


class _Attention:
    """Multi-head attention and its Add & Norm (3.2, 3.1); the add is a part of the product by W_O.

    Self-attention has one matrix for queries, keys and values, cross-attention one for queries and
    one for the source's keys and values.
    """

    W_QKV: LinearOp
    W_Q: LinearOp
    W_KV: LinearOp
    W_O: LinearOp

    def __init__(
        self,
        layer: Any,
        add_norm: AddNorm,
        make: Callable[..., LinearOp],
        h: int,
        dtype: torch.dtype,
    ) -> None:
        weights = {name: linear.weight.detach() for name, linear in layer.named_children()}
        biases = {name: linear.bias for name, linear in layer.named_children()}  # mostly None
        d_model = len(weights["W_O"])
        d_k = next(iter(layer.sizes.values()))[0] // h
        self.h, self.width, self.scale = h, max(d_k, d_model // h), 1 / math.sqrt(d_k)
        if d_k != d_model // h:
            for name, sizes in layer.sizes.items():
                parts = weights[name].split(sizes)
                weights[name] = torch.cat([_widened(W, h, self.width) for W in parts])
            weights["W_O"] = _widened(weights["W_O"].t(), h, self.width).t()
        for name, W in weights.items():
            b = biases[name]
            setattr(self, name, make(W, None if b is None else b.detach()))
        self.norm = _Norm(add_norm, dtype)

    def project(self, x: Tensor, B: int) -> tuple[Tensor, Tensor]:
        """x [B * T, d_model] -> queries [B, h, T, width], keys and values [B, T, 2h, width]."""
        heads = self.W_QKV(x).view(B, -1, 3 * self.h, self.width)
        Q, new = heads.split((self.h, 2 * self.h), dim=2)
        return Q.transpose(1, 2), new

    def query(self, x: Tensor, B: int) -> Tensor:
        return self.W_Q(x).view(B, -1, self.h, self.width).transpose(1, 2)

    def keys_values(self, memory: Tensor, B: int) -> Tensor:
        return self.W_KV(memory).view(B, -1, 2 * self.h, self.width)

    def __call__(self, x: Tensor, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        """x [B * T, d_model], Q [B, h, T, width], K and V [B, h, slots, width] -> as x."""
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, scale=self.scale)
        return self.norm(self.W_O.add_residual(heads.transpose(1, 2).reshape(len(x), -1), x))


class _FeedForward:
    """The feed-forward network and its Add & Norm (3.3, 3.1)."""

    def __init__(
        self,
        layer: FeedForward,
        add_norm: AddNorm,
        make: Callable[..., LinearOp],
        dtype: torch.dtype,
    ) -> None:
        self.W_1 = make(layer.W_1.weight.detach(), layer.W_1.bias.detach())
        self.W_2 = make(layer.W_2.weight.detach(), layer.W_2.bias.detach())
        self.activation = getattr(layer, "activation", None)  # of an imported model
        self.norm = _Norm(add_norm, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.activation(self.W_1(x)) if self.activation else self.W_1.relu(x)
        return self.norm(self.W_2.add_residual(inner, x))


class _Norm:
    """A LayerNorm."""

    def __init__(self, add_norm: AddNorm, dtype: torch.dtype) -> None:
        norm = add_norm.norm
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight, self.bias = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


def _widened(W: Tensor, h: int, width: int) -> Tensor:
    """W [h * d, d_model] -> [h * width, d_model], rows of zeros behind those of each head."""
    rows = W.unflatten(0, (h, -1))
    return F.pad(rows, (0, 0, 0, width - rows.shape[1])).flatten(0, 1)


def _keys_values(cache: Tensor) -> tuple[Tensor, Tensor]:
    """[..., slots, 2h, width] -> keys and values, views of [..., h, slots, width]."""
    K, V = cache.transpose(-3, -2).chunk(2, dim=-3)
    return K, V


def _by_layer(cache: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """[N, B, slots, 2h, width] -> the keys of each layer and the values of each layer."""
    K, V = _keys_values(cache)
    return K.unbind(0), V.unbind(0)
