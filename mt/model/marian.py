"""Convert weights to and from transformers' MarianMTModel.

Both models compute the same function, with three differences. Our positions have sines in even
columns and cosines in odd ones; Marian's have all sines first. So the columns of d_model change
places in every weight that meets the residual stream. We stack matrices of attention that Marian
keeps apart. And Marian has what the paper has not: biases in attention and of the logits, and
other activations; a ``MarianTransformer`` has them too.

Shapes: V vocabulary.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.data.special_ids import BOS, EOS, PAD
from mt.model.layers import ACTIVATIONS
from mt.model.transformer import Transformer

# Of our activations, the name that transformers has for it
FUNCTIONS = {name: name for name in ACTIVATIONS} | {"gelu_tanh": "gelu_new"}
TIED = ("embed_tokens.weight", "lm_head.weight")  # names of the shared embedding end so
SINUSOIDS = "embed_positions.weight"
EXCLUDED = -1e4  # bias of the logits that no translation may contain; float16 can hold it


class MarianTransformer(Transformer):
    """The Transformer with what Marian adds to the paper; for translating, not for training.

    Raises ValueError for an ``activation`` that is no key of ACTIVATIONS.
    """

    def __init__(self, activation: str, **config: Any) -> None:
        super().__init__(activation=activation, **config)
        self.config: dict[str, Any] = self.config | {"activation": activation}
        self.output_bias = nn.Parameter(torch.zeros(len(self.embedding.weight)))
        for layer in itertools.chain(self.encoder, self.decoder):
            for name, module in list(layer.named_modules()):
                if isinstance(module, nn.Linear) and module.bias is None:
                    layer.set_submodule(name, nn.Linear(module.in_features, module.out_features))

    def project(self, states: Tensor) -> Tensor:
        return F.linear(states, self.embedding.weight, self.output_bias)


def _names(N: int) -> Iterator[tuple[str, list[str], int | None]]:
    """Each weight's name, the names of Marian's that are stacked in it, its residual dimension.

    The residual dimension is the one whose columns change places; None: no dimension is.
    """
    yield "embedding.weight", ["model.shared.weight"], 1
    yield "output_bias", ["final_logits_bias"], None
    for side, i in itertools.product(("encoder", "decoder"), range(N)):
        layer, marian_layer = f"{side}.{i}", f"model.{side}.layers.{i}"
        attentions = [("self_attention", "self_attn", {"W_QKV": "qkv"})]
        norms = ["self_attn_layer_norm", "final_layer_norm"]
        if side == "decoder":
            attentions.append(("cross_attention", "encoder_attn", {"W_Q": "q", "W_KV": "kv"}))
            norms.insert(1, "encoder_attn_layer_norm")
        # Our module, Marian's modules, the residual dimensions of weight and bias.
        modules: list[tuple[str, list[str], int, int | None]] = []
        for attention, marian_attention, stacks in attentions:
            for stack, letters in stacks.items():
                single = [f"{marian_attention}.{letter}_proj" for letter in letters]
                modules.append((f"{attention}.{stack}", single, 1, None))
            modules.append((f"{attention}.W_O", [f"{marian_attention}.out_proj"], 0, 0))
        modules += [(f"add_norm.{j}.norm", [norm], 0, 0) for j, norm in enumerate(norms)]
        modules.append(("feed_forward.W_1", ["fc1"], 1, None))
        modules.append(("feed_forward.W_2", ["fc2"], 0, 0))
        for name, marian_modules, weight_dim, bias_dim in modules:
            for part, dim in (("weight", weight_dim), ("bias", bias_dim)):
                marian_names = [f"{marian_layer}.{module}.{part}" for module in marian_modules]
                yield f"{layer}.{name}.{part}", marian_names, dim


def _reordered(weight: Tensor, dim: int | None, order: Tensor) -> Tensor:
    return weight.clone() if dim is None else weight.index_select(dim, order)


def marian_config(model: Transformer, positions: int) -> dict[str, Any]:
    """The arguments of MarianConfig for a model of ours with sinusoids and d_k = d_model / h.

    ``positions`` is how many Marian makes: no input or output may be longer.
    """
    sizes: dict[str, Any] = model.config
    sides = ("encoder", "decoder")
    return {
        "vocab_size": sizes["vocab_size"],
        "d_model": sizes["d_model"],
        **{f"{side}_layers": sizes["N"] for side in sides},
        **{f"{side}_attention_heads": sizes["h"] for side in sides},
        **{f"{side}_ffn_dim": sizes["d_ff"] for side in sides},
        "activation_function": FUNCTIONS[sizes.get("activation", "relu")],
        "dropout": sizes["P_drop"],
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


def to_marian(model: Transformer, output_bias: Tensor) -> dict[str, Tensor]:
    """The state dict of a MarianMTModel, without its tied weights and its positions.

    ``output_bias`` [V] is added to the logits.
    """
    d_model = model.d_model
    # Column j of Marian is column order[j] of ours: all the sines, then all the cosines.
    order = torch.arange(d_model).view(-1, 2).t().flatten()
    state = {name: w.detach() for name, w in model.state_dict().items()}
    state["output_bias"] = output_bias
    marian_state: dict[str, Tensor] = {}
    for name, marian_names, dim in _names(model.config["N"]):
        stacked = state.get(name, torch.zeros(len(marian_names) * d_model))  # a bias we do not have
        chunks = stacked.chunk(len(marian_names))
        for marian_name, chunk in zip(marian_names, chunks, strict=True):
            marian_state[marian_name] = _reordered(chunk, dim, order)
    marian_state["final_logits_bias"] = marian_state["final_logits_bias"][None]
    return marian_state


def order_of_ids(config: dict[str, Any], unk_id: int) -> list[int]:
    """For each of our ids the Marian id with the same row: pad, unk, bos and eos, then the rest.

    Our bos is the token with which Marian's decoder starts, mostly its pad.
    """
    pad_id, bos_id = config["pad_token_id"], config["decoder_start_token_id"]
    special = [pad_id, unk_id, bos_id, config["eos_token_id"]]
    return [*special, *(i for i in range(config["vocab_size"]) if i not in special)]


def from_marian(
    config: dict[str, Any], weights: dict[str, Tensor], order: list[int]
) -> MarianTransformer:
    """The values of a MarianConfig and a MarianMTModel's state dict -> the same model, our ids.

    ``order`` is that of ``order_of_ids``.

    Raises ValueError for what a MarianTransformer cannot be, KeyError for a missing weight. Takes
    no memory but for weights that are there.
    """
    for name in ("layers", "attention_heads", "ffn_dim"):
        if config[f"encoder_{name}"] != config[f"decoder_{name}"]:
            raise ValueError(f"encoder_{name} and decoder_{name} are not equal")
    if config.get("normalize_before") or config.get("normalize_embedding"):
        raise ValueError("pre-LN, or a LayerNorm of the embeddings: MarianMTModel has neither")
    for name in ("scale_embedding", "share_encoder_decoder_embeddings", "tie_word_embeddings"):
        if not config.get(name, name != "scale_embedding"):
            raise ValueError(f"{name} is false: embeddings must be scaled, and one for all uses")
    sizes = {
        "N": config["encoder_layers"],
        "d_model": config["d_model"],
        "d_ff": config["encoder_ffn_dim"],
        "h": config["encoder_attention_heads"],
        "P_drop": config["dropout"],
    }
    for _, marian_names, _ in _names(config["encoder_layers"]):
        if missing := [name for name in marian_names if name not in weights]:
            raise KeyError(missing[0])
    name, vocab_size = config["activation_function"], config["vocab_size"]
    activation = next((ours for ours, theirs in FUNCTIONS.items() if theirs == name), name)
    with torch.device("meta"):  # without memory: the configuration may name any size
        empty = MarianTransformer(activation, vocab_size=vocab_size, **sizes)
        wanted = to_marian(empty, empty.output_bias)
    for name, w in wanted.items():
        if weights[name].shape != w.shape:
            raise ValueError(
                f"{name} has the shape {list(weights[name].shape)}, its configuration wants "
                f"{list(w.shape)}"
            )
    model = MarianTransformer(activation, vocab_size=len(order), **sizes)
    columns = torch.arange(model.d_model).view(2, -1).t().flatten()  # sine and cosine by turns
    unused = {name for name in weights if not name.endswith((*TIED, SINUSOIDS))}
    state: dict[str, Tensor] = {}
    for name, marian_names, dim in _names(config["encoder_layers"]):
        stacked = torch.cat([weights[marian_name] for marian_name in marian_names])
        state[name] = _reordered(stacked.float(), dim, columns)
        unused -= set(marian_names)
    if unused:
        raise ValueError(f"weights that no Marian model has: {', '.join(sorted(unused)[:3])}")
    state["embedding.weight"] = state["embedding.weight"][order]
    state["output_bias"] = state["output_bias"].flatten()[order]
    model.load_state_dict(state)
    return model.eval()
