"""The models of other toolkits that the benchmarks measure, each built as its toolkit builds it.

All have the same sizes, random weights, one embedding for source, target and output, and
sinusoids. Other toolkits' interpreters run this file too, so its top imports the standard library
only.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

PAD, UNK, BOS, EOS = 0, 1, 2, 3  # where the toolkit lets us choose
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
FIRST_WORD = 10  # from here on, no toolkit has a special id
PACKAGES = {  # what the interpreter of each toolkit must have, by its name in --python
    "mt": ("mt",),
    "nn.Transformer": ("torch",),
    "transformers": ("transformers",),
    "ctranslate2": ("ctranslate2", "transformers"),  # transformers makes the model to convert
    "joeynmt": ("joeynmt",),
    "opennmt-py": ("onmt",),
    "fairseq": ("fairseq",),
    "sockeye": ("sockeye",),
}


class Size(NamedTuple):
    d_model: int
    d_ff: int
    heads: int
    layers: int  # in the encoder, and as many in the decoder
    vocabulary: int

    def of_mt(self) -> dict[str, int]:
        """The arguments of mt's Transformer beside the vocabulary."""
        return {"N": self.layers, "d_model": self.d_model, "d_ff": self.d_ff, "h": self.heads}


Pairs = Sequence[tuple[list[int], list[int]]]  # ids of source and target, without special ones
SIZES = {"small": Size(256, 1024, 4, 3, 8000), "base": Size(512, 2048, 8, 6, 32000)}


def padded(sources: Sequence[Sequence[int]], eos: int, pad: int) -> Any:
    """Ids of each sentence -> a tensor [B, S]: the ids, eos, padding."""
    import torch

    width = max(map(len, sources)) + 1
    return torch.tensor([[*ids, eos] + [pad] * (width - len(ids) - 1) for ids in sources])


def word(token: int) -> str:
    """The name of an id, for toolkits that want a vocabulary of words."""
    return SPECIAL[token] if token < len(SPECIAL) else f"t{token}"


def in_both_stacks(**values: int) -> dict[str, int]:
    """The values of an option for the encoder and of the same option for the decoder."""
    return {f"{s}_{name}": value for s in ("encoder", "decoder") for name, value in values.items()}


def marian(size: Size, positions: int = 512) -> Any:
    """MarianMTModel as the paper's Transformer: post-LN, one embedding, fixed sinusoids."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=size.vocabulary,
        decoder_vocab_size=size.vocabulary,
        d_model=size.d_model,
        **in_both_stacks(layers=size.layers, attention_heads=size.heads, ffn_dim=size.d_ff),
        activation_function="relu",
        max_position_embeddings=positions,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config).eval()


def joeynmt_drops_as_the_paper(model: Any) -> None:
    """Keep dropout on the embeddings and on the sublayers' outputs; set every other one to 0."""
    import torch
    from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward

    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            module.dropout.p = 0.0
        elif isinstance(module, PositionwiseFeedForward):
            inner = next(m for m in module.pwff_layer if isinstance(m, torch.nn.Dropout))
            inner.p = 0.0


def joeynmt_model(size: Size, dropout: float = 0.0) -> Any:
    """The ids of unk, pad, bos and eos are 0 to 3, in the order that Joey NMT prescribes."""
    from types import SimpleNamespace

    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    unk, pad, bos, eos = range(4)
    special = {"unk_id": unk, "pad_id": pad, "bos_id": bos, "eos_id": eos, "lang_tags": []}
    for name, token in (("unk", "<unk>"), ("pad", "<pad>"), ("bos", "<s>"), ("eos", "</s>")):
        special[f"{name}_token"] = token
    vocabulary = Vocabulary([], SimpleNamespace(**special, sep_token=None, sep_id=None))
    # Its own method searches the whole list for each new word, which is too slow for 32,000.
    vocabulary._itos += [word(i) for i in range(4, size.vocabulary)]
    config = joeynmt_shape(size, dropout) | {"embed_initializer": "xavier_uniform"}
    return build_model(config, vocabulary, vocabulary)


def joeynmt_shape(size: Size, dropout: float) -> dict[str, Any]:
    """The "model" section of its configuration, but for the initialisation of the embeddings."""
    side = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "hidden_size": size.d_model,
        "ff_size": size.d_ff,
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": dropout},
        "dropout": dropout,
        "layer_norm": "post",
        "activation": "relu",
    }
    tied = {"tied_embeddings": True, "tied_softmax": True}
    return {"initializer": "xavier_uniform", **tied, "encoder": side, "decoder": side}


