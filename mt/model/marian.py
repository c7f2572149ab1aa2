"""A Transformer's weights under the names, and in the order, of transformers' MarianMTModel.

The same function, two differences. Our positions have sines in even columns and cosines in odd
ones, Marian's all sines first: the columns of d_model change places in every weight that meets the
residual stream, and positional encoding is the same sum. Our stacked matrices of attention are
Marian's single ones. What Marian has beyond the paper, biases in attention and of the logits and
another activation, our own models do not have: imported ones are a ``MarianTransformer``.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.data.special_ids import BOS, EOS, PAD
from mt.model.transformer import FeedForward, Transformer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "swish": F.silu,
    "silu": F.silu,
    "gelu": F.gelu,
}
TIED = ("embed_tokens.weight", "lm_head.weight")  # ends of names of the shared embedding
SINUSOIDS = "embed_positions.weight"


class MarianTransformer(Transformer):
    """The Transformer with what Marian has beyond the paper. It translates; it is not for training.

    ``activation`` is one of ACTIVATIONS. Raises ValueError for another.
    """

    def __init__(self, activation: str, **config: Any) -> None:
        super().__init__(**config)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation={activation!r}: must be one of {', '.join(ACTIVATIONS)}")
        self.config: dict[str, Any] = self.config | {"activation": activation}
        self.output_bias = nn.Parameter(torch.zeros(len(self.embedding.weight)))
        for layer in itertools.chain(self.encoder, self.decoder):
            for name, each in list(layer.named_modules()):
                if isinstance(each, nn.Linear) and each.bias is None:
                    layer.set_submodule(name, nn.Linear(each.in_features, each.out_features))
            layer.feed_forward = _FeedForward(self.d_model, self.config["d_ff"], activation)

    def project(self, states: Tensor) -> Tensor:
        return F.linear(states, self.embedding.weight, self.output_bias)


class _FeedForward(FeedForward):
    def __init__(self, d_model: int, d_ff: int, activation: str) -> None:
        super().__init__(d_model, d_ff)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(self.activation(self.W_1(x)))


def names(N: int) -> Iterator[tuple[str, list[str], int | None]]:
    """Of each of our weights: its name, the names of Marian's that are stacked in it, and which
    of its dimensions is the residual stream, whose columns change places (None: neither)."""
    yield "embedding.weight", ["model.shared.weight"], 1
    yield "output_bias", ["final_logits_bias"], None
    for side, i in itertools.product(("encoder", "decoder"), range(N)):
        ours, theirs = f"{side}.{i}", f"model.{side}.layers.{i}"
        attentions = [("self_attention", "self_attn", {"W_QKV": "qkv"})]
        norms = ["self_attn_layer_norm", "final_layer_norm"]
        if side == "decoder":
            attentions.append(("cross_attention", "encoder_attn", {"W_Q": "q", "W_KV": "kv"}))
            norms.insert(1, "encoder_attn_layer_norm")
        for name, of, stacks in attentions:
            for stack, letters in stacks.items():
                for part, dim in (("weight", 1), ("bias", None)):
                    single = [f"{theirs}.{of}.{letter}_proj.{part}" for letter in letters]
                    yield f"{ours}.{name}.{stack}.{part}", single, dim
            for part in ("weight", "bias"):
                yield f"{ours}.{name}.W_O.{part}", [f"{theirs}.{of}.out_proj.{part}"], 0
        for j, norm in enumerate(norms):
            for part in ("weight", "bias"):
                yield f"{ours}.add_norm.{j}.norm.{part}", [f"{theirs}.{norm}.{part}"], 0
        yield f"{ours}.feed_forward.W_1.weight", [f"{theirs}.fc1.weight"], 1
        yield f"{ours}.feed_forward.W_1.bias", [f"{theirs}.fc1.bias"], None
        for part in ("weight", "bias"):
            yield f"{ours}.feed_forward.W_2.{part}", [f"{theirs}.fc2.{part}"], 0


def _reordered(weight: Tensor, dim: int | None, order: Tensor) -> Tensor:
    return weight.clone() if dim is None else weight.index_select(dim, order)


# Out


def config(model: Transformer, positions: int) -> dict[str, Any]:
    """What MarianConfig wants to know of a model of ours with sinusoids and d_k = d_model / h.

    ``positions`` is how many Marian makes: no input or output may be longer.
    """
    ours: dict[str, Any] = model.config
    return {
        "vocab_size": ours["vocab_size"],
        "d_model": ours["d_model"],
        **{f"{side}_layers": ours["N"] for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": ours["h"] for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": ours["d_ff"] for side in ("encoder", "decoder")},
        "activation_function": "relu",
        "dropout": ours["P_drop"],
        "max_position_embeddings": positions,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }


def weights(model: Transformer, output_bias: Tensor) -> dict[str, Tensor]:
    """All that MarianMTModel's state dict must be given; not its tied ones nor positions.

    ``output_bias`` [V] is added to the logits.
    """
    d_model = model.d_model
    # Column j of Marian is column order[j] of ours: all the sines, then all the cosines.
    order = torch.arange(d_model).view(-1, 2).t().flatten()
    ours = {name: w.detach() for name, w in model.state_dict().items()}
    ours["output_bias"] = output_bias
    found: dict[str, Tensor] = {}
    for name, theirs, dim in names(int(model.config["N"] or 0)):
        stacked = ours.get(name, torch.zeros(len(theirs) * d_model))  # a bias that we have not
        for each, part in zip(theirs, stacked.chunk(len(theirs)), strict=True):
            found[each] = _reordered(part, dim, order)
    found["final_logits_bias"] = found["final_logits_bias"][None]
    return found


# In


def order_of_ids(given: dict[str, Any], unk_id: int) -> list[int]:
    """For each of our ids the Marian id whose row it has: pad, unk, bos and eos, then the rest.

    Our bos is what Marian's decoder starts with, which mostly is its pad.
    """
    special = [
        given["pad_token_id"],
        unk_id,
        given["decoder_start_token_id"],
        given["eos_token_id"],
    ]
    return [*special, *(i for i in range(given["vocab_size"]) if i not in special)]


def from_marian(
    given: dict[str, Any], weights: dict[str, Tensor], order_of_ids: list[int]
) -> MarianTransformer:
    """A MarianConfig's values and MarianMTModel's state dict -> the same function of our ids.

    Raises ValueError for what a MarianTransformer cannot be, KeyError for a weight that is missing.
    """
    for name in ("layers", "attention_heads", "ffn_dim"):
        if given[f"encoder_{name}"] != given[f"decoder_{name}"]:
            raise ValueError(f"encoder_{name} and decoder_{name} are not equal")
    if given.get("normalize_before") or given.get("normalize_embedding"):
        raise ValueError("pre-LN, or a LayerNorm of the embeddings: MarianMTModel has neither")
    tied = ("scale_embedding", "share_encoder_decoder_embeddings", "tie_word_embeddings")
    for name in tied:
        if not given.get(name, name != "scale_embedding"):
            raise ValueError(f"{name} is false: embeddings must be scaled, and one for all uses")
    model = MarianTransformer(
        given["activation_function"],
        vocab_size=len(order_of_ids),
        N=given["encoder_layers"],
        d_model=given["d_model"],
        d_ff=given["encoder_ffn_dim"],
        h=given["encoder_attention_heads"],
        P_drop=given["dropout"],
    )
    order = torch.arange(model.d_model).view(2, -1).t().flatten()  # sine and cosine by turns
    left = {name for name in weights if not name.endswith((*TIED, SINUSOIDS))}
    found: dict[str, Tensor] = {}
    for name, theirs, dim in names(given["encoder_layers"]):
        stacked = torch.cat([weights[each] for each in theirs])
        found[name] = _reordered(stacked.float(), dim, order)
        left -= set(theirs)
    if left:
        raise ValueError(
            f"weights that a Marian model does not have: {', '.join(sorted(left)[:3])}"
        )
    found["embedding.weight"] = found["embedding.weight"][order_of_ids]
    found["output_bias"] = found["output_bias"].flatten()[order_of_ids]
    model.load_state_dict(found)
    return model.eval()
