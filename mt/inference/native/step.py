"""The encoder and the step of an InferenceModel by ``step.cpp``, and the caches that they need.

Shapes: B sentences, w hypotheses of each, S source length, T tokens of a hypothesis, V vocabulary,
N layers, h heads, and ``width``, the numbers of a key or a value of a head.
"""

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from mt.data.special_ids import PAD
from mt.inference.cache import usual_length, with_room
from mt.inference.native.library import library
from mt.inference.native.linear import Linear, NativeLinear
from mt.model.layers import ACTIVATIONS
from mt.model.transformer import Transformer
from mt.utils.native import Float, Int, Pointer

NAMES = "relu", "silu", "gelu", "gelu_tanh"  # in the order of Activation in step.cpp
Fields = list[tuple[str, Any]]


def _fields(kind: Any, *names: str) -> Fields:
    return [(name, kind) for name in names]


# The structures of step.cpp


class _Norm(ctypes.Structure):
    _fields_ = [*_fields(Pointer, "weight", "bias"), ("eps", Float)]


class _SelfAttention(ctypes.Structure):
    _fields_ = [*_fields(Linear, "W_QKV", "W_O"), ("norm", _Norm)]


class _CrossAttention(ctypes.Structure):
    _fields_ = [*_fields(Linear, "W_Q", "W_KV", "W_O"), ("norm", _Norm)]


class _FeedForward(ctypes.Structure):
    _fields_ = [*_fields(Linear, "W_1", "W_2"), ("norm", _Norm)]


class _EncoderLayer(ctypes.Structure):
    _fields_ = [("self_attention", _SelfAttention), ("feed_forward", _FeedForward)]


class _DecoderLayer(ctypes.Structure):
    _fields_ = [
        ("self_attention", _SelfAttention),
        ("cross_attention", _CrossAttention),
        ("feed_forward", _FeedForward),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        *_fields(Pointer, "encoder", "decoder"),
        *_fields(Int, "encoder_layers", "decoder_layers"),
        *_fields(Pointer, "embedding", "target_embedding"),
        ("vocabulary", Linear),
        *_fields(_Norm, "encoder_norm", "decoder_norm"),
        *_fields(Int, "d_model", "h", "width", "is_pre", "activation"),
        *_fields(Float, "scale", "embedding_scale"),
    ]


class _Cache(ctypes.Structure):
    _fields_ = [("start", Pointer), *_fields(Int, "layer", "sentence")]


class _Sources(ctypes.Structure):
    _fields_ = [
        *_fields(Int, "B", "S"),
        *_fields(Pointer, "ids", "lengths", "positions"),
        ("cross", _Cache),
        ("threads", Int),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *_fields(Int, "B", "w"),
        *_fields(Pointer, "tokens", "parents", "source_lengths", "ages", "positions"),
        *_fields(_Cache, "own", "cross"),
        ("slots", Int),
        ("past", Pointer),
        *_fields(Int, "past_w", "past_T"),
        ("paths", Pointer),
        *_fields(Int, "T", "used"),
        ("logits", Pointer),
        ("threads", Int),
    ]


class NativeState:
    """The keys and values of a running batch: as ``mt.inference.cache.State``, without masks.

    For each hypothesis it keeps the path of its tokens through the slots of its sentence. So
    attention adds them up in one order, whatever other sentences the batch has.
    """

    def __init__(self, cross: Tensor, source_lengths: Tensor) -> None:
        N, B, S, heads, width = cross.shape
        self.cross, self.source_lengths = cross, source_lengths  # [N, B, S, 2h, width], [B]
        # Unused memory costs only addresses; enlarging costs time.
        self.own = cross.new_empty(N, B, usual_length(S), heads, width)
        self.paths = _empty(B, 1, 0, dtype=torch.int32)  # [B, w, T], first tokens first
        # Tokens of each sentence's hypotheses:
        self.ages = torch.zeros(B, dtype=torch.long, device="cpu")
        self.oldest = 0  # the greatest age
        self.used = 0  # slots: the others were never written

    def make_room(self, w: int) -> None:
        """Have slots for w more tokens of each sentence."""
        capacity = self.own.shape[2]
        if self.used + w > capacity:
            most = max(self.used + w, 2 * capacity, w * usual_length(self.cross.shape[2]))
            self.own = with_room(self.own, 0, most, self.used)

    def join(self, other: "NativeState") -> None:
        """Add the sentences of another state, which has not taken a step yet."""
        n, B = len(self.ages), len(self.ages) + len(other.ages)
        S, capacity = other.cross.shape[2], self.cross.shape[2]
        self.cross = with_room(self.cross, B, S, capacity)
        self.cross[:, n:B, :S] = other.cross
        self.own = with_room(self.own, B, 0, self.used)
        paths = self.paths.new_empty(B, *self.paths.shape[1:])
        paths[:n] = self.paths
        self.paths = paths
        self.source_lengths = torch.cat([self.source_lengths, other.source_lengths])
        self.ages = torch.cat([self.ages, other.ages])

    def select(self, order: list[int]) -> None:
        """Make sentence ``order[i]`` sentence i; sentences that keep their place are not copied."""
        moved = [i for i, old in enumerate(order) if i != old]
        if moved:
            origin = [order[i] for i in moved]
            for cache in (self.own[:, :, : self.used], self.cross):
                cache[:, moved] = cache[:, origin]
        self.source_lengths = self.source_lengths[order]
        self.ages, self.paths = self.ages[order], self.paths[order]
        self.oldest = int(self.ages.max())


