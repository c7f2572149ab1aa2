"""The trained Transformer made ready to translate: ``mt.model``'s function, a token at a time.

Three things make it fast. Keys and values are cached, those of a source once for all hypotheses of
the sentence. The matrix product before a residual adds it. When one hypothesis continues another,
its row of a mask is copied, not its keys and values.

Shapes: B sentences, w hypotheses of each, R = B * w rows, T queries of a sentence at a time (S in
the encoder, w in the decoder), S source length, V vocabulary, N layers, h heads, d_v = d_model / h.
Keys and values are cached side by side with the same ``width`` of a head, the larger of d_k and
d_v; zeros fill up the other. Masks are added to the scores here: 0 where a query may look, else
-inf (``mt.model`` uses True and False).
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.data.special_ids import BOS, PAD
from mt.inference.cache import Index, State, keys_values
from mt.inference.linear import BlockedLinear, LinearOp, MakeLinear, can_block, linear_ops
from mt.inference.native.best import best_tokens
from mt.inference.native.step import NativeState, NativeTransformer, can_compute
from mt.model.layers import AddNorm, FeedForward
from mt.model.transformer import Stacks, Transformer, positional_encoding

if TYPE_CHECKING:
    from mt.inference.candidates import BestTokens


class InferenceStacks:
    """What a Transformer and a decoder-only model share: embeddings, positions, output matrix."""

    decoder: Sequence[Any]  # the layers

    def __init__(self, model: Stacks, precision: str, native: bool = False) -> None:
        weight = model.embedding.weight.detach()
        self.device, self.precision = weight.device, precision
        self.exact = precision == "float32"  # a result does not depend on its batch
        self.parameters = sum(p.numel() for p in model.parameters())
        self.d_model, self.h = model.d_model, model.h
        self.make, self.dtype = linear_ops(precision, self.device, native)
        self.embedding = weight.to(self.dtype)
        self.learned = None if model.positions is None else model.positions.weight.detach()
        self.positions = torch.empty(0, self.d_model)
        bias = _detached(getattr(model, "output_bias", None))  # of an imported model
        output = model.output_weight.detach().to(self.dtype)
        self.vocabulary: LinearOp
        # Blocks pay off in float32 too for this matrix, by far the largest; for others they do not.
        if precision == "float32" and not native and can_block(self.device, self.dtype):
            self.vocabulary = BlockedLinear(output, None if bias is None else bias.float())
        else:
            self.vocabulary = self.make(output, bias)

    def start(self, src: Tensor) -> Any:
        """The state before the first step, of source ids [B, S] that end in eos, then padding."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any, parents: Tensor | None = None) -> Tensor:
        """Last tokens [B, w] -> float32 logits of the next tokens [B, w, V]; ``state`` advances.

        Hypothesis i of sentence b continues hypothesis ``parents[b, i]`` of the step before, which
        may have had another number of hypotheses. With one hypothesis at every step, as in greedy
        search, there is no need for ``parents``.
        """
        raise NotImplementedError

    def cross_attention_weights(
        self, src: Tensor, outputs: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        """The cross-attention (3.2.3) by which each token of ``outputs`` was predicted.

        Sources [B, S], outputs without eos -> weights [N, h, T, S] for each sentence, where T
        counts the output's tokens and its eos, and S is the source's own length.
        """
        raise NotImplementedError

    def embed(self, ids: Tensor, first: int | Tensor, table: Tensor | None = None) -> Tensor:
        """Ids [B, T] -> [B * T, d_model] (3.4, 3.5).

        ``first`` is the position of the first column, or the positions [B] of the only one.
        ``table`` replaces the embedding.
        """
        end = (first if isinstance(first, int) else int(first.max())) + ids.shape[1]
        encodings = self.encodings(end)
        positions = encodings[first:end] if isinstance(first, int) else encodings[first, None]
        x = torch.embedding(self.embedding if table is None else table, ids)
        return torch.add(positions, x, alpha=math.sqrt(self.d_model)).flatten(0, 1)

    def encodings(self, n: int) -> Tensor:
        """The encodings [>= n, d_model] of the first n positions, and of more."""
        encodings = self.positions  # read once: another thread may replace it
        if n > len(encodings):
            encodings = position_table(self.learned, 2 * n + 100, self.d_model)
            encodings = self.positions = encodings.to(self.device, self.dtype)
        return encodings


class InferenceModel(InferenceStacks):
    """A Transformer as the search wants it (``mt.inference.beam_search.SearchModel``).

    ``precision`` float32 is exact; bfloat16 is the type of weights and activations; int8 multiplies
    8-bit weights with activations rounded on the fly, on the CPU. float32 and int8 are computed in
    C++ where that can be (``mt.inference.native``). The weights are those at the time when it is
    made: after more training, make a new InferenceModel. Positions after the last learned one have
    the encoding of that one.

    Raises ValueError for another precision, and for int8 on a device other than the CPU.
    """

    def __init__(self, model: Transformer, precision: str = "float32") -> None:
        native = precision in ("float32", "int8") and can_compute(model)
        super().__init__(model, precision, native)
        shape = self.make, self.h, model.scale, self.dtype
        self.encoder = [InferenceEncoderLayer(layer, *shape) for layer in model.encoder]
        self.decoder = [_DecoderLayer(layer, *shape) for layer in model.decoder]
        self.encoder_norm = final_norm(model.encoder_norm, self.dtype)
        self.decoder_norm = final_norm(model.decoder_norm, self.dtype)
        self.is_pre = model.decoder_norm is not None
        self.target_embedding = self.embedding
        if model.target_embedding is not None:
            self.target_embedding = model.target_embedding.weight.detach().to(self.dtype)
        self.native: NativeTransformer | None = None
        self.best_tokens: BestTokens | None = None
        if native:
            self.native, self.best_tokens = NativeTransformer(self), best_tokens
            self.exact = True

    def start(self, src: Tensor) -> "State | NativeState":
        if self.native is not None:
            return self.native.start(src, self.encodings(src.shape[1]))
        return self._start(src)

    def _start(self, src: Tensor) -> State:
        padding = src == PAD
        mask = None
        if padding.any():
            mask = torch.zeros(padding.shape, dtype=self.dtype, device=self.device)
            mask = mask.masked_fill_(padding, -torch.inf)[:, None, None]
        x = self.embed(src, 0)
        for layer in self.encoder:
            x = layer(x, len(src), mask)
        x = self.encoder_norm(x)
        cross = [layer.cross_attention.keys_values(x, len(src)) for layer in self.decoder]
        return State(torch.stack(cross), (~padding).sum(dim=1).tolist())

    def step(self, tokens: Tensor, state: Any, parents: Tensor | None = None) -> Tensor:
        if self.native is not None:
            return self.native.step(tokens, state, parents, self.encodings(state.oldest + 1))
        B, w = tokens.shape
        x = self.embed(tokens.view(-1, 1), state.positions(w), self.target_embedding)
        step = state.advance(w, parents)
        source_keys, source_values = state.cross_by_layer
        layers = zip(
            self.decoder, step.caches, step.keys, step.values, source_keys, source_values,
            strict=True,
        )  # fmt: skip
        for layer, cache, K, V, source_K, source_V in layers:
            x = layer(x, B, cache, step.written, K, V, source_K, source_V, step.mask, state)
        return self.vocabulary(self.decoder_norm(x)).float().view(B, w, -1)

    def cross_attention_weights(
        self, src: Tensor, outputs: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        T = max(map(len, outputs), default=0) + 1
        inputs = [[BOS, *ids] + [BOS] * (T - 1 - len(ids)) for ids in outputs]  # shifted right
        tokens = torch.tensor(inputs, device=self.device)
        state = self._start(src)
        state.weights = []
        x = self.embed(tokens, 0, self.target_embedding)
        causal = torch.full((T, T), -torch.inf, dtype=self.dtype, device=self.device).triu(1)
        for layer, K, V in zip(self.decoder, *state.cross_by_layer, strict=True):
            cache = x.new_empty(len(src), T, 2 * self.h, layer.self_attention.width)
            everything = slice(None), slice(None)
            own_K, own_V = keys_values(cache)
            x = layer(x, len(src), cache, everything, own_K, own_V, K, V, causal, state)
        weights = torch.stack(state.weights, dim=1).float().cpu()  # [B, N, h, T, S]
        lengths = state.source_lengths
        return [
            weights[b, :, :, : len(ids) + 1, : lengths[b]].clone() for b, ids in enumerate(outputs)
        ]


def position_table(learned: Tensor | None, n: int, d_model: int) -> Tensor:
    """The first n positions [n, d_model]: sinusoids, or learned ones, whose last one repeats."""
    positions = torch.arange(n)
    if learned is None:
        return positional_encoding(positions, d_model)
    return learned[positions.clamp(max=len(learned) - 1)]


_SMALL = 1e-30  # smaller probabilities are summed as logarithms: float32 ends at 1e-38


class Ensemble:
    """Several InferenceModels of one vocabulary as one: the mean of their probabilities."""

    def __init__(self, models: Sequence[InferenceStacks]) -> None:
        self.models = models

    def start(self, src: Tensor) -> "_EnsembleState":
        return _EnsembleState([model.start(src) for model in self.models])

    def step(
        self, tokens: Tensor, state: "_EnsembleState", parents: Tensor | None = None
    ) -> Tensor:
        pairs = zip(self.models, state.states, strict=True)
        all_logits = [model.step(tokens, own_state, parents) for model, own_state in pairs]
        total, log_sums = torch.zeros(()), torch.zeros(())
        for logits in all_logits:
            probs = logits.softmax(dim=-1)
            # The logarithm of the softmax's denominator; logsumexp is slower.
            log_sums = log_sums + logits.amax(-1, True) - probs.amax(-1, True).log()
            total = probs.add_(total)
        if total.amin() > _SMALL:
            log_p = total.log_()
        else:
            log_probs = [logits.log_softmax(dim=-1) for logits in all_logits]
            log_p = torch.stack(log_probs).logsumexp(dim=0)
        # As high as the models' own logits: the repetition penalty depends on their sign.
        return log_p.add_(log_sums / len(all_logits) - math.log(len(all_logits)))


class _EnsembleState(NamedTuple):
    states: list[Any]  # State or NativeState

    def select(self, order: list[int]) -> None:
        for state in self.states:
            state.select(order)

    def join(self, other: "_EnsembleState") -> None:
        for state, joining in zip(self.states, other.states, strict=True):
            state.join(joining)


class InferenceEncoderLayer:
    """Self-attention and feed-forward."""

    def __init__(
        self, layer: Any, make: MakeLinear, h: int, scale: float, dtype: torch.dtype
    ) -> None:
        shape = make, h, scale, dtype
        self.self_attention = InferenceAttention(layer.self_attention, layer.add_norm[0], *shape)
        self.feed_forward = InferenceFeedForward(layer.feed_forward, layer.add_norm[1], make, dtype)

    def __call__(self, x: Tensor, B: int, mask: Tensor | None) -> Tensor:
        return self.read(x, B, mask)[0]

    def read(self, x: Tensor, B: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """x [B * S, d_model] -> the same, and keys and values [B, S, 2h, width]."""
        Q, new = self.self_attention.project(x, B)
        return self.feed_forward(self.self_attention(x, Q, *keys_values(new), mask)), new


class _DecoderLayer:
    def __init__(
        self, layer: Any, make: MakeLinear, h: int, scale: float, dtype: torch.dtype
    ) -> None:
        shape = make, h, scale, dtype
        self.self_attention = InferenceAttention(layer.self_attention, layer.add_norm[0], *shape)
        self.cross_attention = InferenceAttention(layer.cross_attention, layer.add_norm[1], *shape)
        self.feed_forward = InferenceFeedForward(layer.feed_forward, layer.add_norm[2], make, dtype)

    def __call__(
        self,
        x: Tensor,
        B: int,
        cache: Tensor,
        index: Index,
        K: Tensor,
        V: Tensor,
        source_K: Tensor,
        source_V: Tensor,
        mask: Tensor | None,
        state: State,
    ) -> Tensor:
        """x [R, d_model] -> [R, d_model]; this step's keys and values go to ``cache[index]``, and
        K and V [B, h, slots, width] are views of the cache."""
        Q, new = self.self_attention.project(x, B)
        cache[index] = new
        x = self.self_attention(x, Q, K, V, mask)
        Q = self.cross_attention.query(x, B)
        if state.weights is not None:
            scores = Q @ source_K.transpose(2, 3) * self.cross_attention.scale
            scores = scores if state.source_mask is None else scores + state.source_mask
            state.weights.append(scores.softmax(dim=-1))  # [B, h, w, S]
        return self.feed_forward(self.cross_attention(x, Q, source_K, source_V, state.source_mask))


class InferenceAttention:
    """Multi-head attention and its Add & Norm (3.2, 3.1): the product by W_O adds the residual.

    Self-attention has W_QKV; cross-attention has W_Q, and W_KV for the source.
    """

    W_QKV: LinearOp
    W_Q: LinearOp
    W_KV: LinearOp
    W_O: LinearOp

    def __init__(
        self,
        layer: Any,
        add_norm: AddNorm,
        make: MakeLinear,
        h: int,
        scale: float,
        dtype: torch.dtype,
    ) -> None:
        linears: dict[str, Any] = dict(layer.named_children())
        weights = {name: linear.weight.detach() for name, linear in linears.items()}
        d_v = len(weights["W_O"]) // h
        d_k = next(iter(layer.sizes.values()))[0] // h
        self.h, self.width, self.scale, self.d_k = h, max(d_k, d_v), scale, d_k
        if d_k != d_v:
            for name, sizes in layer.sizes.items():
                parts = weights[name].split(sizes)
                weights[name] = torch.cat([_widened(W, h, self.width) for W in parts])
            weights["W_O"] = _widened(weights["W_O"].t(), h, self.width).t()
        for name, W in weights.items():
            setattr(self, name, make(W, _detached(linears[name].bias)))  # mostly without a bias
        self.before, self.norm = norms(add_norm, dtype)

    def project(self, x: Tensor, B: int) -> tuple[Tensor, Tensor]:
        """x [B * T, d_model] -> queries [B, h, T, width], keys and values [B, T, 2h, width]."""
        heads = self.W_QKV(self.before(x)).view(B, -1, 3 * self.h, self.width)
        Q, new = heads.split((self.h, 2 * self.h), dim=2)
        return Q.transpose(1, 2), new

    def query(self, x: Tensor, B: int) -> Tensor:
        return self.W_Q(self.before(x)).view(B, -1, self.h, self.width).transpose(1, 2)

    def keys_values(self, memory: Tensor, B: int) -> Tensor:
        return self.W_KV(memory).view(B, -1, 2 * self.h, self.width)

    def __call__(self, x: Tensor, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        """x [B * T, d_model], Q [B, h, T, width], K, V [B, h, slots, width] -> [B * T, d_model]."""
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, scale=self.scale)
        return self.norm(self.W_O.add_residual(heads.transpose(1, 2).reshape(len(x), -1), x))


class InferenceFeedForward:
    """The feed-forward network and its Add & Norm (3.3, 3.1)."""

    def __init__(
        self, layer: FeedForward, add_norm: AddNorm, make: MakeLinear, dtype: torch.dtype
    ) -> None:
        self.W_1 = make(layer.W_1.weight.detach(), layer.W_1.bias.detach())
        self.W_2 = make(layer.W_2.weight.detach(), layer.W_2.bias.detach())
        self.activation = layer.activation
        self.before, self.norm = norms(add_norm, dtype)

    def inner(self, x: Tensor) -> Tensor:
        """x [R, d_model] -> [R, d_ff], after the activation."""
        x = self.before(x)
        return self.W_1.relu(x) if self.activation is None else self.activation(self.W_1(x))

    def __call__(self, x: Tensor) -> Tensor:
        return self.norm(self.W_2.add_residual(self.inner(x), x))


class InferenceNorm:
    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight, self.bias = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


Norm = Callable[[Tensor], Tensor]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def norms(add_norm: AddNorm, dtype: torch.dtype) -> tuple[Norm, Norm]:
    """What stands before a sublayer and what stands after its residual: one is the LayerNorm."""
    norm = InferenceNorm(add_norm.norm, dtype)
    return (norm, _as_it_is) if add_norm.is_pre else (_as_it_is, norm)


def final_norm(norm: nn.LayerNorm | None, dtype: torch.dtype) -> Norm:
    return _as_it_is if norm is None else InferenceNorm(norm, dtype)


def _widened(W: Tensor, h: int, width: int) -> Tensor:
    """W [h * d, d_model] -> [h * width, d_model], with rows of zeros after those of each head."""
    rows = W.unflatten(0, (h, -1))
    return F.pad(rows, (0, 0, 0, width - rows.shape[1])).flatten(0, 1)


def _detached(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.detach()