def joeynmt_batch(model: Any, sources: list[list[int]], targets: list[list[int]] | None) -> Any:
    """A Batch to train on, or to translate where there are no ``targets``."""
    import torch
    from joeynmt.batch import Batch

    bos, eos, pad = model.bos_index, model.eos_index, model.pad_index
    src = padded(sources, eos, pad)
    return Batch(
        src=src,
        src_length=(src != pad).sum(dim=1),
        src_prompt_mask=None,
        trg=targets and padded([[bos, *ids] for ids in targets], eos, pad),
        trg_prompt_mask=None,
        indices=torch.arange(len(src)),
        device=src.device,
        pad_index=pad,
        eos_index=eos,
        is_train=targets is not None,
    )


def opennmt_model(size: Size, more: str = "") -> tuple[Any, Any, Any]:
    """Model, options and vocabularies; ``more`` are options of its train.py.

    The ids of unk, pad, bos and eos are 0 to 3.
    """
    import pyonmttok
    from onmt.model_builder import build_model
    from onmt.opts import train_opts
    from onmt.utils.parse import ArgumentParser

    special = ["<unk>", "<blank>", "<s>", "</s>"]
    words = [word(i) for i in range(len(special), size.vocabulary)]
    vocabulary = pyonmttok.build_vocab_from_tokens(words, special_tokens=special)
    vocabulary.default_id = 0
    vocabularies = {"src": vocabulary, "tgt": vocabulary}
    vocabularies |= {"decoder_start_token": "<s>", "data_task": "seq2seq"}
    parser = ArgumentParser()
    train_opts(parser)
    options = parser.parse_args(
        "--data none --src_vocab none --save_model none --encoder_type transformer "
        "--decoder_type transformer --position_encoding --share_vocab --share_embeddings "
        "--share_decoder_embeddings --param_init 0 --param_init_glorot --model_dtype fp32 "
        f"--hidden_size {size.d_model} --word_vec_size {size.d_model} --layers {size.layers} "
        f"--transformer_ff {size.d_ff} --heads {size.heads} {more}".split()
    )
    options = ArgumentParser.update_model_opts(options) or options
    return build_model(options, options, vocabularies, None, -1), options, vocabularies


def fairseq_model(size: Size, **more: Any) -> tuple[Any, Any]:
    """Model and dictionary; ``more`` are options of fairseq."""
    import dataclasses
    from argparse import Namespace
    from types import SimpleNamespace

    # fairseq 0.12 and its Hydra use dataclasses as defaults of fields. From Python 3.11 on, a
    # default must be hashable.
    original = dataclasses.dataclass
    dataclasses.dataclass = partial(original, unsafe_hash=True)  # type: ignore[assignment]
    try:
        from fairseq.data import Dictionary
        from fairseq.models.transformer import TransformerModel, base_architecture
    finally:
        dataclasses.dataclass = original  # type: ignore[assignment]

    words = Dictionary()  # with four special symbols
    for i in range(len(words), size.vocabulary):
        words.add_symbol(word(i))
    options = Namespace(
        **in_both_stacks(layers=size.layers, attention_heads=size.heads),
        **in_both_stacks(embed_dim=size.d_model, ffn_embed_dim=size.d_ff),
        share_all_embeddings=True,
        left_pad_source=False,
        max_source_positions=512,
        max_target_positions=512,
        **more,
    )
    base_architecture(options)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    return TransformerModel.build_model(options, task), words


def sockeye_model(size: Size, dropout: float = 0.0, inference_only: bool = False) -> Any:
    """Its dropout is in the paper's two places."""
    from sockeye import constants
    from sockeye.data_io import DataConfig
    from sockeye.encoder import EmbeddingConfig
    from sockeye.model import ModelConfig, SockeyeModel, initialize_parameters
    from sockeye.transformer import TransformerConfig

    layers = TransformerConfig(
        model_size=size.d_model,
        attention_heads=size.heads,
        feed_forward_num_hidden=size.d_ff,
        act_type="relu",
        num_layers=size.layers,
        dropout_attention=0.0,
        dropout_act=0.0,
        dropout_prepost=dropout,
        positional_embedding_type=constants.FIXED_POSITIONAL_EMBEDDING,
        preprocess_sequence="",
        postprocess_sequence="drn",  # dropout, residual, norm
        max_seq_len_source=512,
        max_seq_len_target=512,
        depth_key_value=size.d_model,
    )
    embedding = EmbeddingConfig(size.vocabulary, size.d_model, dropout=0.0)
    config = ModelConfig(
        config_data=DataConfig(None, 512, 512, num_source_factors=1, num_target_factors=1),
        vocab_source_size=size.vocabulary,
        vocab_target_size=size.vocabulary,
        config_embed_source=embedding,
        config_embed_target=embedding,
        config_encoder=layers,
        config_decoder=layers,
        weight_tying_type=constants.WEIGHT_TYING_SRC_TRG_SOFTMAX,
    )
    model = SockeyeModel(config, inference_only=inference_only)
    model.apply(initialize_parameters)
    # apply() does not reach into a compiled layer, whose bias is uninitialised memory
    model.output_layer.bias.data.zero_()
    return model
