"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017), section 3, for training.

``mt.model.reference`` is the same function in plain lines: read that first. Here the sentences of
a batch lie one after the other without padding (``mt.data.packing``); attention alone lays them
out as sentences (``mt.model.attention_layout``).

Shapes: B sentences, S source length, T target length, n source rows, m target rows, V vocabulary,
h heads, d_v = d_model / h, d_k, and qk_dim = h * d_k.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.data.packing import Packed, pack
from mt.data.special_ids import PAD
from mt.model.attention_layout import AttentionLayout
from mt.model.dropout import Dropout
from mt.model.layers import (
    ACTIVATIONS,
    NORMS,
    CrossAttention,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerShape,
    SelfAttention,
    final_norm,
)
from mt.utils.checks import check_bool, check_int, check_number, short_repr

# A product of two widths fits in an integer, and a thousand layers are made in a second.
MOST_LAYERS, MOST_WIDTH = 1000, 2**24
DROPOUT = ("P_drop", "P_attention", "P_inner")  # arguments that change no trained model
PAPER: dict[str, Any] = {
    "norm": "post",
    "activation": "relu",
    "P_attention": 0.0,
    "P_inner": 0.0,
    "tied_embeddings": True,
    "scaled_scores": True,
}


class Stacks(nn.Module):
    """What the encoder-decoder Transformer and a decoder-only model share: all but their layers.

    ``d_k`` None is d_model / h. ``learned_positions`` is the number of learned positions; None
    means sinusoids, which have no end. The other defaults are the paper's too:

    - ``norm`` "pre" normalises what a sublayer reads instead of the sum, and the last layer's
      output (Xiong et al. 2020);
    - ``activation`` is a key of ACTIVATIONS;
    - ``P_attention`` is the dropout of attention weights, ``P_inner`` that after the activation;
    - ``tied_embeddings`` False gives each embedding and the output a matrix of its own;
    - ``scaled_scores`` False leaves out the division by sqrt(d_k) (3.2.1).

    Raises ValueError for a number that the architecture does not allow.
    """

    encoder: nn.ModuleList
    decoder: nn.ModuleList
    architecture = ""

    def __init__(
        self,
        vocab_size: int,
        N: int = 6,
        d_model: int = 512,
        d_ff: int = 2048,
        h: int = 8,
        P_drop: float = 0.1,
        d_k: int | None = None,
        learned_positions: int | None = None,
        norm: str = "post",
        activation: str = "relu",
        P_attention: float = 0.0,
        P_inner: float = 0.0,
        tied_embeddings: bool = True,
        scaled_scores: bool = True,
    ) -> None:
        super().__init__()
        _check(P_drop, vocab_size=vocab_size, N=N, d_model=d_model, d_ff=d_ff, h=h)
        d_k = d_model // h if d_k is None else d_k
        check_int("d_k", d_k, most=MOST_WIDTH)
        check_int("qk_dim", h * d_k, most=MOST_WIDTH)
        check_int("learned_positions", learned_positions, most=MOST_WIDTH, optional=True)
        variant = {
            "norm": norm,
            "activation": activation,
            "P_attention": P_attention,
            "P_inner": P_inner,
            "tied_embeddings": tied_embeddings,
            "scaled_scores": scaled_scores,
        }
        _check_variant(variant)
        self.config: dict[str, Any] = {
            "vocab_size": vocab_size,
            "N": N,
            "d_model": d_model,
            "d_ff": d_ff,
            "h": h,
            "P_drop": P_drop,
            "d_k": d_k,
            "learned_positions": learned_positions,
            **{name: value for name, value in variant.items() if value != PAPER[name]},
        }
        self.d_model, self.h, self.d_k = d_model, h, d_k
        self.P_attention, self.scale = P_attention, d_k**-0.5 if scaled_scores else 1.0
        self.compiled = False  # set where torch.compile looks into the layers
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=PAD)
        self.output: nn.Linear | None = None
        if not tied_embeddings:
            self.output = nn.Linear(d_model, vocab_size, bias=False)
        self.dropout = Dropout(P_drop)
        self.add_stacks(N, LayerShape(d_model, d_ff, P_drop, h * d_k, norm, activation, P_inner))
        self.positions: nn.Embedding | None = None
        if learned_positions is not None:  # for both sides, as the sinusoids are (table 3, row E)
            self.positions = nn.Embedding(learned_positions, d_model)
        self.reset_parameters()

    def add_stacks(self, N: int, shape: LayerShape) -> None:
        """Make ``encoder`` and ``decoder``."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draw the weights as fairseq does (tensor2tensor is similar): the paper does not say how.

        Embeddings and learned positions come from N(0, 1/sqrt(d_model)), so that the logits of 3.4
        start near unit variance; the row of padding is zero. Matrices are Xavier-uniform, those
        that make queries, keys and values with a gain of 1/sqrt(2). Biases are zero.
        """
        for module in self.modules():
            if isinstance(module, SelfAttention | CrossAttention | FeedForward):
                module.reset_parameters()
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.d_model**-0.5)
                if module.padding_idx is not None:
                    with torch.no_grad():
                        module.weight[PAD].zero_()
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=self.d_model**-0.5)

    @property
    def output_weight(self) -> Tensor:
        """The matrix [V, d_model] that makes logits of states (3.4)."""
        return self.embedding.weight if self.output is None else self.output.weight

    @property
    def layers(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]

    def layout(self, packed: Packed) -> AttentionLayout:
        P_drop = self.P_attention if self.training else 0.0
        return AttentionLayout(packed, self.h, self.d_k, self.scale, P_drop, not self.compiled)

    def embed(self, *sides: Packed) -> list[Tensor]:
        """The ids and positions of each side -> [n, d_model] for each: the embedding of an id times
        sqrt(d_model), plus the encoding of its position (3.4, 3.5)."""
        # One look-up serves all sides: its gradient is as large as the matrix.
        rows = self.embedding(torch.cat([side.ids for side in sides]))
        by_side = rows.split([len(side.ids) for side in sides])
        return [self.add_positions(x, side) for x, side in zip(by_side, sides, strict=True)]

    def add_positions(self, x: Tensor, side: Packed) -> Tensor:
        """The embeddings [n, d_model] of a side times sqrt(d_model), plus its positions' (3.5)."""
        encoding = self.encode_positions(side.positions).to(x.dtype)
        return encoding.add(x, alpha=math.sqrt(self.d_model))

    def encode_positions(self, positions: Tensor) -> Tensor:
        """Positions [n], from 0 -> [n, d_model]: sinusoids or learned (3.5)."""
        if self.positions is None:
            return positional_encoding(positions, self.d_model)
        return self.positions(positions)

    def has_positions(self, longest: int) -> bool:
        """Whether there are positions for a sequence: sinusoids go on, learned ones end."""
        return self.positions is None or longest <= self.positions.num_embeddings

    def check_length(self, longest: int) -> None:
        """ValueError for a sequence longer than the learned positions."""
        if self.positions is not None and not self.has_positions(longest):
            raise ValueError(
                f"a sentence of {longest} positions: more than the "
                f"learned_positions={self.positions.num_embeddings} of the model"
            )

    def states(self, src: Packed, tgt: Packed) -> Tensor:
        """Source ids, target ids shifted right -> the states [m, d_model] of the target.

        A source sentence ends in eos. Position i of a target sees the positions up to i (3.1).
        Rows from ``tgt.tokens`` on are padding. Raises ValueError for a sentence longer than the
        learned positions.
        """
        raise NotImplementedError

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Source ids [B, S], target ids shifted right [B, T] -> logits [B, T, V].

        Both are padded at the end. Logits of padding mean nothing: take no gradient from them.
        """
        target = pack(tgt)
        logits = self.project(self.states(pack(src), target))  # [m, V]
        return logits[target.rows]  # unpacked

    def project(self, states: Tensor) -> Tensor:
        """States [..., d_model] -> logits [..., V] (3.4)."""
        return F.linear(states, self.output_weight)


class Transformer(Stacks):
    """Encoder, decoder and the one matrix they share (3.1, 3.4, figure 1).

    It computes all target positions at once, as training does. ``mt.inference.incremental``
    computes the same function a token at a time. ``Stacks`` describes the arguments.
    """

    architecture = "encoder_decoder"

    def add_stacks(self, N: int, shape: LayerShape) -> None:
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(N))
        self.encoder_norm = final_norm(shape)
        self.decoder_norm = final_norm(shape)
        self.target_embedding: nn.Embedding | None = None
        if self.output is not None:  # nothing is tied
            V = len(self.embedding.weight)
            self.target_embedding = nn.Embedding(V, self.d_model, padding_idx=PAD)

    def states(self, src: Packed, tgt: Packed) -> Tensor:
        self.check_length(max(src.rows.shape[1], tgt.rows.shape[1]))
        source, target = self.layout(src), self.layout(tgt)
        if self.target_embedding is None:
            x, y = self.embed(src, tgt)
        else:
            (x,) = self.embed(src)
            y = self.add_positions(self.target_embedding(tgt.ids), tgt)
        return self.decode(y, self.encode(x, source), source, target)

    def encode(self, x: Tensor, source: AttentionLayout) -> Tensor:
        """Embedded source [n, d_model] -> memory [n, d_model] (3.1), dropout first (5.4)."""
        x = self.dropout(x)
        for layer in self.encoder:
            x = layer(x, source)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(
        self, y: Tensor, memory: Tensor, source: AttentionLayout, target: AttentionLayout
    ) -> Tensor:
        """Embedded target [m, d_model], memory [n, d_model] -> states [m, d_model] (3.1, 5.4)."""
        y = self.dropout(y)
        for layer in self.decoder:
            y = layer(y, memory, source, target)
        return y if self.decoder_norm is None else self.decoder_norm(y)


def shape_of(config: dict[str, Any]) -> dict[str, Any]:
    """What weights fit to: the arguments of a model, with their defaults and without dropout."""
    whole = PAPER | {"architecture": Transformer.architecture} | config
    return {name: value for name, value in whole.items() if name not in DROPOUT}


def positional_encoding(positions: Tensor, d_model: int) -> Tensor:
    """Positions [T], from 0 -> float32 [T, d_model], sine in even and cosine in odd columns (3.5).

    They are computed for the positions asked for, so that no length is too long. They are float32
    whatever the default: in bfloat16, angles above 256 are off by 1 and more.
    """
    two_i = torch.arange(0, d_model, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None] * torch.exp(two_i * (-math.log(10000.0) / d_model))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def _check(P_drop: float, **sizes: int) -> None:
    for name, size in sizes.items():
        check_int(name, size, most=MOST_LAYERS if name == "N" else MOST_WIDTH)
    check_number("P_drop", P_drop, 0, below=1)
    if sizes["d_model"] % 2:
        raise ValueError(f"d_model={sizes['d_model']}: must be even, for pairs of sine and cosine")
    if sizes["d_model"] % sizes["h"]:
        raise ValueError(f"h={sizes['h']}: must divide d_model={sizes['d_model']}")


def _check_variant(variant: dict[str, Any]) -> None:
    for name, known in (("norm", NORMS), ("activation", tuple(ACTIVATIONS))):
        if variant[name] not in known:
            raise ValueError(
                f"{name}={short_repr(variant[name])}: must be one of {', '.join(known)}"
            )
    for name in ("P_attention", "P_inner"):
        check_number(name, variant[name], 0, below=1)
    for name in ("tied_embeddings", "scaled_scores"):
        check_bool(name, variant[name])