class NativeTransformer:
    """What an InferenceModel computes in C++ where it can: ``start`` and ``step``."""

    def __init__(self, model: Any) -> None:
        loaded = library()
        assert loaded is not None
        self._encode, self._step = loaded.mt_encode, loaded.mt_step
        self._tensors: list[Any] = []  # the structures hold pointers to these
        encoder = [self._encoder_layer(model, layer) for layer in model.encoder]
        decoder = [self._decoder_layer(model, layer) for layer in model.decoder]
        attention = model.decoder[0].self_attention
        self.V = model.vocabulary.out
        self.shape = len(decoder), 2 * model.h, attention.width
        self._struct = _Model(
            self._array(_EncoderLayer, encoder),
            self._array(_DecoderLayer, decoder),
            len(encoder),
            len(decoder),
            self._pointer(model.embedding),
            self._pointer(model.target_embedding),
            self._linear(model.vocabulary),
            self._norm(model.encoder_norm if model.is_pre else None),
            self._norm(model.decoder_norm if model.is_pre else None),
            model.d_model,
            model.h,
            attention.width,
            model.is_pre,
            [ACTIVATIONS[name] for name in NAMES].index(model.decoder[0].feed_forward.activation),
            attention.scale,
            math.sqrt(model.d_model),
        )
        self._address = ctypes.addressof(self._struct)

    def start(self, src: Tensor, positions: Tensor) -> NativeState:
        """The state before the first step, of source ids [B, S]; positions [>= S, d_model]."""
        (N, heads, width), (B, S) = self.shape, src.shape
        src, lengths = src.long().contiguous(), (src != PAD).sum(dim=1)
        cross = _empty(N, B, S, heads, width)
        arguments = _Sources(
            B,
            S,
            src.data_ptr(),
            lengths.data_ptr(),
            positions.data_ptr(),
            _cache(cross),
            torch.get_num_threads(),
        )
        if not self._encode(self._address, ctypes.byref(arguments)):
            raise IndexError("a source id is not in the vocabulary")
        return NativeState(cross, lengths)

    def step(
        self, tokens: Tensor, state: NativeState, parents: Tensor | None, positions: Tensor
    ) -> Tensor:
        """Last tokens [B, w] -> logits [B, w, V]; positions [> state.oldest, d_model]."""
        B, w = tokens.shape
        state.make_room(w)
        tokens = tokens.long().contiguous()
        parents = None if parents is None else parents.long().contiguous()
        paths = _empty(B, w, state.oldest + 1, dtype=torch.int32)
        logits = _empty(B, w, self.V)
        arguments = _Step(
            B,
            w,
            tokens.data_ptr(),
            None if parents is None else parents.data_ptr(),
            state.source_lengths.data_ptr(),
            state.ages.data_ptr(),
            positions.data_ptr(),
            _cache(state.own),
            _cache(state.cross),
            state.own.shape[2],
            state.paths.data_ptr(),
            *state.paths.shape[1:],
            paths.data_ptr(),
            paths.shape[2],
            state.used,
            logits.data_ptr(),
            torch.get_num_threads(),
        )
        if not self._step(self._address, ctypes.byref(arguments)):
            raise IndexError("a token is not in the vocabulary")
        state.paths, state.used = paths, arguments.used
        state.ages, state.oldest = state.ages + 1, state.oldest + 1
        return logits

    # The structures of a model

    def _encoder_layer(self, model: Any, layer: Any) -> _EncoderLayer:
        return _EncoderLayer(
            self._self_attention(model, layer), self._feed_forward(model, layer.feed_forward)
        )

    def _decoder_layer(self, model: Any, layer: Any) -> _DecoderLayer:
        cross = layer.cross_attention
        products = (self._linear(W) for W in (cross.W_Q, cross.W_KV, cross.W_O))
        return _DecoderLayer(
            self._self_attention(model, layer),
            _CrossAttention(*products, self._norm_of(model, cross)),
            self._feed_forward(model, layer.feed_forward),
        )

    def _self_attention(self, model: Any, layer: Any) -> _SelfAttention:
        attention = layer.self_attention
        return _SelfAttention(
            self._linear(attention.W_QKV),
            self._linear(attention.W_O),
            self._norm_of(model, attention),
        )

    def _feed_forward(self, model: Any, layer: Any) -> _FeedForward:
        return _FeedForward(
            self._linear(layer.W_1), self._linear(layer.W_2), self._norm_of(model, layer)
        )

    def _linear(self, product: NativeLinear) -> Linear:
        self._tensors.append(product)
        return product.struct

    def _norm_of(self, model: Any, sublayer: Any) -> _Norm:
        return self._norm(sublayer.before if model.is_pre else sublayer.norm)

    def _norm(self, norm: Any) -> _Norm:
        if norm is None:
            return _Norm()
        return _Norm(self._pointer(norm.weight), self._pointer(norm.bias), norm.eps)

    def _pointer(self, tensor: Tensor) -> int:
        tensor = tensor.contiguous()
        self._tensors.append(tensor)
        return tensor.data_ptr()

    def _array(self, kind: Any, items: list[Any]) -> int:
        array = (kind * len(items))(*items)
        self._tensors.append(array)
        return ctypes.addressof(array)


def can_compute(model: Transformer) -> bool:
    """Whether the encoder and the step of a model run in C++ here."""
    layer: Any = model.decoder[0]
    width = max(layer.self_attention.sizes["W_QKV"]) // model.h
    return (
        model.embedding.weight.device.type == "cpu"
        and layer.feed_forward.W_2.in_features % 4 == 0
        and model.d_model % 16 == width % 16 == 0
        and library() is not None
    )


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Room for the C++, whatever torch's default type and device are."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def _cache(tensor: Tensor) -> _Cache:
    return _Cache(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))
